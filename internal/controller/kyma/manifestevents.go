package kyma

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// An event of a Manifest triggers a reconcile of its Kyma after a delay. The first row that fits the event of the
// Manifest determines the delay of the reconcile:
//
//	1  row 2 or 3 fits, the Kyma is being deleted, the Manifest has
//	   not failed, and the Kyma has other Manifests                    urgentBatchDelay, together with other events
//	2  the Manifest is deleted, or was changed by others               no delay
//	3  its state has changed to neither Ready nor Processing           no delay: people wait for this state
//	4  its state has changed to Ready, and no other is Processing      no delay: this is the end of the change
//	5  its state, visible version or visible message has changed       readyBatchDelay or urgentBatchDelay
//	6  we changed it, or it was created, started or applied            slowCheckDelay; row 4 or 5 usually comes first
//	7  any other event                                                 no reconcile

// When a module becomes Ready, the controller reconciles the Kyma only after a delay. So several modules that become
// Ready within this delay cost only one write of the Kyma's status. The delay is readyBatchDelay, or urgentBatchDelay
// while a person waits for the runtime. While a Kyma is being deleted, the delay after an event of one of its Manifests
// is urgentBatchDelay; see delayOfDeletion.
const (
	readyBatchDelay  = 3 * time.Second
	urgentBatchDelay = time.Second
)

// slowCheckDelay is the time after which the controller checks whether a module is slow. A module that is not Ready
// after slowCheckDelay counts as slow.
const slowCheckDelay = plan.SlowModuleDelay + time.Second

// recordAnnotations are annotations that only record a fact about an object. A change of an annotation in
// recordAnnotations triggers no reconcile. The annotation for a retry has a handler of its own.
var recordAnnotations = []string{v1beta2.AnnotationLastRequest, v1beta2.AnnotationSyncOCIRef, v1beta2.AnnotationRetry}

// onManifest returns the handler for events of Manifests.
func (r *Reconciler) onManifest() handler.EventHandler {
	enqueue := func(ctx context.Context, q queueing.Queue, o client.Object, after time.Duration) {
		for _, request := range loop.RequestForKyma(ctx, o) {
			q.AddAfter(request, after)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queueing.Queue) {
			switch {
			case e.IsInInitialList: // all Kymas are enqueued anyway
			case plan.IsOurs(e.Object.(*v1beta2.Manifest)):
				enqueue(ctx, q, e.Object, slowCheckDelay)
			default:
				enqueue(ctx, q, e.Object, 0)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queueing.Queue) {
			r.releaseNewRuntimeIfAllApplied(ctx, e)
			isOwnWrite := isSpecChanged(e) && r.ownWrites.takeExpected(e.ObjectNew.(*v1beta2.Manifest))
			if !isOwnWrite {
				r.ownWrites.noteEditByOthers(e.ObjectOld.(*v1beta2.Manifest), e.ObjectNew.(*v1beta2.Manifest))
			}
			if after, relevant := r.delayAfter(ctx, e, isOwnWrite); relevant {
				enqueue(ctx, q, e.ObjectNew, after)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queueing.Queue) {
			r.ownWrites.forget(client.ObjectKeyFromObject(e.Object))
			enqueue(ctx, q, e.Object, r.delayOfDeletion(ctx, e.Object.(*v1beta2.Manifest)))
		},
	}
}

// isSpecChanged reports whether an update changes more than the status and the recordAnnotations.
func isSpecChanged(e event.UpdateEvent) bool {
	return loop.SpecLabelsOrAnnotationsChanged(recordAnnotations...).Update(e)
}

// delayAfter returns whether an update of a Manifest requires a reconcile of its Kyma, and the delay of that reconcile.
func (r *Reconciler) delayAfter(ctx context.Context, e event.UpdateEvent, isOwnWrite bool) (
	after time.Duration, relevant bool) {
	before, now := e.ObjectOld.(*v1beta2.Manifest), e.ObjectNew.(*v1beta2.Manifest)
	was, is := plan.VisibleState(before), plan.VisibleState(now)
	specChanged := isSpecChanged(e)
	switch {
	case specChanged && !isOwnWrite:
		return r.delayOfDeletion(ctx, now), true
	case specChanged && before.Generation != now.Generation:
		was = v1beta2.StateProcessing // the state that the reconcile with the own write has reported
	}
	applied := plan.InstalledOrRequestedVersion(before) != plan.InstalledOrRequestedVersion(now)
	// visible means that the status of the Kyma shows the version and the message of the Manifest.
	visible := is != v1beta2.StateProcessing || time.Since(plan.NotReadySinceOrCreation(now)) >= plan.SlowModuleDelay
	changed := was != is || visible && (applied ||
		plan.VisibleMessage(before) != plan.VisibleMessage(now))
	switch {
	case changed && is != v1beta2.StateReady && is != v1beta2.StateProcessing:
		return r.delayOfDeletion(ctx, now), true
	case changed && is == v1beta2.StateReady && !r.hasOtherProcessing(ctx, now):
		return 0, true
	case changed && r.Urgent != nil && r.Urgent.Is(now.Labels[v1beta2.LabelKymaName]):
		return urgentBatchDelay, true
	case changed:
		return readyBatchDelay, true
	case specChanged, applied, before.Status.State == "":
		return slowCheckDelay, true
	}
	return 0, false
}

// delayOfDeletion returns the delay of the reconcile after an event that would need a reconcile without a delay if its
// Kyma were not being deleted. The delay is urgentBatchDelay if the Kyma is being deleted and has other Manifests. The
// deletion of a Kyma with many modules causes several events for each module, and most of the reconciles could only
// report which modules are left. In all other cases the delay is 0: for the last Manifest, because the deletion of the
// Kyma then continues, for a Manifest in state Error or Warning, and if the Kyma is not being deleted.
func (r *Reconciler) delayOfDeletion(ctx context.Context, m *v1beta2.Manifest) time.Duration {
	if state := plan.VisibleState(m); state == v1beta2.StateError || state == v1beta2.StateWarning {
		return 0
	}
	k, kyma := &v1beta2.Kyma{}, m.Labels[v1beta2.LabelKymaName]
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: kyma}, k, client.UnsafeDisableDeepCopy,
		client.DisableReadYourWritesConsistency)
	if err != nil || k.DeletionTimestamp.IsZero() {
		return 0
	}
	all, err := runtimes.ManifestsOf(ctx, r.Client, m.Namespace, kyma)
	if err == nil && slices.ContainsFunc(all, func(o v1beta2.Manifest) bool { return o.Name != m.Name }) {
		return urgentBatchDelay
	}
	return 0
}

