package channeladmin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/check"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/plan"
)

func channelSetCommand(a *console.App) *cobra.Command {
	o := setOptions{}
	c := a.Command("set MODULE CHANNEL VERSION [--dry-run]", "assign a version of a module to a channel", `
klm shows first which runtimes will be upgraded and which are blocked, and why, as the control plane would decide now. It asks if runtimes
follow the channel, and waits until those that are upgraded at once have the version and are Ready. With --dry-run it changes nothing. If a
RolloutPolicy is for the channel, it shows the stages, and waits only until the manager has made the ModuleRollout; with --wait it waits until
the rollout has reached all runtimes. --urgency=hotfix shortens what the RolloutPolicy allows; --urgency=emergency
leaves out soaks and gates, and needs the verb override for modulerollouts.`, `
klm channel set sample fast 2.0.0 --dry-run
klm channel set sample fast 2.0.0
klm channel set sample fast 2.0.0 --yes --timeout=30m
klm channel set sample fast 2.0.1 --urgency=emergency --reason="2.0.0 deletes volumes"
klm channel set sample experimental 3.0.0 --create`,
		console.Arguments("MODULE", "CHANNEL", "VERSION"), func(cmd *cobra.Command, args []string) error {
			o.module, o.channel, o.version = args[0], args[1], args[2]
			o.isPatient = cmd.Flags().Changed("wait") && !o.NoWait
			return setOrRemoveChannel(cmd.Context(), a, o)
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.CatalogModules(a), connection.ModuleChannels(a),
		connection.ModuleVersions(a))
	o.Register(c.Flags())
	o.registerUrgency(c)
	c.Flags().BoolVar(&o.create, "create", false, "add the channel if the module does not have it")
	connection.RegisterMaintenancePolicyFlag(c.Flags(), &o.policy)
	return c
}

func channelRemoveCommand(a *console.App) *cobra.Command {
	o := setOptions{remove: true}
	c := a.Command("remove MODULE CHANNEL [--dry-run]", "remove a channel of a module", `
klm shows first which runtimes follow the channel, and asks if there are some. They keep the version that they have, and report the reason
ChannelNotFound until they follow another channel. With --dry-run it changes nothing.`, `
klm channel remove sample experimental --dry-run
klm channel remove sample experimental`,
		console.Arguments("MODULE", "CHANNEL"), func(cmd *cobra.Command, args []string) error {
			o.module, o.channel = args[0], args[1]
			return setOrRemoveChannel(cmd.Context(), a, o)
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.CatalogModules(a), connection.ModuleChannels(a))
	c.Flags().BoolVarP(&o.Yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&o.DryRun, "dry-run", false, "only show what would be done, and change nothing")
	return c
}

// setOptions are the arguments and flags of klm channel set and klm channel remove.
type setOptions struct {
	console.ChangeFlags
	module, channel string
	version         string // "" if the channel is removed
	create, remove  bool
	policy          string
	names           bool // the report has the names of the runtimes of each stage
	isPatient       bool // --wait was given: klm also waits for a rollout in stages
	urgencyFlags
	diff diffFlags
}

func setOrRemoveChannel(ctx context.Context, a *console.App, o setOptions) error {
	if !connection.ChannelName.MatchString(o.channel) || o.channel == v1beta2.NoChannel {
		return console.Fail(console.ExitUsage,
			"CHANNEL: %q is not a channel: use 3 to 32 lower-case letters; %q is reserved",
			o.channel, v1beta2.NoChannel)
	}
	if err := o.parseUrgency(); err != nil {
		return err
	}
	c, err := connection.ControlPlane(ctx, a)
	if err != nil {
		return err
	}
	r, s, err := effectsOf(ctx, a, c, o)
	if err != nil {
		return err
	}
	if err := r.addDiff(ctx, c, &o.diff); err != nil {
		return err
	}
	if o.DryRun || r.From == o.version && (o.urgency.Is == "" || r.plan == nil) {
		return a.Print(r)
	}
	if err := r.confirm(a, o.Yes); err != nil {
		return err
	}
	if err := saveAssignment(ctx, c, o, s.Releases[o.module].ResourceVersion); err != nil {
		return err
	}
	if r.isStaged() {
		if err := waitForRollout(ctx, a, c, o, r.plan.Rollout.Name); err != nil {
			return err
		}
		return a.Print(r)
	}
	if moving := r.runtimesMovingAtOnce(); !o.NoWait && !o.remove && len(moving) > 0 {
		if err := waitForReadyVersion(ctx, a, c, o, moving); err != nil {
			return err
		}
		r.installed = len(moving)
	}
	return a.Print(r)
}

// effectsOf returns the effects that a change of a channel has on runtimes, and the catalog before the change.
func effectsOf(ctx context.Context, a *console.App, c *connection.Cluster, o setOptions) (
	*Effects, *connection.Catalog, error) {
	s, err := c.Catalog(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := o.checkExistence(s, c); err != nil {
		return nil, nil, err
	}
	if err := o.checkUrgencyIsNew(s.Releases[o.module]); err != nil {
		return nil, nil, err
	}
	after := withAssignment(s, o)
	w := preview{setOptions: o, after: after.ForResolve(), release: after.Releases[o.module], now: a.Now()}
	if err := w.readWindows(ctx, c); err != nil {
		return nil, nil, err
	}
	r, err := previewEffects(ctx, a, c, w)
	if err != nil {
		return nil, nil, err
	}
	r.From, _ = s.Releases[o.module].ChannelVersion(o.channel)
	return r, s, r.addPlan(ctx, c, w)
}

// confirm shows the effects that the change has on runtimes, and asks for confirmation if runtimes are affected.
func (r *Effects) confirm(a *console.App, yes bool) error {
	affected := len(r.Runtimes)
	question := fmt.Sprintf("Remove the channel of %s?", console.Count(affected, "runtime"))
	if !r.isRemoval() {
		affected = len(r.runtimesMovingAtOnce())
		for _, e := range r.Runtimes {
			if e.Effect == "waits" {
				affected++
			}
		}
		question = fmt.Sprintf("Release version %s to %s?", r.Version, console.Count(affected, "runtime"))
		if r.isStaged() {
			question = fmt.Sprintf("Release version %s to %s%s, in the stages of RolloutPolicy %s?", r.Version,
				console.Count(affected, "runtime"), r.urgencySuffix(), r.Policy)
		}
	}
	if yes || affected == 0 {
		return nil
	}
	before := *r
	before.DryRun = true
	p := a.Page()
	before.Show(p)
	fmt.Fprint(a.Err, p.String())
	r.isShown = true
	return a.Confirm(question)
}

// runtimesMovingAtOnce returns the runtimes whose update begins without waiting, for example for a maintenance window.
func (r *Effects) runtimesMovingAtOnce() map[string]bool {
	all := map[string]bool{}
	for _, e := range r.Runtimes {
		if e.Effect == "moves" {
			all[e.Runtime] = true
		}
	}
	return all
}

// isRemoval reports whether the command removes the channel.
func (r *Effects) isRemoval() bool { return r.Version == "" }

// waitForReadyVersion waits until runtimes have the version of the channel and the module is Ready there.
// waitForReadyVersion does not wait for a runtime that is deleted.
func waitForReadyVersion(ctx context.Context, a *console.App, c *connection.Cluster, o setOptions,
	runtimes map[string]bool) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	progress, isDone := "", false
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	const interval = 10 * time.Second
	err := fleetlist.ShowLive(waiting, c, "", interval, func() bool { return false },
		func(fleet map[string]*fleetlist.Member) error {
			text, missing := versionProgress(fleet, runtimes, o)
			if text != progress {
				fmt.Fprintf(a.Err, "  %s\n", text)
				progress = text
			}
			if isDone = missing == 0; isDone {
				stop()
			}
			return nil
		})
	switch {
	case isDone || err != nil:
		return err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return console.Fail(console.ExitNotReady,
			"the channel is set, but not done after %s: %s; klm status --module %s shows the rest", o.Timeout,
			console.OrDash(progress), o.module)
	}
	return ctx.Err()
}

// versionProgress returns a text about the runtimes in which the module is Ready with the new version, and the number
// of runtimes in which the module is not.
func versionProgress(fleet map[string]*fleetlist.Member, runtimes map[string]bool, o setOptions) (
	text string, notReady int) {
	states := map[string]int{}
	for name := range runtimes {
		m := fleet[name]
		if m == nil {
			continue
		}
		i := slices.IndexFunc(m.Status.Modules, func(e fleetlist.MemberModule) bool { return e.Name == o.module })
		state := string(console.StateNew)
		if i >= 0 {
			e := m.Status.Modules[i]
			if e.Version == o.version && e.State == v1beta2.StateReady {
				continue
			}
			state = cmp.Or(e.Reason, string(e.State))
		}
		notReady++
		states[state]++
	}
	text = fmt.Sprintf("%d of %s Ready with version %s", len(runtimes)-notReady,
		console.Count(len(runtimes), "runtime"), o.version)
	for _, state := range slices.Sorted(maps.Keys(states)) {
		text += fmt.Sprintf(", %d %s", states[state], state)
	}
	return text, notReady
}

// checkExistence returns an error if the module, the channel or the version does not exist.
func (o *setOptions) checkExistence(s *connection.Catalog, c *connection.Cluster) error {
	if err := s.RequireModule(o.module, c); err != nil {
		return err
	}
	r := s.Releases[o.module]
	switch {
	case r == nil:
		return console.Fail(console.ExitFailed,
			"module %s has no ModuleReleaseMeta: its ModuleTemplates name their channels themselves; create one first",
			o.module)
	case r.IsMandatory():
		return console.Fail(console.ExitFailed,
			"module %s is mandatory: it has one version for all runtimes, spec.mandatory.version of its "+
				"ModuleReleaseMeta, and no channels", o.module)
	}
	if all := s.ChannelsOf(o.module); !slices.Contains(all, o.channel) && !o.create {
		hint := "; --create adds it"
		if o.remove {
			hint = ""
		}
		return console.Fail(console.ExitNotFound, "module %s has no channel %q: %s%s", o.module,
			o.channel, console.SuggestionText(o.channel, all), hint)
	}
	if o.remove {
		return nil
	}
	return o.checkVersionExists(s)
}

// checkVersionExists returns an error if the catalog has no ModuleTemplate of the version.
func (o *setOptions) checkVersionExists(s *connection.Catalog) error {
	if s.Templates[channel.TemplateName(o.module, o.version)] != nil {
		return nil
	}
	return console.Fail(console.ExitNotFound, "module %s has no version %s: %s; publish it first", o.module, o.version,
		console.SuggestionText(o.version, s.VersionsOf(o.module)))
}

// withAssignment returns a copy of the catalog s that contains the change. withAssignment does not change s.
func withAssignment(s *connection.Catalog, o setOptions) *connection.Catalog {
	after := &connection.Catalog{Releases: maps.Clone(s.Releases), Templates: s.Templates}
	r := s.Releases[o.module].DeepCopy()
	o.setUrgencyLine(r)
	i := slices.IndexFunc(r.Spec.Channels, func(c v1beta2.ChannelVersion) bool { return c.Channel == o.channel })
	after.Releases[o.module] = r
	if o.remove {
		r.Spec.Channels = slices.Delete(r.Spec.Channels, i, i+1)
		return after
	}
	if i < 0 {
		i = len(r.Spec.Channels)
		r.Spec.Channels = append(r.Spec.Channels, v1beta2.ChannelVersion{Channel: o.channel})
	}
	r.Spec.Channels[i].Version = o.version
	return after
}

// preview contains the catalog as it will be after the change of the channel. With the catalog of the preview, klm
// computes which versions runtimes will get.
type preview struct {
	setOptions
	after   channel.Catalog
	release *v1beta2.ModuleReleaseMeta // after the change
	now     time.Time
	// unknown states why klm does not know the maintenance windows; "" if klm knows them.
	unknown string
}

// version contains two versions of a module in a runtime: the installed version, and the version that the Manifest
// requests.
type version struct{ installed, requested string }

// previewEffects returns the effect of the change on every runtime that follows the channel.
func previewEffects(ctx context.Context, a *console.App, c *connection.Cluster, w preview) (*Effects, error) {
	versions, kymas := map[string]version{}, []*v1beta2.Kyma{}
	var manifests []*v1beta2.Manifest
	all, pinned := map[string]*v1beta2.Kyma{}, 0
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error {
		_, err := fleetlist.ListAs(ctx, c, "manifests", v1beta2.LabelModuleName+"="+w.module,
			func(m *v1beta2.Manifest) {
				if m.DeletionTimestamp.IsZero() {
					ordered := cmp.Or(m.Annotations[v1beta2.AnnotationRequestedVersion], m.Spec.Version)
					versions[m.KymaName()] = version{cmp.Or(m.Status.Version, ordered), ordered}
					m.ManagedFields, m.Status.Synced, m.Spec.Resource = nil, nil, nil
					manifests = append(manifests, m)
				}
			})
		return err
	})
	both.Go(func() error {
		_, err := fleetlist.ListAs(ctx, c, "kymas", "", func(k *v1beta2.Kyma) {
			if !k.DeletionTimestamp.IsZero() {
				return
			}
			k.ManagedFields, k.Status = nil, v1beta2.KymaStatus{Modules: k.Status.Modules,
				Conditions: k.Status.Conditions, KubernetesVersion: k.Status.KubernetesVersion}
			all[k.Name] = k
			requested := connection.WithLastRequest(k)
			switch m := requested.Module(w.module); {
			case m == nil:
			case m.Version != "":
				pinned++
			case requested.ModuleChannelOrDefault(w.module) == w.channel:
				kymas = append(kymas, k)
			}
		})
		return err
	})
	if err := both.Wait(); err != nil {
		return nil, err
	}
	r := &Effects{Module: w.module, Channel: w.channel, Version: w.version, DryRun: w.DryRun, Runtimes: []effect{},
		names: w.names, Pinned: pinned}
	r.members, r.fleet = w.fleetOf(manifests, all)
	for _, k := range kymas {
		e := w.effectOn(k, versions[k.Name], a)
		if r.Runtimes = append(r.Runtimes, e); e.Message == noWindow {
			r.WindowsUnknown = w.unknown
		}
	}
	r.sort()
	return r, nil
}

// sort sorts the runtimes. Runtimes that need attention are first.
func (r *Effects) sort() {
	slices.SortFunc(r.Runtimes, func(a, b effect) int {
		return cmp.Or(cmp.Compare(a.sortKey(), b.sortKey()), strings.Compare(a.Reason, b.Reason),
			strings.Compare(a.Runtime, b.Runtime))
	})
}

// readWindows reads the maintenance policy.
func (w *preview) readWindows(ctx context.Context, c *connection.Cluster) (err error) {
	w.after.Policy, w.unknown, err = c.MaintenancePolicy(ctx, w.policy)
	return err
}

// noWindow is the message for a runtime whose maintenance window is not known to klm.
const noWindow = "it needs a downtime, and waits for the maintenance window"

// effectOn returns the effect of the change on one runtime.
func (w *preview) effectOn(k *v1beta2.Kyma, has version, a *console.App) effect {
	requested := connection.WithLastRequest(k)
	m := requested.Module(w.module)
	request := channel.RequestFor(k, requested, m)
	request.Installed, request.ManifestVersion, request.Now = has.installed, has.requested, a.Now()
	request.SkipWindows = request.SkipWindows || w.urgency.IgnoreWindows
	request.AllowDowngrade = request.AllowDowngrade || w.after.CheckGoingBack(w.module, has.requested, w.version) == nil
	d := channel.Resolve(w.after, request)
	e := effect{Runtime: k.Name, From: has.installed, To: d.Version, Effect: "stays"}
	switch b := d.Blocker; {
	case !m.IsManaged():
		e.Reason = v1beta2.ReasonUnmanaged
	case b != nil && b.Code == v1beta2.ReasonWindowUnknown && w.after.Policy == nil:
		e.Effect, e.Reason, e.Message = "waits", v1beta2.ReasonWaitingForWindow, noWindow
	case b != nil && b.Code == v1beta2.ReasonWaitingForWindow:
		e.Effect, e.Reason, e.Message = "waits", b.Code, b.Message
	case b != nil:
		e.Effect, e.Reason, e.Message = "blocked", b.Code, b.Message
	case d.Next != "" && d.Next != has.requested:
		e.Effect = "moves"
	case d.Version == has.installed && has.requested != "" && has.requested != d.Version:
		e.Effect, e.From, e.Message = "moves", has.requested, has.requested+" was not installed completely"
	case has.requested != "" && has.installed != d.Version:
		e.Effect, e.Message = "stays", "it is being upgraded to it already"
	}
	return e
}

// saveAssignment writes the version of a channel into the ModuleReleaseMeta. saveAssignment returns an error if the
// ModuleReleaseMeta no longer has the resource version that was checked.
func saveAssignment(ctx context.Context, c *connection.Cluster, o setOptions, resourceVersion string) error {
	doing := "changing ModuleReleaseMeta " + o.module
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1beta2.GroupVersion.WithKind(v1beta2.KindModuleReleaseMeta))
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: o.module}, u); err != nil {
		return c.Explain(err, doing)
	}
	if u.GetResourceVersion() != resourceVersion {
		return console.Fail(console.ExitFailed,
			"%s: another client changed it in the meantime: check again with --dry-run, and try again", doing)
	}
	channels, _, _ := unstructured.NestedSlice(u.Object, "spec", "channels")
	i := slices.IndexFunc(channels, func(c any) bool {
		entry, ok := c.(map[string]any)
		return ok && entry["channel"] == o.channel
	})
	switch {
	case i < 0 && !o.remove:
		channels = append(channels, map[string]any{"channel": o.channel, "version": o.version})
	case i >= 0 && o.remove:
		channels = slices.Delete(channels, i, i+1)
	case i >= 0:
		if entry, ok := channels[i].(map[string]any); ok {
			entry["version"] = o.version
		}
	}
	metadata := map[string]any{"resourceVersion": resourceVersion}
	if changed := o.urgencyPatchOrNil(u.GetAnnotations()); changed != nil {
		metadata["annotations"] = changed
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "spec": map[string]any{"channels": channels}})
	if err != nil {
		return fmt.Errorf("encoding the channels: %w", err)
	}
	return c.Explain(c.Patch(ctx, u, client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(connection.FieldOwner), client.FieldValidation("Strict")), doing)
}

