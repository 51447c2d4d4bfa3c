package cluster

import "syscall"

// dieWithParent makes the operating system kill a process when the thread that started it ends.
func dieWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }
