package library

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/manifest"
	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
)

// deadline is the timeout of every wait. A wait takes at most a few seconds.
const deadline = 20 * time.Minute

// All tests share this cluster; each test has its own namespace.
var (
	api   *cluster.Cluster
	kube  *kubernetes.Clientset
	loose *dynamic.DynamicClient
)

func TestMain(m *testing.M) {
	// Most tests wait for the cluster most of the time: the deletion of a namespace takes five seconds.
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(func() int {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		host, err := cluster.Open(ctx, cluster.Options{Audit: true})
		if err != nil {
			panic(err)
		}
		defer func() { _ = host.Close() }()
		if api, err = host.Start(ctx, "library"); err != nil {
			panic(err)
		}
		kube, loose = kubernetes.NewForConfigOrDie(api.Config()), dynamic.NewForConfigOrDie(api.Config())
		return m.Run()
	}())
}

// shopInfo returns the InstallInfo of the chart in testdata, for a release and a namespace with the given name.
func shopInfo(name string) manifest.InstallInfo {
	return manifest.InstallInfo{
		ChartInfo: manifest.ChartInfo{
			Path:        "testdata/shop",
			ReleaseName: name,
			ConfigFlags: map[string]any{"Namespace": name, "CreateNamespace": true, "SkipCRDs": true},
		},
		ClusterInfo:      manifest.ClusterInfo{Config: api.Config()},
		CheckReadyStates: true,
	}
}

