// Command klm is the client of the lifecycle manager, for operators of a fleet and admins of a runtime. See --help.
// Under the name kubectl-lifecycle it is a plugin of kubectl.
package main

import (
	"os"

	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

func main() {
	os.Exit(cli.Run(signals.SetupSignalHandler(), config.NewKlm(), os.Args,
		cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
