package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

// options holds the values of the flags.
type options struct {
	Clusters     []int
	Modules      int
	Objects      int
	Catalog      int
	Scenario     string
	Out          string
	WatchMode    string
	Manager      string
	ManagerArgs  []string
	Idle         time.Duration
	Edits        int
	Keep         string
	Profile      string
	Replicas     int
	FailAfter    int
	DeadInDelete int
	Brief        bool

	remember time.Duration // time for which agents keep delivered events
	watched  time.Duration // time for which dead clusters are observed after the others are done
	calm     time.Duration // time for which the manager has to be quiet
	soak     time.Duration // soak time of a stage of a rollout

	stage stage
}

func main() {
	o := &options{}
	root := &cobra.Command{
		Use:           "fleetbench",
		Short:         "Measure the manager with a fleet of simulated clusters",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return run(ctx, o)
		},
	}
	f := root.Flags()
	f.IntSliceVar(&o.Clusters, "clusters", []int{100},
		"how many clusters; several numbers are measured one after the other")
	f.IntVar(&o.Modules, "modules", 5, "modules that each cluster has")
	f.IntVar(&o.Objects, "objects", 10, "objects that each module has, beside its custom resource")
	f.IntVar(&o.Catalog, "catalog", 0, "modules in the catalog that no cluster has")
	f.StringVar(&o.Scenario, "scenario", "all",
		"what is measured: all, or some of install, idle, edit, upgrade, restart, failover, rotate, faults, rollout, "+
			"delete, separated by commas; install always is")
	f.StringVar(&o.Out, "out", "",
		"file for the result as JSON, and with .svg in place of .json for the chart of several sizes; none if empty")
	f.StringVar(&o.WatchMode, "watch-mode", config.WatchAgent, "the manager's --watch-mode: agent, hub or poll")
	f.StringVar(&o.Manager, "manager", "../bin/lifecycle-manager", "the manager's binary")
	f.StringArrayVar(&o.ManagerArgs, "manager-arg", nil, "a flag for the manager; may be repeated")
	f.DurationVar(&o.Idle, "idle", time.Minute, "how long nothing is done in scenario idle")
	f.IntVar(&o.Edits, "edits", 100, "how many clusters are edited in scenario edit, at most")
	f.IntVar(&o.Replicas, "replicas", 1,
		"replicas of the manager; if there are several, all work, each on some of the runtimes")
	f.IntVar(&o.FailAfter, "fail-after", 0,
		"percentage of the clusters that have the bad version of scenario rollout before it fails in one of them")
	f.IntVar(&o.DeadInDelete, "dead-in-delete", 0,
		"percentage of the clusters that are dead while all Kymas are deleted in scenario delete; they work again when "+
			"the others are deleted")
	f.BoolVar(&o.Brief, "brief", false,
		"shorten what takes its time by itself: idle, waiting until agents have forgotten, watching the dead")
	f.StringVar(&o.Keep, "keep", "", "folder for logs of manager and control plane; none if empty")
	f.StringVar(&o.Profile, "profile", "",
		"folder for processor profiles of control plane, simulator and manager, for each scenario; none if empty")
	root.AddCommand(&cobra.Command{Use: rolePlane, Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return servePlane(cmd.Context(), args[0], os.Stdin, os.Stdout)
		}})
	page := ""
	together := &cobra.Command{
		Use: "report FILE…", Short: "Put results of several runs together", Args: cobra.MinimumNArgs(1),
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(_ *cobra.Command, args []string) error { return reportAndUpdatePage(args, page, os.Stdout) },
	}
	together.Flags().StringVar(&page, "page", "",
		"page in Markdown whose tables are written, with the chart as .svg beside it; none if empty")
	root.AddCommand(together)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "fleetbench:", err)
		os.Exit(1)
	}
}

func (o *options) completeAndValidate() ([]scenario, error) {
	for _, n := range o.Clusters {
		if n < 1 {
			return nil, fmt.Errorf("--clusters is %d, want at least 1", n)
		}
	}
	if o.Modules < 1 || o.Modules > 200 || o.Objects < minObjects || o.Edits < 1 || o.Idle < time.Second {
		return nil, fmt.Errorf(
			"want --modules from 1 to 200, --objects at least %d, --edits at least 1, --idle at least 1s", minObjects)
	}
	if o.Catalog < 0 || o.Catalog > 400 {
		return nil, fmt.Errorf("--catalog is %d, want 0 to 400", o.Catalog)
	}
	if _, err := os.Stat(o.Manager); err != nil {
		return nil, fmt.Errorf("finding the manager's binary: %w: build it, or name it with --manager", err)
	}
	if o.Replicas < 1 || o.Replicas > 16 {
		return nil, fmt.Errorf("--replicas is %d, want 1 to 16", o.Replicas)
	}
	if o.FailAfter < 0 || o.FailAfter > 10 {
		return nil, fmt.Errorf("--fail-after is %d, want 0 to 10", o.FailAfter)
	}
	if o.DeadInDelete < 0 || o.DeadInDelete > 90 {
		return nil, fmt.Errorf("--dead-in-delete is %d, want 0 to 90", o.DeadInDelete)
	}
	o.remember, o.watched, o.calm, o.soak = time.Minute, time.Minute, 3*time.Second, 5*time.Second
	if o.Brief {
		o.applyBrief()
	}
	return parseScenarioNames(o.Scenario)
}

// applyBrief sets the options of --brief. Counted figures hardly change. The leader election gets longer timeouts,
// because a small run must succeed on a machine that also does other work.
func (o *options) applyBrief() {
	o.ManagerArgs = append([]string{"--max-new-runtimes=16", "--leader-election-lease-duration=45s",
		"--leader-election-renew-deadline=40s", "--leader-election-retry-period=1s"}, o.ManagerArgs...)
	o.Idle, o.Edits, o.remember, o.watched = 5*time.Second, min(o.Edits, 10), 3*time.Second, 5*time.Second
	o.calm, o.soak = 1500*time.Millisecond, time.Second
}

// logf prints a message, such as the name of the next stage, to standard error.
func (o *options) logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func run(ctx context.Context, o *options) error {
	list, err := o.completeAndValidate()
	if err != nil {
		return err
	}
	result := Result{Machine: thisMachine(time.Now())}
	for _, clusters := range o.Clusters {
		one, runErr := runAll(ctx, o, clusters, list)
		result.Runs = append(result.Runs, one)
		if err = runErr; err != nil {
			break
		}
	}
	result.Aims = judgeAims(withOneReplica(result.Runs))
	result.print(os.Stdout)
	if writeErr := result.writeJSONAndChart(o.Out); err == nil {
		err = writeErr
	}
	return err
}
