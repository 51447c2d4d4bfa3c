package landscape

import "syscall"

// childProcessAttributes returns attributes with which a child process ends when this process ends, even if this
// process is killed.
func childProcessAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
