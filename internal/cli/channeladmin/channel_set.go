package channeladmin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
)

func channelSetCommand(a *console.App) *cobra.Command {
	o := setOptions{}
	c := a.Command("set MODULE CHANNEL VERSION [--dry-run]", "assign a version of a module to a channel", `
klm shows first which runtimes will be upgraded and which are blocked, and why, as the control plane would decide now. With --dry-run it changes
nothing. It considers maintenance windows only with --maintenance-policy-configmap.`, `
klm channel set sample fast 2.0.0 --dry-run
klm channel set sample fast 2.0.0
klm channel set sample experimental 3.0.0 --create`,
		console.Arguments("MODULE", "CHANNEL", "VERSION"), func(cmd *cobra.Command, args []string) error {
			o.module, o.channel, o.version = args[0], args[1], args[2]
			return setChannel(cmd.Context(), a, o)
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.CatalogModules(a), connection.ModuleChannels(a),
		connection.ModuleVersions(a))
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "change nothing")
	c.Flags().BoolVar(&o.create, "create", false, "add the channel if the module does not have it")
	c.Flags().StringVar(&o.policy, "maintenance-policy-configmap", "",
		"ConfigMap with the maintenance policy, as in the flag of the manager; empty: maintenance windows are unknown")
	return c
}

// setOptions are the arguments and flags of klm channel set.
type setOptions struct {
	module, channel, version string
	dryRun, create           bool
	policy                   string
}

func setChannel(ctx context.Context, a *console.App, o setOptions) error {
	if !connection.ChannelName.MatchString(o.channel) || o.channel == v1beta2.NoChannel {
		return console.Fail(console.ExitUsage,
			"CHANNEL: %q is not a channel: use 3 to 32 lower-case letters; %q is reserved",
			o.channel, v1beta2.NoChannel)
	}
	c, err := connection.ControlPlane(ctx, a)
	if err != nil {
		return err
	}
	s, err := c.Catalog(ctx)
	if err != nil {
		return err
	}
	if err := o.check(s, c); err != nil {
		return err
	}
	w := preview{setOptions: o, after: withAssignment(s, o).ForResolve()}
	if o.policy != "" {
		policy, err := readPolicy(ctx, c, o.policy)
		if err != nil {
			return err
		}
		w.after.Policy = policy
	}
	r, err := previewEffects(ctx, a, c, w)
	if err != nil {
		return err
	}
	r.From, _ = s.Releases[o.module].ChannelVersion(o.channel)
	if !o.dryRun && r.From != o.version {
		if err := saveAssignment(ctx, c, o, s.Releases[o.module].ResourceVersion); err != nil {
			return err
		}
	}
	return a.Print(r)
}

// check returns an error if the module, the channel or the version does not exist.
func (o *setOptions) check(s *connection.Catalog, c *connection.Cluster) error {
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
		return console.Fail(console.ExitNotFound, "module %s has no channel %q: %s; --create adds it", o.module,
			o.channel, console.Suggest(o.channel, all))
	}
	if s.Templates[channel.TemplateName(o.module, o.version)] == nil {
		all := s.VersionsOf(o.module)
		return console.Fail(console.ExitNotFound, "module %s has no version %s: %s; publish it first", o.module,
			o.version, console.Suggest(o.version, all))
	}
	return nil
}

// withAssignment returns a copy of the catalog s that contains the change. withAssignment does not change s.
func withAssignment(s *connection.Catalog, o setOptions) *connection.Catalog {
	after := &connection.Catalog{Releases: maps.Clone(s.Releases), Templates: s.Templates}
	r := s.Releases[o.module].DeepCopy()
	i := slices.IndexFunc(r.Spec.Channels, func(c v1beta2.ChannelVersion) bool { return c.Channel == o.channel })
	if i < 0 {
		i = len(r.Spec.Channels)
		r.Spec.Channels = append(r.Spec.Channels, v1beta2.ChannelVersion{Channel: o.channel})
	}
	r.Spec.Channels[i].Version = o.version
	after.Releases[o.module] = r
	return after
}

// readPolicy reads the maintenance policy from a ConfigMap.
func readPolicy(ctx context.Context, c *connection.Cluster, name string) (*channel.Policy, error) {
	cm := &corev1.ConfigMap{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, cm); err != nil {
		return nil, c.Explain(err, "reading ConfigMap "+name)
	}
	p, err := channel.PolicyFromConfigMap(cm.Data)
	if err != nil {
		return nil, console.Fail(console.ExitFailed, "ConfigMap %s: %v", name, err)
	}
	return p, nil
}

// preview has the catalog after the change. The requests of runtimes are resolved with this catalog.
type preview struct {
	setOptions
	after channel.Catalog
}

// version has two versions of a module in a runtime: the installed version, and the version that the Manifest requests.
type version struct{ installed, requested string }

