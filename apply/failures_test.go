package apply

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestJoinFailures(t *testing.T) {
	failure := func(i int, reason string) *Error {
		return &Error{Operation: "reading", Ref: Ref{Version: "v1", Kind: "ConfigMap", Namespace: "a",
			Name: fmt.Sprint("c", i)}, Message: "no", reason: reason}
	}
	one := failure(1, RuntimeForbidden)
	if err := JoinFailures([]*Error{one}); JoinFailures(nil) != nil || !errors.Is(err, one) ||
		err.Error() != one.Error() {
		t.Error("none is nil, and one is itself")
	}
	var many []*Error
	for i := range 120 {
		reason := RuntimeForbidden
		if i >= 110 {
			reason = ServerFault
		}
		many = append(many, failure(i, reason))
	}
	err := JoinFailures(many)
	text := err.Error()
	for _, want := range []string{"ConfigMap a/c0: no", "ConfigMap a/c2: no",
		"; and 117 more: 107 RuntimeForbidden, 10 ServerFault"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %q", want, text)
		}
	}
	if strings.Contains(text, "c3") || strings.Contains(text, "\n") {
		t.Errorf("more than three are named, or it has more than one line: %q", text)
	}
	if !errors.Is(err, many[119]) || ClassOf(err) != Transient || !reasonIs(err, RuntimeForbidden) {
		t.Error("the failures cannot be found in the error")
	}
	for _, c := range []struct {
		first, second string
		want          Class
	}{
		{ObjectRefused, WebhookFailed, Transient}, // the second object needs only a retry
		{WebhookFailed, ObjectRefused, Transient},
		{ObjectRefused, FieldImmutable, Terminal},
	} {
		joined := JoinFailures([]*Error{failure(1, c.first), failure(2, c.second)})
		if got := ClassOf(fmt.Errorf("applying: %w", joined)); got != c.want {
			t.Errorf("%s and %s: got class %d, want %d", c.first, c.second, got, c.want)
		}
	}
	for _, e := range many {
		e.Message, e.Ref.Kind = strings.Repeat("x", 1<<20), strings.Repeat("K", 1<<20)
	}
	if got := len(err.Error()); got > 8<<10 {
		t.Errorf("got %d bytes, want at most 8 KiB", got)
	}
}

// TestFindDriftErrorBounded checks that the text of an error of FindDrift has a limited length. The text of the error
// becomes part of the message of a status condition, for which the CRDs allow 32,768 bytes.
func TestFindDriftErrorBounded(t *testing.T) {
	s := newServer(t)
	c := s.cluster(ClusterOptions{})
	var texts []string
	for i := range 120 {
		name := fmt.Sprintf("controller-manager-%d", i)
		texts = append(texts, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: "+name+
			", namespace: kyma-system}}")
		s.setScript("GET /apis/apps/v1/namespaces/kyma-system/deployments/"+name, errorScript(http.StatusForbidden, "Forbidden",
			`deployments.apps "`+name+
				`" is forbidden: User "system:serviceaccount:kyma-system:lifecycle-manager" cannot get resource "deployments" in API group "apps" in the namespace "kyma-system"`))
	}
	_, err := c.FindDrift(t.Context(), Set{Bundle: bundleOf(t, strings.Join(texts, "\n---\n"))}, nil)
	if !reasonIs(err, RuntimeForbidden) || len(err.Error()) > 8<<10 ||
		!strings.HasSuffix(err.Error(), "and 117 more: 117 RuntimeForbidden") {
		t.Errorf("got %d bytes: %.2000v", len(fmt.Sprint(err)), err)
	}
}
