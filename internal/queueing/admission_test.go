package queueing

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAdmission(t *testing.T) {
	const limit = 2
	type step struct {
		do       string // admit, release, withdraw, or wait
		of       string // a runtime, or a duration
		may      bool   // what Admit reports
		admitted []string
	}
	cases := map[string]struct {
		reason string
		steps  []step
	}{
		"Few": {"there is room", []step{{"admit", "a", true, nil}, {"admit", "b", true, nil}}},
		"Repeated": {"an admitted runtime stays admitted", []step{{"admit", "a", true, nil}, {"admit", "b", true, nil},
			{"admit", "a", true, nil}, {"admit", "b", true, nil}}},
		"Full": {"the third waits until one is released",
			[]step{{"admit", "a", true, nil}, {"admit", "b", true, nil}, {"admit", "c", false, nil},
				{"release", "a", false, []string{"c"}}, {"admit", "c", true, nil}}},
		"Reserved": {"the place belongs to the runtime that was admitted",
			[]step{{"admit", "a", true, nil}, {"admit", "b", true, nil}, {"admit", "c", false, nil},
				{"release", "a", false, []string{"c"}}, {"admit", "d", false, nil}}},
		"InOrder": {"the first that asked is admitted first",
			[]step{{"admit", "a", true, nil}, {"admit", "b", true, nil}, {"admit", "c", false, nil},
				{"admit", "d", false, nil}, {"admit", "c", false, nil}, {"release", "b", false, []string{"c"}},
				{"release", "a", false, []string{"d"}}}},
		"Withdrawn": {"a runtime that does not exist any more does not wait",
			[]step{{"admit", "a", true, nil}, {"admit", "b", true, nil}, {"admit", "c", false, nil},
				{"admit", "d", false, nil}, {"withdraw", "c", false, nil}, {"release", "b", false, []string{"d"}}}},
		"Released": {"the work that is done began before there was a reason to wait",
			[]step{{"admit", "a", true, nil}, {"admit", "b", true, nil}, {"admit", "c", false, nil},
				{"release", "c", false, nil}, {"release", "b", false, []string{"c"}}}},
		"Gives": {"withdrawing also frees a place", []step{{"admit", "a", true, nil}, {"admit", "b", true, nil},
			{"admit", "c", false, nil}, {"withdraw", "a", false, []string{"c"}}}},
		"Unknown": {"releasing a runtime that never asked does nothing",
			[]step{{"release", "x", false, nil}, {"admit", "a", true, nil}}},
		"Slow": {"a slow runtime loses its place", []step{{"admit", "a", true, nil}, {"admit", "b", true, nil},
			{"admit", "c", false, nil}, {"admit", "d", false, nil}, {"wait", "2m", false, []string{"c", "d"}}}},
		"SlowAgain": {"so do slow ones that come after it", []step{{"admit", "a", true, nil}, {"admit", "b", true, nil},
			{"admit", "c", false, nil}, {"admit", "d", false, nil}, {"admit", "e", false, nil},
			{"wait", "90s", false, []string{"c", "d"}}, {"wait", "90s", false, []string{"e"}}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var admitted []string
				a := NewAdmission(limit, func(name string) {
					mu.Lock()
					defer mu.Unlock()
					admitted = append(admitted, name)
				})
				for i, s := range c.steps {
					mu.Lock()
					admitted = nil
					mu.Unlock()
					switch s.do {
					case "admit":
						got := a.Admit(s.of)
						if got != s.may || a.IsAdmitted(s.of) != s.may || a.IsWaiting(s.of) == s.may {
							t.Errorf("%s: step %d: Admit(%s) = %t, admitted %t, waiting %t", c.reason, i, s.of, got,
								a.IsAdmitted(s.of), a.IsWaiting(s.of))
						}
					case "release":
						a.Release(s.of)
					case "withdraw":
						a.Withdraw(s.of)
					case "wait":
						d, err := time.ParseDuration(s.of)
						if err != nil {
							t.Fatal(err)
						}
						time.Sleep(d)
						synctest.Wait()
					}
					mu.Lock()
					diff := cmp.Diff(s.admitted, admitted)
					mu.Unlock()
					if diff != "" {
						t.Errorf("%s: after step %d, -want +got:\n%s", c.reason, i, diff)
					}
				}
			})
		})
	}
}

func TestAdmissionWithoutLimit(t *testing.T) {
	a := NewAdmission(0, nil)
	for i := range 1000 {
		if !a.Admit(fmt.Sprint(i)) {
			t.Fatalf("%d has to wait", i)
		}
	}
	a.Release("0")
}

// TestAdmissionAdmitsAll checks that each of many runtimes is admitted, and that never more runtimes are admitted at
// the same time than the limit allows.
func TestAdmissionAdmitsAll(t *testing.T) {
	const limit, all = 8, 1000
	var admitted []string
	a := NewAdmission(limit, func(name string) { admitted = append(admitted, name) })
	for i := range all {
		if name := fmt.Sprint(i); a.Admit(name) {
			admitted = append(admitted, name)
		}
	}
	done := map[string]bool{}
	for len(admitted) > 0 {
		if len(admitted) > limit {
			t.Fatalf("%d at the same time", len(admitted))
		}
		next := admitted[0]
		if admitted = admitted[1:]; !a.Admit(next) {
			t.Fatalf("%s was admitted and is not", next)
		}
		done[next] = true
		a.Release(next)
	}
	if len(done) != all || len(a.admitted)+len(a.waiting)+len(a.isWaiting) > 0 {
		t.Errorf("%d of %d were admitted; %d are left", len(done), all, len(a.admitted)+len(a.waiting))
	}
}

// TestRolloutLimit checks that a small number of workers never gives the limit 0, which would mean "no limit".
func TestRolloutLimit(t *testing.T) {
	for workers, want := range map[int]int{0: 1, 1: 1, 2: 1, 3: 1, 4: 2, 32: 16} {
		if got := RolloutLimit(workers); got != want {
			t.Errorf("%d workers: limit %d, want %d", workers, got, want)
		}
	}
	a := NewAdmission(RolloutLimit(1), func(string) {})
	if !a.Admit("a") || a.Admit("b") {
		t.Error("with one worker, two runtimes are admitted at the same time")
	}
}