// ownWrites has the changes of Manifests that this controller has sent and whose events have not arrived yet. The zero
// value is empty. ownWrites is safe for concurrent use.
type ownWrites struct {
	mu   sync.Mutex
	sent map[types.NamespacedName]*v1beta2.Manifest // guarded by mu: labels, annotations and spec
	// edited has Manifests whose sources another client has changed, as far as they lack AnnotationRequestedSources,
	// which would show the change; guarded by mu.
	edited map[types.NamespacedName]bool
}

// noteEditByOthers compares a Manifest before and after an event. If somebody else has changed its sources, and the
// annotations of the Manifest do not show the change, noteEditByOthers records the change in memory.
func (w *ownWrites) noteEditByOthers(before, now *v1beta2.Manifest) {
	if _, known := plan.HasUneditedSources(now); known || before.Generation == now.Generation ||
		plan.SourcesDigest(&before.Spec) == plan.SourcesDigest(&now.Spec) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.edited == nil {
		w.edited = map[types.NamespacedName]bool{}
	}
	w.edited[client.ObjectKeyFromObject(now)] = true
}

// isEditedByOthers reports whether noteEditByOthers has recorded a change of the Manifest, and this controller has not
// written the Manifest after that change.
func (w *ownWrites) isEditedByOthers(key types.NamespacedName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.edited[key]
}

// expect records the content of a Manifest that is about to be written.
func (w *ownWrites) expect(m *v1beta2.Manifest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sent == nil {
		w.sent = map[types.NamespacedName]*v1beta2.Manifest{}
	}
	delete(w.edited, client.ObjectKeyFromObject(m))
	w.sent[client.ObjectKeyFromObject(m)] = &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Labels: m.Labels,
		Annotations: m.Annotations}, Spec: m.Spec}
}

// forget drops the expected content of a Manifest.
func (w *ownWrites) forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.sent, key)
	delete(w.edited, key)
}

// takeExpected drops the expected content of a Manifest, and returns whether the Manifest has exactly this content.
// Because takeExpected always drops the expected content, no expected content stays in memory for long. If the event of
// an own write arrives after another event, the event triggers one unnecessary reconcile.
func (w *ownWrites) takeExpected(m *v1beta2.Manifest) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(m)
	sent := w.sent[key]
	delete(w.sent, key)
	return sent != nil && m.DeletionTimestamp.IsZero() && maps.Equal(sent.Labels, m.Labels) &&
		maps.Equal(specAnnotations(sent), specAnnotations(m)) && plan.SameSpec(&sent.Spec, &m.Spec)
}

// specAnnotations returns the annotations of an object without the recordAnnotations.
func specAnnotations(o client.Object) map[string]string {
	annotations := maps.Clone(o.GetAnnotations())
	maps.DeleteFunc(annotations, func(key, _ string) bool { return slices.Contains(recordAnnotations, key) })
	return annotations
}

// hasOtherProcessing reports whether another Manifest of the same Kyma is Processing.
func (r *Reconciler) hasOtherProcessing(ctx context.Context, m *v1beta2.Manifest) bool {
	all, err := runtimes.ManifestsOf(ctx, r.Client, m.Namespace, m.Labels[v1beta2.LabelKymaName])
	if err != nil {
		return false
	}
	for i := range all {
		if o := &all[i]; o.Name != m.Name && o.DeletionTimestamp.IsZero() &&
			plan.VisibleState(o) == v1beta2.StateProcessing {
			return true
		}
	}
	return false
}

// releaseNewRuntimeIfAllApplied ends the admission of a new runtime as soon as all objects of its modules are applied,
// so that the next new runtime is admitted. From then on, the control plane has no more work with the new runtime: only
// the runtime itself decides when its modules become Ready.
func (r *Reconciler) releaseNewRuntimeIfAllApplied(ctx context.Context, e event.UpdateEvent) {
	before, now := e.ObjectOld.(*v1beta2.Manifest), e.ObjectNew.(*v1beta2.Manifest)
	kyma := now.Labels[v1beta2.LabelKymaName]
	if before.Status.AppliedDigest != "" || now.Status.AppliedDigest == "" || !r.starting.IsAdmitted(kyma) {
		return
	}
	all, err := runtimes.ManifestsOf(ctx, r.Client, now.Namespace, kyma)
	if err != nil {
		return // a later change of the Kyma's state releases the runtime
	}
	for i := range all {
		if m := &all[i]; m.Name != now.Name && m.Status.AppliedDigest == "" {
			return
		}
	}
	r.starting.Release(kyma)
}
