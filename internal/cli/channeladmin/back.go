package channeladmin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
)

// RolloutUndoCommand returns the command klm rollout undo.
func RolloutUndoCommand(a *console.App) *cobra.Command {
	o := setOptions{}
	c := a.Command("undo ROLLOUT [--dry-run]", "set a channel back to the version before a rollout", `
The channel, or the mandatory module, gets the version that it had before the rollout. Nobody begins any more, and
runtimes with the newer version are taken back by a rollout of their own: those that fail first, the others in their
maintenance windows. That needs a declaration of the newer version that going back is safe (spec.upgrade.back of its
ModuleTemplate). Without one, no runtime is taken back, and klm changes nothing: move the channel to a higher version
that corrects the problem.`, `
klm rollout undo sample-regular-r3 --dry-run
klm rollout undo sample-regular-r3`,
		console.Arguments("ROLLOUT"), func(cmd *cobra.Command, args []string) error {
			o.isPatient = cmd.Flags().Changed("wait") && !o.NoWait
			return undoRollout(cmd.Context(), a, o, args[0])
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.RolloutNames(a,
		func(*v1beta2.ModuleRollout) bool { return true }))
	o.Register(c.Flags())
	o.registerUrgency(c)
	return c
}

func undoRollout(ctx context.Context, a *console.App, o setOptions, rollout string) error {
	c, err := connection.ControlPlaneWithRollouts(ctx, a)
	if err != nil {
		return err
	}
	r, err := c.Rollout(ctx, rollout)
	if err != nil {
		return err
	}
	s, err := c.Catalog(ctx)
	if err != nil {
		return err
	}
	o.module, o.channel, o.version = r.Spec.Module, r.Spec.Channel, r.Spec.From
	release := s.Releases[o.module]
	target := ""
	if release != nil {
		target, _ = release.SpecVersion(o.channel)
	}
	switch {
	case target != r.Spec.To:
		return console.Fail(console.ExitFailed,
			"rollout %s is not the last one: channel %s of module %s has version %s now; "+
				"klm rollout history %s %s shows all", rollout, o.channel, o.module, console.OrDash(target), o.module,
			o.channel)
	case r.Spec.IsRollback():
		return console.Fail(console.ExitFailed,
			"rollout %s has taken runtimes back to %s: to go on to %s again, klm channel "+
				"set %s %s %s", rollout, r.Spec.To, r.Spec.From, o.module, o.channel, r.Spec.From)
	}
	counts := &r.Status.Runtimes
	begun := counts.Updating + counts.Proven + counts.Failed + counts.Lost + counts.Excused
	catalog := s.ForResolve()
	if err := catalog.CheckGoingBack(o.module, r.Spec.To, o.version); err != nil && begun > 0 {
		return console.Fail(console.ExitFailed,
			"%s: %s; %s with %s cannot go back: stop the rollout with klm rollout "+
				"abort %s, and move the channel to a higher version that corrects the problem",
			v1beta2.ReasonDowngradeUnsafe,
			err.Error(), console.Count(int(begun), "runtime"), r.Spec.To, rollout)
	}
	if release.IsMandatory() {
		if err := o.checkVersionExists(s); err != nil {
			return err
		}
		return undoMandatory(ctx, a, c, o, r, release)
	}
	return setOrRemoveChannel(ctx, a, o)
}

// undoMandatory sets a mandatory module back to its former version. All runtimes have the module, so undoMandatory does
// not list the affected runtimes.
func undoMandatory(ctx context.Context, a *console.App, c *connection.Cluster, o setOptions,
	r *v1beta2.ModuleRollout, release *v1beta2.ModuleReleaseMeta) error {
	if err := o.parseUrgency(); err != nil {
		return err
	}
	if err := o.checkUrgencyIsNew(release); err != nil {
		return err
	}
	counts := &r.Status.Runtimes
	begun := counts.Updating + counts.Proven + counts.Failed + counts.Lost + counts.Excused
	outcome := console.Outcome{Object: "modulereleasemeta/" + release.Name,
		Result: fmt.Sprintf("mandatory module %s is set back from version %s to %s: %s with %s go back, and nobody else "+
			"changes", o.module, r.Spec.To, o.version, console.Count(int(begun), "runtime"), r.Spec.To)}
	if o.DryRun {
		outcome.Result = "would do: " + outcome.Result
		return a.Print(outcome)
	}
	if !o.Yes {
		if err := a.Confirm(fmt.Sprintf("Set mandatory module %s back from version %s to %s? It affects %s.", o.module,
			r.Spec.To, o.version, console.Count(int(begun), "runtime"))); err != nil {
			return err
		}
	}
	metadata := map[string]any{"uid": release.UID, "resourceVersion": release.ResourceVersion}
	if changed := o.urgencyPatchOrNil(release.Annotations); changed != nil {
		metadata["annotations"] = changed
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata,
		"spec": map[string]any{"mandatory": map[string]any{"version": o.version}}})
	if err != nil {
		return fmt.Errorf("encoding the version: %w", err)
	}
	if err := c.Patch(ctx, release.DeepCopy(), client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(connection.FieldOwner), client.FieldValidation("Strict")); err != nil {
		return c.Explain(err, "changing ModuleReleaseMeta "+release.Name)
	}
	return a.Print(outcome)
}

