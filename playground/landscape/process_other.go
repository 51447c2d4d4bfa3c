//go:build !linux

package landscape

import "syscall"

// childProcessAttributes returns attributes for a child process, which then does not receive the signals of our
// terminal. On this system, a child does not end when its parent is killed: only CloseAndRemoveDir stops it.
func childProcessAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
