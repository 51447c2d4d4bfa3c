package landscape

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
)

// StartControlPlane starts another control plane with a manager of its own. The cluster has the given name in l. The
// second control plane has the same runtimes and the same registry as the landscape l, but no registered runtime and no
// catalog. The caller must stop the manager of the second control plane. All other parts of the second control plane
// are closed with l.
func (l *Landscape) StartControlPlane(ctx context.Context, name string, args ...string) (*Landscape, error) {
	if err := l.startCluster(ctx, name); err != nil {
		return nil, err
	}
	o := &Landscape{
		Options: Options{Dir: filepath.Join(l.Dir, name), Bin: l.Bin, ManagerArgs: args, Say: l.Say,
			Host: l.Host},
		Clusters: maps.Clone(l.Clusters), Clients: maps.Clone(l.Clients),
		Registry: l.Registry, RegistryHost: l.RegistryHost,
	}
	o.Clusters[ControlPlane], o.Clients[ControlPlane] = l.Clusters[name], l.Clients[name]
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of control plane %s: %w", name, err)
	}
	if err := o.prepareControlPlane(ctx); err != nil {
		return nil, err
	}
	return o, o.StartManager(ctx)
}
