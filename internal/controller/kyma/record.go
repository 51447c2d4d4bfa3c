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

// record is what the controller remembers in memory about one Kyma between reconciles. If the record is lost, the
// manager sends a read, or a patch that changes nothing.
type record struct {
	runtime     *runtimes.Runtime       // the connection that the record belongs to
	firstSeenAt time.Time               // when this process first saw the runtime, over any connection
	fingerprint uint64                  // of the Kyma in the runtime, without its status
	request     request                 // of the Kyma in the runtime at the last read
	deletion    *apply.DeletionProgress // the objects in the runtime with a deletion request
	deletable   []v1beta2.Resource      // the objects to delete, once it is known which; see deletableResources
	isCompared  bool                    // markRestored has compared the statuses
	recreated   []string                // modules whose lost Manifests were created again; see restored.Unreported
	releasedUID types.UID               // UID of the Kyma without our finalizer; the cache may still have that Kyma
}

// edit calls f with the record of the Kyma, under the lock. If the record belongs to another connection, an empty
// record replaces it first.
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

// forget drops the in-memory state and the metrics of a Kyma that is deleted, or is reconciled by another replica.
func (r *Reconciler) forget(kyma string) {
	r.mu.Lock()
	delete(r.known, kyma)
	r.mu.Unlock()
	r.catalog.Forget(kyma)
	r.agents.Forget(kyma)
	r.log.Forget(kyma)
	r.Runtimes.UnwatchCredential(kyma)
	r.forgetMetrics(kyma)
	r.starting.Withdraw(kyma)
	r.ending.Withdraw(kyma)
}

// isReleased reports whether this process has already removed our finalizer from a Kyma.
func (r *Reconciler) isReleased(k *v1beta2.Kyma) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.known[k.Name]
	return m != nil && m.releasedUID == k.UID
}

// noteReleased records that our finalizer was removed from the Kyma.
func (n *run) noteReleased() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[n.kyma.Name] = &record{releasedUID: n.kyma.UID, deletion: &apply.DeletionProgress{}}
}

// noteRemote records the Kyma in the runtime after it was read, or before it is written. An event with the recorded
// content triggers no reconcile.
func (n *run) noteRemote() {
	n.edit(func(m *record) { m.fingerprint = fingerprint(n.remote) })
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

// fingerprint returns a hash of the metadata of an object. A change of only the status does not change this hash.
func fingerprint(o metav1.Object) uint64 {
	return maphash.Comparable(hashSeed, fmt.Sprint(o.GetUID(), o.GetGeneration(), o.GetDeletionTimestamp() != nil,
		o.GetLabels(), o.GetAnnotations()))
}
