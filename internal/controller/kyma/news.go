package kyma

import (
	"context"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// When a Kyma looks at what happened to one of its Manifests. The first row that fits wins:
//
//	1  it is gone, or somebody else changed it                   at once
//	2  it has another state, and that is not Ready or Processing at once: people wait for it
//	3  it has become Ready, and all the others are               at once: that is the end of it
//	4  its state is another, or the version or message it shows  together with what happens within a moment
//	5  we changed it, or it was created, begun or applied        when it takes long enough to be told; usually row 3 or 4 comes before
//	6  else                                                      never

// moment is how long good news of a module wait for those of others, so that modules that become Ready together cost one write.
const moment = time.Second

// onManifest wakes the Kyma of a Manifest.
func (r *Reconciler) onManifest() handler.EventHandler {
	wake := func(q queue, o client.Object, after time.Duration) {
		if name := o.GetLabels()[v1beta2.LabelKymaName]; name != "" {
			q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}, after)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			switch {
			case e.IsInInitialList: // then all Kymas are in the queue anyway
			case isOurs(e.Object.(*v1beta2.Manifest)):
				wake(q, e.Object, patience+time.Second)
			default:
				wake(q, e.Object, 0)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			r.noteApplied(ctx, e)
			if after, concerns := r.manifestNews(ctx, e); concerns {
				wake(q, e.ObjectNew, after)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			r.echoes.forget(client.ObjectKeyFromObject(e.Object))
			wake(q, e.Object, 0)
		},
	}
}

// manifestNews tells whether a change of a Manifest concerns its Kyma, and how long it may wait.
func (r *Reconciler) manifestNews(ctx context.Context, e event.UpdateEvent) (after time.Duration, concerns bool) {
	before, now := e.ObjectOld.(*v1beta2.Manifest), e.ObjectNew.(*v1beta2.Manifest)
	was, is := shownState(before), shownState(now)
	wished := wishChanged(e)
	switch {
	case wished && !r.echoes.is(now):
		return 0, true
	case wished && before.Generation != now.Generation:
		was = v1beta2.StateProcessing // as the pass that changed it has said
	}
	applied := installedVersion(before) != installedVersion(now)
	visible := is != v1beta2.StateProcessing || time.Since(busySince(now)) >= patience // else how far it is waits for the end
	changed := was != is || visible && (applied || before.Status.LastOperation.Operation != now.Status.LastOperation.Operation)
	switch {
	case changed && is != v1beta2.StateReady && is != v1beta2.StateProcessing:
		return 0, true
	case changed && is == v1beta2.StateReady && !r.othersProcessing(ctx, now):
		return 0, true
	case changed:
		return moment, true
	case wished, applied, before.Status.State == "":
		return patience + time.Second, true
	}
	return 0, false
}

// echoes are the changes of Manifests that this controller has sent and not heard of yet: the pass that sent one knows it. The zero value is empty.
// Safe for concurrent use.
type echoes struct {
	mu   sync.Mutex
	sent map[types.NamespacedName]*v1beta2.Manifest // guarded by mu: labels, annotations and spec
}

// expect says how a Manifest is about to be.
func (e *echoes) expect(m *v1beta2.Manifest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sent == nil {
		e.sent = map[types.NamespacedName]*v1beta2.Manifest{}
	}
	e.sent[client.ObjectKeyFromObject(m)] = &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Labels: m.Labels, Annotations: m.Annotations}, Spec: m.Spec}
}

// forget says that a Manifest will not be as expected.
func (e *echoes) forget(key types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.sent, key)
}

// is tells whether a Manifest has become what is expected. Whatever it has become, nothing more is expected then: so nothing is remembered for long, and
// what comes late wakes once too often.
func (e *echoes) is(m *v1beta2.Manifest) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := client.ObjectKeyFromObject(m)
	sent := e.sent[key]
	delete(e.sent, key)
	return sent != nil && m.DeletionTimestamp.IsZero() && maps.Equal(sent.Labels, m.Labels) && maps.Equal(said(sent), said(m)) && sameSpec(&sent.Spec, &m.Spec)
}

// shownState is the state that a Kyma shows of a Manifest: what nobody has looked at yet is Processing.
func shownState(m *v1beta2.Manifest) v1beta2.State {
	if m.Status.ObservedGeneration != m.Generation || m.Status.State == "" {
		return v1beta2.StateProcessing
	}
	return m.Status.State
}

// othersProcessing tells whether the Kyma of a Manifest waits for other Manifests, too.
func (r *Reconciler) othersProcessing(ctx context.Context, m *v1beta2.Manifest) bool {
	var list v1beta2.ManifestList
	err := r.Client.List(ctx, &list, client.InNamespace(m.Namespace), client.MatchingFields{runtimes.KymaNameIndex: m.Labels[v1beta2.LabelKymaName]},
		client.UnsafeDisableDeepCopy)
	for i := range list.Items {
		if o := &list.Items[i]; err == nil && o.Name != m.Name && o.DeletionTimestamp.IsZero() && shownState(o) == v1beta2.StateProcessing {
			return true
		}
	}
	return false
}

// noteApplied lets the next runtime begin when all that this one gets was applied: whether it becomes Ready, and how long that takes, is up to the
// runtime.
func (r *Reconciler) noteApplied(ctx context.Context, e event.UpdateEvent) {
	before, now := e.ObjectOld.(*v1beta2.Manifest), e.ObjectNew.(*v1beta2.Manifest)
	kyma := now.Labels[v1beta2.LabelKymaName]
	if before.Status.AppliedDigest != "" || now.Status.AppliedDigest == "" || !r.begin.isTurn(kyma) {
		return
	}
	var list v1beta2.ManifestList
	if err := r.Client.List(ctx, &list, client.InNamespace(now.Namespace), client.MatchingFields{runtimes.KymaNameIndex: kyma}, client.UnsafeDisableDeepCopy); err != nil {
		return // the Kyma's own state will tell
	}
	for i := range list.Items {
		if m := &list.Items[i]; m.Name != now.Name && m.Status.AppliedDigest == "" {
			return
		}
	}
	r.begin.done(kyma)
}
