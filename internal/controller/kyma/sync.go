package kyma

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/catalog"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/restored"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// remoteRef is the reference to the Kyma in a runtime. Every runtime has exactly one Kyma.
var remoteRef = apply.Ref{
	Group: v1beta2.GroupVersion.Group, Version: v1beta2.GroupVersion.Version, Kind: "Kyma",
	Namespace: v1beta2.RuntimeNamespace, Name: v1beta2.RuntimeKymaName,
}

// metadataOwner is the field manager with which our labels and annotations are set on the Kyma in the runtime.
const metadataOwner = "kyma-sync-context"

// syncBaseAndRemote reads the Kyma in the runtime, whose spec has the requested modules. syncBaseAndRemote creates the
// objects that the runtime lacks: namespace, CRDs, pull Secret, and the Kyma with our labels. If the runtime has all
// these objects, syncBaseAndRemote only reads the Kyma in the runtime, unless an earlier reconcile has just read it.
// syncBaseAndRemote need not read the base objects, because their digest is in an annotation of the Kyma.
func (n *run) syncBaseAndRemote(ctx context.Context) error {
	if n.InCluster {
		if err := n.markLostModules(ctx, n.kyma, n.runtime, n.kyma, ownership.Found{}); err != nil {
			return err
		}
		n.remote, n.found.baseSynced = n.kyma, true
		n.markUrgentIfEdited()
		return nil
	}
	base, err := n.catalog.Base(ctx)
	if err != nil {
		return err
	}
	remote, err := n.cachedOrVerifiedRemote(ctx)
	if err != nil {
		return err
	}
	if b := channel.PauseBlocker(n.kyma, ""); b != nil {
		return n.continueWithoutRuntimeWrites(remote, base, b)
	}
	isCurrent := remote != nil && remote.Annotations[v1beta2.AnnotationBaseObjectsDigest] == base.Digest
	wasAbsent := remote == nil
	keepsCRDs, err := n.catalog.SyncBase(ctx, n.catalogTarget(), base, isCurrent)
	if keepsCRDs {
		n.event(corev1.EventTypeWarning, v1beta2.EventCRDsKept, ownership.WhyCRDsAreNotChanged(n.runtime.Server))
	}
	if err == nil {
		remote, err = n.writeRemoteIfIncomplete(ctx, remote, n.remoteLabels(), n.remoteAnnotations(base))
	}
	if err != nil {
		return n.awaitServed(err, wasAbsent)
	}
	n.remote, n.found.baseSynced = remote, true
	n.noteRemoteFingerprint()
	n.markUrgentIfEdited()
	if err := n.markOwnedAndEndTakeover(ctx); err != nil {
		return err
	}
	return n.awaitConfirmedRequest()
}

// cachedOrVerifiedRemote returns the Kyma in the runtime, or nil if there is none, after it has verified that the
// runtime belongs to the Kyma in the control plane. cachedOrVerifiedRemote sends no request if the last reconcile has
// just read the Kyma.
func (n *run) cachedOrVerifiedRemote(ctx context.Context) (remote *v1beta2.Kyma, err error) {
	remote, absent := n.takeCachedRemote(ctx)
	if absent != nil && channel.PauseBlocker(n.kyma, "") == nil { // a paused Kyma creates nothing, and has to look
		n.owner = *absent
		return nil, nil
	}
	if remote == nil {
		remote, err = n.readRemote(ctx, n.runtime, n.kyma.Name)
	}
	if loop.Reason(err) == v1beta2.ReasonRuntimeKymaInvalid {
		return nil, n.refuseUntilNextPoll(err)
	}
	if err != nil {
		return nil, err
	}
	return remote, n.verifyOwnerOrRefuse(ctx, remote)
}

// markUrgentIfEdited gives the reconciles of this runtime a higher priority if the spec of the Kyma in the runtime was
// changed after the last report of the status. The higher priority is for the person who has changed the spec and waits
// for the result.
func (n *run) markUrgentIfEdited() {
	if n.remote.Generation != n.remote.Status.ObservedGeneration {
		n.Urgent.Mark(n.kyma.Name)
	}
}

// writeRemoteIfIncomplete creates the Kyma in the runtime if it does not exist (remote is nil), and adds the labels and
// annotations that it lacks. The result is the Kyma after this.
func (n *run) writeRemoteIfIncomplete(ctx context.Context, remote *v1beta2.Kyma, labels,
	annotations map[string]string) (*v1beta2.Kyma, error) {
	switch {
	case remote == nil:
		return n.createOrRestoreRemote(ctx, labels, annotations)
	case !includesAll(remote.Labels, labels) || !includesAll(remote.Annotations, annotations):
		return n.patchRemoteMetadata(ctx, remote, labels, annotations)
	}
	return remote, nil
}