// repeatUntilReady repeats an operation until it is ready.
func repeatUntilReady(ctx context.Context, operation func() (manifest.Status, error)) (manifest.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	for {
		status, err := operation()
		if err != nil || status.Ready {
			return status, err
		}
		select {
		case <-ctx.Done():
			return status, fmt.Errorf("not ready after %v: %s", deadline, strings.Join(status.Pending, "; "))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func install(t *testing.T, info manifest.InstallInfo, transforms ...manifest.ObjectTransform) manifest.Status {
	t.Helper()
	status, err := repeatUntilReady(t.Context(), func() (manifest.Status, error) {
		return manifest.InstallOrUpgradeChart(
			t.Context(), info, transforms...)
	})
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func uninstall(t *testing.T, info manifest.InstallInfo) manifest.Status {
	t.Helper()
	status, err := repeatUntilReady(t.Context(), func() (manifest.Status, error) {
		return manifest.UninstallChart(
			t.Context(), info)
	})
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// checkNamespaceStays fails the test if the namespace does not exist or is being deleted.
func checkNamespaceStays(t *testing.T, name string) {
	t.Helper()
	if n, err := kube.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil ||
		n.DeletionTimestamp != nil {
		t.Errorf("the namespace does not stay: %v, %v", n, err)
	}
}

// pendingOf returns Status.Pending of ConsistencyCheck as one text. pendingOf is "" if the installation is consistent.
func pendingOf(t *testing.T, info manifest.InstallInfo) string {
	t.Helper()
	status, err := manifest.ConsistencyCheck(t.Context(), info)
	if err != nil {
		t.Fatal(err)
	}
	if status.Ready != (len(status.Pending) == 0) {
		t.Errorf("ready is %v, but it waits for %q", status.Ready, status.Pending)
	}
	return strings.Join(status.Pending, "; ")
}

// writesSince returns the successful writes of the library and the tests in a namespace since the mark.
func writesSince(namespace string, since cluster.Mark) []string {
	var writes []string
	for _, r := range api.Requests(since) {
		here := r.Namespace == namespace || r.Resource == "namespaces" && r.Name == namespace
		if r.User == "playground-admin" && here && r.Code < 400 &&
			slices.Contains([]string{"create", "update", "patch", "delete"}, r.Verb) {
			writes = append(writes, r.Verb+" "+r.Resource+" "+r.Name)
		}
	}
	return writes
}

// checkNothingLeft fails the test if the namespace of the release still exists.
func checkNothingLeft(t *testing.T, namespace string) {
	t.Helper()
	if _, err := kube.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}); client.IgnoreNotFound(
		err) != nil || err == nil {
		t.Errorf("the namespace is left: %v", err)
	}
}

func patchObject(t *testing.T, resource, namespace, name, patch string) {
	t.Helper()
	gvr := map[string]schema.GroupVersionResource{
		"configmaps": {
			Version:  "v1",
			Resource: "configmaps"}, "deployments": {Group: "apps",
			Version:  "v1",
			Resource: "deployments",
		},
		"orders": {Group: "shop.example.com", Version: "v1", Resource: "orders"},
	}[resource]
	if _, err := loose.Resource(gvr).Namespace(namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
		t.Fatal(err)
	}
}

// TestLifeCycle: install, nothing to do, drift and healing, upgrade with pruning, uninstall.
func TestLifeCycle(t *testing.T) {
	t.Parallel()
	info := shopInfo("life")
	if got := pendingOf(t, info); !strings.Contains(got, "is not installed") {
		t.Errorf("before: %s", got)
	}
	changes, err := manifest.Diff(t.Context(), info)
	if err != nil || len(changes) != 4 || changes[0].String() != "Namespace life does not exist" {
		t.Fatalf("before: %v, %v", changes, err)
	}
	mark := api.Mark()
	first := install(t, info)
	if len(first.Objects) != 4 {
		t.Errorf("inventory: %v", first.Objects)
	}
	data, err := kube.CoreV1().ConfigMaps("life").Get(t.Context(), "life", metav1.GetOptions{})
	if err != nil || data.Data["monitored"] != "false" || data.Data["apps"] != "true" ||
		data.Data["kubernetes"] != strings.Split(api.Version(), ".")[1] {
		t.Errorf("the chart did not see the cluster: %v, %v", data.Data, err)
	}
	// An installation writes each object once. It writes the inventory twice: before and after the objects. The
	// namespace is created first, because it contains the inventory.
	t.Logf("install: %q", writesSince("life", mark))
	if writes := writesSince("life", mark); len(writes) > 7 {
		t.Errorf("install of 4 objects wrote %d times: %q", len(writes), writes)
	}

	mark = api.Mark()
	install(t, info)
	if got := pendingOf(t, info); got != "" {
		t.Errorf("after install: %s", got)
	}
	if writes := writesSince("life", mark); len(writes) > 0 {
		t.Errorf("nothing to do, but wrote %q", writes)
	}

	patchObject(t, "configmaps", "life", "life", `{"data":{"greeting":"changed"}}`)
	if err := kube.CoreV1().Services("life").Delete(t.Context(), "life", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	mark = api.Mark()
	got := pendingOf(t, info)
	for _, want := range []string{"ConfigMap life/life", "data.greeting", "Service life/life does not exist"} {
		if !strings.Contains(got, want) {
			t.Errorf("drift: %q does not say %q", got, want)
		}
	}
	if writes := writesSince("life", mark); len(writes) > 0 {
		t.Errorf("a check wrote %q", writes)
	}
	mark = api.Mark()
	install(t, info)
	if writes := writesSince("life", mark); !slices.Equal(slices.Sorted(slices.Values(writes)),
		[]string{"patch configmaps life", "patch services life"}) {
		t.Errorf("healing wrote %q", writes)
	}

	info.SetFlags = map[string]any{".greeting": "hi", "extra": "delete"}
	install(t, info)
	info.SetFlags = map[string]any{"greeting": "hi"}
	changes, err = manifest.Diff(t.Context(), info)
	if err != nil || len(changes) != 1 || changes[0].Action != manifest.Delete || changes[0].Ref.Name != "life-extra" {
		t.Errorf("pruning: %v, %v", changes, err)
	}
	install(t, info)
	if _, err := kube.CoreV1().ConfigMaps("life").Get(t.Context(), "life-extra", metav1.GetOptions{}); err == nil {
		t.Error("what the chart does not have any more was not pruned")
	}
	if got := pendingOf(t, info); got != "" {
		t.Errorf("after the upgrade: %s", got)
	}

	info.Path = "/nowhere" // UninstallChart does not need the chart
	uninstall(t, info)
	checkNothingLeft(t, "life")
	uninstall(t, info) // a second uninstallation is not an error
}

// TestCustomResource: the custom resource is created last, and then belongs to its user. At the uninstallation, the
// custom resource is deleted first, and all other objects are deleted after its deletion is complete.
func TestCustomResource(t *testing.T) {
	t.Parallel()
	info := shopInfo("custom")
	info.ConfigFlags["SkipCRDs"] = false
	order := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "shop.example.com/v1", "kind": "Order",
		"metadata": map[string]any{"name": "first", "finalizers": []any{"shop.example.com/hold"}},
		"spec":     map[string]any{"count": int64(1)}}}
	info.CustomResources = []*unstructured.Unstructured{order}
	asked := 0
	info.Client, _ = client.New(info.Config, client.Options{})
	info.BaseResource = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "base"}}
	info.CheckFn = func(ctx context.Context, base client.Object, c manifest.ClusterInfo) (bool, error) {
		asked++
		if base.GetName() != "base" {
			return false, errors.New("not the base resource")
		}
		if err := c.Client.Get(ctx, client.ObjectKey{Name: "custom"}, &corev1.Namespace{}); err != nil {
			// At the end of the uninstallation, the namespace does not exist.
			return client.IgnoreNotFound(err) == nil, client.IgnoreNotFound(err)
		}
		return asked > 1, nil
	}
	install(t, info)
	if asked < 2 {
		t.Errorf("CheckFn was asked %d times", asked)
	}
	patchObject(t, "orders", "custom", "first", `{"spec":{"count":5}}`)
	install(t, info)
	if got := pendingOf(t, info); got != "" {
		t.Errorf("a custom resource belongs to its user: %s", got)
	}
	orders := loose.Resource(schema.GroupVersionResource{Group: "shop.example.com", Version: "v1",
		Resource: "orders"}).Namespace("custom")
	if o, err := orders.Get(t.Context(), "first", metav1.GetOptions{}); err != nil ||
		o.Object["spec"].(map[string]any)["count"] != int64(5) {
		t.Errorf("got %v, %v", o, err)
	}

	for range 2 {
		status, err := manifest.UninstallChart(t.Context(), info)
		if err != nil || status.Ready || len(status.Pending) != 1 ||
			!strings.Contains(status.Pending[0], "shop.example.com/hold") {
			t.Fatalf("with a finalizer: %+v, %v", status, err)
		}
	}
	if _, err := kube.AppsV1().Deployments("custom").Get(t.Context(), "custom", metav1.GetOptions{}); err != nil {
		t.Errorf("the operator was deleted before its custom resource was gone: %v", err)
	}
	patchObject(t, "orders", "custom", "first", `{"metadata":{"finalizers":null}}`)
	uninstall(t, info)
	checkNothingLeft(t, "custom")
	if _, err := loose.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}).
		Get(t.Context(), "orders.shop.example.com", metav1.GetOptions{}); err == nil {
		t.Error("the definition is left")
	}
}

