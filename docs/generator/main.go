// Command generator writes docs/reference: flags, metrics, reasons, conditions and events, kinds, and the verbs of klm, each from where it is
// decided in the code.
//
// Use: `make references`, in the root of the repository. Its own test fails while a page is not what the code says.
//
// How it works: each page is a function that returns Markdown. Flags come from the flag sets of internal/config, verbs from the commands of
// internal/cli, kinds from the embedded CRDs; metrics, reasons and conditions are read from the source, because what matters is in
// their comments.
//
// It writes no page that people write: lifecycles.md is one of these, and has a test of its own.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// folder is where the pages are, seen from the root of the repository.
const folder = "docs/reference"

// pages are all that is generated, by name. Each function gets the root of the repository.
var pages = map[string]func(root string) (string, error){
	"flags.md":      flagsPage,
	"metrics.md":    metricsPage,
	"reasons.md":    reasonsPage,
	"conditions.md": conditionsPage,
	"api.md":        apiPage,
	"klm.md":        klmPage,
}

func main() {
	os.Clearenv() // defaults are those of nobody's machine
	for name, write := range pages {
		text, err := write(".")
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644) //nolint:gosec // a page for everybody
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "writing %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}
