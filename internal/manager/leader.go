package manager

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
)

// leaderAddress reads the address of the leader's listener from the Lease of leader election.
type leaderAddress struct {
	base    context.Context // context of the process, because callers have no context
	reader  client.Reader
	key     types.NamespacedName
	elected <-chan struct{} // closed when this replica is the leader

	mu      sync.Mutex
	address string    // guarded by mu
	readAt  time.Time // guarded by mu
}

func newLeaderAddress(ctx context.Context, f foundation) *leaderAddress {
	return &leaderAddress{
		base: ctx, reader: f.manager.GetAPIReader(),
		key:     types.NamespacedName{Namespace: f.config.Namespace, Name: v1beta2.LeaderLease},
		elected: f.manager.Elected(),
	}
}

// leaseValidPeriod is how long the address of the leader's listener is used before the Lease of leader election is read
// again. leaseValidPeriod is also the timeout for reading this Lease.
const leaseValidPeriod = 2 * time.Second

// findListener returns the address of the leader's listener, or "" if it is not known. me is true on the leader itself.
func (l *leaderAddress) findListener() (address string, me bool) {
	select {
	case <-l.elected:
		return "", true
	default:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.readAt) < leaseValidPeriod {
		return l.address, false
	}
	ctx, cancel := context.WithTimeout(l.base, leaseValidPeriod)
	defer cancel()
	lease := &coordinationv1.Lease{}
	err := l.reader.Get(ctx, l.key, lease)
	l.readAt = time.Now() // the callers that wait for a read without an answer must not read again, one after the other
	if err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" {
		l.address = lease.Annotations[shard.AddressAnnotation]
	}
	return l.address, false
}
