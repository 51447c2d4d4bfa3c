package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

func TestArguments(t *testing.T) {
	cases := map[string]struct {
		reason string
		names  []string
		args   []string
		want   string // the error; "" for none
	}{
		"None":   {"a command without arguments", nil, nil, ""},
		"Enough": {"optional arguments may be omitted", []string{"RUNTIME", "[MODULE]"}, []string{"a"}, ""},
		"All":    {"or given", []string{"RUNTIME", "[MODULE]"}, []string{"a", "b"}, ""},
		"Missing": {"the name of the argument is in the error", []string{"RUNTIME", "[MODULE]"},
			nil, "RUNTIME is missing"},
		"Second": {"the first missing argument is named", []string{"RUNTIME", "MODULE"},
			[]string{"a"}, "MODULE is missing"},
		"Too many": {"the first unexpected argument is named", []string{"RUNTIME"}, []string{"a", "b", "c"},
			`unexpected argument "b"`},
		"Empty": {"an empty variable of a script", []string{"RUNTIME"}, []string{""}, "RUNTIME must not be empty"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := Arguments(c.names...)(nil, c.args)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("%s: %q, want %q", c.reason, got, c.want)
			}
			if err != nil && ExitCode(err) != ExitUsage {
				t.Errorf("exit code %d, want %d", ExitCode(err), ExitUsage)
			}
		})
	}
}

func TestExitCode(t *testing.T) {
	cases := map[string]struct {
		reason string
		err    error
		want   int
	}{
		"None":    {"success", nil, ExitOK},
		"Problem": {"an error with a code", Fail(ExitNotReady, "wait"), ExitNotReady},
		"Wrapped": {"a wrapped error keeps its code", fmt.Errorf("doing: %w", Fail(ExitCluster, "no answer")),
			ExitCluster},
		"Joined": {"so does a joined one", errors.Join(errors.New("x"), Fail(ExitUsage, "y")), ExitUsage},
		"Other":  {"all other errors", errors.New("odd"), ExitFailed},
	}
	for name, c := range cases {
		if got := ExitCode(c.err); got != c.want {
			t.Errorf("%s: %s: %d, want %d", name, c.reason, got, c.want)
		}
	}
}

func TestConfirm(t *testing.T) {
	cases := map[string]struct {
		reason, input string
		want          int
	}{
		"Yes":       {"the short answer", "y\n", ExitOK},
		"Long":      {"the long answer, in any case, with spaces", " YES \n", ExitOK},
		"NoNewline": {"the end of the input ends the answer, too", "y", ExitOK},
		"No":        {"an answer, but not yes", "n\n", ExitFailed},
		"Enter":     {"no is the default", "\n", ExitFailed},
		"Nothing":   {"a script without input has to use --yes", "", ExitUsage},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			a := &App{Streams: Streams{In: strings.NewReader(c.input), Err: &out}}
			err := a.Confirm("Remove runtime a?")
			if ExitCode(err) != c.want {
				t.Errorf("%s: %v, want exit code %d", c.reason, err, c.want)
			}
			if !strings.HasPrefix(out.String(), "Remove runtime a? [y/N] ") {
				t.Errorf("the question is %q", out.String())
			}
		})
	}
}

