package recovery

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// tolerance is added to the duration of a Lease: the time of the API server has a resolution of a second, and a renewal
// may be in flight.
const tolerance = 2 * time.Second

// refuseLiveManager returns an error while a manager works in the namespace, which means: while one of its Leases is
// valid by the clock of the API server. The clock of the user may be wrong.
func refuseLiveManager(ctx context.Context, c *connection.Cluster) error {
	list := &coordinationv1.LeaseList{}
	now, err := c.GetJSONDated(ctx, "/apis/coordination.k8s.io/v1/namespaces/"+c.Namespace+"/leases", list)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return c.Explain(err, "looking for a manager that works")
	}
	for i := range list.Items {
		l := &list.Items[i]
		if isLeaderOrShardingLease(l) && isValid(l, now) {
			return console.Fail(console.ExitNotReady, "a manager works in namespace %s: Lease %s is held by %s until "+
				"%s: stop it first (kubectl -n %s scale deployment lifecycle-manager --replicas=0), and wait until "+
				"its Lease ends", c.Namespace, l.Name, *l.Spec.HolderIdentity,
				leaseExpiry(l).UTC().Format(time.RFC3339),
				c.Namespace)
		}
	}
	return nil
}

// leaderLease is the name of the Lease of the leader. The lifecycle-manager of the Kyma project uses the same name for
// the Lease of its leader.
const leaderLease = "893110f7.kyma-project.io"

// isLeaderOrShardingLease reports whether a Lease belongs to a manager.
func isLeaderOrShardingLease(l *coordinationv1.Lease) bool {
	return l.Name == leaderLease || l.Labels[v1beta2.LabelLease] != ""
}

// isValid reports whether a Lease has a holder and is not expired.
func isValid(l *coordinationv1.Lease, now time.Time) bool {
	holder := l.Spec.HolderIdentity
	return holder != nil && *holder != "" && l.Spec.RenewTime != nil && now.Before(leaseExpiry(l).Add(tolerance))
}

// leaseExpiry returns the time at which a Lease expires without a renewal.
func leaseExpiry(l *coordinationv1.Lease) time.Time {
	duration := time.Minute
	if seconds := l.Spec.LeaseDurationSeconds; seconds != nil {
		duration = time.Duration(*seconds) * time.Second
	}
	return l.Spec.RenewTime.Add(duration)
}