// VersionWithdrawCommand returns the command klm version withdraw.
func VersionWithdrawCommand(a *console.App) *cobra.Command {
	o := withdrawOptions{}
	c := a.Command("withdraw MODULE VERSION --reason=TEXT",
		"withdraw a version of a module, so that no runtime gets it any more", `
Runtimes that have the version keep it, and klm lists them. A rollout to the version is held. No channel, pin or new
installation gets it. With --undo it is available again.`, `
klm version withdraw sample 2.0.0 --reason="it loses data"
klm version withdraw sample 2.0.0 --undo`,
		console.Arguments("MODULE", "VERSION"), func(cmd *cobra.Command, args []string) error {
			o.module, o.version = args[0], args[1]
			return setWithdrawn(cmd.Context(), a, o)
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.CatalogModules(a), connection.ModuleVersions(a))
	c.Flags().StringVar(&o.reason, "reason", "", "why, for others")
	c.Flags().BoolVar(&o.undo, "undo", false, "make the version available again")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "only show what would be done, and change nothing")
	return c
}

type withdrawOptions struct {
	module, version, reason string
	undo, dryRun            bool
}

func setWithdrawn(ctx context.Context, a *console.App, o withdrawOptions) error {
	c, err := connection.ControlPlane(ctx, a)
	if err != nil {
		return err
	}
	s, err := c.Catalog(ctx)
	if err != nil {
		return err
	}
	if err := s.RequireModule(o.module, c); err != nil {
		return err
	}
	t := s.Templates[channel.TemplateName(o.module, o.version)]
	if t == nil {
		return console.Fail(console.ExitNotFound, "module %s has no version %s: %s", o.module, o.version,
			console.SuggestionText(o.version, s.VersionsOf(o.module)))
	}
	is, _ := channel.IsWithdrawn(t)
	var value any = o.reason
	outcome := withdrawal{Object: "moduletemplate/" + t.Name,
		Result: fmt.Sprintf("version %s of module %s is withdrawn%s",
			o.version, o.module, remainingChannelsHint(s, o.module, o.version))}
	switch {
	case o.undo && !is:
		return console.Fail(console.ExitFailed, "version %s of module %s is not withdrawn", o.version, o.module)
	case o.undo:
		value = nil
		outcome.Result = fmt.Sprintf("version %s of module %s is available again", o.version, o.module)
	case o.reason == "":
		return console.Fail(console.ExitUsage, "others will read why the version is withdrawn: give --reason")
	case len(o.reason) > 1024:
		return console.Fail(console.ExitUsage, "--reason has more than 1024 characters")
	}
	if !o.undo {
		outcome.readHolders(ctx, c, o)
	}
	if o.dryRun {
		outcome.Result = "would do: " + outcome.Result
		return a.Print(outcome)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": t.UID,
		"annotations": map[string]any{v1beta2.AnnotationWithdrawn: value}}})
	if err != nil {
		return fmt.Errorf("encoding the annotation: %w", err)
	}
	if err := c.Patch(ctx, t.DeepCopy(), client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(connection.FieldOwner)); err != nil {
		return c.Explain(err, "changing ModuleTemplate "+t.Name)
	}
	return a.Print(outcome)
}

// withdrawal is the report of klm version withdraw.
type withdrawal struct {
	Object string `json:"object"`
	Result string `json:"result"`
	// Holders are the names of the runtimes that have the withdrawn version or are about to get it. The runtimes in
	// Holders keep the withdrawn version.
	Holders []string `json:"holders,omitempty"`
	// Note states why the names of the runtimes with the withdrawn version are not known. If the names of these
	// runtimes are known, Note is "".
	Note string `json:"note,omitempty"`
}

// readHolders finds the runtimes that have the withdrawn version. If the runtimes cannot be listed, readHolders returns
// a note instead of an error, so that the withdrawal does not fail.
func (w *withdrawal) readHolders(ctx context.Context, c *connection.Cluster, o withdrawOptions) {
	_, err := fleetlist.ListAs(ctx, c, "manifests", v1beta2.LabelModuleName+"="+o.module,
		func(m *v1beta2.Manifest) {
			ordered := cmp.Or(m.Annotations[v1beta2.AnnotationRequestedVersion], m.Spec.Version)
			if ordered == o.version || m.Status.Version == o.version {
				w.Holders = append(w.Holders, m.KymaName())
			}
		})
	if err != nil {
		w.Holders, w.Note = nil, "which runtimes have it is not known: "+err.Error()
		return
	}
	slices.Sort(w.Holders)
	w.Holders = slices.Compact(w.Holders)
}

// Names returns the lines that -o name prints.
func (w withdrawal) Names() []string { return []string{w.Object} }

// Show writes the report as text for people.
func (w withdrawal) Show(p *console.Page) {
	p.Line("%s", w.Result)
	if w.Note != "" {
		p.Wrap("", "Note: "+w.Note)
	}
	if len(w.Holders) == 0 {
		return
	}
	const limit = 20
	shown, more := w.Holders, ""
	if len(shown) > limit && !p.Wide {
		shown, more = shown[:limit], fmt.Sprintf(" and %d more, see -o wide", len(w.Holders)-limit)
	}
	p.Wrap("", fmt.Sprintf("It stays in %s: %s%s", console.Count(len(w.Holders), "runtime"),
		strings.Join(shown, ", "), more))
	p.Wrap("", "To replace it there, move the channel to a higher version, or take the runtimes back: klm rollout undo.")
}

// remainingChannelsHint returns a text for the user: it lists the channels that map a module to a given version, and
// states the command that moves a channel to another version.
func remainingChannelsHint(s *connection.Catalog, module, version string) string {
	release := s.Releases[module]
	if release == nil {
		return ""
	}
	var names []string
	for _, c := range release.Spec.Channels {
		if c.Version == version {
			names = append(names, c.Channel)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("; channels that still have it: %s: klm channel set %s %s VERSION", strings.Join(names, ", "),
		module, names[0])
}