// previewEffects returns the effect of the change on every runtime that follows the channel.
func previewEffects(ctx context.Context, a *console.App, c *connection.Cluster, w preview) (*setReport, error) {
	versions, kymas := map[string]version{}, []*v1beta2.Kyma{}
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error {
		_, err := fleetlist.ListAs(ctx, c, "manifests", v1beta2.LabelModuleName+"="+w.module,
			func(m *v1beta2.Manifest) {
				if m.DeletionTimestamp.IsZero() {
					ordered := cmp.Or(m.Annotations[v1beta2.AnnotationRequestedVersion], m.Spec.Version)
					versions[m.KymaName()] = version{cmp.Or(m.Status.Version, ordered), ordered}
				}
			})
		return err
	})
	both.Go(func() error {
		_, err := fleetlist.ListAs(ctx, c, "kymas", "", func(k *v1beta2.Kyma) {
			requested := connection.WithRequest(k)
			if m := requested.Module(w.module); k.DeletionTimestamp.IsZero() && m != nil && m.Version == "" &&
				requested.ModuleChannel(w.module) == w.channel {
				k.ManagedFields, k.Status = nil, v1beta2.KymaStatus{}
				kymas = append(kymas, k)
			}
		})
		return err
	})
	if err := both.Wait(); err != nil {
		return nil, err
	}
	r := &setReport{Module: w.module, Channel: w.channel, Version: w.version, DryRun: w.dryRun, Runtimes: []effect{}}
	for _, k := range kymas {
		r.Runtimes = append(r.Runtimes, w.effectOn(k, versions[k.Name], a))
	}
	slices.SortFunc(r.Runtimes, func(a, b effect) int {
		return cmp.Or(cmp.Compare(a.order(), b.order()), strings.Compare(a.Reason, b.Reason),
			strings.Compare(a.Runtime, b.Runtime))
	})
	return r, nil
}

// effectOn returns the effect of the change on one runtime.
func (w *preview) effectOn(k *v1beta2.Kyma, has version, a *console.App) effect {
	requested := connection.WithRequest(k)
	m := requested.Module(w.module)
	request := channel.RequestFor(k, requested, m)
	request.Installed, request.ManifestVersion, request.Now = has.installed, has.requested, a.Now()
	d := channel.Resolve(w.after, request)
	e := effect{Runtime: k.Name, From: has.installed, To: d.Version, Effect: "stays"}
	switch b := d.Blocker; {
	case !m.IsManaged():
		e.Reason = v1beta2.ReasonUnmanaged
	case b != nil && b.Code == v1beta2.ReasonWindowUnknown && w.after.Policy == nil:
		e.Effect, e.Reason, e.Message = "waits", v1beta2.ReasonWaitingForWindow,
			"it needs a downtime, and waits for the maintenance window"
	case b != nil && b.Code == v1beta2.ReasonWaitingForWindow:
		e.Effect, e.Reason, e.Message = "waits", b.Code, b.Message
	case b != nil:
		e.Effect, e.Reason, e.Message = "blocked", b.Code, b.Message
	case d.Next != "" && d.Next != has.requested:
		e.Effect = "moves"
	case has.requested != "" && has.installed != d.Version:
		e.Effect, e.Message = "stays", "it is being upgraded to it already"
	}
	return e
}

// saveAssignment writes the version of a channel into the ModuleReleaseMeta. saveAssignment returns an error if the
// ModuleReleaseMeta no longer has the resource version that was checked.
func saveAssignment(ctx context.Context, c *connection.Cluster, o setOptions, seen string) error {
	doing := "changing ModuleReleaseMeta " + o.module
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1beta2.GroupVersion.WithKind(v1beta2.KindModuleReleaseMeta))
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: o.module}, u); err != nil {
		return c.Explain(err, doing)
	}
	if u.GetResourceVersion() != seen {
		return console.Fail(console.ExitFailed,
			"%s: another client changed it in the meantime: check again with --dry-run, and try again", doing)
	}
	channels, _, _ := unstructured.NestedSlice(u.Object, "spec", "channels")
	i := slices.IndexFunc(channels, func(c any) bool {
		entry, ok := c.(map[string]any)
		return ok && entry["channel"] == o.channel
	})
	if i < 0 {
		channels = append(channels, map[string]any{"channel": o.channel, "version": o.version})
	} else if entry, ok := channels[i].(map[string]any); ok {
		entry["version"] = o.version
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": seen},
		"spec": map[string]any{"channels": channels}})
	if err != nil {
		return fmt.Errorf("encoding the channels: %w", err)
	}
	return c.Explain(c.Patch(ctx, u, client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(connection.FieldOwner), client.FieldValidation("Strict")), doing)
}

// setReport is the report of klm channel set.
type setReport struct {
	Module   string   `json:"module"`
	Channel  string   `json:"channel"`
	From     string   `json:"from,omitempty"`
	Version  string   `json:"version"`
	DryRun   bool     `json:"dryRun"`
	Runtimes []effect `json:"runtimes"` // the runtimes that follow the channel
}

// effect is the effect of the change on one runtime.
type effect struct {
	Runtime string `json:"runtime"`
	Effect  string `json:"effect"` // moves, waits (for a window), blocked, stays
	From    string `json:"from,omitempty"`
	To      string `json:"to,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// order returns the sort key of the effect. Effects that need attention are first.
func (e *effect) order() int {
	return slices.Index([]string{"blocked", "waits", "moves", "stays"}, e.Effect)
}

func (r *setReport) Names() []string {
	var all []string
	for _, e := range r.Runtimes {
		if e.Effect == "moves" {
			all = append(all, "kyma/"+e.Runtime)
		}
	}
	return all
}

// summary returns a text about the effect that the change has, or would have, on the channel.
func (r *setReport) summary() string {
	switch {
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

func (r *setReport) Show(p *console.Page) {
	counts := map[string]int{}
	for _, e := range r.Runtimes {
		counts[e.Effect]++
	}
	p.Line("%s", r.summary())
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
		p.Table([]string{"RUNTIME", "EFFECT", "FROM", "TO", "REASON", "MESSAGE"}, rows)
	}
	if len(rows) < len(r.Runtimes) {
		p.Line("and %d more, see -o wide", len(r.Runtimes)-len(rows))
	}
}
