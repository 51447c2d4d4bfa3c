package manager

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// How far the heap may grow over what lives before garbage is collected, in percent. With the 100 of Go, a roll-out takes a quarter more processor
// time than with the most. Less than the least would save memory at the price of a processor: with a limit of Go's own, an idle manager of 10,000
// runtimes that did not quite fit collected garbage all the time.
const (
	mostPercent  = 400
	leastPercent = 50
)

// memoryInterval is the time between two looks at what lives.
const memoryInterval = 5 * time.Second

// useMemory lets the process trade memory for processor time, up to target bytes, until the context ends; see config.Manager.MemoryTarget. 0 does nothing.
func useMemory(ctx context.Context, target int64) {
	if target <= 0 {
		return
	}
	percent := mostPercent
	debug.SetGCPercent(percent)
	go func() {
		ticker := time.NewTicker(memoryInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if next := percentFor(target, memoryNow()); next < percent*9/10 || next > percent*11/10 || next != percent && next == leastPercent {
				percent = next
				debug.SetGCPercent(percent)
			}
		}
	}()
}

// memoryUse is what the process takes, in bytes.
type memoryUse struct {
	live   int64 // objects that the last collection has found alive
	stacks int64 // of goroutines
	heap   int64 // objects, alive or not
	all    int64 // what the system has given, and was not given back
}

func memoryNow() memoryUse {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	value := func(i int) int64 { return int64(samples[i].Value.Uint64()) } //nolint:gosec // bytes of memory fit
	return memoryUse{live: value(0), stacks: value(1), heap: value(2) + value(5) + value(6), all: value(3) - value(4)}
}

// percentFor returns how far the heap may grow so that all fits into the target: what lives, as much again by the percentage of that and of the stacks, and
// what is no heap.
func percentFor(target int64, m memoryUse) int {
	grows := m.live + m.stacks
	if grows <= 0 {
		return mostPercent
	}
	room := target - m.live - max(m.all-m.heap, 0)
	return int(min(max(room*100/grows, leastPercent), mostPercent))
}
