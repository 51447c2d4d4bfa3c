package kyma

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// A Kyma uses a runtime only after the controller has verified that the runtime belongs to this Kyma (package
// ownership). The verification needs the Kyma in the runtime, which a reconcile reads first, unless an earlier
// reconcile has just read it. The Kyma controller makes this verification for all controllers: the pool gives the
// connection to the other controllers only after the verification. If a runtime has no record of its owner yet, the
// Kyma controller makes these steps in this order. If the runtime does not serve the kind Kyma yet, step 3 follows in
// the next reconcile.
//
//	1  verify                  nothing is written yet
//	2  base objects            they are the same for every owner
//	3  the Kyma with a record  created, or patched, only if no other client has written a record in the meantime
//	4  MarkOwned               from here on the other controllers use the runtime

// claim returns the data with which a Kyma claims its runtime: it is written into the record of the owner.
func (r *Reconciler) claim(kyma *v1beta2.Kyma, rt *runtimes.Runtime) ownership.Claim {
	return ownership.Claim{
		Me: ownership.Owner{ControlPlane: r.ControlPlaneID, Kyma: kyma.Namespace + "/" + kyma.Name, UID: kyma.UID,
			Cluster: kyma.Status.ClusterID},
		Server: rt.Server,
		Take: kyma.Annotations[v1beta2.AnnotationTakeRuntime] == v1beta2.ValueTrue &&
			kyma.DeletionTimestamp.IsZero(),
	}
}

// verifyOwnerAndMarkLostModules decides whether the Kyma may use its runtime. remote is the Kyma in the runtime, or
// nil. If the runtime contains the record of another owner and the Kyma may therefore not use the runtime,
// verifyOwnerAndMarkLostModules returns a *runtimes.Error. If the record in the runtime names this Kyma as the owner,
// verifyOwnerAndMarkLostModules does two things: it marks the Manifests whose recorded state this control plane has
// lost, and then it allows the other controllers to use the connection to the runtime.
func (r *Reconciler) verifyOwnerAndMarkLostModules(ctx context.Context, kyma *v1beta2.Kyma, rt *runtimes.Runtime,
	remote *v1beta2.Kyma) (ownership.Found, error) {
	found, err := ownership.Verify(ctx, rt.Cluster, ownership.AnnotationsOrNil(remote), r.claim(kyma, rt))
	if refusal, ok := errors.AsType[*ownership.Refusal](err); ok {
		refused := &runtimes.Error{Code: refusal.Code, Runtime: kyma.Name, Message: refusal.Error()}
		r.Runtimes.Refuse(kyma.Name, rt, subscriberKey(kyma.Name), refused)
		return found, refused
	}
	if err == nil {
		err = r.markLostModules(ctx, kyma, rt, remote, found)
	}
	if err == nil && found.IsRecorded && found.TakenFrom == "" {
		r.Runtimes.MarkOwned(kyma.Name, rt, subscriberKey(kyma.Name))
	}
	return found, err
}

// verifyOwnerOrRefuse calls verifyOwnerAndMarkLostModules in the reconcile of a Kyma. If the Kyma may not use the
// runtime, or if the status in the runtime names too many unknown modules, verifyOwnerOrRefuse records the refusal, and
// the reconcile waits until the next poll.
func (n *run) verifyOwnerOrRefuse(ctx context.Context, remote *v1beta2.Kyma) (err error) {
	n.owner, err = n.verifyOwnerAndMarkLostModules(ctx, n.kyma, n.runtime, remote)
	if runtimes.IsRuntimeRefused(err) || loop.Reason(err) == v1beta2.ReasonRuntimeKymaInvalid {
		return n.refuseUntilNextPoll(err)
	}
	return err
}

