//go:build !linux

package landscape

import "syscall"

// endsWithParent returns attributes with which a child process does not receive the signals of our terminal. Close
// stops the child process.
func endsWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
