package connection

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// RuntimeNames returns a source for completion with the names of the runtimes of the control plane.
func RuntimeNames(a *console.App) console.NameSource {
	return func(ctx context.Context, _ []string) []string {
		c, err := ControlPlane(ctx, a)
		if err != nil {
			return nil
		}
		return c.kymaNames(ctx)
	}
}

// kymaNames returns the names of all Kymas. If the Kymas cannot be listed, kymaNames returns no names.
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

// CatalogModules returns a source for completion with the names of the modules in the catalog.
func CatalogModules(a *console.App) console.NameSource {
	return func(ctx context.Context, _ []string) []string {
		if s := CatalogOrNil(ctx, a); s != nil {
			return s.Modules()
		}
		return nil
	}
}

// ModulesOfOwnRuntime returns a source for completion with the names of the modules that the runtime requests or has.
func ModulesOfOwnRuntime(a *console.App) console.NameSource {
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

// ModulesOfRuntime returns a source for completion with the names of the modules of a runtime. The first argument is
// the name of the runtime.
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

// ModuleChannels returns a source for completion with the channels of a module. The first argument is the name of the
// module.
func ModuleChannels(a *console.App) console.NameSource {
	return func(ctx context.Context, args []string) []string {
		s := CatalogOrNil(ctx, a)
		if s == nil || len(args) == 0 {
			return nil
		}
		return s.ChannelsOf(args[0])
	}
}

// ModuleVersions returns a source for completion with the versions of a module. The first argument is the name of the
// module.
func ModuleVersions(a *console.App) console.NameSource {
	return func(ctx context.Context, args []string) []string {
		s := CatalogOrNil(ctx, a)
		if s == nil || len(args) == 0 {
			return nil
		}
		return s.VersionsOf(args[0])
	}
}

// CatalogOrNil returns the catalog of the cluster, or nil if the catalog cannot be read.
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
