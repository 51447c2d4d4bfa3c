// Package gate sends the requests of rollouts to other services: queries of Prometheus, and webhooks.
//
// # Use
//
//	g := &gate.Reader{Allow: []string{"https://prometheus.example.com/"}}
//	c := gate.NewCache(g, enqueueModule)
//	err := mgr.Add(c)                          // reads the gates
//	results, next := c.RequestResults(rollout) // returns at once
//
//	n := gate.NewNotifier(g, enqueueModule)
//	err = mgr.Add(n)                           // sends the notifications
//	isDelivered, err := n.Deliver("keda/regular", gate.Notification{…}) // returns at once
//
// # How it works
//
// A gate passes or fails only if the answer of the service is unambiguous. With any other answer, or without an answer
// within the timeout, the result of the gate is unknown. A policy must not be able to choose an address in the network
// of the manager. Therefore the package calls only addresses of the allow list, and follows no redirects.
//
// The method RequestResults sends no request itself: it returns the last results from memory, and requests a read of
// each gate at most once per Interval. Other goroutines read the gates, at most maxParallel at the same time, so a
// server that does not answer delays no rollout without a gate. A result is used until the next one, for at most
// maxAge. Notifications are sent in the same way, until the webhook has accepted them.
//
// # What it does not do
//
// The package does not handle gates for approvals and times, because these gates need no request to another service.
// The package does not decide whether a rollout continues after the result of a gate.
package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Reader reads gates. It is safe for concurrent use.
type Reader struct {
	// Allow are the prefixes of the addresses to which gates may send requests, such as
	// https://prometheus.example.com/. A prefix without a path allows all paths of its host.
	Allow []string
	// Client sends the requests. nil means a client with a timeout of 5 seconds.
	Client *http.Client
}

const (
	timeout     = 5 * time.Second
	answerLimit = 64 << 10 // bytes of an answer
)

// Read returns the result of one gate. If the service does not answer, or its answer means neither passed nor failed,
// the result is unknown.
func (g *Reader) Read(ctx context.Context, r *v1beta2.ModuleRollout, gate *v1beta2.RolloutGate) (
	v1beta2.GateState, string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if gate.PromQL != nil {
		return g.queryBool(ctx, gate.PromQL)
	}
	return g.post(ctx, r, gate)
}

func (g *Reader) queryBool(ctx context.Context, q *v1beta2.PromQLGate) (v1beta2.GateState, string) {
	address := strings.TrimSuffix(q.URL, "/") + "/api/v1/query?" + url.Values{"query": {q.Expr}}.Encode()
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			ResultType string          `json:"resultType"`
			Result     json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := g.Send(ctx, http.MethodGet, address, nil, &answer); err != nil {
		return v1beta2.GateUnknown, err.Error()
	}
	value, err := singleQueryValue(answer.Data.ResultType, answer.Data.Result)
	switch {
	case answer.Status != "success":
		return v1beta2.GateUnknown, "the query failed: " + answer.Error
	case err != nil:
		return v1beta2.GateUnknown, err.Error()
	case value == "1":
		return v1beta2.GatePass, ""
	case value == "0":
		return v1beta2.GateFail, "the query returned 0"
	}
	return v1beta2.GateUnknown, fmt.Sprintf("the query returned %q, and 1 (pass) or 0 (fail) is expected", value)
}

// singleQueryValue returns the only value of the result of a query.
func singleQueryValue(resultType string, result json.RawMessage) (number string, err error) {
	var sample []any
	switch resultType {
	case "scalar":
		if json.Unmarshal(result, &sample) != nil {
			return "", fmt.Errorf("the answer to the query cannot be read")
		}
	case "vector":
		var vector []struct {
			Value []any `json:"value"`
		}
		if json.Unmarshal(result, &vector) != nil || len(vector) != 1 {
			return "", fmt.Errorf("the query returned %d values, and one is expected", len(vector))
		}
		sample = vector[0].Value
	}
	if len(sample) == 2 {
		if value, ok := sample[1].(string); ok {
			return value, nil
		}
	}
	return "", fmt.Errorf("the query did not return one number")
}

func (g *Reader) post(ctx context.Context, r *v1beta2.ModuleRollout, gate *v1beta2.RolloutGate) (
	v1beta2.GateState, string) {
	body, err := json.Marshal(map[string]any{"rollout": r.Name, "module": r.Spec.Module, "channel": r.Spec.Channel,
		"from": r.Spec.From, "to": r.Spec.To, "stage": r.Status.Stage.Name, "gate": gate.Name, "plan": r.Status.Plan,
		"runtimes": r.Status.Runtimes})
	if err != nil {
		return v1beta2.GateUnknown, err.Error()
	}
	var answer struct {
		Result  string `json:"result"`
		Message string `json:"message"`
	}
	if err := g.Send(ctx, http.MethodPost, gate.Webhook.URL, body, &answer); err != nil {
		return v1beta2.GateUnknown, err.Error()
	}
	switch answer.Result {
	case "pass":
		return v1beta2.GatePass, answer.Message
	case "fail":
		return v1beta2.GateFail, answer.Message
	case "wait":
		return v1beta2.GateUnknown, answer.Message
	}
	return v1beta2.GateUnknown, `the answer has no result "pass", "fail" or "wait"`
}

// Send sends a request to an allowed address, and decodes the answer.
func (g *Reader) Send(ctx context.Context, method, address string, body []byte, into any) error {
	if !g.IsAllowed(address) {
		return fmt.Errorf("the address is not allowed: see --rollout-gate-allow")
	}
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("the address is not valid")
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	of := http.Client{Timeout: timeout}
	if g.Client != nil {
		of = *g.Client
	}
	of.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := of.Do(request)
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", response.Status)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, answerLimit+1))
	if err != nil || len(data) > answerLimit {
		return fmt.Errorf("the answer is larger than %d bytes, or was cut off", answerLimit)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("the answer is not the JSON that is expected")
	}
	return nil
}

// IsAllowed reports whether an address has an allowed scheme and host, and an allowed path or one below it.
func (g *Reader) IsAllowed(address string) bool {
	is, err := url.Parse(address)
	if err != nil || is.User != nil {
		return false
	}
	for _, prefix := range g.Allow {
		allowed, err := url.Parse(prefix)
		if err != nil || allowed.Scheme != is.Scheme || allowed.Host != is.Host || strings.Contains(is.Path, "..") {
			continue
		}
		path := strings.TrimSuffix(allowed.EscapedPath(), "/")
		if is.EscapedPath() == path || strings.HasPrefix(is.EscapedPath(), path+"/") {
			return true
		}
	}
	return false
}
