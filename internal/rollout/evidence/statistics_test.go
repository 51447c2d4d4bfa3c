package evidence

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// TestFisher compares the results of fisher with probabilities that were counted by hand. Each expected probability is
// a fraction: the number of ways to distribute the failures that give the first group at least as many failures,
// divided by the number of all ways.
func TestFisher(t *testing.T) {
	for _, c := range []struct {
		a, n, b, m int
		want       float64
	}{
		{3, 4, 1, 4, 17.0 / 70},       // the lady who tastes tea
		{4, 4, 0, 4, 1.0 / 70},        // she is right each time
		{1, 1, 0, 1, 0.5},             // one of two
		{0, 5, 3, 5, 1},               // none in the first group
		{1, 20, 1, 9980, 1 - ratio()}, // two failures, 20 of 10,000 are updated
		{5, 5, 5, 5, 1},               // everybody fails
		{10000, 10000, 9999, 9999, 1}, // all runtimes of a large fleet fail
		{2, 10, 0, 0, 1},              // nobody to compare with
		{1, 3, 2, 3, 1 - 1.0/20*1},    // 19 of 20
		{2, 3, 1, 3, 0.5},             // 10 of 20
	} {
		if is := fisher(c.a, c.n, c.b, c.m); math.Abs(is-c.want) > 1e-6 {
			t.Errorf("%d of %d against %d of %d: %.8f, want %.8f", c.a, c.n, c.b, c.m, is, c.want)
		}
	}
}

// ratio returns a probability: 2 of 10,000 runtimes have failed, and ratio is the probability that a random group of 20
// of the 10,000 runtimes contains neither of these two runtimes.
func ratio() float64 { return 9980.0 / 10000 * 9979 / 9999 }

func TestIsWorse(t *testing.T) {
	for _, c := range []struct {
		failed, updated, failedOther, other int
		want                                bool
	}{
		{0, 100, 0, 9900, false},
		{0, 100, 50, 9900, false},
		{1, 100, 0, 9900, true},    // no other runtime fails: the version is the cause
		{1, 100, 100, 9900, false}, // 1 % here and there
		{1, 20, 1, 9980, true},     // 5 % against 0.01 %
		{5, 100, 99, 9900, true},   // 5 % against 1 %
		{50, 100, 4950, 9900, false},
		{60, 100, 4950, 9900, false}, // 60 % against 50 % may be chance
		{65, 100, 4950, 9900, true},
		{10, 1000, 90, 9000, false},
		{100, 100, 1, 1, false}, // all fail, there too
	} {
		if is := IsWorse(c.failed, c.updated, c.failedOther, c.other); is != c.want {
			t.Errorf("%d of %d against %d of %d: %v", c.failed, c.updated, c.failedOther, c.other, is)
		}
	}
}

func TestOf(t *testing.T) {
	for _, c := range []struct {
		failed, n int
		want      string
	}{
		{0, 0, "no evidence"},
		{0, 2, "0 of 2 failed: too few to say anything about the fleet"},
		{0, 20, "0 of 20 failed: true rate below 15 % with 95 % confidence"},
		{0, 100, "0 of 100 failed: true rate below 3 % with 95 % confidence"},
		{1, 100, "1 of 100 failed: true rate below 4.4 % with 95 % confidence"},
		{1, 1, "1 of 1 failed: too few to say anything about the fleet"},
		{2, 3, "2 of 3 failed: true rate below 93 % with 95 % confidence"},
		{3, 3, "all 3 failed"},
	} {
		if is := FailureRateBound(c.failed, c.n); is != c.want {
			t.Errorf("%d of %d: %q, want %q", c.failed, c.n, is, c.want)
		}
	}
}

func TestCauseOf(t *testing.T) {
	for reason, want := range map[string]Cause{
		v1beta2.ReasonWorkloadFailed: CauseVersion, v1beta2.ReasonRuntimeUnreachable: CauseRuntime,
		v1beta2.ReasonRegistryUnreachable: CauseControlPlane, v1beta2.ReasonModulePaused: CausePerson,
		v1beta2.ReasonWorkloadNotReady: CauseUnclear, "": CauseUnclear, "SomethingNew": CauseUnclear,
	} {
		if is := CauseOf(reason); is != want {
			t.Errorf("%s: cause %d, want %d", reason, is, want)
		}
	}
}

// The simulated fleets of TestFalseHalts have 10,000 runtimes in five regions, are observed for a day, and are checked
// once a minute.
const (
	fleetSize   = 10_000
	regions     = 5
	day         = 24 * 60
	meanFailure = 120 // minutes
	ownDeadline = 30  // minutes until an updated runtime counts as failed
	deadline    = 15  // minutes until another one counts as failing
)

