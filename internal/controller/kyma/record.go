package kyma

import (
	"context"
	"fmt"
	"hash/maphash"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/retry"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// record is what the controller remembers in memory about one Kyma between reconciles. A lost record costs only a few
// requests to the runtime: a read of the Kyma again, or a patch that changes nothing.
type record struct {
	runtime     *runtimes.Runtime       // the connection that the record belongs to
	firstSeenAt time.Time               // when this process first saw the runtime, over any connection
	fingerprint uint64                  // of the Kyma in the runtime, without its status
	request     request                 // of the Kyma in the runtime at the last read
	remote      lastRemote              // the Kyma in the runtime
	deletion    *apply.DeletionProgress // the objects in the runtime with a deletion request
	deletable   []v1beta2.Resource      // the objects to delete, once it is known which; see decideDeletableResources
	isCompared  bool                    // markLostModules has compared the statuses
	// modules whose lost Manifests were created again; see restored.WithoutReportedRemovals
	recreated      []string
	noManifestsAt  time.Time // when verifyNoManifests has last found no Manifest; zero if there was one since
	noManifestsUID types.UID // of the Kyma that had no Manifest
	deferredAt     time.Time // since when the status is not saved, zero if it is; see deferSave
	releasedUID    types.UID // UID of the Kyma without our finalizer; the cache may still have that Kyma
}

// lastRemote is the Kyma in the runtime as the last reconcile has left it.
type lastRemote struct {
	kyma   *v1beta2.Kyma // nil if the next reconcile has to read it
	readAt time.Time     // when it was read
	events int           // number of events that show that it may have changed
}

// remoteReusePeriod is the time for which a reconcile may use the Kyma in the runtime that an earlier reconcile has
// read. While modules are installed, several reconciles of a Kyma follow each other within remoteReusePeriod.
const remoteReusePeriod = 5 * time.Second

// takeCachedRemote returns the Kyma in the runtime that the last reconcile has kept. takeCachedRemote returns nil if
// this Kyma is too old, if an event has shown that it may have changed, or if a person has requested a retry.
func (n *run) takeCachedRemote(ctx context.Context) (remote *v1beta2.Kyma) {
	n.editRecord(func(m *record) {
		last := m.remote
		reuse := min(remoteReusePeriod, n.Runtimes.PollInterval(n.kyma.Name))
		if last.kyma != nil && n.now.Sub(last.readAt) < reuse &&
			!retry.IsOutdated(ctx, last.readAt) {
			remote = last.kyma
		} else {
			last.readAt = n.now
		}
		m.remote.kyma, n.remoteRead = nil, last
	})
	return remote
}

// cacheRemoteWhileProcessing keeps the Kyma that was read from the runtime in memory, so that the next reconcile need
// not read it again. The Kyma is kept only if the next reconcile will probably come soon, and if no event about the
// Kyma has arrived in this reconcile. The Kyma is not kept in three cases:
//
//   - The Kyma requests no modules: see awaitConfirmedRequest.
//   - The Kyma has been Processing for longer than SlowModuleDelay: a Kyma that is stuck must not occupy memory.
//   - The runtime is not watched: an event from an agent of the Kyma project may lack the metadata that shows whether
//     the Kyma has changed.
func (n *run) cacheRemoteWhileProcessing() {
	s := &n.kyma.Status
	if s.State != v1beta2.StateProcessing || len(n.remote.Spec.Modules) == 0 || !n.kyma.DeletionTimestamp.IsZero() ||
		n.now.Sub(s.LastOperation.LastUpdateTime.Time) >= plan.SlowModuleDelay || !n.Runtimes.IsWatched(n.kyma.Name) {
		return
	}
	n.editRecord(func(m *record) {
		if m.remote.events == n.remoteRead.events {
			m.remote.kyma, m.remote.readAt = n.remote, n.remoteRead.readAt
		}
	})
}

// dropCachedRemoteIfChanged drops the copy in memory of a runtime's Kyma if an event shows that the Kyma may have
// changed.
func (r *Reconciler) dropCachedRemoteIfChanged(kyma string, e runtimes.Event) {
	if o := e.Object; o != nil && !e.Deleted && !r.isRemoteChanged(kyma, o) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.known[kyma]; m != nil {
		m.remote.kyma = nil
		m.remote.events++
	}
}

// editRecord calls f with the record in memory about the Kyma, under the lock. If this record belongs to a former
// connection to the runtime, f gets a new, empty record instead.
func (n *run) editRecord(f func(*record)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.known[n.kyma.Name]
	if m == nil || m.runtime != n.runtime {
		next := &record{runtime: n.runtime, firstSeenAt: n.now, deletion: &apply.DeletionProgress{}}
		if m != nil {
			next.firstSeenAt = m.firstSeenAt
		}
		m = next
		n.known[n.kyma.Name] = m
	}
	f(m)
}

// wasReconciledByThisProcess reports whether this process has reconciled a Kyma before.
func (r *Reconciler) wasReconciledByThisProcess(kyma string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[kyma] != nil
}

// forget drops the in-memory state and the metrics of a Kyma that is deleted, or is reconciled by another replica.
func (r *Reconciler) forget(kyma string) {
	r.mu.Lock()
	delete(r.known, kyma)
	r.mu.Unlock()
	r.catalog.Forget(kyma)
	r.agents.Forget(kyma)
	r.log.Forget(kyma)
	r.Runtimes.UnwatchRights(kyma)
	r.forgetMetrics(kyma)
	r.starting.Withdraw(kyma)
	r.ending.Withdraw(kyma)
}

// isFinalizerRemoved reports whether this process has already removed our finalizer from a Kyma.
func (r *Reconciler) isFinalizerRemoved(k *v1beta2.Kyma) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.known[k.Name]
	return m != nil && m.releasedUID == k.UID
}

// noteFinalizerRemoved records that our finalizer was removed from the Kyma.
func (n *run) noteFinalizerRemoved() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[n.kyma.Name] = &record{releasedUID: n.kyma.UID, deletion: &apply.DeletionProgress{}}
}

// noteRemoteFingerprint records a fingerprint of the Kyma in the runtime after it was read, or before it is written. If
// an event shows the Kyma with the recorded fingerprint, the event triggers no reconcile.
func (n *run) noteRemoteFingerprint() {
	n.editRecord(func(m *record) { m.fingerprint = fingerprint(n.remote) })
}

// isRemoteChanged reports whether the Kyma in a runtime differs from the last recorded version. Differences in the
// status are ignored.
func (r *Reconciler) isRemoteChanged(kyma string, remote metav1.Object) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.known[kyma]
	return m == nil || m.fingerprint != fingerprint(remote)
}

var hashSeed = maphash.MakeSeed()

// fingerprint returns a hash of the metadata of an object. The fingerprint does not change if only the status changes.
func fingerprint(o metav1.Object) uint64 {
	return maphash.Comparable(hashSeed, fmt.Sprint(o.GetUID(), o.GetGeneration(), o.GetDeletionTimestamp() != nil,
		o.GetLabels(), o.GetAnnotations()))
}
