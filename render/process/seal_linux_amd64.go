package process

import "golang.org/x/sys/unix"

// architecture is the number of the architecture in a seccomp filter.
const architecture = unix.AUDIT_ARCH_X86_64

// refusedOld are further refused system calls, which newer architectures do not have.
var refusedOld = []uint32{unix.SYS_OPEN, unix.SYS_CREAT, unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_UNLINK}
