package main

import "syscall"

// diesWithUs lets a child end when we do, even when we are killed, and keeps it out of our terminal's signals.
func diesWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
