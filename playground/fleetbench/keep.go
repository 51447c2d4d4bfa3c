package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// moveLogsAndRemove moves the logs of a folder to another folder, and removes all other files.
func moveLogsAndRemove(from, to string) error {
	logs, err := filepath.Glob(filepath.Join(from, "*.log"))
	if err != nil {
		return fmt.Errorf("finding logs: %w", err)
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("keeping logs: %w", err)
	}
	for _, log := range logs {
		data, err := os.ReadFile(log) //nolint:gosec // the folder is ours
		if err == nil {
			//nolint:gosec // whoever runs the benchmark names the folder
			err = os.WriteFile(filepath.Join(to, filepath.Base(log)), data, 0o600)
		}
		if err != nil {
			return fmt.Errorf("keeping logs: %w", err)
		}
	}
	return os.RemoveAll(from)
}
