package landscape

import "syscall"

// endsWithParent lets a child end when we do, even when we are killed.
func endsWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
