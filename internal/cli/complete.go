package cli

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// completion returns what may stand at a place of the command line, for the shell.
type completion = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// completionTimeout bounds what a person waits for who has pressed the tab key.
const completionTimeout = 3 * time.Second

// names is a source of names. What goes wrong is no news to a shell.
type names func(ctx context.Context, args []string) []string

// completing completes the arguments in their order; the last source is for those that follow, too, if more is set.
func completing(sources ...names) completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(sources) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		found := sources[len(args)](ctx, args)
		slices.Sort(found)
		return slices.Compact(found), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag completes a flag that the command has.
func completeFlag(cmd *cobra.Command, flag string, source names) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		return source(ctx, args), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // there is no such flag: any test finds that
	}
}

func (a *app) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.config.Kubeconfig
	raw, err := rules.Load()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(raw.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

// runtimeNames are the runtimes of the control plane.
func (a *app) runtimeNames(ctx context.Context, _ []string) []string {
	c, err := a.controlPlane(ctx)
	if err != nil {
		return nil
	}
	return c.kymaNames(ctx)
}

// kymaNames returns the names of all Kymas; none if they cannot be listed.
func (c *cluster) kymaNames(ctx context.Context) []string {
	list := &metav1.PartialObjectMetadataList{}
	if c.listSome(ctx, "Kyma", c.namespace, 0, list) != nil {
		return nil
	}
	var all []string
	for i := range list.Items {
		all = append(all, list.Items[i].Name)
	}
	return all
}

// catalogModules are the modules of the catalog.
func (a *app) catalogModules(ctx context.Context, _ []string) []string {
	if s := a.anyStock(ctx); s != nil {
		return s.modules()
	}
	return nil
}

// enabledModules are the modules that the runtime asks for or has.
func (a *app) enabledModules(ctx context.Context, _ []string) []string {
	c, err := a.runtime(ctx)
	if err != nil {
		return nil
	}
	k, err := c.kyma(ctx, c.wish)
	if err != nil {
		return nil
	}
	return modulesOf(k)
}

// modulesOfRuntime are the modules of the runtime that is the first argument.
func (a *app) modulesOfRuntime(ctx context.Context, args []string) []string {
	c, err := a.controlPlane(ctx)
	if err != nil {
		return nil
	}
	k, err := c.kyma(ctx, args[0])
	if err != nil {
		return nil
	}
	return modulesOf(k)
}

// moduleChannels are the channels of the module that is the first argument.
func (a *app) moduleChannels(ctx context.Context, args []string) []string {
	s := a.anyStock(ctx)
	if s == nil || len(args) == 0 {
		return nil
	}
	return s.channels(args[0])
}

// moduleVersions are the versions of the module that is the first argument.
func (a *app) moduleVersions(ctx context.Context, args []string) []string {
	s := a.anyStock(ctx)
	if s == nil || len(args) == 0 {
		return nil
	}
	var all []string
	for _, t := range s.templatesOf(args[0]) {
		all = append(all, versionOf(t))
	}
	return all
}

// anyStock returns the catalog of the cluster, nil if it cannot be read.
func (a *app) anyStock(ctx context.Context) *stock {
	c, err := a.either(ctx)
	if err != nil {
		return nil
	}
	s, err := c.stock(ctx)
	if err != nil {
		return nil
	}
	return s
}

// fixed is a source of names that are always the same.
func fixed(all ...string) names {
	return func(context.Context, []string) []string { return all }
}
