package process

import "golang.org/x/sys/unix"

// architecture is the number of the architecture in a seccomp filter.
const architecture = unix.AUDIT_ARCH_AARCH64

// refusedOld is empty on arm64, because this architecture does not have the old system calls, such as open and fork.
var refusedOld []uint32
