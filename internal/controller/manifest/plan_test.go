package manifest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

func TestJudge(t *testing.T) {
	slow := apply.NotReady{Message: "slow"}
	broken := apply.NotReady{Failed: true, Message: "broken"}
	cases := map[string]struct {
		reason  string
		waiting []apply.NotReady
		want    observed
	}{
		"Nothing":      {"all is ready", nil, observed{state: v1beta2.StateReady}},
		"Slow":         {"what needs time is processing", []apply.NotReady{slow}, observed{v1beta2.StateProcessing, "WorkloadNotReady", "slow"}},
		"Broken":       {"what will not come by itself is an error", []apply.NotReady{broken}, observed{v1beta2.StateError, "WorkloadFailed", "broken"}},
		"BrokenSecond": {"a failure outweighs progress", []apply.NotReady{slow, broken, slow}, observed{v1beta2.StateError, "WorkloadFailed", "broken"}},
	}
	for name, c := range cases {
		if diff := cmp.Diff(c.want, judge(c.waiting), cmp.AllowUnexported(observed{})); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.reason, diff)
		}
	}
}

func TestStateCounts(t *testing.T) {
	resource := &unstructured.Unstructured{Object: map[string]any{"kind": "Keda"}}
	cases := map[string]struct {
		reason     string
		resource   *unstructured.Unstructured
		policy     v1beta2.CustomResourcePolicy
		annotation string
		flag, want bool
	}{
		"Flag":          {"the flag decides", resource, "", "", true, true},
		"FlagOff":       {"the flag decides", resource, "", "", false, false},
		"AnnotationOff": {"the Manifest goes before the flag", resource, "", "false", true, false},
		"AnnotationOn":  {"the Manifest goes before the flag", resource, "", "true", false, true},
		"Nonsense":      {"what is no answer is none", resource, "", "maybe", true, true},
		"None":          {"there is nothing that could count", nil, "", "true", true, false},
		"Ignored":       {"it is the user's alone", resource, v1beta2.Ignore, "true", true, false},
	}
	for name, c := range cases {
		m := manifestWith(func(m *v1beta2.Manifest) {
			m.Spec.Resource, m.Spec.CustomResourcePolicy = c.resource, c.policy
			if c.annotation != "" {
				m.Annotations = map[string]string{v1beta2.AnnotationCustomStateCheck: c.annotation}
			}
		})
		if got := stateCounts(m, c.flag); got != c.want {
			t.Errorf("%s: %s: got %v", name, c.reason, got)
		}
	}
}

func TestDeciding(t *testing.T) {
	manager := apply.Ref{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "n", Name: "manager"}
	other := apply.Ref{Group: "apps", Version: "v1", Kind: "DaemonSet", Namespace: "n", Name: "node"}
	crd := apply.Ref{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition", Name: "x"}
	all := []apply.Ref{crd, manager, other}
	cases := map[string]struct {
		reason  string
		manager *v1beta2.Manager
		want    []apply.Ref
	}{
		"NotNamed":   {"all workloads count", nil, all},
		"Named":      {"the manager alone counts, and definitions", &v1beta2.Manager{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "n", Name: "manager"}, []apply.Ref{crd, manager}},
		"AnySpace":   {"without a namespace the name is enough", &v1beta2.Manager{Group: "apps", Version: "v1", Kind: "Deployment", Name: "manager"}, []apply.Ref{crd, manager}},
		"NotTheOnes": {"a manager that is not there decides nothing", &v1beta2.Manager{Group: "apps", Version: "v1", Kind: "Deployment", Name: "gone"}, all},
	}
	for name, c := range cases {
		if diff := cmp.Diff(c.want, deciding(all, c.manager)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.reason, diff)
		}
	}
}

func TestDriftIsOneShortSentence(t *testing.T) {
	if got := drift(nil); got != "" {
		t.Errorf("no drift says %q, want nothing", got)
	}
	var found []apply.Drifted
	for i := range 50 {
		found = append(found, apply.Drifted{Ref: apply.Ref{Kind: "ConfigMap", Namespace: "n", Name: fmt.Sprint("c", i)}, Fields: []string{"data.a"}, Managers: []string{"kubectl"}})
	}
	got := drift(found)
	for _, want := range []string{"ConfigMap n/c0", "data.a", "kubectl", "and 47 more", v1beta2.AnnotationDrift} {
		if !strings.Contains(got, want) {
			t.Errorf("drift says %q, want it to have %q", got, want)
		}
	}
	if len(got) > 700 {
		t.Errorf("drift says %d bytes, want it short", len(got))
	}
}

