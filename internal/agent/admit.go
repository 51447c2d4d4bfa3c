package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-fleet/lifecycle-manager/internal/agent/outbox"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

const (
	admitPath = "/validate/"
	// maxReview bounds an admission review: it has an object twice, each as large as the API server lets it be.
	maxReview = 8 << 20
	// The webhook is asked before the change is made: who is told at once would look too soon. Other webhooks may take longer than that, so the
	// same is told once more.
	admitDelay, admitRepeat = 200 * time.Millisecond, 3 * time.Second
)

// review is what is read of an AdmissionReview.
type review struct {
	metav1.TypeMeta `json:",inline"`
	Request         *struct {
		UID         types.UID                   `json:"uid"`
		Kind        metav1.GroupVersionKind     `json:"kind"`
		Resource    metav1.GroupVersionResource `json:"resource"`
		SubResource string                      `json:"subResource"`
		Name        string                      `json:"name"`
		Operation   string                      `json:"operation"`
		Object      admitted                    `json:"object"`
		OldObject   admitted                    `json:"oldObject"`
		DryRun      bool                        `json:"dryRun"`
	} `json:"request"`
}

// admitted is what is read of an object.
type admitted struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	Spec   json.RawMessage `json:"spec"`
	Status json.RawMessage `json:"status"`
}

// verdict is what follows from a review.
type verdict int

const (
	tell verdict = iota
	unchanged
	wrongSubresource
	wrongOperation
)

// decide says what follows from a call of the webhook:
//
//	CREATE, DELETE                   tell
//	UPDATE of the object             tell if the spec changed; if one of the two has none, always
//	UPDATE of its status             tell if the status changed
//	UPDATE of another subresource    wrong subresource
//	anything else                    wrong operation
func (v *review) decide() verdict {
	r := v.Request
	changed := false
	switch {
	case r.Operation == "CREATE" || r.Operation == "DELETE":
		changed = true
	case r.Operation != "UPDATE":
		return wrongOperation
	case r.SubResource == "":
		changed = isNull(r.Object.Spec) || isNull(r.OldObject.Spec) || !equal(r.Object.Spec, r.OldObject.Spec)
	case strings.EqualFold(r.SubResource, "status"):
		changed = !equal(r.Object.Status, r.OldObject.Status)
	default:
		return wrongSubresource
	}
	if !changed {
		return unchanged
	}
	return tell
}

// concerned returns the object that the call is about.
func (v *review) concerned() *admitted {
	if v.Request.Operation == "DELETE" {
		return &v.Request.OldObject
	}
	return &v.Request.Object
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// equal compares values, not their text: the order of keys does not matter.
func equal(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) || isNull(a) && isNull(b) {
		return true
	}
	var values [2]any
	for n, raw := range []json.RawMessage{a, b} {
		if isNull(raw) {
			continue
		}
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		if err := decoder.Decode(&values[n]); err != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

// ServeHTTP answers the calls of the admission webhook. It always allows, and at once; what is to be told is sent afterwards.
func (a *admission) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	a.metrics.admissions.Inc()
	defer func() { a.metrics.duration.Set(time.Since(begin).Seconds()) }()
	w.Header().Set("Strict-Transport-Security", "max-age=31536000; includeSubDomains")
	w.Header().Set("Content-Security-Policy", "default-src 'self'")
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReview))
	var v review
	if err == nil {
		err = json.Unmarshal(body, &v)
	}
	if err != nil || v.Request == nil {
		a.metrics.admissionErrors.Inc()
		return
	}
	manager := ""
	if words := strings.Fields(strings.TrimPrefix(r.URL.Path, admitPath)); len(words) > 0 {
		manager = words[0]
	}
	if manager == "" || len(manager) > 253 {
		return
	}
	answer := map[string]any{
		"kind": v.Kind, "apiVersion": v.APIVersion,
		"response": map[string]any{
			"uid": v.Request.UID, "allowed": true,
			"status": map[string]any{"metadata": map[string]any{}, "status": metav1.StatusSuccess, "message": a.note(manager, &v)},
		},
	}
	_ = json.NewEncoder(w).Encode(answer) // who went away needs no answer
}

// admission is the webhook for Watchers that want one.
type admission struct {
	add     func(manager string, c outbox.Change)
	metrics *metrics
}

// note queues what a call is about, if it is to be told, and returns the message of the answer.
func (a *admission) note(manager string, v *review) string {
	object := v.concerned()
	name := protocol.Name{Namespace: object.Metadata.Namespace, Name: object.Metadata.Name}
	switch v.decide() {
	case wrongOperation:
		return fmt.Sprintf("operation %s not supported for %s", v.Request.Operation, v.Request.Kind.String())
	case wrongSubresource:
		a.metrics.outbox.Failed.WithLabelValues(reasonSubresource).Inc()
		return fmt.Sprintf("invalid subresource: watched resource %s/%s", name.Namespace, name.Name)
	case unchanged:
		return fmt.Sprintf("no change detected on watched resource %s/%s", name.Namespace, name.Name)
	}
	if v.Request.DryRun {
		return fmt.Sprintf("no change detected on watched resource %s/%s", name.Namespace, name.Name)
	}
	if name.Name == "" {
		name.Name = v.Request.Name
	}
	group, version, found := strings.Cut(object.APIVersion, "/")
	if !found {
		group, version = "", group
	}
	a.add(manager, outbox.Change{
		Event: protocol.Event{
			Watched: name, WatchedGVK: metav1.GroupVersionKind{Group: group, Version: version, Kind: object.Kind},
			Resource: v.Request.Resource.Resource, WatchStarted: name.Name == "",
		},
		Delay: admitDelay, RepeatAfter: admitRepeat,
	})
	return "kcp request succeeded"
}
