package manager

import "runtime/debug"

// gcPercent is how far the heap may grow over what lives, below the memory target. With the 100 of Go, a roll-out takes a quarter more processor time.
const gcPercent = 400

// useMemory lets the process trade memory for processor time, up to target bytes; see config.Manager.MemoryTarget. 0 does nothing.
func useMemory(target int64) {
	if target > 0 {
		debug.SetGCPercent(gcPercent)
		debug.SetMemoryLimit(target)
	}
}
