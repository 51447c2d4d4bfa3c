package apply

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// put stores an object in the state in which the controllers of the cluster would have left it. put adds kind, name and
// UID if the text does not contain them.
func (s *server) put(t *testing.T, path, text string) {
	t.Helper()
	o := parseYAML(t, text)
	parts := strings.Split(path, "/")
	for kind, b := range builtins {
		if b.plural == parts[len(parts)-2] && o["kind"] == nil {
			o["kind"] = kind.Kind
		}
	}
	metadata, _ := o["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["name"], metadata["uid"], o["metadata"] = parts[len(parts)-1], "uid of "+path, metadata
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored[path] = o
}

const (
	readyDeployment = `{kind: Deployment, apiVersion: apps/v1, metadata: {name: manager, namespace: mod, generation: 2}, spec: {replicas: 1, selector: {matchLabels: {app: m}}},
  status: {observedGeneration: 2, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1, conditions: [{type: Available, status: "True"}, {type: Progressing, status: "True", reason: NewReplicaSetAvailable}]}}`
	brokenDeployment = `{kind: Deployment, apiVersion: apps/v1, metadata: {name: manager, namespace: mod, generation: 2}, spec: {replicas: 1, selector: {matchLabels: {app: m}}},
  status: {observedGeneration: 2, replicas: 1, updatedReplicas: 1, unavailableReplicas: 1, conditions: [{type: Available, status: "False"}, {type: Progressing, status: "True", reason: ReplicaSetUpdated}]}}`
	setsPath = "/apis/apps/v1/namespaces/mod/replicasets"
	podsPath = "/api/v1/namespaces/mod/pods"
)

func pod(name, status string) string {
	return "{kind: Pod, metadata: {name: " + name + ", namespace: mod}, status: " + status + "}"
}

// TestCheckReady checks the Deployment of a module, and the message about its pods.
func TestCheckReady(t *testing.T) {
	const crash = `{phase: Running, containerStatuses: [{name: manager, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff, message: back-off 40s restarting}}, lastState: {terminated: {exitCode: 1, reason: Error, message: "no  such\nhost"}}}]}`
	tests := map[string]struct {
		reason     string
		deployment string
		pod        string
		want       string // part of the message; "" is ready
		failed     bool
	}{
		"Ready":   {reason: "available and observed", deployment: readyDeployment, pod: crash},
		"Missing": {reason: "it was deleted", pod: crash, want: "Deployment.apps mod/manager: not found"},
		"Observed": {
			reason:     "the newest generation was not seen yet",
			deployment: strings.Replace(readyDeployment, "generation: 2}", "generation: 3}", 1),
			pod:        `{}`,
			want:       "generation is 3",
		},
		"Deadline": {
			reason: "it did not come up in time",
			deployment: strings.Replace(brokenDeployment, `"True", reason: ReplicaSetUpdated`,
				`"False", reason: ProgressDeadlineExceeded`, 1),
			pod:    `{}`,
			want:   "Progress deadline exceeded",
			failed: true,
		},
		"Refused": {
			reason: "no pod could be made",
			deployment: strings.Replace(brokenDeployment, "conditions: [",
				`conditions: [{type: ReplicaFailure, status: "True", message: exceeded quota}, `, 1),
			pod:    `{}`,
			want:   "exceeded quota",
			failed: true,
		},
		"Going": {
			reason: "it is being deleted",
			deployment: strings.Replace(readyDeployment, "metadata: {",
				`metadata: {deletionTimestamp: "2026-01-02T03:04:05Z", `, 1),
			pod:  `{}`,
			want: "scheduled for deletion",
		},
		"Crash": {
			reason:     "the container's own last words, without the growing time",
			deployment: brokenDeployment,
			pod:        crash,
			want:       `pod manager-1: container "manager": CrashLoopBackOff: exit code 1: no such host`,
			failed:     true,
		},
		"Again": {reason: "between two crashes it runs, and still counts as failed", deployment: brokenDeployment,
			pod: `{containerStatuses: [{name: manager, restartCount: 2, state: {running: {}}, lastState: {terminated: {exitCode: 137, reason: OOMKilled}}}]}`, want: "CrashLoopBackOff: exit code 137 OOMKilled", failed: true},
		"Once": {
			reason:     "one crash may happen",
			deployment: brokenDeployment,
			pod:        `{containerStatuses: [{name: manager, restartCount: 1, state: {running: {}}, lastState: {terminated: {exitCode: 1}}}]}`,
			want:       "Available: 0/1",
		},
		"Image": {
			reason:     "the image cannot be pulled",
			deployment: brokenDeployment,
			pod:        `{containerStatuses: [{name: manager, image: "example.com/m:1", state: {waiting: {reason: ImagePullBackOff, message: Back-off}}}]}`,
			want:       "ImagePullBackOff: image example.com/m:1",
			failed:     true,
		},
		"Config": {
			reason:     "a Secret is missing",
			deployment: brokenDeployment,
			pod:        `{containerStatuses: [{name: manager, state: {waiting: {reason: CreateContainerConfigError, message: secret "x" not found}}}]}`,
			want:       `secret "x" not found`,
			failed:     true,
		},
		"Init": {
			reason:     "an init container fails",
			deployment: brokenDeployment,
			pod:        `{initContainerStatuses: [{name: init, state: {waiting: {reason: CrashLoopBackOff}}}], containerStatuses: [{name: manager, state: {waiting: {reason: PodInitializing}}}]}`,
			want:       `container "init": CrashLoopBackOff`,
			failed:     true,
		},
		"Starting": {
			reason:     "it just needs time",
			deployment: brokenDeployment,
			pod:        `{containerStatuses: [{name: manager, state: {waiting: {reason: ContainerCreating}}}]}`,
			want:       "Available: 0/1",
		},
		"Unschedulable": {
			reason:     "no node has room",
			deployment: brokenDeployment,
			pod:        `{conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: 0/1 nodes are available}]}`,
			want:       "0/1 nodes are available",
		},
		"Evicted": {
			reason:     "the pod has failed",
			deployment: brokenDeployment,
			pod:        `{phase: Failed, reason: Evicted, message: the node was low on memory}`,
			want:       "Evicted the node was low",
			failed:     true,
		},
	}
	ref := Ref{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "mod", Name: "manager"}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			if tc.deployment != "" {
				s.put(t, managerPath, tc.deployment)
			}
			s.put(t, setsPath+"/manager-old",
				`{metadata: {name: manager-old, namespace: mod, labels: {pod-template-hash: old}, annotations: {deployment.kubernetes.io/revision: "9"}}}`)
			s.put(t, setsPath+"/manager-new",
				`{metadata: {name: manager-new, namespace: mod, labels: {pod-template-hash: new}, annotations: {deployment.kubernetes.io/revision: "10"}}}`)
			s.put(t, podsPath+"/manager-1", pod("manager-1", tc.pod))
			selector := ""
			s.before = func(r *http.Request) {
				if r.URL.Path == podsPath {
					selector = r.URL.Query().Get("labelSelector")
				}
			}
			notReady, err := s.cluster(ClusterOptions{}).CheckReady(
				t.Context(), []Ref{ref, {Version: "v1", Kind: "ConfigMap", Namespace: "a", Name: "b"}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			sent := s.takeRequests()
			if tc.want == "" {
				if len(notReady) > 0 || len(sent) != 1 {
					t.Errorf("%s: got %+v and requests %v, want ready after one request", tc.reason, notReady, sent)
				}
				return
			}
			if len(notReady) != 1 || notReady[0].Failed != tc.failed ||
				!strings.Contains(notReady[0].Message, tc.want) ||
				!strings.Contains(notReady[0].Message, "mod/manager") {
				t.Errorf("%s: got %+v, want %q, failed %t", tc.reason, notReady, tc.want, tc.failed)
			}
			if len(sent) > 3 {
				t.Errorf("got %d requests, want at most 3: %v", len(sent), sent)
			}
			if selector != "" && selector != "app=m,pod-template-hash=new" {
				t.Errorf("got selector %q, want the pods of the newest revision", selector)
			}
		})
	}
}

