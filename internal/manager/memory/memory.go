// Package memory adjusts the garbage collector of the process to a memory target.
//
// # Use
//
//	memory.StartGCTuning(ctx, targetBytes) // until ctx ends
//
// # How it works
//
// Every few seconds, the package measures the memory of the process. It then sets how far the heap may grow between two
// garbage collections, so that the process uses as much memory as the target allows.
//
// # What it does not do
//
// The target is not a limit: if the live objects of a process need more memory than the target, the process grows
// beyond the target.
package memory

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The following constants limit the growth of the heap between two garbage collections, in percent of the live objects,
// as in $GOGC. With GOGC=100, Go's default, a rollout takes a quarter more processor time than with maxPercent. With a
// value below minPercent, the process would need less memory, but would keep a processor busy with garbage collections.
// For example, with Go's own memory limit, set slightly too low, an idle manager of 10,000 runtimes collected garbage
// all the time.
const (
	maxPercent = 400
	minPercent = 50
)

// memoryInterval is the time between two measurements of the memory.
const memoryInterval = 5 * time.Second

// StartGCTuning lets the heap grow until the process uses as many bytes of memory as the parameter targetBytes allows.
// A larger heap needs fewer garbage collections, which saves processor time. StartGCTuning runs until the context ends;
// see config.Manager.MemoryTarget. If targetBytes is 0, StartGCTuning does nothing.
func StartGCTuning(ctx context.Context, targetBytes int64) {
	if targetBytes <= 0 {
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
			if next := gcPercent(targetBytes, measureMemory()); next < percent*9/10 || next > percent*11/10 ||
				next != percent && next == minPercent {
				percent = next
				debug.SetGCPercent(percent)
			}
		}
	}()
}

// memoryUse has the memory use of the process in bytes, by purpose.
type memoryUse struct {
	live   int64 // objects that were live at the last garbage collection
	stacks int64 // of goroutines
	heap   int64 // all objects, live or not
	all    int64 // obtained from the operating system and not returned
}

// measureMemory returns the current memory use of the process.
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

// gcPercent returns the growth of the heap, in percent of live objects and stacks, that the target allows. Live
// objects, their growth, and all memory outside of the heap together have to fit into the target.
func gcPercent(targetBytes int64, m memoryUse) int {
	grows := m.live + m.stacks
	if grows <= 0 {
		return maxPercent
	}
	room := targetBytes - m.live - max(m.all-m.heap, 0)
	return int(min(max(room*100/grows, minPercent), maxPercent))
}
