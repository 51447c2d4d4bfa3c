package main

import (
	"syscall"
	"time"
)

// diesWithUs returns attributes that make a child end with this process, even if this process is killed. The child does
// not receive the signals of our terminal.
func diesWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// threadTime returns the processor time of this thread.
func threadTime() time.Duration {
	const thisThread = 1
	var u syscall.Rusage
	if err := syscall.Getrusage(thisThread, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
