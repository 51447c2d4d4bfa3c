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

// source is where a program is built.
type source struct {
	module string // folder of the Go module, below the root of the repository
	main   string // main package
	kube   bool   // whether the program gets the version of Kubernetes, for `kubectl version` and /version
}

var sources = map[string]source{
	Manager:    {module: ".", main: "./cmd/lifecycle-manager"},
	Agent:      {module: ".", main: "./cmd/runtime-watcher"},
	KLM:        {module: ".", main: "./cmd/klm"},
	Operator:   {module: "playground", main: "./sample/operator"},
	Playground: {module: "playground", main: "./cmd/playground", kube: true},
	Kubectl:    {module: "playground", main: "k8s.io/kubernetes/cmd/kubectl", kube: true},
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
	for _, name := range names {
		if err := build(root, store, name); err != nil {
			return err
		}
		if err := link(filepath.Join(store, name), filepath.Join(bin, name)); err != nil {
			return fmt.Errorf("putting %s into %s: %w", name, bin, err)
		}
	}
	return nil
}

// build brings a program in the store up to date.
func build(root, store, name string) error {
	s, known := sources[name]
	if !known {
		return fmt.Errorf("building %s: there is no such program", name)
	}
	module := filepath.Join(root, s.module)
	flags := "-ldflags=-s -w" // without tables for debuggers, which take half of the time to link
	if s.kube {
		list := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
		list.Dir = module
		version, err := list.Output()
		if err != nil {
			return fmt.Errorf("asking for the version of Kubernetes: %w", err)
		}
		flags += " -X k8s.io/component-base/version.gitVersion=" + strings.TrimSpace(string(version))
	}
	build := exec.Command("go", "build", flags, "-o", filepath.Join(store, name), s.main) //nolint:gosec // constants
	build.Dir = module
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", name, err, out)
	}
	return nil
}

// link makes a hard link, or a copy if the folders are on different file systems.
func link(from, to string) (err error) {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it is only read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}
