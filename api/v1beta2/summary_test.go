package v1beta2

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSummary(t *testing.T) {
	many := make([]ModuleStatus, 250)
	for i := range many {
		many[i] = ModuleStatus{Name: fmt.Sprintf("module-%d", i), Version: "1.0.0", Channel: "regular",
			State: StateReady}
	}
	cases := map[string]struct {
		reason   string
		modules  []ModuleStatus
		want     string
		isPartly bool // whether the text cannot be read back
	}{
		"None": {reason: "no modules"},
		"Ready": {
			reason: "the state Ready is not named",
			modules: []ModuleStatus{{Name: "keda", Version: "2.1.0", Channel: "fast", State: StateReady},
				{Name: "sample", Version: "1.0.0", Channel: "regular", State: StateReady}},
			want: "keda@2.1.0 (fast), sample@1.0.0 (regular)",
		},
		"Pinned": {
			reason: "a pinned version has no channel",
			modules: []ModuleStatus{{Name: "keda", Version: "2.1.0-rc.1+x", State: StateReady},
				{Name: "sample", Version: "1.0.0", State: StateError, Reason: "WorkloadFailed"}},
			want: "keda@2.1.0-rc.1+x, sample@1.0.0 (Error, WorkloadFailed)",
		},
		"Problem": {
			reason: "state and reason of a module without a version, and a reason without a problem",
			modules: []ModuleStatus{{Name: "keda", Channel: "fast", State: StateError, Reason: "VersionNotFound"},
				{Name: "sample", Version: "1.0.0", Channel: "fast", State: StateReady, Reason: "ModulePaused"}},
			want: "keda (fast, Error, VersionNotFound), sample@1.0.0 (fast, ModulePaused)",
		},
		"Name": {
			reason:   "a requested name that is no name of a module cannot be taken for several",
			modules:  []ModuleStatus{{Name: "a@1.0.0, b", State: StateWarning}},
			want:     `"a@1.0.0, b" (Warning)`,
			isPartly: true,
		},
		"LongName": {
			reason:   "one name that is longer than the limit",
			modules:  []ModuleStatus{{Name: strings.Repeat("\x01", 253), State: StateWarning}, {Name: "b"}},
			want:     "and 2 more",
			isPartly: true,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := Summarize(c.modules)
			if got != c.want {
				t.Errorf("%s: %q, want %q", c.reason, got, c.want)
			}
			parsed, ok := ParseSummary(got)
			if ok == c.isPartly {
				t.Fatalf("%s: complete %t", c.reason, ok)
			}
			if diff := cmp.Diff(c.modules, parsed); ok && diff != "" {
				t.Errorf("%s: (-want +got):\n%s", c.reason, diff)
			}
		})
	}
	text := Summarize(many)
	if _, ok := ParseSummary(text); ok || len(text) > summaryLimit || len(text) < summaryLimit-60 ||
		!strings.HasSuffix(text, " more") {
		t.Errorf("250 modules: %d characters, complete %t: …%s", len(text), ok, text[len(text)-60:])
	}
	for _, broken := range []string{"a (", "a (b", "a (b) c", ", a", "a)(b", "and 3 more"} {
		if m, ok := ParseSummary(broken); ok {
			t.Errorf("%q is %v", broken, m)
		}
	}
}
