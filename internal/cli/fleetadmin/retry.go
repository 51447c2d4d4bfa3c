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

func retryCommand(a *console.App) *cobra.Command {
	o := retryOptions{Verb: fleetlist.Verb{Question: "Try %s again?"}}
	c := a.Command("retry RUNTIME… | --state STATE [-l SELECTOR] [--module MODULE]",
		"try again at once, after you have mended what failed", `
The manager tries again by itself, after a delay that grows up to some minutes. This command ends the delay: the runtime is probed, failures of
registries are forgotten, and the objects of modules that are not Ready are compared and sent again. For named runtimes klm waits until they
are Ready, and shows what is in the way. With --state or --selector it lists the runtimes that are not Ready, asks if they are several, and does
not wait. A last argument that is no runtime but a module is the same as --module.`, `
klm retry runtime-a
klm retry runtime-a sample
klm retry runtime-a runtime-b --module sample
klm retry --state=Error
klm retry --state=Error -l kyma-project.io/region=eu-central-1 --module sample --yes`,
		o.parseArgs, func(cmd *cobra.Command, args []string) error {
			c, err := connection.ControlPlane(cmd.Context(), a)
			if err != nil {
				return err
			}
			if err := liveness.Read(cmd.Context(), c).Report(time.Time{}).ErrIfNotWorking(); err != nil {
				return console.Fail(console.ExitNoManager, "nothing was requested: %v", err)
			}
			if o.state != "" || o.Selector != "" {
				return retrySelected(cmd.Context(), a, c, o)
			}
			o.Plan = o.plan
			return o.Run(cmd.Context(), a, c, o.splitModule(cmd.Context(), c, args))
		})
	o.Register(a, c)
	f := c.Flags()
	f.StringVar((*string)(&o.state), "state", "", "all runtimes in this state, such as Error, Warning or Processing")
	f.StringVar(&o.module, "module", "", "only this module")
	console.CompleteFlag(c, "state", console.FixedNames("Error", "Warning", "Processing", "Deleting"))
	console.CompleteFlag(c, "module", connection.ModulesOfRuntime(a))
	return c
}

// retryOptions are the flags of klm retry.
type retryOptions struct {
	fleetlist.Verb
	module string
	state  v1beta2.State
}

// parseArgs checks the arguments of klm retry. With --state or --selector, no RUNTIME is given; in this case, a single
// argument is the module.
func (o *retryOptions) parseArgs(_ *cobra.Command, args []string) error {
	selects := o.state != "" || o.Selector != ""
	switch {
	case slices.Contains(args, ""):
		return console.Fail(console.ExitUsage, "RUNTIME must not be empty")
	case !selects && len(args) == 0:
		return console.Fail(console.ExitUsage, "RUNTIME is missing: name one, or give --state or --selector")
	case o.state == "" && selects && len(args) > 0:
		return console.Fail(console.ExitUsage, "--selector is in place of RUNTIME: give one of them")
	case selects && (len(args) > 1 || len(args) == 1 && o.module != ""):
		return console.Fail(console.ExitUsage, "--state is in place of RUNTIME: give one of them")
	case selects && len(args) == 1:
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

// splitModule returns those arguments of klm retry that are names of runtimes. If there are two arguments, and the
// second argument is not the name of a runtime, the second argument is the name of the module.
func (o *retryOptions) splitModule(ctx context.Context, c *connection.Cluster, args []string) (runtimes []string) {
	if o.module != "" || len(args) != 2 {
		return args
	}
	k := &v1beta2.Kyma{}
	if c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: args[1]}, k) == nil {
		return args
	}
	o.module = args[1]
	return args[:1]
}

// plan checks whether a retry of one runtime, or of one of its modules, is possible.
func (o *retryOptions) plan(ctx context.Context, _ *console.App, c *connection.Cluster, name string) (
	p fleetlist.Plan, err error) {
	k, err := c.Kyma(ctx, name)
	if err != nil {
		return p, err
	}
	var manifests v1beta2.ManifestList
	err = c.List(ctx, &manifests, c.InNamespace(), client.MatchingLabels{v1beta2.LabelKymaName: k.Name})
	if err != nil {
		return p, c.Explain(err, "reading the Manifests of "+k.Name)
	}
	f := diagnosis.Facts{Cluster: c, Kyma: k, Manifests: manifests.Items}
	what := k.Name
	if o.module != "" {
		what = "module " + o.module + " of " + k.Name
		if err := f.RequireModuleInRuntime(ctx, o.module); err != nil {
			return p, err
		}
	}
	if b := channel.PauseBlocker(k, o.module); b != nil {
		return p, console.Fail(console.ExitNotReady, "%s is not retried: %s", what, b.Message)
	}
	if k.SkipsReconciliation() {
		return p, console.Fail(console.ExitNotReady, "%s is not retried: remove the label %s from its Kyma first", what,
			v1beta2.LabelSkipReconciliation)
	}
	p.Would = console.Outcome{Object: "kyma/" + k.Name, Result: what + " would be tried again"}
	target := retryTarget(&f, o.module)
	if target == nil {
		p.Would.Result = what + " is Ready: there is nothing to retry"
		return p, nil
	}
	p.Do = func(ctx context.Context, a *console.App) (console.Outcome, error) {
		done := console.Outcome{Object: "kyma/" + k.Name, Result: what + " is Ready"}
		if err := requestRetry(ctx, c, target, a.Now()); err != nil {
			return done, c.Explain(err, "annotating "+target.GetName())
		}
		if o.NoWait {
			done.Result = fmt.Sprintf("%s is tried again; klm why %s shows the result", what, k.Name)
			return done, nil
		}
		return done, connection.WaitForKyma(ctx, a, c, k.Name, o.Timeout, func(k *v1beta2.Kyma) connection.Progress {
			return progressUntilReady(k, o.module)
		})
	}
	return p, nil
}