func TestCheckReadyKinds(t *testing.T) {
	const set = `{kind: StatefulSet, apiVersion: apps/v1, metadata: {name: x, namespace: mod, generation: 1}, spec: {replicas: 1, selector: {matchLabels: {a: b}}}, status: {observedGeneration: 1, updateRevision: x-2, `
	const job = `{kind: Job, apiVersion: batch/v1, metadata: {name: x, namespace: mod}, spec: {}, status: `
	tests := map[string]struct {
		reason     string
		ref        Ref
		path, text string
		want       string
		failed     bool
	}{
		"StatefulSet": {reason: "all replicas", ref: Ref{Group: "apps", Version: "v1", Kind: "StatefulSet",
			Namespace: "mod", Name: "x"}, path: "/apis/apps/v1/namespaces/mod/statefulsets/x",
			text: set + `replicas: 1, readyReplicas: 1, currentReplicas: 1, updatedReplicas: 1, currentRevision: x-2}}`},
		"StatefulSetNot": {
			reason: "no replica",
			ref:    Ref{Group: "apps", Version: "v1", Kind: "StatefulSet", Namespace: "mod", Name: "x"},
			path:   "/apis/apps/v1/namespaces/mod/statefulsets/x",
			text:   set + `replicas: 1}}`,
			want:   "Ready: 0/1",
		},
		"JobRuns": {
			reason: "a Job counts once it is complete",
			ref:    Ref{Group: "batch", Version: "v1", Kind: "Job", Namespace: "mod", Name: "x"},
			path:   "/apis/batch/v1/namespaces/mod/jobs/x",
			text:   job + `{startTime: "2026-01-02T03:04:05Z", active: 1}}`,
			want:   "in progress",
		},
		"JobComplete": {
			reason: "complete",
			ref:    Ref{Group: "batch", Version: "v1", Kind: "Job", Namespace: "mod", Name: "x"},
			path:   "/apis/batch/v1/namespaces/mod/jobs/x",
			text:   job + `{conditions: [{type: Complete, status: "True"}]}}`,
		},
		"JobFailed": {
			reason: "failed",
			ref:    Ref{Group: "batch", Version: "v1", Kind: "Job", Namespace: "mod", Name: "x"},
			path:   "/apis/batch/v1/namespaces/mod/jobs/x",
			text:   job + `{conditions: [{type: Failed, status: "True"}]}}`,
			want:   "Job Failed",
			failed: true,
		},
		"Claim": {
			reason: "not bound",
			ref:    Ref{Version: "v1", Kind: "PersistentVolumeClaim", Namespace: "mod", Name: "x"},
			path:   "/api/v1/namespaces/mod/persistentvolumeclaims/x",
			text:   `{kind: PersistentVolumeClaim, apiVersion: v1, metadata: {name: x}, status: {phase: Pending}}`,
			want:   "not Bound",
		},
		"Pod": {
			reason: "its own container",
			ref:    Ref{Version: "v1", Kind: "Pod", Namespace: "mod", Name: "x"},
			path:   podsPath + "/x",
			text:   `{kind: Pod, apiVersion: v1, metadata: {name: x, namespace: mod}, status: {phase: Pending, containerStatuses: [{name: c, image: i, state: {waiting: {reason: ErrImagePull}}}]}}`,
			want:   "ErrImagePull: image i",
			failed: true,
		},
		"Definition": {
			reason: "not established yet",
			ref: Ref{
				Group:   "apiextensions.k8s.io",
				Version: "v1",
				Kind:    "CustomResourceDefinition",
				Name:    "things.example.com",
			},
			path: definitionPath,
			text: `{status: {conditions: []}}`,
			want: "not established",
		},
		"Names": {
			reason: "another definition has the name",
			ref: Ref{
				Group:   "apiextensions.k8s.io",
				Version: "v1",
				Kind:    "CustomResourceDefinition",
				Name:    "things.example.com",
			},
			path:   definitionPath,
			text:   `{status: {conditions: [{type: NamesAccepted, status: "False", reason: ListKindConflict, message: "\"ThingList\" is already in use"}]}}`,
			want:   "already in use",
			failed: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.put(t, tc.path, tc.text)
			notReady, err := s.cluster(ClusterOptions{}).CheckReady(t.Context(), []Ref{tc.ref}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tc.want == "" {
				if len(notReady) > 0 {
					t.Errorf("%s: got %+v, want ready", tc.reason, notReady)
				}
				return
			}
			if len(notReady) != 1 || notReady[0].Failed != tc.failed ||
				!strings.Contains(notReady[0].Message, tc.want) {
				t.Errorf("%s: got %+v, want %q, failed %t", tc.reason, notReady, tc.want, tc.failed)
			}
		})
	}
}

