package landscape

import (
	"context"
	"slices"

	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
)

// StartAnother starts another replica of the manager with additional flags, and with its own kubeconfig and log of that
// name. Agents report to it from now on. The caller stops it.
func (l *Landscape) StartAnother(ctx context.Context, name string, args ...string) (*Process, error) {
	health, err := cluster.FreeAddress()
	if err != nil {
		return nil, err
	}
	before := l.ManagerArgs
	defer func() { l.ManagerArgs = before }()
	l.ManagerArgs = append(slices.Clone(before), args...)
	return l.startReplica(ctx, name, health, "0")
}
