package rolloutadmin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/promotion"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/urgency"
)

func promotionsCommand(a *console.App) *cobra.Command {
	return a.Group("promotions", "versions that have proven themselves in a channel: list, hold, release", "", `
klm promotions list
klm promotions hold sample regular --reason="audit until Monday"
klm promotions release sample regular`,
		listPromotionsCommand(a), holdPromotionsCommand(a), releasePromotionsCommand(a))
}

func listPromotionsCommand(a *console.App) *cobra.Command {
	var l console.Listing
	c := a.Command("list [--module MODULE] [--channel CHANNEL] [--state STATE]…",
		"what is promoted from channel to channel, and why not yet",
		"klm judges with the code of the manager. The numbers of runtimes are those that the manager has counted "+
			"last. "+
			"Proposals come first.", `
klm promotions list
klm promotions list --state Proposed -o name`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error {
			c, err := connection.ControlPlane(cmd.Context(), a)
			if err != nil {
				return err
			}
			changes := func() <-chan struct{} { return c.CatalogChanges(cmd.Context()) }
			return console.PrintListing(cmd.Context(), a, &l, changes, func() (promotionList, error) {
				return readPromotions(cmd.Context(), a, c)
			}, func(r *promotionRow) bool {
				return l.Accepts(console.FilterModule, r.Module) && l.Accepts(console.FilterChannel, r.To, r.From) &&
					l.Accepts(console.FilterState, string(r.State))
			})
		})
	l.Register(c, console.FilterModule, console.FilterChannel, console.FilterState)
	l.RegisterSort(c)
	console.CompleteFlag(c, console.FilterModule, connection.CatalogModules(a))
	console.CompleteFlag(c, console.FilterState, console.FixedNames(promotionStates()...))
	return c
}

// promotionStates returns all states of promotions. The states in which a person has to act are first.
func promotionStates() []string {
	return []string{string(v1beta2.PromotionProposed), string(v1beta2.PromotionApplying),
		string(v1beta2.PromotionWaiting),
		string(v1beta2.PromotionUpToDate)}
}

// promotionList is the report of klm promotions list.
type promotionList []promotionRow

// promotionRow is the row of the promotion into one channel of a module.
type promotionRow struct {
	Module  string                     `json:"module"`
	From    string                     `json:"from"`
	To      string                     `json:"to"`
	Current string                     `json:"current"`           // the present version of the target channel
	Version string                     `json:"version,omitempty"` // the version that is promoted
	State   v1beta2.PromotionState     `json:"state"`
	Since   time.Time                  `json:"since,omitzero"`
	Why     []v1beta2.RolloutBlocker   `json:"blockers,omitempty"` // why the version is not promoted yet
	Counted *v1beta2.PromotionEvidence `json:"evidence,omitempty"`
	// WebhookError is the reason why the webhook of the promotion was not notified of the proposed promotion.
	WebhookError string `json:"webhookError,omitempty"`
}

// readPromotions returns the states of all promotions.
func readPromotions(ctx context.Context, a *console.App, c *connection.Cluster) (promotionList, error) {
	s, err := c.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	policies, err := c.Policies(ctx)
	if err != nil {
		return nil, err
	}
	all := promotionList{}
	for _, r := range s.Releases {
		for _, of := range r.Spec.Channels {
			if row := judgePromotion(s, r, policies, of.Channel, a.Now()); row != nil {
				all = append(all, *row)
			}
		}
		for to, is := range promotion.ToMissingChannels(r, policies) {
			all = append(all, promotionRow{Module: r.Name, From: is.From, To: to, Version: is.Version, State: is.State,
				Why: is.Blockers})
		}
	}
	order := func(r *promotionRow) int { return slices.Index(promotionStates(), string(r.State)) }
	slices.SortFunc(all, func(a, b promotionRow) int {
		return cmp.Or(order(&a)-order(&b), strings.Compare(a.Module, b.Module), strings.Compare(a.To, b.To))
	})
	return all, nil
}

// judgePromotion returns the state of the promotion of versions of a module into a channel, or nil if no version is
// promoted into this channel.
func judgePromotion(s *connection.Catalog, r *v1beta2.ModuleReleaseMeta, policies []v1beta2.RolloutPolicy, to string,
	now time.Time) *promotionRow {
	is := promotion.Judge(promotion.Inputs{Release: r, Policies: policies, To: to, Now: now,
		Template: func(version string) *v1beta2.ModuleTemplate {
			return s.Templates[channel.TemplateName(r.Name, version)]
		},
		Owners: func() ([]string, error) { return promotion.Owners(r, to), nil }}).Status
	if is == nil {
		return nil
	}
	row := &promotionRow{Module: r.Name, From: is.From, To: to, Version: is.Version, State: is.State,
		Since: is.Since.Time,
		Why:   is.Blockers, Counted: is.Evidence}
	row.Current, _ = r.ChannelVersion(to)
	if was := r.ChannelStatus(to).Promotion; was != nil {
		row.WebhookError = was.WebhookError
	}
	return row
}

func (l promotionList) Names() []string {
	var all []string
	for _, r := range l {
		all = append(all, r.Module+"/"+r.To)
	}
	return all
}