// TestNamespaces: a namespace that existed before the installation is kept, with the objects of others in it.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	info := shopInfo("shared")
	if _, err := kube.CoreV1().Namespaces().Create(
		t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shared"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	install(t, info)
	mark := api.Mark()
	install(t, info)
	if writes := writesSince("shared", mark); len(writes) > 0 {
		t.Errorf("nothing to do, but wrote %q", writes)
	}
	uninstall(t, info)
	maps, err := kube.CoreV1().ConfigMaps("shared").List(t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name!=kube-root-ca.crt"}) // a controller creates it some time after the namespace
	if err != nil || len(maps.Items) != 0 {
		t.Errorf("left: %v, %v", maps, err)
	}

	info = shopInfo("missing")
	delete(info.ConfigFlags, "CreateNamespace")
	if _, err := manifest.InstallOrUpgradeChart(t.Context(), info); reasonOf(err) != apply.NamespaceNotFound ||
		!strings.Contains(err.Error(), "CreateNamespace") {
		t.Errorf("without a namespace: %v", err)
	}
}

// TestNamespaceNotPruned: an upgrade does not delete the namespace of the release, even if the flag CreateNamespace is
// not set any more. UninstallChart deletes the namespace.
func TestNamespaceNotPruned(t *testing.T) {
	t.Parallel()
	info := shopInfo("later")
	install(t, info)
	delete(info.ConfigFlags, "CreateNamespace")
	if changes, err := manifest.Diff(t.Context(), info); err != nil || len(changes) > 0 {
		t.Errorf("without the flag CreateNamespace: %v, %v", changes, err)
	}
	install(t, info)
	checkNamespaceStays(t, "later")
	if got := pendingOf(t, info); got != "" {
		t.Errorf("after the upgrade: %s", got)
	}
	uninstall(t, info)
	checkNothingLeft(t, "later")
}

// TestNamespaceOfChart: if the chart contains the namespace of the release, the uninstallation is ready only when the
// namespace is deleted, although the inventory in the namespace is deleted earlier.
func TestNamespaceOfChart(t *testing.T) {
	t.Parallel()
	const name = "of-chart"
	info := shopInfo(name)
	info.Path = t.TempDir()
	if err := os.WriteFile(filepath.Join(info.Path, "a.yaml"), []byte("apiVersion: v1\nkind: Namespace\n"+
		"metadata: {name: "+name+"}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	install(t, info)
	namespaces := kube.CoreV1().Namespaces()
	setFinalizers := func(list string) {
		t.Helper()
		if _, err := namespaces.Patch(t.Context(), name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":`+list+`}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	setFinalizers(`["example.com/hold"]`)
	end := time.Now().Add(deadline)
	for {
		status, err := manifest.UninstallChart(t.Context(), info)
		if err != nil || status.Ready {
			t.Fatalf("while the namespace exists: %+v, %v", status, err)
		}
		if _, err := kube.CoreV1().ConfigMaps(name).Get(t.Context(), "inventory."+name,
			metav1.GetOptions{}); client.IgnoreNotFound(err) == nil && err != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the inventory is not deleted")
		}
		<-time.After(50 * time.Millisecond)
	}
	if status, err := manifest.UninstallChart(t.Context(), info); err != nil || status.Ready ||
		!strings.Contains(strings.Join(status.Pending, " "), "Namespace "+name) {
		t.Errorf("without the inventory: %+v, %v", status, err)
	}
	setFinalizers("null")
	uninstall(t, info)
	checkNothingLeft(t, name)
}

// TestTwoReleases: two releases share a namespace and a cluster-scoped object. The uninstallation of the first release
// deletes nothing that the second release needs.
func TestTwoReleases(t *testing.T) {
	t.Parallel()
	const namespace = "two"
	role := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1",
		"kind": "ClusterRole", "metadata": map[string]any{"name": "shop-of-two"}, "rules": []any{}}}
	addRole := func(_ context.Context, _ client.Object, resources *manifest.Resources) error {
		resources.Items = append(resources.Items, role.DeepCopy())
		return nil
	}
	first, second := shopInfo("two-a"), shopInfo("two-b")
	for _, info := range []manifest.InstallInfo{first, second} {
		info.ConfigFlags["Namespace"] = namespace
		install(t, info, addRole)
	}
	left := strings.Join(uninstall(t, first).Left, "; ")
	for _, want := range []string{"ClusterRole.rbac.authorization.k8s.io shop-of-two stays, because release two/two-b",
		"Namespace two stays", "Deployment.apps (two-b)"} {
		if !strings.Contains(left, want) {
			t.Errorf("left is %q, want %q in it", left, want)
		}
	}
	checkNamespaceStays(t, namespace)
	if d, err := kube.AppsV1().Deployments(namespace).Get(t.Context(), "two-b", metav1.GetOptions{}); err != nil ||
		d.DeletionTimestamp != nil {
		t.Errorf("the Deployment of the second release: %v, %v", d, err)
	}
	if d, err := kube.AppsV1().Deployments(namespace).Get(t.Context(), "two-a", metav1.GetOptions{}); err == nil {
		t.Errorf("the Deployment of the first release is left: %v", d)
	}
	if status, err := manifest.ConsistencyCheck(t.Context(), second, addRole); err != nil || !status.Ready {
		t.Errorf("the second release: %+v, %v", status, err)
	}
	uninstall(t, second)
	if _, err := kube.RbacV1().ClusterRoles().Get(t.Context(), "shop-of-two", metav1.GetOptions{}); err == nil {
		t.Error("the object that nobody needs any more is left")
	}
}

// TestObjectsOfOthers: an object and a custom resource that existed before the installation stay after it.
func TestObjectsOfOthers(t *testing.T) {
	t.Parallel()
	info := shopInfo("prior")
	info.CRDs = []*unstructured.Unstructured{{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1",
		"kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "parcels.prior.example.com"},
		"spec": map[string]any{"group": "prior.example.com", "scope": "Namespaced",
			"names": map[string]any{"kind": "Parcel", "plural": "parcels"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object",
					"x-kubernetes-preserve-unknown-fields": true}}}}}}}}
	install(t, info) // creates the namespace and the CRD
	parcel := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "prior.example.com/v1", "kind": "Parcel",
		"metadata": map[string]any{"name": "mine"}, "spec": map[string]any{"weight": int64(1)}}}
	parcels := loose.Resource(schema.GroupVersionResource{Group: "prior.example.com", Version: "v1",
		Resource: "parcels"}).Namespace("prior")
	if _, err := parcels.Create(t.Context(), parcel, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	maps := kube.CoreV1().ConfigMaps("prior")
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "prior-extra"},
		Data: map[string]string{"a": "mine"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	info.CustomResources = []*unstructured.Unstructured{parcel}
	info.SetFlags = map[string]any{"extra": "delete"}
	status, err := manifest.InstallOrUpgradeChart(t.Context(), info)
	if taken := strings.Join(status.TakenOver, "; "); err != nil ||
		!strings.Contains(taken, "ConfigMap prior/prior-extra existed before") {
		t.Errorf("taken over: %q, %v", taken, err)
	}
	install(t, info)
	if got := pendingOf(t, info); got != "" {
		t.Errorf("with objects that existed before: %s", got)
	}
	left := strings.Join(uninstall(t, info).Left, "; ")
	for _, want := range []string{"ConfigMap prior/prior-extra stays", "Parcel.prior.example.com prior/mine stays",
		"CustomResourceDefinition.apiextensions.k8s.io parcels.prior.example.com stays", "Namespace prior stays"} {
		if !strings.Contains(left, want) {
			t.Errorf("left is %q, want %q in it", left, want)
		}
	}
	if m, err := maps.Get(t.Context(), "prior-extra", metav1.GetOptions{}); err != nil || m.Data["a"] != "mine" ||
		len(m.Annotations) > 0 {
		t.Errorf("the ConfigMap of somebody else: %v, %v", m, err)
	}
	if p, err := parcels.Get(t.Context(), "mine", metav1.GetOptions{}); err != nil || p.GetDeletionTimestamp() != nil {
		t.Errorf("the custom resource of somebody else: %v, %v", p, err)
	}
	checkNamespaceStays(t, "prior")
	uninstall(t, info) // a second uninstallation is not an error, and deletes nothing
	checkNamespaceStays(t, "prior")
}

