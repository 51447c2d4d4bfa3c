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

// object returns an object with the given fields.
func object(template, spec, status, label string) string {
	return strings.NewReplacer("SPEC", spec, "STATUS", status, "LABEL", label).Replace(template)
}

// called returns the AdmissionReview that the API server would send to the webhook.
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

// TestAdmission checks that the webhook sends the same answers and the same requests to the control plane as the Kyma
// project's agent, from which they were recorded.
func TestAdmission(t *testing.T) {
	const (
		kymaEvent = `{"watched":{"Namespace":"kyma-system","Name":"default"},"watchedGvk":{"group":"operator.kyma-project.io","version":"v1beta2","kind":"Kyma"}`
		teamEvent = `{"watched":{"Namespace":"","Name":"team"},"watchedGvk":{"group":"","version":"v1","kind":"Namespace"}`
		unchanged = "no change detected on watched resource kyma-system/default"
		succeeded = "kcp request succeeded"
	)
	one, two := object(kyma, `{"channel":"fast","n":1}`, `{"state":"Ready"}`, "x"),
		object(kyma, `{"channel":"slow","n":1}`, `{"state":"Ready"}`, "x")
	cases := map[string]struct {
		reason  string
		path    string // default /validate/lifecycle-manager
		body    string
		message string // "": the answer is empty
		url     string // default /v2/lifecycle-manager/event
		event   string // what the body begins with; "": nothing is sent
	}{
		"Create": {
			reason:  "a new object is reported",
			body:    called("CREATE", "", "", one),
			message: succeeded,
			event:   kymaEvent,
		},
		"Delete": {
			reason:  "the object that goes is the old one",
			body:    called("DELETE", "", one, ""),
			message: succeeded,
			event:   kymaEvent,
		},
		"DeleteNull": {
			reason:  "and the new one may be null",
			body:    called("DELETE", "", one, "null"),
			message: succeeded,
			event:   kymaEvent,
		},
		"Spec": {
			reason:  "a changed spec is reported",
			body:    called("UPDATE", "", one, two),
			message: succeeded,
			event:   kymaEvent,
		},
		"SameSpec": {
			reason:  "the order of keys is no change",
			body:    called("UPDATE", "", one, object(kyma, `{"n":1,"channel":"fast"}`, `null`, "y")),
			message: unchanged,
		},
		"BigNumber": {
			reason: "large numbers are compared exactly",
			body: called("UPDATE", "", object(kyma, `{"n":9007199254740992}`, `{}`, ""),
				object(kyma, `{"n":9007199254740993}`, `{}`, "")),
			message: succeeded,
			event:   kymaEvent,
		},
		"NoSpec": {
			reason:  "without a spec every change counts",
			path:    "/validate/m",
			body:    called("UPDATE", "", object(bare, "", "", "x"), object(bare, "", "", "y")),
			message: succeeded,
			url:     "/v2/m/event",
			event:   teamEvent,
		},
		"SpecGoes": {
			reason:  "a spec that is only in one counts",
			body:    called("UPDATE", "", one, object(kyma, "null", "{}", "x")),
			message: succeeded,
			event:   kymaEvent,
		},
		"Status": {
			reason:  "a changed status is reported if the webhook is for the status",
			body:    called("UPDATE", "status", one, object(kyma, `{}`, `{"state":"Error"}`, "x")),
			message: succeeded,
			event:   kymaEvent,
		},
		"StatusCase": {
			reason:  "however it is written",
			body:    called("UPDATE", "Status", one, object(kyma, `{}`, `{"state":"Error"}`, "x")),
			message: succeeded,
			event:   kymaEvent,
		},
		"SameStatus": {
			reason:  "the spec does not count then",
			body:    called("UPDATE", "status", one, two),
			message: unchanged,
		},
		"Subresource": {
			reason:  "no other subresource counts",
			body:    called("UPDATE", "scale", one, two),
			message: "invalid subresource: watched resource kyma-system/default",
		},
		"Connect": {
			reason:  "a connection changes nothing",
			body:    called("CONNECT", "", "", one),
			message: "operation CONNECT not supported for operator.kyma-project.io/v1beta2, Kind=Kyma",
		},
		"DryRun": {
			reason:  "what is only tried changes nothing",
			body:    called("CREATE", "", "", one, `"dryRun":true`),
			message: unchanged,
		},
		"Slashes": {
			reason:  "a manager may have slashes",
			path:    "/validate/a/b",
			body:    called("CREATE", "", "", one),
			message: succeeded,
			url:     "/v2/a/b/event",
			event:   kymaEvent,
		},
		"Space": {
			reason:  "and ends at a space",
			path:    "/validate/a%20b",
			body:    called("CREATE", "", "", one),
			message: succeeded,
			url:     "/v2/a/event",
			event:   kymaEvent,
		},
		"Beta": {
			reason:  "the version of the review is echoed",
			body:    strings.Replace(called("CREATE", "", "", one), "k8s.io/v1", "k8s.io/v1beta1", 1),
			message: succeeded,
			event:   kymaEvent,
		},
		"NoManager": {
			reason: "an event needs a manager",
			path:   "/validate/",
			body:   called("CREATE", "", "", one),
		},
		"NoRequest": {reason: "a review asks something", body: `{"kind":"AdmissionReview"}`},
		"NotJSON":   {reason: "and is JSON", body: `hello`},
		"NameOfRequest": {
			reason: "if the object does not know its name, the request does",
			body: called("CREATE", "", "",
				`{"apiVersion":"operator.kyma-project.io/v1beta2","kind":"Kyma","metadata":{"namespace":"kyma-system"}}`),
			message: succeeded,
			event:   kymaEvent,
		},
		"UnknownOfCreate": {
			reason: "what else is in an object does not matter",
			body: called("CREATE", "", "",
				`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"team"},"spec":[1],"status":"x","data":{}}`),
			message: succeeded,
			event:   teamEvent,
		},
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
			if got := w.Header().Get("Strict-Transport-Security") + "|" + w.Header().Get(
				"Content-Security-Policy"); got != "max-age=31536000; includeSubDomains|default-src 'self'" {
				t.Errorf("headers %s", got)
			}
			answered(t, w.Body.String(), c.body, c.message)
			if m.value(t, "watcher_admission_request_total") != 1 ||
				(m.value(t, "watcher_admission_request_error_total") == 1) != (c.message == "" && c.path == "") {
				t.Errorf("counted %v calls, %v of them bad", m.value(t, "watcher_admission_request_total"),
					m.value(t, "watcher_admission_request_error_total"))
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

// answered fails the test unless the webhook has answered a request of the API server with the given message.
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
	if answer.Kind != asked.Kind || answer.APIVersion != asked.APIVersion || r.UID != "123" || !r.Allowed ||
		r.Status.Status != "Success" || r.Status.Message != message {
		t.Errorf("answer %s, want %q", got, message)
	}
}

// lastChange stores the last change that the webhook has queued, so that a test can check it.
type lastChange struct {
	manager string
	outbox.Change
}

func (l *lastChange) add(manager string, c outbox.Change) { l.manager, l.Change = manager, c }

// posted returns the URL and the body of the request with which the agent would send the stored change.
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
	a.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/validate/m",
		strings.NewReader(`{"request":{"name":"`+strings.Repeat("x", maxReviewBytes)+`"}}`)))
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
