package kyma

import (
	"fmt"
	"hash/maphash"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// record is what is known of one Kyma between reconciles. Losing it costs a read or a patch that changes nothing.
type record struct {
	runtime     *runtimes.Runtime       // the connection that the record belongs to
	firstSeenAt time.Time               // when the runtime was first seen by this process, whatever the connection
	fingerprint uint64                  // of the Kyma in the runtime, as far as others change it
	deletion    *apply.DeletionProgress // which objects of the runtime were asked to be deleted
	releasedUID types.UID               // of the Kyma whose finalizer was removed; the cache may still have it
}

// edit calls f with the record of the Kyma, under the lock. The record of another connection is replaced by an empty
// one.
func (n *run) edit(f func(*record)) {
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

// isKnown reports whether this process has reconciled a Kyma before.
func (r *Reconciler) isKnown(kyma string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[kyma] != nil
}

// forget drops everything that is known of a Kyma which is deleted, or reconciled by another replica.
func (r *Reconciler) forget(kyma string) {
	r.mu.Lock()
	delete(r.known, kyma)
	r.mu.Unlock()
	r.catalog.Forget(kyma)
	r.agents.Forget(kyma)
	r.forgetMetrics(kyma)
	r.starting.Withdraw(kyma)
	r.ending.Withdraw(kyma)
}

// isReleased reports whether our finalizer was removed from a Kyma already.
func (r *Reconciler) isReleased(k *v1beta2.Kyma) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.known[k.Name]
	return m != nil && m.releasedUID == k.UID
}

// noteReleased notes that our finalizer was removed from the Kyma.
func (n *run) noteReleased() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[n.kyma.Name] = &record{releasedUID: n.kyma.UID, deletion: &apply.DeletionProgress{}}
}

// noteRemote remembers the Kyma in the runtime as it was read or is about to be written, so that its event triggers no
// reconcile.
func (n *run) noteRemote() {
	n.edit(func(m *record) { m.fingerprint = fingerprint(n.remote) })
}

// isRemoteChanged reports whether the Kyma in a runtime differs from how it was last read in more than its status.
func (r *Reconciler) isRemoteChanged(kyma string, remote metav1.Object) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.known[kyma]
	return m == nil || m.fingerprint != fingerprint(remote)
}

var hashSeed = maphash.MakeSeed()

// fingerprint is a hash of an object's metadata without what a change of the status changes.
func fingerprint(o metav1.Object) uint64 {
	return maphash.Comparable(hashSeed, fmt.Sprint(o.GetUID(), o.GetGeneration(), o.GetDeletionTimestamp() != nil,
		o.GetLabels(), o.GetAnnotations()))
}
