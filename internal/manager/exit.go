package manager

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// killedExitCode is the exit code that shells and Kubernetes report for a process that got SIGKILL.
const killedExitCode = 137

// exitAfterStep returns a function that ends the process, to test a crash. A controller calls this function after each
// step. The parameter setting has the form CONTROLLER/STEP[:N]: the process ends without cleaning up after the N-th run
// of STEP. If setting names no step of the given controller, exitAfterStep returns nil.
func exitAfterStep(setting, controller string) (hook func(step string)) {
	name, times, counted := strings.Cut(setting, ":")
	last, isOurs := strings.CutPrefix(name, controller+"/")
	if !isOurs {
		return nil
	}
	left := new(atomic.Int64)
	left.Store(1)
	if n, err := strconv.ParseInt(times, 10, 64); counted && err == nil { // config has checked that it is a number
		left.Store(n)
	}
	return func(step string) {
		if step == last && left.Add(-1) == 0 {
			os.Exit(killedExitCode)
		}
	}
}
