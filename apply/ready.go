package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// NotReady is an object that is not ready.
type NotReady struct {
	Ref Ref
	// Failed is true if the object will probably not become ready without a change, for example because a container
	// crashes, an image cannot be pulled, or a deadline is exceeded. If Failed is false, the object only needs more
	// time.
	Failed bool
	// Message contains the object and the reason why it is not ready. Message stays the same as long as the reason
	// stays the same: it contains no times and no growing counts.
	Message string
}

// readinessKinds are the kinds whose readiness is checked. Objects of all other kinds are ready once they are applied.
// For the readiness of custom resources of modules see StateEvaluator.
var readinessKinds = map[schema.GroupKind]bool{
	{Kind: "PersistentVolumeClaim"}:      true,
	{Kind: "Pod"}:                        true,
	{Group: "apps", Kind: "DaemonSet"}:   true,
	{Group: "apps", Kind: "Deployment"}:  true,
	{Group: "apps", Kind: "ReplicaSet"}:  true,
	{Group: "apps", Kind: "StatefulSet"}: true,
	{Group: "batch", Kind: "Job"}:        true,
	crdKind:                              true,
}

// CheckReady returns the objects of refs that are not ready, in the order of refs. CheckReady sends one GET for each
// object whose readiness is checked. The rules are the rules of kstatus, with one exception: a Job is ready once the
// Job is complete. For a workload that is not ready, CheckReady lists the newest pods to find the reason.
//
// The parameter p may be nil. If p is not nil, CheckReady does not read CustomResourceDefinitions that p records as
// established. CheckReady also records in p the resourceVersions of the objects that it has read. An error means that
// the whole cluster cannot be used now.
func (c *Cluster) CheckReady(ctx context.Context, refs []Ref, p *Progress) ([]NotReady, error) {
	return c.checkReady(ctx, refs, p, c.explainFromPods)
}

// CheckReadyWithoutPods is like CheckReady, but does not send the up to two requests that list pods. A caller can use
// CheckReadyWithoutPods directly after a workload was created, because no pod can have failed yet.
func (c *Cluster) CheckReadyWithoutPods(ctx context.Context, refs []Ref, p *Progress) ([]NotReady, error) {
	return c.checkReady(ctx, refs, p, func(context.Context, *unstructured.Unstructured) (
		string, bool, error) {
		return "", false, nil
	})
}

// explainer is the type of a function that returns the reason why a workload is not ready.
type explainer func(context.Context, *unstructured.Unstructured) (reason string, failed bool, err error)

