package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/playground/sample"
)

// rollout returns a Deployment with two desired replicas, whose status has the given numbers of replicas.
func rollout(total, updated, available int32, change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "x-workload", Generation: 2}}
	workload{image: "pause:1"}.shapeDeployment(d, &sample.Sample{Spec: sample.Spec{Replicas: new(int32(2))}})
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: total, UpdatedReplicas: updated,
		AvailableReplicas: available}
	for _, c := range change {
		c(d)
	}
	return d
}

func TestStatusFor(t *testing.T) {
	stuck := func(d *appsv1.Deployment) {
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing,
			Status: corev1.ConditionFalse}}
	}
	stale := func(d *appsv1.Deployment) { d.Generation++ }
	gone := metav1.NewTime(time.Unix(1, 0))
	type want struct {
		State  sample.State
		Reason string
		Text   string // part of the description
	}
	cases := map[string]struct {
		reason  string
		replica int32
		fail    string
		deleted *metav1.Time
		seen    observation
		want    want
	}{
		"Deleted": {
			reason:  "nothing else matters then",
			fail:    "x",
			deleted: &gone,
			seen:    observation{},
			want:    want{"Deleting", "Deleting", "removing"},
		},
		"Fail": {
			reason:  "a person asked for it",
			replica: 2,
			fail:    "out of cheese",
			seen:    observation{},
			want:    want{"Error", "FailureRequested", "out of cheese"},
		},
		"NotWritten": {
			reason:  "the cluster said no",
			replica: 2,
			seen:    observation{err: errors.New("quota is used up")},
			want:    want{"Error", "WorkloadNotWritten", "quota is used up"},
		},
		"Zero": {
			reason: "deployed, but a person has to act",
			seen:   observation{deployment: rollout(0, 0, 0)},
			want:   want{"Warning", "ScaledToZero", "spec.replicas"},
		},
		"Stuck": {
			reason:  "the deadline is over",
			replica: 2,
			seen:    observation{deployment: rollout(2, 1, 1, stuck)},
			want:    want{"Error", "WorkloadStuck", `"pause:1"`},
		},
		"StuckBefore": {
			reason:  "the deadline was that of the generation before",
			replica: 2,
			seen:    observation{deployment: rollout(2, 1, 1, stuck, stale)},
			want:    want{"Processing", "RollingOut", "1 are up to date and 1 available"},
		},
		"Created": {
			reason:  "the Deployment controller has not seen it",
			replica: 2,
			seen:    observation{deployment: rollout(0, 0, 0)},
			want:    want{"Processing", "RollingOut", "0 are up to date"},
		},
		"Unobserved": {
			reason:  "the numbers are about the generation before",
			replica: 2,
			seen:    observation{deployment: rollout(2, 2, 2, stale)},
			want:    want{"Processing", "RollingOut", "2 are up to date and 2"},
		},
		"OldPods": {
			reason:  "pods of the template before still run",
			replica: 2,
			seen:    observation{deployment: rollout(3, 2, 2)},
			want:    want{"Processing", "RollingOut", "2 are up to date"},
		},
		"NotAllUpdated": {
			reason:  "one pod is of the template before",
			replica: 2,
			seen:    observation{deployment: rollout(2, 1, 2)},
			want:    want{"Processing", "RollingOut", "1 are up to date and 2"},
		},
		"NotAllAvailable": {
			reason:  "one pod is not ready",
			replica: 2,
			seen:    observation{deployment: rollout(2, 2, 1)},
			want:    want{"Processing", "RollingOut", "2 are up to date and 1"},
		},
		"AllAvailable": {
			reason:  "all is as it should be",
			replica: 2,
			seen:    observation{deployment: rollout(2, 2, 2)},
			want:    want{"Ready", "WorkloadAvailable", "all 2"},
		},
		"FailedThenZeroed": {
			reason: "a failure is worse than a warning",
			seen:   observation{err: errors.New("no")},
			want:   want{"Error", "WorkloadNotWritten", "no"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := &sample.Sample{ObjectMeta: metav1.ObjectMeta{Generation: 7, DeletionTimestamp: c.deleted},
				Spec: sample.Spec{Replicas: &c.replica, Fail: c.fail}}
			got := statusFor(s, c.seen)
			if len(got.Conditions) != 1 {
				t.Fatalf("%d conditions, want 1", len(got.Conditions))
			}
			ready := got.Conditions[0]
			text := c.want.Text
			if strings.Contains(got.Description, text) {
				text = got.Description
			}
			if diff := cmp.Diff(want{c.want.State, c.want.Reason, text},
				want{got.State, ready.Reason, got.Description}); diff != "" {
				t.Errorf("%s, -want +got:\n%s", c.reason, diff)
			}
			if (ready.Status == metav1.ConditionTrue) != (got.State == sample.StateReady) ||
				ready.Message != got.Description {
				t.Errorf("condition and state disagree: %+v", got)
			}
			if got.ObservedGeneration != 7 || ready.ObservedGeneration != 7 {
				t.Errorf("generation 7 was not recorded: %+v", got)
			}
			s.Status = got
			if diff := cmp.Diff(got, statusFor(s, c.seen)); diff != "" {
				t.Errorf("the same pass again changes the status:\n%s", diff)
			}
		})
	}
}

