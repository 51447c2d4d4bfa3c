// Package program builds the programs that the tests of the playground run.
//
// # Use
//
//	err := program.Build("../..", bin, program.Manager, program.Agent)
//	manager := exec.Command(filepath.Join(bin, program.Manager))
//
// # How it works
//
// Every program is built in the folder bin/test of the repository. `go build` links nothing if the program there is up
// to date, so all packages of a test run, and the next run, share one link of each program. A lock lets one test
// process build at a time. Build then links the programs into the folder of the caller: they stay as they are even if
// the sources change during the test.
//
// # What it does not do
//
// The package builds no test binaries, and does not remove bin/test; `make clean` does.
package program

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// Names of programs.
const (
	Manager    = "lifecycle-manager"
	Agent      = "runtime-watcher"
	KLM        = "klm"
	Operator   = "sample-operator" // operator of the sample module
	Playground = "playground"
	Kubectl    = "kubectl"
)

// source is the folder in which a program is built.
type source struct {
	module string // folder of the Go module, below the root of the repository
	main   string // main package
}

var sources = map[string]source{
	Manager:    {".", "./cmd/lifecycle-manager"},
	Agent:      {".", "./cmd/runtime-watcher"},
	KLM:        {".", "./cmd/klm"},
	Operator:   {"playground", "./sample/operator"},
	Playground: {"playground", "./cmd/playground"},
	Kubectl:    {"playground", "k8s.io/kubernetes/cmd/kubectl"},
}

// Build puts programs into the folder bin, which must exist. root is the root of the repository.
func Build(root, bin string, names ...string) error {
	store, err := filepath.Abs(filepath.Join(root, "bin", "test"))
	if err != nil {
		return fmt.Errorf("building programs: %w", err)
	}
	if err := os.MkdirAll(store, 0o750); err != nil {
		return fmt.Errorf("building programs: %w", err)
	}
	unlock, err := lockedfile.MutexAt(filepath.Join(store, "lock")).Lock()
	if err != nil {
		return fmt.Errorf("building programs: %w", err)
	}
	defer unlock()
	mains := map[string][]string{} // by module
	for _, name := range names {
		s, known := sources[name]
		if !known {
			return fmt.Errorf("building %s: there is no such program", name)
		}
		mains[s.module] = append(mains[s.module], s.main)
	}
	for module, of := range mains {
		if err := build(filepath.Join(root, module), store, of); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := linkOrCopy(filepath.Join(store, path.Base(sources[name].main)), filepath.Join(bin,
			name)); err != nil {
			return fmt.Errorf("putting %s into %s: %w", name, bin, err)
		}
	}
	return nil
}

// build builds programs of a Go module, and writes the binaries into the folder in the parameter store.
func build(module, store string, mains []string) error {
	// Linking without symbol tables takes half of the time. The flag -X sets the version that the API server reports,
	// which it does not know without the flag.
	flags := "-ldflags=-s -w"
	list := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	list.Dir = module
	if version, err := list.Output(); err == nil { // the module has it
		flags += " -X k8s.io/component-base/version.gitVersion=" + strings.TrimSpace(string(version))
	}
	args := append([]string{"build", flags, "-o", store + string(filepath.Separator)}, mains...)
	build := exec.Command("go", args...) //nolint:gosec // constants
	build.Dir = module
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", strings.Join(mains, ", "), err, out)
	}
	return nil
}

// linkOrCopy makes a hard link, or a copy if the folders are on different file systems.
func linkOrCopy(from, to string) (err error) {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from) //nolint:gosec // a program in our own folder
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it is only read
	//nolint:gosec // a program in the folder of the test, which has to be executable
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}
