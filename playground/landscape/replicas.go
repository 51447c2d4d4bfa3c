package landscape

import (
	"context"
	"slices"

	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
)

// StartExtraReplica starts another replica of the manager with additional flags. The replica has its own kubeconfig and
// its own log, both with the given name. After StartExtraReplica has returned, agents send their reports to the new
// replica. The caller must stop the new replica.
func (l *Landscape) StartExtraReplica(ctx context.Context, name string, args ...string) (*Process, error) {
	health, err := cluster.FreeAddress()
	if err != nil {
		return nil, err
	}
	before := l.ManagerArgs
	defer func() { l.ManagerArgs = before }()
	l.ManagerArgs = append(slices.Clone(before), args...)
	return l.startManagerWithNewToken(ctx, name, health, "0")
}
