//go:build !linux

package landscape

import "syscall"

// endsWithParent keeps a child out of our terminal's signals; it is stopped by Close.
func endsWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
