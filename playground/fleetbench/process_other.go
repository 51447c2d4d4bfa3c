//go:build !linux

package main

import (
	"syscall"
	"time"
)

// diesWithUs returns attributes that keep the signals of our terminal away from a child.
func diesWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// threadTime returns the processor time of this process, because this system does not provide the time of a thread.
func threadTime() time.Duration { return ownTime() }
