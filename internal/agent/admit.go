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
	// maxReviewBytes is the maximum size of an admission review. An AdmissionReview contains the object before and
	// after the change; each of these copies can be as large as the API server allows.
	maxReviewBytes = 8 << 20
	// The API server calls the webhook of the agent before it stores the change of an object. If the agent sent the
	// event at once, the manager might read the object before the change is stored. Therefore the agent sends the event
	// after admitDelay. If other webhooks delay the change for longer, this event is too early, so the agent sends it
	// again after admitRepeat.
	admitDelay, admitRepeat = 200 * time.Millisecond, 3 * time.Second
)

// review has the parts of an AdmissionReview that the webhook reads.
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

// admitted is the object in an AdmissionReview, reduced to the parts that the webhook reads.
type admitted struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	Spec   json.RawMessage `json:"spec"`
	Status json.RawMessage `json:"status"`
}

// verdict is what the webhook does about a review.
type verdict int

const (
	report verdict = iota
	unchanged
	wrongSubresource
	wrongOperation
)

// classify returns what the webhook does about a call. The table below lists the operations and what the webhook does.
//
//	CREATE, DELETE                   report the object
//	UPDATE of the object             report if the spec changed, or if the old or the new object has no spec
//	UPDATE of its status             report if the status changed
//	UPDATE of another subresource    wrong subresource
//	anything else                    wrong operation
func (v *review) classify() verdict {
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
	return report
}

// reviewedObject returns the object that the AdmissionReview is about; for the operation DELETE, the old object.
func (v *review) reviewedObject() *admitted {
	if v.Request.Operation == "DELETE" {
		return &v.Request.OldObject
	}
	return &v.Request.Object
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// equal reports whether two JSON values are equal. JSON objects with the same members in another order are equal.
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

// ServeHTTP answers a call of the admission webhook immediately and allows it; the event about the call is sent later.
func (a *admission) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	a.metrics.admissions.Inc()
	defer func() { a.metrics.duration.Set(time.Since(begin).Seconds()) }()
	w.Header().Set("Strict-Transport-Security", "max-age=31536000; includeSubDomains")
	w.Header().Set("Content-Security-Policy", "default-src 'self'")
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReviewBytes))
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
			"status": map[string]any{"metadata": map[string]any{}, "status": metav1.StatusSuccess,
				"message": a.queueEventIfChanged(manager, &v)},
		},
	}
	_ = json.NewEncoder(w).Encode(answer) // if the caller has disconnected, the answer is not needed
}

// admission is the admission webhook; it is for Watchers that request a webhook.
type admission struct {
	add     func(manager string, c outbox.Change)
	metrics *metrics
}

// queueEventIfChanged queues an event about the object of a webhook call. If the method classify does not return the
// constant report, no event is queued. queueEventIfChanged returns the message for the answer to the API server.
func (a *admission) queueEventIfChanged(manager string, v *review) (message string) {
	object := v.reviewedObject()
	name := protocol.Name{Namespace: object.Metadata.Namespace, Name: object.Metadata.Name}
	switch v.classify() {
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
