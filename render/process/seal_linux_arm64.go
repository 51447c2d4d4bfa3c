package process

import "golang.org/x/sys/unix"

// architecture is the number of the architecture in a seccomp filter.
const architecture = unix.AUDIT_ARCH_AARCH64

// refusedOld are further refused system calls, which newer architectures do not have.
var refusedOld []uint32
