//go:build !linux

package cluster

import "syscall"

// dieWithParent does nothing, because only Linux can end a process together with its parent. On other systems,
// processes continue to run if the host is killed. Instead, the host ends all processes when it is closed.
func dieWithParent(*syscall.SysProcAttr) {}
