package landscape

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Row is the state of one module of one runtime, as the control plane shows it.
type Row struct {
	Runtime, Module, Channel, Version string
	State                             v1beta2.State
	Message                           string
}

// Ready reports whether the module is Ready.
func (r Row) Ready() bool { return r.State == v1beta2.StateReady }

// Rows returns a row for every module of every runtime, and one row without a module for a runtime that has no modules
// or is unreachable.
func (l *Landscape) Rows(ctx context.Context) ([]Row, error) {
	list := &v1beta2.KymaList{}
	if err := l.Clients[ControlPlane].List(ctx, list, client.InNamespace(l.Namespace())); err != nil {
		return nil, fmt.Errorf("listing Kymas: %w", err)
	}
	var rows []Row
	for _, k := range list.Items {
		for _, m := range k.Status.Modules {
			rows = append(rows, Row{Runtime: k.Name, Module: m.Name, Channel: m.Channel, Version: m.Version,
				State: m.State, Message: m.Message})
		}
		if len(k.Status.Modules) == 0 {
			rows = append(rows, Row{Runtime: k.Name, Module: "-", Channel: k.Spec.Channel, State: k.Status.State,
				Message: k.Status.LastOperation.Operation})
		}
	}
	return rows, nil
}

// lostLead is a part of the last message of a manager that ends because it is no longer the leader. In a cluster, the
// Deployment of such a manager starts a new process.
const lostLead = "leader election lost"

// FollowRestartingOnLostLease prints the table of rows each time it changes, until the function done() returns true. If
// the context ends first, FollowRestartingOnLostLease returns the cause and the rows that were not Ready. A manager
// that lost its lead is started again.
func (l *Landscape) FollowRestartingOnLostLease(ctx context.Context, out io.Writer, done func([]Row) bool) error {
	begin, last := time.Now(), ""
	var rows []Row
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var err error
		if rows, err = l.Rows(ctx); err != nil {
			return false, nil //nolint:nilerr // the control plane may be busy; the context ends this
		}
		if text := formatTable(rows); text != last {
			last = text
			fmt.Fprintf(out, "\nafter %.1f s\n%s", time.Since(begin).Seconds(), text)
		}
		select {
		case <-l.Manager.Done():
			if tail := l.LogTail(10); strings.Contains(tail, lostLead) {
				l.Say("\nthe manager has lost its Lease, because this machine is busy or another manager took it: " +
					"it is started again")
				return false, l.StartManagerAgain()
			}
			return false, fmt.Errorf("the manager has ended; the end of its log:\n%s", l.LogTail(10))
		default:
			return done(rows), nil
		}
	})
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	for _, r := range rows {
		if !r.Ready() {
			err = fmt.Errorf("%w\n  %s, module %s is %s: %s", err, r.Runtime, r.Module,
				cmp.Or(string(r.State), "not looked at yet"), cmp.Or(r.Message, "no reason given"))
		}
	}
	return err
}

// LogTail returns the last lines of the manager's log. CloseAndRemoveDir removes the log.
func (l *Landscape) LogTail(lines int) string {
	data, err := os.ReadFile(filepath.Join(l.Dir, "manager.log"))
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// formatTable formats rows as a table.
func formatTable(rows []Row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 2, 8, 2, ' ', 0)
	fmt.Fprintln(w, "RUNTIME\tMODULE\tCHANNEL\tVERSION\tSTATE\tMESSAGE")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n",
			r.Runtime, r.Module, cmp.Or(r.Channel, "-"), cmp.Or(r.Version, "-"),
			cmp.Or(string(r.State), "-"), r.Message)
	}
	_ = w.Flush() // into memory
	return b.String()
}

// FindFirstLogLineWithAny returns the first line of the manager's log that contains one of the texts, and "" if there
// is none.
func (l *Landscape) FindFirstLogLineWithAny(texts ...string) string {
	data, err := os.ReadFile(filepath.Join(l.Dir, "manager.log"))
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(data)) {
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) }) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