func TestCheckReadyCRDOnce(t *testing.T) {
	s := newServer(t)
	s.put(t, definitionPath, `{status: {conditions: [{type: Established, status: "True"}]}}`)
	ref := Ref{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
		Name: "things.example.com"}
	c := s.cluster(ClusterOptions{})
	var done Progress
	for range 2 {
		if notReady, err := c.CheckReady(t.Context(), []Ref{ref}, &done); err != nil || len(notReady) > 0 {
			t.Fatalf("got %v, %v", notReady, err)
		}
	}
	if diff := cmp.Diff([]string{"GET " + definitionPath}, s.takeRequests()); diff != "" {
		t.Errorf("an established definition is read once (-want +got):\n%s", diff)
	}
}

func TestCheckReadyErrors(t *testing.T) {
	s := newServer(t)
	ref := Ref{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "mod", Name: "manager"}
	c := s.cluster(ClusterOptions{})
	s.setScript("GET "+managerPath, errorScript(http.StatusForbidden, "Forbidden",
		`deployments.apps "manager" is forbidden: User "x" cannot get`))
	notReady, err := c.CheckReady(t.Context(), []Ref{ref}, nil)
	if err != nil || len(notReady) != 1 || !notReady[0].Failed || !strings.Contains(notReady[0].Message, "cannot get") {
		t.Errorf("a missing right: got %+v, %v", notReady, err)
	}
	s.setScript("GET "+managerPath, errorScript(http.StatusUnauthorized, "Unauthorized", "Unauthorized"))
	if notReady, err = c.CheckReady(t.Context(), []Ref{ref}, nil); ClassOf(err) != Unauthorized || notReady != nil {
		t.Errorf("a refused credential: got %+v, %v", notReady, err)
	}
	// If the credential may not list pods, CheckReady still returns the Deployment as not ready, but not what its pods
	// wait for.
	s.setScript("GET "+managerPath, nil)
	s.put(t, managerPath, brokenDeployment)
	s.setScript("GET "+podsPath, errorScript(http.StatusForbidden, "Forbidden", `pods is forbidden: User "x" cannot list`))
	if notReady, err = c.CheckReady(t.Context(), []Ref{ref}, nil); err != nil ||
		len(notReady) != 1 || notReady[0].Failed {
		t.Errorf("no right to list pods: got %+v, %v", notReady, err)
	}
}