// Effects is the report of klm channel set.
type Effects struct {
	Module   string   `json:"module"`
	Channel  string   `json:"channel"`
	From     string   `json:"from,omitempty"`
	Version  string   `json:"version"`
	DryRun   bool     `json:"dryRun"`
	Runtimes []effect `json:"runtimes"` // the runtimes that follow the channel
	// Note states why the stages are unknown; "" if the stages are known.
	Note string `json:"note,omitempty"`
	// WindowsUnknown states why klm does not know the maintenance windows, if a runtime needs a window.
	WindowsUnknown string `json:"windowsUnknown,omitempty"`
	// The following fields are empty if the channel has no RolloutPolicy, or if no runtime changes its version.
	Policy     string       `json:"policy,omitempty"`
	Rollout    string       `json:"rollout,omitempty"`    // the name of the ModuleRollout
	Supersedes string       `json:"supersedes,omitempty"` // the name of the active rollout that ends
	Plan       string       `json:"plan,omitempty"`       // the digest that approvals name
	Stages     []plan.Stage `json:"stages,omitempty"`
	// UpdateSeconds is the time that one update is expected to take. Ends is the time at which the last runtime is
	// expected to have the version.
	UpdateSeconds int64     `json:"updateSeconds,omitempty"`
	Ends          time.Time `json:"ends,omitzero"`
	// Late are the runtimes whose maintenance window opens late, and the runtimes without a window.
	Late []plan.Late `json:"late,omitempty"`
	// Hold is the reason why the RolloutPolicy admits no runtimes to any rollout at present.
	Hold *v1beta2.RolloutBlocker `json:"hold,omitempty"`
	// Urgency is Hotfix or Emergency, or "" for a normal move. Reason is the reason for the urgency.
	Urgency v1beta2.RolloutUrgency `json:"urgency,omitempty"`
	Reason  string                 `json:"reason,omitempty"`
	// WayBack is a text that states whether a downgrade from the new version to the former version is possible.
	WayBack string `json:"wayBack,omitempty"`
	// Diff is the difference between the contents of the former and the new version. Diff is nil if no diff was
	// requested.
	Diff *check.Difference `json:"diff,omitempty"`
	// Pinned is the number of runtimes that have pinned a version of the module. Runtimes that have pinned a version
	// take no part in the rollout.
	Pinned int `json:"pinned,omitempty"`

	members    *plan.Fleet       // decides which runtimes take part in a rollout of the channel
	fleet      []rollout.Runtime // these runtimes
	isUnderWay bool              // the report is about a rollout that exists
	plan       *plan.Plan        // nil if nothing moves
	names      bool              // the names of the runtimes of each stage are shown

	isShown   bool // the effects were shown before the question
	installed int  // the number of runtimes that have the version after waiting
}

