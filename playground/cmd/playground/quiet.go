package main

import (
	"fmt"
	"os"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// silenceLibraries discards the messages that libraries of this process write to standard error. On a busy machine, the
// etcd client in the API servers writes there, and so does controller-runtime without a logger. The logs of the servers
// contain the reasons. Messages of this program, and messages about a crash, are still written to standard error.
func silenceLibraries() error {
	ctrl.SetLogger(logr.Discard())
	discard, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("discarding the messages of libraries: %w", err)
	}
	redirectFile(&os.Stderr, discard)
	return nil
}

// redirectFile lets everybody who has the pointer *file write to another file from now on. redirectFile returns a new
// pointer to the former file. The loggers of the libraries have got their pointer when they were initialized.
func redirectFile(file **os.File, to *os.File) {
	library := *file
	own := *library
	*library, *file = *to, &own
}
