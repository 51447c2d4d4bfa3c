package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// processImage is the image that the tests' host runs as a process: this test binary.
const processImage = "example.com/team/process"

// If the first argument of the test binary is hostVerb, the process runs a Host with clusters, and the test kills this
// process.
const hostVerb = "run-as-host"

// If the first argument of the test binary is processVerb, it acts as the process of a pod.
const processVerb = "run-as-pod"

// deadline is the timeout of every wait. A wait takes at most a few seconds, on a busy machine a multiple of that.
const deadline = 10 * time.Minute

// All tests of this file share the following clusters; each test works in its own namespace.
var (
	host *Host
	one  *Cluster
	two  *Cluster
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == processVerb {
		process(os.Args[2:])
		return
	}
	if len(os.Args) > 1 && os.Args[1] == hostVerb {
		hostOfOne()
		return
	}
	// Most tests wait for a cluster most of the time, so more tests run in parallel than there are processors.
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(func() (code int) {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
		defer cancel()
		var err error
		defer func() {
			if err == nil && host != nil {
				err = host.Close()
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}()
		host, err = Open(ctx, Options{Audit: true, Images: map[string]Image{
			processImage: {Command: os.Args[0], Args: []string{processVerb}, Env: []string{"FROM_IMAGE=yes"}},
		}})
		if err != nil {
			return 1
		}
		if one, err = host.Start(ctx, "one"); err != nil {
			return 1
		}
		if two, err = host.Start(ctx, "two"); err != nil {
			return 1
		}
		return m.Run()
	}())
}

// process is the program in a pod of processImage. Until SIGTERM, the process serves its environment, arguments and
// files over HTTP at the address in its first argument.
func process(args []string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	address := strings.TrimPrefix(args[0], "--listen=")
	var ready atomic.Bool
	ready.Store(!slices.Contains(args, "--not-ready"))
	mux := http.NewServeMux()
	mux.HandleFunc("/env", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(os.Environ())
	})
	mux.HandleFunc("/args", func(w http.ResponseWriter, r *http.Request) { _ = json.NewEncoder(w).Encode(args) })
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(
			w, r, r.URL.Query().Get("path"))
	})
	mux.HandleFunc("/ready", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			ready.Store(true)
		}
		if !ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/whoami", func(w http.ResponseWriter, r *http.Request) {
		config, err := clientcmd.NewDefaultClientConfigLoadingRules().Load()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		rest, err := clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		review, err := kubernetes.NewForConfigOrDie(rest).AuthenticationV1().SelfSubjectReviews().Create(
			r.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, review.Status.UserInfo.Username)
	})
	mux.HandleFunc("/exit", func(http.ResponseWriter, *http.Request) {
		fmt.Println("asked to fail")
		os.Exit(3)
	})
	mux.HandleFunc("/deny", func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID,
			Result: &metav1.Status{Message: "denied by the pod"}}
		_ = json.NewEncoder(w).Encode(review)
	})
	server := &http.Server{Addr: address, Handler: mux}
	fmt.Println("serving at", address)
	context.AfterFunc(ctx, func() { _ = server.Close() })
	serve := server.ListenAndServe
	if i := slices.Index(args, "--tls"); i >= 0 {
		serve = func() error {
			return server.ListenAndServeTLS(filepath.Join(args[i+1], "tls.crt"), filepath.Join(args[i+1], "tls.key"))
		}
	}
	if err := serve(); !errors.Is(err, http.ErrServerClosed) {
		fmt.Println(err)
		os.Exit(1)
	}
}

// eventually repeats the check until it succeeds. If the check does not succeed in time, the test fails with the last
// error of the check.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("waiting for %s: %v", what, err)
		}
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func clientOf(t *testing.T, c *Cluster) kubernetes.Interface {
	t.Helper()
	config := c.Config()
	config.QPS = -1
	return must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(config))
}

// namespaceOf creates a namespace for the test, and waits until pods can be created in it.
func namespaceOf(t *testing.T, c *Cluster) string {
	t.Helper()
	client := clientOf(t, c)
	ns := must[*corev1.Namespace](t)(client.CoreV1().Namespaces().Create(
		t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{}))
	eventually(t, "default ServiceAccount", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return ns.Name
}

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
	}
}

var selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}

func barePod(image string) *corev1.Pod {
	tpl := template(image)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: tpl.Labels}, Spec: tpl.Spec}
}

// awaitPod waits until check returns true for the pod.
func awaitPod(t *testing.T, c *Cluster, namespace, what string, check func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	client := clientOf(t, c)
	var pod *corev1.Pod
	eventually(t, what, func(ctx context.Context) error {
		var err error
		if pod, err = client.CoreV1().Pods(namespace).Get(ctx, "p", metav1.GetOptions{}); err != nil {
			return err
		}
		if !check(pod) {
			return fmt.Errorf("status is %s", must[[]byte](t)(json.Marshal(pod.Status)))
		}
		return nil
	})
	return pod
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func waitingFor(reason string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		for _, s := range pod.Status.ContainerStatuses {
			if s.State.Waiting != nil && s.State.Waiting.Reason == reason {
				return true
			}
		}
		return false
	}
}