// effect is the effect of the change on one runtime.
type effect struct {
	Runtime string `json:"runtime"`
	Effect  string `json:"effect"` // moves, waits (for a window), blocked, stays
	From    string `json:"from,omitempty"`
	To      string `json:"to,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Stage is the stage of the rollout in which the runtime is updated. Stage is "" if the channel has no
	// RolloutPolicy, or if the module is new in the runtime.
	Stage string `json:"stage,omitempty"`
	// Until is the time at which the maintenance window opens; zero if the end of the wait is not known.
	Until time.Time `json:"until,omitzero"`
	// Begins is the time at which the update of the runtime is expected to begin; zero if the time is not known.
	Begins time.Time `json:"begins,omitzero"`
	// Remedy is an instruction for the user; "" if the message contains the instruction.
	Remedy string `json:"remedy,omitempty"`
}

// sortKey returns the sort key of the effect on a runtime. In the list of runtimes, the sort key puts those that need
// attention first.
func (e *effect) sortKey() int {
	return slices.Index([]string{"blocked", "waits", "moves", "stays"}, e.Effect)
}

// Names returns the lines that -o name prints.
func (r *Effects) Names() []string {
	var all []string
	for _, e := range r.Runtimes {
		if e.Effect == "moves" {
			all = append(all, "kyma/"+e.Runtime)
		}
	}
	return all
}

// changeSentence returns a text about the effect that the change has, or would have, on the channel.
func (r *Effects) changeSentence() string {
	switch {
	case r.isUnderWay:
		return fmt.Sprintf("Channel %s of module %s moves from version %s to %s.", r.Channel, r.Module, r.From,
			r.Version)
	case r.isRemoval() && r.DryRun:
		return fmt.Sprintf("Channel %s of module %s, with version %s, would be removed.", r.Channel, r.Module, r.From)
	case r.isRemoval():
		return fmt.Sprintf("Channel %s of module %s, with version %s, was removed.", r.Channel, r.Module, r.From)
	case r.From == r.Version:
		return fmt.Sprintf("Channel %s of module %s has version %s already.", r.Channel, r.Module, r.Version)
	case r.From == "" && r.DryRun:
		return fmt.Sprintf("Channel %s of module %s would be added with version %s.", r.Channel, r.Module, r.Version)
	case r.From == "":
		return fmt.Sprintf("Channel %s of module %s was added with version %s.", r.Channel, r.Module, r.Version)
	case r.DryRun:
		return fmt.Sprintf("Channel %s of module %s would change from version %s to %s.", r.Channel,
			r.Module, r.From, r.Version)
	}
	return fmt.Sprintf("Channel %s of module %s was changed from version %s to %s.", r.Channel,
		r.Module, r.From, r.Version)
}

// Show writes the report as text for people.
func (r *Effects) Show(p *console.Page) {
	counts := map[string]int{}
	for _, e := range r.Runtimes {
		counts[e.Effect]++
	}
	p.Line("%s", r.changeSentence())
	if r.installed > 0 {
		p.Line("%s Ready with version %s.", console.Count(r.installed, "runtime"), r.Version)
	}
	if r.isShown {
		return
	}
	r.showVersionDiff(p)
	r.showStages(p)
	if r.Note != "" {
		p.Wrap("", "Note: "+r.Note)
	}
	if r.WindowsUnknown != "" {
		p.Wrap("", "Note: klm does not know the maintenance windows: "+r.WindowsUnknown+
			"; --"+connection.PolicyFlag+" names the ConfigMap")
	}
	p.Line("%s of that channel: %d to move, %d to wait for a maintenance window, %d blocked, %d to stay.",
		console.Count(len(r.Runtimes), "runtime"), counts["moves"], counts["waits"], counts["blocked"], counts["stays"])
	const limit = 20
	var rows [][]string
	for i, e := range r.Runtimes {
		if i == limit && !p.Wide {
			break
		}
		rows = append(rows, []string{e.Runtime, e.Effect, console.OrDash(e.From), console.OrDash(e.To),
			console.OrDash(e.Reason), p.Clip(e.Message, 80)})
	}
	if len(rows) > 0 {
		p.Line("")
		head := []string{"RUNTIME", "EFFECT", "FROM", "TO", "REASON", "MESSAGE"}
		if r.isStaged() {
			head = slices.Insert(head, 1, "STAGE")
			for i := range rows {
				rows[i] = slices.Insert(rows[i], 1, console.OrDash(r.Runtimes[i].Stage))
			}
		}
		p.Table(head, rows)
		r.showRemedies(p)
	}
	if len(rows) < len(r.Runtimes) {
		p.Line("and %d more, see -o wide", len(r.Runtimes)-len(rows))
	}
}
