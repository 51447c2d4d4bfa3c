package render

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: op
spec:
  template:
    spec:
      containers:
      - name: manager
        image: europe-docker.pkg.dev/p/op:1.0
`

func TestParseImage(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	for text, want := range map[string]image{
		"op":                                     {"op", "", ""},
		"op:1.0":                                 {"op", "1.0", ""},
		"a/b/op:1.0":                             {"op", "1.0", ""},
		"localhost:5000/op":                      {"op", "", ""},
		"Registry.example.com:5000/a__b/op-x:v1": {"op-x", "v1", ""},
		"[::1]:5000/op:v1":                       {"op", "v1", ""},
		"r.io/op@" + digest:                      {"op", "", digest},
		"r.io/op:1.0@" + digest:                  {"op", "1.0", digest},
	} {
		if got, ok := parseImageNameTagDigest(text); !ok || got != want {
			t.Errorf("%q: got %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", " op", "op:", "Op:1", "a//b", "op:1.0:2", "http://r.io/op:1", ":8080",
		"op@sha256:12", "-a", "{{ .Image }}",
		"a/" + strings.Repeat("b", 600)} {
		if got, ok := parseImageNameTagDigest(text); ok {
			t.Errorf("%q: taken for %v", text, got)
		}
	}
}

func TestBuildImages(t *testing.T) {
	a, b := "@sha256:"+strings.Repeat("a", 64), "@sha256:"+strings.Repeat("b", 64)
	cases := map[string]struct {
		reason  string
		targets []string
		have    string
		want    string
	}{
		"Equal": {"last segment and tag are equal", []string{"local.io/x/op:1.0"},
			"europe.dev/prod/op:1.0", "local.io/x/op:1.0"},
		"OtherTag":  {"", []string{"local.io/x/op:1.1"}, "europe.dev/prod/op:1.0", "europe.dev/prod/op:1.0"},
		"OtherName": {"", []string{"local.io/x/op2:1.0"}, "europe.dev/prod/op:1.0", "europe.dev/prod/op:1.0"},
		"FirstWins": {"", []string{"one.io/op:1.0", "two.io/op:1.0"}, "op:1.0", "one.io/op:1.0"},
		"TwoTeams": {"images of two teams with the same name", []string{"r.io/a/op:1.0", "r.io/b/op:1.0"},
			"r.io/b/op:1.0", "r.io/b/op:1.0"},
		"TwoTeamsMirrored": {"", []string{"m.io/x/a/op:1.0" + a, "m.io/x/b/op:1.0" + a}, "r.io/b/op:1.0" + b,
			"m.io/x/b/op:1.0" + a},
		"TargetDigest": {"the target is taken as it is", []string{"local.io/op:1.0" + a},
			"op:1.0", "local.io/op:1.0" + a},
		"SourceDigest": {"so that a rebuilt image counts as the same", []string{"local.io/op:1.0" + a},
			"op:1.0" + b, "local.io/op:1.0" + a},
		"NoTags":         {"no tag is no latest", []string{"local.io/op"}, "op", "local.io/op"},
		"NoTagOneDigest": {"", []string{"local.io/op" + a}, "op" + a, "local.io/op" + a},
		"NoTagTwoDigests": {"without tags, other digests are other images",
			[]string{"local.io/op" + a}, "op" + b, "op" + b},
		"Latest":  {"no tag is added", []string{"local.io/op:latest"}, "op", "op"},
		"NoImage": {"an absent image is for the API server to refuse", []string{"local.io/op:1"}, "", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(deployment, "europe-docker.pkg.dev/p/op:1.0", `"`+tc.have+`"`, 1)
			for _, kind := range []string{"Deployment", "StatefulSet"} {
				for _, field := range []string{"containers", "initContainers"} {
					in := strings.NewReplacer("Deployment", kind, "containers", field).Replace(text)
					got := container(t, build(t, in, Options{Images: tc.targets}), field)["image"]
					if got != tc.want {
						t.Errorf("%s: %s of %s got %v, want %s", tc.reason, field, kind, got, tc.want)
					}
				}
			}
			daemon := strings.Replace(text, "Deployment", "DaemonSet", 1)
			if got := container(t, build(t, daemon, Options{Images: tc.targets}),
				"containers")["image"]; got != tc.have {
				t.Errorf("a DaemonSet's image became %v", got)
			}
		})
	}
}

// container returns the first container of the first object in a bundle.
func container(t *testing.T, bundle *Bundle, field string) map[string]any {
	t.Helper()
	spec := podSpec(t, bundle.Objects[0])
	return spec[field].([]any)[0].(map[string]any)
}

func podSpec(t *testing.T, o *Object) map[string]any {
	t.Helper()
	var tree map[string]any
	if err := json.Unmarshal(o.AppendJSON(nil, "", Overlay{}), &tree); err != nil {
		t.Fatal(err)
	}
	spec, ok := nestedMap(tree, "spec", "template", "spec")
	if !ok {
		t.Fatal("no pod spec")
	}
	return spec
}

func TestBuildImagesInEnvironment(t *testing.T) {
	text := deployment + `        env:
        - {name: A, value: old.io/side:2.0}
        - {name: B, value: "side:2.0"}
        - {name: C, value: side}
        - {name: D, value: "http://side:2.0/path"}
        - {name: E, value: ":8080"}
        - {name: F, value: "localhost:8080"}
        - {name: G, value: "some text with side:2.0"}
        - {name: H, valueFrom: {fieldRef: {fieldPath: x}}}
        - nonsense
      - nonsense