// continueWithoutRuntimeWrites is for a paused Kyma: the next steps use the Kyma that was read from the runtime, and
// nothing is written to the runtime.
func (n *run) continueWithoutRuntimeWrites(remote *v1beta2.Kyma, base *render.Bundle, pause *channel.Blocker) error {
	n.Runtimes.MarkOwned(n.kyma.Name, n.runtime, subscriberKey(n.kyma.Name)) // modules may be removed
	if remote == nil {
		return reconcile.TerminalError(pause)
	}
	n.remote, n.found.paused = remote, true
	n.found.baseSynced = remote.Annotations[v1beta2.AnnotationBaseObjectsDigest] == base.Digest
	n.noteRemoteFingerprint()
	return n.awaitConfirmedRequest()
}

// awaitServed turns a NotServedError into a result that requeues the Kyma, with a short delay at first and longer
// delays later. All errors other than NotServedError are returned unchanged. Runtimes usually serve a new kind within
// 200 ms. Therefore the status of a new Kyma is not saved during the first processingSaveDelay. The parameter
// isRemoteAbsent means that the runtime has no Kyma, so the next reconcile need not read it.
func (n *run) awaitServed(err error, isRemoteAbsent bool) error {
	notServed, ok := errors.AsType[*catalog.NotServedError](err)
	if !ok {
		return err
	}
	if isRemoteAbsent {
		n.noteRemoteAbsent()
	}
	n.editRecord(func(m *record) {
		n.found.isTransient = n.kyma.Status.State == "" && n.now.Sub(m.firstSeenAt) < processingSaveDelay
	})
	return loop.Later(loop.PollDelay(n.now, n.notReadySince()), notServed.What)
}

// notReadySince returns the time since when the Kyma is not Ready, or the present time if it is Ready or new.
func (n *run) notReadySince() time.Time {
	if c := meta.FindStatusCondition(n.kyma.Status.Conditions, v1beta2.ConditionReady); c != nil &&
		c.Status != metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return n.now
}

// readRemote returns the Kyma in the runtime, or nil if it does not exist. If the Kyma does not fit the schema, the
// returned Kyma has only metadata ([runtimekyma.Schema.Decode]).
func (r *Reconciler) readRemote(ctx context.Context, rt *runtimes.Runtime, kyma string) (*v1beta2.Kyma, error) {
	u, err := rt.Get(ctx, remoteRef)
	if catalog.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Kyma in runtime %s: %w", kyma, err)
	}
	return r.schema.Decode(u)
}

// refuseUntilNextPoll ends a reconcile without any change, because the Kyma in the runtime is not valid or because the
// runtime has another owner. The runtime is checked again after its poll interval. The status shows the reason, see the
// function report.
func (n *run) refuseUntilNextPoll(why error) error {
	n.found.refused, n.remote = why, nil
	n.editRecord(func(m *record) { m.fingerprint = 0 }) // each event may show that the reason is corrected
	return loop.Later(loop.Spread(n.Runtimes.PollInterval(n.kyma.Name), n.kyma.Name), "the runtime to be corrected")
}

// newRemote returns the Kyma that is created in a runtime, with the channel and modules that it requested before it was
// deleted, and with the pauses and deferrals of the admin. If the control plane has stored no such last request
// (restored is false), newRemote uses the spec of the Kyma in the control plane.
func newRemote(kyma *v1beta2.Kyma, labels, annotations map[string]string) (remote *v1beta2.Kyma, restored bool) {
	spec, restored := channel.LastRuntimeSpecOf(kyma)
	all := channel.LastRuntimeAnnotationsOf(kyma)
	maps.Copy(all, annotations)
	return &v1beta2.Kyma{
		TypeMeta: metav1.TypeMeta{APIVersion: v1beta2.GroupVersion.String(), Kind: "Kyma"},
		ObjectMeta: metav1.ObjectMeta{
			Name: remoteRef.Name, Namespace: remoteRef.Namespace, Labels: labels, Annotations: all,
		},
		Spec: spec,
	}, restored
}