func (c *Cluster) checkReady(ctx context.Context, refs []Ref, p *Progress, explain explainer) ([]NotReady, error) {
	var ask []Ref
	for _, r := range refs {
		established := p != nil && r.groupKind() == crdKind && p.recordOf(r).established
		if readinessKinds[r.groupKind()] && !established {
			ask = append(ask, r)
		}
	}
	found := make([]*NotReady, len(ask))
	err := c.forEachConcurrently(len(ask), func(i int) (err error) {
		if ask[i].groupKind() == crdKind {
			found[i], err = c.checkCRD(ctx, ask[i], p)
		} else {
			found[i], err = c.checkObject(ctx, ask[i], p, explain)
		}
		if e, ok := errors.AsType[*Error](err); ok && !concernsCluster(err) {
			found[i], err = &NotReady{Ref: ask[i], Failed: e.reason != ObjectNotFound, Message: e.Error()}, nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var notReady []NotReady
	for _, f := range found {
		if f != nil {
			notReady = append(notReady, *f)
		}
	}
	return notReady, nil
}

// checkCRD reads only the conditions of a CustomResourceDefinition, because the whole object may be large.
func (c *Cluster) checkCRD(ctx context.Context, ref Ref, p *Progress) (*NotReady, error) {
	if err := validatePathSegments(ref); err != nil {
		return nil, err
	}
	var crd struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	res := builtins[crdKind].resource
	r := request{method: http.MethodGet, path: res.urlPath(ref.GVK().GroupVersion(), "", ref.Name),
		operation: "reading", ref: ref}
	if err := c.sendWithinConcurrencyLimit(ctx, &r, func(_ int, body []byte) error {
		return json.Unmarshal(body,
			&crd)
	}); err != nil {
		return nil, err
	}
	answer := &NotReady{Ref: ref, Message: ref.String() + ": is not established yet"}
	for _, condition := range crd.Status.Conditions {
		switch {
		case answer.Failed:
		case condition.Type == "Established" && condition.Status == metav1.ConditionTrue:
			if p != nil {
				p.setMaybeUnserved(ref, false)
			}
			return nil, nil
		case condition.Type == "NamesAccepted" && condition.Status == metav1.ConditionFalse &&
			condition.Reason != "Pending":
			answer.Failed = true
			answer.Message = ref.String() + ": its names are not accepted: " + clipMessage(condition.Message)
		}
	}
	return answer, nil
}

// checkObject reads an object and returns nil if it is ready.
func (c *Cluster) checkObject(ctx context.Context, ref Ref, p *Progress, explain explainer) (*NotReady, error) {
	u, err := c.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	if p != nil {
		p.RecordReadUnlessChanged(ref, u.GetUID(), u.GetGeneration(), u.GetResourceVersion())
	}
	answer, explicable := readinessFromStatus(ref, u)
	if !explicable {
		return answer, nil
	}
	reason, failed, err := explain(ctx, u)
	if err != nil {
		return nil, err
	}
	if reason != "" {
		answer.Message += ": " + reason
	}
	answer.Failed = answer.Failed || failed
	return answer, nil
}

// EvaluateReadiness returns nil if a workload is ready. If the workload is not ready, EvaluateReadiness returns the
// reason that the spec and the status of the workload show, without reading pods. The rules are those of CheckReady.
// The workload may lack its field spec.template.
func EvaluateReadiness(ref Ref, u *unstructured.Unstructured) *NotReady {
	answer, _ := readinessFromStatus(ref, u)
	return answer
}

// readinessFromStatus returns nil for a ready workload and the reason for a workload that is not ready. The result
// "podsMayExplain" is true if the pods of the workload may show a more precise reason.
func readinessFromStatus(ref Ref, u *unstructured.Unstructured) (notReady *NotReady, podsMayExplain bool) {
	verdict, err := status.Compute(u)
	if err != nil {
		problem := ref.String() + ": its status cannot be read: " + clipMessage(err.Error())
		return &NotReady{Ref: ref, Message: problem}, false
	}
	notReady = &NotReady{Ref: ref, Failed: verdict.Status == status.FailedStatus,
		Message: ref.String() + ": " + clipMessage(verdict.Message)}
	switch {
	case verdict.Status == status.TerminatingStatus:
		return notReady, false
	case ref.Kind == "Job":
		if verdict.Status == status.CurrentStatus && isJobCompleteOrSuspended(u) {
			return nil, false
		}
	case verdict.Status == status.CurrentStatus:
		return nil, false
	}
	return notReady, true
}

// isJobCompleteOrSuspended reports whether a Job is complete or suspended.
func isJobCompleteOrSuspended(u *unstructured.Unstructured) bool {
	suspended, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend")
	_, found := trueConditionMessage(u, "Complete")
	return suspended || found
}

// trueConditionMessage returns the message of a condition, and whether the status of the condition is True.
func trueConditionMessage(u *unstructured.Unstructured, conditionType string) (string, bool) {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, one := range conditions {
		if c, ok := one.(map[string]any); ok && c["type"] == conditionType && c["status"] == "True" {
			message, _ := c["message"].(string)
			return message, true
		}
	}
	return "", false
}

// explainFromPods returns the reason why a workload is not ready. The reason is a condition of the workload or the
// worst problem of its newest pods. explainFromPods sends at most two requests. If the credential lacks the right to
// list pods, explainFromPods returns no reason, and no error.
func (c *Cluster) explainFromPods(ctx context.Context, u *unstructured.Unstructured) (
	reason string, failed bool, err error) {
	if message, ok := trueConditionMessage(u, "ReplicaFailure"); ok {
		return clipMessage(message), true, nil
	}
	if u.GetKind() == "Pod" {
		var pod corev1.Pod
		if data, err := u.MarshalJSON(); err != nil || json.Unmarshal(data, &pod) != nil {
			return "", false, nil
		}
		reason, failed = worstPodProblem([]corev1.Pod{pod})
		return reason, failed, nil
	}
	selector, err := c.newestPodSelector(ctx, u)
	if err != nil || selector == "" {
		return "", false, clusterErrorOnly(err)
	}
	pods := resource{plural: "pods", namespaced: true}
	r := request{method: http.MethodGet, path: pods.urlPath(schema.GroupVersion{Version: "v1"}, u.GetNamespace(), ""),
		query: "limit=10&labelSelector=" + url.QueryEscape(selector), operation: "listing pods"}
	var list corev1.PodList
	if err := c.sendWithinConcurrencyLimit(ctx, &r, func(_ int, body []byte) error {
		return json.Unmarshal(body,
			&list)
	}); err != nil {
		return "", false, clusterErrorOnly(err)
	}
	reason, failed = worstPodProblem(list.Items)
	return reason, failed, nil
}

func clusterErrorOnly(err error) error {
	if err != nil && concernsCluster(err) {
		return err
	}
	return nil
}

// newestPodSelector returns a label selector for the pods of the newest revision of a workload. newestPodSelector
// returns "" if the workload has no such selector.
func (c *Cluster) newestPodSelector(ctx context.Context, u *unstructured.Unstructured) (string, error) {
	labels, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "selector")
	data, err := utiljson.Marshal(labels)
	if err != nil {
		return "", nil
	}
	var parsed *metav1.LabelSelector
	if json.Unmarshal(data, &parsed) != nil || parsed == nil {
		return "", nil
	}
	selector := metav1.FormatLabelSelector(parsed)
	switch u.GetKind() {
	case "StatefulSet":
		if revision, _, _ := unstructured.NestedString(u.Object, "status", "updateRevision"); revision != "" {
			selector += ",controller-revision-hash=" + revision
		}
	case "Deployment":
		hash, err := c.newestTemplateHash(ctx, u, selector)
		if hash != "" {
			selector += ",pod-template-hash=" + hash
		}
		return selector, err
	}
	return selector, nil
}

// newestTemplateHash returns the pod-template-hash of a Deployment's newest ReplicaSet.
func (c *Cluster) newestTemplateHash(ctx context.Context, u *unstructured.Unstructured,
	selector string) (string, error) {
	sets, err := c.listPage(ctx, schema.GroupVersion{Group: "apps", Version: "v1"},
		resource{"replicasets", inNamespace}, u.GetNamespace(),
		&pageQuery{limit: 50, selector: selector})
	if err != nil {
		return "", err
	}
	hash, newest := "", -1
	for _, s := range sets.items {
		revision, err := strconv.Atoi(s.annotations[annotationRevision])
		if err == nil && revision > newest && s.Labels["pod-template-hash"] != "" {
			hash, newest = s.Labels["pod-template-hash"], revision
		}
	}
	return hash, nil
}

// failedWaitReasons are reasons of waiting containers that a user has to fix.
var failedWaitReasons = []string{"CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull",
	"ErrImageNeverPull", "InvalidImageName",
	"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}

// worstPodProblem returns the worst problem of the pods. If a pod has failed and another pod waits, worstPodProblem
// returns the problem of the failed pod. Pods are checked in the order of their names, so the result is stable.
func worstPodProblem(pods []corev1.Pod) (reason string, failed bool) {
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	for i := range pods {
		text, bad := podProblem(&pods[i])
		if bad {
			return text, true
		}
		if reason == "" {
			reason = text
		}
	}
	return reason, false
}

// podProblem returns the problem of one pod.
func podProblem(pod *corev1.Pod) (reason string, failed bool) {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			text, bad := containerProblem(&list[i])
			if bad {
				return "pod " + pod.Name + ": " + text, true
			}
			if reason == "" && text != "" {
				reason = "pod " + pod.Name + ": " + text
			}
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message != "" {
			return "pod " + pod.Name + ": " + clipMessage(c.Message), false
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		return "pod " + pod.Name + " has failed: " + clipMessage(pod.Status.Reason+" "+pod.Status.Message), true
	}
	return reason, false
}

// containerProblem returns the problem of one container. A container in a crash loop runs for a short time between two
// crashes. containerProblem reports a running container as failed if the container has failed at least twice and is not
// ready. If containerProblem considered only the present state, its result for a container in a crash loop would
// alternate between failed and not failed.
func containerProblem(c *corev1.ContainerStatus) (reason string, failed bool) {
	waiting, last := c.State.Waiting, c.LastTerminationState.Terminated
	if c.State.Terminated != nil {
		last = c.State.Terminated
	}
	ended := ""
	if last != nil && last.ExitCode != 0 {
		ended = fmt.Sprintf("exit code %d", last.ExitCode)
		if last.Reason != "" && last.Reason != "Error" {
			ended += " " + last.Reason
		}
		if last.Message != "" {
			ended += ": " + clipMessage(last.Message)
		}
	}
	name := fmt.Sprintf("container %q", c.Name)
	switch {
	case waiting != nil && slices.Contains(failedWaitReasons, waiting.Reason):
		detail := waiting.Message
		if waiting.Reason == "CrashLoopBackOff" {
			detail = ended // the message of the container contains a growing time
		} else if strings.Contains(waiting.Reason, "Image") {
			detail = "image " + c.Image
		}
		return strings.TrimSuffix(name+": "+waiting.Reason+": "+clipMessage(detail), ": "), true
	case !c.Ready && c.RestartCount >= 2 && ended != "":
		return name + ": CrashLoopBackOff: " + ended, true // the same text as for a waiting container
	case waiting != nil && waiting.Reason != "" && waiting.Reason != "ContainerCreating" &&
		waiting.Reason != "PodInitializing":
		return name + ": " + waiting.Reason, false
	default:
		return "", false
	}
}
