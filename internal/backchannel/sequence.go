package backchannel

import "slices"

// maxSpans bounds what a ledger holds of numbers that came too early. An agent sends a few events at a time, so that few are ahead.
const maxSpans = 16

// ledger knows which events of one life of an agent were seen here.
type ledger struct {
	boot string
	// done: every number up to it is accounted for.
	done uint64
	// ahead are the numbers beyond that were seen: in order, apart from each other and from done, at most maxSpans.
	ahead []span
	// skipped begins with the first and ends with the last number that was given up because ahead was full: some in between were seen. Zero
	// if there is none.
	skipped span
}

// span is a run of numbers, both ends included.
type span struct{ from, to uint64 }

// see records that event n has arrived, maybe again. 0 is no number.
func (l *ledger) see(n uint64) {
	if n <= l.done {
		return
	}
	// at is the first span that ends at n, right before it, or later.
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

// settle records that the agent has had answers to all events up to sequence. It tells whether some of them were not seen here, and
// takes them for seen: what is missed is missed once.
func (l *ledger) settle(sequence uint64) (missed bool) {
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

// absorb moves done to the end of what follows it without a hole.
func (l *ledger) absorb() {
	n := 0
	for ; n < len(l.ahead) && l.ahead[n].from-1 <= l.done; n++ {
		l.done = max(l.done, l.ahead[n].to)
	}
	l.ahead = slices.Delete(l.ahead, 0, n)
}
