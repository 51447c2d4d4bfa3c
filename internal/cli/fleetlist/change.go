package fleetlist

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// Verb is a command that changes several runtimes. The runtimes are named by arguments or selected by labels.
type Verb struct {
	console.ChangeFlags
	// Question is the question before the change, with %s for the runtimes: "Remove %s?".
	Question string
	// Asks is true if klm also asks before the change of a single runtime. klm always asks before the change of several
	// runtimes.
	Asks bool
	// Plan checks the change of one runtime, and writes the effects of the change to a.Err. The changes of several
	// runtimes are checked at the same time.
	Plan func(ctx context.Context, a *console.App, c *connection.Cluster, name string) (Plan, error)
	// Selector is the label selector that chooses the runtimes if the user gives no names.
	Selector string
}

// Plan is the change of one runtime that has been checked, but not made yet.
type Plan struct {
	// The field Would contains the outcome that --dry-run prints instead of making the change.
	Would console.Outcome
	// The function Do makes the change. If there is nothing to change, Do is nil. Then klm prints the outcome in the
	// field Would even without --dry-run.
	Do func(ctx context.Context, a *console.App) (console.Outcome, error)
}

// parallel is the maximum number of runtimes that are changed at the same time. A runtime whose change klm has
// requested, and for whose completion klm waits, counts too.
const parallel = 16

// Register adds the flags and the completion of names to a command.
func (v *Verb) Register(a *console.App, c *cobra.Command) {
	c.Flags().StringVarP(&v.Selector, "selector", "l", "", "all runtimes whose Kyma has these labels, such as a=b,c!=d")
	v.ChangeFlags.Register(c.Flags())
	c.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		return console.CompleteArguments(connection.RuntimeNames(a))(cmd, nil, begun)
	}
}

// Args is the check of the arguments: one or more names, or a selector.
func (v *Verb) Args(_ *cobra.Command, args []string) error {
	switch {
	case slices.Contains(args, ""):
		return console.Fail(console.ExitUsage, "RUNTIME must not be empty")
	case len(args) == 0 && v.Selector == "":
		return console.Fail(console.ExitUsage, "RUNTIME is missing: name one or more, or give --selector")
	case len(args) > 0 && v.Selector != "":
		return console.Fail(console.ExitUsage, "--selector is in place of RUNTIME: give one of them")
	}
	return nil
}

// Run changes the runtimes with the given names, or the runtimes that match the selector. If one name is given, Run
// prints one outcome. If no name or several names are given, Run prints a list of outcomes. If the change of one
// runtime fails, Run still changes the other runtimes.
func (v *Verb) Run(ctx context.Context, a *console.App, c *connection.Cluster, names []string) error {
	isOne := len(names) == 1
	if len(names) == 0 {
		add := func(m *Member) { names = append(names, m.Metadata.Name) }
		if err := ListBrief(ctx, c, v.Selector, add); err != nil {
			return err
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	plans, failed := v.plan(ctx, a, c, names)
	if isOne && len(failed) == 1 {
		return failed[0]
	}
	if len(plans) == 0 && len(failed) == 0 {
		fmt.Fprintln(a.Err, "no runtime has these labels")
		return a.Print(console.Outcomes{})
	}
	outcomes, more, err := v.confirmAndExecute(ctx, a, plans)
	if err != nil {
		return err
	}
	if failed = append(failed, more...); isOne {
		if len(failed) > 0 {
			return failed[0]
		}
		return a.Print(outcomes[0])
	}
	if err := a.Print(outcomes); err != nil || len(failed) == 0 {
		return err
	}
	const limit = 10
	return console.Fail(console.ExitCode(failed[0]), "%d of %d runtimes: %v", len(failed), len(names),
		errors.Join(failed[:min(len(failed), limit)]...))
}

// plan checks the changes of the named objects, and prints the effects of the changes in the order of the names.
func (v *Verb) plan(ctx context.Context, a *console.App, c *connection.Cluster, names []string) (
	plans []Plan, failed []error) {
	checked, texts, errs := make([]Plan, len(names)), make([]bytes.Buffer, len(names)), make([]error, len(names))
	var all errgroup.Group
	all.SetLimit(parallel)
	for i, name := range names {
		all.Go(func() error {
			of := *a
			of.Err = &texts[i]
			checked[i], errs[i] = v.Plan(ctx, &of, c, name)
			return nil
		})
	}
	_ = all.Wait() // the functions return no error
	for i := range names {
		_, _ = a.Err.Write(texts[i].Bytes()) // as all progress
		if errs[i] != nil {
			failed = append(failed, errs[i])
			continue
		}
		plans = append(plans, checked[i])
	}
	return plans, failed
}

// confirmAndExecute asks for confirmation, and then makes the changes.
func (v *Verb) confirmAndExecute(ctx context.Context, a *console.App, plans []Plan) (
	outcomes console.Outcomes, failed []error, err error) {
	var open []Plan
	outcomes = console.Outcomes{}
	for _, p := range plans {
		if p.Do == nil || v.DryRun {
			outcomes = append(outcomes, p.Would)
			continue
		}
		open = append(open, p)
	}
	if err := v.confirm(a, open); err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex
	var all errgroup.Group
	all.SetLimit(parallel)
	errs := &lines{to: a.Err}
	for _, p := range open {
		all.Go(func() error {
			of := *a
			if of.Err = errs; len(open) > 1 {
				of.Err = &lines{to: errs, prefix: p.Would.Object + ": "}
			}
			o, err := p.Do(ctx, &of)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, err)
				return nil
			}
			outcomes = append(outcomes, o)
			return nil
		})
	}
	_ = all.Wait() // the functions return no error
	slices.SortFunc(outcomes, func(a, b console.Outcome) int { return strings.Compare(a.Object, b.Object) })
	return outcomes, failed, nil
}

// confirm asks before the changes, unless --yes is given.
func (v *Verb) confirm(a *console.App, open []Plan) error {
	const limit = 20
	switch {
	case v.Yes || len(open) == 0 || len(open) == 1 && !v.Asks:
		return nil
	case len(open) == 1:
		return a.Confirm(fmt.Sprintf(v.Question, "runtime "+strings.TrimPrefix(open[0].Would.Object, "kyma/")))
	}
	for _, p := range open[:min(len(open), limit)] {
		fmt.Fprintln(a.Err, p.Would.Result)
	}
	if len(open) > limit {
		fmt.Fprintf(a.Err, "and %d more\n", len(open)-limit)
	}
	return a.Confirm(fmt.Sprintf(v.Question, console.Count(len(open), "runtime")))
}

// lines is a writer that writes a prefix before the data of each call of Write. Several goroutines may use one writer.
type lines struct {
	mu     sync.Mutex
	to     io.Writer
	prefix string
}

func (l *lines) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.prefix != "" {
		data = append([]byte(l.prefix), bytes.TrimLeft(data, " ")...)
	}
	n, err := l.to.Write(data)
	return max(n-len(l.prefix), 0), err
}