// TestKeep: an object with the annotation to keep it is not deleted, and neither is its namespace, even if a later
// installation does not contain the object.
func TestKeep(t *testing.T) {
	t.Parallel()
	info := shopInfo("keep")
	info.SetFlags = map[string]any{"extra": "keep"}
	install(t, info)
	uninstall(t, info)
	if _, err := kube.CoreV1().ConfigMaps("keep").Get(t.Context(), "keep-extra", metav1.GetOptions{}); err != nil {
		t.Errorf("it is gone: %v", err)
	}
	if _, err := kube.CoreV1().ConfigMaps("keep").Get(t.Context(), "inventory.keep", metav1.GetOptions{}); err == nil {
		t.Error("the inventory is left")
	}

	info.SetFlags = nil // a version without the object; the namespace still belongs to the release
	install(t, info)
	if left := strings.Join(uninstall(t, info).Left, "; "); !strings.Contains(left, "ConfigMap (keep-extra)") {
		t.Errorf("left is %q, want the kept object", left)
	}
	checkNamespaceStays(t, "keep")
}

// TestNotReady: the status names a workload that does not start, with and without the flag Wait.
func TestNotReady(t *testing.T) {
	t.Parallel()
	info := shopInfo("unready")
	info.SetFlags = map[string]any{"image": "example.com/crash:1"}
	info.ConfigFlags["Wait"], info.ConfigFlags["Timeout"] = true, "3s"
	begin := time.Now()
	status, err := manifest.InstallOrUpgradeChart(t.Context(), info)
	if err != nil || status.Ready || !strings.Contains(strings.Join(status.Pending, " "), "unready") {
		t.Errorf("got %+v, %v", status, err)
	}
	if took := time.Since(begin); took < time.Second {
		t.Errorf("it waited %v", took)
	}
	info.SetFlags = nil
	if status, err = manifest.InstallOrUpgradeChart(t.Context(), info); err != nil {
		t.Fatal(err)
	}
	info.ConfigFlags["Timeout"] = "10m"
	if status, err = manifest.InstallOrUpgradeChart(t.Context(), info); err != nil || !status.Ready {
		t.Errorf("with time enough: %+v, %v", status, err)
	}
	uninstall(t, info)
}