// manifestWith returns a Manifest, changed by edit.
func manifestWith(edit func(*v1beta2.Manifest)) *v1beta2.Manifest {
	m := &v1beta2.Manifest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "a-keda-1"},
		Spec: v1beta2.ManifestSpec{
			Version: "1.0.0",
			Install: v1beta2.InstallInfo{Name: "raw-manifest", Source: runtime.RawExtension{Raw: []byte(
				`{"repo":"r.example.com","name":"kyma-project.io/module/keda","ref":"sha256:` + strings.Repeat("a", 64) + `","type":"oci-dir"}`)}},
		},
	}
	if edit != nil {
		edit(m)
	}
	return m
}

// planFor plans a Manifest whose sources are named by digests, so that nothing has to be asked for.
func planFor(t *testing.T, m *v1beta2.Manifest) (plan, error) {
	n := &run{Reconciler: &Reconciler{}, manifest: m}
	return n.planOf(t.Context())
}

func TestSumCoversAllThatDecides(t *testing.T) {
	sum := func(m *v1beta2.Manifest) string {
		p, err := planFor(t, m)
		if err != nil {
			t.Fatal(err)
		}
		return p.digest
	}
	base := sum(manifestWith(nil))
	if again := sum(manifestWith(nil)); again != base {
		t.Errorf("equal Manifests have digests %s and %s, want the same", base, again)
	}
	for name, edit := range map[string]func(*v1beta2.Manifest){
		"Artefact": func(m *v1beta2.Manifest) {
			m.Spec.Install.Source.Raw = []byte(strings.ReplaceAll(string(m.Spec.Install.Source.Raw), "aaa", "bbb"))
		},
		"Name":   func(m *v1beta2.Manifest) { m.Name = "b" },
		"Images": func(m *v1beta2.Manifest) { m.Spec.LocalizedImages = []string{"r.example.com/x:1"} },
		"Policy": func(m *v1beta2.Manifest) { m.Spec.CustomResourcePolicy = v1beta2.Ignore },
		"Resource": func(m *v1beta2.Manifest) {
			m.Spec.Resource = &unstructured.Unstructured{Object: map[string]any{"kind": "Keda"}}
		},
		"Version": func(m *v1beta2.Manifest) { m.Spec.Version = "2.0.0" },
		"Definitions": func(m *v1beta2.Manifest) {
			m.Spec.CRDs = &v1beta2.ManifestConfig{Repo: "r.example.com", Name: "crds", Ref: "sha256:" + strings.Repeat("c", 64), Type: "oci-ref"}
		},
		"Installs": func(m *v1beta2.Manifest) {
			m.Spec.Installs = []v1beta2.InstallInfo{m.Spec.Install, m.Spec.Install}
			m.Spec.Installs[1].Name = "second"
			m.Spec.Install = v1beta2.InstallInfo{}
		},
	} {
		if got := sum(manifestWith(edit)); got == base {
			t.Errorf("a change of %s does not change the digest", name)
		}
	}
	for name, edit := range map[string]func(*v1beta2.Manifest){
		"Labels": func(m *v1beta2.Manifest) { m.Labels = map[string]string{"a": "b"} },
		"Status": func(m *v1beta2.Manifest) { m.Status.State = v1beta2.StateError },
	} {
		if got := sum(manifestWith(edit)); got != base {
			t.Errorf("a change of %s changes the digest, want it to cost nothing", name)
		}
	}
}

func TestNewPlanRefusesBadSources(t *testing.T) {
	for name, raw := range map[string]string{"Empty": "", "NoJSON": "{", "NoRef": `{"repo":"r","name":"n","type":"oci-ref"}`, "OtherType": `{"repo":"r","name":"n","ref":"x","type":"ftp"}`} {
		_, err := planFor(t, manifestWith(func(m *v1beta2.Manifest) { m.Spec.Install.Source.Raw = []byte(raw) }))
		if err == nil || !strings.Contains(err.Error(), "a-keda-1") {
			t.Errorf("%s: error is %v, want one that names the Manifest", name, err)
		}
	}
}

func TestChangedByOthers(t *testing.T) {
	at := func(manager, sub string, seconds int64) metav1.ManagedFieldsEntry {
		when := metav1.NewTime(time.Unix(seconds, 0))
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: sub, Time: &when}
	}
	ours := v1beta2.FieldOwnerApplier
	cases := map[string]struct {
		reason string
		fields []metav1.ManagedFieldsEntry
		want   bool
	}{
		"OnlyOurs":    {"nobody else wrote", []metav1.ManagedFieldsEntry{at(ours, "", 1)}, false},
		"StatusLater": {"status is not ours to mind", []metav1.ManagedFieldsEntry{at(ours, "", 1), at("kcm", "status", 2)}, false},
		"EditLater":   {"somebody edited after us", []metav1.ManagedFieldsEntry{at(ours, "", 1), at("kubectl", "", 2)}, true},
		"EditBefore":  {"what was before is overwritten", []metav1.ManagedFieldsEntry{at(ours, "", 2), at("kubectl", "", 1)}, false},
	}
	for name, c := range cases {
		if got := changedByOthers(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ManagedFields: c.fields}}); got != c.want {
			t.Errorf("%s: %s: got %v", name, c.reason, got)
		}
	}
}

