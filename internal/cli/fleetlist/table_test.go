package fleetlist

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// TestListBrief checks that Kymas are read from the columns of a Table, and that a whole Kyma is read only if the
// columns are not sufficient.
func TestListBrief(t *testing.T) {
	columns := slices.Clone(columnNames)
	row := func(name, versions string) []any {
		return []any{name, "Error", "regular", "1/2", versions, "WorkloadFailed", "it fails", "2026-08-01T12:00:00Z",
			false, nil, "2026-08-01T11:00:00Z", nil, "v1.34.2", nil}
	}
	const summary = "keda@2.1.0 (fast), sample@1.0.0 (regular, Error, WorkloadFailed)"
	page := func(columns []string, next string, rows ...[]any) string {
		text := fmt.Sprintf(`{"kind":"Table","metadata":{"continue":%q},"columnDefinitions":[`, next)
		for i, name := range columns {
			text += strings.Repeat(",", min(i, 1)) + fmt.Sprintf(`{"name":%q}`, name)
		}
		text += `],"rows":[`
		for i, cells := range rows {
			data, err := json.Marshal(cells)
			if err != nil {
				t.Fatal(err)
			}
			text += strings.Repeat(",", min(i, 1)) + `{"cells":` + string(data) + `,"object":null}`
		}
		return text + "]}"
	}
	var many [][]any
	for i := range maxIncomplete + 1 {
		many = append(many, row(fmt.Sprintf("r%d", i), ""))
	}
	cases := map[string]struct {
		reason string
		tables map[string]string // the key is the continue token
		want   string            // the names of the Kymas, with * if the whole Kyma was read
		lists  int               // lists of whole Kymas
		text   string            // of the error
	}{
		"Pages": {
			reason: "two pages",
			tables: map[string]string{"": page(columns, "x", row("a", summary)),
				"x": page(columns, "", row("b", summary))},
			want: "a b",
		},
		"Incomplete": {
			reason: "a summary that is missing, cut or of another status; a Kyma that was deleted meanwhile",
			tables: map[string]string{"": page(columns, "", row("a", ""), row("b", "keda@2.1.0, and 1 more"),
				row("c", "keda@2.1.0"), row("d", summary), row("deleted", ""))},
			want: "a* b* c* d",
		},
		"New": {
			reason: "a Kyma without a status",
			tables: map[string]string{"": page(columns, "", append([]any{"a"}, make([]any, len(columns)-1)...))},
			want:   "a",
		},
		"Upgraded": {
			reason: "many summaries are missing after an upgrade",
			tables: map[string]string{"": page(columns, "", many...)},
			want:   "whole*",
			lists:  1,
		},
		"OldCRD": {
			reason: "a CRD without the columns",
			tables: map[string]string{"": page(columns[:4], "x", row("a", ""))},
			want:   "whole*",
			lists:  1,
		},
		"OlderCRD": {
			reason: "a CRD without the optional columns",
			tables: map[string]string{"": page(columns[:optionalColumns], "", row("a", summary))},
			want:   "a",
		},
		"NoTable": {
			reason: "an API server that returns the list in its usual form",
			tables: map[string]string{"": `{"items":[],"metadata":{}}`},
			want:   "whole*",
			lists:  1,
		},
		"Cells": {
			reason: "a proxy that drops cells",
			tables: map[string]string{"": page(columns, "", row("a", summary)[:3])},
			text:   "did not return a list",
		},
		"Page": {
			reason: "a proxy that returns something else",
			tables: map[string]string{"": "<html>"},
			text:   "did not return a list",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			lists := 0
			whole := func(name string) string {
				return fmt.Sprintf(`{"metadata":{"name":%q,"creationTimestamp":"2026-08-01T12:00:00Z"}}`, name)
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				q := r.URL.Query()
				switch name := path.Base(r.URL.Path); {
				case name == "deleted":
					fixture.Fail(w, apierrors.NewNotFound(schema.GroupResource{}, name))
				case name != "kymas":
					fmt.Fprint(w, whole(name))
				case q.Get("labelSelector") != "team=blue":
					t.Errorf("unexpected request %s", r.URL)
				case strings.Contains(r.Header.Get("Accept"), "as=Table") && q.Get("includeObject") == "None":
					fmt.Fprint(w, c.tables[q.Get("continue")])
				default:
					lists++
					fmt.Fprintf(w, `{"items":[%s],"metadata":{}}`, whole("whole"))
				}
			}))
			defer server.Close()
			cluster, err := connection.New(&rest.Config{Host: server.URL}, "test", "kcp-system")
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]bool{}
			err = ListBrief(t.Context(), cluster, "team=blue", func(m *Member) {
				if m.Metadata.CreationTimestamp != "" {
					m.Metadata.Name += "*"
				}
				found[m.Metadata.Name] = true
			})
			if names := strings.Join(slices.Sorted(maps.Keys(found)), " "); names != c.want || lists != c.lists {
				t.Errorf("%s: %q, %d lists, want %q, %d", c.reason, names, lists, c.want, c.lists)
			}
			if (err != nil) != (c.text != "") || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %v, want %q", c.reason, err, c.text)
			}
		})
	}
	m, ok := memberOf(func(i int) any { return row("a", summary)[i] })
	reason, message := m.Blocker()
	want := []MemberModule{{Name: "keda", Version: "2.1.0", Channel: "fast", State: "Ready"},
		{Name: "sample", Version: "1.0.0", Channel: "regular", State: "Error", Reason: "WorkloadFailed"}}
	if diff := cmp.Diff(want, m.Status.Modules); diff != "" || !ok || reason != "WorkloadFailed" || message == "" ||
		m.IsPaused() || m.Status.Agent.Heard ||
		m.Status.Agent.LastHeartbeat != "2026-08-01T11:00:00Z" || !m.Since().Equal(fixture.Noon) {
		t.Errorf("member %+v, %t, %q, %q: modules (-want +got):\n%s", m, ok, reason, message, diff)
	}
}

