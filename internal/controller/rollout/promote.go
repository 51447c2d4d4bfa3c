package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/rollout/gate"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/promotion"
	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

// judgePromotions decides which promotions between the channels of the module are due, and records the results in the
// parameter statuses, the statuses of the channels that will be written. judgePromotions returns the promotions that
// move a channel now.
func (p *pass) judgePromotions(ctx context.Context, statuses []v1beta2.ChannelStatus) (due []*v1beta2.ChannelStatus) {
	var moves []*v1beta2.ChannelStatus
	next := p.release.DeepCopy()
	next.Status.Channels = statuses
	for i := range statuses {
		s := &statuses[i]
		is := promotion.Judge(promotion.Inputs{Release: next, Policies: p.policies, To: s.Channel, Now: p.now,
			Template: func(version string) *v1beta2.ModuleTemplate {
				return p.catalog.Template(channel.TemplateName(p.release.Name, version))
			},
			Owners: func() ([]string, error) { return p.fieldManagersOf(ctx, s.Channel) },
			Count: func(of, version string) (v1beta2.PromotionEvidence, error) {
				return p.countEvidence(ctx, of,
					version)
			}})
		p.requeueAfter(is.Next)
		was := s.Promotion
		if is.Status != nil {
			if from := next.ChannelStatus(is.Status.From); from != nil && from.ProvenAt.IsZero() && from.Version != "" {
				from.ProvenAt = metav1.NewTime(p.now) // the begin is not known, so the time counts from now on
				p.requeueAfter(Period)
			}
		}
		if is.Status != nil && is.Status.State == v1beta2.PromotionProposed {
			p.notifyPromotionProposal(s.Channel, was, is)
		}
		if is.Status != nil && is.Status.State == v1beta2.PromotionApplying {
			moves = append(moves, s)
		}
		s.Promotion = is.Status
	}
	return moves
}

// countEvidence counts the runtimes in a channel in which a version is Ready, and those in which the version is in
// state Error.
func (p *pass) countEvidence(ctx context.Context, channelName, version string) (v1beta2.PromotionEvidence, error) {
	e := v1beta2.PromotionEvidence{Version: version}
	runtimes, err := p.runtimes(ctx, channelName, time.Time{})
	for i := range runtimes {
		switch r := &runtimes[i]; {
		case r.Ordered != version:
		case r.IsReady && r.UnreachableSince.IsZero():
			e.Ready++
		case r.State == v1beta2.StateError:
			e.Failed++
		}
	}
	return e, err
}

// fieldManagersOf reads the field managers that own the version of a channel. fieldManagersOf asks the API server,
// because the cache has no managed fields.
func (p *pass) fieldManagersOf(ctx context.Context, channelName string) ([]string, error) {
	if p.Live == nil {
		return nil, nil
	}
	live, err := p.liveOrCachedRelease(ctx)
	if err != nil {
		return nil, err
	}
	if live.ResourceVersion != p.release.ResourceVersion {
		return nil, fmt.Errorf("somebody has changed it a moment ago")
	}
	return promotion.Owners(live, channelName), nil
}

// notifyPromotionProposal records a new proposal: an event, and a notification of the webhook. The notification is sent
// in another goroutine, because a webhook that does not answer would delay the halts of all modules.
func (p *pass) notifyPromotionProposal(toChannel string, was *v1beta2.ChannelPromotion, is promotion.Result) {
	s := is.Status
	if (was == nil || was.State != s.State || was.Version != s.Version) && p.Events != nil {
		p.Events.Eventf(p.release, nil, corev1.EventTypeNormal, v1beta2.EventPromotionProposed, "Coordinate", "%s",
			fmt.Sprintf(
				"version %s has proven itself in channel %s: klm channel set %s %s %s", s.Version, s.From,
				p.release.Name,
				toChannel, s.Version))
	}
	if is.Promotion.Webhook == nil || s.Notified == s.Version {
		return
	}
	if was != nil {
		s.WebhookError = was.WebhookError
	}
	current, _ := p.release.ChannelVersion(toChannel)
	body, err := json.Marshal(map[string]any{"module": p.release.Name, "from": s.From, "to": toChannel,
		"version": s.Version,
		"current": current, "evidence": s.Evidence})
	isDelivered := false
	if err == nil {
		isDelivered, err = p.notifier.Deliver(p.release.Name+"/"+toChannel, gate.Notification{Module: p.release.Name,
			ID: s.Version, URL: is.Promotion.Webhook.URL, Body: body})
	}
	switch {
	case isDelivered:
		s.Notified, s.WebhookError = s.Version, ""
	case err != nil:
		s.WebhookError = text.ClipLine(err.Error(), 256)
		p.requeueAfter(gate.NotificationRetryInterval)
	}
}

// applyPromotedVersion moves a channel to the promoted version. The request of applyPromotedVersion sets, and its field
// manager owns, only the version of the channel. If the ModuleReleaseMeta has changed since judgePromotions decided
// about the promotion, the API server refuses the request.
func (p *pass) applyPromotedVersion(ctx context.Context, s *v1beta2.ChannelStatus) error {
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": p.release.Name, "namespace": p.release.Namespace,
			"resourceVersion": p.release.ResourceVersion},
		"spec": map[string]any{"channels": []any{map[string]any{"channel": s.Channel, "version": s.Promotion.Version}}},
	}}
	u.SetGroupVersionKind(v1beta2.GroupVersion.WithKind(v1beta2.KindModuleReleaseMeta))
	if err := p.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u),
		client.FieldOwner(v1beta2.FieldOwnerPromotionPrefix+s.Channel), client.ForceOwnership); err != nil {
		return fmt.Errorf("promoting version %s of module %s to channel %s: %w", s.Promotion.Version, p.release.Name,
			s.Channel, err)
	}
	if p.Events != nil {
		p.Events.Eventf(p.release, nil, corev1.EventTypeNormal, v1beta2.EventPromotionApplied, "Coordinate", "%s",
			fmt.Sprintf(
				"channel %s is moved to version %s, which has proven itself in channel %s", s.Channel,
				s.Promotion.Version,
				s.Promotion.From))
	}
	return nil
}
