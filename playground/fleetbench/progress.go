package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"
)

// progress is the status line that shows how far a scenario is.
type progress struct {
	end  context.CancelFunc
	done chan struct{}
}

// stage is the part of the status line that the scenario provides.
type stage struct {
	mu   sync.Mutex
	text func() string // guarded by mu
}

func (s *stage) setText(text func() string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = text
}

func (s *stage) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text == nil {
		return ""
	}
	return s.text()
}

// showProgress shows the status line until stop is called. showProgress updates the line every second on a terminal,
// and otherwise writes it every ten seconds.
func (r *rig) showProgress(ctx context.Context, name string) *progress {
	ctx, end := context.WithCancel(ctx)
	p := &progress{end: end, done: make(chan struct{})}
	r.stage.setText(nil)
	interval, form := 10*time.Second, "%s\n"
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		interval, form = time.Second, "\r\033[K%s"
	}
	go func() {
		defer close(p.done)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		begin, last, lastCPU := time.Now(), time.Now(), [3]time.Duration{}
		for first := true; ; first = false {
			m, _ := r.crew.cpuAndMemory() // an error is expected: some scenarios kill the manager
			c, _ := cpuAndMemoryOf(r.plane.pid())
			now, cpu := time.Now(), [3]time.Duration{m.cpu, c.cpu, processCPUTime()}
			cores := func(i int) float64 { return max(0, (cpu[i]-lastCPU[i]).Seconds()/now.Sub(last).Seconds()) }
			if !first {
				fmt.Fprintf(os.Stderr, form, fmt.Sprintf(
					"%-8s %5.0f s  %s  cores: manager %.2f, API server %.2f, simulator %.2f; manager %d MiB; %d "+
						"connections",
					name, now.Sub(begin).Seconds(), &r.stage, cores(0), cores(1), cores(2), m.rss/mega,
					r.fleet.Stats().Connections))
			}
			last, lastCPU = now, cpu
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return p
}

// stop removes the status line.
func (p *progress) stop() {
	p.end()
	<-p.done
}
