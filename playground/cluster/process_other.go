//go:build !linux

package cluster

import "syscall"

// dieWithParent does nothing, because only Linux can end a process together with its parent. On other systems,
// processes continue to run if the host is killed. If the host is closed, it ends all of them.
func dieWithParent(*syscall.SysProcAttr) {}
