package runtimeadmin

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
)

func enableCommand(a *console.App) *cobra.Command {
	var o enableOptions
	c := a.Command("enable MODULE [--channel CHANNEL | --version VERSION]",
		"enable a module in a runtime, and wait until it is ready",
		"A module that is enabled already is not changed; klm module set-channel changes its channel.", `
klm module enable sample
klm module enable sample --channel fast
klm module enable sample --version 1.0.0 --no-wait
klm module enable sample --policy Ignore      # without its default custom resource`,
		console.Arguments("MODULE"), func(cmd *cobra.Command, args []string) error {
			o.module = args[0]
			return enableModule(cmd.Context(), a, o)
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.CatalogModules(a))
	c.Flags().StringVarP(&o.channel, "channel", "c", "", "release channel; empty: the channel of the runtime")
	c.Flags().StringVar(&o.version, "version", "", "pin this version instead of following a channel")
	c.Flags().StringVar(&o.policy, "policy", "",
		"CreateAndDelete (default): create the default custom resource; Ignore: do not create it")
	o.Register(c.Flags())
	console.CompleteFlag(c, "channel", connection.ModuleChannels(a))
	console.CompleteFlag(c, "version", connection.ModuleVersions(a))
	console.CompleteFlag(c, "policy", console.FixedNames(policies...))
	return c
}

// policies are the allowed values of --policy.
var policies = []string{string(v1beta2.CreateAndDelete), string(v1beta2.Ignore)}

// enableOptions are the arguments and flags of klm module enable.
type enableOptions struct {
	module, channel, version, policy string
	moduleChange
}

func (o *enableOptions) validate() error {
	switch {
	case o.channel != "" && o.version != "":
		return console.Fail(console.ExitUsage,
			"--channel and --version exclude each other: a module follows a channel or is pinned to a version")
	case o.policy != "" && o.policy != policies[0] && o.policy != policies[1]:
		return console.Fail(console.ExitUsage, "--policy: %q is neither %s nor %s", o.policy, policies[0], policies[1])
	}
	return nil
}

func enableModule(ctx context.Context, a *console.App, o enableOptions) error {
	if err := o.validate(); err != nil {
		return err
	}
	return changeModuleRequestAndWait(ctx, a, o.module, o.moduleChange, func(w *edit) error {
		if m := w.typedEntryOf(o.module); m != nil {
			if o.channel != "" && m.Channel != o.channel || o.version != "" && m.Version != o.version ||
				o.policy != "" && string(m.Policy()) != o.policy {
				return console.Fail(console.ExitFailed,
					"module %s is enabled already, with %s: use klm module set-channel or manage to change that",
					o.module, describeRequest(w.kyma, m))
			}
			return nil
		}
		entry := w.ensureEntry(o.module)
		// What an earlier change or removal allowed must not apply to the new installation.
		w.setListed(v1beta2.AnnotationDeleteCustomResources, o.module, false)
		w.setListed(v1beta2.AnnotationAllowDowngrade, o.module, false)
		for key, value := range map[string]string{"channel": o.channel, "version": o.version,
			"customResourcePolicy": o.policy} {
			if value != "" {
				entry[key] = value
			}
		}
		return nil
	})
}

// describeRequest returns a text about the request of a Kyma for a module.
func describeRequest(k *v1beta2.Kyma, m *v1beta2.Module) string {
	from := "channel " + cmp.Or(m.Channel, k.Spec.Channel)
	if m.Version != "" {
		from = "version " + m.Version
	}
	return fmt.Sprintf("%s and policy %s", from, m.Policy())
}

// moduleChange contains the flags of commands that change the request for a module.
type moduleChange struct {
	console.ChangeFlags
	force          bool
	allowDowngrade bool
}

// Register adds the flags to the flag set f.
func (o *moduleChange) Register(f *pflag.FlagSet) {
	f.BoolVar(&o.force, "force", false, "do not check the catalog")
	o.ChangeFlags.Register(f)
}

// RegisterDowngrade adds to the flag set f the flag that allows a downgrade.
func (o *moduleChange) RegisterDowngrade(f *pflag.FlagSet) {
	f.BoolVar(&o.allowDowngrade, "allow-downgrade", false,
		"allow a lower version than the installed one, if the module supports that; only for this change")
}

// changeModuleRequestAndWait changes the request for one module and waits until the change is done.
// changeModuleRequestAndWait checks the request against the catalog first, unless o.force is set. If a downgrade was
// allowed for this change, the permission is removed when the change is done.
func changeModuleRequestAndWait(ctx context.Context, a *console.App, module string, o moduleChange,
	change func(*edit) error) error {
	c, err := connection.Runtime(ctx, a)
	if err != nil {
		return err
	}
	s, err := c.Catalog(ctx)
	if err != nil {
		return err
	}
	version := ""
	k, err := editModules(ctx, c, o.DryRun, func(w *edit) error {
		if err := change(w); err != nil {
			return err
		}
		if o.force {
			return nil
		}
		version, err = resolveVersion(c, s, w, module, a.Now())
		return err
	})
	if err != nil {
		return err
	}
	if o.DryRun {
		text := "module " + module + " would be requested with version " + version
		if version == "" {
			text = "module " + module + " would be requested"
		}
		return a.Print(moduleDone{diagnosis.ModuleRowOf(k, module), text})
	}
	p := permission{v1beta2.AnnotationAllowDowngrade, module, o.allowDowngrade,
		"it is installed (klm module set-channel and set-version do that, too)"}
	if o.NoWait {
		return a.Print(moduleDone{diagnosis.ModuleRowOf(k, module),
			fmt.Sprintf("module %s is requested", module) + p.hint()})
	}
	generation := k.Generation
	err = connection.WaitForKyma(ctx, a, c, c.OwnKyma, o.Timeout, func(now *v1beta2.Kyma) connection.Progress {
		k = now
		return moduleProgress(now, module, version, generation)
	})
	if err := p.end(ctx, c, err); err != nil {
		return err
	}
	row := diagnosis.ModuleRowOf(k, module)
	return a.Print(moduleDone{row, fmt.Sprintf("module %s %s is %s", module, row.Version, row.State)})
}

// moduleDone is the report of a command that has changed a module.
type moduleDone struct {
	diagnosis.ModuleRow
	text string
}

func (d moduleDone) Names() []string { return []string{d.Name} }

func (d moduleDone) Show(p *console.Page) { p.Line("%s", d.text) }

// persistentReasons are the reasons that do not end without an action: a person must act, or a maintenance window must
// open.
var persistentReasons = map[string]bool{
	v1beta2.ReasonInvalidModuleRequest: true, v1beta2.ReasonModuleNotFound: true, v1beta2.ReasonChannelNotFound: true,
	v1beta2.ReasonVersionNotFound: true,
	v1beta2.ReasonInvalidRelease:  true, v1beta2.ReasonTemplateAmbiguous: true, v1beta2.ReasonTemplateNotFound: true,
	v1beta2.ReasonModuleNotAllowed: true, v1beta2.ReasonVersionReplaced: true,
	v1beta2.ReasonDowngradeRefused: true, v1beta2.ReasonRestoredOlder: true,
	v1beta2.ReasonWaitingForWindow: true, v1beta2.ReasonWindowUnknown: true,
	v1beta2.ReasonKymaPaused: true, v1beta2.ReasonModulePaused: true,
	"InvalidWish": true, // managers of earlier versions write it instead of ReasonInvalidModuleRequest
}

// moduleProgress returns the progress of a module towards a version. The version "" stands for any version. The first
// row of this table whose condition is true decides:
//
//	1  the Kyma does not exist, or does not request the module           blocked
//	2  the control plane has not reconciled the request yet              waits
//	3  the reason is one of persistentReasons                            blocked
//	4  the module is Unmanaged, or Ready in that version, as requested   done
//	5  otherwise                                                         waits
func moduleProgress(k *v1beta2.Kyma, module, version string, generation int64) connection.Progress {
	if k == nil || k.Module(module) == nil {
		return connection.Progress{Blocked: console.Fail(console.ExitNotReady,
			"module %s was removed from the Kyma in the meantime", module)}
	}
	e := k.ModuleStatus(module)
	if seen := k.Status.ObservedGeneration; e == nil || seen != 0 && seen < generation {
		return connection.Progress{Text: module + ": waiting for the control plane to reconcile it"}
	}
	text := fmt.Sprintf("%s: %s", module, console.OrDash(string(e.State)))
	if e.Message != "" {
		text += ": " + e.Message
	}
	switch {
	case persistentReasons[e.Reason]:
		return connection.Progress{Blocked: console.Fail(console.ExitNotReady, "module %s: %s: %s",
			module, e.Reason, e.Message)}
	case !k.Module(module).IsManaged() && e.State == v1beta2.StateUnmanaged:
		return connection.Progress{Done: true}
	case k.Module(module).IsManaged() && e.State == v1beta2.StateReady && (version == "" || e.Version == version):
		return connection.Progress{Done: true}
	}
	return connection.Progress{Text: text}
}
