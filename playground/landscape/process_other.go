//go:build !linux

package landscape

import "syscall"

// diesWithUs keeps a child out of our terminal's signals; it is stopped by Close.
func diesWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
