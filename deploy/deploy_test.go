package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

var flavours = map[string]struct {
	stream    func() []byte
	namespace string
}{
	"base":       {ControlPlane, "kcp-system"},
	"in-cluster": {InCluster, "kyma-system"},
}

func TestFlavours(t *testing.T) {
	for folder, f := range flavours {
		t.Run(folder, func(t *testing.T) {
			for _, o := range parse(t, f.stream()) {
				id := o.GetKind() + " " + o.GetName()
				if o.GetKind() == "Namespace" && o.GetName() != f.namespace {
					t.Errorf("%s: want %s", id, f.namespace)
				}
				if ns := o.GetNamespace(); ns != "" && ns != f.namespace {
					t.Errorf("%s is in %s, want %s", id, ns, f.namespace)
				}
				switch o.GetKind() {
				case "RoleBinding", "ClusterRoleBinding":
					subjects, _, err := unstructured.NestedSlice(o.Object, "subjects")
					want := []any{map[string]any{"kind": "ServiceAccount", "name": "lifecycle-manager", "namespace": f.namespace}}
					if diff := cmp.Diff(want, subjects); err != nil || diff != "" {
						t.Errorf("%s: %v, -want +got:\n%s", id, err, diff)
					}
				case "Role", "ClusterRole":
					if text := fmt.Sprint(o.Object["rules"]); strings.ContainsAny(text, "*") {
						t.Errorf("%s has a wildcard: %s", id, text)
					}
				case "Deployment":
					checkPod(t, o)
				}
			}
		})
	}
}

// checkPod holds the pod to what a namespace that enforces pod security "restricted" lets in, and to a read-only file system.
func checkPod(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	pod, _, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if err != nil {
		t.Fatal(err)
	}
	if pod["serviceAccountName"] != "lifecycle-manager" {
		t.Errorf("the pod runs as %v", pod["serviceAccountName"])
	}
	security := pod["securityContext"].(map[string]any)
	if security["runAsNonRoot"] != true || !cmp.Equal(security["seccompProfile"], any(map[string]any{"type": "RuntimeDefault"})) {
		t.Errorf("the pod's security context is too wide: %v", security)
	}
	for _, c := range pod["containers"].([]any) {
		container := c.(map[string]any)
		want := map[string]any{"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": map[string]any{"drop": []any{"ALL"}}}
		if diff := cmp.Diff(want, container["securityContext"]); diff != "" {
			t.Errorf("security context of the container, -want +got:\n%s", diff)
		}
		if image := container["image"].(string); strings.HasSuffix(image, ":latest") || !strings.Contains(image, ":") {
			t.Errorf("image %s is not a version", image)
		}
	}
}

// TestAlike: what both flavours have differs in the namespace and in --mode alone, so that a change of one is made in the other too.
func TestAlike(t *testing.T) {
	for _, file := range []string{"role.yaml", "clusterrole.yaml", "service.yaml", "serviceaccount.yaml", "deployment.yaml"} {
		base, inCluster := read(t, "base", file), read(t, "in-cluster", file)
		want := strings.ReplaceAll(base, "kcp-system", "kyma-system")
		got := strings.ReplaceAll(inCluster, "            - --mode=in-cluster\n", "")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s of base (-) and in-cluster (+) differ:\n%s", file, diff)
		}
	}
}

// TestKustomization: what kubectl apply -k applies is what the programs apply.
func TestKustomization(t *testing.T) {
	for folder := range flavours {
		var k struct{ Resources []string }
		if err := sigsyaml.Unmarshal([]byte(read(t, folder, "kustomization.yaml")), &k); err != nil {
			t.Fatal(err)
		}
		paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, p := range paths {
			if name := filepath.Base(p); name != "kustomization.yaml" {
				want = append(want, name)
			}
		}
		slices.Sort(k.Resources)
		if diff := cmp.Diff(want, k.Resources); diff != "" {
			t.Errorf("%s: files (-) and resources of the kustomization (+):\n%s", folder, diff)
		}
	}
}

func read(t *testing.T, folder, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func parse(t *testing.T, stream []byte) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := d.Decode(o); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
}