func TestWorkloads(t *testing.T) {
	t.Parallel()
	client := clientOf(t, one)
	var replicas int32 = 2
	cases := map[string]struct {
		reason string
		make   func(ctx context.Context, ns string) error
		done   func(ctx context.Context, ns string) (bool, error)
	}{
		"Deployment": {
			reason: "ReplicaSet, scheduler and node bring the pods up, and the Deployment says so",
			make: func(ctx context.Context, ns string) error {
				_, err := client.AppsV1().Deployments(ns).Create(ctx, &appsv1.Deployment{
					ObjectMeta: metav1.ObjectMeta{Name: "x"},
					Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector,
						Template: template("example.com/app:1")},
				}, metav1.CreateOptions{})
				return err
			},
			done: func(ctx context.Context, ns string) (bool, error) {
				d, err := client.AppsV1().Deployments(ns).Get(ctx, "x", metav1.GetOptions{})
				return err == nil && slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
					return c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue
				}) && d.Status.ReadyReplicas == replicas, err
			},
		},
		"StatefulSet": {
			reason: "pods come one after the other, each when the one before is Ready",
			make: func(ctx context.Context, ns string) error {
				_, err := client.AppsV1().StatefulSets(ns).Create(ctx, &appsv1.StatefulSet{
					ObjectMeta: metav1.ObjectMeta{Name: "x"},
					Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: selector,
						Template: template("example.com/app:1")},
				}, metav1.CreateOptions{})
				return err
			},
			done: func(ctx context.Context, ns string) (bool, error) {
				s, err := client.AppsV1().StatefulSets(ns).Get(ctx, "x", metav1.GetOptions{})
				return err == nil && s.Status.ReadyReplicas == replicas, err
			},
		},
		"DaemonSet": {
			reason: "there is one node, so there is one pod",
			make: func(ctx context.Context, ns string) error {
				_, err := client.AppsV1().DaemonSets(ns).Create(ctx, &appsv1.DaemonSet{
					ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: appsv1.DaemonSetSpec{Selector: selector,
						Template: template("example.com/app:1")},
				}, metav1.CreateOptions{})
				return err
			},
			done: func(ctx context.Context, ns string) (bool, error) {
				d, err := client.AppsV1().DaemonSets(ns).Get(ctx, "x", metav1.GetOptions{})
				return err == nil && d.Status.NumberReady == 1, err
			},
		},
		"Job": {
			reason: "a simulated pod of a Job ends well, after its init container",
			make: func(ctx context.Context, ns string) error {
				tpl := template("example.com/work:1")
				tpl.Spec.RestartPolicy = corev1.RestartPolicyNever
				tpl.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "example.com/first:1"}}
				_, err := client.BatchV1().Jobs(ns).Create(
					ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: batchv1.JobSpec{Template: tpl}},
					metav1.CreateOptions{})
				return err
			},
			done: func(ctx context.Context, ns string) (bool, error) {
				j, err := client.BatchV1().Jobs(ns).Get(ctx, "x", metav1.GetOptions{})
				return err == nil && j.Status.Succeeded == 1 && j.Status.CompletionTime != nil, err
			},
		},
		"FailingJob": {
			reason: "a Job whose image crashes fails when its back-off limit is reached",
			make: func(ctx context.Context, ns string) error {
				tpl := template("example.com/crash:1")
				tpl.Spec.RestartPolicy = corev1.RestartPolicyNever
				_, err := client.BatchV1().Jobs(ns).Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "x"},
					Spec: batchv1.JobSpec{Template: tpl, BackoffLimit: new(int32(0))}}, metav1.CreateOptions{})
				return err
			},
			done: func(ctx context.Context, ns string) (bool, error) {
				j, err := client.BatchV1().Jobs(ns).Get(ctx, "x", metav1.GetOptions{})
				return err == nil && j.Status.Failed == 1, err
			},
		},
		"Service": {
			reason: "a Service finds its Ready pods",
			make: func(ctx context.Context, ns string) error {
				if _, err := client.CoreV1().Pods(ns).Create(ctx, barePod("example.com/app:1"),
					metav1.CreateOptions{}); err != nil {
					return err
				}
				_, err := client.CoreV1().Services(ns).Create(
					ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "x"},
						Spec: corev1.ServiceSpec{Selector: selector.MatchLabels,
							Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
				return err
			},
			done: func(ctx context.Context, ns string) (bool, error) {
				slices, err := client.DiscoveryV1().EndpointSlices(ns).List(ctx, metav1.ListOptions{})
				return err == nil && len(slices.Items) == 1 && len(slices.Items[0].Endpoints) == 1, err
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := namespaceOf(t, one)
			if err := c.make(t.Context(), ns); err != nil {
				t.Fatalf("%s: %v", c.reason, err)
			}
			eventually(t, c.reason, func(ctx context.Context) error {
				ok, err := c.done(ctx, ns)
				if err == nil && !ok {
					err = errors.New("not yet")
				}
				return err
			})
			if err := client.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the namespace to go with all that is in it", func(ctx context.Context) error {
				_, err := client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return fmt.Errorf("still there: %w", err)
			})
		})
	}
}

