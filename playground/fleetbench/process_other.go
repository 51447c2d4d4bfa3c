//go:build !linux

package main

import "syscall"

// diesWithUs keeps a child out of our terminal's signals.
func diesWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
