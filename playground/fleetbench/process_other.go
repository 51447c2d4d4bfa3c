//go:build !linux

package main

import (
	"syscall"
	"time"
)

// diesWithUs keeps a child out of our terminal's signals.
func diesWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// threadTime is not to be had here; that of the process stands for it.
func threadTime() time.Duration { return ownTime() }
