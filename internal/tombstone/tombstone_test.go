package tombstone

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

func configMap(name string) v1beta2.Resource {
	return v1beta2.Resource{Version: "v1", Kind: "ConfigMap", Namespace: "default", Name: name}
}

func manifest(name string, edit func(*v1beta2.Manifest)) *v1beta2.Manifest {
	m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{v1beta2.LabelModuleName: "module-" + name}}}
	m.Status.Synced = []v1beta2.Resource{configMap(name)}
	if edit != nil {
		edit(m)
	}
	return m
}

// things returns the custom resource of a module.
func things() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Thing",
		"metadata": map[string]any{"namespace": "default", "name": "thing"},
	}}
}

// lines returns the listed objects as lines of text, in order.
func lines(t Tombstone) []string {
	var all []string
	line := func(r v1beta2.Resource) string {
		keep := ""
		if r.Keep {
			keep = " (keep)"
		}
		return r.Kind + " " + r.Name + keep
	}
	for _, m := range t.Modules {
		if m.Resource != nil {
			all = append(all, m.Name+": "+line(*m.Resource))
		}
		for _, o := range m.Objects {
			all = append(all, m.Name+": "+line(o))
		}
	}
	for _, o := range t.Runtime {
		all = append(all, line(o))
	}
	return all
}

func TestNew(t *testing.T) {
	got := []v1beta2.Resource{{Kind: "Kyma", Name: "default"}, {Kind: "CustomResourceDefinition", Name: "kymas"}}
	withResource := func(policy v1beta2.CustomResourcePolicy) func(*v1beta2.Manifest) {
		return func(m *v1beta2.Manifest) { m.Spec.Resource, m.Spec.CustomResourcePolicy = things(), policy }
	}
	cases := map[string]struct {
		reason    string
		manifests []*v1beta2.Manifest
		want      []string
	}{
		"NoModules": {"what the runtime got is left in any case", nil,
			[]string{"Kyma default", "CustomResourceDefinition kymas"}},
		"Modules": {
			"modules by name, then what the runtime got", []*v1beta2.Manifest{manifest("b", nil), manifest("a", nil)},
			[]string{"module-a: ConfigMap a", "module-b: ConfigMap b", "Kyma default",
				"CustomResourceDefinition kymas"},
		},
		"Resource": {
			"the custom resource is deleted before its operator",
			[]*v1beta2.Manifest{manifest("a", withResource(v1beta2.CreateAndDelete))},
			[]string{"module-a: Thing thing", "module-a: ConfigMap a", "Kyma default",
				"CustomResourceDefinition kymas"},
		},
		"Ignored": {
			"it is the user's, as the policy says", []*v1beta2.Manifest{manifest("a", withResource(v1beta2.Ignore))},
			[]string{"module-a: ConfigMap a", "Kyma default", "CustomResourceDefinition kymas"},
		},
		"HandedOver": {
			"all of it is the user's", []*v1beta2.Manifest{manifest("a", func(m *v1beta2.Manifest) {
				m.Annotations = map[string]string{v1beta2.AnnotationIsUnmanaged: v1beta2.ValueTrue}
			})},
			[]string{"Kyma default", "CustomResourceDefinition kymas"},
		},
		"Kept": {
			"what is to be kept is listed as such, for it keeps others",
			[]*v1beta2.Manifest{manifest("a", func(m *v1beta2.Manifest) { m.Status.Synced[0].Keep = true })},
			[]string{"module-a: ConfigMap a (keep)", "Kyma default", "CustomResourceDefinition kymas"},
		},
		"Unlabelled": {
			"a Manifest that does not name its module",
			[]*v1beta2.Manifest{manifest("a", func(m *v1beta2.Manifest) { m.Labels = nil })},
			[]string{"a: ConfigMap a", "Kyma default", "CustomResourceDefinition kymas"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			is := New(&v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "k", UID: "u"}}, c.manifests, got)
			if diff := cmp.Diff(c.want, lines(is)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", c.reason, diff)
			}
			if is.ObjectCount() != len(c.want) {
				t.Errorf("%s: Count is %d, want %d", c.reason, is.ObjectCount(), len(c.want))
			}
		})
	}
}