// createOrRestoreRemote creates the Kyma in the runtime if it is missing there, see newRemote. If another client
// creates the Kyma in the runtime at the same time, createOrRestoreRemote writes nothing, and the next reconcile
// verifies the owner of the runtime.
func (n *run) createOrRestoreRemote(ctx context.Context, labels, annotations map[string]string) (
	*v1beta2.Kyma, error) {
	remote, restored := newRemote(n.kyma, labels, annotations)
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(remote)
	if err != nil {
		return nil, fmt.Errorf("encoding the Kyma for runtime %s: %w", n.kyma.Name, err)
	}
	delete(fields, "status")
	made, err := n.runtime.CreateWithoutRead(ctx, &unstructured.Unstructured{Object: fields}, metadataOwner)
	if catalog.IsAbsent(err) {
		n.catalog.ResendBaseAtNextSync(n.catalogTarget()) // somebody may have deleted the CRDs
		return nil, &catalog.NotServedError{What: "the runtime to serve the kind Kyma"}
	}
	if loop.Reason(err) == apply.ObjectExists {
		return nil, loop.Later(loop.PollDelay(n.now, n.notReadySince()),
			"the Kyma that another client has created to be read")
	}
	if err != nil {
		return nil, fmt.Errorf("creating the Kyma in runtime %s: %w", n.kyma.Name, err)
	}
	remote.UID, remote.Generation, remote.ResourceVersion = made.UID, made.Generation, made.ResourceVersion
	n.agents.CompareAtNextDelivery(n.agentTarget()) // the agent may have been deleted, too
	if restored {
		n.event(corev1.EventTypeNormal, v1beta2.EventKymaRestored,
			"the Kyma in the runtime was deleted, and was created again with the modules that it requested last")
	} else {
		n.event(corev1.EventTypeNormal, v1beta2.EventRemoteInstallation, "Kyma was installed to SKR")
	}
	return remote, nil
}

// remoteLabels returns our labels on the Kyma in the runtime.
func (n *run) remoteLabels() map[string]string {
	labels := map[string]string{v1beta2.LabelManagedBy: v1beta2.ManagedByKyma,
		v1beta2.LabelWatchedBy: v1beta2.WatchedByKyma}
	for _, key := range []string{v1beta2.LabelRuntimeID, v1beta2.LabelGlobalAccountID, v1beta2.LabelSubaccountID} {
		if value, ok := n.kyma.Labels[key]; ok {
			labels[key] = value
		}
	}
	return labels
}

// remoteAnnotations returns our annotations on the Kyma in the runtime.
func (n *run) remoteAnnotations(base *render.Bundle) map[string]string {
	return map[string]string{
		v1beta2.AnnotationOwner:             n.owner.Owner.Encode(),
		v1beta2.AnnotationOwnedBy:           n.kyma.Namespace + "/" + n.kyma.Name,
		v1beta2.AnnotationBaseObjectsDigest: base.Digest,
	}
}

// patchRemoteMetadata sets our labels and annotations on the Kyma in the runtime. Labels and annotations of other
// clients stay unchanged. As long as the Kyma in the runtime has no record of the owner, the patch contains the
// resource version of this Kyma. Because of the resource version, the patch fails if another client has changed the
// Kyma in the meantime, for example with the record of another owner.
func (n *run) patchRemoteMetadata(ctx context.Context, remote *v1beta2.Kyma, labels, annotations map[string]string) (
	*v1beta2.Kyma, error) {
	metadata := map[string]any{"labels": labels, "annotations": annotations}
	if !n.owner.IsRecorded {
		metadata["resourceVersion"] = remote.ResourceVersion
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, fmt.Errorf("encoding labels for runtime %s: %w", n.kyma.Name, err)
	}
	u, err := n.runtime.Patch(ctx, remoteRef, types.MergePatchType, "", body, metadataOwner)
	if err != nil {
		return nil, fmt.Errorf("labelling the Kyma in runtime %s: %w", n.kyma.Name, err)
	}
	return n.schema.Decode(u)
}

// syncCatalog updates the catalog copy in the runtime. If the runtime refuses the catalog copy until a person acts, the
// agent is delivered nevertheless: syncCatalog only records the error, and the later step settle returns it.
func (n *run) syncCatalog(ctx context.Context) error {
	if n.InCluster || n.found.paused {
		return nil
	}
	digest, err := n.catalog.Sync(ctx, n.catalogTarget())
	switch loop.Reason(err) {
	case apply.RuntimeForbidden, apply.ObjectRefused, apply.AdmissionRefused, apply.FieldImmutable:
		n.found.catalogRefused = err
		return nil
	}
	if err != nil {
		return n.awaitServed(err, false)
	}
	n.found.catalogSynced, n.found.catalogDigest = true, digest
	return nil
}

func (n *run) catalogTarget() catalog.Target {
	t := catalog.Target{Kyma: n.kyma, Runtime: n.runtime, Now: n.now, Resolves: n.requestLeadsTo}
	if n.remote != nil {
		t.Digest = n.remote.Status.CatalogDigest
	}
	return t
}

// requestLeadsTo reports whether the request for a module in a channel leads to the version in the parameter version:
// either at once, or after other versions that have to be installed first.
func (n *run) requestLeadsTo(module, channelName, version string) bool {
	return slices.ContainsFunc(n.modules, func(m plan.Module) bool {
		d := m.Decision
		return m.IsRequested && d.Module == module && d.Channel == channelName && (d.Version == version ||
			d.Goal == version)
	})
}

