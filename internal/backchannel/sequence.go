package backchannel

import "slices"

// maxSpans limits the spans that a sequenceLog holds of numbers that arrived early. An agent sends few events
// concurrently, so few are ahead.
const maxSpans = 16

// sequenceLog records which events of one boot of an agent were received.
type sequenceLog struct {
	boot string
	// done is the number up to which all events are accounted for.
	done uint64
	// ahead are later numbers that were received: ordered, disjoint, not adjacent, at most maxSpans.
	ahead []span
	// skipped spans the numbers that were given up because ahead was full; some in between were received. Zero if there
	// are none.
	skipped span
}

// span is a range of numbers, both ends included.
type span struct{ from, to uint64 }

// add records that event n was received, possibly again. 0 is not a number.
func (l *sequenceLog) add(n uint64) {
	if n <= l.done {
		return
	}
	// at is the first span that ends at n, directly before it, or later.
	at, _ := slices.BinarySearchFunc(l.ahead, n, func(s span, n uint64) int {
		if s.to < n-1 {
			return -1
		}
		return 1
	})
	if at < len(l.ahead) && l.ahead[at].from-1 <= n {
		s := &l.ahead[at]
		s.from, s.to = min(s.from, n), max(s.to, n)
		if at+1 < len(l.ahead) && l.ahead[at+1].from-1 == s.to {
			s.to = l.ahead[at+1].to
			l.ahead = slices.Delete(l.ahead, at+1, at+2)
		}
	} else {
		l.ahead = slices.Insert(l.ahead, at, span{n, n})
	}
	l.absorb()
	if len(l.ahead) > maxSpans {
		if l.skipped.from == 0 {
			l.skipped.from = l.done + 1
		}
		l.done = l.ahead[0].from - 1
		l.skipped.to = l.done
		l.absorb()
	}
}

// acknowledge records that the agent has received responses to all events up to sequence. It reports whether some of
// them were not received here, and counts them as received, so that a missed event is reported once.
func (l *sequenceLog) acknowledge(sequence uint64) (missed bool) {
	missed = sequence > l.done
	if l.skipped.from > 0 && l.skipped.from <= sequence {
		missed = true
		l.skipped.from = sequence + 1
	}
	if l.skipped.to <= sequence {
		l.skipped = span{}
	}
	l.done = max(l.done, sequence)
	l.absorb()
	return missed
}

// absorb advances done over the spans that follow it without a gap.
func (l *sequenceLog) absorb() {
	n := 0
	for ; n < len(l.ahead) && l.ahead[n].from-1 <= l.done; n++ {
		l.done = max(l.done, l.ahead[n].to)
	}
	l.ahead = slices.Delete(l.ahead, 0, n)
}
