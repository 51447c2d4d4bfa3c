package main

import (
	"syscall"
	"time"
)

// diesWithUs lets a child end when we do, even when we are killed, and keeps it out of our terminal's signals.
func diesWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// threadTime is the processor time of this thread.
func threadTime() time.Duration {
	const thisThread = 1
	var u syscall.Rusage
	if err := syscall.Getrusage(thisThread, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