// publishStatusToRuntime copies the status to the Kyma in the runtime if the status there is different. The status in
// the runtime has no fields about objects that exist only in the control plane.
func (n *run) publishStatusToRuntime(ctx context.Context) error {
	if n.kyma.Status.State != v1beta2.StateProcessing {
		n.Urgent.Clear(n.kyma.Name)
	}
	if n.remote == nil || n.InCluster || n.runtime == nil {
		return nil
	}
	want := plan.RemoteStatus(n.kyma, n.remote.Generation)
	want.CatalogDigest = cmp.Or(n.found.catalogDigest, n.remote.Status.CatalogDigest)
	var patch []byte
	if !loop.Equal(&n.remote.Status, &want) {
		var err error
		if patch, err = loop.MergePatch("status", n.remote.Status, want); err != nil {
			return fmt.Errorf("comparing the status in runtime %s: %w", n.kyma.Name, err)
		}
	}
	if patch == nil {
		if n.kyma.Status.State == v1beta2.StateProcessing {
			n.cacheRemoteForNextReconcile()
		}
		if n.kyma.Status.State == v1beta2.StateReady && n.Runtimes.IsWatched(n.kyma.Name) {
			n.runtime.CloseIdleConnections()
		}
		return nil
	}
	n.log.RecordInRuntime(ctx, n.kyma.Name, n.runtime, n.remote, &want)
	_, err := n.runtime.Patch(ctx, remoteRef, types.MergePatchType, "status", patch, v1beta2.FieldOwner)
	if err != nil && !catalog.IsAbsent(err) {
		return fmt.Errorf("writing the status of the Kyma in runtime %s: %w", n.kyma.Name, err)
	}
	if err == nil {
		n.remote.Status = want
		n.cacheRemoteForNextReconcile()
	}
	return nil
}

// recordEvents compares the saved status with the previous status, and records the resulting events.
func (n *run) recordEvents(before client.Object) {
	known := restored.WithoutRestoredChanges(&before.(*v1beta2.Kyma).Status, n.kyma, n.manifests)
	n.editRecord(func(m *record) {
		if len(m.recreated) > 0 {
			known, m.recreated = restored.WithoutReportedRemovals(known, n.kyma, n.manifests, m.recreated)
		}
	})
	n.log.RecordSaved(n.kyma, known, n.deletion.runtimeLeft != "")
}

// subscriberKey returns the key with which the Kyma controller subscribes to events about the Kyma in a runtime.
func subscriberKey(kyma string) string { return "Kyma/" + kyma }

// subscribe subscribes to changes of the connection and of the Kyma in the runtime. If replayMissed is true, subscribe
// also requests an event for changes that were missed before.
func (n *run) subscribe(replayMissed bool) {
	var interests []runtimes.Interest
	if !n.InCluster {
		interests = n.Runtimes.InternInterests([]runtimes.Interest{{
			Resource: v1beta2.GroupVersion.WithResource("kymas"), Kind: "Kyma",
			Namespace: remoteRef.Namespace, Name: remoteRef.Name,
		}})
	}
	n.Runtimes.Subscribe(n.kyma.Name, runtimes.Subscriber{
		Key: subscriberKey(n.kyma.Name), Interests: interests, ReplayMissed: replayMissed,
		Notify: n.onRuntimeEvent(client.ObjectKeyFromObject(n.kyma)),
	})
}

// watchRightsAndReadCredential gets from the pool what the pool knows about the credential of the runtime: its expiry
// and its rights. watchRightsAndReadCredential also makes the pool enqueue the Kyma each time the credential gains or
// loses rights.
func (n *run) watchRightsAndReadCredential() {
	r, key := n.Reconciler, client.ObjectKeyFromObject(n.kyma)
	n.Runtimes.WatchCredentialRights(key.Name, n.runtime, func() {
		r.Trigger.Add(queueing.Event, 0, reconcile.Request{NamespacedName: key})
	})
	finding := n.Runtimes.Credential(key.Name, n.runtime)
	n.found.credential = &finding
}

// onRuntimeEvent returns a function that enqueues a Kyma after an event in its runtime. The returned function ignores
// events that show the Kyma in the runtime as this process last read or wrote it. Only its status may differ then; no
// other client should write the status.
func (r *Reconciler) onRuntimeEvent(key types.NamespacedName) func(runtimes.Event) {
	return func(e runtimes.Event) {
		if !r.dropCachedRemoteIfChanged(key.Name, e) {
			return
		}
		class := queueing.Event
		if e.Object != nil && r.Urgent.Mark(key.Name) { // also raises the priority of a reconcile that is running
			class = queueing.Person
		}
		r.Trigger.Add(class, 0, reconcile.Request{NamespacedName: key})
	}
}

// includesAll reports whether the parameter "all" contains every key and value of the parameter "some".
func includesAll(all, some map[string]string) bool {
	for k, v := range some {
		if got, ok := all[k]; !ok || got != v {
			return false
		}
	}
	return true
}
