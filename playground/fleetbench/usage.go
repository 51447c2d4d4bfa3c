package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage is the resource usage of a process, from /proc.
type usage struct {
	cpu       time.Duration // user and system
	rss, peak int64         // bytes; peak is the maximum since forgetPeak was called
	sockets   int
}

// clockTick is the unit of /proc/PID/stat on every Linux.
const clockTick = 10 * time.Millisecond

// cpuAndMemoryOf reads the usage of a process, without its sockets.
func cpuAndMemoryOf(pid int) (u usage, err error) {
	failed := func(err error) (usage, error) { return u, fmt.Errorf("reading what process %d uses: %w", pid, err) }
	folder := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(folder + "/stat") //nolint:gosec // made of a number
	if err != nil {
		return failed(err)
	}
	if u.cpu, err = parseStat(string(stat)); err != nil {
		return failed(err)
	}
	status, err := os.ReadFile(folder + "/status") //nolint:gosec // as above
	if err != nil {
		return failed(err)
	}
	u.rss, u.peak = parseStatusBytes(string(status), "VmRSS"), parseStatusBytes(string(status), "VmHWM")
	return u, nil
}

// socketsOf returns the number of open sockets of a process. socketsOf returns 0 if the number is not available.
func socketsOf(pid int) (n int) {
	folder := "/proc/" + strconv.Itoa(pid) + "/fd"
	fds, _ := os.ReadDir(folder)
	for _, fd := range fds {
		if target, err := os.Readlink(filepath.Join(folder, fd.Name())); err == nil &&
			strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}

// parseStat returns the processor time from the text of /proc/PID/stat. The second field of the text is a name that may
// contain any character.
func parseStat(text string) (time.Duration, error) {
	_, rest, found := strings.Cut(text[max(0, strings.LastIndex(text, ")")):], ") ")
	fields := strings.Fields(rest)
	if !found || len(fields) < 13 {
		return 0, fmt.Errorf("%q is not what is expected in stat", text)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading stat: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// parseStatusBytes returns a value from the text of /proc/PID/status, in bytes. parseStatusBytes returns 0 if the value
// is missing.
func parseStatusBytes(text, name string) int64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return n << 10
		}
	}
	return 0
}

// forgetPeak resets the peak memory of a process. Where that is not allowed, the peak is the maximum since the process
// started.
func forgetPeak(pid int) {
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/clear_refs", []byte("5"), 0o600)
}

// processCPUTime returns the processor time of this process.
func processCPUTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
