package landscape

import "syscall"

// endsWithParent returns attributes with which a child process ends when this process ends, even if this process is
// killed.
func endsWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
