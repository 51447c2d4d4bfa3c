package gate

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// inMemory answers requests without a network connection and without waiting, so that no timeout stops a request.
type inMemory struct{ http.Handler }

func (h inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

// TestRead checks the answers of gates: only a clear answer passes or fails.
func TestRead(t *testing.T) {
	const host = "http://gate.example.com"
	answer, status := "", http.StatusOK
	server := inMemory{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status == http.StatusFound {
			http.Redirect(w, r, "/elsewhere", status)
			return
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	})}
	promQL := &v1beta2.RolloutGate{Name: "errors", PromQL: &v1beta2.PromQLGate{Expr: "up", URL: host}}
	webhook := &v1beta2.RolloutGate{Name: "hook", Webhook: &v1beta2.WebhookGate{URL: host + "/gate"}}
	vector := func(value string) string {
		return `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"` + value + `"]}]}}`
	}
	for name, c := range map[string]struct {
		gate   *v1beta2.RolloutGate
		answer string
		status int
		allow  string
		want   v1beta2.GateState
	}{
		"One":  {gate: promQL, answer: vector("1"), want: v1beta2.GatePass},
		"Zero": {gate: promQL, answer: vector("0"), want: v1beta2.GateFail},
		"Half": {gate: promQL, answer: vector("0.5"), want: v1beta2.GateUnknown},
		"Empty": {
			gate: promQL, answer: `{"status":"success","data":{"resultType":"vector","result":[]}}`,
			want: v1beta2.GateUnknown,
		},
		"Error":    {gate: promQL, answer: `{"status":"error","error":"bad"}`, want: v1beta2.GateUnknown},
		"NoJSON":   {gate: promQL, answer: "<html>", want: v1beta2.GateUnknown},
		"Large":    {gate: promQL, answer: strings.Repeat(" ", answerLimit+2), want: v1beta2.GateUnknown},
		"Redirect": {gate: promQL, answer: vector("1"), status: http.StatusFound, want: v1beta2.GateUnknown},
		"Broken": {
			gate: webhook, answer: `{"result":"pass"}`, status: http.StatusInternalServerError,
			want: v1beta2.GateUnknown,
		},
		"Pass":  {gate: webhook, answer: `{"result":"pass"}`, want: v1beta2.GatePass},
		"Fail":  {gate: webhook, answer: `{"result":"fail"}`, want: v1beta2.GateFail},
		"Wait":  {gate: webhook, answer: `{"result":"wait"}`, want: v1beta2.GateUnknown},
		"Other": {gate: webhook, answer: `{"result":"yes"}`, want: v1beta2.GateUnknown},
		"NotAllowed": {
			gate: webhook, answer: `{"result":"pass"}`, allow: "https://example.com/",
			want: v1beta2.GateUnknown,
		},
		"LongerName": {
			gate: webhook, answer: `{"result":"pass"}`, allow: host + "/ga",
			want: v1beta2.GateUnknown,
		},
		"Below": {gate: webhook, answer: `{"result":"pass"}`, allow: host + "/", want: v1beta2.GatePass},
		"Same":  {gate: webhook, answer: `{"result":"pass"}`, allow: host + "/gate", want: v1beta2.GatePass},
		"OtherPath": {
			gate: webhook, answer: `{"result":"pass"}`, allow: host + "/other",
			want: v1beta2.GateUnknown,
		},
	} {
		t.Run(name, func(t *testing.T) {
			answer, status = c.answer, http.StatusOK
			if c.status != 0 {
				status = c.status
			}
			allow := host
			if c.allow != "" {
				allow = c.allow
			}
			g := &Reader{Allow: []string{allow}, Client: &http.Client{Transport: server}}
			if state, message := g.Read(t.Context(), &v1beta2.ModuleRollout{}, c.gate); state != c.want {
				t.Errorf("%s (%s), want %s", state, message, c.want)
			}
		})
	}
}
