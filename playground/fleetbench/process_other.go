//go:build !linux

package main

import (
	"syscall"
	"time"
)

// childProcessAttributes returns attributes for a child process, which then does not receive the signals of our
// terminal. On this system, a child cannot be made to end when this process is killed.
func childProcessAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// threadCPUTime returns the processor time of this process, because this system does not provide the time of a thread.
func threadCPUTime() time.Duration { return processCPUTime() }