func TestSimulatedFailures(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		image  string
		want   func(*corev1.Pod) bool
	}{
		"Crash": {
			reason: "an image that crashes is restarted with back-off, and says why it ended",
			image:  "example.com/crash:1",
			want: func(p *corev1.Pod) bool {
				s := p.Status.ContainerStatuses
				return waitingFor("CrashLoopBackOff")(p) && s[0].RestartCount > 0 &&
					s[0].LastTerminationState.Terminated.ExitCode == 1 &&
					s[0].LastTerminationState.Terminated.Message != "" &&
					p.Status.Phase == corev1.PodRunning && !isReady(p)
			},
		},
		"NeverStarts": {
			reason: "an image that cannot be pulled stays Pending, with a message that names it",
			image:  "example.com/never-starts@sha256:0000000000000000000000000000000000000000000000000000000000000000",
			want: func(p *corev1.Pod) bool {
				return waitingFor("ImagePullBackOff")(p) && p.Status.Phase == corev1.PodPending &&
					strings.Contains(p.Status.ContainerStatuses[0].State.Waiting.Message, "example.com/never-starts")
			},
		},
		"SlowStart": {
			reason: "an image that starts slowly is Ready after the time in its tag",
			image:  "localhost:5000/slow-start:1s",
			want: func(p *corev1.Pod) bool {
				for _, c := range p.Status.Conditions {
					if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
						return c.LastTransitionTime.Sub(
							p.Status.ContainerStatuses[0].State.Running.StartedAt.Time) >= time.Second
					}
				}
				return false
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := namespaceOf(t, one)
			must[*corev1.Pod](t)(clientOf(t, one).CoreV1().Pods(ns).Create(
				t.Context(), barePod(c.image), metav1.CreateOptions{}))
			awaitPod(t, one, ns, c.reason, c.want)
		})
	}
}

func TestGarbageCollection(t *testing.T) {
	t.Parallel()
	ns := namespaceOf(t, one)
	maps := clientOf(t, one).CoreV1().ConfigMaps(ns)
	owner := must[*corev1.ConfigMap](t)(maps.Create(
		t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{}))
	must[*corev1.ConfigMap](t)(maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "owned", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap",
			Name: "owner", UID: owner.UID}},
	}}, metav1.CreateOptions{}))
	if err := maps.Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the owned object to go with its owner", func(ctx context.Context) error {
		_, err := maps.Get(ctx, "owned", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("still there: %w", err)
	})
}

func TestTokenKubeconfig(t *testing.T) {
	t.Parallel()
	ns := namespaceOf(t, one)
	admin := clientOf(t, one)
	data := must[[]byte](t)(one.TokenKubeconfig(t.Context(), ns, "default"))
	config := must[*rest.Config](t)(clientcmd.RESTConfigFromKubeConfig(data))
	if config.Insecure || len(config.CAData) == 0 {
		t.Error("the kubeconfig does not verify the server")
	}
	client := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(config))
	if _, err := client.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing without a role: got %v, want Forbidden", err)
	}
	must[*rbacv1.RoleBinding](t)(admin.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "view"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName,
			Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "default", Namespace: ns}},
	}, metav1.CreateOptions{}))
	eventually(t, "the aggregated role to work", func(ctx context.Context) error {
		_, err := client.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
		return err
	})
	if _, err := client.CoreV1().Secrets(ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing Secrets with the role view: got %v, want Forbidden", err)
	}
	config.BearerToken += "x"
	client = must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(config))
	if _, err := client.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(
		err) {
		t.Errorf("listing with a wrong token: got %v, want Unauthorized", err)
	}
}

const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.test.example.com}
spec:
  group: test.example.com
  scope: Namespaced
  names: {kind: Thing, plural: things, singular: thing, listKind: ThingList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: integer}}
            x-kubernetes-validations:
            - rule: "self.size < 10"
              message: size must be less than 10
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

