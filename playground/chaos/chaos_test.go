package chaos

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
	"github.com/kyma-fleet/lifecycle-manager/playground/program"
)

// TestRun makes one short round on two runtimes. `make chaos` makes longer runs.
func TestRun(t *testing.T) {
	ctrl.SetLogger(logr.Discard()) // of our own clients
	bin := t.TempDir()
	if err := program.Build("../..", bin, program.Manager, program.Agent, program.Operator); err != nil {
		t.Fatal(err)
	}
	report, err := Run(t.Context(), Options{Dir: filepath.Join(t.TempDir(), "landscape"), Bin: bin, Seed: 1,
		Runtimes: []string{"runtime-a", "runtime-b"}, Round: 12 * time.Second, Pace: 3, Idle: 2 * time.Second,
		Heal: 20 * time.Minute, Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(report)
	if len(report.Failures) > 0 {
		t.Errorf("%d checks have failed", len(report.Failures))
	}
	if report.Rounds != 1 || len(report.Faults) < 3 || len(report.Requests) < 3 || report.Created == 0 {
		t.Errorf("%d rounds with faults %v, requests %v and %d objects of modules: want one round with three kinds of "+
			"each", report.Rounds, report.Faults, report.Requests, report.Created)
	}
}

// TestPlan checks the plans of many seeds: they are the same for equal seeds, contain every fault, and never request an
// older version.
func TestPlan(t *testing.T) {
	runtimes := []string{"runtime-a", "runtime-b", "runtime-c"}
	injected, requested := map[string]bool{}, map[string]bool{}
	for seed := range uint64(200) {
		p := newPlan(seed, 1, time.Minute, runtimes, 1)
		again := newPlan(seed, 1, time.Minute, runtimes, 1)
		if diff := cmp.Diff(p, again, cmp.AllowUnexported(plan{}, event{}, change{})); diff != "" {
			t.Fatalf("seed %d: two plans differ:\n%s", seed, diff)
		}
		newest := map[string]int{}
		for _, e := range p.requests {
			requested[e.What] = true
			if e.change.create {
				for _, module := range varied {
					delete(newest, e.Target+"/"+module)
				}
			}
			for name, modules := range e.change.want {
				for module, v := range modules {
					if v < newest[name+"/"+module] {
						t.Fatalf("seed %d: request %s asks for version %d of %s in %s after %d", seed, e, v, module,
							name, newest[name+"/"+module])
					}
					newest[name+"/"+module] = v
				}
			}
		}
		for _, e := range p.faults {
			injected[e.What] = true
			if e.At+e.For > time.Minute {
				t.Errorf("seed %d: fault %s ends after its round", seed, e)
			}
			if e.What == "access-deleted" && e.Target == "runtime-c" {
				t.Errorf("seed %d: without the access Secret, the deletion of a Kyma leaves its runtime as it is", seed)
			}
		}
	}
	for _, f := range faults {
		if !injected[f.name] {
			t.Errorf("no plan has fault %s", f.name)
		}
	}
	for _, what := range []string{"enable", "disable", "channel", "move", "custom-resource", "create", "remove"} {
		if !requested[what] {
			t.Errorf("no plan has request %s", what)
		}
	}
}

// TestPromises checks that each broken promise is reported, and that changes that break no promise are not reported.
func TestPromises(t *testing.T) {
	object := func(text string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return u
	}
	owned := object(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"alpha","namespace":"kyma-system",
		"annotations":{"deprecated-operator.kyma-project.io/owned-by":"kcp-system/m"}},"data":{"version":"2.0.0"}}`)
	older := owned.DeepCopy()
	older.Object["data"] = map[string]any{"version": "1.0.0"}
	co := owned.DeepCopy()
	co.SetAnnotations(map[string]string{coOwners: "kcp-system/m"})
	const inventory = `{"apiVersion":"operator.kyma-project.io/v1beta2","kind":"Manifest","metadata":{"name":"m"},
		"status":{"synced":[{"name":"alpha","namespace":"kyma-system","group":"","version":"v1","kind":"ConfigMap"}]}}`
	leaving := object(inventory)
	leaving.Object["metadata"] = map[string]any{"name": "m", "deletionTimestamp": "2026-01-01T00:00:00Z"}
	manifest := func(o *unstructured.Unstructured) cluster.Change {
		return cluster.Change{Stored: cluster.Stored{Cluster: "control-plane",
			Key: "operator.kyma-project.io/manifests/kcp-system/m", Object: o}}
	}
	change := func(before, after *unstructured.Unstructured) cluster.Change {
		return cluster.Change{Stored: cluster.Stored{Cluster: "runtime-a", Key: "configmaps/kyma-system/alpha",
			Object: after}, Before: before, Deleted: after == nil}
	}
	const id = "runtime-a/configmaps/kyma-system/alpha"
	cases := map[string]struct {
		protect, excuse bool
		exact           bool
		changes         []cluster.Change
		want            int
	}{
		"Recorded":    {changes: []cluster.Change{manifest(object(inventory)), change(nil, owned)}},
		"NotRecorded": {changes: []cluster.Change{manifest(object(`{"kind":"Manifest","apiVersion":"v1"}`)), change(nil, owned)}, want: 1},
		"NoManifest":  {changes: []cluster.Change{change(nil, owned)}, want: 1},
		"Downgrade":   {changes: []cluster.Change{change(owned, owned), change(owned, older)}, want: 1},
		"Upgrade":     {changes: []cluster.Change{change(older, older), change(older, owned)}},
		"CoOwner":     {changes: []cluster.Change{manifest(object(inventory)), change(co, nil)}, want: 1},
		"CoOwnerGoes": {changes: []cluster.Change{manifest(leaving), change(co, nil)}},
		"DeletedByUs": {protect: true, changes: []cluster.Change{change(owned, nil)}, want: 1},
		"ChangedByUs": {protect: true, exact: true, changes: []cluster.Change{change(owned, owned)}, want: 1},
		"CreatedLate": {protect: true, exact: true,
			changes: []cluster.Change{manifest(object(inventory)), change(nil, owned)}},
		"ChangedOfOur": {protect: true, changes: []cluster.Change{change(owned, owned)}},
		"Excused":      {excuse: true, changes: []cluster.Change{manifest(object(inventory)), change(co, nil)}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := newPromises("kcp-system", t.Logf)
			if c.protect {
				p.protect(c.exact, id)
			}
			if c.excuse {
				p.excuseNextDeletion(id)
			}
			for _, change := range c.changes {
				p.observe(change)
			}
			if broken, _, _ := p.result(); len(broken) != c.want {
				t.Errorf("got %q, want %d broken promises", broken, c.want)
			}
		})
	}
}

// TestDifference checks that leftovers, missing objects and different contents are reported.
func TestDifference(t *testing.T) {
	want := picture{"a": nil, "b": map[string]any{"x": "1"}}
	for name, got := range map[string]picture{
		"left over": {"a": nil, "b": map[string]any{"x": "1"}, "c": nil},
		"missing":   {"b": map[string]any{"x": "1"}},
		"differs":   {"a": nil, "b": map[string]any{"x": "2"}},
	} {
		if snapshotDiff(want, got) == "" {
			t.Errorf("%s: not noticed", name)
		}
	}
	if diff := snapshotDiff(want, picture{"a": nil, "b": map[string]any{"x": "1"}}); diff != "" {
		t.Errorf("equal pictures: got %s", diff)
	}
	if names := allClusterNames([]string{"r"}); !slices.Equal(names, []string{"control-plane", "r"}) {
		t.Errorf("clusters: got %q", names)
	}
}
