// Command klm is the client of the lifecycle manager, for operators of a fleet and admins of a runtime. The flag --help
// lists the commands of klm. Under the name kubectl-lifecycle, klm is a plugin of kubectl.
package main

import (
	"os"
	_ "time/tzdata" // maintenance policies have time zones, and a computer may have no time zone database

	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/render"
	"github.com/kyma-fleet/lifecycle-manager/render/process"
)

func main() {
	ctx := render.WithRunner(signals.SetupSignalHandler(), process.RunnerOrServe())
	os.Exit(cli.Run(ctx, config.NewKlm(), os.Args, cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
