package main

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/playground/sample"
)

// observation is the state of the workload that one reconcile has observed.
type observation struct {
	deployment *appsv1.Deployment // nil if the Deployment was not read
	err        error              // why the workload could not be written
}

// statusFor returns the status of the Sample s. The parameter seen is the observed state of its workload. The first
// matching row decides:
//
//	1 being deleted                      Deleting    Deleting
//	2 spec.fail is set                   Error       FailureRequested
//	3 the workload could not be written  Error       WorkloadNotWritten
//	4 no replicas are requested          Warning     ScaledToZero
//	5 the roll-out is past its deadline  Error       WorkloadStuck
//	6 the roll-out is not complete       Processing  RollingOut
//	7 otherwise                          Ready       WorkloadAvailable
func statusFor(s *sample.Sample, seen observation) sample.Status {
	d := seen.deployment
	switch {
	case !s.DeletionTimestamp.IsZero():
		return newStatus(s, sample.StateDeleting, "Deleting", "removing the workload")
	case s.Spec.Fail != "":
		return newStatus(s, sample.StateError, "FailureRequested", s.Spec.Fail)
	case seen.err != nil:
		return newStatus(s, sample.StateError, "WorkloadNotWritten", seen.err.Error())
	case desiredReplicas(s) == 0:
		return newStatus(s, sample.StateWarning, "ScaledToZero",
			"spec.replicas is 0, so no work is done: set it to at least 1")
	case isStuck(d):
		return newStatus(s, sample.StateError, "WorkloadStuck",
			fmt.Sprintf("Deployment %s makes no progress with image %q: look at its pods, or set spec.image to one "+
				"that starts",
				d.Name, d.Spec.Template.Spec.Containers[0].Image))
	case !isRolledOut(d):
		return newStatus(s, sample.StateProcessing, "RollingOut",
			fmt.Sprintf("Deployment %s is rolling out: of %d replicas %d are up to date and %d available",
				d.Name, desiredReplicas(s), d.Status.UpdatedReplicas, d.Status.AvailableReplicas))
	default:
		return newStatus(s, sample.StateReady, "WorkloadAvailable",
			fmt.Sprintf("all %d replicas of Deployment %s are available", desiredReplicas(s), d.Name))
	}
}

// newStatus returns the status of s with this state. The last transition time changes only if the status of the
// condition changes.
func newStatus(s *sample.Sample, state sample.State, reason, text string) sample.Status {
	out := *s.Status.DeepCopy()
	out.State, out.Description, out.ObservedGeneration = state, text, s.Generation
	ready := metav1.ConditionFalse
	if state == sample.StateReady {
		ready = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&out.Conditions, metav1.Condition{
		Type: sample.ConditionReady, Status: ready, Reason: reason, Message: text, ObservedGeneration: s.Generation,
	})
	return out
}

func isStuck(d *appsv1.Deployment) bool {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			return d.Status.ObservedGeneration >= d.Generation
		}
	}
	return false
}

func isRolledOut(d *appsv1.Deployment) bool {
	wanted, s := *d.Spec.Replicas, d.Status
	return s.ObservedGeneration >= d.Generation && s.Replicas == wanted && s.UpdatedReplicas == wanted &&
		s.AvailableReplicas == wanted
}
