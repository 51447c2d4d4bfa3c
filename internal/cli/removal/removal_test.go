package removal

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// TestMain lengthens deadlines, because a busy machine may need long for requests.
func TestMain(m *testing.M) {
	timeLimit = 10 * time.Minute
	m.Run()
}

// item is an object in a list of metadata.
func item(namespace, name, owner, more string) string {
	text := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q,"uid":"u","annotations":{%q:%q%s}}}`, name, namespace,
		v1beta2.AnnotationOwnedBy, owner, more)
	return text
}

// newRuntime starts an API server of a runtime. The map lists has, for a path of the Kubernetes API, the items with
// which the server responds to a list request for that path. If the text for a path begins with a digit, it is an HTTP
// status: the server responds to requests for that path with this error. Kinds that are not in a built-in API group are
// served in the API group example.com.
func newRuntime(t *testing.T, lists map[string]string) *apply.Cluster {
	t.Helper()
	kind := func(resource, scope, kind string) string {
		return fmt.Sprintf(`{"resource":%q,"scope":%q,"verbs":["list","delete"],"responseKind":{"kind":%q}}`, resource,
			scope, kind)
	}
	group := func(name, resources string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"versions":[{"version":"v1","resources":[%s]}]}`, name, resources)
	}
	answers := map[string]string{
		"/api": `{"kind":"APIGroupDiscoveryList","items":[` + group("", kind("configmaps", "Namespaced", "ConfigMap")+","+
			kind("namespaces", "Cluster", "Namespace")) + `]}`,
		"/apis": `{"kind":"APIGroupDiscoveryList","items":[` + group("apiextensions.k8s.io",
			kind("customresourcedefinitions", "Cluster", "CustomResourceDefinition")) + "," +
			group("example.com", kind("things", "Namespaced", "Thing")) + `]}`,
		"/apis/example.com": `{"kind":"APIGroup","versions":[{"version":"v1"}]}`,
		"/apis/example.com/v1": `{"kind":"APIResourceList","resources":[{"name":"things","namespaced":true,` +
			`"kind":"Thing","verbs":["list"]}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		list, ok := lists[r.URL.Path]
		if answer := answers[r.URL.Path]; answer != "" {
			_, _ = w.Write([]byte(answer))
			return
		}
		if ok && strings.HasPrefix(list, "403") {
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
				Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: `x is forbidden: User "u" cannot list resource "x" in API group "y" at the cluster scope`})
			return
		}
		more := ""
		if rest, found := strings.CutPrefix(list, "more "); found {
			list, more = rest, `"continue":"x",`
		}
		_, _ = fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","metadata":{%s"resourceVersion":"9"},"items":[%s]}`,
			more, list)
	}))
	t.Cleanup(server.Close)
	c, err := apply.New(&rest.Config{Host: server.URL}, nil, apply.ClusterOptions{RequestTimeout: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// text returns the text that is shown to users, without line breaks in sentences.
func text(f *Found, consent bool) string {
	p := &console.Page{}
	f.Show(p, consent, "add --consent")
	return strings.Join(strings.Fields(p.String()), " ")
}

const (
	crds   = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	things = "/apis/example.com/v1/things"
	maps   = "/api/v1/configmaps"
	spaces = "/api/v1/namespaces"
)

// TestOfModule checks that the objects of a module are found by their label, and that an unknown number is never shown
// as zero.
func TestOfModule(t *testing.T) {
	owner := "kcp-system/" + v1beta2.ManifestName("runtime-a", "example.com/sample", "sample")
	installed := &v1beta2.Kyma{Status: v1beta2.KymaStatus{Modules: []v1beta2.ModuleStatus{{Name: "sample",
		OCMComponentName: "example.com/sample",
		Resource: &v1beta2.ObjectReference{APIVersion: "example.com/v1", Kind: "Thing",
			Metadata: v1beta2.ObjectReferenceMeta{Namespace: "kyma-system", Name: "default"}}}}}}
	installed.Annotations = map[string]string{v1beta2.AnnotationOwnedBy: "kcp-system/runtime-a"}
	module := map[string]string{
		crds: item("", "things.example.com", owner, ""),
		maps: strings.Join([]string{item("a", "one", owner, ""), item("b", "two", owner, ""),
			item("b", "theirs", owner, `,"operator.kyma-project.io/adopted":"true"`),
			item("b", "shared", owner, `,"operator.kyma-project.io/co-owners":"kcp-system/other"`),
			item("b", "foreign", "kcp-system/other", "")}, ","),
		spaces: item("", "kyma-system", owner, ""),
		things: item("kyma-system", "default", owner, ""),
	}
	with := func(path, list string) map[string]string {
		changed := map[string]string{path: list}
		for p, l := range module {
			if p != path {
				changed[p] = l
			}
		}
		return changed
	}
	const objects = "3 objects of 2 kinds in 2 namespaces will be deleted: 2 ConfigMap, " +
		"1 CustomResourceDefinition.apiextensions.k8s.io. 3 objects stay: created before the module, part of another " +
		"module too, or marked to be kept. "
	mine := with(things, module[things]+","+item("a", "mine", "", ""))
	cases := map[string]struct {
		reason  string
		kyma    *v1beta2.Kyma
		lists   map[string]string
		consent bool
		want    string
	}{
		"Nobody": {"the default custom resource belongs to the module", installed, module, false,
			objects + "There are no custom resources of users."},
		"User": {"a user has one", installed, mine, false,
			objects + "The removal waits for the deletion of 1 custom resource of users: 1 Thing.example.com (a/mine); " +
				"add --consent."},
		"Consent": {"they are deleted", installed, mine, true,
			objects + "1 custom resource of users will be deleted first, and this cannot be undone: 1 " +
				"Thing.example.com (a/mine)."},
		"Absent": {"nothing is installed", &v1beta2.Kyma{}, nil, false,
			"The number of objects that are deleted is not known: the Kyma names no component of the module, or no " +
				"control plane, so nothing is installed yet. Custom resources of users block the removal; their number " +
				"is not known: the Kyma names no component of the module, or no control plane, so nothing is installed " +
				"yet; add --consent."},
		"NoLabel": {"zero objects are not believed", installed, nil, true,
			"The number of objects that are deleted is not known: no object has the label app.kubernetes.io/component=" +
				strings.TrimPrefix(owner, "kcp-system/") + ". Custom resources of users are deleted first, and this " +
				"cannot be undone; their number is not known: no object has the label app.kubernetes.io/component=" +
				strings.TrimPrefix(owner, "kcp-system/") + "."},
		"NoCRDs": {"without the CRDs, the kinds of the module are not known", installed, with(crds, "403"), false,
			"At least 2 objects of 1 kind in 2 namespaces will be deleted (your user may not list " +
				"CustomResourceDefinition.apiextensions.k8s.io): 2 ConfigMap. 3 objects stay: created before the module, " +
				"part of another module too, or marked to be kept. Custom resources of users block the removal; their " +
				"number is not known: your user may not list CustomResourceDefinition.apiextensions.k8s.io; add " +
				"--consent."},
		"Many": {"the list of a kind is limited", installed, with(maps, "more "+item("a", "one", owner, "")), false,
			"At least 2 objects of 2 kinds in 1 namespace will be deleted (only 500 of each kind are counted): 1 " +
				"ConfigMap, 1 CustomResourceDefinition.apiextensions.k8s.io. 1 object stays: created before the module, " +
				"part of another module too, or marked to be kept. There are no custom resources of users."},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := text(OfModule(t.Context(), newRuntime(t, c.lists), c.kyma, "sample"), c.consent)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
	refused := OfModule(t.Context(), newRuntime(t, with(things, "403")), installed, "sample")
	if refused.UsersUnknown == "" || len(refused.Deleted) != 3 {
		t.Errorf("custom resources that may not be listed: %+v", refused)
	}
}

// manifest returns a Manifest with this inventory.
func manifest(name string, synced ...v1beta2.Resource) v1beta2.Manifest {
	m := v1beta2.Manifest{Status: v1beta2.ManifestStatus{Synced: synced}}
	m.Name, m.Namespace = name, "kcp-system"
	return m
}

// TestOfManifests checks that the objects of inventories are counted exactly, and that an object of several modules
// stays only if one of these modules stays.
func TestOfManifests(t *testing.T) {
	object := func(kind, name string) v1beta2.Resource {
		return v1beta2.Resource{Version: "v1", Kind: kind, Namespace: "a", Name: name}
	}
	shared, adopted := object("ConfigMap", "both"), object("ConfigMap", "theirs")
	adopted.Adopted = true
	crd := v1beta2.Resource{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
		Name: "things.example.com"}
	one := manifest("one", object("ConfigMap", "one"), shared, crd,
		v1beta2.Resource{Group: "example.com", Version: "v1", Kind: "Thing", Namespace: "a", Name: "own"})
	one.Spec.Resource = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1",
		"kind": "Thing", "metadata": map[string]any{"namespace": "a", "name": "default"}}}
	shared.Shared = true
	two := manifest("two", shared, adopted)
	released := manifest("released", object("Secret", "theirs"))
	released.Annotations = map[string]string{v1beta2.AnnotationIsUnmanaged: v1beta2.ValueTrue}
	all := []v1beta2.Manifest{one, two, released}
	lists := map[string]string{things: strings.Join([]string{item("a", "own", "", ""), item("a", "default", "", ""),
		item("b", "mine", "", ""), item("c", "hers", "", "")}, ",")}
	cases := map[string]struct {
		reason string
		found  *Found
		want   string
	}{
		"One": {"the other module keeps the shared object", OfManifest(t.Context(), newRuntime(t, lists), &one, all),
			"3 objects of 3 kinds in 1 namespace will be deleted: 1 ConfigMap, 1 " +
				"CustomResourceDefinition.apiextensions.k8s.io, 1 Thing.example.com. 1 object stays: created before the " +
				"module, part of another module too, or marked to be kept. The removal waits for the deletion of 2 " +
				"custom resources of users: 2 Thing.example.com (b/mine, c/hers); add --consent."},
		"All": {"nobody keeps it", OfRuntime(t.Context(), newRuntime(t, lists), nil, all),
			"4 objects of 3 kinds in 1 namespace will be deleted: 2 ConfigMap, 1 " +
				"CustomResourceDefinition.apiextensions.k8s.io, 1 Thing.example.com. 2 objects stay: created before the " +
				"module, part of another module too, or marked to be kept. The removal waits for the deletion of 2 " +
				"custom resources of users: 2 Thing.example.com (b/mine, c/hers); add --consent."},
		"Unreachable": {"the inventory is known nevertheless",
			OfRuntime(t.Context(), nil, errors.New("no answer"), all[:2]),
			"4 objects of 3 kinds in 1 namespace will be deleted: 2 ConfigMap, 1 " +
				"CustomResourceDefinition.apiextensions.k8s.io, 1 Thing.example.com. 1 object stays: created before the " +
				"module, part of another module too, or marked to be kept. Custom resources of users block the removal; " +
				"their number is not known: no answer; add --consent."},
	}
	for name, c := range cases {
		if diff := cmp.Diff(c.want, text(c.found, false)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.reason, diff)
		}
	}
	if got := text(cases["Unreachable"].found, true); !strings.Contains(got, "deleted first, and this cannot be undone; "+
		"their number is not known: no answer.") {
		t.Errorf("with consent: %q", got)
	}
}
