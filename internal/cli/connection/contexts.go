package connection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// maxControlPlanes is the number of control planes that are read at the same time.
const maxControlPlanes = 8

// RegisterContexts adds the flag --contexts to a command that reads several control planes as one fleet.
func RegisterContexts(c *cobra.Command, contexts *[]string) {
	c.Flags().StringSliceVar(contexts, "contexts", nil,
		"contexts of the kubeconfig whose control planes are read as one fleet, separated by commas")
}

// EachControlPlane calls the function read for the control plane of each context. Several calls of this function run at
// the same time. The first argument of each call is the index of the context. If one control plane fails, the calls for
// the other control planes still run. The returned error names each context that has failed, and has the exit code of
// the first failure. EachControlPlane returns an error of the command line if a context is named twice, or if two
// contexts lead to the same objects, because these objects would be counted twice.
func EachControlPlane(ctx context.Context, a *console.App, contexts []string,
	read func(i int, c *Cluster) error) error {
	if a.Config.Context != "" {
		return console.Fail(console.ExitUsage, "--context and --contexts exclude each other")
	}
	clusters, failures := make([]*Cluster, len(contexts)), make([]error, len(contexts))
	all := errgroup.Group{}
	all.SetLimit(maxControlPlanes)
	for i, name := range contexts {
		if name == "" || slices.Index(contexts, name) != i {
			return console.Fail(console.ExitUsage, "--contexts: %q is empty or named twice", name)
		}
		all.Go(func() error {
			one, settings := *a, *a.Config
			settings.Context, one.Config = name, &settings
			clusters[i], failures[i] = ControlPlane(ctx, &one)
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	seen := map[string]string{}
	for _, c := range clusters {
		if c == nil {
			continue
		}
		place := c.Config.Host + " " + c.Namespace
		if other := seen[place]; other != "" {
			return console.Fail(console.ExitUsage, "--contexts: %s and %s lead to the same control plane %s, whose "+
				"runtimes would count twice", other, c.Context, c.Config.Host)
		}
		seen[place] = c.Context
	}
	for i, c := range clusters {
		if c != nil {
			all.Go(func() error {
				failures[i] = read(i, c)
				return nil
			})
		}
	}
	if err := all.Wait(); err != nil {
		return err
	}
	return joinFailures(contexts, failures)
}

// joinFailures returns one error for the contexts that have failed, or nil.
func joinFailures(contexts []string, failures []error) error {
	var texts []string
	code := console.ExitOK
	for i, err := range failures {
		if errors.Is(err, context.Canceled) {
			return err
		}
		if err != nil {
			texts = append(texts, fmt.Sprintf("%s: %v", contexts[i], err))
			if code == console.ExitOK {
				code = console.ExitCode(err)
			}
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return console.Fail(code, "%d of %d control planes were not read: %s", len(texts), len(contexts),
		strings.Join(texts, "; "))
}