func (l promotionList) Show(p *console.Page) {
	if len(l) == 0 {
		p.Line("no promotions: no RolloutPolicy with a promotion is for a channel of a module")
		return
	}
	var rows [][]string
	for _, r := range l {
		rows = append(rows, []string{r.Module, r.From + " → " + r.To, console.OrDash(r.Current),
			console.OrDash(r.Version), string(r.State), p.Age(r.Since)})
	}
	p.Table([]string{"MODULE", "CHANNELS", "CURRENT", "PROMOTED", "STATE", "SINCE"}, rows)
	for _, r := range l {
		switch {
		case r.State == v1beta2.PromotionProposed:
			p.Line("")
			p.Wrap("", fmt.Sprintf("%s %s has proven itself in channel %s. What to do: klm channel set %s %s %s",
				r.Module, r.Version, r.From, r.Module, r.To, r.Version))
		case len(r.Why) > 0:
			p.Line("")
			p.Line("%s %s is not promoted to channel %s, because:", r.Module, console.OrDash(r.Version), r.To)
		}
		for _, b := range r.Why {
			p.Wrap("  ", fmt.Sprintf("%s: %s; what to do: %s", b.Code, b.Message, b.Remedy))
		}
		if r.WebhookError != "" {
			p.Wrap("  ", "the webhook was not notified: "+r.WebhookError)
		}
	}
}

func holdPromotionsCommand(a *console.App) *cobra.Command {
	reason := ""
	c := promotionOrderCommand(a, "hold MODULE CHANNEL --reason=TEXT", "keep a channel from getting promoted versions",
		"The channel can still be moved by persons. klm promotions release ends it.", `
klm promotions hold sample regular --reason="audit until Monday"`,
		func(*v1beta2.ModuleReleaseMeta, string) (promotion.Order, string, error) {
			if strings.TrimSpace(reason) == "" || strings.ContainsAny(reason, "\r\n") || len(reason) > 1024 {
				return promotion.Order{}, "", console.Fail(console.ExitUsage,
					"others will read why nothing is promoted: give --reason, one line of at most 1024 characters")
			}
			return promotion.Order{Hold: strings.TrimSpace(reason)}, "nothing is promoted to it any more", nil
		})
	c.Flags().StringVar(&reason, "reason", "", "why, for others")
	return c
}

func releasePromotionsCommand(a *console.App) *cobra.Command {
	return promotionOrderCommand(a, "release MODULE CHANNEL", "let a channel get promoted versions again",
		"It ends a hold by klm promotions hold, and one by a person who has moved the channel to another version "+
			"than the "+
			"promoted one.", `
klm promotions release sample regular`,
		func(r *v1beta2.ModuleReleaseMeta, to string) (promotion.Order, string, error) {
			order, err := promotion.InstructionOf(r, to)
			s := r.ChannelStatus(to)
			isHeld := s.Promotion != nil && s.Promotion.Hold != nil
			if err == nil && order.Hold == "" && !isHeld {
				return promotion.Order{}, "", console.Fail(console.ExitFailed, "nobody holds the promotion of module "+
					"%s to channel %s",
					r.Name, to)
			}
			return promotion.Order{Released: max(1, s.Revision)}, "versions are promoted to it again", nil
		})
}

// promotionOrderCommand returns a command with which a person holds or releases the promotion of versions into one
// channel of a module.
func promotionOrderCommand(a *console.App, use, short, long, example string,
	newOrder func(*v1beta2.ModuleReleaseMeta, string) (promotion.Order, string, error)) *cobra.Command {
	dryRun := false
	c := a.Command(use, short, long, example, console.Arguments("MODULE", "CHANNEL"), func(cmd *cobra.Command,
		args []string) error {
		c, err := connection.ControlPlane(cmd.Context(), a)
		if err != nil {
			return err
		}
		s, err := c.Catalog(cmd.Context())
		if err != nil {
			return err
		}
		if err := s.RequireModule(args[0], c); err != nil {
			return err
		}
		r := s.Releases[args[0]]
		if r.ChannelStatus(args[1]) == nil {
			return console.Fail(console.ExitNotFound, "module %s has no channel %q that the manager knows: %s", args[0],
				args[1],
				console.SuggestionText(args[1], s.ChannelsOf(args[0])))
		}
		o, effect, err := newOrder(r, args[1])
		if err != nil {
			return err
		}
		outcome := console.Outcome{Object: "modulereleasemeta/" + r.Name, Result: fmt.Sprintf("channel %s: %s", args[1],
			effect)}
		if dryRun {
			outcome.Result = "would do: " + outcome.Result
			return a.Print(outcome)
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": r.ResourceVersion,
			"annotations": map[string]any{v1beta2.AnnotationPromotion: urgency.SetLine(
				r.Annotations[v1beta2.AnnotationPromotion], args[1], o.Line(args[1]))}}})
		if err != nil {
			return fmt.Errorf("encoding the annotation: %w", err)
		}
		if err := c.Patch(cmd.Context(), r.DeepCopy(), client.RawPatch(types.MergePatchType, patch),
			client.FieldOwner(connection.FieldOwner)); err != nil {
			return c.Explain(err, "changing ModuleReleaseMeta "+r.Name)
		}
		return a.Print(outcome)
	})
	c.ValidArgsFunction = console.CompleteArguments(connection.CatalogModules(a), connection.ModuleChannels(a))
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be done, and change nothing")
	return c
}
