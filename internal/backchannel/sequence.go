package backchannel

import "slices"

// maxSpans is the maximum number of ranges in sequenceLog.ahead, which records events that arrived before events with
// smaller sequence numbers. An agent sends only a few events concurrently, so only a few can arrive in the wrong order.
const maxSpans = 16

// sequenceLog records which sequence numbers of events were received from one process of an agent.
type sequenceLog struct {
	boot string
	// All events with sequence numbers up to the field "done" were received, or count as received because another
	// replica received them or their loss was already reported.
	done uint64
	// The field "ahead" contains the received sequence numbers that are greater than the field "done", as at most
	// maxSpans ranges. The ranges are ordered, do not overlap and are not adjacent.
	ahead []span
	// The field "skipped" is a range of sequence numbers that count as received although some of their events were not
	// received, because ahead had no space for more ranges. If skipped is zero, no number was skipped.
	skipped span
}

// span is a range of sequence numbers that includes both ends.
type span struct{ from, to uint64 }

// add records that the event with sequence number n (1 or higher) was received. add may be called several times for one
// event.
func (l *sequenceLog) add(n uint64) {
	if n <= l.done {
		return
	}
	// l.ahead[at] is the first range that does not end before n-1: it contains n, borders on n, or begins after n.
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
	l.advance()
	if len(l.ahead) > maxSpans {
		if l.skipped.from == 0 {
			l.skipped.from = l.done + 1
		}
		l.done = l.ahead[0].from - 1
		l.skipped.to = l.done
		l.advance()
	}
}

// acknowledge records that the agent has received responses to all events up to a sequence number. acknowledge returns
// true if this replica has not received some of the acknowledged events. After acknowledge, all events up to this
// sequence number count as received, so that a missed event is reported only once.
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
	l.advance()
	return missed
}

// advance moves ranges from the field "ahead" to the field "done": as long as the first range follows done without a
// gap, done becomes the end of this range.
func (l *sequenceLog) advance() {
	n := 0
	for ; n < len(l.ahead) && l.ahead[n].from-1 <= l.done; n++ {
		l.done = max(l.done, l.ahead[n].to)
	}
	l.ahead = slices.Delete(l.ahead, 0, n)
}
