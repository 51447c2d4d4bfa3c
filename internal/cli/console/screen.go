package console

import (
	"context"
	"fmt"
	"time"
)

// Screen shows a report again each time it has changed. On a terminal the new report replaces the former one.
type Screen struct {
	App  *App
	last string
}

// Show shows the report if it differs from the last shown report.
func (s *Screen) Show(r Report) error {
	text, err := s.App.format(r)
	if err != nil || text == s.last {
		return err
	}
	s.last = text
	if s.App.IsForPeople() {
		if IsTerminal(s.App.Out) {
			text = "\x1b[H\x1b[2J" + text
		} else {
			text += "\n"
		}
	}
	if _, err := s.App.Out.Write([]byte(text)); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

const (
	// refreshDelay is the time for which changes are collected before they are shown together.
	refreshDelay = 500 * time.Millisecond
	// refreshInterval is the time after which a report is made again even if no change was observed. The report shows
	// ages, which grow, and the user may have no permission to watch objects.
	refreshInterval = 10 * time.Second
)

// RefreshUntilDone runs the function show immediately, after each change, and at an interval, until ctx ends or the
// function show fails. After several changes within half a second, RefreshUntilDone runs the function show once.
func RefreshUntilDone(ctx context.Context, changed <-chan struct{}, show func() error) error {
	ticker := time.NewTicker(refreshInterval)
	defer ticker.Stop()
	for {
		if err := show(); err != nil {
			if ctx.Err() != nil {
				return nil // the request was interrupted
			}
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-changed:
			if Sleep(ctx, refreshDelay) != nil {
				return nil
			}
		}
	}
}
