package fleetadmin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/liveness"
)

// manyRuntimes is the number of runtimes at which klm retry requires a confirmation.
const manyRuntimes = 5

func retryCommand(a *console.App) *cobra.Command {
	o := retryOptions{}
	c := a.Command("retry RUNTIME [MODULE] | --state STATE [-l SELECTOR] [MODULE]",
		"try again at once, after you have mended what failed", `
The manager tries again by itself, after a delay that grows up to some minutes. This command ends the delay: the runtime is probed, failures of
registries are forgotten, and the objects of modules that are not Ready are compared and sent again. For one runtime klm waits until it is
Ready, and shows what is in the way. With --state it lists the runtimes in that state, asks if they are many, and does not wait.`, `
klm retry runtime-a
klm retry runtime-a sample
klm retry --state=Error
klm retry --state=Error -l kyma-project.io/region=eu-central-1 sample --yes`,
		console.Arguments("[RUNTIME]", "[MODULE]"), func(cmd *cobra.Command, args []string) error {
			if err := o.parse(args); err != nil {
				return err
			}
			c, err := connection.ControlPlane(cmd.Context(), a)
			if err != nil {
				return err
			}
			if err := liveness.Read(cmd.Context(), c).Report(time.Time{}).Err(); err != nil {
				return console.Fail(console.ExitNoManager, "nothing was requested: %v", err)
			}
			if o.state != "" {
				return retryState(cmd.Context(), a, c, o)
			}
			return retryRuntime(cmd.Context(), a, c, o)
		})
	f := c.Flags()
	f.StringVar((*string)(&o.state), "state", "", "all runtimes in this state, such as Error, Warning or Processing")
	f.StringVarP(&o.selector, "selector", "l", "", "with --state: only runtimes whose Kyma has these labels")
	f.BoolVarP(&o.yes, "yes", "y", false, "with --state: do not ask")
	o.wait.Register(f)
	if err := c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(
		[]string{"Error", "Warning", "Processing", "Deleting"}, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was registered above
	}
	c.ValidArgsFunction = console.CompleteArguments(connection.RuntimeNames(a), connection.ModulesOfRuntime(a))
	return c
}

// retryOptions are the arguments and flags of klm retry.
type retryOptions struct {
	runtime, module string
	state           v1beta2.State
	selector        string
	yes             bool
	wait            console.WaitFlags
}

// parse reads the arguments. With --state there is no RUNTIME.
func (o *retryOptions) parse(args []string) error {
	switch {
	case o.state == "" && len(args) == 0:
		return console.Fail(console.ExitUsage, "RUNTIME is missing: name one, or give --state")
	case o.state == "":
		o.runtime = args[0]
		args = args[1:]
		if o.selector != "" {
			return console.Fail(console.ExitUsage, "--selector is only for --state")
		}
	case len(args) > 1:
		return console.Fail(console.ExitUsage, "--state is in place of RUNTIME: give one of them")
	}
	if len(args) > 0 {
		o.module = args[0]
	}
	if o.state == "" {
		return nil
	}
	states := []v1beta2.State{v1beta2.StateError, v1beta2.StateWarning, v1beta2.StateProcessing, v1beta2.StateDeleting}
	i := slices.IndexFunc(states, func(s v1beta2.State) bool { return strings.EqualFold(string(s), string(o.state)) })
	if i < 0 {
		return console.Fail(console.ExitUsage,
			"--state: %q is none of Error, Warning, Processing, Deleting: in other states nothing is retried", o.state)
	}
	o.state = states[i]
	return nil
}

// retryRuntime retries one runtime or one of its modules, and waits until it is Ready.
func retryRuntime(ctx context.Context, a *console.App, c *connection.Cluster, o retryOptions) error {
	k, err := c.Kyma(ctx, o.runtime)
	if err != nil {
		return err
	}
	var manifests v1beta2.ManifestList
	err = c.List(ctx, &manifests, c.InNamespace(), client.MatchingLabels{v1beta2.LabelKymaName: k.Name})
	if err != nil {
		return c.Explain(err, "reading the Manifests of "+k.Name)
	}
	f := diagnosis.Facts{Cluster: c, Kyma: k, Manifests: manifests.Items}
	what := k.Name
	if o.module != "" {
		what = "module " + o.module + " of " + k.Name
		if err := f.RequireModule(ctx, o.module); err != nil {
			return err
		}
	}
	if b := channel.PauseBlocker(k, o.module); b != nil {
		return console.Fail(console.ExitNotReady, "%s is not retried: %s", what, b.Message)
	}
	if k.SkipsReconciliation() {
		return console.Fail(console.ExitNotReady, "%s is not retried: remove the label %s from its Kyma first", what,
			v1beta2.LabelSkipReconciliation)
	}
	target := retryTarget(&f, o.module)
	if target == nil {
		return a.Print(console.Outcome{Object: "kyma/" + k.Name, Result: what + " is Ready: there is nothing to retry"})
	}
	if err := requestRetry(ctx, c, target, a.Now()); err != nil {
		return c.Explain(err, "annotating "+target.GetName())
	}
	if o.wait.NoWait {
		return a.Print(console.Outcome{Object: "kyma/" + k.Name,
			Result: fmt.Sprintf("%s is tried again; klm why %s shows the result", what, k.Name)})
	}
	err = connection.WaitForKyma(ctx, a, c, k.Name, o.wait.Timeout, func(k *v1beta2.Kyma) connection.Progress {
		return retryProgress(k, o.module)
	})
	if err != nil {
		return err
	}
	return a.Print(console.Outcome{Object: "kyma/" + k.Name, Result: what + " is Ready"})
}