func TestCustomResources(t *testing.T) {
	t.Parallel()
	ns := namespaceOf(t, one)
	client := must[*dynamic.DynamicClient](t)(dynamic.NewForConfig(one.Config()))
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(crd), &definition.Object); err != nil {
		t.Fatal(err)
	}
	kinds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	must[*unstructured.Unstructured](t)(client.Resource(kinds).Create(t.Context(), definition, metav1.CreateOptions{}))
	things := client.Resource(schema.GroupVersionResource{Group: "test.example.com", Version: "v1",
		Resource: "things"}).Namespace(ns)
	thing := func(size int64) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "test.example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "t"},
			"spec": map[string]any{"size": size},
		}}
	}
	eventually(t, "the new kind to be served", func(ctx context.Context) error {
		_, err := things.Apply(ctx, "t", thing(1), metav1.ApplyOptions{FieldManager: "test"})
		return err
	})
	_, err := things.Apply(t.Context(), "t", thing(10), metav1.ApplyOptions{FieldManager: "test"})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "size must be less than 10") {
		t.Errorf("applying what the rule forbids: got %v, want Invalid with the rule's message", err)
	}
	if err := client.Resource(kinds).Delete(t.Context(), definition.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the kind to go with its objects", func(ctx context.Context) error {
		_, err := client.Resource(kinds).Get(ctx, definition.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("still there: %w", err)
	})
}

func TestClustersAreIndependent(t *testing.T) {
	t.Parallel()
	ns := namespaceOf(t, one)
	if _, err := clientOf(t, two).CoreV1().Namespaces().Get(t.Context(), ns,
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("getting a namespace of the other cluster: got %v, want NotFound", err)
	}
	config := two.Config()
	config.CertData, config.KeyData = one.Config().CertData, one.Config().KeyData
	if _, err := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(config)).CoreV1().Namespaces().List(
		t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("using one cluster's certificate with the other: got %v, want Unauthorized", err)
	}
	config = two.Config()
	config.CAData = one.Config().CAData
	if _, err := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(config)).CoreV1().Namespaces().List(
		t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("verifying one cluster with the other's authority: got no error")
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	version := must[*version.Info](t)(clientOf(t, one).Discovery().ServerVersion())
	if got := version.String(); got != one.Version() || !strings.HasPrefix(got, "v1.") {
		t.Errorf("server version: got %q, want %q", got, one.Version())
	}
}

func TestAudit(t *testing.T) {
	t.Parallel()
	ns := namespaceOf(t, two)
	config := two.Config()
	config.UserAgent = "audit-test"
	client := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(config))
	mark := two.Mark()
	must[*corev1.ConfigMap](t)(client.CoreV1().ConfigMaps(ns).Create(
		t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{}))
	if _, err := client.AppsV1().Deployments(ns).GetScale(t.Context(), "none",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("getting what is not there: %v", err)
	}
	watch, err := client.CoreV1().Pods(ns).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watch.Stop()
	must[*corev1.ConfigMapList](t)(client.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{}))
	want := []Request{
		{
			Verb:      "create",
			Resource:  "configmaps",
			Namespace: ns,
			Name:      "c",
			User:      "playground-admin",
			UserAgent: "audit-test",
			Code:      201,
		},
		{
			Verb:        "get",
			Group:       "apps",
			Resource:    "deployments",
			Subresource: "scale",
			Namespace:   ns,
			Name:        "none",
			User:        "playground-admin",
			UserAgent:   "audit-test",
			Code:        404,
		},
		{Verb: "watch", Resource: "pods", Namespace: ns, User: "playground-admin", UserAgent: "audit-test", Code: 200},
		{
			Verb:      "list",
			Resource:  "configmaps",
			Namespace: ns,
			User:      "playground-admin",
			UserAgent: "audit-test",
			Code:      200,
		},
	}
	eventually(t, "the requests in the audit", func(context.Context) error {
		var got []Request
		for _, r := range two.Requests(mark) {
			if r.UserAgent == "audit-test" {
				if r.Time.IsZero() || r.Path == "" {
					t.Errorf("request without time or path: %+v", r)
				}
				r.Time, r.Path = time.Time{}, ""
				got = append(got, r)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("requests (-want +got):\n%s", diff)
		}
		return nil
	})
}

// fetch sends a request to the process of a pod, and returns the response.
func fetch(t *testing.T, pod *corev1.Pod, method, path string) string {
	t.Helper()
	request := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), method,
		"http://"+net.JoinHostPort(loopbackAddress(pod.Status.PodIP), "8080")+path, nil))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body := must[[]byte](t)(io.ReadAll(response.Body))
	if response.StatusCode != http.StatusOK {
		t.Errorf("%s %s: %s: %s", method, path, response.Status, body)
	}
	return string(body)
}

