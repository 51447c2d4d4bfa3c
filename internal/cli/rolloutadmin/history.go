package rolloutadmin

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
)

func historyCommand(a *console.App) *cobra.Command {
	var l console.Listing
	c := a.Command("history MODULE [CHANNEL] [--version VERSION] [--state OUTCOME]…",
		"the last moves of the channels of a module: version, time, who, and outcome",
		"It shows the last ten moves of each channel, the newest first. Who is the field manager that changed the "+
			"version, such as klm or argocd-controller.", `
klm rollout history sample
klm rollout history sample regular
klm rollout history sample --state Aborted -o json`,
		console.Arguments("MODULE", "[CHANNEL]"), func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			c, err := connection.ControlPlane(ctx, a)
			if err != nil {
				return err
			}
			channel := ""
			if len(args) > 1 {
				channel = args[1]
			}
			changes := func() <-chan struct{} { return c.CatalogChanges(ctx) }
			return console.PrintListing(ctx, a, &l, changes, func() (moveList, error) {
				r := &v1beta2.ModuleReleaseMeta{}
				err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: args[0]}, r)
				if apierrors.IsNotFound(err) {
					if s, err := c.Catalog(ctx); err == nil {
						if err := s.RequireModule(args[0], c); err != nil {
							return nil, err
						}
					}
					return nil, console.Fail(console.ExitNotFound,
						"module %s has no ModuleReleaseMeta, so its moves are "+
							"not recorded", args[0])
				}
				if err != nil {
					return nil, c.Explain(err, "reading ModuleReleaseMeta "+args[0])
				}
				return movesOf(r, channel)
			}, func(m *moveRow) bool {
				return l.Accepts(console.FilterVersion, m.Version) && l.Accepts(console.FilterState, m.outcome())
			})
		})
	l.Register(c, console.FilterVersion, console.FilterState)
	l.RegisterSort(c)
	c.ValidArgsFunction = console.CompleteArguments(connection.CatalogModules(a), connection.ModuleChannels(a))
	return c
}

// moveList is the report of klm rollout history.
type moveList []moveRow

// moveRow is one move of a channel.
type moveRow struct {
	Channel  string    `json:"channel"`
	Revision int64     `json:"revision"`
	Version  string    `json:"version"`
	At       time.Time `json:"at"`
	By       string    `json:"by,omitempty"` // "" if it is not known
	// Urgency is Hotfix or Emergency, or "" for a normal move. Reason is the reason for the urgency.
	Urgency v1beta2.RolloutUrgency `json:"urgency,omitempty"`
	Reason  string                 `json:"reason,omitempty"`
	// Outcome is "" while the rollout is under way.
	Outcome v1beta2.RolloutPhase `json:"outcome,omitempty"`
	Rollout string               `json:"rollout"` // the ModuleRollout, which may have been deleted since
}

// movesOf returns the moves of all channels of a module, or of one channel. The newest move is first.
func movesOf(r *v1beta2.ModuleReleaseMeta, onlyChannel string) (moveList, error) {
	all, channels := moveList{}, []string{}
	for _, c := range r.Spec.Channels {
		channels = append(channels, c.Channel)
	}
	for i := range r.Status.Channels {
		s := &r.Status.Channels[i]
		channels = append(channels, s.Channel)
		if onlyChannel != "" && s.Channel != onlyChannel {
			continue
		}
		for _, m := range s.History {
			all = append(all, moveRow{Channel: s.Channel, Revision: m.Revision, Version: m.Version, At: m.At.Time,
				By: m.By, Urgency: m.Urgency, Reason: m.Reason, Outcome: m.Outcome, Rollout: rollout.Name(r.Name,
					s.Channel, m.Revision)})
		}
	}
	slices.Sort(channels)
	if channels = slices.Compact(channels); onlyChannel != "" && !slices.Contains(channels, onlyChannel) {
		return nil, console.Fail(console.ExitNotFound, "module %s has no channel %q: %s", r.Name, onlyChannel,
			console.SuggestionText(onlyChannel, channels))
	}
	slices.SortStableFunc(all, func(a, b moveRow) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Channel, b.Channel), cmp.Compare(b.Revision, a.Revision))
	})
	return all, nil
}

// outcome returns the outcome of a move as a text for people.
func (m *moveRow) outcome() string { return cmp.Or(string(m.Outcome), "under way") }

func (l moveList) Names() []string {
	var all []string
	for _, m := range l {
		all = append(all, m.Rollout)
	}
	return all
}

func (l moveList) Show(p *console.Page) {
	if len(l) == 0 {
		p.Line("no channel of the module has moved since moves are recorded")
		return
	}
	var rows [][]string
	hasReasons := slices.ContainsFunc(l, func(m moveRow) bool { return m.Urgency != "" || m.Reason != "" })
	for _, m := range l {
		row := []string{m.Channel, fmt.Sprint(m.Revision), m.Version, m.At.UTC().Format(time.RFC3339),
			cmp.Or(m.By, "unknown"), m.outcome(), m.Rollout}
		if hasReasons {
			row = append(row, console.OrDash(string(m.Urgency)), p.Clip(m.Reason, 60))
		}
		rows = append(rows, row)
	}
	head := []string{"CHANNEL", "REVISION", "VERSION", "AT", "BY", "OUTCOME", "ROLLOUT"}
	if hasReasons {
		head = append(head, "URGENCY", "REASON")
	}
	p.Table(head, rows)
}
