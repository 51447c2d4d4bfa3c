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

	// annotationMessage is on the pods: another message means other pods.
	annotationMessage = "sample.playground.kyma-project.io/message-sha256"
	// messageKey is where the ConfigMap holds the message.
	messageKey = "message"
	// progressDeadlineSeconds is when a roll-out without progress is an error.
	progressDeadlineSeconds int32 = 60
)

// workload says what is installed for a Sample. Its methods set what we decide on and leave alone what others do, such
// as the API server's defaults: shaping an object twice changes nothing the second time.
type workload struct {
	version string // of the module
	image   string // of the pods, unless the Sample names one
}

func workloadName(s *sample.Sample) string { return s.Name + "-workload" }

func (w workload) shapeConfigMap(c *corev1.ConfigMap, s *sample.Sample) {
	c.Labels = merge(c.Labels, w.labels(s))
	c.Data = map[string]string{messageKey: message(s)}
}

func (w workload) shapeDeployment(d *appsv1.Deployment, s *sample.Sample) {
	selector := map[string]string{labelName: "sample-workload", labelInstance: s.Name}
	sum := sha256.Sum256([]byte(message(s)))

	d.Labels = merge(d.Labels, w.labels(s))
	d.Spec.Replicas = new(replicas(s))
	d.Spec.ProgressDeadlineSeconds = new(progressDeadlineSeconds)
	if d.Spec.Selector == nil { // cannot be changed later
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

func message(s *sample.Sample) string { return cmp.Or(s.Spec.Message, "Hello from Sample "+s.Name) }

func replicas(s *sample.Sample) int32 {
	if s.Spec.Replicas == nil {
		return 1
	}
	return *s.Spec.Replicas
}

// merge returns have with want over it, in a map of its own.
func merge(have, want map[string]string) map[string]string {
	all := maps.Clone(have)
	if all == nil {
		all = make(map[string]string, len(want))
	}
	maps.Copy(all, want)
	return all
}