// world has the rates at which runtimes fail because of the version and for other reasons.
type world struct {
	name    string
	perDay  float64 // share of runtimes that fail on a day, each for two hours on average
	outages float64 // share of the runtimes of one region that fail at the same time, for an hour
	bad     float64 // share of the updated runtimes that fail because of the version
}

// stage is the stage under observation.
type stage struct{ updated, allowed int }

// halts simulates one day, and reports whether the rollout is halted on that day.
func (w world) halts(s stage, rnd *rand.Rand) bool {
	var updated, others [day + 1]int // changes of the number of failing runtimes, by minute
	fail := func(n int, share float64, wait int, into *[day + 1]int, when func() (begin, end int)) {
		// The simulation goes through the runtimes one by one. The function next returns how many runtimes succeed
		// before the next one fails. The number of runtimes before the next failure has a geometric distribution, so
		// the simulation needs one random number for each failure, and not one for each runtime.
		next := func() int {
			return min(n, int(math.Log(1-rnd.Float64())/math.Log(1-share)))
		}
		if share == 0 {
			return
		}
		for i := next(); i < n; i += 1 + next() {
			begin, end := when()
			if begin += wait; begin < min(end, day) {
				into[begin]++
				into[min(end, day)]--
			}
		}
	}
	alone := func() (int, int) {
		begin := rnd.IntN(day)
		return begin, begin + int(rnd.ExpFloat64()*meanFailure)
	}
	left := fleetSize - s.updated
	fail(s.updated, w.perDay, ownDeadline, &updated, alone)
	fail(left, w.perDay, deadline, &others, alone)
	outage := rnd.IntN(day - 60)
	together := func() (int, int) {
		begin := outage + rnd.IntN(10) // not in all runtimes in the same minute
		return begin, begin + 60
	}
	fail(s.updated, w.outages/regions, ownDeadline, &updated, together) // the rank spreads them over the regions
	fail(left, w.outages/regions, deadline, &others, together)
	fail(s.updated, w.bad, ownDeadline, &updated, func() (int, int) { return rnd.IntN(60), day })
	failed, failing := 0, 0
	for minute := range day {
		if updated[minute] == 0 && others[minute] == 0 {
			continue
		}
		failed, failing = failed+updated[minute], failing+others[minute]
		if failed > s.allowed && IsWorse(min(failed, s.updated), s.updated, min(failing, left), left) {
			return true
		}
	}
	return false
}

// TestFalseHalts measures how often a rollout of a good version and a rollout of a bad version are halted. go test -v
// prints the results as the table that is in docs/benchmarks.md.
func TestFalseHalts(t *testing.T) {
	const days = 400
	stages := []stage{{20, 0}, {100, 0}, {100, 1}, {1000, 10}}
	worlds := []world{
		{"nothing fails", 0, 0, 0},
		{"0.1 % fail on a day", 0.001, 0, 0},
		{"1 %", 0.01, 0, 0},
		{"5 %", 0.05, 0, 0},
		{"1 %, and a region loses 50 %", 0.01, 0.5, 0},
		{"1 %, and a region loses all", 0.01, 1, 0},
		{"version: 2 % fail", 0.01, 0, 0.02},
		{"version: 10 % fail", 0.01, 0, 0.1},
		{"version: 10 %, and a region loses 50 %", 0.01, 0.5, 0.1},
	}
	var table strings.Builder
	for _, w := range worlds {
		fmt.Fprintf(&table, "| %s |", w.name)
		for _, s := range stages {
			rnd := rand.New(rand.NewPCG(1, uint64(s.updated)))
			halted := 0
			for range days {
				if w.halts(s, rnd) {
					halted++
				}
			}
			share := float64(halted) / days
			if w.bad == 0 && share > 0.12 {
				t.Errorf("%s: %.3f of the rollouts of a good version to %d runtimes are halted", w.name, share,
					s.updated)
			}
			if w.bad*float64(s.updated) > 5 && share < 0.98 {
				t.Errorf("%s: only %.3f of the rollouts of a bad version to %d runtimes are halted", w.name, share,
					s.updated)
			}
			fmt.Fprintf(&table, " %.1f %% |", 100*share)
		}
		table.WriteString("\n")
	}
	t.Logf("| fleet | 20 runtimes, 0 may fail | 100, 0 | 100, 1 | 1,000, 10 |\n%s", &table)
}
