package dedup

import (
	"fmt"
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// installed returns a Manifest that shares no memory for strings with other Manifests.
func installed(name string) *v1beta2.Manifest {
	m := &v1beta2.Manifest{}
	m.Namespace, m.Name = "kcp-system", name+"-keda-1"
	m.OwnerReferences = []metav1.OwnerReference{{Kind: strings.Clone(v1beta2.KindKyma), Name: strings.Clone("owner"),
		UID: types.UID(strings.Clone("6e2a70a1")), Controller: new(true), BlockOwnerDeletion: new(false)}}
	m.Spec.Version, m.Spec.Target = strings.Clone("1.0.0"), v1beta2.Target(strings.Clone("remote"))
	m.Spec.Manager = &v1beta2.Manager{Group: "apps", Version: "v1", Kind: "Deployment", Name: "keda-manager"}
	m.Status.State, m.Status.Version = v1beta2.State(strings.Clone("Ready")), strings.Clone("1.0.0")
	m.Status.LastChange = &v1beta2.ModuleChange{Version: strings.Clone("1.0.0"), Outcome: v1beta2.StateReady}
	m.Spec.Install = v1beta2.InstallInfo{Name: "raw-manifest", Source: runtime.RawExtension{Raw: []byte(`{"ref":"a"}`)}}
	m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "lifecycle-manager"}}
	m.Labels = map[string]string{v1beta2.LabelModuleName: strings.Clone("keda"), v1beta2.LabelKymaName: name}
	m.Finalizers = []string{strings.Clone(v1beta2.FinalizerManifest)}
	m.Spec.Resource = &unstructured.Unstructured{Object: map[string]any{"kind": "Keda",
		"spec": map[string]any{"replicas": int64(2)}}}
	m.Status.Synced = []v1beta2.Resource{{Version: "v1", Kind: "ConfigMap", Namespace: "kyma-system", Name: "keda"}}
	m.Status.Conditions = []metav1.Condition{{Type: v1beta2.ConditionReady, Status: metav1.ConditionTrue,
		Reason: "Ready", Message: strings.Clone("all is ready")}}
	m.Status.LastOperation.Operation = strings.Clone("all is ready")
	return m
}

// TestTransform checks that equal values of two Manifests are stored once, and that the content of both stays the same.
func TestTransform(t *testing.T) {
	transform := Transform()
	through := func(m *v1beta2.Manifest) *v1beta2.Manifest {
		out, err := transform(m)
		if err != nil {
			t.Fatal(err)
		}
		return out.(*v1beta2.Manifest)
	}
	a := through(installed("a"))
	for range 3 { // a garbage collection between two objects must not end the sharing
		debug.FreeOSMemory()
	}
	b := through(installed("b"))
	want := installed("b")
	want.ManagedFields = nil
	if diff := cmp.Diff(want, b); diff != "" {
		t.Errorf("a Manifest has changed (-want +got):\n%s", diff)
	}
	at := func(text string) any { return unsafe.StringData(text) }
	cases := map[string]struct {
		reason string
		a, b   any
	}{
		"Resource": {"the custom resource of a module", a.Spec.Resource, b.Spec.Resource},
		"Source":   {"the source", &a.Spec.Install.Source.Raw[0], &b.Spec.Install.Source.Raw[0]},
		"Synced":   {"the inventory", &a.Status.Synced[0], &b.Status.Synced[0]},
		"Manager":  {"the manager of the module", a.Spec.Manager, b.Spec.Manager},
		"Owner":    {"the name of the owner", at(a.OwnerReferences[0].Name), at(b.OwnerReferences[0].Name)},
		"OwnerUID": {"the UID of the owner", at(string(a.OwnerReferences[0].UID)),
			at(string(b.OwnerReferences[0].UID))},
		"OwnerIs": {"that the owner is the controller", a.OwnerReferences[0].Controller,
			b.OwnerReferences[0].Controller},
		"Version": {"the version in the spec and in the status", at(a.Spec.Version), at(b.Status.Version)},
		"Change":  {"the version of the last change", at(a.Spec.Version), at(b.Status.LastChange.Version)},
		"State":   {"the state", at(string(a.Status.State)), at(string(b.Status.State))},
		"Target":  {"the target", at(string(a.Spec.Target)), at(string(b.Spec.Target))},
		"Label": {"values of labels", at(a.Labels[v1beta2.LabelModuleName]),
			at(b.Labels[v1beta2.LabelModuleName])},
		"Finalizer": {"finalizers", at(a.Finalizers[0]), at(b.Finalizers[0])},
		"Message": {"messages of conditions", at(a.Status.Conditions[0].Message),
			at(b.Status.Conditions[0].Message)},
		"Operations": {"an equal message in another field", at(a.Status.Conditions[0].Message),
			at(b.Status.LastOperation.Operation)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.a != c.b {
				t.Errorf("%s is kept twice", c.reason)
			}
		})
	}
}