// retryTarget returns the object to annotate: the Manifest of the module if the Manifest is not Ready, otherwise the
// Kyma. If everything is Ready, retryTarget returns nil. An annotation of the Kyma retries all modules that are not
// Ready, and those that have no Manifest yet.
func retryTarget(f *diagnosis.Facts, module string) client.Object {
	isReady := func(m *v1beta2.Manifest) bool { return m.Status.State == v1beta2.StateReady }
	if module == "" {
		if f.Kyma.Status.State == v1beta2.StateReady && !slices.ContainsFunc(f.Manifests,
			func(m v1beta2.Manifest) bool { return !isReady(&m) }) {
			return nil
		}
		return f.Kyma
	}
	m, entry := f.Manifest(module), f.Kyma.ModuleStatus(module)
	switch {
	case m != nil && !isReady(m):
		return m
	case m != nil && (entry == nil || entry.State == v1beta2.StateReady):
		return nil
	}
	return f.Kyma
}

// requestRetry sets the annotation with a value that it did not have before.
func requestRetry(ctx context.Context, c *connection.Cluster, o client.Object, now time.Time) error {
	value := now.UTC().Format(time.RFC3339Nano)
	if value == o.GetAnnotations()[v1beta2.AnnotationRetry] {
		value += "+" // a second request at the same time of a clock
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{v1beta2.AnnotationRetry: value}}})
	if err != nil {
		return fmt.Errorf("encoding the annotation: %w", err)
	}
	return c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(connection.FieldOwner))
}

// retryProgress returns the progress of a retry of a runtime, or of one of its modules.
func retryProgress(k *v1beta2.Kyma, module string) connection.Progress {
	if k == nil {
		return connection.Progress{Done: true} // its deletion was blocked, and is complete now
	}
	state, message := k.Status.State, k.Status.LastOperation.Operation
	if module != "" {
		entry := k.ModuleStatus(module)
		if entry == nil {
			return connection.Progress{Done: true} // its removal was blocked, and is complete now
		}
		state, message = entry.State, cmp.Or(entry.Message, entry.Reason)
	}
	return connection.Progress{Done: state == v1beta2.StateReady,
		Text: strings.TrimSuffix(string(cmp.Or(state, console.StateNew))+": "+message, ": ")}
}

// retryReport is the report of klm retry --state.
type retryReport []retriedRuntime

type retriedRuntime struct {
	Name    string        `json:"name"`
	State   v1beta2.State `json:"state"`
	Reason  string        `json:"reason,omitempty"`
	Message string        `json:"message,omitempty"`
}

// Names implements [console.Report].
func (r retryReport) Names() []string {
	var all []string
	for _, m := range r {
		all = append(all, "kyma/"+m.Name)
	}
	return all
}

// Show implements [console.Report].
func (r retryReport) Show(p *console.Page) {
	if len(r) == 0 {
		p.Line("no runtime is in this state: there is nothing to retry")
		return
	}
	p.Line("%s tried again; klm status shows the result", console.Count(len(r), "runtime"))
}

// list writes the runtimes that will be retried.
func (r retryReport) list(p *console.Page) {
	const limit = 20
	var rows [][]string
	for _, m := range r[:min(len(r), limit)] {
		rows = append(rows, []string{m.Name, string(m.State), console.OrDash(m.Reason), p.Clip(m.Message, 80)})
	}
	p.Table([]string{"RUNTIME", "STATE", "REASON", "MESSAGE"}, rows)
	if len(r) > limit {
		p.Line("and %d more", len(r)-limit)
	}
}

// retryState retries all runtimes in a state.
func retryState(ctx context.Context, a *console.App, c *connection.Cluster, o retryOptions) error {
	found := retryReport{}
	_, err := fleetlist.List(ctx, c, o.selector, func(m *fleetlist.Member) {
		isAffected := o.module == "" || slices.ContainsFunc(m.Status.Modules, func(e fleetlist.MemberModule) bool {
			return e.Name == o.module && e.State != v1beta2.StateReady
		})
		if m.State() != o.state || !isAffected || m.IsPaused() {
			return
		}
		reason, message := m.Blocker()
		found = append(found, retriedRuntime{m.Metadata.Name, m.State(), reason, message})
	})
	if err != nil {
		return err
	}
	slices.SortFunc(found, func(a, b retriedRuntime) int { return strings.Compare(a.Name, b.Name) })
	if len(found) == 0 {
		return a.Print(found)
	}
	p := a.Page()
	found.list(p)
	fmt.Fprint(a.Err, p.String())
	if !o.yes && len(found) >= manyRuntimes {
		if err := a.Confirm(fmt.Sprintf("Try %d runtimes again?", len(found))); err != nil {
			return err
		}
	}
	if err := requestRetries(ctx, c, found, a.Now()); err != nil {
		return err
	}
	return a.Print(found)
}

// requestRetries annotates the Kymas of runtimes, several at the same time. A Kyma that was deleted in the meantime is
// no error.
func requestRetries(ctx context.Context, c *connection.Cluster, of retryReport, now time.Time) error {
	var mu sync.Mutex
	var failed []error
	all := errgroup.Group{}
	all.SetLimit(8)
	for _, m := range of {
		all.Go(func() error {
			k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: m.Name}}
			if err := requestRetry(ctx, c, k, now); err != nil && !apierrors.IsNotFound(err) {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, c.Explain(err, "annotating Kyma "+m.Name))
			}
			return nil
		})
	}
	_ = all.Wait() // the functions return no error
	if len(failed) == 0 {
		return nil
	}
	return console.Fail(console.ExitCode(failed[0]), "%d of %d runtimes were not tried again: %v", len(failed), len(of),
		errors.Join(failed[:min(len(failed), 3)]...))
}
