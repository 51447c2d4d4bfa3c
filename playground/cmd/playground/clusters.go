package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
)

// startTimeout is the timeout for the start of each cluster. A start takes 3 seconds on an idle machine.
const startTimeout = 2 * time.Minute

// clusters is the command that only starts clusters.
type clusters struct {
	Names  []string
	Dir    string
	Images []string
	Keep   bool
}

func clustersCommand() *cobra.Command {
	v := &clusters{}
	command := &cobra.Command{
		Use:   "clusters",
		Short: "Start clusters and write DIR/NAME.kubeconfig for each; run until Ctrl-C",
		Long: `Start clusters and write DIR/NAME.kubeconfig for each, with all rights.

Prints a line for each cluster (name, address, version, seconds), then "ready", and runs until
Ctrl-C or SIGTERM. Then it removes everything that it made, unless --keep is given: the next run
with the same folder then finds the clusters with their objects and addresses.`,
		Example: "  playground clusters --names control-plane,runtime-a --dir /tmp/clusters\n" +
			"  kubectl --kubeconfig /tmp/clusters/runtime-a.kubeconfig get nodes",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return v.run(command.Context(), command.OutOrStdout()) },
	}
	flags := command.Flags()
	flags.StringSliceVar(&v.Names, "names", []string{"control-plane"}, "names of the clusters, separated by commas")
	flags.StringVar(&v.Dir, "dir", "",
		"folder for kubeconfigs, data and logs: a new or empty one, or one that --keep left (required)")
	flags.StringArrayVar(&v.Images, "image", nil,
		"REPOSITORY=PATH: run pods with this image (named without its tag) as local processes; may be repeated")
	flags.BoolVar(&v.Keep, "keep", false, "leave data and logs in the folder at the end")
	if err := command.MarkFlagRequired("dir"); err != nil {
		panic(err)
	}
	return command
}

// options checks the flags and arguments before anything is created.
func (v *clusters) options() (cluster.Options, error) {
	options := cluster.Options{Dir: filepath.Join(v.Dir, "data"), Images: map[string]cluster.Image{}}
	seen := map[string]bool{}
	for _, name := range v.Names {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return options, fmt.Errorf("--names: %q is not a name: 1 to 63 lower case letters, digits and hyphens are",
				name)
		}
		if seen[name] {
			return options, fmt.Errorf("--names: %q is there twice", name)
		}
		seen[name] = true
	}
	if len(v.Names) == 0 {
		return options, errors.New("--names: name at least one cluster")
	}
	for _, pair := range v.Images {
		repository, path, ok := strings.Cut(pair, "=")
		if !ok || repository == "" || path == "" {
			return options, fmt.Errorf("--image: %q is not of the form REPOSITORY=PATH", pair)
		}
		absolute, err := filepath.Abs(path)
		if err != nil {
			return options, fmt.Errorf("--image: %q: %w", pair, err)
		}
		options.Images[repository] = cluster.Image{Command: absolute}
	}
	entries, err := os.ReadDir(v.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return options, fmt.Errorf("--dir: %w", err)
	}
	for _, entry := range entries {
		if _, err := os.Stat(filepath.Join(options.Dir, cluster.Marker)); err != nil {
			return options, fmt.Errorf("--dir: %q has foreign files, such as %q: name a new or an empty folder", v.Dir,
				entry.Name())
		}
	}
	return options, nil
}

func (v *clusters) run(ctx context.Context, out io.Writer) (err error) {
	options, err := v.options()
	if err != nil {
		return err
	}
	_, statErr := os.Stat(v.Dir)
	made := errors.Is(statErr, os.ErrNotExist)
	host, err := cluster.Open(ctx, options)
	if err != nil {
		return err
	}
	var kubeconfigs []string
	defer func() {
		err = errors.Join(err, host.Close())
		for _, path := range kubeconfigs {
			err = errors.Join(err, os.Remove(path))
		}
		if !v.Keep {
			err = errors.Join(err, os.RemoveAll(options.Dir))
			if made {
				_ = os.Remove(v.Dir) // stays if somebody put a file there
			}
		}
	}()
	clusters := map[string]*cluster.Cluster{}
	for _, name := range v.Names {
		begin := time.Now()
		start, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
		c, err := host.Start(start, name)
		cancel()
		if ctx.Err() != nil {
			return nil // asked to end
		}
		if err != nil {
			return err
		}
		clusters[name] = c
		path := filepath.Join(v.Dir, name+".kubeconfig")
		kubeconfigs = append(kubeconfigs, path)
		if err := os.WriteFile(path, c.Kubeconfig(), 0o600); err != nil {
			return fmt.Errorf("writing the kubeconfig: %w", err)
		}
		if _, err := fmt.Fprintf(out, "%-20s %s  %s  %.1fs\n", name, c.ServerURL(), c.Version(),
			time.Since(begin).Seconds()); err != nil {
			return fmt.Errorf("writing output: %w", err)
		}
	}
	stop, err := serveControl(v.Dir, clusters)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return fmt.Errorf("writing output: %w", err)
	}
	debug.FreeOSMemory() // building an API server takes more memory than running it
	<-ctx.Done()
	return nil
}