func TestShape(t *testing.T) {
	s := &sample.Sample{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: sample.Spec{Message: "hi"}}
	w := workload{version: "1.0.0", image: "pause:1"}
	d, c := &appsv1.Deployment{}, &corev1.ConfigMap{}
	w.shapeDeployment(d, s)
	w.shapeConfigMap(c, s)

	// The API server and other clients add fields that the operator does not set. The operator must not remove them.
	d.Labels["team"], c.Labels["team"] = "a", "a"
	d.Annotations = map[string]string{"deployment.kubernetes.io/revision": "1"}
	d.Spec.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
	d.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	d.Spec.Template.Spec.Containers[0].ImagePullPolicy = corev1.PullIfNotPresent
	d.Spec.Template.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"

	wantD, wantC := d.DeepCopy(), c.DeepCopy()
	w.shapeDeployment(d, s)
	w.shapeConfigMap(c, s)
	if diff := cmp.Diff(wantD, d); diff != "" {
		t.Errorf("shaping a Deployment again undoes what others did:\n%s", diff)
	}
	if diff := cmp.Diff(wantC, c); diff != "" {
		t.Errorf("shaping a ConfigMap again undoes what others did:\n%s", diff)
	}

	drifts := map[string]struct {
		reason string
		change func()
	}{
		"Image":    {"another image runs", func() { d.Spec.Template.Spec.Containers[0].Image = "evil:1" }},
		"Replicas": {"somebody scaled it", func() { d.Spec.Replicas = new(int32(5)) }},
		"Label":    {"it left our cache", func() { delete(d.Labels, labelManagedBy) }},
		"Containers": {"somebody added a container",
			func() { d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{}) }},
		"Message": {"somebody changed the text", func() { c.Data[messageKey] = "bye" }},
		"Key":     {"somebody added a text", func() { c.Data["more"] = "bye" }},
	}
	for name, drift := range drifts {
		t.Run(name, func(t *testing.T) {
			drift.change()
			w.shapeDeployment(d, s)
			w.shapeConfigMap(c, s)
			healed := *d.Spec.Replicas == 1 && len(d.Spec.Template.Spec.Containers) == 1 &&
				d.Spec.Template.Spec.Containers[0].Image == "pause:1" && d.Labels[labelManagedBy] == sample.Operator
			if !healed || !cmp.Equal(c, wantC) {
				t.Errorf("%s, and that stays", drift.reason)
			}
		})
	}

	s.Spec.Message, s.Spec.Image = "", "other:1"
	before := d.Spec.Template.Annotations[annotationMessage]
	w.shapeDeployment(d, s)
	if d.Spec.Template.Annotations[annotationMessage] == before {
		t.Error("another message leaves the pods as they are")
	}
	if image := d.Spec.Template.Spec.Containers[0].Image; image != "other:1" {
		t.Errorf("the pods run %s and not the image of the Sample", image)
	}
	if messageOrDefault(s) == "" {
		t.Error("no message, and none of our own")
	}
}