// example returns a tombstone with one module for each parameter. The parameter is the number of objects of the module;
// the names of these objects are as long as possible.
func example(objects ...int) Tombstone {
	t := Tombstone{
		Kyma: "k", UID: "u", Reason: "RuntimeUnreachable", Message: "it does not answer",
		DeletedAt: metav1.Unix(100, 0), UnreachableSince: metav1.Unix(200, 0), GivenUpAt: metav1.Unix(300, 0),
		Runtime: []v1beta2.Resource{configMap("of-us")},
	}
	for i, n := range objects {
		m := Module{Name: fmt.Sprint("m", i), Manifest: fmt.Sprint("k-m", i), Resource: new(configMap("first"))}
		for j := range n {
			long := fmt.Sprintf("%0253d", j)
			m.Objects = append(m.Objects, v1beta2.Resource{Group: long, Version: long[:63], Kind: long[:63],
				Namespace: long[:63], Name: long})
		}
		t.Modules = append(t.Modules, m)
	}
	return t
}

func TestConfigMaps(t *testing.T) {
	cases := map[string]struct {
		reason  string
		objects []int
		parts   int
	}{
		"Empty":       {"a Kyma without modules", nil, 1},
		"Small":       {"as it is nearly always", []int{3, 0, 40}, 1},
		"ManyModules": {"what does not fit is in further ConfigMaps", []int{700, 700, 700}, 3},
		"LargeModule": {"a module may be divided", []int{2500}, 3},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			want := example(c.objects...)
			maps, err := want.ConfigMaps("kcp-system")
			if err != nil || len(maps) != c.parts {
				t.Fatalf("%s: %d parts, %v, want %d", c.reason, len(maps), err, c.parts)
			}
			var read []corev1.ConfigMap
			var names []string
			for _, m := range maps {
				if size := len(m.Data[Key]) + len(Key); size > 1<<20 {
					t.Errorf("%s: %s has %d bytes, which the API server refuses", c.reason, m.Name, size)
				}
				if m.Labels[v1beta2.LabelTombstone] != v1beta2.ValueTrue || m.Labels[v1beta2.LabelKymaName] != "k" ||
					m.OwnerReferences != nil {
					t.Errorf("%s: %s has labels %v and owners %v", c.reason, m.Name, m.Labels, m.OwnerReferences)
				}
				names = append(names, m.Name)
				read = append([]corev1.ConfigMap{*m}, read...) // in reverse order
			}
			got, err := Read(read)
			if diff := cmp.Diff([]Stored{{Tombstone: want, ConfigMaps: names}}, got); err != nil || diff != "" {
				t.Errorf("%s: read again: %v, -want +got:\n%.2000s", c.reason, err, diff)
			}
		})
	}
}

func TestReadSeveral(t *testing.T) {
	older, newer := example(1), example(2)
	newer.UID, newer.GivenUpAt = "other", metav1.NewTime(older.GivenUpAt.Add(time.Hour))
	var maps []corev1.ConfigMap
	for _, one := range []Tombstone{newer, older} {
		parts, err := one.ConfigMaps("n")
		if err != nil {
			t.Fatal(err)
		}
		maps = append(maps, *parts[0])
	}
	maps = append(maps, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "broken"},
		Data: map[string]string{Key: "{}"}})
	got, err := Read(maps)
	if err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("got %v, want an error with the name of the ConfigMap", err)
	}
	if len(got) != 2 || got[0].UID != older.UID || got[1].UID != newer.UID {
		t.Errorf("got %v, want the older one first", got)
	}
}

func TestName(t *testing.T) {
	if long := Name(strings.Repeat("a", 253), "12345678-1234-1234-1234-123456789012", 98); len(long) > 253 {
		t.Errorf("a name of %d characters", len(long))
	}
	if a, b := Name("k", "u", 0), Name("k", "v", 0); a == b || !strings.HasPrefix(a, "tombstone-k-") {
		t.Errorf("names are %s and %s, want names that differ by UID", a, b)
	}
}

func TestLongMessage(t *testing.T) {
	one := example()
	one.Message = strings.Repeat("é", messageLimit)
	maps, err := one.ConfigMaps("n")
	if err != nil || len(maps[0].Data[Key]) > 2*messageLimit {
		t.Errorf("%v, %d bytes: want a clipped message", err, len(maps[0].Data[Key]))
	}
}
