package connection

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// RuntimeNames completes the names of the runtimes of the control plane.
func RuntimeNames(a *console.App) console.NameSource {
	return func(ctx context.Context, _ []string) []string {
		c, err := ControlPlane(ctx, a)
		if err != nil {
			return nil
		}
		return c.kymaNames(ctx)
	}
}

// kymaNames returns the names of all Kymas; none if they cannot be listed.
func (c *Cluster) kymaNames(ctx context.Context) []string {
	list := &metav1.PartialObjectMetadataList{}
	if c.listMetadata(ctx, "Kyma", c.Namespace, 0, list) != nil {
		return nil
	}
	var all []string
	for i := range list.Items {
		all = append(all, list.Items[i].Name)
	}
	return all
}

// CatalogModules completes the names of the modules of the catalog.
func CatalogModules(a *console.App) console.NameSource {
	return func(ctx context.Context, _ []string) []string {
		if s := CatalogOrNil(ctx, a); s != nil {
			return s.Modules()
		}
		return nil
	}
}

// EnabledModules completes the names of the modules that the runtime requests or has.
func EnabledModules(a *console.App) console.NameSource {
	return func(ctx context.Context, _ []string) []string {
		c, err := Runtime(ctx, a)
		if err != nil {
			return nil
		}
		k, err := c.Kyma(ctx, c.OwnKyma)
		if err != nil {
			return nil
		}
		return ModuleNames(k)
	}
}

// ModulesOfRuntime completes the names of the modules of the runtime in the first argument.
func ModulesOfRuntime(a *console.App) console.NameSource {
	return func(ctx context.Context, args []string) []string {
		if len(args) == 0 {
			return nil
		}
		c, err := ControlPlane(ctx, a)
		if err != nil {
			return nil
		}
		k, err := c.Kyma(ctx, args[0])
		if err != nil {
			return nil
		}
		return ModuleNames(k)
	}
}

// ModuleChannels completes the channels of the module in the first argument.
func ModuleChannels(a *console.App) console.NameSource {
	return func(ctx context.Context, args []string) []string {
		s := CatalogOrNil(ctx, a)
		if s == nil || len(args) == 0 {
			return nil
		}
		return s.ChannelsOf(args[0])
	}
}

// ModuleVersions completes the versions of the module in the first argument.
func ModuleVersions(a *console.App) console.NameSource {
	return func(ctx context.Context, args []string) []string {
		s := CatalogOrNil(ctx, a)
		if s == nil || len(args) == 0 {
			return nil
		}
		return s.VersionsOf(args[0])
	}
}

// CatalogOrNil returns the catalog of the cluster, nil if it cannot be read.
func CatalogOrNil(ctx context.Context, a *console.App) *Catalog {
	c, err := ControlPlaneOrRuntime(ctx, a)
	if err != nil {
		return nil
	}
	s, err := c.Catalog(ctx)
	if err != nil {
		return nil
	}
	return s
}
