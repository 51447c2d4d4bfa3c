// Package process renders charts and Kustomize directories in a separate process, so that an artefact can crash only
// this process.
//
// # Use
//
//	func main() {
//		runner := process.RunnerOrServe() // first: does not return in a process that was started to render
//		ctx := render.WithRunner(ctx, runner)
//		bundle, err := artefact.Render(ctx, settings, options)
//
// # How it works
//
// A template can recurse endlessly, allocate all memory, or never return. Go cannot recover from endless recursion or
// exhausted memory, and cannot stop a template that never returns. A Runner therefore starts the program of its own
// process again, with an argument that RunnerOrServe recognizes. The new process reads the artefact from its standard
// input, renders it, and writes the objects to its standard output. The new process renders one artefact and ends. The
// new process inherits no environment variables and no open files. The table below lists the limits of the new process
// and the platforms on which they apply. The new process sets the limits on itself before it reads the artefact, except
// for those on time and output, which the Runner enforces.
//
//	limit                                                    where
//	time: it is killed after Timeout                         everywhere
//	output: it is killed after MaxOutput bytes               everywhere
//	depth of recursion: a stack of 64 MiB                    everywhere
//	memory: Memory bytes more than at its start (RLIMIT_DATA)    Linux
//	no file, socket or pipe can be opened (RLIMIT_NOFILE 0)      Linux
//	no file grows, no core dump, bounded processor time          Linux
//	no new privileges                                            Linux
//	no program is started, no other process is signalled,
//	traced or limited (seccomp)                              Linux on amd64 and arm64, if the kernel allows the filter
//
// All Runners together run only one process at a time, because all processes share the memory limit of one container.
// If a process ends without a result, the error has reason RenderCrashed, RenderMemory or RenderTimeout.
//
// # What it does not do
//
// A Runner does not remember failures and does not retry. The package does not interpret the rendered content;
// render.HandleRenderRequest does that.
package process

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	_ "time/tzdata" // templates format dates, and no file can be opened

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// The defaults of a Runner.
const (
	DefaultTimeout   = 20 * time.Second
	DefaultMemory    = 512 << 20
	DefaultMaxOutput = render.DefaultMaxBytes + 1<<20
)

// argument is the first command-line argument of a process that renders. The second argument is the memory limit in
// bytes, and the third one is the limit of processor time in seconds.
const argument = "render-artefact"

// maxStack is the limit of the stack in bytes. The limit ends an endless recursion, and is much larger than the stack
// of less than 1 MiB that templates of real charts need.
const maxStack = 64 << 20

// maxErrors is how many bytes are read of the standard error of a process.
const maxErrors = 16 << 10

// Runner renders artefacts in processes that run the same program. The zero value has the default limits and is ready
// to use in a program that has called RunnerOrServe. The fields of a Runner must not be changed after its first use. A
// Runner is safe for concurrent use.
type Runner struct {
	// Timeout is the time after which a rendering is stopped; 0 means 20 s. The Timeout begins when the rendering
	// starts, and does not include the time in which it waits for another rendering.
	Timeout time.Duration
	// Memory is the memory in bytes that a rendering may use; 0 means 512 MiB.
	Memory int64
	// MaxOutput is the maximum size of the rendered objects as JSON, in bytes; 0 means 65 MiB.
	MaxOutput int64
}

// slot has an element while a process of a Runner runs.
var slot = make(chan struct{}, 1)

// servesRequests is true after the program has called RunnerOrServe. A program that never calls RunnerOrServe would run
// its normal function in the process that is to render, and could start itself again and again.
var servesRequests atomic.Bool

// RunnerOrServe returns a Runner with the default limits, which starts the program of this process. RunnerOrServe must
// be called at the start of main, or of TestMain in a test, before anything else happens. In a process that a Runner
// has started, RunnerOrServe renders an artefact and exits.
func RunnerOrServe() *Runner {
	servesRequests.Store(true)
	if len(os.Args) != 4 || os.Args[1] != argument {
		return &Runner{}
	}
	if err := serveRequest(os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, limitsFailed+err.Error())
		os.Exit(1)
	}
	os.Exit(0)
	return nil
}

// limitsFailed is the beginning of the standard error of a process that could not limit itself or could not
// communicate. An error that begins with limitsFailed is not caused by the artefact.
const limitsFailed = "cannot render: "

// serveRequest runs in the new process: it limits the process, reads a request and writes the response.
func serveRequest(memoryBytes, cpuSeconds string) error {
	bytes, err := strconv.ParseUint(memoryBytes, 10, 63)
	if err != nil {
		return err
	}
	cpu, err := strconv.ParseUint(cpuSeconds, 10, 32)
	if err != nil {
		return err
	}
	debug.SetMaxStack(maxStack)
	debug.SetMemoryLimit(int64(bytes))
	if err := sandboxProcess(bytes, cpu); err != nil {
		return err
	}
	request, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	ctx := context.Background() //nolint:forbidigo // this is the main of the process
	_, err = os.Stdout.Write(render.HandleRenderRequest(ctx, request))
	return err
}

