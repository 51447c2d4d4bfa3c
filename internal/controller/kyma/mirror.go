package kyma

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// remoteRef is the one Kyma of every runtime.
var remoteRef = apply.Ref{
	Group: v1beta2.GroupVersion.Group, Version: v1beta2.GroupVersion.Version, Kind: "Kyma",
	Namespace: v1beta2.RuntimeNamespace, Name: v1beta2.RuntimeKymaName,
}

// syncOwner owns what we write to the metadata of the Kyma in the runtime.
const syncOwner = "kyma-sync-context"

// interests are what a Kyma wants to hear of from its runtime: its other self.
func (r *Reconciler) interests() []runtimes.Interest {
	if r.InCluster {
		return nil
	}
	return r.Runtimes.ShareInterests([]runtimes.Interest{{Resource: v1beta2.GroupVersion.WithResource("kymas"), Kind: "Kyma", Namespace: remoteRef.Namespace, Name: remoteRef.Name}})
}

// mirror reads the Kyma in the runtime, whose spec is the wish, and makes sure that the runtime has all it takes: namespace, CRDs,
// the Kyma with our labels. What is there costs the one read: the Kyma carries the digest of the rest.
func (n *run) mirror(ctx context.Context) error {
	if n.InCluster {
		n.remote, n.mirrored = n.kyma, true
		n.hurryIfEdited()
		return nil
	}
	var err error
	if n.base, err = n.baseNow(ctx); err != nil {
		return err
	}
	remote, err := n.readRemote(ctx)
	if err != nil {
		return err
	}
	if b := channel.PauseBlocker(n.kyma, ""); b != nil {
		return n.leavePaused(remote, b)
	}
	if err := n.compareBase(ctx); err != nil {
		return err
	}
	wrong := n.takeBaseNews()
	if wrong || remote == nil || remote.Annotations[v1beta2.AnnotationBaseObjectsDigest] != n.base.Digest {
		if err := n.applyBase(ctx); err != nil {
			if wrong {
				n.giveBaseNewsBack()
			}
			return err
		}
	}
	switch {
	case remote == nil:
		remote, err = n.createRemote(ctx)
	case !n.remoteIsMarked(remote):
		remote, err = n.markRemote(ctx)
	}
	if err != nil {
		return err
	}
	if remote == nil {
		return n.notServed("the runtime to serve the kind Kyma")
	}
	n.remote, n.mirrored = remote, true
	n.noteRemote()
	n.hurryIfEdited()
	return nil
}

// hurryIfEdited lets the modules of a Kyma overtake others if its wish is newer than what was last reported: somebody waits for it.
func (n *run) hurryIfEdited() {
	if n.remote.Generation != n.remote.Status.ObservedGeneration {
		n.Runtimes.Hurry(n.kyma.Name)
	}
}

// notServed ends a pass because of a kind that is about to be served, and comes back: at once, and more slowly if it takes longer.
func (n *run) notServed(what string) error {
	n.unserved = true
	since := n.now
	if c := meta.FindStatusCondition(n.kyma.Status.Conditions, v1beta2.ConditionReady); c != nil && c.Status != metav1.ConditionTrue {
		since = c.LastTransitionTime.Time
	}
	return loop.Later(loop.PollDelay(n.now, since), what)
}

// leavePaused takes the Kyma in the runtime as it is, and does nothing to the runtime.
func (n *run) leavePaused(remote *v1beta2.Kyma, b *channel.Blocker) error {
	if remote == nil {
		return reconcile.TerminalError(b)
	}
	n.paused, n.remote = true, remote
	n.mirrored = remote.Annotations[v1beta2.AnnotationBaseObjectsDigest] == n.base.Digest
	n.noteRemote()
	return nil
}

// applyBase sends what the runtime gets first, as far as it was not sent before.
func (n *run) applyBase(ctx context.Context) error {
	m := n.memory(n.kyma.Name, n.runtime)
	result, err := n.runtime.Apply(ctx, apply.Set{Bundle: n.base, Owner: v1beta2.FieldOwner}, &m.base)
	if err == nil && len(result.Failed) > 0 {
		err = result.Failed[0]
	}
	if err != nil {
		return fmt.Errorf("preparing runtime %s: %w", n.kyma.Name, err)
	}
	if len(result.Waiting) > 0 {
		return n.notServed("the runtime to serve the kinds of " + v1beta2.GroupVersion.Group)
	}
	if n.resent = len(result.Applied) > 0; n.resent {
		n.mu.Lock()
		m.catalog.baseSeen = n.now
		n.mu.Unlock()
	}
	return nil
}

