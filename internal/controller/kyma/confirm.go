package kyma

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// If the Kyma in a runtime requests no modules any more, all modules are uninstalled. If a person has removed the last
// module from the Kyma, its generation has increased, because every change of the spec increases the generation. A Kyma
// without modules is doubtful if its UID has changed, or if its generation is the same as when it had modules: it may
// come from a proxy, or from an API server that was restored. The manager uninstalls the modules of a doubtful Kyma
// only if a second read returns the same Kyma.

// confirmDelay is the minimum time between the read of a doubtful Kyma and the second read that confirms it.
const confirmDelay = 10 * time.Second

// request is what the Kyma in a runtime requested when it was read last. The zero value of request means that the Kyma
// in the runtime was not read yet.
type request struct {
	uid         types.UID
	generation  int64
	removesAll  bool      // see removesAll
	firstSeenAt time.Time // when this was read first
	isConfirmed bool      // it may be acted on
}

// removesAll reports whether a Kyma in a runtime requests no modules, although its status in the control plane has
// modules that are not being deleted.
func removesAll(kyma, remote *v1beta2.Kyma) bool {
	return len(remote.Spec.Modules) == 0 && slices.ContainsFunc(kyma.Status.Modules, func(m v1beta2.ModuleStatus) bool {
		return m.Manifest != nil && m.State != v1beta2.StateDeleting && m.State != v1beta2.StateUnmanaged
	})
}

// nextRequest returns what the Kyma in a runtime requests now. The parameter "last" is what the Kyma requested when it
// was read before. The first row that matches decides whether the request is confirmed:
//
//	1  it does not remove all modules                                yes
//	2  it is the same as before                                      as before, and yes once confirmDelay has passed
//	3  the UID is known, and the generation has increased            yes: somebody has changed the Kyma
//	4  it is the first read over this connection, and the            yes: somebody has changed the Kyma
//	   generation is higher than the one that the status shows
//	5  any other                                                     no
func nextRequest(last request, remote *v1beta2.Kyma, removesAll bool, now time.Time) request {
	is := request{uid: remote.UID, generation: remote.Generation, removesAll: removesAll, firstSeenAt: now}
	shown := remote.Status.ObservedGeneration
	switch {
	case !removesAll:
		is.isConfirmed = true
	case last.removesAll && last.uid == is.uid && last.generation == is.generation:
		if last.firstSeenAt.Before(now) { // else the clock was set back
			is.firstSeenAt = last.firstSeenAt
		}
		is.isConfirmed = last.isConfirmed || now.Sub(is.firstSeenAt) >= confirmDelay
	case last.uid != "":
		is.isConfirmed = last.uid == is.uid && is.generation > last.generation
	default:
		is.isConfirmed = shown > 0 && is.generation > shown
	}
	return is
}

// awaitConfirmedRequest waits for a second read if the Kyma in the runtime requests no modules any more and nothing
// shows that a person has changed it. Until a second read confirms that no modules are requested, no module is removed,
// and the last request stays stored.
func (n *run) awaitConfirmedRequest() error {
	var is request
	n.editRecord(func(m *record) {
		m.request = nextRequest(m.request, n.remote, removesAll(n.kyma, n.remote), n.now)
		is = m.request
	})
	if is.isConfirmed {
		return nil
	}
	return loop.Later(max(time.Second, is.firstSeenAt.Add(confirmDelay).Sub(n.now)),
		"a second answer of the runtime that no modules are requested, before all modules are removed")
}
