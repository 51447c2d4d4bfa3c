// Package rollout decides which runtimes may follow when a channel of a module gets another version, and when a rollout
// has to stop.
//
// # Use
//
//	made := rollout.New(rollout.Move{…})                      // a ModuleRollout with the stages of a policy
//	next := rollout.Advance(rollout.Inputs{Rollout: made, …}) // its next status, with the admitted runtimes
//
// # How it works
//
// The runtimes of a stage are not stored: package place computes them. Package admission decides to which version a
// channel is resolved for one runtime during a rollout.
//
// Advance computes the next status of a rollout from the previous status and from the known facts about the runtimes.
// Advance keeps no state in memory, so a restart of the manager does not change the result. The status names the
// runtimes that may begin and have not begun yet, so its size depends on the number of slots, not on the fleet. Only
// runtimes that can begin now are admitted, so windows, pauses and unreachable runtimes use no slot.
//
// Soaks, deadlines and the limit of starts per minute are measured with the clock of the caller. After somebody has set
// the caller's clock, soaks, deadlines and the counted minute begin again, see Inputs.ClockSetAt.
//
// Each runtime of the channel has one verdict, see [Verdict]. The effect of a failure depends on its cause, see
// [evidence.CauseOf]. Only failures of the version halt a rollout. Failures of the control plane hold the rollout. A
// pause of a module by a person is no failure.
//
// # What it does not do
//
// The package is pure: it makes no request and reads no clock. The package changes nothing in runtimes. Package channel
// judges windows, pauses and rights, and the caller of Advance passes the resulting blockers in [Runtime].Blocked.
package rollout

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// scaledOrZero returns the number that value stands for: the number itself, or a percentage of the parameter total. If
// the parameter roundUp is true, a percentage is rounded up; if roundUp is false, it is rounded down. For a value that
// cannot be read, scaledOrZero returns 0.
func scaledOrZero(value *intstr.IntOrString, total int, roundUp bool) int {
	if value == nil {
		return 0
	}
	if value.Type == intstr.Int {
		return max(0, int(value.IntVal))
	}
	return share(value.StrVal, total, roundUp)
}

// share returns a percent of a total.
func share(percent string, total int, roundUp bool) int {
	var p float64
	if _, err := fmt.Sscanf(percent, "%g%%", &p); err != nil || p < 0 {
		return 0
	}
	n := p * float64(total) / 100
	if roundUp {
		return int(math.Ceil(n - 1e-9))
	}
	return int(math.Floor(n + 1e-9))
}

// int32Of converts a number of runtimes or stages.
func int32Of(n int) int32 {
	return int32(min(n, math.MaxInt32)) //nolint:gosec // it is limited
}
