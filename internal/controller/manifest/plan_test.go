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

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/render"
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

func TestJudgeState(t *testing.T) {
	ref := apply.Ref{Kind: "Keda", Namespace: "kyma-system", Name: "default"}
	cases := map[string]struct {
		reason, state string
		conditions    []any
		want          v1beta2.State
		says          string
	}{
		"Ready":      {"as the operator says", "Ready", nil, v1beta2.StateReady, ""},
		"Warning":    {"as the operator says", "Warning", nil, v1beta2.StateWarning, "in state Warning"},
		"Error":      {"with the operator's own words", "Error", []any{map[string]any{"status": "False", "message": "the disk\nis full"}}, v1beta2.StateError, "the disk is full"},
		"TrueIsFine": {"a condition that holds explains nothing", "Error", []any{map[string]any{"status": "True", "message": "fine"}}, v1beta2.StateError, "in state Error"},
		"Processing": {"as the operator says", "Processing", nil, v1beta2.StateProcessing, "in state Processing"},
		"Deleting":   {"it is not there for good", "Deleting", nil, v1beta2.StateProcessing, "in state Deleting"},
		"None":       {"nobody has looked yet", "", nil, v1beta2.StateProcessing, "no state yet"},
		"Unknown":    {"a word that is not in the contract", "Great", nil, v1beta2.StateWarning, `unknown state "Great"`},
		"Long":       {"what anybody may write is bounded", "Error", []any{map[string]any{"message": strings.Repeat("x", 10_000)}}, v1beta2.StateError, "…"},
	}
	for name, c := range cases {
		cr := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"state": c.state, "conditions": c.conditions}}}
		got := judgeState(ref, cr)
		if got.state != c.want || !strings.Contains(got.message, c.says) || len(got.message) > 1000 {
			t.Errorf("%s: %s: got %+v, want %s with %q", name, c.reason, got, c.want, c.says)
		}
		if c.says != "" && !strings.Contains(got.message, ref.String()) {
			t.Errorf("%s: message %q does not name the object", name, got.message)
		}
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

func TestSumCoversAllThatDecides(t *testing.T) {
	sum := func(m *v1beta2.Manifest) string {
		p, err := newPlan(m)
		if err != nil {
			t.Fatal(err)
		}
		return p.sum(m)
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
		_, err := newPlan(manifestWith(func(m *v1beta2.Manifest) { m.Spec.Install.Source.Raw = []byte(raw) }))
		if err == nil || !strings.Contains(err.Error(), "a-keda-1") {
			t.Errorf("%s: error is %v, want one that names the Manifest", name, err)
		}
	}
}

func TestBundlesAreSharedAndBounded(t *testing.T) {
	b := &bundles{limit: 1 << 20}
	built := 0
	get := func(digest string) *render.Bundle {
		bundle, err := b.get(digest, func() (*render.Bundle, error) {
			built++
			object := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"},
				"data": map[string]any{"x": strings.Repeat("x", 128<<10)},
			}}
			return render.Build([]*unstructured.Unstructured{object}, render.Options{Digest: digest})
		})
		if err != nil {
			t.Fatal(err)
		}
		return bundle
	}
	if first, second := get("a"), get("a"); first != second || built != 1 {
		t.Errorf("built %d times for one digest, want once and shared", built)
	}
	for i := range 20 { // 128 KiB each: more than fits
		get(fmt.Sprint(i))
	}
	if b.bytes > b.limit || len(b.held) != len(b.order) {
		t.Errorf("holds %d bytes in %d bundles (%d in order), want at most %d bytes", b.bytes, len(b.held), len(b.order), b.limit)
	}
	if before := built; get("a") == nil || built != before+1 {
		t.Error("the oldest is still held, want it to be forgotten first")
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
	cases := map[string]struct {
		reason string
		seen   runtimes.Seen
		want   bool
	}{
		"Connection":     {"the connection concerns all", runtimes.Seen{Connection: true}, true},
		"AllAsItShould":  {"a list with what is expected", runtimes.Seen{Listed: true, Interest: runtimes.Interest{Kind: "Other"}}, false},
		"OneIsMissing":   {"a list without what is expected", runtimes.Seen{Listed: true, Interest: runtimes.Interest{Kind: "ConfigMap"}}, true},
		"Ours":           {"an object that names the Manifest", runtimes.Seen{Interest: runtimes.Interest{Kind: "ConfigMap"}, Object: object("a", "kcp-system/m")}, true},
		"Theirs":         {"an object of another Manifest", runtimes.Seen{Interest: runtimes.Interest{Kind: "ConfigMap"}, Object: object("a", "kcp-system/other")}, false},
		"CustomResource": {"the custom resource carries no mark", runtimes.Seen{Interest: interestOf(cr), Object: object("default", "")}, true},
		"UsersOwn":       {"another of its kind is the user's", runtimes.Seen{Interest: interestOf(cr), Object: object("mine", "")}, false},
	}
	for name, c := range cases {
		inst := &installation{inventory: []apply.Ref{{Kind: "ConfigMap", Namespace: "n", Name: "a"}}}
		if got := inst.note(c.seen, "kcp-system/m", cr); got != c.want {
			t.Errorf("%s: %s: got %v", name, c.reason, got)
		}
	}
}

func interestOf(ref apply.Ref) runtimes.Interest {
	return runtimes.Interest{Resource: ref.GVK().GroupVersion().WithResource("kedas"), Kind: ref.Kind}
}
