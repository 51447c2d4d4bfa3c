// Command lifecycle-manager runs the controllers of the control plane. Its flag --help lists all other flags of
// lifecycle-manager.
package main

import (
	"fmt"
	"log/slog"
	"os"
	_ "time/tzdata" // maintenance policies have time zones, and an image may have no time zone database

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/internal/manager"
	"github.com/kyma-fleet/lifecycle-manager/internal/telemetry"
	"github.com/kyma-fleet/lifecycle-manager/render"
	"github.com/kyma-fleet/lifecycle-manager/render/process"
)

func main() {
	charts, c := process.RunnerOrServe(), config.DefaultManager() // Main does not return in a process that renders
	if done, err := config.Load(pflag.CommandLine, c, &c.Version, os.Args[1:], os.Stdout); done {
		return
	} else if err != nil {
		fmt.Fprintf(os.Stderr, "lifecycle-manager cannot start:\n%v\n", err)
		os.Exit(1)
	} // logr's verbosity n is slog's level -n
	out := slog.NewJSONHandler(os.Stdout, &slog.HandlerOptions{Level: slog.Level(-c.LogLevel)})
	log := logr.FromSlogHandler(telemetry.LimitLogs(out, c.LogRuntimeLimit))
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	charts.Timeout, charts.Memory = c.RenderTimeout, c.RenderMemoryLimit
	if err := run(c, charts); err != nil {
		fmt.Fprintf(os.Stderr, "lifecycle-manager: %v\n", err)
		os.Exit(2)
	}
}

func run(c *config.Manager, charts render.Runner) error {
	ctx, stop, err := telemetry.Trace(ctrl.SetupSignalHandler(), c.OTLPEndpoint, c.TraceRatio, config.Version)
	if err != nil {
		return err
	}
	defer stop()
	cfg, err := manager.ClusterConfig(c.Kubeconfig)
	if err != nil {
		return err
	}
	mgr, err := manager.New(render.WithRunner(ctx, charts), c, cfg)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}
