package rollout

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// countingFleet counts the reads of the cache of the fleet, and fails while it is not filled.
type countingFleet struct {
	cache.Cache
	reader  client.Reader
	reads   int
	unready bool
}

func (c *countingFleet) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	c.reads++
	if c.unready {
		return errors.New("the cache is not filled")
	}
	return c.reader.List(ctx, list, o...)
}

// TestFleetOnDemand checks that the fleet is read only for a rollout, for runtimes with withdrawn versions, and for the
// first version of a channel of a control plane that has Manifests.
func TestFleetOnDemand(t *testing.T) {
	withFleet := func(t *testing.T, objects ...client.Object) (*fleet, *countingFleet) {
		t.Helper()
		f := newFleet(t, objects...)
		counting := &countingFleet{reader: f.control}
		f.Fleet, f.Live, f.IsFleetOnDemand = counting, f.control, true
		return f, counting
	}
	t.Run("FirstModule", func(t *testing.T) {
		f, fleet := withFleet(t, objects(0)...)
		f.pass()
		if s := f.status(); s.Version != "1.0.0" || fleet.reads != 0 {
			t.Errorf("version %q after %d reads of the fleet, want 1.0.0 after none", s.Version, fleet.reads)
		}
	})
	t.Run("ModuleInUse", func(t *testing.T) {
		f, fleet := withFleet(t, objects(2)...)
		f.move("2.0.0") // the status of the channel is lost, and the runtimes still have the former version
		f.pass()
		if s := f.status(); s.Version != "1.0.0" || fleet.reads == 0 {
			t.Errorf("version %q after %d reads of the fleet, want that of the runtimes", s.Version, fleet.reads)
		}
	})
	t.Run("Unchanged", func(t *testing.T) {
		f, fleet := withFleet(t, objects(2)...)
		f.pass()
		fleet.reads = 0
		f.pass()
		if fleet.reads != 0 {
			t.Errorf("%d reads of the fleet for channels that do not move, want none", fleet.reads)
		}
	})
	t.Run("NotFilled", func(t *testing.T) {
		f, fleet := withFleet(t, objects(2)...)
		f.pass()
		fleet.unready = true
		f.move("2.0.0")
		clear(f.lastPass)
		if _, err := f.Reconcile(t.Context(), f.requestFor("keda")); err != nil {
			t.Fatal(err) // the version settles first
		}
		clear(f.lastPass)
		if _, err := f.Reconcile(t.Context(), f.requestFor("keda")); err == nil {
			t.Error("a rollout was made without knowing the runtimes")
		}
		var made v1beta2.ModuleRolloutList
		if err := f.control.List(t.Context(), &made); err != nil || len(made.Items) != 0 {
			t.Errorf("%d rollouts (%v), want none before the fleet is known", len(made.Items), err)
		}
		if s := f.status(); s.Version != "1.0.0" || s.Target != "1.0.0" {
			t.Errorf("status %+v, want the former version", s)
		}
	})
}