// TestTransforms: transforms receive all objects, and the changed objects are installed.
func TestTransforms(t *testing.T) {
	t.Parallel()
	info := shopInfo("transform")
	label := func(_ context.Context, base client.Object, resources *manifest.Resources) error {
		for _, o := range resources.Items {
			o.SetLabels(map[string]string{"owner": base.GetName()})
		}
		resources.Items = slices.DeleteFunc(resources.Items,
			func(o *unstructured.Unstructured) bool { return o.GetKind() == "Service" })
		return nil
	}
	info.BaseResource = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "boss"}}
	install(t, info, label)
	if d, err := kube.AppsV1().Deployments("transform").Get(t.Context(), "transform",
		metav1.GetOptions{}); err != nil || d.Labels["owner"] != "boss" {
		t.Errorf("got %v, %v", d, err)
	}
	if _, err := kube.CoreV1().Services("transform").Get(t.Context(), "transform", metav1.GetOptions{}); err == nil {
		t.Error("what a transform has removed was installed")
	}
	uninstall(t, info)
	checkNothingLeft(t, "transform")

	boom := errors.New("boom")
	if _, err := manifest.InstallOrUpgradeChart(t.Context(), info,
		func(context.Context, client.Object, *manifest.Resources) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
}

// TestRefused checks that the error names the objects that the API server refuses, and that all other objects are
// installed.
func TestRefused(t *testing.T) {
	t.Parallel()
	info := shopInfo("refused")
	info.SetFlags = map[string]any{"replicas": -1}
	if _, err := manifest.InstallOrUpgradeChart(t.Context(), info); reasonOf(err) != apply.ObjectRefused ||
		!strings.Contains(err.Error(), "Deployment.apps refused/refused") {
		t.Errorf("got %v", err)
	}
	if _, err := kube.CoreV1().Services("refused").Get(t.Context(), "refused", metav1.GetOptions{}); err != nil {
		t.Errorf("the others should be there: %v", err)
	}
	uninstall(t, info)
	checkNothingLeft(t, "refused")
}

