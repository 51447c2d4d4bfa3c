package cluster

import "syscall"

// dieWithParent has the system kill a process when the thread that started it ends.
func dieWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }
