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

// folder has the same content as a clone after `make up`; set by TestMain.
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
const readyTime = time.Hour

// landscape is the process of `playground up`.
type landscape struct {
	once    sync.Once
	err     error
	process *exec.Cmd
	done    chan error
	spans   *collector
	// dashboard is the address of the dashboard, which the landscape has printed.
	dashboard string
}

var land landscape

// theLandscape returns the landscape. The first call starts it.
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
	// With a long Lease, the manager remains the leader on a busy machine. With long timeouts, slow answers of runtimes
	// and slow renderings are no failures there.
	l.process, l.done = exec.Command("bin/playground", "up", "--manager-flag=--otlp-endpoint="+l.spans.endpoint,
		"--manager-flag=--leader-election-lease-duration=90s", "--manager-flag=--leader-election-renew-deadline=80s",
		"--manager-flag=--runtime-timeout=10m", "--manager-flag=--render-timeout=10m"), make(chan error, 1)
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
			if _, address, is := strings.Cut(lines.Text(), "The dashboard is at "); is {
				l.dashboard = address
			}
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

// stop is a page of the tour.
type stop struct {
	page    string
	prepare string   // steps that the reader has taken before
	prints  []string // expressions that the output of the commands must match
}

// tour is the order in which pages are run. Each page starts with the landscape in the state after the previous page.
var tour = []stop{
	{"quickstart.md", "", []string{"2.0.0", "the disk is full"}},
	{"one-module.md", "", nil},
	{"troubleshooting.md", "bin/klm module enable sample --kubeconfig .landscape/runtime-b.kubeconfig",
		[]string{"runtime-a"}},
	{"landscape.md", "", []string{"DowngradeRefused", "sample-v2-only"}},
	{"channels.md", "bin/klm module enable sample --kubeconfig .landscape/runtime-a.kubeconfig",
		[]string{"2.0.0", "ModulePaused"}},
	{"rollouts.md", "", []string{"stage own has 0 of 1 approvals", "ApprovalNeeded", "Completed",
		"would have 2 stages", "See klm rollout watch",
		"shop-regular-r2 is Halted", "runtime-b +FieldImmutable", "It stays in 1 runtime: runtime-b",
		"shop-regular-r3 is Completed", `regular +4 +2\.0\.1`}},
	{"runtimes.md", "", []string{"team=blue"}},
	{"backchannel.md", "export PATH=$PWD/bin:$PATH KUBECONFIG=.landscape/control-plane.kubeconfig",
		[]string{"skrwebhook is synchronized"}},
	{"deletion.md", "bin/klm module set-channel sample fast --kubeconfig .landscape/runtime-a.kubeconfig", nil},
	{"operate.md", tourAgain, []string{"sample 2.0.0 Ready"}},
	{"clusters.md", "export PATH=$PWD/bin:$PATH; cp .landscape/runtime-b.kubeconfig admin.yaml", nil},
	{"releases.md", "", nil},
}

// tourAgain restores the runtime that deletion.md has removed, and defines the shell functions of landscape.md again.
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
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("Screens", testScreens)
	for _, stop := range tour {
		t.Run(stop.page, func(t *testing.T) {
			page, err := Read(guides + stop.page)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(page.Blocks, Block.Runs) {
				t.Fatalf("%s has no commands: is it still written as before?", stop.page)
			}
			out, err := page.Run(t.Context(), Shell{Dir: folder, Before: DryRunMakeFunction(root) + stop.prepare,
				Update: *update}, 0,
				len(page.Blocks))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s", out)
			for _, want := range stop.prints {
				if !regexp.MustCompile(want).MatchString(out) {
					t.Errorf("%s does not print %q:\n%s", stop.page, want, out)
				}
			}
		})
	}
}

// elsewhere are pages whose commands are run by other tests, with the files of these tests.
var elsewhere = map[string]string{
	"klm.md":       "playground/klm/guide_test.go",
	"author.md":    "playground/klm/guide_test.go",
	"migration.md": "playground/deploy/upgrade_test.go",
	"install.md":   "playground/deploy/guides_test.go",
	"upgrade.md":   "playground/deploy/guides_test.go",
	"registry.md":  "playground/deploy/guides_test.go",
	"recovery.md":  "playground/deploy/guides_test.go",
}

// command is a line that a reader would type.
var command = regexp.MustCompile(
	`^(\$ )?(export [A-Z]|(klm|kubectl|bin/\S+|make|cp|a|b|git|go|ko|ocm|cosign|openssl|helm|velero|flux|argocd) [-a-z.])`)

