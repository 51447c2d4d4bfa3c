package orphan

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
)

func TestNextSlot(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, interval := range []time.Duration{time.Second, time.Hour, 24 * time.Hour, 90 * 24 * time.Hour} {
		early := 0
		for i := range 100 {
			name := strings.Repeat("k", i)
			at := nextSlot(now, interval, name)
			if !at.After(now) || at.Sub(now) > interval {
				t.Errorf("slot of %q is %s after now, want one within %s", name, at.Sub(now), interval)
			}
			if again := nextSlot(at.Add(-1), interval, name); !again.Equal(at) {
				t.Errorf("a restart moves the slot of %q from %s to %s", name, at, again)
			}
			if next := nextSlot(at, interval, name); next.Sub(at) != interval {
				t.Errorf("the slots of %q are %s apart, want %s", name, next.Sub(at), interval)
			}
			if at.Sub(now) <= interval/2 {
				early++
			}
		}
		if early < 30 || early > 70 {
			t.Errorf("%d of 100 slots are in the first half of %s, want about half", early, interval)
		}
	}
}

func TestMayDelete(t *testing.T) {
	owner := func(apiVersion, kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "x"}}
	}
	cases := map[string]struct {
		reason string
		meta   metav1.ObjectMeta
		want   bool
	}{
		"Alone": {"it has no owner", metav1.ObjectMeta{}, true},
		"Kyma": {"its owner is the missing Kyma",
			metav1.ObjectMeta{OwnerReferences: owner("operator.kyma-project.io/v1beta1", "Kyma")}, true},
		"Another": {"it has another owner", metav1.ObjectMeta{OwnerReferences: owner("example.com/v1", "Kyma")}, false},
		"Deleted": {"it is being deleted", metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := mayDelete(&v1beta2.Manifest{ObjectMeta: c.meta}); got != c.want {
				t.Errorf("%s: got %t", c.reason, got)
			}
		})
	}
}

func TestJoinFitsIntoAnEvent(t *testing.T) {
	refs := slices.Repeat([]apply.Ref{{Version: "v1", Kind: "ConfigMap", Namespace: "a",
		Name: strings.Repeat("n", 200)}}, 50)
	if got := joinObjects(refs); len(got) > 1000-100 || !strings.HasSuffix(got, " more") {
		t.Errorf("got %d bytes that end with %q", len(got), got[len(got)-20:])
	}
	if got, want := joinObjects(refs[:1]), refs[0].String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
