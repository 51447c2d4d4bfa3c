package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/playground/sample"
)

const (
	labelName      = "app.kubernetes.io/name"
	labelInstance  = "app.kubernetes.io/instance"
	labelVersion   = "app.kubernetes.io/version"
	labelManagedBy = "app.kubernetes.io/managed-by"

	// annotationMessage is an annotation of the pods. A new message changes this annotation, so the pods are replaced.
	annotationMessage = "sample.playground.kyma-project.io/message-sha256"
	// messageKey is the key of the message in the ConfigMap.
	messageKey = "message"
	// progressDeadlineSeconds is the time after which a roll-out without progress is an error.
	progressDeadlineSeconds int32 = 60
)

// workload defines the objects that are installed for a Sample. The methods of workload set only the fields of the
// operator, and keep fields that others set, such as the API server's defaults. A method that is called twice for an
// object changes nothing the second time.
type workload struct {
	version string // version of the module
	image   string // image of the pods, unless the Sample has an image
}

func workloadName(s *sample.Sample) string { return s.Name + "-workload" }

func (w workload) shapeConfigMap(c *corev1.ConfigMap, s *sample.Sample) {
	c.Labels = merge(c.Labels, w.labels(s))
	c.Data = map[string]string{messageKey: messageOrDefault(s)}
}

func (w workload) shapeDeployment(d *appsv1.Deployment, s *sample.Sample) {
	selector := map[string]string{labelName: "sample-workload", labelInstance: s.Name}
	sum := sha256.Sum256([]byte(messageOrDefault(s)))

	d.Labels = merge(d.Labels, w.labels(s))
	d.Spec.Replicas = new(desiredReplicas(s))
	d.Spec.ProgressDeadlineSeconds = new(progressDeadlineSeconds)
	if d.Spec.Selector == nil { // the selector is immutable
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: selector}
	}
	pod := &d.Spec.Template
	pod.Labels = merge(pod.Labels, selector)
	pod.Annotations = merge(pod.Annotations, map[string]string{annotationMessage: hex.EncodeToString(sum[:])})
	pod.Spec.AutomountServiceAccountToken = new(false)
	if len(pod.Spec.Containers) != 1 {
		pod.Spec.Containers = make([]corev1.Container, 1)
	}
	c := &pod.Spec.Containers[0]
	c.Name = "main"
	c.Image = cmp.Or(s.Spec.Image, w.image)
	c.Env = []corev1.EnvVar{{Name: "MESSAGE",
		ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: workloadName(s)}, Key: messageKey,
		}}}}
}

func (w workload) labels(s *sample.Sample) map[string]string {
	return map[string]string{
		labelName: "sample-workload", labelInstance: s.Name, labelVersion: w.version, labelManagedBy: sample.Operator,
	}
}

func messageOrDefault(s *sample.Sample) string {
	return cmp.Or(s.Spec.Message, "Hello from Sample "+s.Name)
}

func desiredReplicas(s *sample.Sample) int32 {
	if s.Spec.Replicas == nil {
		return 1
	}
	return *s.Spec.Replicas
}

// merge returns a new map with the entries of have and want. For equal keys, the value of want is used.
func merge(have, want map[string]string) map[string]string {
	all := maps.Clone(have)
	if all == nil {
		all = make(map[string]string, len(want))
	}
	maps.Copy(all, want)
	return all
}
