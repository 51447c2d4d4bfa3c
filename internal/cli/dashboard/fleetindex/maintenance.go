package fleetindex

import (
	"context"
	"reflect"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// maintenanceInterval is the time between two reads of the maintenance policy, which takes two requests.
const maintenanceInterval = time.Minute

// Maintenance is the maintenance policy of the manager.
type Maintenance struct {
	// Policy is nil if the policy is not known. Unknown is the reason why the policy is not known.
	Policy  *channel.Policy
	Unknown string
}

// pollMaintenance reads the maintenance policy at an interval. In a cluster, the Role of the dashboard allows reading
// the ConfigMap with the policy, but does not allow watching this ConfigMap.
func (x *Index) pollMaintenance(ctx context.Context, c *connection.Cluster) error {
	for {
		var is Maintenance
		var err error
		if is.Policy, is.Unknown, err = c.MaintenancePolicy(ctx, ""); err != nil {
			is.Unknown = err.Error()
		}
		if ctx.Err() == nil {
			x.SetMaintenance(is)
		}
		if err := console.Sleep(ctx, maintenanceInterval); err != nil {
			return err
		}
	}
}

// SetMaintenance replaces the maintenance policy.
func (x *Index) SetMaintenance(is Maintenance) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !reflect.DeepEqual(is, x.maintenance) {
		x.maintenance = is
		x.touchLocked(Catalog)
	}
}
