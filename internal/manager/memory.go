package manager

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Limits of the growth of the heap over the live objects before the garbage collector runs, in percent, as in $GOGC.
// With the 100 of Go, a rollout takes a quarter more processor time than with the maximum. Less than the minimum would
// save memory but keep a processor busy: with Go's own memory limit, an idle manager of 10,000 runtimes that did not
// quite fit collected garbage all the time.
const (
	maxPercent = 400
	minPercent = 50
)

// memoryInterval is the time between two measurements of the memory.
const memoryInterval = 5 * time.Second

// adjustGarbageCollector makes the garbage collector use memory up to target bytes to save processor time, until the
// context ends; see config.Manager.MemoryTarget. 0 does nothing.
func adjustGarbageCollector(ctx context.Context, target int64) {
	if target <= 0 {
		return
	}
	percent := maxPercent
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
			if next := percentFor(target, measureMemory()); next < percent*9/10 || next > percent*11/10 ||
				next != percent && next == minPercent {
				percent = next
				debug.SetGCPercent(percent)
			}
		}
	}()
}

// memoryUse is the memory of the process in bytes.
type memoryUse struct {
	live   int64 // objects that were live at the last collection
	stacks int64 // of goroutines
	heap   int64 // all objects, live or not
	all    int64 // from the operating system, and not returned
}

// measureMemory returns the current memory of the process.
func measureMemory() memoryUse {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	value := func(i int) int64 { return int64(samples[i].Value.Uint64()) } //nolint:gosec // bytes of memory fit
	return memoryUse{live: value(0), stacks: value(1), heap: value(2) + value(5) + value(6), all: value(3) - value(4)}
}

// percentFor returns by how many percent of live objects and stacks the heap can grow so that live objects, growth, and
// all memory outside of the heap fit into the target.
func percentFor(target int64, m memoryUse) int {
	grows := m.live + m.stacks
	if grows <= 0 {
		return maxPercent
	}
	room := target - m.live - max(m.all-m.heap, 0)
	return int(min(max(room*100/grows, minPercent), maxPercent))
}
