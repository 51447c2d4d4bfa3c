// Command runtime-watcher is the agent in a runtime: it reports changes to the control plane. The flag --help lists its
// other flags.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/kyma-fleet/lifecycle-manager/internal/agent"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

func main() {
	c, notes := config.NewAgent()
	done, err := config.Load(pflag.CommandLine, c, &c.Version, os.Args[1:], os.Stdout)
	if done {
		return
	}
	if err == nil {
		err = run(c, notes)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "runtime-watcher cannot run:\n%v\n", err)
		os.Exit(1)
	}
}

func run(c *config.Agent, notes []string) error {
	log := logr.FromSlogHandler(slog.NewJSONHandler(
		os.Stdout, &slog.HandlerOptions{Level: slog.Level(-c.LogLevel)})).WithValues("pod", c.PodName)
	klog.SetLogger(log)
	log.Info("starting", "version", config.Version, "listener", c.KCPAddr, "notes", notes)
	if c.MemoryLimitBytes > 0 {
		debug.SetMemoryLimit(c.MemoryLimitBytes)
		debug.SetGCPercent(50) // the heap is small: collecting twice as often costs little and saves megabytes
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig) // without a file, the service account of the pod
	if err != nil {
		return fmt.Errorf("finding the cluster to watch (--kubeconfig, $KUBECONFIG, or run in a pod): %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a, err := agent.New(agent.OptionsFromConfig(c, cfg, config.Version, log))
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