func TestReadInput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "input")
	if err := os.WriteFile(file, []byte("from the file"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &App{Streams: Streams{In: strings.NewReader("from standard input")}}
	for name, want := range map[string]string{file: "from the file", "-": "from standard input"} {
		data, err := a.ReadInput("--key", name)
		if err != nil || string(data) != want {
			t.Errorf("%s: %q, %v, want %q", name, data, err, want)
		}
	}
	_, err := a.ReadInput("--key", file+"x")
	if ExitCode(err) != ExitUsage || !strings.HasPrefix(err.Error(), "--key: ") {
		t.Errorf("a missing file: %v", err)
	}
	const limit = 1 << 20
	a.In = strings.NewReader(strings.Repeat("x", limit))
	if data, err := a.ReadInput("--key", "-"); err != nil || len(data) != limit {
		t.Errorf("1 MiB: %d bytes, %v", len(data), err)
	}
	a.In = strings.NewReader(strings.Repeat("x", limit+1))
	if _, err = a.ReadInput("--key", "-"); ExitCode(err) != ExitUsage || !strings.Contains(err.Error(), "more than") {
		t.Errorf("more than 1 MiB would be cut off: %v", err)
	}
}

// TestGroup checks that a group of commands shows its help, and suggests a similar command if the given command is
// unknown.
func TestGroup(t *testing.T) {
	run := func(args ...string) error {
		var out bytes.Buffer
		a := &App{Config: &config.Klm{}, Name: "kubectl lifecycle"}
		failing := a.Command("fail", "always fail", "", "klm fail", Arguments(),
			func(*cobra.Command, []string) error { return fmt.Errorf("listing: %w", context.Canceled) })
		g := a.Group("klm", "the client", "", "klm fail", failing)
		g.SilenceErrors, g.SilenceUsage = true, true
		g.SetArgs(args)
		g.SetOut(&out)
		return g.ExecuteContext(t.Context())
	}
	if err := run(); err != nil {
		t.Errorf("without arguments: %v", err)
	}
	if err := run("fial"); ExitCode(err) != ExitUsage ||
		!strings.Contains(err.Error(), `there is no command "fial": did you mean fail?`) {
		t.Errorf("an unknown command: %v", err)
	}
	if err := run("fail"); err == nil || err.Error() != "interrupted" {
		t.Errorf("a command that was interrupted: %v", err)
	}
	a := &App{Name: "kubectl lifecycle"}
	c := a.Command("why", "show blockers", "", "\nklm why a\nklm why b\n", nil, nil)
	if want := "  kubectl lifecycle why a\n  kubectl lifecycle why b"; c.Example != want {
		t.Errorf("example %q, want %q", c.Example, want)
	}
	if c.Long != "Show blockers." {
		t.Errorf("long help %q", c.Long)
	}
}

func TestSuggest(t *testing.T) {
	many := strings.Fields("one two three four five six seven eight nine")
	cases := map[string]struct {
		reason, name string
		names        []string
		want         string
	}{
		"Similar": {"a typing error", "smaple", []string{"keda", "sample"}, "did you mean sample?"},
		"Two": {"several similar names", "remvoe", []string{"remove", "removed"},
			"did you mean remove or removed?"},
		"Others": {"nothing is similar", "istio", []string{"keda", "sample", "keda"}, "choose one of keda, sample"},
		"Many": {"not all of many names", "xxxxxxxxx", many,
			"choose one of eight, five, four, nine, one, seven, six, three, …"},
		"None": {"there are no names", "istio", nil, "none exist"},
	}
	for name, c := range cases {
		if got := SuggestionText(c.name, c.names); got != c.want {
			t.Errorf("%s: %s: %q, want %q", name, c.reason, got, c.want)
		}
	}
}

func TestCompleteArguments(t *testing.T) {
	names := func(_ context.Context, args []string) []string {
		return append([]string{"b", "a", "b"}, args...)
	}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	complete := CompleteArguments(FixedNames("x"), names)
	cases := map[string]struct {
		reason string
		args   []string
		want   []string
	}{
		"First":   {"the first source", nil, []string{"x"}},
		"Second":  {"the second source gets the arguments; sorted, each once", []string{"c"}, []string{"a", "b", "c"}},
		"Further": {"no source is left", []string{"c", "d"}, nil},
	}
	for name, c := range cases {
		got, directive := complete(cmd, c.args, "")
		if diff := cmp.Diff(c.want, got); diff != "" || directive != cobra.ShellCompDirectiveNoFileComp {
			t.Errorf("%s: %s: directive %d (-want +got):\n%s", name, c.reason, directive, diff)
		}
	}
}

func TestSleep(t *testing.T) {
	if err := Sleep(t.Context(), time.Nanosecond); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Sleep(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
}