// TestNothingIsLeftOut checks that each block of commands is run, or has a comment with the reason why it is not run.
func TestNothingIsLeftOut(t *testing.T) {
	pages, err := filepath.Glob(guides + "*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(pages, "../../README.md", "../../CONTRIBUTING.md") {
		page, err := Read(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		inTour := slices.ContainsFunc(tour, func(s stop) bool { return s.page == name })
		for _, p := range problems(page, inTour || elsewhere[name] != "") {
			t.Error(p)
		}
		if test := elsewhere[name]; test != "" && (inTour || !mentions(t, test, name)) {
			t.Errorf("%s is not run by %s alone: change elsewhere, or the test", name, test)
		}
		for _, b := range page.Blocks {
			if b.RunBy != "" && !mentions(t, b.RunBy, name) {
				t.Errorf("%s:%d is not run by %s, which does not name the page", file, b.Line, b.RunBy)
			}
		}
	}
}

// mentions reports whether a test names a page.
func mentions(t *testing.T, test, page string) bool {
	t.Helper()
	data, err := os.ReadFile("../../" + test)
	if err != nil {
		t.Error(err)
	}
	return strings.Contains(string(data), page)
}

// problems returns the problems of the blocks of a page. isRun states whether a test runs the commands of the page.
func problems(p Page, isRun bool) (all []string) {
	for i, b := range p.Blocks {
		say := func(text string) { all = append(all, fmt.Sprintf("%s:%d: %s", p.File, b.Line, text)) }
		typed := ""
		for line := range strings.Lines(b.Text) {
			if typed == "" && command.MatchString(strings.TrimSpace(line)) {
				typed = strings.TrimSpace(line)
			}
		}
		switch b.Kind {
		case "":
			if typed != "" {
				say(fmt.Sprintf("%q is indented: put it between fences of kind sh", typed))
			}
		case "sh", "bash":
			if b.Runs() && !isRun {
				say("no test runs the commands of this page: add it to the tour, or to another test and to elsewhere")
			}
			continue
		case "output":
			if i == 0 || !p.Blocks[i-1].Runs() {
				say("output is behind a block of commands that are run")
			}
			continue
		case "text", "yaml", "json":
			if typed != "" {
				say(fmt.Sprintf("%q is not run: its block must be of kind sh. If it cannot be run, a line "+
					"<!-- not run: REASON --> above the block says why", typed))
			}
		default:
			say(fmt.Sprintf("the kind %q is not one of sh, bash, output, text, yaml, json", b.Kind))
		}
		if b.NotRun != "" || b.RunBy != "" {
			say("the comment above says that no test runs the block, but it is not of kind sh or bash")
		}
	}
	return all
}

// TestBlockProblems checks that each kind of mistake is found.
func TestBlockProblems(t *testing.T) {
	cases := map[string]struct {
		page  string
		isRun bool
		want  string // part of the only problem, "" for none
	}{
		"Run":        {"~~~sh\nklm status\n~~~\n", true, ""},
		"NotRun":     {"~~~sh\nklm status\n~~~\n", false, "no test runs"},
		"Marked":     {"<!-- not run: why -->\n~~~sh\nvelero get backups\n~~~\n", false, ""},
		"TooFar":     {"<!-- not run: why -->\n\n~~~sh\nvelero get backups\n~~~\n", false, "no test runs"},
		"NoReason":   {"<!-- not run: -->\n~~~sh\nvelero get backups\n~~~\n", false, "no test runs"},
		"Indented":   {"Do this:\n\n    klm status\n", true, `"klm status" is indented`},
		"Text":       {"~~~text\nklm status\n~~~\n", true, `"klm status" is not run`},
		"Prompt":     {"~~~text\n$ klm status\n~~~\n", true, `"$ klm status" is not run`},
		"Output":     {"~~~output\nklm 1.0.0\n~~~\n", true, "behind a block"},
		"YAML":       {"~~~yaml\nkind: Kyma\n~~~\n", false, ""},
		"MarkedYAML": {"<!-- not run: why -->\n~~~yaml\nkind: Kyma\n~~~\n", false, "the comment above"},
		"Kind":       {"~~~shell\nklm status\n~~~\n", true, `the kind "shell"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := problems(write(t, c.page), c.isRun)
			if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
				t.Errorf("the problems are %q, want %q", got, c.want)
			}
		})
	}
}
