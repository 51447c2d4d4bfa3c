package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// fragile is a module without an operator. Each version of the module fragile has an object that the other version
// lacks.
const fragile = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fragiles.fragile.example.com}
spec:
  group: fragile.example.com
  scope: Namespaced
  names: {kind: Fragile, listKind: FragileList, plural: fragiles, singular: fragile}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true, description: of VERSION}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: fragile, namespace: kyma-system}
data: {version: VERSION}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: fragile-VERSION, namespace: kyma-system}
`

// fragileCR is the custom resource that activates the module fragile.
const fragileCR = `{apiVersion: fragile.example.com/v1, kind: Fragile, metadata: {name: fragile, namespace: kyma-system}}`

// These lists name the steps of the Kyma and Manifest controllers during installation and deletion. The test compares
// the lists with the steps in the manager's metrics, so that no step is missing.
var (
	kymaInstall = []string{"adopt", "assume", "connect", "sync", "version", "remember", "resolve", "install", "remove",
		"catalog", "watchlist", "agent", "settle", "requeue", "publish"}
	kymaDelete      = []string{"announce", "connect", "admission", "modules", "runtime", "release", "publish"}
	manifestInstall = []string{"adopt", "connect", "decide", "reach", "render", "record", "apply", "resource", "prune",
		"observe", "audit", "publish"}
	manifestDelete = []string{"connect", "reclaim", "blockers", "resource", "plan", "operator", "teardown", "release"}
)

// chapter is a part of the life cycle: actions of users, and the steps that the manager then takes.
type chapter struct {
	name       string
	controller string
	// The test kills the manager after each of these steps; :2 means after the second occurrence of the step.
	steps   []string
	do      func(context.Context) error // the actions of users; they also work while the manager is not running
	reached func(context.Context) bool  // a cheap check that the end state is almost reached
	end     string                      // name of the end state; equal names mean equal pictures
}

// picture is the state of the control plane and the runtime after a chapter.
type picture struct {
	Ours       []string       // objects in the runtime with the manager's label
	Unrecorded []string       // the objects of Ours that are in no inventory
	Objects    map[string]any // objects of the module, without fields that differ from run to run
	Kymas      map[string]any // status of the two copies of the Kyma
	Manifests  map[string]any
}

// killing is the state of TestKilledAtEveryStep.
type killing struct {
	*scenario
	ends  map[string]picture           // the picture after a chapter without a kill, by end state
	specs map[string]*v1beta2.Manifest // Manifests as the Kyma controller writes them, by version
}

// TestKilledAtEveryStep repeats the life cycle of a module and of a Kyma, and kills the manager once after each of its
// steps. The restarted manager must reach the same end state as a manager that was not killed. The steps of each
// controller are divided among several landscapes, because one landscape would need longer than all other tests.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	const shares = 2
	for share := range shares {
		t.Run(fmt.Sprint("Kyma", share), func(t *testing.T) {
			t.Parallel()
			k := bringUpKilling(t)
			create, _, _, _, remove := k.chapters()
			k.playRounds(t, share, shares, create, remove)
		})
		t.Run(fmt.Sprint("Manifest", share), func(t *testing.T) {
			t.Parallel()
			k := bringUpKilling(t)
			create, upgrade, disable, enable, _ := k.chapters()
			if err := errors.Join(k.play(create), k.play(disable)); err != nil {
				t.Fatal(err)
			}
			k.playRounds(t, share, shares, enable, upgrade, disable)
		})
	}
}

// bringUpKilling starts a landscape, and plays each chapter once with a manager that is not killed.
func bringUpKilling(t *testing.T) *killing {
	t.Helper()
	k := &killing{scenario: bringUp(t, alive...), ends: map[string]picture{}, specs: map[string]*v1beta2.Manifest{}}
	if err := k.prepare(); err != nil {
		t.Fatal(err)
	}
	create, upgrade, disable, enable, remove := k.chapters()
	for _, c := range []chapter{create, upgrade, disable, enable, remove} {
		if err := k.play(c); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
	}
	if err := k.checkSteps(); err != nil {
		t.Fatal(err)
	}
	return k
}

// playRounds plays the chapters again and again. In round i, the manager is killed after step i of each chapter that
// has so many steps. Of the rounds, playRounds plays those of one share.
func (k *killing) playRounds(t *testing.T, share, shares int, chapters ...chapter) {
	t.Helper()
	for i := share; slices.ContainsFunc(chapters, func(c chapter) bool { return i < len(c.steps) }); i += shares {
		for _, c := range chapters {
			step := ""
			if i < len(c.steps) {
				step = c.controller + "/" + c.steps[i]
			}
			if err := k.playKilled(c, step); err != nil {
				t.Fatalf("%s, killed after %q: %v", c.name, step, err)
			}
		}
	}
}

// alive holds the flags with which the test starts each manager. Only one manager runs at a time, so leader election is
// off, and no manager waits for the Lease of a killed manager. The manager does not check the state of the custom
// resource, because no operator sets this state.
var alive = []string{"--leader-elect=false", "--custom-state-check=false"}

// bringUp starts a landscape with runtime-a. The landscape is removed when the test ends.
func bringUp(t testing.TB, flags ...string) *scenario {
	t.Helper()
	return bringUpWith(t, landscape.Options{Runtimes: []string{"runtime-a"}, LongTimeouts: true,
		ManagerArgs: flags})
}

// bringUpWith is bringUp with options of the landscape.
func bringUpWith(t testing.TB, o landscape.Options) *scenario {
	t.Helper()
	slots <- struct{}{}
	ctx, cancel := context.WithCancel(context.Background())
	s := &scenario{ctx: ctx, dir: filepath.Join(t.TempDir(), "landscape")}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.describe())
		}
		if err := s.close(); err != nil {
			t.Errorf("stopping the landscape: %v", err)
		}
		if err := s.end(t.Failed()); err != nil {
			t.Error(err)
		}
		cancel()
		<-slots
	})
	if err := s.bringUp(o); err != nil {
		t.Fatal(err)
	}
	return s
}

// prepare publishes the module and registers the runtime.
func (k *killing) prepare() error {
	for _, version := range []string{"1.0.0", "2.0.0"} {
		if err := k.land.PushAndCreateModuleTemplate(k.ctx, landscape.Module{
			Name: "fragile", Version: version, Component: "kyma-project.io/module/fragile",
			Manifest: []byte(strings.ReplaceAll(fragile, "VERSION", version)), DefaultCR: []byte(fragileCR),
		}); err != nil {
			return err
		}
	}
	if err := k.land.SetChannels(k.ctx, "fragile", "kyma-project.io/module/fragile",
		map[string]string{"regular": "1.0.0", "fast": "2.0.0"}); err != nil {
		return err
	}
	return k.land.SetAccessSecret(k.ctx, "runtime-a", k.land.Clusters["runtime-a"].Kubeconfig())
}

// chapters returns the parts of the life cycle that the test runs. In the chapters that upgrade or disable a module,
// the manager is killed after steps of the Manifest controller. The test itself changes or deletes the Manifest in
// these chapters, because the Kyma controller is not running at that time.
func (k *killing) chapters() (create, upgrade, disable, enable, remove chapter) {
	want := func(modules ...v1beta2.Module) error {
		return k.land.PatchDesiredKymaSpec(k.ctx, "runtime-a", func(s *v1beta2.KymaSpec) { s.Modules = modules })
	}
	create = chapter{name: "a Kyma with a module is created", controller: "kyma",
		steps: append(slices.Clone(kymaInstall), "install:2"), end: "installed", reached: k.isAt("1/1", "1.0.0"),
		do: func(ctx context.Context) error {
			return k.kcp().Create(ctx, &v1beta2.Kyma{
				ObjectMeta: metav1.ObjectMeta{Name: "runtime-a", Namespace: k.land.Namespace()},
				Spec: v1beta2.KymaSpec{Channel: v1beta2.DefaultChannel,
					Modules: []v1beta2.Module{{Name: "fragile"}}},
			})
		}}
	enable = chapter{name: "a module is enabled", controller: "manifest", steps: manifestInstall, end: "installed",
		reached: k.isAt("1/1", "1.0.0"),
		do:      func(context.Context) error { return want(v1beta2.Module{Name: "fragile"}) }}
	upgrade = chapter{name: "a module changes its channel", controller: "manifest", steps: manifestInstall,
		end: "upgraded", reached: k.isAt("1/1", "2.0.0"),
		do: func(ctx context.Context) error {
			if err := want(v1beta2.Module{Name: "fragile", Channel: "fast"}); err != nil {
				return err
			}
			return k.order(ctx, "2.0.0")
		}}
	disable = chapter{name: "a module is disabled", controller: "manifest", steps: manifestDelete, end: "empty",
		reached: k.isAt("0/0", ""),
		do: func(ctx context.Context) error {
			if err := want(); err != nil {
				return err
			}
			return client.IgnoreNotFound(k.kcp().DeleteAllOf(ctx, &v1beta2.Manifest{},
				client.InNamespace(k.land.Namespace())))
		}}
	remove = chapter{name: "the Kyma is deleted", controller: "kyma",
		steps: append(slices.Clone(kymaDelete), "modules:2"), end: "nothing", reached: k.isGone,
		do: func(ctx context.Context) error {
			return k.kcp().Delete(ctx, &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "runtime-a",
				Namespace: k.land.Namespace()}})
		}}
	return create, upgrade, disable, enable, remove
}

func (k *killing) kcp() client.Client { return k.land.Clients[landscape.ControlPlane] }

// order writes the desired version into the Manifest, in place of the Kyma controller. When a chapter runs for the
// first time, the Kyma controller itself writes the Manifest, and order does nothing.
func (k *killing) order(ctx context.Context, version string) error {
	want := k.specs[version]
	if want == nil {
		return nil
	}
	is := &v1beta2.Manifest{}
	if err := k.kcp().Get(ctx, client.ObjectKeyFromObject(want), is); err != nil {
		return err
	}
	before := is.DeepCopy()
	is.Spec, is.Labels, is.Annotations = want.Spec, want.Labels, want.Annotations
	return k.kcp().Patch(ctx, is, client.MergeFrom(before))
}

// isAt returns a function that reports whether the Kymas in the control plane and in the runtime are Ready with this
// number of modules in this version.
func (k *killing) isAt(ready, version string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		for name, key := range k.copies() {
			copied := &v1beta2.Kyma{}
			if err := k.land.Clients[name].Get(ctx, key, copied); err != nil ||
				copied.Status.State != v1beta2.StateReady || copied.Status.ModulesReady != ready {
				return false
			}
			for _, m := range copied.Status.Modules {
				if m.Version != version {
					return false
				}
			}
		}
		return true
	}
}

// isGone reports whether the Kyma no longer exists.
func (k *killing) isGone(ctx context.Context) bool {
	return apierrors.IsNotFound(k.kcp().Get(ctx, k.copies()[landscape.ControlPlane], &v1beta2.Kyma{}))
}

// copies returns the names of the two copies of the Kyma, by cluster.
func (k *killing) copies() map[string]client.ObjectKey {
	_, remote := k.land.DesiredKymaKey("runtime-a")
	return map[string]client.ObjectKey{landscape.ControlPlane: {Namespace: k.land.Namespace(), Name: "runtime-a"},
		"runtime-a": remote}
}

// play runs a chapter (a part of the life cycle) without killing the manager. The state after the first such chapter is
// the expected state after all later chapters with the same end.
func (k *killing) play(c chapter) error {
	if err := c.do(k.ctx); err != nil {
		return err
	}
	return k.await(c)
}

// playKilled runs a chapter with a manager that is killed after a step, and then starts another manager. The parameter
// step has the form CONTROLLER/STEP. All objects that the first manager has installed must be in the inventory when it
// is killed. If step is empty, no manager is killed.
func (k *killing) playKilled(c chapter, step string) error {
	if step == "" {
		return k.play(c)
	}
	if err := k.land.Manager.Kill(); err != nil {
		return err
	}
	if err := c.do(k.ctx); err != nil {
		return err
	}
	k.land.ManagerArgs = append(slices.Clone(alive), "--exit-after-step="+step)
	if err := k.land.StartManagerWithoutWait(k.ctx); err != nil {
		return err
	}
	select {
	case <-k.land.Manager.Done():
	case <-time.After(waitTimeout):
		return fmt.Errorf("it was not killed in %s: does this step still come?", waitTimeout)
	}
	if exit, ok := errors.AsType[*exec.ExitError](k.land.Manager.Err()); !ok || exit.ExitCode() != 137 {
		return fmt.Errorf("it was not killed, but has ended: %w", k.land.Manager.Err())
	}
	if err := k.checkRecorded(); err != nil {
		return err
	}
	k.land.ManagerArgs = alive
	if err := k.land.StartManagerWithoutWait(k.ctx); err != nil {
		return err
	}
	return k.await(c)
}

// checkRecorded fails if an object that the killed manager left in the runtime for a module is in no inventory.
func (k *killing) checkRecorded() error {
	if err := k.land.Manager.Kill(); err != nil { // the process has already ended; this marks its end as expected
		return err
	}
	var left picture
	err := k.poll(func(ctx context.Context) (bool, string) {
		var err error
		left, err = k.look(ctx) // a kind may disappear during the check
		return err == nil, fmt.Sprint(err)
	})
	if err != nil {
		return err
	}
	known := k.ends["installed"].Unrecorded
	if lost := slices.DeleteFunc(left.Unrecorded, func(o string) bool { return slices.Contains(known, o) }); len(
		lost) > 0 {
		return fmt.Errorf("what it left behind is in no inventory: %s", strings.Join(lost, ", "))
	}
	return nil
}

// await waits until a chapter has reached its end state.
func (k *killing) await(c chapter) error {
	if err := k.poll(func(ctx context.Context) (bool, string) {
		return c.reached(ctx),
			"it does not get there"
	}); err != nil {
		return err
	}
	if err := k.settle(); err != nil {
		return err
	}
	want, known := k.ends[c.end]
	if !known {
		return k.remember(c)
	}
	return k.poll(func(ctx context.Context) (bool, string) {
		got, err := k.look(ctx)
		if err != nil {
			return false, err.Error()
		}
		diff := cmp.Diff(want, got)
		return diff == "", "(-never killed +killed)\n" + diff
	})
}

// lasting is the time for which a state must stay the same to be the end state of a chapter. It is longer than the
// ten seconds after which the manager saves progress that it has deferred. On a busy machine, the deferred save takes
// longer, and so do the reads of the state: lastingReads of them must show the same state. Without other work on the
// machine, they take less than lasting.
const (
	lasting      = 15 * time.Second
	lastingReads = 50
)

// remember waits until the state of the control plane and the runtime stays the same for the time lasting, and records
// this state. All later chapters with the same end must result in the same state.
func (k *killing) remember(c chapter) error {
	var got picture
	since, same := time.Now(), 0
	if err := k.poll(func(ctx context.Context) (bool, string) {
		now, err := k.look(ctx)
		if err != nil {
			since, same = time.Now(), 0
			return false, err.Error()
		}
		same++
		diff := cmp.Diff(got, now)
		if diff != "" {
			got, since, same = now, time.Now(), 0
		}
		return time.Since(since) >= lasting && same >= lastingReads, "(-before +now)\n" + diff
	}); err != nil {
		return err
	}
	k.ends[c.end] = got
	list := &v1beta2.ManifestList{}
	if err := k.kcp().List(k.ctx, list); err != nil {
		return err
	}
	for _, m := range list.Items {
		k.specs[m.Spec.Version] = m.DeepCopy()
	}
	return nil
}

// look returns a picture of the present state of the control plane and the runtime.
func (k *killing) look(ctx context.Context) (p picture, err error) {
	if p.Ours, err = k.oursIn(ctx, "runtime-a"); err != nil {
		return p, err
	}
	recorded, err := k.recorded()
	if err != nil {
		return p, err
	}
	p.Unrecorded = slices.DeleteFunc(slices.Clone(p.Ours), func(o string) bool { return recorded[o] })
	p.Objects, p.Kymas, p.Manifests = map[string]any{}, map[string]any{}, map[string]any{}
	for _, name := range []string{
		"crd/fragiles.fragile.example.com", "configmap/fragile", "serviceaccount/fragile-1.0.0",
		"serviceaccount/fragile-2.0.0",
		"Fragile.v1.fragile.example.com/fragile", "kyma/default",
	} {
		o, err := k.object("runtime-a:" + name)
		if err != nil {
			return p, err
		}
		u, err := o.read(ctx)
		if err != nil {
			return p, err
		}
		switch {
		case u == nil:
		case o.gvk.Kind == v1beta2.KindKyma:
			p.Kymas["runtime-a"] = still(u.Object["status"])
		default:
			p.Objects[name] = still(u.Object)
		}
	}
	kymas, manifests := &v1beta2.KymaList{}, &v1beta2.ManifestList{}
	if err := errors.Join(k.kcp().List(ctx, kymas), k.kcp().List(ctx, manifests)); err != nil {
		return p, err
	}
	for i := range kymas.Items {
		p.Kymas[landscape.ControlPlane] = map[string]any{"finalizers": kymas.Items[i].Finalizers,
			"status": still(generic(kymas.Items[i].Status))}
	}
	for i := range manifests.Items {
		m := &manifests.Items[i]
		p.Manifests[m.Name] = map[string]any{
			"finalizers": m.Finalizers, "labels": m.Labels, "annotations": m.Annotations, "spec": generic(m.Spec),
			"status": still(generic(m.Status)),
		}
	}
	return p, nil
}

// checkSteps returns an error if the lists of steps in this test differ from the steps in the manager's metrics.
func (k *killing) checkSteps() error {
	metrics, err := k.metrics()
	if err != nil {
		return err
	}
	for controller, lists := range map[string][][]string{"kyma": {kymaInstall, kymaDelete},
		"manifest": {manifestInstall, manifestDelete}} {
		const metric = "lifecycle_mgr_step_duration_seconds_count"
		of := fmt.Sprintf("controller=%q", controller)
		all := metrics.Sum(metric, of)
		steps := slices.Concat(lists...)
		slices.Sort(steps)
		for _, step := range slices.Compact(steps) {
			n := metrics.Sum(metric, of, fmt.Sprintf("step=%q", step))
			if n == 0 {
				return fmt.Errorf("controller %s has no step %s any more: take it out of the lists above", controller,
					step)
			}
			all -= n
		}
		if all != 0 {
			return fmt.Errorf("controller %s has a step that is in none of the lists above: put it there", controller)
		}
	}
	return nil
}

// generic converts v to its generic JSON form.
func generic(v any) (out any) {
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		return err.Error()
	}
	return out
}

// still returns v without fields that differ from run to run, and without counts of requests.
func still(v any) any {
	v = steady(v)
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			delete(v, "generation")
			delete(v, "observedGeneration")
			for _, e := range v {
				walk(e)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(v)
	return v
}
