// Package memory adjusts the garbage collector of the process to a memory target.
//
// # Use
//
//	memory.StartGCTuning(ctx, targetBytes) // until ctx ends
//
// # How it works
//
// Every few seconds, the package measures the memory of the process. It then sets how far the heap may grow between two
// garbage collections, so that the process uses as much memory as the target allows. Free memory between live objects,
// and memory that Go keeps for later, is not part of the heap: with 50,000 modules, it was 300 MiB. Therefore the
// package also sets Go's memory limit to the target: near this limit, Go returns free memory to the operating system
// before it takes more.
//
// # What it does not do
//
// The target is not a limit: if the live objects of a process need more memory than the target, the process grows
// beyond the target, because Go's memory limit grows with the live objects. Parts of the program file that are in
// memory are not counted; for the manager, these are about 65 MiB.
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
// For example, with a fixed memory limit that was slightly too low, an idle manager of 10,000 runtimes collected
// garbage all the time. Therefore the memory limit always leaves room for a growth by minPercent.
const (
	maxPercent = 400
	minPercent = 50
	// fragmentPercent is the free memory between live objects, in percent of the live objects, for which the memory
	// limit leaves room. With 50,000 modules, 15 to 30 percent were measured.
	fragmentPercent = 30
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
	percent, limit := maxPercent, targetBytes
	debug.SetGCPercent(percent)
	debug.SetMemoryLimit(limit)
	go func() {
		ticker := time.NewTicker(memoryInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			m := measureMemory()
			if next := memoryLimit(targetBytes, m); next != limit {
				limit = next
				debug.SetMemoryLimit(limit)
			}
			if next := gcPercent(targetBytes, m); next < percent*9/10 || next > percent*11/10 ||
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

// memoryLimit returns Go's memory limit in bytes: the target, or more if the live objects need more.
func memoryLimit(targetBytes int64, m memoryUse) int64 {
	needed := m.live + (m.live+m.stacks)*minPercent/100 + m.live*fragmentPercent/100 + max(m.all-m.heap, 0)
	return max(targetBytes, needed)
}