// TestTransformKeepsDifferentValuesApart checks that values are not shared if they differ in a field.
func TestTransformKeepsDifferentValuesApart(t *testing.T) {
	cases := map[string]struct {
		reason string
		edit   func(*v1beta2.Manifest)
	}{
		"Resource": {"a value deep in the custom resource", func(m *v1beta2.Manifest) {
			m.Spec.Resource.Object["spec"] = map[string]any{"replicas": int64(3)}
		}},
		"NoResource": {"none at all", func(m *v1beta2.Manifest) { m.Spec.Resource = nil }},
		"Source": {"another digest", func(m *v1beta2.Manifest) {
			m.Spec.Install.Source.Raw = []byte(
				`{"ref":"b"}`)
		}},
		"Synced": {"another name", func(m *v1beta2.Manifest) { m.Status.Synced[0].Name = "other" }},
		"SyncedMore": {"one more", func(m *v1beta2.Manifest) {
			m.Status.Synced = append(
				m.Status.Synced, m.Status.Synced[0])
		}},
		"SyncedKeep": {"one that is kept", func(m *v1beta2.Manifest) { m.Status.Synced[0].Keep = true }},
		"SyncedParts": {"the same letters in other fields", func(m *v1beta2.Manifest) {
			m.Status.Synced[0].Kind, m.Status.Synced[0].Namespace = "ConfigMapkyma", "-system"
		}},
		"Manager": {"another manager", func(m *v1beta2.Manifest) {
			m.Spec.Manager = &v1beta2.Manager{Group: "apps", Version: "v1", Kind: "Deployment", Name: "other"}
		}},
		"ManagerNamespace": {"a manager in another namespace", func(m *v1beta2.Manifest) {
			m.Spec.Manager = &v1beta2.Manager{Group: "apps", Version: "v1", Kind: "Deployment", Name: "keda-manager",
				Namespace: "other"}
		}},
		"OwnerIs": {"an owner that is not the controller", func(m *v1beta2.Manifest) {
			m.OwnerReferences[0].Controller = new(false)
		}},
		"NoSynced": {"nothing installed", func(m *v1beta2.Manifest) { m.Status.Synced = nil }},
		"NoLabels": {"no labels", func(m *v1beta2.Manifest) { m.Labels = nil }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			transform, want, other := Transform(), installed("a"), installed("a")
			c.edit(other)
			c.edit(want)
			want.ManagedFields = nil
			for _, m := range []*v1beta2.Manifest{installed("a"), other} {
				if _, err := transform(m); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(want, other); diff != "" {
				t.Errorf("%s: -want +got\n%s", c.reason, diff)
			}
		})
	}
}

// TestTransformOtherKinds checks that the only change in objects of other kinds is the removal of their managedFields.
func TestTransformOtherKinds(t *testing.T) {
	in := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a",
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}, Data: map[string][]byte{"config": []byte("x")}}
	out, err := Transform()(in)
	if diff := cmp.Diff(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Data: map[string][]byte{"config": []byte("x")}}, out); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
}

// TestTextsAreBounded checks that the stored strings together have a limited size.
func TestTextsAreBounded(t *testing.T) {
	var values Values
	long := strings.Repeat("x", 1<<20)
	for i := range 100 {
		if got, want := values.intern(long+fmt.Sprint(i)), long+fmt.Sprint(i); got != want {
			t.Fatalf("string %d has changed", i)
		}
		if values.textBytes > textBytesLimit || len(values.texts) > 16 {
			t.Fatalf("%d strings of 1 MiB are stored, and count as %d bytes", len(values.texts), values.textBytes)
		}
	}
}

// TestShareIsBounded checks that values that are no longer used do not stay in memory, and that values in use do.
func TestShareIsBounded(t *testing.T) {
	var s Values
	padding := strings.Repeat("x", 1<<15)
	perGeneration := valueBytesLimit / (1<<15 + valueOverhead)
	for i := range 5 * perGeneration {
		if got := Share(&s, fmt.Sprint(i, padding), i); got != i {
			t.Fatalf("%d is kept as %d", i, got)
		}
		if got := Share(&s, "in use", i); got != 0 {
			t.Fatalf("after %d others, a value in use is no longer shared", i)
		}
		if s.valueBytes > valueBytesLimit || len(s.current)+len(s.former) > 2*perGeneration+2 {
			t.Fatalf("%d and %d values are kept, and count as %d bytes", len(s.current), len(s.former), s.valueBytes)
		}
	}
	if got := Share(&s, fmt.Sprint(5*perGeneration-1, padding), -1); got != 5*perGeneration-1 {
		t.Errorf("the newest was forgotten: %d", got)
	}
}

