package deploy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/docs"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
	"github.com/kyma-fleet/lifecycle-manager/playground/sample"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// previousManager is the field manager with which the previous release has applied objects of modules.
const previousManager = "declarative.kyma-project.io/applier"

// TestUpgrade follows docs/guide/migration.md in clusters with the objects of the previous release, which is the Kyma
// project's lifecycle-manager. Except for its watcher, no object of the previous release is lost, changed, restarted or
// created again, and the runtime continues to work.
func TestUpgrade(t *testing.T) {
	l := startLandscape(t, "runtime-a")
	kcp, runtime := l.Clients[landscape.ControlPlane], l.Clients["runtime-a"]
	definitions := readPrevious(t, "definitions.yaml")
	for _, c := range []client.WithWatch{kcp, runtime} {
		applyAll(t, c, "lifecycle-manager", definitions)
		await(t, "the definitions of the release before", func(ctx context.Context) (bool, string) {
			err := c.List(ctx, &v1beta2.KymaList{})
			return err == nil, fmt.Sprint(err)
		})
	}
	ensureNamespace(t, kcp, v1beta2.ControlPlaneNamespace)
	ensureNamespace(t, runtime, v1beta2.RuntimeNamespace)
	stored := readPrevious(t, "control-plane.yaml")
	applyAll(t, kcp, "lifecycle-manager", stored)
	applyAll(t, kcp, "somebody", readPrevious(t, "old-manager.yaml"))
	installModule(t, runtime)
	applyAll(t, runtime, previousManager, readPrevious(t, "runtime.yaml"))
	watcher := readPrevious(t, "watcher.yaml")
	applyAll(t, runtime, "lifecycle-manager", watcher)
	if err := l.SetAccessSecret(t.Context(), "runtime-a", l.Clusters["runtime-a"].Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	pushModule(t, l)
	watched := map[client.WithWatch][]*unstructured.Unstructured{
		kcp: append(definitions, stored...),
		runtime: {
			newObject("apps/v1", "Deployment", sample.Namespace, sample.Operator),
			newObject("sample.playground.kyma-project.io/v1alpha1", "Sample", sample.Namespace, "sample"),
			newObject("operator.kyma-project.io/v1beta2", "Kyma", v1beta2.RuntimeNamespace, v1beta2.RuntimeKymaName),
			newObject("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "kymas.operator.kyma-project.io"),
		},
	}
	pods := awaitPods(t, runtime)
	before := map[client.WithWatch][]*unstructured.Unstructured{kcp: readAll(t, kcp, watched[kcp]),
		runtime: readAll(t, runtime, watched[runtime])}

	guide := guideSteps(t, l)
	start, watch, cleanUp := guide[:3], guide[3], guide[4]
	for _, step := range start {
		runStep(t, l, step)
	}
	// the new manager has applied the module, and has pruned an object in the inventory of the previous release
	await(t, "the inventory of the release before", func(ctx context.Context) (bool, string) {
		err := runtime.Get(ctx, client.ObjectKey{Namespace: v1beta2.RuntimeNamespace, Name: "dropped-long-ago"},
			&corev1.ConfigMap{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	// The new manager writes new sources into the Manifest, so the module is in state Processing for a short time.
	await(t, "nothing in the way", func(ctx context.Context) (bool, string) {
		out, err := inShell(ctx, t.TempDir(), l, watch)
		return err == nil, fmt.Sprintf("%v:\n%s", err, out)
	})
	awaitModule(t, kcp, l.Namespace(), "runtime-a")

	for c, was := range before {
		now := readAll(t, c, watched[c])
		for i, o := range was {
			id := o.GetKind() + " " + o.GetName()
			if o.GetUID() != now[i].GetUID() {
				t.Errorf("%s was made anew", id)
			}
			switch o.GetKind() {
			case "ModuleTemplate", "ModuleReleaseMeta", "Watcher", "Kyma", "Deployment", "Sample":
				if diff := cmp.Diff(o.Object["spec"], now[i].Object["spec"]); diff != "" {
					t.Errorf("%s has changed: -before +after\n%s", id, diff)
				}
			}
		}
	}
	if diff := cmp.Diff(pods, awaitPods(t, runtime)); diff != "" {
		t.Errorf("pods of the module were restarted: -before +after\n%s", diff)
	}
	for _, o := range watcher {
		awaitGone(t, runtime, o)
	}
	runStep(t, l, cleanUp)
	awaitGone(t, kcp, newObject("apps/v1", "Deployment", l.Namespace(), "klm-controller-manager"))
	old := newObject("operator.kyma-project.io/v1alpha1", "Kyma", l.Namespace(), "runtime-a")
	await(t, "the Kyma as its first version", func(ctx context.Context) (bool, string) {
		err := kcp.Get(ctx, client.ObjectKeyFromObject(old), old)
		channel, _, _ := unstructured.NestedString(old.Object, "spec", "channel")
		return err == nil && channel == "regular", fmt.Sprint(err, channel)
	})
	disableModule(t, l)
}

// guideSteps returns the commands of docs/guide/migration.md, by step, for this landscape.
func guideSteps(t *testing.T, l *landscape.Landscape) []string {
	t.Helper()
	page, err := docs.Read("../../docs/guide/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, b := range page.Blocks {
		if b.Runs() {
			steps = append(steps, strings.ReplaceAll(b.Text, "registry.host=registry.example.com",
				"registry.host="+l.RegistryHost+",webhooks.enabled=true"))
		}
	}
	if len(steps) != 5 {
		t.Fatalf("the page has %d blocks of commands, this test is for 5", len(steps))
	}
	return steps
}

// runStep runs the commands of a step of the page, and fails the test if one fails.
func runStep(t *testing.T, l *landscape.Landscape, commands string) {
	t.Helper()
	out, err := inShell(t.Context(), t.TempDir(), l, commands)
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	t.Logf("%s", out)
}

// inShell runs commands in a folder, with the control plane's kubeconfig, and returns their output.
func inShell(ctx context.Context, folder string, l *landscape.Landscape, commands string) ([]byte, error) {
	shell := exec.CommandContext(ctx, "bash", "-s")
	shell.Dir, shell.Stdin = folder, strings.NewReader(
		"set -euo pipefail\nexport PATH="+bin+":$PATH KUBECONFIG="+l.KubeconfigPath(
			landscape.ControlPlane)+"\nset -v\n"+commands)
	return shell.CombinedOutput()
}

// awaitPods waits until the pods of the module's operator are ready, and returns their names.
func awaitPods(t *testing.T, c client.Client) []string {
	t.Helper()
	var names []string
	await(t, "the operator of the module", func(ctx context.Context) (bool, string) {
		var pods corev1.PodList
		err := c.List(ctx, &pods, client.InNamespace(sample.Namespace))
		ready := true
		names = nil
		for _, p := range pods.Items {
			if !strings.HasPrefix(p.Name, sample.Operator) {
				continue
			}
			names = append(names, p.Name+" "+string(p.UID))
			isReady := func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady &&
					c.Status == corev1.ConditionTrue
			}
			ready = ready && slices.ContainsFunc(p.Status.Conditions, isReady)
		}
		return ready && len(names) > 0, fmt.Sprint(names, err)
	})
	slices.Sort(names)
	return names
}

// awaitGone waits until an object does not exist any more.
func awaitGone(t *testing.T, c client.Client, o *unstructured.Unstructured) {
	t.Helper()
	await(t, "the end of "+o.GetKind()+" "+o.GetName(), func(ctx context.Context) (bool, string) {
		err := c.Get(ctx, client.ObjectKeyFromObject(o),
			newObject(o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName()))
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

// disableModule disables the module. The new manager must remove the module, with the inventory that the former manager
// has written.
func disableModule(t *testing.T, l *landscape.Landscape) {
	t.Helper()
	if err := l.PatchDesiredKymaSpec(t.Context(), "runtime-a",
		func(s *v1beta2.KymaSpec) { s.Modules = nil }); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the module", func(ctx context.Context) (bool, string) {
		var manifests v1beta2.ManifestList
		if err := l.Clients[landscape.ControlPlane].List(ctx, &manifests); err != nil || len(manifests.Items) > 0 {
			return false, fmt.Sprintf("%d Manifests, %v", len(manifests.Items), err)
		}
		operator := newObject("apps/v1", "Deployment", sample.Namespace, sample.Operator)
		err := l.Clients["runtime-a"].Get(ctx, client.ObjectKeyFromObject(operator), operator)
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

// readPrevious reads objects of the previous release from testdata.
func readPrevious(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "previous", file))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := render.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// applyAll applies objects, with their status.
func applyAll(t *testing.T, c client.WithWatch, owner string, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		// The test retries, because the API server may not serve a CRD yet that was created shortly before.
		await(t, o.GetKind()+" "+o.GetName(), func(ctx context.Context) (bool, string) {
			err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()),
				client.FieldOwner(owner), client.ForceOwnership)
			if err == nil && o.Object["status"] != nil {
				err = c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()),
					client.FieldOwner(owner), client.ForceOwnership)
			}
			return err == nil, fmt.Sprint(err)
		})
	}
}

// installModule installs the module as the previous release did.
func installModule(t *testing.T, c client.WithWatch) {
	t.Helper()
	v := sample.Versions()[0]
	objects, err := render.Parse(append(append(v.Manifest, "\n---\n"...), v.DefaultCR...))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels["operator.kyma-project.io/managed-by"], labels["app.kubernetes.io/part-of"], labels["app.kubernetes.io/component"] = "kyma", "Kyma", "runtime-a-sample-1092497565"
		o.SetLabels(labels)
		if o.GetKind() == "Sample" {
			o.SetNamespace(sample.Namespace)
		}
	}
	applyAll(t, c, previousManager, objects)
}

// pushModule pushes the layers and the component version of the module. The ModuleTemplate and the ModuleReleaseMeta of
// the module already exist.
func pushModule(t *testing.T, l *landscape.Landscape) {
	t.Helper()
	v := sample.Versions()[0]
	err := l.Push(t.Context(), landscape.Module{Name: sample.Module, Version: v.Version, Component: sample.Component,
		Tar: true, Manifest: v.Manifest, DefaultCR: v.DefaultCR})
	if err != nil {
		t.Fatal(err)
	}
}

func ensureNamespace(t *testing.T, c client.Client, name string) {
	t.Helper()
	if err := c.Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
}

func newObject(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// readAll reads the current content of the given objects from the API server.
func readAll(t *testing.T, c client.Client, objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for _, o := range objects {
		now := newObject(o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName())
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil {
			t.Fatal(strings.TrimSpace(o.GetKind() + " " + o.GetName() + ": " + err.Error()))
		}
		all = append(all, now)
	}
	return all
}
