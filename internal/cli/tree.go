package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

// Tree returns all commands as they are without any environment, to write a reference of. They are not to be run: see [Run].
func Tree() *cobra.Command {
	c := config.NewKlm()
	c.NoColor = false
	return (&app{config: c, name: "klm", now: time.Now}).root()
}