// cut is a transport that fails every request after a number of requests, as if the process or the connection had ended
// there.
type cut struct {
	http.RoundTripper
	left *atomic.Int32
}

var errCut = errors.New("cut")

func (c cut) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.left.Add(-1) < 0 {
		return nil, errCut
	}
	return c.RoundTripper.RoundTrip(r)
}

// TestCutAnywhere interrupts installations and uninstallations after each of their requests. No object is ever missing
// in the inventory: later calls of UninstallChart delete all objects, and a later call of InstallChart completes the
// installation.
func TestCutAnywhere(t *testing.T) {
	t.Parallel()
	const most = 40 // requests that an installation may take
	for _, own := range []bool{false, true} {
		done := make(chan int, most)
		t.Run(fmt.Sprintf("OwnNamespace=%v", own), func(t *testing.T) {
			for after := range most {
				t.Run(strconv.Itoa(after), func(t *testing.T) {
					t.Parallel()
					if cutAfter(t, after, own) {
						done <- after
					}
				})
				if own && after == 8 {
					break // later requests are the same as without an own namespace
				}
			}
		})
		close(done)
		fewest := most
		for n := range done {
			fewest = min(fewest, n)
		}
		if !own {
			t.Logf("an installation takes %d requests", fewest)
			if fewest == most {
				t.Errorf("an installation takes more than %d requests", most)
			}
		}
	}
}

