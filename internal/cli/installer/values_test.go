package installer

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/deploy"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// stored is a YAML text with the values of the previous installation, which TestValues uses.
const stored = `
flavour: in-cluster
replicas: 2
image: {repository: example.com/manager, tag: 20240101}
extraArgs: [--a, --b]
resources: {limits: {memory: null}}
`

func TestValues(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte("replicas: 3\nimage: {tag: x}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason  string
		options installOptions
		none    bool // there is no previous installation
		want    string
	}{
		"Kept": {"all values stay", installOptions{}, false, stored},
		"Set": {
			reason:  "single values are replaced, also in a list",
			options: installOptions{set: []string{"image.tag=2", "extraArgs[1]=--c"}},
			want: "{flavour: in-cluster, replicas: 2, image: {repository: example.com/manager, tag: 2}, " +
				"extraArgs: [--a, --c], resources: {limits: {memory: null}}}",
		},
		"Order": {
			reason: "file, then image, then set",
			options: installOptions{file: file, image: "example.com/other:y@sha256:0", set: []string{"image.tag=z"},
				resetValues: true},
			want: "{flavour: control-plane, replicas: 3, image: {repository: example.com/other, tag: z, " +
				"digest: 'sha256:0'}}",
		},
		"Image":   {"an image replaces a digest", installOptions{image: "a.b/c:1", resetValues: true}, false, "{flavour: control-plane, image: {repository: a.b/c, tag: 1, digest: ''}}"},
		"Flavour": {"a flag counts more", installOptions{flavour: "control-plane", resetValues: true}, false, "{flavour: control-plane}"},
		"Null": {
			reason:  "null removes a default of the chart, in the next installation, too",
			options: installOptions{set: []string{"resources.limits.memory=null"}, resetValues: true},
			want:    "{flavour: control-plane, resources: {limits: {memory: null}}}",
		},
		"None": {"the first installation", installOptions{set: []string{"replicas=2"}}, true, "{flavour: control-plane, replicas: 2}"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before, want := &inventory{values: decode(t, stored)}, decode(t, c.want)
			if c.none {
				before = nil
			}
			got, err := c.options.values(before)
			if err != nil {
				t.Fatal(err)
			}
			document, err := got.encode()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, decode(t, string(document))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
			if before != nil {
				if diff := cmp.Diff(decode(t, stored), before.values); diff != "" {
					t.Errorf("the values before have changed (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func decode(t *testing.T, document string) values {
	t.Helper()
	v, err := decodeValues(document)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestCredentials(t *testing.T) {
	cases := map[string]struct {
		reason, values string
		want           []string
	}{
		"Variable": {"by its name", "extraEnv: [{name: A, value: b}, {name: REGISTRY_PASSWORD, value: x}]",
			[]string{"value extraEnv[1] has a credential (REGISTRY_PASSWORD)"}},
		"Proxy": {"a login in a URL", "extraEnv: [{name: HTTPS_PROXY, value: 'http://me:x@proxy:3128'}]",
			[]string{"value extraEnv[0] has a credential (HTTPS_PROXY)"}},
		"Header": {"by its form", "extraArgs: ['--otlp-headers=authorization=Bearer abcdefghijkl']",
			[]string{"value extraArgs[0] has a credential"}},
		"Flag": {"by its name", "extraArgs: ['--any-token=abc']", []string{"value extraArgs[0] has a credential"}},
		"Host": {"also in other values", "registry: {host: 'https://me:x@registry.example.com'}",
			[]string{"value registry.host has a credential"}},
		"Reference": {"a Secret is named",
			"extraEnv: [{name: TOKEN, valueFrom: {secretKeyRef: {name: n, key: token}}}]", nil},
		"Names": {"names of Secrets, files and variables", "{registry: {credentialsSecret: a}, imagePullSecrets: " +
			"[{name: b}], extraArgs: [--oci-registry-cred-secret=c, --kubeconfig=/d, --any-token=$(TOKEN), --x]}", nil},
		"Annotations": {"a setting whose key ends like a secret", "podAnnotations: {inject-token: 'true'}", nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			v := decode(t, c.values)
			if diff := cmp.Diff(c.want, credentialProblems("", map[string]any(v))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
			if err := v.refuseCredentials(); (err != nil) != (c.want != nil) {
				t.Errorf("%s: %v", c.reason, err)
			}
		})
	}
}

// TestDefaultsAreNoCredentials checks that klm does not mistake a default value of the chart for a credential, which it
// would refuse to store.
func TestDefaultsAreNoCredentials(t *testing.T) {
	data, err := os.ReadFile("../../../deploy/chart/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := decode(t, string(data)).refuseCredentials(); err != nil {
		t.Error(err)
	}
}

func TestChangesOf(t *testing.T) {
	got := compareValues(decode(t, "{a: {b: 1, c: [x]}, d: true, e: {}}"), decode(t,
		"{a: {b: 2, f: g}, d: true, e: {}}"))
	want := []valueChange{
		{valueChanged, "a.b", "1", "2"},
		{valueDropped, "a.c", `["x"]`, ""},
		{valueAdded, "a.f", "", `"g"`},
		{valueKept, "d", "true", "true"},
		{valueKept, "e", "{}", "{}"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes differ (-want +got):\n%s", diff)
	}
}

// TestStoredValuesRender checks that numbers, and versions that look like numbers, render to the same objects before
// and after they were stored in the inventory ConfigMap.
func TestStoredValuesRender(t *testing.T) {
	for _, tag := range []string{"1.10", "20240101", "v1", "1e3"} {
		first, err := installOptions{image: "example.com/manager:" + tag,
			set: []string{"replicas=2,crds.install=false"}}.values(nil) // the CRDs only take time
		if err != nil {
			t.Fatal(err)
		}
		document, err := first.encode()
		if err != nil {
			t.Fatal(err)
		}
		second, err := installOptions{}.values(&inventory{values: decode(t, string(document))})
		if err != nil {
			t.Fatal(err)
		}
		for name, v := range map[string]values{"first": first, "second": second} {
			objects, err := renderChart(t.Context(), "", v)
			if err != nil {
				t.Fatalf("tag %s, %s: %v", tag, name, err)
			}
			if got := imageOf(mustFindManager(objects)); got != "example.com/manager:"+tag {
				t.Errorf("tag %s, %s installation: the image is %s", tag, name, got)
			}
		}
	}
}

// TestNamespaceIsOptional checks that klm creates the namespace, unless a user does not want that: the Namespace of the
// chart has the pod security level restricted, which pods of others in this namespace may not meet.
func TestNamespaceIsOptional(t *testing.T) {
	for set, want := range map[string]bool{"crds.install=false": true,
		"namespace.create=false,crds.install=false": false} {
		v, err := installOptions{image: "example.com/manager:1", set: []string{set}}.values(nil)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := renderChart(t.Context(), "", v)
		if err != nil {
			t.Fatal(err)
		}
		if is := slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
			return o.GetKind() == "Namespace"
		}); is != want {
			t.Errorf("--set=%s: the objects contain a Namespace: %t, want %t", set, is, want)
		}
	}
}

// TestReadInventory checks that each namespace has its own values, and that values are not dropped because the
// inventory cannot be read.
func TestReadInventory(t *testing.T) {
	config := func(namespace string, data map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: inventoryName}, Data: data}
	}
	s := fixture.NewServer(t,
		config("kcp-system", map[string]string{inventoryKey: "[]", valuesKey: "replicas: 2\n"}),
		config("second", map[string]string{inventoryKey: "[]", valuesKey: "replicas: 3\n"}),
		config("older", map[string]string{inventoryKey: "[]"}),
		config("broken", map[string]string{inventoryKey: "[]", valuesKey: "a: b: c"}),
		config("damaged", map[string]string{inventoryKey: "x"}),
	)
	c, err := connection.Open(fixture.App(s.Kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		want *inventory
		code int
	}{
		"kcp-system": {&inventory{version: "1", values: values{"replicas": 2.0}}, 0},
		"second":     {&inventory{version: "2", values: values{"replicas": 3.0}}, 0},
		"older":      {&inventory{version: "3"}, 0},
		"none":       {nil, 0},
		"broken":     {nil, console.ExitFailed},
		"damaged":    {nil, console.ExitFailed},
	}
	for namespace, want := range cases {
		t.Run(namespace, func(t *testing.T) {
			c.Namespace = namespace
			got, err := readInventory(t.Context(), c)
			if want.code != 0 {
				if err == nil || console.ExitCode(err) != want.code {
					t.Errorf("error %v, want exit code %d", err, want.code)
				}
				return
			}
			if diff := cmp.Diff(want.want, got, cmp.AllowUnexported(inventory{})); err != nil || diff != "" {
				t.Errorf("%v, -want +got\n%s", err, diff)
			}
		})
	}
}

// TestNote checks the note about an installation whose values are unknown.
func TestNote(t *testing.T) {
	cases := map[string]struct {
		exists bool
		before *inventory
		want   bool
	}{
		"First":    {false, nil, false},
		"Older":    {true, &inventory{}, true},
		"Others":   {true, nil, true},
		"Recorded": {true, &inventory{values: values{}}, false},
	}
	for name, c := range cases {
		in := &installer{Cluster: &connection.Cluster{Namespace: deploy.DefaultNamespace("")}, exists: c.exists,
			before: c.before}
		if got := in.valueChangesReport().Note != ""; got != c.want {
			t.Errorf("%s: note %t, want %t", name, got, c.want)
		}
	}
}