`
	got := container(t, build(t, text, Options{Images: []string{"new.io/x/side:2.0", "new.io/x/plain"}}),
		"containers")["env"].([]any)
	want := []any{"new.io/x/side:2.0", "new.io/x/side:2.0", "side", "http://side:2.0/path", ":8080", "localhost:8080",
		"some text with side:2.0", nil}
	for i, w := range want {
		if value := got[i].(map[string]any)["value"]; value != w {
			t.Errorf("variable %d: got %v, want %v", i, value, w)
		}
	}
	if got[8] != "nonsense" {
		t.Error("an invalid variable must be left to the API server to refuse")
	}
}

func TestBuildImageErrors(t *testing.T) {
	bad := strings.Replace(deployment, "europe-docker.pkg.dev/p/op:1.0", `"Not An Image"`, 1)
	_, err := Build(parse(t, bad), Options{Images: []string{"a/b:1"}})
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Reason() != InvalidImage || e.Object != "Deployment op" ||
		!strings.Contains(e.Error(), `"Not An Image" of container "manager"`) {
		t.Errorf("got %v", err)
	}
	if _, err := Build(parse(t, bad), Options{}); err != nil {
		t.Errorf("without images to rewrite none is looked at: %v", err)
	}
	_, err = Build(nil, Options{Images: []string{"a/b:1", "a b"}})
	if e, ok := errors.AsType[*Error](err); !ok || e.Reason() != InvalidImage || !strings.Contains(e.Error(), `"a b"`) {
		t.Errorf("got %v", err)
	}
}

func TestBuildPullSecret(t *testing.T) {
	text := deployment + "      initContainers:\n      - name: init\n      imagePullSecrets: [{name: mine}]\n"
	spec := podSpec(t, build(t, text, Options{PullSecret: "s"}).Objects[0])
	if diff := cmp.Diff([]any{map[string]any{"name": "mine"}, map[string]any{"name": "s"}},
		spec["imagePullSecrets"]); diff != "" {
		t.Errorf("imagePullSecrets (-want +got)\n%s", diff)
	}
	env := []any{map[string]any{"name": "SKR_IMG_PULL_SECRET", "value": "s"}}
	if diff := cmp.Diff(env, spec["containers"].([]any)[0].(map[string]any)["env"]); diff != "" {
		t.Errorf("env (-want +got)\n%s", diff)
	}
	if spec["initContainers"].([]any)[0].(map[string]any)["env"] != nil {
		t.Error("an init container got the variable")
	}

	twice := deployment + "        env: [{name: OTHER}, nonsense, {name: SKR_IMG_PULL_SECRET, value: s}]\n      " +
		"imagePullSecrets: [{name: s}]\n"
	spec = podSpec(t, build(t, twice, Options{PullSecret: "s"}).Objects[0])
	if len(spec["imagePullSecrets"].([]any)) != 1 ||
		len(spec["containers"].([]any)[0].(map[string]any)["env"].([]any)) != 3 {
		t.Errorf("an existing entry is added again: %v", spec)
	}
	_, err := Build(parse(t, twice), Options{PullSecret: "other"})
	if e, ok := errors.AsType[*Error](err); !ok || e.Reason() != InvalidObject || e.Object != "Deployment op" ||
		!strings.Contains(e.Error(), "SKR_IMG_PULL_SECRET") {
		t.Errorf("got %v", err)
	}
	noPods := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: 1}\n"
	if got := string(build(t, noPods, Options{PullSecret: "s"}).Objects[0].AppendJSON(
		nil, "", Overlay{})); !strings.Contains(got, `"template":1`) {
		t.Errorf("got %s", got)
	}
}

func TestBuildManager(t *testing.T) {
	named := strings.Replace(deployment, "name: op", "name: op\n  namespace: ns", 1)
	manager := Manager{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "ns", Name: "op"}
	for name, tc := range map[string]struct {
		reason string
		text   string
		change func(*Manager)
		want   bool
	}{
		"Same": {"", named, func(*Manager) {}, true},
		"AnyNamespace": {"a manager without namespace is found in all", named,
			func(m *Manager) { m.Namespace = "" }, true},
		"NoNamespaceYet": {"the artefact leaves it to the cluster", deployment, func(*Manager) {}, true},
		"OtherNamespace": {"", named, func(m *Manager) { m.Namespace = "o" }, false},
		"OtherName":      {"", named, func(m *Manager) { m.Name = "o" }, false},
		"OtherKind":      {"", named, func(m *Manager) { m.Kind = "StatefulSet" }, false},
		"OtherVersion":   {"", named, func(m *Manager) { m.Version = "v2" }, false},
		"OtherGroup":     {"", named, func(m *Manager) { m.Group = "" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := manager
			tc.change(&m)
			bundle := build(t, tc.text, Options{PullSecret: "s", Manager: &m})
			if got := container(t, bundle, "containers")["env"] != nil; got != tc.want {
				t.Errorf("%s: is the manager: %v, want %v", tc.reason, got, tc.want)
			}
			if podSpec(t, bundle.Objects[0])["imagePullSecrets"] == nil {
				t.Error("every workload gets the pull secret")
			}
		})
	}
}

func TestBuildKeepsForeignTypes(t *testing.T) {
	in := parse(t, deployment)[0]
	in.Object["spec"].(map[string]any)["replicas"] = 2 // an int, which apimachinery's own copy panics on
	if _, err := Build([]*unstructured.Unstructured{in}, Options{PullSecret: "s"}); err != nil {
		t.Error(err)
	}
	if spec, _ := nestedMap(in.Object, "spec", "template", "spec"); spec["imagePullSecrets"] != nil {
		t.Error("Build changed its input")
	}
}
