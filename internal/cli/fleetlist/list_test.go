package fleetlist

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// TestBlocker checks which reason of the Kyma and its modules is returned.
func TestBlocker(t *testing.T) {
	notReady := []MemberCondition{{Type: v1beta2.ConditionReady, Status: "False", Reason: "RuntimeUnreachable",
		Message: "not ready: no answer"}}
	failed, waiting := MemberModule{Name: "a", State: v1beta2.StateError, Reason: "Failed", Message: "it crashes"},
		MemberModule{Name: "b", State: v1beta2.StateWarning, Reason: "Waiting"}
	cases := map[string]struct {
		reason          string
		modules         []MemberModule
		conditions      []MemberCondition
		blocker, detail string
	}{
		"None":   {reason: "nothing blocks", modules: []MemberModule{{Name: "a", State: v1beta2.StateReady}}},
		"Module": {reason: "a module", modules: []MemberModule{waiting}, blocker: "Waiting", detail: "module b"},
		"Worst": {
			reason:  "the worst module, in any order",
			modules: []MemberModule{waiting, failed, waiting},
			blocker: "Failed",
			detail:  "it crashes",
		},
		"Kyma": {
			reason:     "the condition, if no module has its reason",
			modules:    []MemberModule{failed},
			conditions: notReady,
			blocker:    "RuntimeUnreachable",
			detail:     "no answer",
		},
		"SameReason": {
			reason:     "the module, if the condition has its reason",
			modules:    []MemberModule{{Name: "a", Reason: "RuntimeUnreachable", Message: "a does not answer"}},
			conditions: notReady,
			blocker:    "RuntimeUnreachable",
			detail:     "a does not answer",
		},
		"Ready": {
			reason:     "a condition that is True",
			conditions: []MemberCondition{{Type: v1beta2.ConditionReady, Status: "True", Reason: "Ready"}},
		},
	}
	for name, c := range cases {
		m := &Member{}
		m.Status.Modules, m.Status.Conditions = c.modules, c.conditions
		if blocker, detail := m.Blocker(); blocker != c.blocker || detail != c.detail {
			t.Errorf("%s: %s: %q, %q, want %q, %q", name, c.reason, blocker, detail, c.blocker, c.detail)
		}
	}
}

func TestMember(t *testing.T) {
	paused := map[string]*string{"None": nil, "Empty": new(""), "Reason": new("ask Kim"), "False": new(" False ")}
	for name, want := range map[string]bool{"None": false, "Empty": true, "Reason": true, "False": false} {
		m := &Member{}
		if m.Metadata.Annotations.Paused = paused[name]; m.IsPaused() != want {
			t.Errorf("%s: paused is %t, want %t", name, m.IsPaused(), want)
		}
	}
	m := &Member{}
	if m.State() != console.StateNew || !m.Since().IsZero() {
		t.Errorf("without a status: %s since %s", m.State(), m.Since())
	}
	m.Status.LastOperation.LastUpdateTime = "2026-08-01T12:00:00Z"
	if !m.Since().Equal(fixture.Noon) {
		t.Errorf("since %s", m.Since())
	}
	order := []v1beta2.State{v1beta2.StateReady, v1beta2.StateUnmanaged, console.StateNew, v1beta2.StateProcessing,
		v1beta2.StateDeleting, v1beta2.StateWarning, v1beta2.StateError}
	for i := range order[1:] {
		if Severity(order[i]) >= Severity(order[i+1]) {
			t.Errorf("%s is as bad as %s", order[i], order[i+1])
		}
	}
	if !ParseTime("tomorrow").Equal(time.Time{}) {
		t.Error("a text that is not a time is a time")
	}
}

// TestList checks that each page is requested with the token of the previous page, and that an error of any page ends
// the list.
func TestList(t *testing.T) {
	page := func(names, next string) string {
		var items []string
		for n := range strings.FieldsSeq(names) {
			items = append(items, fmt.Sprintf(`{"metadata":{"name":%q,"managedFields":[{"a":"b"}]}}`, n))
		}
		return fmt.Sprintf(`{"items":[%s],"metadata":{"continue":%q,"resourceVersion":"7"}}`,
			strings.Join(items, ","), next)
	}
	cases := map[string]struct {
		reason  string
		answers map[string]any // by token: a page or an error
		want    int            // members
		code    int
		text    string // of the error
	}{
		"One": {reason: "one page", answers: map[string]any{"": page("a b", "")}, want: 2},
		"Three": {
			reason:  "three pages",
			answers: map[string]any{"": page("a b", "x"), "x": page("c", "y"), "y": page("d", "")},
			want:    4,
		},
		"Empty": {reason: "an empty fleet", answers: map[string]any{"": page("", "")}},
		"Expired": {
			reason:  "the token has expired",
			answers: map[string]any{"": page("a", "x"), "x": apierrors.NewResourceExpired("too old")},
			want:    1,
			code:    console.ExitFailed,
			text:    "listing kymas: they changed too much while they were read: try again",
		},
		"Denied": {
			reason:  "a permission is missing",
			answers: map[string]any{"": apierrors.NewUnauthorized("no")},
			code:    console.ExitForbidden,
			text:    "does not accept the credentials",
		},
		"Page": {
			reason:  "a proxy answers",
			answers: map[string]any{"": "<html>"},
			code:    console.ExitFailed,
			text:    "did not return a list in JSON",
		},
		"Object": {
			reason:  "an object that is not a Kyma",
			answers: map[string]any{"": `{"items":[{"metadata":1}],"metadata":{}}`},
			code:    console.ExitFailed,
			text:    "listing kymas: json: cannot unmarshal",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				q := r.URL.Query()
				if q.Get("limit") != "500" || q.Get("labelSelector") != "team=blue" ||
					r.URL.Path != "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas" {
					t.Errorf("unexpected request %s", r.URL)
				}
				switch answer := c.answers[q.Get("continue")].(type) {
				case string:
					fmt.Fprint(w, answer)
				case error:
					fixture.Fail(w, answer)
				}
			}))
			defer server.Close()
			cluster, err := connection.New(&rest.Config{Host: server.URL}, "test", "kcp-system")
			if err != nil {
				t.Fatal(err)
			}
			found := 0
			version, err := List(t.Context(), cluster, "team=blue", func(m *Member) {
				if m.Metadata.Name != "" {
					found++
				}
			})
			if found != c.want || console.ExitCode(err) != c.code || err == nil && version != "7" {
				t.Errorf("%s: %d members, version %q, %v", c.reason, found, version, err)
			}
			if c.text != "" && (err == nil || !strings.Contains(err.Error(), c.text)) {
				t.Errorf("%s: %v, want %q", c.reason, err, c.text)
			}
		})
	}
}
