package backchannel

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestSequenceLog(t *testing.T) {
	type step struct {
		see    []uint64 // events, in this order
		settle uint64   // then a heartbeat that acknowledges this number
		missed bool
	}
	cases := map[string]struct {
		reason string
		begin  uint64
		steps  []step
	}{
		"InOrder":     {"nothing is missing", 0, []step{{[]uint64{1, 2, 3}, 3, false}, {nil, 3, false}}},
		"OutOfOrder":  {"they overtake each other", 0, []step{{[]uint64{3, 1, 2}, 3, false}}},
		"Twice":       {"sent again", 0, []step{{[]uint64{1, 1, 2, 1}, 2, false}}},
		"LastMissing": {"missed once", 0, []step{{[]uint64{1}, 2, true}, {nil, 2, false}}},
		"Hole":        {"one in between", 0, []step{{[]uint64{1, 3}, 3, true}, {nil, 3, false}}},
		"HoleLater": {"a hole beyond what the heartbeat speaks of may still be filled", 0,
			[]step{{[]uint64{1, 3}, 1, false}, {[]uint64{2}, 3, false}}},
		"LateHole":   {"or not", 0, []step{{[]uint64{1, 3}, 1, false}, {nil, 3, true}}},
		"AllMissing": {"nothing came", 0, []step{{nil, 5, true}, {[]uint64{5}, 5, false}}},
		"FirstTaken": {"what was before the first contact is not ours", 7,
			[]step{{nil, 7, false}, {[]uint64{8}, 8, false}}},
		"OldOnes":  {"an old one again", 7, []step{{[]uint64{3, 8}, 8, false}}},
		"GoesBack": {"a heartbeat that was overtaken", 0, []step{{[]uint64{1, 2, 3}, 2, false}, {nil, 3, false}}},
		"Zero":     {"no number", 0, []step{{[]uint64{0}, 0, false}}},
		"Largest": {"a liar harms himself", 0, []step{{[]uint64{math.MaxUint64}, 0, false},
			{nil, math.MaxUint64, true}, {[]uint64{1, math.MaxUint64}, math.MaxUint64, false}}},
		"ManyHoles": {"too many to be known are still missed", 0, []step{{everySecond(4 * maxSpans), 0, false},
			{nil, 8 * maxSpans, true}, {nil, 8 * maxSpans, false}}},
		"ManyEarly": {"what was given up counts once the heartbeat speaks of it", 0,
			[]step{{everySecond(4 * maxSpans), 1, true}, {nil, 8 * maxSpans, true}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l := sequenceLog{done: c.begin}
			for i, s := range c.steps {
				for _, n := range s.see {
					l.add(n)
				}
				if got := l.acknowledge(s.settle); got != s.missed {
					t.Errorf("%s: step %d: missed is %t, want %t (%+v)", c.reason, i, got, s.missed, l)
				}
			}
			if len(l.ahead) > maxSpans {
				t.Errorf("it holds %d spans", len(l.ahead))
			}
		})
	}
}

// everySecond returns a list of every second sequence number: the first n even numbers 2, 4, 6, …
func everySecond(n int) []uint64 {
	var list []uint64
	for i := range n {
		list = append(list, uint64(2*i+2))
	}
	return list
}

// TestSequenceLogModel compares sequenceLog with a simple model: the set of all sequence numbers of received events. If
// the received sequence numbers have few gaps, sequenceLog and the model must report the same missed events. If the
// received sequence numbers have many gaps, sequenceLog must still report every missed event.
func TestSequenceLogModel(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		var l sequenceLog
		seen, settled, next := map[uint64]bool{}, uint64(0), uint64(1)
		exact := true
		for range 200 {
			if random.IntN(8) > 0 {
				n := next
				if random.IntN(3) == 0 {
					n = next - min(next-1, random.Uint64N(6)) // again, or late
				}
				if random.IntN(10) > 0 {
					l.add(n)
					seen[n] = true
				}
				next = max(next, n+1+random.Uint64N(2))
				exact = exact && l.skipped == (span{})
				continue
			}
			say := random.Uint64N(next)
			want := false
			for n := settled + 1; n <= say; n++ {
				want = want || !seen[n]
			}
			settled = max(settled, say)
			if got := l.acknowledge(say); got != want && (exact || want) {
				t.Fatalf("seed %d: acknowledge(%d) is %t, want %t: %+v", seed, say, got, want, l)
			}
		}
		for i, s := range l.ahead {
			if s.from > s.to || s.from-1 <= l.done || i > 0 && s.from-1 <= l.ahead[i-1].to {
				t.Fatalf("seed %d: spans overlap or touch: %+v", seed, l)
			}
		}
	}
}