// decideInClusterOwnerRecord returns, for in-cluster mode, the record that names this control plane as the owner of its
// own cluster. The record is on the reconciled Kyma itself, and another control plane that registers the cluster finds
// it there. If the Kyma already has a record of another control plane, decideInClusterOwnerRecord returns an
// *ownership.Refusal. If the Kyma takes the cluster over, the second result, takenFrom, describes the former owner.
func (n *run) decideInClusterOwnerRecord() (record, takenFrom string, err error) {
	claim := ownership.Claim{
		Me: ownership.Owner{ControlPlane: n.ControlPlaneID, Kyma: n.kyma.Namespace + "/" + n.kyma.Name,
			UID: n.kyma.UID, Cluster: n.ControlPlaneID},
		Server: "of the manager",
	}
	former, err := ownership.Decode(n.kyma.Annotations[v1beta2.AnnotationOwner])
	if err == nil && former.Cluster != "" && former.Cluster != n.ControlPlaneID {
		return claim.Me.Encode(), "", nil // the Kyma was restored from a backup of another cluster
	}
	_, _, err = ownership.Decide(ownership.Seen{Annotations: n.kyma.Annotations}, claim)
	refusal, isRefused := errors.AsType[*ownership.Refusal](err)
	switch {
	case !isRefused:
		return claim.Me.Encode(), "", nil
	case n.kyma.Annotations[v1beta2.AnnotationTakeRuntime] == v1beta2.ValueTrue:
		return claim.Me.Encode(), refusal.Problem, nil
	}
	refusal.Advice = "remove the cluster from that control plane, or take it over: kubectl annotate -n " +
		n.kyma.Namespace + " kyma " + n.kyma.Name + " " + v1beta2.AnnotationTakeRuntime + "=" + v1beta2.ValueTrue
	return "", "", refusal
}

// markOwnedAndEndTakeover completes the verification of the owner after the Kyma controller has written the record of
// the owner into the runtime: it allows the other controllers to use the runtime. If the runtime was taken over,
// markOwnedAndEndTakeover removes the annotation that requested the takeover, and requests a comparison of all modules
// with the runtime.
func (n *run) markOwnedAndEndTakeover(ctx context.Context) error {
	n.kyma.Status.ClusterID = n.owner.Owner.Cluster
	n.Runtimes.MarkOwned(n.kyma.Name, n.runtime, subscriberKey(n.kyma.Name))
	if n.owner.TakenFrom != "" {
		n.event(corev1.EventTypeNormal, v1beta2.EventRuntimeTakenOver, "the cluster "+n.runtime.Server+
			" now belongs to this Kyma; before, "+n.owner.TakenFrom)
		n.agents.CompareAtNextDelivery(n.agentTarget())
		n.Runtimes.PublishToInterested(n.kyma.Name, runtimes.Event{Missed: true})
	}
	if _, requested := n.kyma.Annotations[v1beta2.AnnotationTakeRuntime]; !requested {
		return nil
	}
	return loop.PatchMetadata(ctx, n.Client, n.kyma, func(m *metav1.ObjectMeta) {
		delete(m.Annotations, v1beta2.AnnotationTakeRuntime)
	})
}

// verifyOwnerIfRequested verifies the owner of a runtime for the other controllers if the Kyma is not reconciled:
// either it has the label skip-reconciliation, or the Kyma does not exist although its Manifests exist.
// verifyOwnerIfRequested writes nothing.
func (r *Reconciler) verifyOwnerIfRequested(ctx context.Context, kymaKey types.NamespacedName,
	kyma *v1beta2.Kyma) error {
	if !r.Runtimes.IsVerificationRequested(kymaKey.Name) {
		return nil
	}
	kyma = withoutTakeover(kyma, kymaKey)
	rt, err := r.Runtimes.GetBeforeOwnerVerified(ctx, kymaKey.Name)
	if loop.Reason(err) != "" {
		return nil // the other controllers have the same error
	}
	if err != nil {
		return err
	}
	remote, err := r.readRemote(ctx, rt, kymaKey.Name)
	if err == nil {
		_, err = r.verifyOwnerAndMarkLostModules(ctx, kyma, rt, remote)
	}
	switch {
	case runtimes.IsRuntimeRefused(err):
		return nil
	case err != nil:
		return err
	}
	r.Runtimes.MarkOwned(kymaKey.Name, rt, subscriberKey(kymaKey.Name))
	return nil
}

