package loop

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

func TestSpecChanged(t *testing.T) {
	accepts := SpecLabelsOrAnnotationsChanged("ignored")
	cases := map[string]struct {
		reason string
		change func(*v1beta2.Kyma)
		want   bool
	}{
		"Status": {"written by ourselves", func(k *v1beta2.Kyma) {
			k.Status.State,
				k.ResourceVersion = v1beta2.StateReady, "2"
		}, false},
		"Spec":  {"it has another generation", func(k *v1beta2.Kyma) { k.Generation = 2 }, true},
		"Label": {"it may select", func(k *v1beta2.Kyma) { k.Labels = map[string]string{"a": "b"} }, true},
		"Annotation": {"it may ask for something",
			func(k *v1beta2.Kyma) { k.Annotations = map[string]string{"a": "b"} }, true},
		"Ignored": {"a controller's own record",
			func(k *v1beta2.Kyma) { k.Annotations = map[string]string{"ignored": "b"} }, false},
		"IgnoredLabel": {"a controller's own label",
			func(k *v1beta2.Kyma) { k.Labels = map[string]string{"ignored": "b"} }, false},
		"Both": {"one that counts", func(k *v1beta2.Kyma) {
			k.Annotations = map[string]string{"ignored": "b",
				"a": "b"}
		}, true},
		"Deletion": {"it begins", func(k *v1beta2.Kyma) { k.DeletionTimestamp = new(metav1.NewTime(time.Now())) },
			true},
		"Finalizer": {"nobody's business", func(k *v1beta2.Kyma) { k.Finalizers = []string{"a"} }, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Generation: 1, ResourceVersion: "1"}}
			after := before.DeepCopy()
			c.change(after)
			forth := accepts.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
			back := accepts.Update(event.UpdateEvent{ObjectOld: after, ObjectNew: before})
			if forth != c.want || back != c.want {
				t.Errorf("%s: accepted %t, and back %t", c.reason, forth, back)
			}
			if len(after.Annotations) > 0 && after.Annotations["ignored"]+after.Annotations["a"] == "" {
				t.Error("the annotations of the object were changed")
			}
		})
	}
	if !accepts.Create(event.CreateEvent{}) || !accepts.Delete(event.DeleteEvent{}) {
		t.Error("creation and deletion are not accepted")
	}
}

func TestRequestForKyma(t *testing.T) {
	o := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m"}}
	if got := RequestForKyma(t.Context(), o); len(got) > 0 {
		t.Errorf("without a label: %v", got)
	}
	o.Labels = map[string]string{v1beta2.LabelKymaName: "a"}
	want := []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: "n", Name: "a"}}}
	if diff := cmp.Diff(want, RequestForKyma(t.Context(), o)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestSpread(t *testing.T) {
	const interval = time.Hour
	seen := map[time.Duration]bool{}
	for _, name := range []string{"a", "b", "runtime-1", "runtime-2"} {
		got := Spread(interval, name)
		if got < interval*7/8 || got > interval*9/8 || got != Spread(interval, name) {
			t.Errorf("interval of %s is %s", name, got)
		}
		seen[got] = true
	}
	if len(seen) < 4 {
		t.Errorf("%d different intervals for 4 names", len(seen))
	}
}

func TestMemory(t *testing.T) {
	var m Memory[string, int]
	if m.Get("a") != nil || m.Forget("a") != nil || m.Len() != 0 {
		t.Error("the zero value is not empty")
	}
	made := m.GetOrCreate("a", func() *int { return new(1) })
	if again := m.GetOrCreate("a", func() *int { return new(2) }); again != made || m.Get("a") != made {
		t.Error("what is remembered was made again")
	}
	m.Update("a", func(old *int) *int { return new(*old + 10) })
	m.Update("b", func(old *int) *int {
		if old != nil {
			t.Errorf("something is remembered of b: %d", *old)
		}
		return nil
	})
	all := m.All()
	delete(all, "a") // a copy
	if got := m.Get("a"); got == nil || *got != 11 || m.Len() != 1 {
		t.Errorf("remembered %v, %d objects", got, m.Len())
	}
	if m.Update("a", func(*int) *int { return nil }); m.Len() != 0 {
		t.Error("an object that is not to be remembered is")
	}
	m.GetOrCreate("a", func() *int { return new(3) })
	if got := m.Forget("a"); got == nil || *got != 3 || m.Get("a") != nil {
		t.Errorf("forgotten %v", got)
	}
}
