package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kyma-fleet/lifecycle-manager/playground/chaos"
)

func chaosCommand() *cobra.Command {
	var o chaos.Options
	var minutes float64
	var runtimes int
	command := &cobra.Command{
		Use:   "chaos",
		Short: "Run the manager under random faults and random requests, and check what it has promised",
		Long: `Run the manager under random faults and random requests, and check what it has promised.

Prints each fault and each request with its time, and at the end a report. The exit code is 1 if a
check has failed. The same seed repeats the order of faults and requests. docs/reliability.md
describes faults and checks.`,
		Example: "  playground chaos --minutes 60 --seed 7",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if entries, err := os.ReadDir(o.Dir); err == nil && len(entries) > 0 {
				return fmt.Errorf("--dir: %s is not empty: another landscape runs there or was killed; stop it, or "+
					"remove the folder", o.Dir)
			}
			if runtimes < 1 || runtimes > 26 {
				return fmt.Errorf("--runtimes: %d is not a number from 1 to 26", runtimes)
			}
			for i := range runtimes {
				o.Runtimes = append(o.Runtimes, fmt.Sprintf("runtime-%c", 'a'+i))
			}
			out := command.OutOrStdout()
			o.For = time.Duration(minutes * float64(time.Minute))
			o.Say = func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
			ctrl.SetLogger(logr.Discard()) // of the clients of this program
			report, err := chaos.Run(command.Context(), o)
			if report != nil {
				fmt.Fprintf(out, "\n%s", report)
			}
			if err == nil && len(report.Failures) > 0 {
				err = errors.New("a check has failed")
			}
			return err
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.Dir, "dir", ".chaos", "folder for logs and data; made at the start and removed at the end")
	flags.StringVar(&o.Bin, "bin", "bin",
		"folder with the binaries lifecycle-manager, runtime-watcher and sample-operator")
	flags.Float64Var(&minutes, "minutes", 10, "time in which rounds begin; at least one is made")
	flags.Uint64Var(&o.Seed, "seed", 1, "seed of faults and requests")
	flags.IntVar(&runtimes, "runtimes", 3, "number of runtimes")
	flags.DurationVar(&o.Round, "round", time.Minute, "time in which the faults of one round begin")
	flags.Float64Var(&o.Pace, "pace", 1, "multiplies the number of events per second, and divides how long faults last")
	flags.StringSliceVar(&o.Only, "faults", nil, "names of faults, separated by commas; empty: all")
	return command
}
