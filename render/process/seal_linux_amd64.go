package process

import "golang.org/x/sys/unix"

// architecture is the number of the architecture in a seccomp filter.
const architecture = unix.AUDIT_ARCH_X86_64

// refusedOld lists old system calls that the seccomp filter also refuses. Newer architectures do not have these system
// calls.
var refusedOld = []uint32{unix.SYS_OPEN, unix.SYS_CREAT, unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_UNLINK}
