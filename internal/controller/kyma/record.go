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
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
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
	kyma   *v1beta2.Kyma // nil if the next reconcile has to read it, or create it, see absent
	readAt time.Time     // when it was read
	events int           // number of events that show that it may have changed
	// absent is set if the runtime had no Kyma, and could not store one, because it did not serve the kind yet. absent
	// is the result of the verification of the owner then.
	absent *ownership.Found
}

// remoteReusePeriod is the time for which a reconcile may use the Kyma in the runtime that an earlier reconcile has
// read. While modules are installed, several reconciles of a Kyma follow each other within remoteReusePeriod. A change
// by another client usually ends the period, because it causes an event. In a new runtime, an agent that starts within
// remoteReusePeriod reports what has changed before; if none starts in this time, the runtime counts as not watched.
const remoteReusePeriod = 30 * time.Second

// absenceReusePeriod is the time for which a reconcile relies on an earlier one that has found no Kyma in the runtime.
// It is short, because no event shows that another control plane uses the runtime in the meantime.
const absenceReusePeriod = 2 * time.Second

// takeCachedRemote returns the Kyma in the runtime that the last reconcile has kept, and nil if there is none. The
// result absent is not nil if the last reconcile has found that the runtime has no Kyma, see lastRemote. Both results
// are nil if the last reconcile is too long ago, if an event has shown that the Kyma may have changed, or if a person
// has requested a retry.
func (n *run) takeCachedRemote(ctx context.Context) (remote *v1beta2.Kyma, absent *ownership.Found) {
	n.editRecord(func(m *record) {
		last := m.remote
		reuse := min(remoteReusePeriod, n.Runtimes.PollInterval(n.kyma.Name))
		if last.absent != nil {
			reuse = min(absenceReusePeriod, reuse)
		}
		if (last.kyma != nil || last.absent != nil) && n.now.Sub(last.readAt) < reuse &&
			!retry.IsOutdated(ctx, last.readAt) {
			remote, absent = last.kyma, last.absent
		} else {
			last.readAt = n.now
		}
		last.absent = nil
		m.remote.kyma, m.remote.absent, n.remoteRead = nil, nil, last
	})
	return remote, absent
}

// noteRemoteAbsent lets the next reconcile create the Kyma in the runtime without reading it, and without verifying the
// owner again: the runtime had no Kyma, and did not serve the kind yet. The next reconcile cannot overwrite a Kyma that
// another client creates in the meantime, see createOrRestoreRemote.
func (n *run) noteRemoteAbsent() {
	owner := n.owner
	n.editRecord(func(m *record) {
		if m.remote.events == n.remoteRead.events {
			m.remote.absent, m.remote.readAt = &owner, n.remoteRead.readAt
		}
	})
}

// readyReusePeriod is like remoteReusePeriod, for a Kyma that has become Ready: the last events about its modules may
// trigger another reconcile. After readyReusePeriod, the Kyma is dropped, so memory has no Kymas of idle runtimes.
const readyReusePeriod = 5 * time.Second

// cacheRemoteForNextReconcile keeps the Kyma that was read from the runtime in memory, so that the next reconcile need
// not read it again. Callers use it while a Kyma is Processing, and after its status was changed. The Kyma is kept only
// if no event about the Kyma has arrived in this reconcile. The Kyma is not kept in four cases:
//
//   - The state is neither Processing nor Ready, or the Kyma is being deleted.
//   - The Kyma requests no modules: see awaitConfirmedRequest.
//   - The Kyma has been Processing for longer than SlowModuleDelay: a Kyma that is stuck must not occupy memory.
//   - The runtime is not watched: an event from an agent of the Kyma project may lack the metadata that shows whether
//     the Kyma has changed.
func (n *run) cacheRemoteForNextReconcile() {
	s := &n.kyma.Status
	isProcessing := s.State == v1beta2.StateProcessing &&
		n.now.Sub(s.LastOperation.LastUpdateTime.Time) < plan.SlowModuleDelay
	if !isProcessing && s.State != v1beta2.StateReady || len(n.remote.Spec.Modules) == 0 ||
		!n.kyma.DeletionTimestamp.IsZero() || !n.Runtimes.IsWatched(n.kyma.Name) {
		return
	}
	n.editRecord(func(m *record) {
		if m.remote.events == n.remoteRead.events {
			m.remote.kyma, m.remote.readAt = n.remote, n.remoteRead.readAt
		}
	})
	if s.State == v1beta2.StateReady {
		r, name, remote := n.Reconciler, n.kyma.Name, n.remote
		time.AfterFunc(readyReusePeriod, func() { r.dropCachedRemote(name, remote) })
	}
}

// dropCachedRemote drops the copy in memory of a runtime's Kyma if it is still the same copy.
func (r *Reconciler) dropCachedRemote(kyma string, remote *v1beta2.Kyma) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.known[kyma]; m != nil && m.remote.kyma == remote {
		m.remote.kyma = nil
	}
}

// dropAllCachedRemotes drops what memory has of the Kymas in all runtimes. It is called when a shard opens: another
// replica may have changed the runtimes of the shard since this replica held the shard last.
func (r *Reconciler) dropAllCachedRemotes() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.known {
		m.remote.kyma, m.remote.absent = nil, nil
	}
}

// dropCachedRemoteIfChanged drops the copy in memory of a runtime's Kyma if an event shows that the Kyma may have
// changed. The result reports whether the event shows this.
func (r *Reconciler) dropCachedRemoteIfChanged(kyma string, e runtimes.Event) (changed bool) {
	switch {
	case e.Listed && len(e.Objects) == 1:
		changed = r.isRemoteChanged(kyma, &e.Objects[0])
	case e.Object != nil && !e.Deleted:
		changed = r.isRemoteChanged(kyma, e.Object)
	default:
		changed = true // the Kyma is deleted, the connection has changed, or events were missed
	}
	if !changed {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.known[kyma]; m != nil {
		m.remote.kyma, m.remote.absent = nil, nil
		m.remote.events++
	}
	return true
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
