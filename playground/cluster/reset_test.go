package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// TestReset has two rounds. Each round changes a cluster in many ways, resets it, and compares it with its first state.
// The second round shows that names and kinds of the first round can be used again after a reset.
func TestReset(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	h := must[*Host](t)(Open(ctx, Options{Audit: true, Reusable: true, Images: map[string]Image{
		processImage: {Command: os.Args[0], Args: []string{processVerb}},
	}}))
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	c := must[*Cluster](t)(h.Start(ctx, "one"))
	first := must[map[string][]string](t)(c.run.server.listNamesAndUIDs(ctx))
	stopped := must[*Cluster](t)(h.Start(ctx, "stopped"))
	if len(first) < 50 || len(first["/v1, Resource=namespaces"]) != 4 {
		t.Fatalf("the first state: %v", first)
	}
	for round := range 2 {
		changeCluster(t, c, round)
		namespaceOf(t, stopped)
		if err := stopped.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		c.Slow(time.Second)
		if round == 1 {
			c.Cut(Refuse)
		}
		if err := h.Reset(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := net.Dial("tcp", strings.TrimPrefix(c.ServerURL(), "https://")); err == nil {
			t.Error("connecting with a cluster after its reset: got no error")
		}
		if err := errors.Join(c.Start(ctx), stopped.Start(ctx)); err != nil {
			t.Fatal(err)
		}
		for _, r := range c.Requests(0) {
			if r.User == "playground-admin" || r.User == "playground-reset" {
				t.Errorf("a request from before the reset: %+v", r)
			}
		}
		c.proxy.mu.Lock()
		delay := c.proxy.delay
		c.proxy.mu.Unlock()
		if delay != 0 {
			t.Errorf("the proxy delays data by %s after the reset", delay)
		}
		if _, err := clientOf(t, c).CoreV1().Namespaces().Get(ctx, "test", metav1.GetOptions{}); !apierrors.IsNotFound(
			err) {
			t.Errorf("getting a namespace after the reset: got %v", err)
		}
		for _, c := range []*Cluster{c, stopped} {
			served := must[map[string][]string](t)(c.run.server.listNamesAndUIDs(ctx))
			if err := compareResources(first, served); c.name == "one" && err != nil {
				t.Errorf("cluster %s after round %d: %v", c.name, round+1, err)
			}
			if now := len(must[*corev1.NamespaceList](t)(clientOf(t, c).CoreV1().Namespaces().List(
				ctx, metav1.ListOptions{})).Items); now != 4 {
				t.Errorf("cluster %s has %d namespaces after round %d", c.name, now, round+1)
			}
		}
		if logs, _ := filepath.Glob(filepath.Join(h.Dir(), "logs", "one", "*")); len(logs) > 0 {
			t.Errorf("logs of pods after the reset: %v", logs)
		}
	}
}

// changeCluster changes a cluster in many ways, so that a reset has much to restore. changeCluster creates a CRD, a
// custom resource with a finalizer, a pod with a process, and an object in the namespace kube-system. changeCluster
// also changes and deletes objects that exist since the first start of the cluster.
func changeCluster(t *testing.T, c *Cluster, round int) {
	t.Helper()
	ctx, client := t.Context(), clientOf(t, c)
	objects := must[*dynamic.DynamicClient](t)(dynamic.NewForConfig(c.Config()))
	must[*corev1.Namespace](t)(client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "test"}}, metav1.CreateOptions{}))
	definition := &unstructured.Unstructured{}
	// The maximum in the schema of the CRD differs between the two rounds of TestReset, so the second round fails if
	// the API server still uses the schema of the first round.
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(crd, "10", fmt.Sprint(10*(round+1)))),
		&definition.Object); err != nil {
		t.Fatal(err)
	}
	kinds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	must[*unstructured.Unstructured](t)(objects.Resource(kinds).Create(ctx, definition, metav1.CreateOptions{}))
	things := objects.Resource(schema.GroupVersionResource{Group: "test.example.com", Version: "v1",
		Resource: "things"}).Namespace("test")
	eventually(t, "the new kind to be served", func(ctx context.Context) error {
		_, err := things.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "test.example.com/v1", "kind": "Thing",
			"metadata": map[string]any{"name": "t", "finalizers": []any{"example.com/never"}},
			"spec":     map[string]any{"size": int64(10*round + 5)},
		}}, metav1.CreateOptions{})
		return err
	})
	pod := barePod(processImage + ":1")
	pod.Spec.Containers[0].Command = []string{"/in-the-image", "--listen=:8080"}
	eventually(t, "the ServiceAccount of the pod", func(ctx context.Context) error {
		_, err := client.CoreV1().Pods("test").Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	must[*appsv1.Deployment](t)(client.AppsV1().Deployments("test").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec:       appsv1.DeploymentSpec{Selector: selector, Template: template("nginx")},
	}, metav1.CreateOptions{}))
	running := awaitPod(t, c, "test", "the process to run", isReady)
	must[*corev1.ConfigMap](t)(client.CoreV1().ConfigMaps("kube-system").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{}))
	if err := client.RbacV1().ClusterRoles().Delete(ctx, "cluster-admin", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	must[*corev1.Node](t)(client.CoreV1().Nodes().Patch(ctx, running.Spec.NodeName, "application/merge-patch+json",
		[]byte(`{"metadata": {"labels": {"test": "1"}}, "spec": {"unschedulable": true}}`), metav1.PatchOptions{}))
	// When the test resets the cluster, the object with the finalizer is still being deleted.
	if err := errors.Join(objects.Resource(kinds).Delete(ctx, definition.GetName(), metav1.DeleteOptions{}),
		client.CoreV1().Namespaces().Delete(ctx, "test", metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}
}

// TestResetNeedsTheFirstState shows that a host without Options.Reusable refuses a reset.
func TestResetNeedsTheFirstState(t *testing.T) {
	t.Parallel()
	c := &Cluster{host: &Host{dir: t.TempDir()}, name: "c"}
	if err := c.stopControllersAndRestoreOrigin(t.Context()); err == nil || !strings.Contains(err.Error(),
		"Options.Reusable") {
		t.Errorf("resetting a cluster whose first state is unknown: got %v", err)
	}
}