func TestProcess(t *testing.T) {
	t.Parallel()
	ns := namespaceOf(t, one)
	client := clientOf(t, one)
	must[*corev1.Secret](t)(client.CoreV1().Secrets(ns).Create(
		t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"},
			StringData: map[string]string{"key": "secret value"}}, metav1.CreateOptions{}))
	must[*corev1.ConfigMap](t)(client.CoreV1().ConfigMaps(ns).Create(
		t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"},
			Data: map[string]string{"A": "config value"}}, metav1.CreateOptions{}))
	must[*corev1.ServiceAccount](t)(client.CoreV1().ServiceAccounts(ns).Create(
		t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}, metav1.CreateOptions{}))
	pod := barePod(processImage + ":1")
	pod.Spec.ServiceAccountName = "worker"
	pod.Spec.Containers[0].Command = []string{"/in-the-image", "--listen=:8080", "--not-ready"}
	pod.Spec.Containers[0].Args = []string{"--namespace=$(POD_NAMESPACE)", "--secret=/etc/secret/key", "$$(A)",
		"--leader-elect"}
	pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{Prefix: "CONFIG_",
		ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{
		{
			Name:      "POD_NAMESPACE",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}},
		},
		{
			Name:      "POD_IP",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}},
		},
		{
			Name: "SECRET",
			ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "key"}},
		},
		{
			Name: "MISSING",
			ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Key: "key", Optional: new(true)}},
		},
		{Name: "COMPOSED", Value: "$(CONFIG_A)!"},
	}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "secret", MountPath: "/etc/secret"},
		{Name: "secret", MountPath: "/tmp/server/certs"}}
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready",
			Port: intstr.FromInt32(8080)}},
		PeriodSeconds: 1}
	pod.Spec.Volumes = []corev1.Volume{{Name: "secret",
		VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}}
	must[*corev1.Pod](t)(client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}))

	pod = awaitPod(t, one, ns, "the process to run", func(p *corev1.Pod) bool {
		if p.Status.Phase != corev1.PodRunning {
			return false
		}
		conn, err := net.Dial("tcp", net.JoinHostPort(loopbackAddress(p.Status.PodIP), "8080"))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	if isReady(pod) {
		t.Error("the pod is Ready before its probe succeeds")
	}
	fetch(t, pod, http.MethodPost, "/ready")
	pod = awaitPod(t, one, ns, "the probe to succeed", isReady)

	var env, args []string
	if err := json.Unmarshal([]byte(fetch(t, pod, http.MethodGet, "/env")), &env); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(fetch(t, pod, http.MethodGet, "/args")), &args); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
	}
	for name, want := range map[string]string{
		"FROM_IMAGE": "yes", "POD_NAMESPACE": ns, "SECRET": "secret value", "CONFIG_A": "config value",
		"COMPOSED": "config value!", "POD_IP": loopbackAddress(pod.Status.PodIP),
	} {
		if values[name] != want {
			t.Errorf("variable %s: got %q, want %q", name, values[name], want)
		}
	}
	if _, set := values["MISSING"]; set {
		t.Error("variable MISSING is set")
	}
	folder := values["HOME"]
	if diff := cmp.Diff([]string{
		"--listen=" + loopbackAddress(pod.Status.PodIP) + ":8080", "--not-ready", "--namespace=" + ns,
		"--secret=" + filepath.Join(folder, "volumes/secret/key"), "$(A)", "--leader-elect=false",
	}, args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if got := fetch(t, pod, http.MethodGet, "/file?path="+filepath.Join(
		folder, "volumes/secret/key")); got != "secret value" {
		t.Errorf("mounted Secret: got %q", got)
	}
	inTmp := filepath.Join(values["TMPDIR"], "server/certs/key")
	if got := fetch(t, pod, http.MethodGet, "/file?path="+inTmp); got != "secret value" {
		t.Errorf("Secret that is mounted below /tmp: got %q at %s", got, inTmp)
	}
	if info := must[os.FileInfo](t)(os.Stat(folder)); info.Mode().Perm() != 0o700 {
		t.Errorf("folder of the pod: got mode %v, want 0700", info.Mode().Perm())
	}
	if got, want := fetch(t, pod, http.MethodGet, "/whoami"), "system:serviceaccount:"+ns+":worker"; got != want {
		t.Errorf("user of the process: got %q, want %q", got, want)
	}

	// A request over a connection that was used before could be sent again, to the restarted process.
	once := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if response, err := once.Get("http://" + net.JoinHostPort(loopbackAddress(pod.Status.PodIP),
		"8080") + "/exit"); err == nil {
		t.Errorf("asking the process to fail: got an answer, closed with %v", response.Body.Close())
	}
	pod = awaitPod(t, one, ns, "the failed process to be restarted", func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].RestartCount == 1 && p.Status.ContainerStatuses[0].State.Running != nil
	})
	if last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 3 ||
		!strings.Contains(last.Message, "asked to fail") {
		t.Errorf("last end of the process: got %+v, want exit code 3 with its last output", last)
	}
	log := filepath.Join(host.Dir(), "logs", "one", ns+"_p_main.log")
	if data := string(must[[]byte](t)(os.ReadFile(log))); !strings.Contains(data, "serving at") ||
		!strings.Contains(data, "asked to fail") {
		t.Errorf("log of the pod: got %q", data)
	}

	if err := client.CoreV1().Pods(ns).Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod to go, with process and files", func(ctx context.Context) error {
		if _, err := client.CoreV1().Pods(ns).Get(ctx, "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("pod is still there: %w", err)
		}
		if conn, err := net.Dial("tcp", net.JoinHostPort(loopbackAddress(pod.Status.PodIP), "8080")); err == nil {
			return errors.Join(errors.New("process is still there"), conn.Close())
		}
		if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("folder is still there: %w", err)
		}
		return nil
	})
}

