package chaos

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// restartDelay is the time after which a manager that has ended by itself is started again, as a kubelet would.
const restartDelay = time.Second

// supervisor starts the manager again when it ends by itself.
type supervisor struct {
	land *landscape.Landscape
	say  func(format string, args ...any)

	mu    sync.Mutex // guards what follows, and land.Manager
	down  bool       // whether a fault has killed the manager and not yet started it
	exits []error    // errors of managers that ended without a fault
}

// restartUnlessKilled starts the manager again each time it ends by itself, until the context ends.
func (s *supervisor) restartUnlessKilled(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		ended := s.land.Manager.Done()
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ended:
		}
		s.mu.Lock()
		if p := s.land.Manager; !p.IsStopRequested() && ended == p.Done() {
			s.exits = append(s.exits, fmt.Errorf("the manager has ended: %w", p.Err()))
			s.say("the manager has ended by itself: %v", p.Err())
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(restartDelay):
		}
		s.mu.Lock()
		if !s.down && ended == s.land.Manager.Done() && ctx.Err() == nil {
			if err := s.land.StartManagerAgain(); err != nil {
				s.say("starting the manager: %v", err)
			}
		}
		s.mu.Unlock()
	}
}

// kill kills the process of the manager, as a crash would.
func (s *supervisor) kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	return s.land.Manager.Kill()
}

// startAfterKill starts the manager after kill.
func (s *supervisor) startAfterKill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
	select {
	case <-s.land.Manager.Done():
		return s.land.StartManagerAgain()
	default:
		return nil
	}
}

func (s *supervisor) signal(which syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := syscall.Kill(s.land.Manager.PID(), which); err != nil {
		return fmt.Errorf("sending %s to the manager: %w", which, err)
	}
	return nil
}
