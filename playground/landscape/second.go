package landscape

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
)

// StartExtraControlPlane starts another control plane with a manager of its own. In the landscape l, the cluster of
// this control plane has the given name. The runtimes and the registry of the landscape l can be used with both control
// planes. In the second control plane, no runtime is registered and the catalog is empty at the beginning. The caller
// must stop the manager of the second control plane. When the landscape l is closed, all other parts of the second
// control plane are closed, too.
func (l *Landscape) StartExtraControlPlane(ctx context.Context, clusterName string, managerArgs ...string) (
	*Landscape, error) {
	if err := l.startClusterAndClient(ctx, clusterName); err != nil {
		return nil, err
	}
	o := &Landscape{
		Options: Options{Dir: filepath.Join(l.Dir, clusterName), Bin: l.Bin, ManagerArgs: managerArgs, Say: l.Say,
			NoLeaderElection: l.NoLeaderElection, LongTimeouts: l.LongTimeouts, Host: l.Host},
		Clusters: maps.Clone(l.Clusters), Clients: maps.Clone(l.Clients),
		Registry: l.Registry, RegistryHost: l.RegistryHost,
	}
	o.Clusters[ControlPlane], o.Clients[ControlPlane] = l.Clusters[clusterName], l.Clients[clusterName]
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of control plane %s: %w", clusterName, err)
	}
	if err := o.installCRDsAndPermissions(ctx); err != nil {
		return nil, err
	}
	return o, o.StartManagerWithoutWait(ctx)
}