// Retry makes the same request as klm retry RUNTIME [MODULE] --no-wait, and returns a text about the request. Before
// the call, the caller must have asked the user for confirmation, and must have checked that a manager is running.
func Retry(ctx context.Context, c *connection.Cluster, name, module string, now time.Time) (effect string, err error) {
	o := retryOptions{module: module}
	o.NoWait = true
	p, err := o.plan(ctx, nil, c, name)
	if err != nil {
		return "", err
	}
	if p.Do == nil {
		return p.Would.Result, nil
	}
	done, err := p.Do(ctx, &console.App{Now: func() time.Time { return now }})
	return done.Result, err
}

// retryTarget returns the object on which klm sets the annotation for a retry: the Manifest of the module if the
// Manifest is not Ready, and the Kyma in all other cases. If the Kyma and all its Manifests are Ready, there is nothing
// to retry, and retryTarget returns nil. A retry annotation on the Kyma retries all modules that are not Ready, and all
// modules that have no Manifest yet.
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

// RetryCommand returns the kubectl command that requests the same retry as Retry, or "" if there is nothing to retry.
func RetryCommand(f *diagnosis.Facts, module string) string {
	target, kind := retryTarget(f, module), "kyma"
	if target == nil {
		return ""
	}
	if _, isManifest := target.(*v1beta2.Manifest); isManifest {
		kind = "manifest"
	}
	return fmt.Sprintf("kubectl -n %s annotate %s %s --overwrite %s=$(date +%%s)", target.GetNamespace(), kind,
		target.GetName(), v1beta2.AnnotationRetry)
}

// requestRetry sets the annotation that requests a retry to a value that the object did not have before.
func requestRetry(ctx context.Context, c *connection.Cluster, o client.Object, now time.Time) error {
	value := now.UTC().Format(time.RFC3339Nano)
	if value == o.GetAnnotations()[v1beta2.AnnotationRetry] {
		value += "+" // a second request with the same timestamp
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{v1beta2.AnnotationRetry: value}}})
	if err != nil {
		return fmt.Errorf("encoding the annotation: %w", err)
	}
	return c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(connection.FieldOwner))
}

// progressUntilReady returns the progress of a retry of a runtime, or of one of its modules.
func progressUntilReady(k *v1beta2.Kyma, module string) connection.Progress {
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

// Names returns the lines that -o name prints.
func (r retryReport) Names() []string {
	var all []string
	for _, m := range r {
		all = append(all, "kyma/"+m.Name)
	}
	return all
}

// Show writes the report as text for people.
func (r retryReport) Show(p *console.Page) {
	if len(r) == 0 {
		p.Line("no runtime is in this state: there is nothing to retry")
		return
	}
	p.Line("%s tried again; klm status shows the result", console.Count(len(r), "runtime"))
}

// retryDryRun is the report of klm retry --state --dry-run.
type retryDryRun struct{ retryReport }

// MarshalJSON makes the JSON output of klm retry the same with and without --dry-run.
func (r retryDryRun) MarshalJSON() ([]byte, error) { return json.Marshal(r.retryReport) }

// Show writes the report as text for people.
func (r retryDryRun) Show(p *console.Page) {
	p.Line("%s would be tried again", console.Count(len(r.retryReport), "runtime"))
}

// showRuntimesToRetry writes a list of the runtimes that will be retried.
func (r retryReport) showRuntimesToRetry(p *console.Page) {
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

// retrySelected retries all runtimes in a state, or all that are not Ready.
func retrySelected(ctx context.Context, a *console.App, c *connection.Cluster, o retryOptions) error {
	found := retryReport{}
	_, err := fleetlist.List(ctx, c, o.Selector, func(m *fleetlist.Member) {
		isAffected := o.module == "" || slices.ContainsFunc(m.Status.Modules, func(e fleetlist.MemberModule) bool {
			return e.Name == o.module && e.State != v1beta2.StateReady
		})
		isWanted := m.State() == o.state || o.state == "" && m.State() != v1beta2.StateReady
		if !isWanted || !isAffected || m.IsPaused() {
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
	found.showRuntimesToRetry(p)
	fmt.Fprint(a.Err, p.String())
	if o.DryRun {
		return a.Print(retryDryRun{found})
	}
	if !o.Yes && len(found) > 1 {
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