func TestProcessConfigError(t *testing.T) {
	t.Parallel()
	ns := namespaceOf(t, one)
	client := clientOf(t, one)
	pod := barePod(processImage + ":1")
	pod.Spec.Containers[0].Args = []string{"--listen=:8080"}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "X",
		ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "late"}, Key: "key"}}}}
	must[*corev1.Pod](t)(client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}))
	awaitPod(t, one, ns, "the missing ConfigMap to be named", func(p *corev1.Pod) bool {
		return waitingFor("CreateContainerConfigError")(p) &&
			strings.Contains(p.Status.ContainerStatuses[0].State.Waiting.Message, `"late" not found`)
	})
	must[*corev1.ConfigMap](t)(client.CoreV1().ConfigMaps(ns).Create(
		t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"},
			Data: map[string]string{"key": "v"}}, metav1.CreateOptions{}))
	awaitPod(t, one, ns, "the pod to run once its ConfigMap is there", isReady)
}

// TestRestart stops and starts a cluster, then the whole host, with a simulated pod and a pod that runs as a process.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "host")
	options := Options{Dir: dir, Images: map[string]Image{processImage: {Command: os.Args[0],
		Args: []string{processVerb}}}}
	h := must[*Host](t)(Open(t.Context(), options))
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := Open(t.Context(), options); err == nil ||
		!strings.Contains(err.Error(), "another playground uses it") {
		t.Errorf("opening a folder in use: got %v", err)
	}
	c := must[*Cluster](t)(h.Start(t.Context(), "again"))
	address := c.ServerURL()
	client := clientOf(t, c)
	process := barePod(processImage)
	process.Spec.Containers[0].Args = []string{"--listen=:8080"}
	must[*corev1.Pod](t)(client.CoreV1().Pods("default").Create(t.Context(), process, metav1.CreateOptions{}))
	simulated := barePod("example.com/app")
	simulated.Name = "simulated"
	must[*corev1.Pod](t)(client.CoreV1().Pods("default").Create(t.Context(), simulated, metav1.CreateOptions{}))
	before := awaitPod(t, c, "default", "the process to run", isReady)
	eventually(t, "the simulated pod to run", func(ctx context.Context) error {
		pod, err := client.CoreV1().Pods("default").Get(ctx, "simulated", metav1.GetOptions{})
		if err == nil && !isReady(pod) {
			err = fmt.Errorf("status is %+v", pod.Status)
		}
		return err
	})

	check := func(restarts int32) {
		t.Helper()
		client := clientOf(t, c)
		after := awaitPod(t, c, "default", "the process to run again", func(p *corev1.Pod) bool {
			return isReady(p) && p.Status.ContainerStatuses[0].RestartCount == restarts
		})
		if after.UID != before.UID || after.Status.PodIP != before.Status.PodIP {
			t.Errorf("the pod is another one: got %s at %s, want %s at %s", after.UID, after.Status.PodIP,
				before.UID, before.Status.PodIP)
		}
		pod := must[*corev1.Pod](t)(client.CoreV1().Pods("default").Get(t.Context(), "simulated", metav1.GetOptions{}))
		if !isReady(pod) || pod.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("the simulated pod did not go on: %+v", pod.Status)
		}
		if c.ServerURL() != address {
			t.Errorf("address: got %s, want %s", c.ServerURL(), address)
		}
	}
	check(0)
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The first request may still use the connection that was closed.
	eventually(t, "a refused connection", func(ctx context.Context) error {
		switch _, err := client.CoreV1().Pods("default").Get(ctx, "p", metav1.GetOptions{}); {
		case err == nil:
			t.Fatal("a stopped cluster answers")
		case !errors.Is(err, syscall.ECONNREFUSED):
			return err
		}
		return nil
	})
	if conn, err := net.Dial("tcp", net.JoinHostPort(loopbackAddress(before.Status.PodIP), "8080")); err == nil {
		t.Error("the process runs on in a stopped cluster")
		_ = conn.Close()
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{}); err != nil {
		t.Errorf("asking with a client from before the restart: %v", err)
	}
	check(1)

	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Start(t.Context(), "again"); err == nil {
		t.Error("starting a cluster of a closed host: got no error")
	}
	h = must[*Host](t)(Open(t.Context(), options))
	c = must[*Cluster](t)(h.Start(t.Context(), "again"))
	check(2)
}