// TestLargeCatalogIsShared checks that all runtimes share the values of a catalog of 250 modules in three channels,
// also if the runtimes have custom resources of their own.
func TestLargeCatalogIsShared(t *testing.T) {
	var s Values
	const modules, runtimes = 750, 3000
	copies := map[*v1beta2.Resource]bool{}
	for i := range runtimes {
		Share(&s, fmt.Sprint("reference", i), i)
		for j := range 3 {
			module := (i*3 + j) % modules
			inventory := make([]v1beta2.Resource, 25)
			for o := range inventory {
				inventory[o] = v1beta2.Resource{Group: "apps", Version: "v1", Kind: "Deployment",
					Namespace: "kyma-system", Name: fmt.Sprintf("module-%d-object-%d", module, o)}
			}
			for _, part := range []string{"source", "resource", "template", "reference"} {
				Share(&s, fmt.Sprint(part, module, "of a module"), i)
			}
			copies[&Share(&s, InventoryKey(inventory), inventory)[0]] = true
		}
	}
	if len(copies) != modules {
		t.Errorf("%d copies of %d inventories are kept", len(copies), modules)
	}
}

// kymaOf returns a Kyma that shares no memory for strings with other Kymas.
func kymaOf(name string) *v1beta2.Kyma {
	ref := func(kind, name string) *v1beta2.ObjectReference {
		return &v1beta2.ObjectReference{Kind: strings.Clone(kind),
			Metadata: v1beta2.ObjectReferenceMeta{Name: strings.Clone(name), Generation: 3}}
	}
	k := &v1beta2.Kyma{}
	k.Name, k.Labels = name, map[string]string{"region": strings.Clone("eu")}
	k.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "lifecycle-manager"}}
	k.Spec = v1beta2.KymaSpec{Channel: "fast", Modules: append(make([]v1beta2.Module, 0, 4),
		v1beta2.Module{Name: strings.Clone("keda")})}
	k.Status.Conditions = append(make([]metav1.Condition, 0, 4), metav1.Condition{Type: v1beta2.ConditionReady,
		Status: metav1.ConditionTrue, Message: strings.Clone("all is ready")})
	k.Status.Modules = append(make([]v1beta2.ModuleStatus, 0, 8), v1beta2.ModuleStatus{
		Name: strings.Clone("keda"), Version: strings.Clone("1.0.0"), State: v1beta2.StateReady,
		Template: ref("ModuleTemplate", "keda-1.0.0"), Resource: ref("Keda", "default"),
		Manifest: ref("Manifest", name+"-keda-1"),
	})
	k.Status.Agent = &v1beta2.AgentStatus{Connected: true,
		Synced: []v1beta2.Resource{{Version: "v1", Kind: "Secret", Name: "skr-webhook-tls"}}}
	return k
}

// TestTransformKyma does the same as TestTransform, with two Kymas.
func TestTransformKyma(t *testing.T) {
	transform := Transform()
	through := func(k *v1beta2.Kyma) *v1beta2.Kyma {
		out, err := transform(k)
		if err != nil {
			t.Fatal(err)
		}
		return out.(*v1beta2.Kyma)
	}
	a, b := through(kymaOf("a")), through(kymaOf("b"))
	want := kymaOf("b")
	want.ManagedFields = nil
	if diff := cmp.Diff(want, b); diff != "" {
		t.Errorf("a Kyma has changed (-want +got):\n%s", diff)
	}
	at := func(text string) any { return unsafe.StringData(text) }
	inA, inB := a.Status.Modules[0], b.Status.Modules[0]
	cases := map[string]struct {
		reason string
		a, b   any
	}{
		"Module":   {"names of modules", at(a.Spec.Modules[0].Name), at(inB.Name)},
		"Version":  {"versions", at(inA.Version), at(inB.Version)},
		"Template": {"the source", inA.Template, inB.Template},
		"Resource": {"its custom resource", inA.Resource, inB.Resource},
		"Message":  {"messages of conditions", at(a.Status.Conditions[0].Message), at(b.Status.Conditions[0].Message)},
		"Synced":   {"the inventory of the agent", &a.Status.Agent.Synced[0], &b.Status.Agent.Synced[0]},
		"Capacity": {"unused capacity of slices", cap(b.Spec.Modules) + cap(b.Status.Modules) +
			cap(b.Status.Conditions), 3},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.a != c.b {
				t.Errorf("%s is kept twice", c.reason)
			}
		})
	}
	if inA.Manifest == inB.Manifest {
		t.Error("two runtimes have one Manifest")
	}
	if empty := through(&v1beta2.Kyma{}); !cmp.Equal(empty, &v1beta2.Kyma{}) {
		t.Errorf("an empty Kyma has become %v", empty)
	}
}
