package manager

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// killed is the exit code of a program that got SIGKILL, as shells and Kubernetes tell it.
const killed = 137

// exitAfter returns what a controller calls after each of its steps, so that the process ends after the one that a test of faults asks for, as
// CONTROLLER/STEP[:N]. Nothing is cleaned up. It returns nil if no step of this controller is asked for.
func exitAfter(asked, controller string) func(step string) {
	name, times, counted := strings.Cut(asked, ":")
	last, ours := strings.CutPrefix(name, controller+"/")
	if !ours {
		return nil
	}
	left := new(atomic.Int64)
	left.Store(1)
	if n, err := strconv.ParseInt(times, 10, 64); counted && err == nil { // config has seen that it is a number
		left.Store(n)
	}
	return func(step string) {
		if step == last && left.Add(-1) == 0 {
			os.Exit(killed)
		}
	}
}