// program returns the path of the running program, so that it can be started again. On Linux, the path leads to the
// program that is running, even if its file was replaced since its start.
func program() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// Run renders a request in a new process. If another process renders, Run waits until that process has ended.
func (r *Runner) Run(ctx context.Context, request []byte) ([]byte, error) {
	if !servesRequests.Load() {
		return nil, errors.New("rendering in a process of its own: this program does not call process.RunnerOrServe at " +
			"the start of its main function")
	}
	select {
	case slot <- struct{}{}:
		defer func() { <-slot }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	path, err := program()
	if err != nil {
		return nil, fmt.Errorf("finding the program that renders: %w", err)
	}
	timeout, memory := cmp.Or(r.Timeout, DefaultTimeout), cmp.Or(r.Memory, DefaultMemory)
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// The child process limits its own processor time, because it continues to run if its parent is killed.
	cpu := int64((timeout*4 + time.Second) / time.Second)
	c := exec.CommandContext(bounded, path, argument, //nolint:gosec // its own program
		strconv.FormatInt(memory, 10), strconv.FormatInt(cpu, 10))
	c.Env = []string{}
	c.Dir = string(os.PathSeparator)
	// WaitDelay limits how long the output is read after the process has ended, also if it has ended by itself: then
	// the pipes are closed and the rest is lost. WaitDelay is so long because the goroutines that read the output may
	// not run for seconds on a loaded machine, and a good result or the message of a crash must not be lost. A long
	// WaitDelay delays nothing: the process cannot start others, so its ends of the pipes are closed when it has ended
	// or was killed.
	c.WaitDelay = time.Minute
	out := &limited{left: cmp.Or(r.MaxOutput, DefaultMaxOutput), full: cancel}
	messages := &limited{left: maxErrors}
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(request), out, messages
	err = c.Run()
	// If the time is over before the process could be started, err is the error of bounded.
	if c.ProcessState == nil && !errors.Is(err, bounded.Err()) {
		return nil, fmt.Errorf("starting the process that renders: %w", err)
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case out.exceeded:
		return nil, renderError(render.ArchiveTooLarge, fmt.Sprintf(
			"the rendered objects have more than %d bytes: split the module", cmp.Or(r.MaxOutput, DefaultMaxOutput)))
	case bounded.Err() != nil:
		return nil, renderError(render.RenderTimeout, fmt.Sprintf(
			"it did not complete in %s and was stopped: simplify its templates", timeout))
	case err == nil:
		return out.stored.Bytes(), nil
	}
	return nil, exitError(c.ProcessState, messages.stored.String(), memory)
}

// exitError returns an error that states why the process has ended without a response.
func exitError(state *os.ProcessState, stderr string, memoryLimit int64) error {
	if text, ok := strings.CutPrefix(stderr, limitsFailed); ok {
		return fmt.Errorf("rendering in a process of its own: %s", strings.TrimSpace(text))
	}
	reason := ""
	for line := range strings.SplitSeq(stderr, "\n") {
		text, isFatal := strings.CutPrefix(line, "fatal error: ")
		if !isFatal {
			text, isFatal = strings.CutPrefix(line, "panic: ")
		}
		if isFatal {
			reason = text
			break
		}
	}
	switch {
	case strings.Contains(stderr, "ThreadSanitizer"): // in a build with the race detector, it fails to allocate first
		fallthrough
	case strings.Contains(stderr, "pthread_create failed"): // there is no memory for the stack of a thread
		fallthrough
	case strings.Contains(reason, "out of memory"), strings.Contains(reason, "cannot allocate memory"),
		wasKilled(state):
		return renderError(render.RenderMemory, fmt.Sprintf(
			"it needs more than %d MiB of memory and was stopped: make the results of its templates smaller",
			memoryLimit>>20))
	case reason == "stack overflow":
		return renderError(render.RenderCrashed,
			"its templates recurse without end, or a value contains itself: correct the templates")
	}
	return renderError(render.RenderCrashed, fmt.Sprintf(
		"the process that rendered it ended with %s: correct its templates", cmp.Or(reason, state.String())))
}

func renderError(reason, problem string) error {
	return &render.Error{Operation: "rendering the artefact", Code: reason, Problem: problem}
}

// limited is a writer that stores only the first bytes.
type limited struct {
	stored   bytes.Buffer
	left     int64
	exceeded bool
	full     func() // called when more bytes are written than are stored; nil: they are dropped
}

var errFull = errors.New("the output is too large")

// Write stores bytes.
func (l *limited) Write(b []byte) (int, error) {
	n := min(int64(len(b)), l.left)
	l.left -= n
	l.stored.Write(b[:n])
	if n == int64(len(b)) {
		return len(b), nil
	}
	l.exceeded = true
	if l.full == nil {
		return len(b), nil
	}
	l.full()
	return int(n), errFull
}
