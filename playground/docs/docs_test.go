package docs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/playground/program"
)

const guides = "../../docs/guide/"

// folder is like that of a clone after `make up`; set by TestMain.
var folder string

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run builds the programs and runs the tests.
func run(m *testing.M) int {
	var err error
	if folder, err = os.MkdirTemp("", "docs-"); err != nil {
		fmt.Fprintln(os.Stderr, "making a folder for programs:", err)
		return 1
	}
	defer os.RemoveAll(folder) //nolint:errcheck // in the folder for temporary files
	defer land.stop()
	return m.Run()
}

// build puts the programs into bin.
func build() error {
	bin := filepath.Join(folder, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		return err
	}
	return program.Build("../..", bin, program.KLM, program.Manager, program.Agent, program.Operator,
		program.Playground, program.Kubectl)
}

// readyTime bounds the start of the landscape.
const readyTime = 3 * time.Minute

// landscape is the process of `playground up`.
type landscape struct {
	once    sync.Once
	err     error
	process *exec.Cmd
	done    chan error
	spans   *collector
}

var land landscape

// theLandscape starts it when the first test asks for it.
func theLandscape(t *testing.T) *landscape {
	t.Helper()
	land.once.Do(func() { land.err = land.start() })
	if land.err != nil {
		t.Fatal(land.err)
	}
	return &land
}

func (l *landscape) start() error {
	if err := build(); err != nil {
		return err
	}
	var err error
	if l.spans, err = collect(); err != nil {
		return err
	}
	out, in := io.Pipe()
	l.process, l.done = exec.Command("bin/playground", "up", "--manager-flag=--otlp-endpoint="+l.spans.endpoint),
		make(chan error, 1)
	l.process.Dir, l.process.Stdout, l.process.Stderr = folder, in, in
	if err := l.process.Start(); err != nil {
		return fmt.Errorf("starting the landscape: %w", err)
	}
	go func() {
		l.done <- l.process.Wait()
		_ = in.Close() // a pipe closes without error
	}()
	ready, said := make(chan bool, 1), &bytes.Buffer{}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if said.Len() < 1<<20 {
				said.WriteString(lines.Text() + "\n")
			}
			if strings.Contains(lines.Text(), "All is Ready") {
				ready <- true
			}
		}
		ready <- false
	}()
	select {
	case is := <-ready:
		if !is {
			return fmt.Errorf("the landscape ended:\n%s", said)
		}
		return nil
	case <-time.After(readyTime):
		return fmt.Errorf("the landscape is not ready after %s", readyTime)
	}
}

func (l *landscape) stop() {
	if l.process == nil || l.process.Process == nil {
		return
	}
	if err := errors.Join(l.process.Process.Signal(syscall.SIGTERM), <-l.done); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the landscape:", err)
	}
	l.spans.stop()
}

// block is what is between two fences of a page.
type block struct {
	kind string // what is behind the first fence; "" for lines that are indented
	text string
}

// blocks returns those of a page. Lines indented by four are a block, too, unless they belong to a list.
func blocks(t *testing.T, page string) []block {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var all []block
	inside := false
	for line := range strings.Lines(string(data)) {
		kind, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && !inside:
			all, inside = append(all, block{kind: strings.TrimSpace(kind)}), true
		case fence:
			inside = false
		case inside:
			all[len(all)-1].text += line
		case strings.HasPrefix(line, "    "):
			all = append(all, block{text: strings.TrimLeft(line, " ")})
		}
	}
	return all
}

// stop is a page of the tour.
type stop struct {
	page    string
	prepare string   // what the reader has done before
	prints  []string // expressions for what the commands print
}

// tour is the order in which pages are run: each finds the landscape as the one before has left it.
var tour = []stop{
	{"quickstart.md", "", []string{"2.0.0", "the disk is full"}},
	{"troubleshooting.md", "", []string{"runtime-a"}},
	{"landscape.md", "", []string{"DowngradeRefused", "sample-v2-only"}},
	{"channels.md", "bin/klm module enable sample --kubeconfig .landscape/runtime-a.kubeconfig",
		[]string{"2.0.0", "ModulePaused"}},
	{"rollouts.md", "", []string{"stage own has 0 of 1 approvals", "ApprovalNeeded", "Completed",
		"would have 2 stages", "See klm rollout watch"}},
	{"runtimes.md", "", []string{"team=blue"}},
	{"backchannel.md", "export PATH=$PWD/bin:$PATH KUBECONFIG=.landscape/control-plane.kubeconfig",
		[]string{"skrwebhook is synchronized"}},
	{"deletion.md", "bin/klm module set-channel sample fast --kubeconfig .landscape/runtime-a.kubeconfig", nil},
	{"operate.md", tourAgain, []string{"sample 2.0.0 Ready"}},
}