func TestCut(t *testing.T) {
	t.Parallel()
	c := must[*Cluster](t)(host.Start(t.Context(), "cut"))
	client := clientOf(t, c)
	get := func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	}
	if err := get(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Cut(Refuse)
	// The first request may still use the connection that was closed.
	eventually(t, "a refused connection", func(ctx context.Context) error {
		switch err := get(ctx); {
		case err == nil:
			t.Fatal("a cluster that is cut off answers")
		case !errors.Is(err, syscall.ECONNREFUSED):
			return err
		}
		return nil
	})
	c.Cut(BlackHole)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := get(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("asking a black hole: got %v, want a timeout", err)
	}
	pending, began := make(chan error, 1), make(chan struct{})
	var once sync.Once // a request that is repeated needs another connection
	trace := &httptrace.ClientTrace{GetConn: func(string) { once.Do(func() { close(began) }) }}
	go func() { pending <- get(httptrace.WithClientTrace(t.Context(), trace)) }()
	<-began
	eventually(t, "a connection in the black hole", func(context.Context) error {
		c.proxy.mu.Lock()
		defer c.proxy.mu.Unlock()
		if len(c.proxy.conns) == 0 {
			return errors.New("the proxy has no connection")
		}
		return nil
	})
	select {
	case err := <-pending:
		t.Errorf("asking a black hole: got %v before it was mended", err)
		pending <- nil
	default:
	}
	c.Mend()
	if err := <-pending; err != nil {
		t.Errorf("asking before the black hole was mended: %v", err)
	}
	c.Slow(50 * time.Millisecond)
	begin := time.Now()
	if err := get(t.Context()); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took < 100*time.Millisecond {
		t.Errorf("asking a slow cluster took %s, want twice 50 ms at least", took)
	}
	c.Mend()
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "letter.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason  string
		options Options
		want    string
	}{
		"ForeignFolder": {"a host does not mix its files with somebody's", Options{Dir: foreign},
			"was not made by a playground"},
		"FileForFolder": {"the path must be a folder", Options{Dir: filepath.Join(foreign, "letter.txt")},
			"not a directory"},
		"NoExecutable": {"an image needs an executable",
			Options{Images: map[string]Image{"x": {Command: filepath.Join(foreign, "letter.txt")}}},
			"not an executable file"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h, err := Open(t.Context(), c.options)
			if err == nil {
				_ = h.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want an error with %q", c.reason, err, c.want)
			}
		})
	}
	for _, name := range []string{"", "A", "a_b", "../a", strings.Repeat("a", 64)} {
		if _, err := host.Start(t.Context(), name); err == nil {
			t.Errorf("starting cluster %q: got no error", name)
		}
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	listener := must[net.Listener](t)(net.Listen("tcp4", "127.0.0.1:0"))
	defer listener.Close() //nolint:errcheck // nothing to lose
	dir := filepath.Join(host.Dir(), "clusters", "taken")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	kept := must[[]byte](t)(json.Marshal(state{Port: listener.Addr().(*net.TCPAddr).Port, Subnet: 255}))
	if err := os.WriteFile(filepath.Join(dir, "cluster.json"), kept, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := host.Start(t.Context(), "taken"); err == nil ||
		!strings.Contains(err.Error(), "another program uses this port") {
		t.Errorf("starting a cluster whose port is taken: got %v", err)
	}
}

func TestWithoutElection(t *testing.T) {
	cases := map[string]struct{ reason, args, want string }{
		"On":    {"", "--leader-elect --v=1", "--leader-elect=false --v=1"},
		"True":  {"", "-leader-elect=true", "-leader-elect=false"},
		"Older": {"the flag of older projects", "--enable-leader-election", "--enable-leader-election=false"},
		"Off":   {"", "--leader-elect=false", "--leader-elect=false"},
		"Other": {"", "--leader-elect-lease=5s", "--leader-elect-lease=5s"},
		"WithName": {"the namespace is known", "--leader-elect --leader-election-namespace=a",
			"--leader-elect --leader-election-namespace=a"},
	}
	for name, tc := range cases {
		args := strings.Fields(tc.args)
		if disableLeaderElection(args); strings.Join(args, " ") != tc.want {
			t.Errorf("%s: got %q, want %q: %s", name, args, tc.want, tc.reason)
		}
	}
}

func TestImageNames(t *testing.T) {
	cases := map[string]struct{ repository, base, tag string }{
		"nginx":                              {"nginx", "nginx", ""},
		"nginx:1":                            {"nginx", "nginx", "1"},
		"localhost:5000/a/b":                 {"localhost:5000/a/b", "b", ""},
		"localhost:5000/a/b:1@sha256:abc":    {"localhost:5000/a/b", "b", "1"},
		"example.com/team/operator@sha256:a": {"example.com/team/operator", "operator", ""},
	}
	for image, want := range cases {
		if got := (struct{ repository, base, tag string }{imageRepository(image), imageBase(image),
			imageTagOrEmpty(image)}); got != want {
			t.Errorf("%s: got %+v, want %+v", image, got, want)
		}
	}
}

// TestWebhook checks that the API server calls a webhook through a Service, and that the process of a pod can refuse
// objects there.
func TestWebhook(t *testing.T) {
	t.Parallel()
	ns := namespaceOf(t, two)
	client := clientOf(t, two)
	authority := must[*pki](t)(openPKI(t.TempDir()))
	cert, key, err := authority.issueFor("x."+ns+".svc", net.IPv4(127, 0, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	must[*corev1.Secret](t)(client.CoreV1().Secrets(ns).Create(
		t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tls"},
			Data: map[string][]byte{"tls.crt": cert, "tls.key": key}}, metav1.CreateOptions{}))
	pod := barePod(processImage)
	pod.Spec.Containers[0].Args = []string{"--listen=:8443", "--tls", "/certs"}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "tls", MountPath: "/certs"}}
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTPS, Path: "/ready",
			Port: intstr.FromInt32(8443)}}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "tls",
		VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "tls"}}}}
	must[*corev1.Pod](t)(client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}))
	must[*corev1.Service](t)(client.CoreV1().Services(ns).Create(
		t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "x"},
			Spec: corev1.ServiceSpec{Selector: selector.MatchLabels,
				Ports: []corev1.ServicePort{{Port: 443, TargetPort: intstr.FromInt32(8443)}}}}, metav1.CreateOptions{}))
	awaitPod(t, two, ns, "the webhook to be Ready", isReady)
	must[*admissionregistrationv1.ValidatingWebhookConfiguration](t)(
		client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(),
			&admissionregistrationv1.ValidatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: ns},
				Webhooks: []admissionregistrationv1.ValidatingWebhook{{
					Name: "deny.example.com",
					ClientConfig: admissionregistrationv1.WebhookClientConfig{
						Service: &admissionregistrationv1.ServiceReference{Namespace: ns, Name: "x",
							Path: new("/deny")}, CABundle: authority.caPEM},
					Rules: []admissionregistrationv1.RuleWithOperations{
						{Operations: []admissionregistrationv1.OperationType{"CREATE"},
							Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
								Resources: []string{"configmaps"}}}},
					NamespaceSelector: &metav1.LabelSelector{
						MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
					SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
					AdmissionReviewVersions: []string{"v1"},
				}},
			}, metav1.CreateOptions{}))
	eventually(t, "the webhook to refuse", func(ctx context.Context) error {
		_, err := client.CoreV1().ConfigMaps(ns).Create(
			ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}}, metav1.CreateOptions{})
		if err == nil {
			return errors.New("it was created")
		}
		if !strings.Contains(err.Error(), "denied by the pod") {
			return err
		}
		return nil
	})

	logs := func(options *corev1.PodLogOptions) string {
		return string(must[[]byte](t)(client.CoreV1().Pods(ns).GetLogs("p", options).DoRaw(t.Context())))
	}
	if got := logs(&corev1.PodLogOptions{}); !strings.Contains(got, "serving at") {
		t.Errorf("logs of the pod: got %q", got)
	}
	if got := logs(&corev1.PodLogOptions{TailLines: new(int64(0))}); got != "" {
		t.Errorf("last 0 lines of the logs: got %q", got)
	}
}