// skipCleanupOfOthersRuntime makes the deletion of a Kyma leave the runtime untouched from now on, because the runtime
// belongs to another owner.
func (n *run) skipCleanupOfOthersRuntime(why error) {
	n.deletion.runtimeLeft, n.deletion.why, n.remote = leftToOwner, why, nil
}

// decideDeletableResources returns the delivered objects that are to be deleted from the runtime. The same reconcile
// has verified the owner of the runtime before. Before the first deletion, decideDeletableResources lists the objects
// of our kinds in the runtime. If others have such objects there, for example because the cluster is a control plane,
// too, the CRDs are not deleted, and the objects of the catalog copy are deleted one by one.
func (n *run) decideDeletableResources(ctx context.Context) (all []v1beta2.Resource, err error) {
	if n.editRecord(func(m *record) { all = m.deletable }); all != nil {
		return all, nil
	}
	other, copies, err := ownership.FindObjectsOfOthers(ctx, n.runtime.Cluster)
	if err != nil {
		return nil, n.waitOrGiveUp(ctx, err)
	}
	all = n.nonModuleResources()
	if other != "" {
		all = append(ownership.WithoutOwnCRDs(all), copies...)
		n.event(corev1.EventTypeWarning, v1beta2.EventCRDsKept, ownership.WhyCRDsStay(n.runtime.Server, other))
	}
	n.editRecord(func(m *record) { m.deletable = all })
	return all, nil
}

// withoutTakeover returns a copy of a Kyma for a verification that writes no record, so that it must not take the
// runtime over. If the Kyma is nil, the copy has only its name.
func withoutTakeover(kyma *v1beta2.Kyma, key types.NamespacedName) *v1beta2.Kyma {
	if kyma == nil {
		kyma = &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	}
	kyma = kyma.DeepCopy()
	delete(kyma.Annotations, v1beta2.AnnotationTakeRuntime)
	return kyma
}

// ownerVerificationPeriod is the age up to which a verification of the owner allows the deletion of objects.
const ownerVerificationPeriod = 5 * time.Second

// VerifyOwnerBeforeDeletion verifies again that a runtime belongs to its Kyma, for a controller that is about to delete
// objects there. A deletion may wait for hours, for example for custom resources of users, and another owner may take
// the runtime over in the meantime. If the last verification is more recent than five seconds,
// VerifyOwnerBeforeDeletion sends no request; otherwise it reads the Kyma in the runtime. If the runtime belongs to
// another owner, the pool refuses the connection from then on, its subscribers are notified, and the returned error
// fulfils [runtimes.IsRuntimeRefused].
func (r *Reconciler) VerifyOwnerBeforeDeletion(ctx context.Context, kymaKey types.NamespacedName,
	rt *runtimes.Runtime) error {
	if r.Runtimes.IsOwnerVerifiedWithin(rt, ownerVerificationPeriod) {
		return nil
	}
	kyma := &v1beta2.Kyma{}
	if err := r.Client.Get(ctx, kymaKey, kyma); apierrors.IsNotFound(err) {
		kyma = nil // a Manifest may outlive its Kyma
	} else if err != nil {
		return fmt.Errorf("reading Kyma %s: %w", kymaKey.Name, err)
	}
	remote, err := r.readRemote(ctx, rt, kymaKey.Name)
	if err != nil && loop.Reason(err) != v1beta2.ReasonRuntimeKymaInvalid {
		return err
	}
	_, err = ownership.Verify(ctx, rt.Cluster, ownership.AnnotationsOrNil(remote),
		r.claim(withoutTakeover(kyma, kymaKey), rt))
	if refusal, ok := errors.AsType[*ownership.Refusal](err); ok {
		refused := &runtimes.Error{Code: refusal.Code, Runtime: kymaKey.Name, Message: refusal.Error()}
		r.Runtimes.Refuse(kymaKey.Name, rt, "", refused)
		return refused
	}
	if err == nil {
		r.Runtimes.MarkOwned(kymaKey.Name, rt, "")
	}
	return err
}
