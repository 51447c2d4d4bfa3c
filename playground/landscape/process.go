package landscape

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
)

// discard is a logger that discards its messages.
var discard = log.New(io.Discard, "", 0)

// stopTimeout is the time after which Stop kills a process. The manager may use 10 s of it itself, and a busy machine a
// multiple of that. Only a process that hangs uses all of it.
const stopTimeout = 10 * time.Minute

// Process is a child process.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	err  error         // result of the process; read only after done is closed

	asked atomic.Bool // whether Stop or Kill was called
}

// start starts a program with additional environment variables and its output in log. The process ends with its parent.
func start(path string, args, env []string, log *os.File) (*Process, error) {
	//nolint:gosec // the caller built this program
	p := &Process{cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = childProcessAttributes()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", path, errors.Join(err, log.Close()))
	}
	go func() {
		p.err = errors.Join(p.cmd.Wait(), log.Close())
		close(p.done)
	}()
	return p, nil
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns the error with which the process has ended. Err returns nil if the process succeeded or has not ended
// yet.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// IsStopRequested reports whether Stop or Kill was called for the process. If IsStopRequested returns true, the end of
// the process is expected and is not an error.
func (p *Process) IsStopRequested() bool { return p.asked.Load() }

// Stop terminates the process and kills it after stopTimeout. Stop does nothing if the process has ended already.
func (p *Process) Stop() error {
	p.asked.Store(true)
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping process %d: %w", p.PID(), err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("process %d did not stop in %s", p.PID(), stopTimeout), p.Kill())
	}
}

// Kill ends the process like a crash and waits for its end.
func (p *Process) Kill() error {
	p.asked.Store(true)
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing process %d: %w", p.PID(), err)
	}
	<-p.done
	return nil
}
