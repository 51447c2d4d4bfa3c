// Package eventlog records events about the modules of a runtime: on the Kyma in the control plane for the platform
// team, and on the Kyma in the runtime for its admin.
//
// # Use
//
//	log := eventlog.New(recorder)
//	log.RecordSaved(kyma, &before.Status, modulesStay)      // after the status was saved in the control plane
//	log.RecordInRuntime(ctx, name, rt, remote, &after)      // before the status is written to the runtime
//	log.Forget(name)
//
// # How it works
//
// Package changelog derives the events from the difference between two successive statuses of the same object. The Kyma
// in the control plane and the Kyma in the runtime each have their own status. Each of the two statuses shows a change
// once, so each cluster gets each event once. If the manager restarts after it has saved the status in the control
// plane, no event of the runtime is lost, because the status in the runtime does not show the change yet.
//
// Recording an event in a runtime is one request, which is sent before the request that writes the status. The
// metadata.name of the event is a hash of the content of the event and of the previous status. If the manager stops
// between these two requests, it repeats the first request after its restart, and the API server answers that the event
// already exists.
//
// A status whose modules repeatedly fail and recover could cause many events. Therefore a runtime gets at most [burst]
// events at once, and after that one event per [interval]. Events of the runtime above this limit are dropped. A change
// without an event is still visible in the status and in the history of the module, and the control plane gets every
// event.
//
// # What it does not do
//
// If an event cannot be recorded in a runtime, the error is logged and not returned: the kubeconfig may lack the right
// to write events, and modules do not depend on events.
package eventlog

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/budget"
	"github.com/kyma-fleet/lifecycle-manager/internal/changelog"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

const (
	// burst is the number of events that a runtime may get at once.
	burst = 25
	// interval is the time after which a runtime that has used up its burst may get another event.
	interval = time.Minute
)

// Cluster is the client with which events are created in a runtime. A Runtime of package runtimes implements Cluster.
type Cluster interface {
	CreateWithoutRead(ctx context.Context, obj *unstructured.Unstructured, owner string) (apply.Created, error)
}

// Log records events.
type Log struct {
	recorder events.EventRecorder
	budget   *budget.Budget // of events in each runtime
}

// New returns a Log. If recorder is nil, no events are recorded in the control plane.
func New(recorder events.EventRecorder) *Log {
	return &Log{recorder: recorder, budget: budget.New(burst, interval)}
}

// RecordSaved compares the saved status of a Kyma in the control plane with its previous status, and records the
// resulting events on this Kyma. If the parameter "modulesStay" is true, the manager leaves all modules in the runtime,
// so RecordSaved records no event that a module was removed.
func (l *Log) RecordSaved(kyma *v1beta2.Kyma, before *v1beta2.KymaStatus, modulesStay bool) {
	if l.recorder == nil {
		return
	}
	all := slices.Concat(changelog.ReachabilityEvents(before, &kyma.Status),
		changelog.CredentialProblemEvents(before, &kyma.Status), changelog.Events(before.Modules, kyma.Status.Modules))
	if modulesStay {
		all = slices.DeleteFunc(all, func(e changelog.Event) bool { return e.Reason == v1beta2.EventRemoved })
	}
	for _, e := range changelog.FoldByReason(all) {
		l.recorder.Eventf(kyma, nil, e.Type, e.Reason, "Reconcile", "%s", loop.ClipLine(e.Note))
	}
}

// RecordInRuntime compares the status that is about to be published with the present status of the Kyma in the runtime,
// and records the resulting events. The events are recorded on the Kyma in the runtime, the parameter remote.
func (l *Log) RecordInRuntime(ctx context.Context, kyma string, rt Cluster, remote *v1beta2.Kyma,
	after *v1beta2.KymaStatus) {
	for _, e := range changelog.FoldByReason(changelog.Events(remote.Status.Modules, after.Modules)) {
		now := time.Now()
		if l.budget.Take(kyma, now) > 0 {
			log.FromContext(ctx).V(1).Info("event not recorded in the runtime: too many", "reason", e.Reason)
			continue
		}
		_, err := rt.CreateWithoutRead(ctx, object(remote, e, now), v1beta2.FieldOwner)
		if err != nil && loop.Reason(err) != apply.ObjectExists {
			log.FromContext(ctx).V(1).Info("event not recorded in the runtime", "reason", e.Reason,
				"problem", err.Error())
			return
		}
	}
}

// Forget drops the data in memory that the Log has about a Kyma.
func (l *Log) Forget(kyma string) { l.budget.Forget(kyma) }

// object returns an event as a Kubernetes object that can be created in the runtime.
func object(remote *v1beta2.Kyma, e changelog.Event, now time.Time) *unstructured.Unstructured {
	at := now.UTC().Format(time.RFC3339)
	before := &remote.Status.LastOperation
	id := sha256.Sum256(fmt.Appendf(nil, "%s %s %q %s %s", remote.UID, before.LastUpdateTime.UTC().Format(time.RFC3339),
		before.Operation, e.Reason, e.Note))
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"metadata": map[string]any{
			"namespace": v1beta2.RuntimeNamespace,
			"name":      fmt.Sprintf("%s.%x", v1beta2.RuntimeKymaName, id[:8]),
		},
		"involvedObject": map[string]any{
			"apiVersion": v1beta2.GroupVersion.String(), "kind": v1beta2.KindKyma,
			"namespace": v1beta2.RuntimeNamespace, "name": v1beta2.RuntimeKymaName, "uid": string(remote.UID),
		},
		"type": e.Type, "reason": e.Reason, "message": loop.ClipLine(e.Note),
		"firstTimestamp": at, "lastTimestamp": at, "count": int64(1),
		"source":             map[string]any{"component": v1beta2.FieldOwner},
		"reportingComponent": v1beta2.FieldOwner, "reportingInstance": "",
	}}
}
