//go:build linux && !amd64 && !arm64

package process

// architecture 0 means that there is no seccomp filter.
const architecture = 0

// refusedOld are further refused system calls, which newer architectures do not have.
var refusedOld []uint32
