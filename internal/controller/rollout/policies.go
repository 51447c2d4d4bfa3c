package rollout

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

// policyPeriod is the interval at which the selectors of all policies are compared with the labels of the runtimes.
const policyPeriod = 10 * time.Minute

// policies is a reconciler that reports whether each RolloutPolicy can be applied: in the status of the RolloutPolicy,
// and in metrics. Each reconcile is about all policies, because a new policy may conflict with another one.
type policies struct{ *Reconciler }

// register adds the controller to a manager.
func (p policies) register(mgr ctrl.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{p.requestFor("")}
	})
	specChanged := builder.WithPredicates(loop.SpecLabelsOrAnnotationsChanged())
	return ctrl.NewControllerManagedBy(mgr).
		Named("rolloutpolicy").
		Watches(&v1beta2.RolloutPolicy{}, all, specChanged).
		Watches(&v1beta2.ModuleReleaseMeta{}, all, specChanged).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, RateLimiter: p.RateLimiter,
			NeedLeaderElection: new(true)}).
		Complete(p)
}

// Reconcile judges all policies.
func (p policies) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	in := client.InNamespace(p.Namespace)
	var all v1beta2.RolloutPolicyList
	if err := p.Client.List(ctx, &all, in); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing RolloutPolicies: %w", err)
	}
	metrics.RolloutPolicyReady.Reset()
	metrics.RolloutPolicyChannels.Reset()
	if len(all.Items) == 0 {
		return reconcile.Result{}, nil
	}
	var releases v1beta2.ModuleReleaseMetaList
	if err := p.Client.List(ctx, &releases, in, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing ModuleReleaseMetas: %w", err)
	}
	var kymas v1beta2.KymaList
	if err := p.Fleet.List(ctx, &kymas, in, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing Kymas: %w", err)
	}
	for i := range all.Items {
		policy := &all.Items[i]
		is := rollout.JudgePolicy(policy, all.Items, releases.Items, kymas.Items)
		for _, g := range outboundURLs(policy) {
			if !p.gates.IsAllowed(g.url) {
				is.Problem(v1beta2.ReasonPolicyInvalid,
					g.field+": the manager may not call this address: allow it with --rollout-gate-allow")
			}
		}
		err := p.save(ctx, policy, is)
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: Period}, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: policyPeriod}, nil
}

// save writes the status of a policy if the status has changed, and updates the metrics of the policy.
func (p policies) save(ctx context.Context, policy *v1beta2.RolloutPolicy, is rollout.PolicyJudgement) error {
	reason, parts := v1beta2.ReasonPolicyAccepted, []string{fmt.Sprintf("channels: %d of %d modules", is.Channels,
		is.Modules)}
	ready, stalled := metav1.ConditionTrue, metav1.ConditionFalse
	metrics.RolloutPolicyReady.WithLabelValues(policy.Name).Set(1)
	if len(is.Problems) > 0 {
		ready, stalled, reason, parts = metav1.ConditionFalse, metav1.ConditionTrue, is.Reason, is.Problems
		metrics.RolloutPolicyReady.WithLabelValues(policy.Name).Set(0)
	}
	metrics.RolloutPolicyChannels.WithLabelValues(policy.Name).Set(float64(is.Channels))
	next := policy.Status.DeepCopy()
	next.ObservedGeneration = policy.Generation
	next.FleetMaxUpdating = int32(min(p.MaxUpdating, 1<<30)) //nolint:gosec // a fleet has fewer than 2^30 runtimes
	message := text.ClipLine(strings.Join(append(parts, is.Notes...), "; "), 1024)
	condition := metav1.Condition{Type: v1beta2.ConditionReady, Status: ready, Reason: reason, Message: message,
		ObservedGeneration: policy.Generation}
	meta.SetStatusCondition(&next.Conditions, condition)
	condition.Type, condition.Status = rollout.ConditionStalled, stalled
	meta.SetStatusCondition(&next.Conditions, condition)
	if loop.Equal(&policy.Status, next) {
		return nil
	}
	updated := policy.DeepCopy()
	updated.Status = *next
	if err := p.Client.Status().Patch(ctx, updated, client.MergeFromWithOptions(policy,
		client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1beta2.FieldOwner)); err != nil {
		return fmt.Errorf("writing the status of RolloutPolicy %s: %w", policy.Name, err)
	}
	return nil
}

// address is the URL of a gate or of the promotion webhook in a policy, with the field of the policy that contains the
// URL.
type address struct{ field, url string }

// outboundURLs returns all URLs in a policy that the manager has to call.
func outboundURLs(policy *v1beta2.RolloutPolicy) []address {
	var all []address
	for _, s := range policy.Spec.Stages {
		for _, g := range s.Gates {
			field := fmt.Sprintf("spec.stages[%s].gates[%s]", s.Name, g.Name)
			switch {
			case g.PromQL != nil:
				all = append(all, address{field + ".promQL.url", g.PromQL.URL})
			case g.Webhook != nil:
				all = append(all, address{field + ".webhook.url", g.Webhook.URL})
			}
		}
	}
	if of := policy.Spec.Promotion; of != nil && of.Webhook != nil {
		all = append(all, address{"spec.promotion.webhook.url", of.Webhook.URL})
	}
	return all
}
