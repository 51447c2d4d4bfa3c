package loop

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

func TestMessage(t *testing.T) {
	var many []error
	for i := range 120 {
		many = append(many, fmt.Errorf("comparing ConfigMap default/a-%d: forbidden: %s", i, strings.Repeat("y", 300)))
	}
	huge := errors.New(strings.Repeat("z", 100000))
	cases := map[string]struct {
		reason     string
		err        error
		begin, end string
	}{
		"None": {"no error", nil, "", ""},
		"One":  {"its text", errors.New("a"), "a", "a"},
		"Joined": {"in one line", errors.Join(errors.New("a"), errors.Join(errors.New("b"), errors.New("c"))),
			"a; b; c", "c"},
		"Repeated": {"named once", errors.Join(errors.New("a"), errors.New("a")), "a", "a"},
		"Wrapped": {"the text around it stays", fmt.Errorf("outer: %w", errors.Join(errors.New("a"), errors.New("b"))),
			"outer: a; b", "b"},
		"Many": {"bounded, with the number of the others", errors.Join(many...),
			"comparing ConfigMap default/a-0: forbidden: y", "y; and 109 more"},
		"Huge": {"bounded", huge, "zzz", "z…"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := Message(c.err)
			if !strings.HasPrefix(got, c.begin) || !strings.HasSuffix(got, c.end) || len(got) > SummaryLimit {
				t.Errorf("%s: %d bytes: %q", c.reason, len(got), got)
			}
		})
	}
	if got := JoinWithinLimit([]string{strings.Repeat("€", SummaryLimit), "b"}); len(got) > SummaryLimit ||
		!strings.HasSuffix(got, "…; and 1 more") {
		t.Errorf("a long first text: %d bytes, %q", len(got), got[len(got)-20:])
	}
}

// TestStatusIsClipped checks that the CRD accepts every status, even if Report writes an invalid or a very long text
// into it.
func TestStatusIsClipped(t *testing.T) {
	b := newBench(t)
	text := strings.Repeat("forbidden\n", 5000)
	_, err := Run(t.Context(), Options{Client: b, Controller: "test", Object: b.kyma, Report: func(Outcome) {
		s := &b.kyma.Status
		s.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "No", Message: text}}
		s.LastOperation.Operation = text
		s.Modules = []v1beta2.ModuleStatus{{Name: "a", Message: text}}
		s.Agent = &v1beta2.AgentStatus{Message: text}
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := b.kyma.Status
	for _, got := range []string{s.Conditions[0].Message, s.LastOperation.Operation,
		s.Modules[0].Message, s.Agent.Message} {
		if len(got) > SummaryLimit || strings.Contains(got, "\n") || !strings.HasPrefix(got, "forbidden; forbidden") {
			t.Errorf("%d bytes: %.60q", len(got), got)
		}
	}
	for _, o := range []*v1beta2.Manifest{{Status: v1beta2.ManifestStatus{
		Conditions: []metav1.Condition{{Message: text}}, LastOperation: v1beta2.LastOperation{Operation: text}}}} {
		if clipStatus(o); len(o.Status.Conditions[0].Message) > SummaryLimit ||
			len(o.Status.LastOperation.Operation) > SummaryLimit {
			t.Error("the status of a Manifest is not clipped")
		}
	}
	w := &v1beta2.Watcher{Status: v1beta2.WatcherStatus{Conditions: []metav1.Condition{{Message: text}}}}
	if clipStatus(w); len(w.Status.Conditions[0].Message) > SummaryLimit {
		t.Error("the status of a Watcher is not clipped")
	}
}
