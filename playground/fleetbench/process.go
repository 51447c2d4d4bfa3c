package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
)

// child is a child process. child ends when this process ends.
type child struct {
	cmd      *exec.Cmd
	done     chan struct{} // closed when the process has ended
	err      error         // error of the process; valid once done is closed
	stopping atomic.Bool   // stop or kill was called
}

// startChild starts a program. The standard output of the program is written to the writer out, and its standard error
// to the writer log.
func startChild(path string, args []string, in io.Reader, out, log io.Writer) (*child, error) {
	//nolint:gosec // whoever runs the benchmark names the program
	c := &child{cmd: exec.Command(path, args...), done: make(chan struct{})}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = in, out, log
	c.cmd.SysProcAttr = childProcessAttributes()
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// ended reports whether the process has ended.
func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// stop asks the process to end, and waits for at most stopTimeout. After the timeout, stop kills the process.
func (c *child) stop() error {
	if c.ended() {
		return nil
	}
	c.stopping.Store(true)
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping process %d: %w", c.pid(), err)
	}
	select {
	case <-c.done:
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("process %d did not stop in %v", c.pid(), stopTimeout), c.killAndWait())
	}
}

// killAndWait kills the process, as a crash would, and waits for its end.
func (c *child) killAndWait() error {
	c.stopping.Store(true)
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing process %d: %w", c.pid(), err)
	}
	<-c.done
	return nil
}