// cutAfter installs with a connection that breaks after a number of requests. Then cutAfter calls UninstallChart again
// and again, until it succeeds. The connection of the first call breaks before the first request, and each further
// connection breaks one request later. cutAfter reports whether the installation was completed.
func cutAfter(t *testing.T, after int, own bool) (finished bool) {
	try := func(info manifest.InstallInfo, requests int, operation func(context.Context, manifest.InstallInfo) (
		manifest.Status, error)) bool {
		budget := new(atomic.Int32)
		budget.Store(int32(requests))
		info.Config = api.Config()
		info.Config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return cut{rt, budget} })
		status, err := operation(t.Context(), info)
		return err == nil && status.Ready
	}
	info := shopInfo(fmt.Sprintf("cut-%d-%v", after, own))
	info.CheckReadyStates = false
	if !own {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: info.ReleaseName}}
		if _, err := kube.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	finished = try(info, after, func(ctx context.Context, info manifest.InstallInfo) (manifest.Status, error) {
		return manifest.InstallOrUpgradeChart(ctx, info)
	})
	if after%2 == 0 {
		install(t, info)
		if got := pendingOf(t, info); got != "" {
			t.Errorf("after the cut and another installation: %s", got)
		}
	}
	end := time.Now().Add(3 * deadline) // each attempt sends one request more
	for i := 0; !try(info, i, manifest.UninstallChart); i++ {
		if time.Now().After(end) {
			t.Fatal("uninstalling does not get on")
		}
		<-time.After(20 * time.Millisecond)
	}
	if own {
		checkNothingLeft(t, info.ReleaseName)
		return finished
	}
	maps, err := kube.CoreV1().ConfigMaps(info.ReleaseName).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	services, err := kube.CoreV1().Services(info.ReleaseName).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	deployments, err := kube.AppsV1().Deployments(info.ReleaseName).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps.Items {
		if m.Name != "kube-root-ca.crt" {
			t.Errorf("ConfigMap %s is left", m.Name)
		}
	}
	if len(services.Items)+len(deployments.Items) > 0 {
		t.Errorf("left: %v %v", services.Items, deployments.Items)
	}
	return finished
}

// TestOtherSources checks that sources that are not charts can be installed, too.
func TestOtherSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	put("plain/a.yaml", object)
	put("file.yaml", object)
	put("kustomize/kustomization.yaml", "resources: [a.yaml]\nnamePrefix: x-\n")
	put("kustomize/a.yaml", object)
	for name, want := range map[string]string{"plain": "a", "file.yaml": "a", "kustomize": "x-a"} {
		info := shopInfo("from-" + strings.TrimSuffix(name, ".yaml"))
		info.Path = filepath.Join(dir, name)
		install(t, info)
		if _, err := kube.CoreV1().ConfigMaps(info.ReleaseName).Get(t.Context(), want,
			metav1.GetOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		uninstall(t, info)
		checkNothingLeft(t, info.ReleaseName)
	}
}

func reasonOf(err error) string {
	if e, ok := errors.AsType[interface {
		error
		Reason() string
	}](err); ok {
		return e.Reason()
	}
	return fmt.Sprint(err)
}