// tourAgain brings back the runtime that deletion.md has removed, and the shorthands of landscape.md.
const tourAgain = `
bin/kubectl --kubeconfig .landscape/runtime-a.kubeconfig config view --raw --flatten --minify > runtime-a.yaml
bin/klm runtime add runtime-a --kubeconfig-file=runtime-a.yaml --kubeconfig .landscape/control-plane.kubeconfig
bin/klm module enable sample --kubeconfig .landscape/runtime-a.kubeconfig
cp() { bin/kubectl --kubeconfig .landscape/control-plane.kubeconfig -n kcp-system "$@"; }
a()  { bin/kubectl --kubeconfig .landscape/runtime-a.kubeconfig -n kyma-system "$@"; }
`

// TestGuides runs the pages.
func TestGuides(t *testing.T) {
	theLandscape(t)
	t.Run("Screens", testScreens)
	for _, stop := range tour {
		t.Run(stop.page, func(t *testing.T) {
			script, n := "set -euo pipefail\n"+stop.prepare+"\nset -v\n", 0
			for _, b := range blocks(t, guides+stop.page) {
				if b.kind == "sh" {
					script += b.text
					n++
				}
			}
			if n == 0 {
				t.Fatalf("%s has no commands: is it still written as before?", stop.page)
			}
			shell := exec.Command("bash", "-s")
			shell.Dir, shell.Stdin = folder, strings.NewReader(script)
			out, err := shell.CombinedOutput()
			if err != nil {
				t.Fatalf("%v:\n%s", err, out)
			}
			t.Logf("%s", out)
			for _, want := range stop.prints {
				if !regexp.MustCompile(want).Match(out) {
					t.Errorf("%s does not print %q:\n%s", stop.page, want, out)
				}
			}
		})
	}
}

// elsewhere are pages whose commands are run by other tests, and where.
var elsewhere = map[string]string{
	"klm.md":       "playground/klm",
	"install.md":   "where images and deployments are tested",
	"upgrade.md":   "where images and deployments are tested",
	"migration.md": "playground/deploy",
	"recovery.md":  "needs a control plane that is lost, and Velero; the commands are tested in internal/cli/recovery",
	"author.md":    "where modules are built",
	"clusters.md":  "needs Cluster API or Gardener; the scripts are tested in docs",
	"releases.md":  "where images and deployments are tested",
	"registry.md":  "needs a registry with logins; the commands are those of install.md and author.md",
}

// notRun are commands in blocks that are not run, and why.
var notRun = map[string]string{
	"git clone https://github.com/kyma-fleet/lifecycle-manager && cd lifecycle-manager": "who runs this has done it",
	"make up":                            "it builds and calls what the test calls",
	"bin/playground up --in-cluster":     "package scenario does, through the same code",
	"kubectl apply -k deploy/monitoring": "needs the Prometheus operator; its files are tested in internal/metrics",
	"ocm sign cv registry.example.com/modules//example.com/cache:1.4.0": "ocm is a program of others",
}

// TestNothingIsLeftOut: no command is in a block that is not run.
func TestNothingIsLeftOut(t *testing.T) {
	pages, err := filepath.Glob(guides + "*.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`^(klm|kubectl|bin/\S+|make|cp|a|b|git|ocm|helm) `)
	seen := map[string]bool{}
	for _, page := range append(pages, "../../README.md") {
		name := filepath.Base(page)
		isRun := slices.ContainsFunc(tour, func(s stop) bool { return s.page == name })
		if elsewhere[name] != "" {
			continue
		}
		for _, b := range blocks(t, page) {
			if b.kind == "sh" && !isRun {
				t.Errorf("%s has commands and is not in the tour", name)
			}
			for line := range strings.Lines(b.text) {
				line = strings.TrimSpace(line)
				if b.kind == "sh" || !command.MatchString(line) || name == "README.md" {
					continue
				}
				if notRun[line] == "" {
					t.Errorf("%s: %q is not run: put it between ```sh and ```", name, line)
				}
				seen[line] = true
			}
		}
	}
	for line := range notRun {
		if !seen[line] {
			t.Errorf("%q is in no guide any more", line)
		}
	}
}
