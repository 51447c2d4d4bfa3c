// Command generator writes the pages of docs/reference from the code: flags, metrics, reasons, conditions and events,
// kinds, the verbs of klm, and the keys of a module-config with their JSON schema.
//
// The command also writes the remedies of all reasons as Go code, for klm why.
//
// Run `make references` in the root of the repository to write all pages. A test of this package fails if a page
// differs from the code.
//
// Each page is the result of one function that returns Markdown. Flags come from the flag sets of internal/config,
// verbs from the commands of internal/cli, and kinds from the embedded CRDs. Metrics, reasons and conditions are parsed
// from the source files, because the text of the page is in their comments.
//
// The command does not write the page lifecycles.md. The page lifecycles.md is written by hand, and arch_test.go
// compares it with the code.
package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
)

// folder is the folder of the pages, relative to the root of the repository.
const folder = "docs/reference"

// pages contains the function for each generated page, by file name. root is the path of the root of the repository.
var pages = map[string]func(root string) (string, error){
	"flags.md":      flagsPage,
	"metrics.md":    metricsPage,
	"reasons.md":    reasonsPage,
	"conditions.md": conditionsPage,
	"api.md":        apiPage,
	"klm.md":        klmPage,

	"module-config.md": moduleConfigPage,
}

// remediesFile is the file with the remedies, relative to the root of the repository.
const remediesFile = "internal/cli/diagnosis/zz_generated.remedies.go"

// files returns the function for each generated file, by its path relative to the root of the repository.
func files() map[string]func(root string) (string, error) {
	all := map[string]func(root string) (string, error){remediesFile: generateRemediesGoFile,
		schemaFile: moduleConfigSchema}
	for name, write := range pages {
		all[path.Join(folder, name)] = write
	}
	return all
}

func main() {
	os.Clearenv() // the defaults of flags must not depend on the environment of this machine
	for name, write := range files() {
		text, err := write(".")
		if err == nil {
			err = os.WriteFile(filepath.FromSlash(name), []byte(text), 0o644) //nolint:gosec // the file is public
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "writing %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}
