package main

import (
	"os"
	"runtime"
	"strings"
	"time"
)

// thisMachine describes the machine that runs the benchmark.
func thisMachine(now time.Time) Machine {
	m := Machine{Processor: runtime.GOARCH, CPUs: runtime.NumCPU(), System: runtime.GOOS, Go: runtime.Version(),
		Began: now.UTC().Format(time.RFC3339)}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
				m.Processor = strings.TrimSpace(value)
				break
			}
		}
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		m.Memory = parseStatusBytes(string(text), "MemTotal")
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += " " + strings.TrimSpace(string(text))
	}
	return m
}
