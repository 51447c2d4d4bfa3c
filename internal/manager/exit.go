package manager

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// killedExitCode is the exit code that shells and Kubernetes report for a process that got SIGKILL.
const killedExitCode = 137

// exitAfter returns a function for tests of faults. A controller calls the returned function after each of its steps.
// The parameter has the form CONTROLLER/STEP[:N]. After the N-th run of that step, the returned function ends the
// process without cleaning up. If the parameter names no step of this controller, exitAfter returns nil.
func exitAfter(setting, controller string) func(step string) {
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
