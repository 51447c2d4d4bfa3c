package queueing

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestUrgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := NewUrgent()
		if u.Is("a") || u.Any() {
			t.Error("a runtime is urgent that was never marked")
		}
		u.Mark("a")
		if !u.Is("a") || !u.Any() || u.Is("b") {
			t.Errorf("a is urgent: %t, b: %t; want only a", u.Is("a"), u.Is("b"))
		}
		u.Clear("a")
		if u.Is("a") || u.Any() {
			t.Error("a cleared runtime is urgent")
		}
		u.Mark("a")
		time.Sleep(UrgentTimeout / 2)
		u.Mark("a") // does not extend it
		if !u.Is("a") || !u.Any() {
			t.Error("the runtime is not urgent after half of the timeout")
		}
		u.Mark("b")
		time.Sleep(UrgentTimeout / 2)
		if u.Is("a") || !u.Any() {
			t.Errorf("after the timeout of one of two, it is urgent: %t, any: %t", u.Is("a"), u.Any())
		}
		time.Sleep(UrgentTimeout / 2)
		if u.Any() || len(u.marked) > 0 {
			t.Errorf("after the timeout of both, a runtime is urgent, or %v are kept", u.marked)
		}
	})
}

// TestUrgentBudget checks that a runtime cannot be urgent all the time, and that it does not take the urgency of other
// runtimes.
func TestUrgentBudget(t *testing.T) {
	const hour, interval = time.Hour, 100 * time.Millisecond
	cases := map[string]struct {
		reason   string
		mark     func(u *Urgent) // is called once in each interval, for an hour
		maxMarks int
		// maxUrgent is the maximum number of intervals at whose end a runtime is urgent, of 36,000
		maxUrgent int
	}{
		"Cleared": {"each change is handled at once", func(u *Urgent) {
			u.Mark("a")
			time.Sleep(interval / 2)
			u.Clear("a")
			time.Sleep(interval / 2)
		}, 52, 0},
		"Edited": {"each change is handled before the next one", func(u *Urgent) {
			u.Clear("a")
			u.Mark("a")
			time.Sleep(interval)
		}, 52, 52},
		// 40 tokens at once and 11 more in 55 minutes, and the last mark may exceed them by 7 tokens of 15 seconds
		"NeverReady": {"the runtime has always new changes", func(u *Urgent) {
			u.Mark("a")
			time.Sleep(interval)
		}, 8, (40 + 11 + 7) * 150},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := NewUrgent()
				marks, urgent := 0, 0
				changed := u.Changed()
				for begin := time.Now(); time.Since(begin) < hour; {
					c.mark(u)
					if now := u.Changed(); now != changed {
						marks, changed = marks+1, now
					}
					if u.Any() {
						urgent++
					}
				}
				if marks < 5 || marks > c.maxMarks || urgent > c.maxUrgent {
					t.Errorf("%s: %d marks, want at most %d; urgent at %d times, want at most %d of 36,000", c.reason,
						marks, c.maxMarks, urgent, c.maxUrgent)
				}
				u.Clear("a")
				for range urgentBurst { // takes the tokens that are left
					u.Mark("a")
					u.Clear("a")
				}
				u.Mark("a")
				if u.Is("a") || u.Any() {
					t.Error("the runtime is urgent without a token")
				}
				if !u.Mark("b") || !u.Is("b") {
					t.Error("the first change of another runtime is not urgent")
				}
				u.Clear("b")
				time.Sleep(2 * urgentBurst * urgentTokenInterval) // also for the tokens that it owes
				for range urgentBurst {
					if !u.Mark("a") {
						t.Fatal("the runtime does not get its tokens back")
					}
					u.Clear("a")
				}
			})
		})
	}
}

func TestUrgentChanged(t *testing.T) {
	u := NewUrgent()
	isClosed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	before := u.Changed()
	u.Mark("a")
	after := u.Changed()
	u.Mark("a") // is marked already
	if !isClosed(before) || isClosed(after) {
		t.Errorf("closed by the first mark: %t, by the second: %t; want only by the first",
			isClosed(before), isClosed(after))
	}
}

func TestUrgentContext(t *testing.T) {
	u := NewUrgent()
	ctx := u.Context(t.Context(), "a")
	if IsUrgent(ctx) || IsUrgent(t.Context()) {
		t.Error("work is urgent without a mark")
	}
	u.Mark("a")
	if !IsUrgent(ctx) || IsUrgent(u.Context(t.Context(), "b")) {
		t.Error("a mark counts for the work that is under way, and for no other runtime")
	}
}

// TestRequeuePriority checks that a request has the priority of class Person only while a person waits.
func TestRequeuePriority(t *testing.T) {
	u := NewUrgent()
	want := func(kyma string, class Class) {
		t.Helper()
		if got := *u.RequeuePriority(kyma); got != class.Priority() {
			t.Errorf("priority %d, want that of %s", got, class)
		}
	}
	want("a", Retry)
	u.Mark("a")
	want("a", Person)
	want("b", Retry)
	u.Clear("a")
	want("a", Retry)
}

// BenchmarkAny calls Any while persons wait for many runtimes. The time should not depend on the number of runtimes.
func BenchmarkAny(b *testing.B) {
	for _, marked := range []int{1, 1000, 10000} {
		b.Run(fmt.Sprint(marked), func(b *testing.B) {
			u := NewUrgent()
			for i := range marked {
				u.Mark(fmt.Sprint(i))
			}
			for b.Loop() {
				if !u.Any() {
					b.Fatal("no runtime is urgent")
				}
			}
		})
	}
}
