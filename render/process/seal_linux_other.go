//go:build linux && !amd64 && !arm64

package process

// architecture 0 means that there is no seccomp filter.
const architecture = 0

// refusedOld is empty, because there is no seccomp filter on these architectures.
var refusedOld []uint32