// TestListRows checks that ListMatchingWithMessages and List lead to the same line for each Kyma, and which Kymas
// ListMatchingWithMessages reads singly.
func TestListRows(t *testing.T) {
	ready := fixture.Kyma(v1beta2.StateReady, v1beta2.Module{Name: "sample"}, v1beta2.ModuleStatus{
		Name: "sample", Version: "1.0.0", Channel: "regular", State: v1beta2.StateReady})
	ready.CreationTimestamp, ready.Status.KubernetesVersion = fixture.BeforeNoon(time.Hour), "v1.34.2"
	ready.Status.Agent = &v1beta2.AgentStatus{Connected: true}
	ready.Annotations = map[string]string{v1beta2.AnnotationPaused: "Kim"}
	fails := ready.DeepCopy()
	fails.Name, fails.Status.State = "fails", v1beta2.StateError
	fails.Status.Modules[0].State, fails.Status.Modules[0].Reason = v1beta2.StateError, v1beta2.ReasonWorkloadFailed
	fails.Status.Modules[0].Message = "Deployment sample has no replica"
	fails.Status.Conditions = []metav1.Condition{fixture.Condition(v1beta2.ConditionReady, "False",
		v1beta2.ReasonWorkloadFailed, "not ready: sample")}
	waits := ready.DeepCopy()
	waits.Name, waits.Status.Modules[0].Reason = "waits", v1beta2.ReasonWaitingForWindow
	waits.Status.Modules[0].Message = "the window opens on Saturday"
	kymas := []*v1beta2.Kyma{fails, ready, waits}
	for _, k := range kymas {
		k.Status.Summary, k.Status.ModulesReady = v1beta2.Summarize(k.Status.Modules), "1/1"
	}
	fails.Status.ModulesReady = "0/1"
	cases := map[string]struct {
		reason  string
		args    []string
		columns int
		many    int    // further Kymas that fail
		reads   string // the Kymas that are read one by one
		lists   int    // lists of whole Kymas
	}{
		"All":     {"the messages are not in the columns", nil, len(columnNames), 0, "fails waits", 0},
		"State":   {"only Kymas that are shown are read", []string{"--state=Error"}, len(columnNames), 0, "fails", 0},
		"Version": {"as above", []string{"--version=3.0.0"}, len(columnNames), 0, "", 0},
		"Reason":  {"any condition may have it", []string{"--reason=WorkloadFailed"}, len(columnNames), 0, "", 1},
		"Older":   {"a CRD without the time of creation", nil, columnCreated, 0, "", 1},
		"Oldest":  {"a CRD without the columns", nil, columnMessage, 0, "", 1},
		"Many":    {"one list is faster than many reads", nil, len(columnNames), maxIncomplete, "", 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			all := slices.Clone(kymas)
			for i := range c.many {
				k := fails.DeepCopy()
				k.Name = fmt.Sprint("more-", i)
				all = append(all, k)
			}
			var mu sync.Mutex
			var reads []string
			lists := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				var answer any = map[string]any{"items": all, "metadata": map[string]any{}}
				name := path.Base(r.URL.Path)
				at := slices.IndexFunc(all, func(k *v1beta2.Kyma) bool { return k.Name == name })
				switch {
				case at >= 0:
					reads, answer = append(reads, name), all[at]
				case strings.Contains(r.Header.Get("Accept"), "as=Table"):
					answer = tableOf(all, c.columns)
				default:
					lists++
				}
				if err := json.NewEncoder(w).Encode(answer); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			cluster, err := connection.New(&rest.Config{Host: server.URL}, "test", "kcp-system")
			if err != nil {
				t.Fatal(err)
			}
			l := listing(t, c.args)
			line := func(m *Member) string {
				reason, message := m.Blocker()
				return fmt.Sprint(m.Metadata.Name, m.State(), m.Spec.Channel, m.Status.ModulesReady, m.IsPaused(),
					m.Metadata.CreationTimestamp, m.Status.KubernetesVersion, m.Status.Agent.Heard, reason, message)
			}
			var got, want []string
			err = ListMatchingWithMessages(t.Context(), cluster, l, func(m *Member) { got = append(got, line(m)) })
			slices.Sort(reads)
			if names := strings.Join(reads, " "); err != nil || names != c.reads || lists != c.lists {
				t.Errorf("%s: %v, read %q and %d lists, want %q and %d", c.reason, err, names, lists, c.reads, c.lists)
			}
			err = ListMatching(t.Context(), cluster, l, true, func(m *Member) { want = append(want, line(m)) })
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%s: %v, lines (-List +ListMatchingWithMessages):\n%s", c.reason, err, diff)
			}
		})
	}
}

