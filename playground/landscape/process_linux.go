package landscape

import "syscall"

// diesWithUs lets a child end when we do, even when we are killed.
func diesWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
