package kyma

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTurns(t *testing.T) {
	const most = 2
	type step struct {
		do   string // may, done, leave, or wait
		of   string // a runtime, or how long
		may  bool
		turn []string // whose turn it is then
	}
	cases := map[string]struct {
		reason string
		steps  []step
	}{
		"Few":       {"there is room", []step{{"may", "a", true, nil}, {"may", "b", true, nil}}},
		"Again":     {"who has begun goes on", []step{{"may", "a", true, nil}, {"may", "b", true, nil}, {"may", "a", true, nil}, {"may", "b", true, nil}}},
		"Full":      {"the third waits, until one is done", []step{{"may", "a", true, nil}, {"may", "b", true, nil}, {"may", "c", false, nil}, {"done", "a", false, []string{"c"}}, {"may", "c", true, nil}}},
		"Reserved":  {"whose turn it is has the place", []step{{"may", "a", true, nil}, {"may", "b", true, nil}, {"may", "c", false, nil}, {"done", "a", false, []string{"c"}}, {"may", "d", false, nil}}},
		"InOrder":   {"the first who came", []step{{"may", "a", true, nil}, {"may", "b", true, nil}, {"may", "c", false, nil}, {"may", "d", false, nil}, {"may", "c", false, nil}, {"done", "b", false, []string{"c"}}, {"done", "a", false, []string{"d"}}}},
		"WaitsGone": {"who is gone does not wait", []step{{"may", "a", true, nil}, {"may", "b", true, nil}, {"may", "c", false, nil}, {"may", "d", false, nil}, {"leave", "c", false, nil}, {"done", "b", false, []string{"d"}}}},
		"Done":      {"what is done was begun before there was a reason to wait", []step{{"may", "a", true, nil}, {"may", "b", true, nil}, {"may", "c", false, nil}, {"done", "c", false, nil}, {"done", "b", false, []string{"c"}}}},
		"Left":      {"who has a place gives it back, too", []step{{"may", "a", true, nil}, {"may", "b", true, nil}, {"may", "c", false, nil}, {"leave", "a", false, []string{"c"}}}},
		"Stranger":  {"who never began is done as well", []step{{"done", "x", false, nil}, {"may", "a", true, nil}}},
		"Slow":      {"who takes too long holds up nobody", []step{{"may", "a", true, nil}, {"may", "b", true, nil}, {"may", "c", false, nil}, {"may", "d", false, nil}, {"wait", "2m", false, []string{"c", "d"}}}},
		"SlowAgain": {"nor do those who come after them", []step{{"may", "a", true, nil}, {"may", "b", true, nil}, {"may", "c", false, nil}, {"may", "d", false, nil}, {"may", "e", false, nil}, {"wait", "90s", false, []string{"c", "d"}}, {"wait", "90s", false, []string{"e"}}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var turn []string
				b := &turns{most: most, next: func(kyma string) {
					mu.Lock()
					defer mu.Unlock()
					turn = append(turn, kyma)
				}}
				for i, s := range c.steps {
					mu.Lock()
					turn = nil
					mu.Unlock()
					switch s.do {
					case "may":
						if got := b.may(s.of); got != s.may {
							t.Errorf("%s: step %d: may(%s) = %t", c.reason, i, s.of, got)
						}
					case "done":
						b.done(s.of)
					case "leave":
						b.leave(s.of)
					case "wait":
						d, err := time.ParseDuration(s.of)
						if err != nil {
							t.Fatal(err)
						}
						time.Sleep(d)
						synctest.Wait()
					}
					mu.Lock()
					diff := cmp.Diff(s.turn, turn)
					mu.Unlock()
					if diff != "" {
						t.Errorf("%s: after step %d, -want +got:\n%s", c.reason, i, diff)
					}
				}
			})
		})
	}
}

// TestTurnsWithoutLimit: nobody waits.
func TestTurnsWithoutLimit(t *testing.T) {
	b := &turns{}
	for i := range 1000 {
		if !b.may(fmt.Sprint(i)) {
			t.Fatalf("%d have to wait", i)
		}
	}
	b.done("0")
}

// TestTurnsLeaveNobodyOut: each of many runtimes has its turn, and never are there more than allowed.
func TestTurnsLeaveNobodyOut(t *testing.T) {
	const most, all = 8, 1000
	var turn []string
	b := &turns{most: most, next: func(kyma string) { turn = append(turn, kyma) }}
	for i := range all {
		if name := fmt.Sprint(i); b.may(name) {
			turn = append(turn, name)
		}
	}
	worked := map[string]bool{}
	for len(turn) > 0 {
		if len(turn) > most {
			t.Fatalf("%d at the same time", len(turn))
		}
		one := turn[0]
		if turn = turn[1:]; !b.may(one) {
			t.Fatalf("it was the turn of %s", one)
		}
		worked[one] = true
		b.done(one)
	}
	if len(worked) != all || len(b.has)+len(b.waiting)+len(b.waits) > 0 {
		t.Errorf("%d of %d had their turn; %d are left", len(worked), all, len(b.has)+len(b.waiting))
	}
}
