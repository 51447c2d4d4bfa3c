package agent

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/internal/agent/outbox"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

const (
	kyma = `{"apiVersion":"operator.kyma-project.io/v1beta2","kind":"Kyma","metadata":{"namespace":"kyma-system","name":"default","labels":{"a":"LABEL"}},"spec":SPEC,"status":STATUS}`
	bare = `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"team","labels":{"a":"LABEL"}}}`
)

// object fills in an object.
func object(template, spec, status, label string) string {
	return strings.NewReplacer("SPEC", spec, "STATUS", status, "LABEL", label).Replace(template)
}

// called is an AdmissionReview.
func called(operation, subresource, before, after string, more ...string) string {
	r := `{"uid":"123","kind":{"group":"operator.kyma-project.io","version":"v1beta2","kind":"Kyma"},` +
		`"resource":{"group":"operator.kyma-project.io","version":"v1beta2","resource":"kymas"},"name":"default","operation":"` + operation + `"`
	if subresource != "" {
		r += `,"subResource":"` + subresource + `"`
	}
	if before != "" {
		r += `,"oldObject":` + before
	}
	if after != "" {
		r += `,"object":` + after
	}
	for _, m := range more {
		r += "," + m
	}
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":` + r + `}}`
}

// TestAdmission compares the webhook with recorded answers and requests of the Kyma project's agent.
func TestAdmission(t *testing.T) {
	const (
		kymaEvent = `{"watched":{"Namespace":"kyma-system","Name":"default"},"watchedGvk":{"group":"operator.kyma-project.io","version":"v1beta2","kind":"Kyma"}`
		teamEvent = `{"watched":{"Namespace":"","Name":"team"},"watchedGvk":{"group":"","version":"v1","kind":"Namespace"}`
		unchanged = "no change detected on watched resource kyma-system/default"
		succeeded = "kcp request succeeded"
	)
	one, two := object(kyma, `{"channel":"fast","n":1}`, `{"state":"Ready"}`, "x"), object(kyma, `{"channel":"slow","n":1}`, `{"state":"Ready"}`, "x")
	cases := map[string]struct {
		reason  string
		path    string // default /validate/lifecycle-manager
		body    string
		message string // "": the answer is empty
		url     string // default /v2/lifecycle-manager/event
		event   string // what the body begins with; "": nothing is sent
	}{
		"Create":          {"a new object is reported", "", called("CREATE", "", "", one), succeeded, "", kymaEvent},
		"Delete":          {"the object that goes is the old one", "", called("DELETE", "", one, ""), succeeded, "", kymaEvent},
		"DeleteNull":      {"and the new one may be null", "", called("DELETE", "", one, "null"), succeeded, "", kymaEvent},
		"Spec":            {"a changed spec is reported", "", called("UPDATE", "", one, two), succeeded, "", kymaEvent},
		"SameSpec":        {"the order of keys is no change", "", called("UPDATE", "", one, object(kyma, `{"n":1,"channel":"fast"}`, `null`, "y")), unchanged, "", ""},
		"BigNumber":       {"large numbers are compared exactly", "", called("UPDATE", "", object(kyma, `{"n":9007199254740992}`, `{}`, ""), object(kyma, `{"n":9007199254740993}`, `{}`, "")), succeeded, "", kymaEvent},
		"NoSpec":          {"without a spec every change counts", "/validate/m", called("UPDATE", "", object(bare, "", "", "x"), object(bare, "", "", "y")), succeeded, "/v2/m/event", teamEvent},
		"SpecGoes":        {"a spec that is only in one counts", "", called("UPDATE", "", one, object(kyma, "null", "{}", "x")), succeeded, "", kymaEvent},
		"Status":          {"a changed status is reported if the webhook is for the status", "", called("UPDATE", "status", one, object(kyma, `{}`, `{"state":"Error"}`, "x")), succeeded, "", kymaEvent},
		"StatusCase":      {"however it is written", "", called("UPDATE", "Status", one, object(kyma, `{}`, `{"state":"Error"}`, "x")), succeeded, "", kymaEvent},
		"SameStatus":      {"the spec does not count then", "", called("UPDATE", "status", one, two), unchanged, "", ""},
		"Subresource":     {"no other subresource counts", "", called("UPDATE", "scale", one, two), "invalid subresource: watched resource kyma-system/default", "", ""},
		"Connect":         {"a connection changes nothing", "", called("CONNECT", "", "", one), "operation CONNECT not supported for operator.kyma-project.io/v1beta2, Kind=Kyma", "", ""},
		"DryRun":          {"what is only tried changes nothing", "", called("CREATE", "", "", one, `"dryRun":true`), unchanged, "", ""},
		"Slashes":         {"a manager may have slashes", "/validate/a/b", called("CREATE", "", "", one), succeeded, "/v2/a/b/event", kymaEvent},
		"Space":           {"and ends at a space", "/validate/a%20b", called("CREATE", "", "", one), succeeded, "/v2/a/event", kymaEvent},
		"Beta":            {"the version of the review is echoed", "", strings.Replace(called("CREATE", "", "", one), "k8s.io/v1", "k8s.io/v1beta1", 1), succeeded, "", kymaEvent},
		"NoManager":       {"an event needs a manager", "/validate/", called("CREATE", "", "", one), "", "", ""},
		"NoRequest":       {"a review asks something", "", `{"kind":"AdmissionReview"}`, "", "", ""},
		"NotJSON":         {"and is JSON", "", `hello`, "", "", ""},
		"NameOfRequest":   {"if the object does not know its name, the request does", "", called("CREATE", "", "", `{"apiVersion":"operator.kyma-project.io/v1beta2","kind":"Kyma","metadata":{"namespace":"kyma-system"}}`), succeeded, "", kymaEvent},
		"UnknownOfCreate": {"what else is in an object does not matter", "", called("CREATE", "", "", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"team"},"spec":[1],"status":"x","data":{}}`), succeeded, "", teamEvent},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := newMetrics()
			var last lastChange
			a := &admission{add: last.add, metrics: m}
			path, url := c.path, c.url
			if path == "" {
				path = "/validate/lifecycle-manager"
			}
			if url == "" {
				url = "/v2/lifecycle-manager/event"
			}
			w := httptest.NewRecorder()
			a.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(c.body)))
			if w.Code != http.StatusOK {
				t.Errorf("status %d", w.Code)
			}
			if got := w.Header().Get("Strict-Transport-Security") + "|" + w.Header().Get("Content-Security-Policy"); got != "max-age=31536000; includeSubDomains|default-src 'self'" {
				t.Errorf("headers %s", got)
			}
			answered(t, w.Body.String(), c.body, c.message)
			if m.value(t, "watcher_admission_request_total") != 1 || (m.value(t, "watcher_admission_request_error_total") == 1) != (c.message == "" && c.path == "") {
				t.Errorf("counted %v calls, %v of them bad", m.value(t, "watcher_admission_request_total"), m.value(t, "watcher_admission_request_error_total"))
			}
			gotURL, gotBody := last.posted(t)
			if c.event == "" {
				if gotURL != "" {
					t.Errorf("%s: sent %s to %s", c.reason, gotBody, gotURL)
				}
				return
			}
			if gotURL != url || !strings.HasPrefix(gotBody, c.event+`,"boot":"boot","sequence":1`) {
				t.Errorf("%s: sent %s to %s, want %s to %s", c.reason, gotBody, gotURL, c.event, url)
			}
		})
	}
}

// value returns the sum of all series of a metric.
func (m *metrics) value(t *testing.T, name string) float64 {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum, found := 0.0, false
	for _, f := range families {
		for _, series := range f.GetMetric() {
			if f.GetName() == name {
				sum, found = sum+series.GetCounter().GetValue()+series.GetGauge().GetValue(), true
			}
		}
	}
	if !found {
		t.Fatalf("there is no metric %s", name)
	}
	return sum
}

// answered checks an answer of the webhook.
func answered(t *testing.T, got, request, message string) {
	t.Helper()
	if message == "" {
		if got != "" {
			t.Errorf("answer %q, want none", got)
		}
		return
	}
	var asked struct{ APIVersion, Kind string }
	var answer struct {
		APIVersion, Kind string
		Response         struct {
			UID     string
			Allowed bool
			Status  struct{ Status, Message string }
		}
	}
	if err := json.Unmarshal([]byte(got), &answer); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(request), &asked); err != nil {
		t.Fatal(err)
	}
	r := answer.Response
	if answer.Kind != asked.Kind || answer.APIVersion != asked.APIVersion || r.UID != "123" || !r.Allowed || r.Status.Status != "Success" || r.Status.Message != message {
		t.Errorf("answer %s, want %q", got, message)
	}
}

// lastChange keeps the last change that the webhook queued.
type lastChange struct {
	manager string
	outbox.Change
}

func (l *lastChange) add(manager string, c outbox.Change) { l.manager, l.Change = manager, c }

// posted returns the request for the last change.
func (l *lastChange) posted(t *testing.T) (url, body string) {
	t.Helper()
	if l.manager == "" {
		return "", ""
	}
	if l.Delay != admitDelay || l.RepeatAfter != admitRepeat {
		t.Errorf("it is not delayed and repeated: %+v", l.Change)
	}
	l.Event.BootID, l.Event.Sequence = "boot", 1
	data, err := json.Marshal(l.Event)
	if err != nil {
		t.Fatal(err)
	}
	return protocol.EventPath(l.manager), string(data)
}

func TestAdmissionLimits(t *testing.T) {
	m := newMetrics()
	var last lastChange
	a := &admission{add: last.add, metrics: m}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/validate/m", strings.NewReader(`{"request":{"name":"`+strings.Repeat("x", maxReviewBytes)+`"}}`)))
	if w.Body.Len() > 0 || m.value(t, "watcher_admission_request_error_total") != 1 {
		t.Errorf("a review that is too large: %s", w.Body)
	}
}

func FuzzAdmission(f *testing.F) {
	f.Add(called("UPDATE", "", object(kyma, "{}", "{}", ""), object(bare, "", "", "")))
	m := newMetrics()
	var last lastChange
	a := &admission{add: last.add, metrics: m}
	f.Fuzz(func(t *testing.T, body string) {
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/validate/m", strings.NewReader(body)))
		if w.Code != http.StatusOK {
			t.Errorf("status %d", w.Code)
		}
	})
}
