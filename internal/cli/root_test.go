package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

// TestHelp checks that every verb has a description, and an example that begins with the name of the verb.
func TestHelp(t *testing.T) {
	for _, program := range []string{"klm", "kubectl-lifecycle"} {
		name, _ := calledNameOf(program)
		a := &console.App{Config: config.NewKlm(), Name: name, Now: time.Now}
		root := root(a)
		all := root.Commands()
		for len(all) > 0 {
			c := all[0]
			all = append(all[1:], c.Commands()...)
			if c.Name() == "completion" || c.Parent().Name() == "completion" || c.Name() == "help" {
				continue
			}
			if !strings.Contains(c.Example, "  "+c.CommandPath()) ||
				strings.Contains(c.Example, "\nklm") || c.Short == "" {
				t.Errorf("%s has no example of itself:\n%s", c.CommandPath(), c.Example)
			}
		}
	}
}

func TestRun(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   []string
		code   int
		says   string
	}{
		"Nothing": {"without a verb it helps", nil, console.ExitOK, "Exit codes:"},
		"Version": {"", []string{"--version"}, console.ExitOK, "klm version " + config.Version},
		"Unknown": {"the closest is offered", []string{"chanel", "list"}, console.ExitUsage, "did you mean channel?"},
		"Missing": {"which argument", []string{"runtime", "show"}, console.ExitUsage, "RUNTIME is missing"},
		"Empty": {"an empty variable of a script", []string{"runtime", "show", ""}, console.ExitUsage,
			"RUNTIME must not be empty"},
		"Format": {"", []string{"status", "-o", "csv"}, console.ExitUsage, "--output"},
		"Name": {"no name of an object", []string{"runtime", "add", "A_B", "--kubeconfig-file=x"},
			console.ExitUsage, "is not a valid name"},
		"Long": {"it becomes a label", []string{"runtime", "add", strings.Repeat("a", 64), "--kubeconfig-file=x"},
			console.ExitUsage, "longer than 63"},
		"Channel": {"a reserved word", []string{"runtime", "add", "a", "--kubeconfig-file=x", "--channel=none"},
			console.ExitUsage, "is not a channel"},
		"Cluster": {"no such file", []string{"status", "--kubeconfig=/nowhere/x"}, console.ExitCluster, "/nowhere/x"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			code := Run(t.Context(), config.NewKlm(), append([]string{"/usr/bin/klm"}, c.args...),
				console.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
			if code != c.code || !strings.Contains(out.String(), c.says) {
				t.Errorf("%s: code %d, says:\n%s", c.reason, code, out.String())
			}
		})
	}
}

// TestPluginCompletion checks shell completion for klm as a kubectl plugin: for completions, kubectl calls the
// executable kubectl_complete-lifecycle.
func TestPluginCompletion(t *testing.T) {
	var out bytes.Buffer
	code := Run(t.Context(), config.NewKlm(), []string{"/usr/bin/kubectl_complete-lifecycle", "runtime", "pau"},
		console.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	if code != console.ExitOK || !strings.HasPrefix(out.String(), "pause\t") {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}

// TestReference checks that the commands for the reference in docs include the completion commands, which cobra adds,
// and the commands with a flag named version.
func TestReference(t *testing.T) {
	tree := Tree()
	for _, path := range []string{"completion bash", "module enable", "module set-version"} {
		if c, _, err := tree.Find(strings.Fields(path)); err != nil || c.CommandPath() != "klm "+path {
			t.Errorf("%s is not in the tree: %v", path, err)
		}
	}
}
