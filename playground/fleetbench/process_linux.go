package main

import (
	"syscall"
	"time"
)

// childProcessAttributes returns attributes that make a child end with this process, even if this process is killed.
// The child does not receive the signals of our terminal.
func childProcessAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// threadCPUTime returns the processor time of this thread.
func threadCPUTime() time.Duration {
	const thisThread = 1
	var u syscall.Rusage
	if err := syscall.Getrusage(thisThread, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