// tableOf returns the first columns of some Kymas as a Table.
func tableOf(all []*v1beta2.Kyma, columns int) any {
	answer := table{}
	for _, name := range columnNames[:columns] {
		answer.ColumnDefinitions = append(answer.ColumnDefinitions, columnDefinition{name})
	}
	for _, k := range all {
		reason := "Ready"
		if len(k.Status.Conditions) > 0 {
			reason = k.Status.Conditions[0].Reason
		}
		cells := []any{k.Name, k.Status.State, k.Spec.Channel, k.Status.ModulesReady, k.Status.Summary, reason, "text",
			nil, k.Status.Agent.Connected, k.Annotations[v1beta2.AnnotationPaused], nil, nil,
			k.Status.KubernetesVersion, k.CreationTimestamp}
		answer.Rows = append(answer.Rows, tableRow{Cells: cells[:columns]})
	}
	return answer
}

// TestRefresh checks that CompleteBrief reads members of a listing again as Kymas with all fields. If the state of a
// Kyma has changed since the listing, its member must stay as it is.
func TestRefresh(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"metadata":{"name":%q},"status":{"state":"Error","modulesReady":"1/2"}}`, path.Base(r.URL.Path))
	}))
	defer server.Close()
	cluster, err := connection.New(&rest.Config{Host: server.URL}, "test", "kcp-system")
	if err != nil {
		t.Fatal(err)
	}
	same, changed := &Member{}, &Member{}
	same.Metadata.Name, same.Status.State = "same", "Error"
	changed.Metadata.Name, changed.Status.State = "changed", "Warning"
	if err := CompleteBrief(t.Context(), cluster, []*Member{changed, same}); err != nil ||
		same.Status.ModulesReady == "" || changed.Status.ModulesReady != "" {
		t.Errorf("%+v, %+v, %v", same.Status, changed.Status, err)
	}
}

// TestListLabelled checks that listed Kymas have labels, the annotations that defer updates, and the field that states
// whether the runtime ignores maintenance windows.
func TestListLabelled(t *testing.T) {
	var include string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		include = r.URL.Query().Get("includeObject")
		var definitions []string
		for _, name := range columnNames {
			definitions = append(definitions, fmt.Sprintf(`{"name":%q}`, name))
		}
		const cells = `"Ready","regular","1/1","sample@1.0.0 (regular)","","","2026-08-01T12:00:00Z",true,null,null`
		fmt.Fprintf(w, `{"kind":"Table","metadata":{},"columnDefinitions":[%s],"rows":[
			{"cells":["a",%s,true,"v1.34.2","2026-08-01T12:00:00Z"],"object":{"metadata":{"name":"a","labels":{"x":"y"},"annotations":{
				"operator.kyma-project.io/not-before":"2026-12-24","operator.kyma-project.io/paused":"Kim",
				"not-before.operator.kyma-project.io/sample":"2026-12-25","other":"1",
				"operator.kyma-project.io/last-wish":"{\"channel\":\"fast\",\"deferrals\":{}}"}}}},
			{"cells":["b",%[2]s,null,null,null],"object":{"metadata":{"name":"b","annotations":{
				"operator.kyma-project.io/last-wish":"{\"channel\":\"fast\"}"}}}}]}`, strings.Join(definitions, ","), cells)
	}))
	defer server.Close()
	cluster, err := connection.New(&rest.Config{Host: server.URL}, "test", "kcp-system")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*Member{}
	err = ListBriefWithLabels(t.Context(), cluster, "", func(m *Member) { all[m.Metadata.Name] = m })
	if err != nil || len(all) != 2 || include != "Metadata" {
		t.Fatalf("%d members, %v, includeObject %q", len(all), err, include)
	}
	a, b := all["a"], all["b"]
	want := map[string]string{"operator.kyma-project.io/not-before": "2026-12-24",
		"not-before.operator.kyma-project.io/sample": "2026-12-25",
		"operator.kyma-project.io/last-wish":         `{"channel":"fast","deferrals":{}}`}
	if diff := cmp.Diff(want, a.Metadata.Annotations.Deferring); diff != "" {
		t.Errorf("the annotations (-want +got):\n%s", diff)
	}
	if !a.Spec.SkipWindows || b.Spec.SkipWindows || a.Status.KubernetesVersion != "v1.34.2" ||
		a.Metadata.Labels["x"] != "y" || b.Metadata.Annotations.Deferring != nil || len(a.Status.Modules) != 1 {
		t.Errorf("a is %+v, b is %+v", a, b)
	}
	whole := &Member{}
	const paused = `{"metadata":{"annotations":{"operator.kyma-project.io/paused":"Kim"}}}`
	if err := json.Unmarshal([]byte(paused), whole); err != nil ||
		whole.Metadata.Annotations.Paused == nil {
		t.Errorf("a whole Kyma that is paused: %+v, %v", whole, err)
	}
}