func TestNoteConcernsOnlyItsOwn(t *testing.T) {
	cr := apply.Ref{Group: "x.io", Version: "v1", Kind: "Keda", Namespace: "n", Name: "default"}
	object := func(name, owner string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, Annotations: map[string]string{v1beta2.AnnotationOwnedBy: owner}}}
	}
	at := func(o *metav1.PartialObjectMetadata, version string) *metav1.PartialObjectMetadata {
		o.UID, o.ResourceVersion = "u", version
		return o
	}
	cases := map[string]struct {
		reason string
		seen   runtimes.Event
		want   bool
	}{
		"Connection":     {"the connection concerns all", runtimes.Event{ConnectionChanged: true}, true},
		"AllAsItShould":  {"a list with what is expected", runtimes.Event{Listed: true, Interest: runtimes.Interest{Kind: "Other"}}, false},
		"OneIsMissing":   {"a list without what is expected", runtimes.Event{Listed: true, Interest: runtimes.Interest{Kind: "ConfigMap"}}, true},
		"Ours":           {"an object that names the Manifest", runtimes.Event{Interest: runtimes.Interest{Kind: "ConfigMap"}, Object: object("a", "kcp-system/m")}, true},
		"Theirs":         {"an object of another Manifest", runtimes.Event{Interest: runtimes.Interest{Kind: "ConfigMap"}, Object: object("a", "kcp-system/other")}, false},
		"CustomResource": {"the custom resource carries no mark", runtimes.Event{Interest: interestOf(cr), Object: object("default", "")}, true},
		"AsItWasRead":    {"the custom resource as it was judged", runtimes.Event{Interest: interestOf(cr), Object: at(object("default", ""), "7")}, false},
		"SinceItWasRead": {"the custom resource after that", runtimes.Event{Interest: interestOf(cr), Object: at(object("default", ""), "8")}, true},
		"ReadAndGone":    {"what was judged is gone", runtimes.Event{Interest: interestOf(cr), Object: at(object("default", ""), "7"), Deleted: true}, true},
		"UsersOwn":       {"another of its kind is the user's", runtimes.Event{Interest: interestOf(cr), Object: object("mine", "")}, false},
	}
	for name, c := range cases {
		inst := &installation{inventory: []apply.Ref{{Kind: "ConfigMap", Namespace: "n", Name: "a"}}}
		inst.progress.ObserveRead(cr, "u", 1, "7")
		if got := inst.note(c.seen, "kcp-system/m", cr); got != c.want {
			t.Errorf("%s: %s: got %v", name, c.reason, got)
		}
	}
}

// TestListIsOvertaken: a list and the events after it may arrive in any order, and nothing that happened is lost.
func TestListIsOvertaken(t *testing.T) {
	ref := apply.Ref{Version: "v1", Kind: "ConfigMap", Namespace: "n", Name: "a"}
	in := runtimes.Interest{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: "ConfigMap"}
	at := func(version string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "a", ResourceVersion: version, Annotations: map[string]string{v1beta2.AnnotationOwnedBy: "kcp-system/m"},
		}}
	}
	listed := runtimes.Event{Listed: true, Interest: in, Objects: []metav1.PartialObjectMetadata{*at("10")}}
	cases := map[string]struct {
		reason string
		events []runtimes.Event
		want   sighting
	}{
		"Listed":  {"as it was listed", []runtimes.Event{listed}, sighting{resourceVersion: "10"}},
		"Changed": {"it changed after the list", []runtimes.Event{{Interest: in, Object: at("11")}, listed}, sighting{resourceVersion: "11"}},
		"Before":  {"it changed before the list", []runtimes.Event{{Interest: in, Object: at("9")}, listed}, sighting{resourceVersion: "10"}},
		"Deleted": {"it went after the list", []runtimes.Event{{Interest: in, Object: at("11"), Deleted: true}, listed}, sighting{resourceVersion: "11", deleted: true}},
		"Gone":    {"it is not in the list", []runtimes.Event{{Listed: true, Interest: in}}, sighting{deleted: true}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inst := &installation{inventory: []apply.Ref{ref}}
			for _, s := range c.events {
				inst.note(s, "kcp-system/m", apply.Ref{})
			}
			if got := inst.news[ref]; got != c.want {
				t.Errorf("%s: got %+v, want %+v", c.reason, got, c.want)
			}
		})
	}
}

func interestOf(ref apply.Ref) runtimes.Interest {
	return runtimes.Interest{Resource: ref.GVK().GroupVersion().WithResource("kedas"), Kind: ref.Kind}
}
