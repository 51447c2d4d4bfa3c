package diagnosis

import (
	"strings"
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

func TestRemedyFor(t *testing.T) {
	cases := map[string]struct {
		reason, code, message string
		want                  string // the begin of the remedy
	}{
		"None": {"the message has no instruction", v1beta2.ReasonRuntimeUnreachable, "runtime-a does not answer",
			"Check the address"},
		"Colon": {"the message has one after a colon", v1beta2.ReasonKymaPaused,
			"Kyma runtime-a is paused (ask Kim): remove the annotation operator.kyma-project.io/paused from it", ""},
		"Or": {"the message has one after another clause", v1beta2.ReasonDowngradeRefused,
			"1.0.0 would be a downgrade, so nothing happens; wait for a higher version, or allow it", ""},
		"Begin": {"the first word of a message is its subject", v1beta2.ReasonObjectRefused,
			"Update of ConfigMap a/b is refused", "Correct it"},
		"Unknown": {"the reason is not in the list", "SomethingNew", "x", ""},
	}
	for name, c := range cases {
		if got := RemedyFor(c.code, c.message); (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s: %q, want %q", name, c.reason, got, c.want)
		}
	}
}

// TestInstructions checks that hasInstruction recognizes the instruction in every remedy, so that a message that
// already contains a remedy does not get a second one. Remedies that refer to the message, or that say that no action
// is needed, have no instruction.
func TestInstructions(t *testing.T) {
	if len(remedies) < 70 {
		t.Errorf("there are only %d remedies", len(remedies))
	}
	for reason, text := range remedies {
		informs := strings.Contains(text, "The message ") || strings.Contains(text, "No action is needed")
		if !hasInstruction("x: "+text) && !informs {
			t.Errorf("%s: no clause begins with one of the instructions: %s", reason, text)
		}
	}
}
