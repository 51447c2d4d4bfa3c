package rollout

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
)

// TestHolders checks the list of runtimes that have a withdrawn version. The runtimes are counted when the version is
// withdrawn, and then only at an interval, so that a rollout that replaces the version does not cause a status write
// for every updated runtime.
func TestHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = maxHolders + 5
		f := newFleet(t, objects(many)...)
		withdrawn := ""
		catalog := f.Catalog
		f.Catalog = func(ctx context.Context) (channel.Catalog, func() error) {
			c, failed := catalog(ctx)
			c.Templates = func(string) []*v1beta2.ModuleTemplate {
				one := c.Template("keda-1.0.0")
				if withdrawn != "" {
					one.Annotations = map[string]string{v1beta2.AnnotationWithdrawn: withdrawn}
				}
				return []*v1beta2.ModuleTemplate{one, c.Template("keda-2.0.0")}
			}
			return c, failed
		}
		pass := func() []v1beta2.WithdrawnVersion {
			t.Helper()
			f.pass()
			return f.release(t.Context()).Status.Withdrawn
		}
		if is := pass(); len(is) > 0 {
			t.Fatalf("nothing is withdrawn: %+v", is)
		}
		withdrawn = "it loses data"
		is := pass()
		if len(is) != 1 || is[0].Runtimes != many || is[0].Reason != withdrawn || len(is[0].Holders) != maxHolders ||
			!slices.IsSorted(is[0].Holders) {
			t.Fatalf("withdrawn: %+v", is)
		}
		for i := range 3 {
			f.order(fmt.Sprintf("runtime-%d", i), "2.0.0", v1beta2.StateReady)
		}
		if is := pass(); is[0].Runtimes != many {
			t.Errorf("counted again at once: %+v", is)
		}
		result, err := f.Reconcile(t.Context(), f.requestFor("keda"))
		if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > holdersInterval {
			t.Errorf("the next count is after %s: %v", result.RequeueAfter, err)
		}
		time.Sleep(holdersInterval)
		if is = pass(); is[0].Runtimes != many-3 || slices.Contains(is[0].Holders, "runtime-0") {
			t.Errorf("counted later: %+v", is)
		}
		before := f.release(t.Context()).ResourceVersion
		time.Sleep(holdersInterval)
		pass()
		if after := f.release(t.Context()).ResourceVersion; after != before {
			t.Errorf("a count without a change is written: %s, before %s", after, before)
		}
		withdrawn = ""
		if is := pass(); len(is) > 0 {
			t.Errorf("it is available again: %+v", is)
		}
	})
}

// TestHoldersUnderWay checks that a runtime that is being updated counts as having both versions.
func TestHoldersUnderWay(t *testing.T) {
	f := newFleet(t, objects(2)...)
	m, key := &v1beta2.Manifest{}, types.NamespacedName{Namespace: namespace, Name: "runtime-0-keda"}
	if err := f.control.Get(t.Context(), key, m); err != nil {
		t.Fatal(err)
	}
	m.Spec.Version = "2.0.0"
	if err := f.control.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	p := &pass{Reconciler: f.Reconciler, release: f.release(t.Context()), now: time.Now()}
	is := []v1beta2.WithdrawnVersion{{Version: "2.0.0"}, {Version: "1.0.0"}}
	if err := p.countHolders(t.Context(), is); err != nil || is[0].Runtimes != 1 || is[1].Runtimes != 2 ||
		is[0].Holders[0] != "runtime-0" {
		t.Errorf("%+v: %v", is, err)
	}
}
