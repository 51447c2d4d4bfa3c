package process

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sandboxProcess sets the limits of this process permanently.
func sandboxProcess(memoryBytes, cpuSeconds uint64) error {
	time.NewTimer(time.Hour).Stop() // the first timer opens files, which is not possible afterwards
	base, err := dataSegmentBytes()
	if err != nil {
		return err
	}
	for _, l := range []struct {
		name  string
		what  int
		value uint64
	}{
		{"memory", unix.RLIMIT_DATA, base + memoryBytes},
		{"processor time", unix.RLIMIT_CPU, cpuSeconds},
		{"core dumps", unix.RLIMIT_CORE, 0},
		{"sizes of files", unix.RLIMIT_FSIZE, 0},
		{"open files", unix.RLIMIT_NOFILE, 0},
	} {
		if err := unix.Setrlimit(l.what, &unix.Rlimit{Cur: l.value, Max: l.value}); err != nil {
			return fmt.Errorf("limiting %s: %w", l.name, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}
	// An error of installSeccompFilter is ignored, because a container may forbid seccomp filters. Even without the
	// filter, the process cannot open files and sockets.
	_ = installSeccompFilter()
	return nil
}

// dataSegmentBytes returns how much memory counts towards RLIMIT_DATA at present.
func dataSegmentBytes() (uint64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("reading the memory of the process: %w", err)
	}
	fields := strings.Fields(string(text))
	if len(fields) < 6 {
		return 0, fmt.Errorf("reading the memory of the process: %q", text)
	}
	pages, err := strconv.ParseUint(fields[5], 10, 40)
	return pages * uint64(os.Getpagesize()), err //nolint:gosec // a page has a few kB
}

// refusedCalls are system calls that fail with EPERM: they start programs, reach other processes or the network, or
// open files. The limit RLIMIT_NOFILE already prevents the calls that reach the network or open files.
var refusedCalls = append([]uint32{
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
	unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO, unix.SYS_PRLIMIT64,
	unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_SETPRIORITY, unix.SYS_SCHED_SETAFFINITY,
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_SENDTO,
	unix.SYS_IO_URING_SETUP, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_UNSHARE,
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_UNLINKAT, unix.SYS_MKDIRAT, unix.SYS_MOUNT, unix.SYS_CHROOT,
}, refusedOld...)

// installSeccompFilter installs a seccomp filter for all threads of this process.
func installSeccompFilter() error {
	const (
		allow  = 0x7fff0000                      // SECCOMP_RET_ALLOW
		refuse = 0x00050000 | uint32(unix.EPERM) // SECCOMP_RET_ERRNO
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atMin  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		result = unix.BPF_RET | unix.BPF_K
		x32    = 0x40000000 // from here, numbers on amd64 are calls of another ABI
	)
	if architecture == 0 {
		return unix.ENOSYS
	}
	calls := refusedCalls
	n := len(calls)
	program := make([]unix.SockFilter, 0, n+6)
	program = append(program,
		unix.SockFilter{Code: load, K: 4},                               // the architecture
		unix.SockFilter{Code: equal, K: architecture, Jf: uint8(n + 3)}, //nolint:gosec // few calls
		unix.SockFilter{Code: load, K: 0},                               // the number of the call
		unix.SockFilter{Code: atMin, K: x32, Jt: uint8(n + 1)})          //nolint:gosec // few calls
	for i, call := range calls {
		program = append(program, unix.SockFilter{Code: equal, K: call, Jt: uint8(n - i)}) //nolint:gosec // few calls
	}
	program = append(program, unix.SockFilter{Code: result, K: allow}, unix.SockFilter{Code: result, K: refuse})
	argument := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]} //nolint:gosec // few calls
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&argument))) //nolint:gosec // the system call takes a pointer
	runtime.KeepAlive(program)
	if errno != 0 {
		return errno
	}
	return nil
}

// wasKilled reports whether the system has killed a process. The system kills a process if the memory of the container
// is used up.
func wasKilled(state *os.ProcessState) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