// compareBase looks whether the runtime still has what it got first, if changes of that may have been missed.
func (n *run) compareBase(ctx context.Context) error {
	m := n.memory(n.kyma.Name, n.runtime)
	n.mu.Lock()
	unsure := m.catalog.unsure
	m.catalog.unsure = false
	n.mu.Unlock()
	if !unsure {
		return nil
	}
	drifted, err := n.runtime.FindDrift(ctx, apply.Set{Bundle: n.base, Owner: v1beta2.FieldOwner}, &m.base)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		m.catalog.unsure = true
		return fmt.Errorf("comparing what runtime %s got first: %w", n.kyma.Name, err)
	}
	m.catalog.base, m.catalog.baseSeen = m.catalog.base || len(drifted) > 0, n.now
	return nil
}

// takeBaseNews tells whether somebody has changed or deleted a definition of ours. Then nothing is known of what was sent.
func (n *run) takeBaseNews() bool {
	m := n.memory(n.kyma.Name, n.runtime)
	n.mu.Lock()
	defer n.mu.Unlock()
	wrong := m.catalog.base
	if m.catalog.base = false; wrong {
		m.base = apply.Progress{}
		m.catalog.all = true // with a definition went its objects
	}
	return wrong
}

// doubtBase lets the next pass send what the runtime gets first again, because a kind of it is not served: unless it was sent a moment ago, so
// that it is about to be.
func (n *run) doubtBase() {
	const moment = 10 * time.Second
	m := n.memory(n.kyma.Name, n.runtime)
	n.mu.Lock()
	defer n.mu.Unlock()
	m.catalog.base = m.catalog.base || n.now.Sub(m.catalog.baseSeen) > moment
}

func (n *run) giveBaseNewsBack() {
	m := n.memory(n.kyma.Name, n.runtime)
	n.mu.Lock()
	defer n.mu.Unlock()
	m.catalog.base = true
}

// readRemote returns the Kyma in the runtime, nil if there is none.
func (n *run) readRemote(ctx context.Context) (*v1beta2.Kyma, error) {
	u, err := n.runtime.Get(ctx, remoteRef)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Kyma in runtime %s: %w", n.kyma.Name, err)
	}
	return asKyma(u)
}

