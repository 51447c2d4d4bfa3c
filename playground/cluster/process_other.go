//go:build !linux

package cluster

import "syscall"

// dieWithParent does nothing: only Linux can do it. Elsewhere processes outlive a host that is killed; one that closes
// ends them all.
func dieWithParent(*syscall.SysProcAttr) {}