func TestSkip(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10_000) + "\n"
	cases := map[string]struct {
		reason string
		text   string
		lines  int
		want   string
	}{
		"Empty":      {"nothing has no lines", "", 3, ""},
		"Fewer":      {"all lines if there are fewer", "a\nb\n", 3, "a\nb\n"},
		"More":       {"the last ones if there are more", "a\nb\nc\n", 2, "b\nc\n"},
		"Unfinished": {"a line without an end is one", "a\nb\nc", 2, "b\nc"},
		"Long":       {"a line may be longer than a buffer", "a\n" + long + "c\n", 2, long + "c\n"},
		"None":       {"no lines is the end", "a\n", 0, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			file := must[*os.File](t)(os.Open(path))
			defer file.Close() //nolint:errcheck // only read
			if err := seekToLastLines(file, c.lines); err != nil {
				t.Fatal(err)
			}
			if got := string(must[[]byte](t)(io.ReadAll(file))); got != c.want {
				t.Errorf("%s: got %q, want %q", c.reason, got, c.want)
			}
		})
	}
}

// hostOfOne is the program of a host. hostOfOne starts one process, and waits until it is killed.
func hostOfOne() {
	command := exec.Command(os.Args[0], processVerb, "--listen=127.0.0.1:0")
	command.Stdout = os.Stdout
	if err := newForker().startAsGroupLeader(command); err != nil {
		panic(err)
	}
	fmt.Println("started")
	select {}
}

// TestKill kills the program of a host with SIGKILL, and checks that the processes of its pods end with it.
func TestKill(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		return // only Linux ends the processes
	}
	program := exec.Command(os.Args[0], hostVerb)
	output := must[io.ReadCloser](t)(program.StdoutPipe())
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	for seen := 0; seen < 2 && lines.Scan(); seen++ { // "started" and the process's "serving at"
	}
	if err := program.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines.Scan() { // the output ends when both processes have ended
		}
	}()
	select {
	case <-ended:
	case <-time.After(deadline):
		t.Error("the process outlives its host")
	}
	_ = program.Wait()
}