// createRemote creates the Kyma in the runtime with what was wished there last, or with the control plane's spec as the first wish; nil
// says that the kind is not served yet.
func (n *run) createRemote(ctx context.Context) (*v1beta2.Kyma, error) {
	spec, restored := firstWish(n.kyma)
	first := &v1beta2.Kyma{
		TypeMeta: metav1.TypeMeta{APIVersion: v1beta2.GroupVersion.String(), Kind: "Kyma"},
		ObjectMeta: metav1.ObjectMeta{
			Name: remoteRef.Name, Namespace: remoteRef.Namespace, Labels: n.remoteLabels(), Annotations: n.remoteAnnotations(),
		},
		Spec: spec,
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(first)
	if err != nil {
		return nil, fmt.Errorf("encoding the Kyma for runtime %s: %w", n.kyma.Name, err)
	}
	delete(fields, "status")
	_, err = n.runtime.Create(ctx, &unstructured.Unstructured{Object: fields}, syncOwner)
	if absent(err) {
		n.doubtBase() // what is known to have been sent may not be there any more
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("creating the Kyma in runtime %s: %w", n.kyma.Name, err)
	}
	first.Generation = 1                            // as every new object
	n.memory(n.kyma.Name, n.runtime).agent.Doubt(0) // whatever was delivered before may be gone, too
	if restored {
		n.event(corev1.EventTypeNormal, v1beta2.EventKymaRestored, "the Kyma in the runtime was deleted, and was created again with the modules that it requested last")
	} else {
		n.event(corev1.EventTypeNormal, v1beta2.EventRemoteInstallation, "Kyma was installed to SKR")
	}
	return first, nil
}

// remoteLabels are the labels of ours on the Kyma in the runtime.
func (n *run) remoteLabels() map[string]string {
	labels := map[string]string{v1beta2.LabelManagedBy: v1beta2.ManagedByKyma, v1beta2.LabelWatchedBy: v1beta2.WatchedByKyma}
	for _, key := range []string{v1beta2.LabelRuntimeID, v1beta2.LabelGlobalAccountID, v1beta2.LabelSubaccountID} {
		if value, ok := n.kyma.Labels[key]; ok {
			labels[key] = value
		}
	}
	return labels
}

func (n *run) remoteAnnotations() map[string]string {
	return map[string]string{
		v1beta2.AnnotationOwnedBy:           n.kyma.Namespace + "/" + n.kyma.Name,
		v1beta2.AnnotationBaseObjectsDigest: n.base.Digest,
	}
}

func (n *run) remoteIsMarked(remote *v1beta2.Kyma) bool {
	return contains(remote.Labels, n.remoteLabels()) && contains(remote.Annotations, n.remoteAnnotations())
}

// markRemote puts our labels and annotations on the Kyma in the runtime, next to what is there.
func (n *run) markRemote(ctx context.Context) (*v1beta2.Kyma, error) {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": n.remoteLabels(), "annotations": n.remoteAnnotations()}})
	if err != nil {
		return nil, fmt.Errorf("encoding labels for runtime %s: %w", n.kyma.Name, err)
	}
	u, err := n.runtime.Patch(ctx, remoteRef, types.MergePatchType, "", body, syncOwner)
	if err != nil {
		return nil, fmt.Errorf("labelling the Kyma in runtime %s: %w", n.kyma.Name, err)
	}
	return asKyma(u)
}

// publish copies the status to the Kyma in the runtime if it differs from what is there: without what only the control plane knows.
func (n *run) publish(ctx context.Context) error {
	if n.kyma.Status.State != v1beta2.StateProcessing {
		n.Runtimes.Rest(n.kyma.Name)
	}
	if n.remote == nil || n.InCluster || n.runtime == nil {
		return nil
	}
	want := publicStatus(n.kyma, n.remote.Generation)
	if loop.Equal(&n.remote.Status, &want) {
		if n.kyma.Status.State == v1beta2.StateReady && n.Runtimes.IsWatched(n.kyma.Name) {
			n.runtime.CloseIdleConnections()
		}
		return nil
	}
	patch, err := loop.MergePatch("status", n.remote.Status, want)
	if err != nil {
		return fmt.Errorf("comparing the status in runtime %s: %w", n.kyma.Name, err)
	}
	if patch == nil {
		return nil
	}
	if _, err := n.runtime.Patch(ctx, remoteRef, types.MergePatchType, "status", patch, v1beta2.FieldOwner); err != nil && !absent(err) {
		return fmt.Errorf("writing the status of the Kyma in runtime %s: %w", n.kyma.Name, err)
	}
	return nil
}

func asKyma(u *unstructured.Unstructured) (*v1beta2.Kyma, error) {
	k := &v1beta2.Kyma{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, k); err != nil {
		return nil, fmt.Errorf("decoding Kyma %s/%s of a runtime: %w", u.GetNamespace(), u.GetName(), err)
	}
	return k, nil
}

// contains tells whether all has every pair of some.
func contains(all, some map[string]string) bool {
	for k, v := range some {
		if got, ok := all[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// absent tells whether err says that an object, its namespace or its kind is not there.
func absent(err error) bool {
	switch loop.Reason(err) {
	case apply.ObjectNotFound, apply.NamespaceNotFound, apply.KindUnknown:
		return true
	}
	return false
}

var hashSeed = maphash.MakeSeed()

// fingerprint sums up what of the Kyma in the runtime is not ours to change: generation, labels and annotations.
func fingerprint(m metav1.Object) uint64 {
	return maphash.Comparable(hashSeed, fmt.Sprint(m.GetUID(), m.GetGeneration(), m.GetDeletionTimestamp() != nil, m.GetLabels(), m.GetAnnotations()))
}
