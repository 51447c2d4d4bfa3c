package main

import (
	"fmt"
	"os"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// silenceLibraries discards the messages that libraries of this process write to standard error. On a busy machine, the
// etcd client in the API servers writes warnings to standard error. controller-runtime writes a warning there if it has
// no logger. The log files of the API servers contain the reasons of the warnings. Messages of this program, and
// messages about a crash, are still written to standard error.
func silenceLibraries() error {
	ctrl.SetLogger(logr.Discard())
	discard, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("discarding the messages of libraries: %w", err)
	}
	redirectLibraryOutput(&os.Stderr, discard)
	return nil
}

// redirectLibraryOutput redirects an open file such as os.Stderr. Libraries store the pointer os.Stderr when they are
// initialized. After redirectLibraryOutput, everything that they write to this pointer is written to another file. The
// variable that file points to gets a new pointer to the original file, for the messages of this program.
func redirectLibraryOutput(file **os.File, to *os.File) {
	library := *file
	own := *library
	*library, *file = *to, &own
}
