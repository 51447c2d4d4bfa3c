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

// fragile is a module without an operator; each version has something that the other one has not.
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

// fragileCR switches it on.
const fragileCR = `{apiVersion: fragile.example.com/v1, kind: Fragile, metadata: {name: fragile, namespace: kyma-system}}`

// The steps of the stories, as the controllers have them. That none is missing is checked against the metric of steps.
var (
	kymaInstall = []string{"adopt", "assume", "connect", "sync", "remember", "resolve", "install", "remove",
		"catalog", "settle", "watchlist", "agent", "requeue", "publish"}
	kymaDelete      = []string{"announce", "connect", "admission", "modules", "runtime", "release", "publish"}
	manifestInstall = []string{"adopt", "connect", "decide", "reach", "render", "record", "apply", "resource", "prune",
		"observe", "audit", "publish"}
	manifestDelete = []string{"connect", "blockers", "resource", "teardown", "release"}
)

// chapter is a part of the story: what people do, and the steps that the manager then takes.
type chapter struct {
	name       string
	controller string
	steps      []string                    // after which the manager is killed; with :2 after the second time
	do         func(context.Context) error // also while the manager is away
	reached    func(context.Context) bool  // the end is near, so that it is worth a closer look
	end        string                      // what it leads to; chapters with the same end leave the same behind
}

// picture is all that is left in both clusters by a chapter.
type picture struct {
	Ours       []string       // objects in the runtime with the label of what the manager made
	Unrecorded []string       // those of them that no inventory has
	Objects    map[string]any // the module's, without what differs from run to run
	Kymas      map[string]any // status of the copies
	Manifests  map[string]any
}

// killing is the test that kills.
type killing struct {
	*scenario
	ends  map[string]picture           // how each chapter ends when nobody is killed, by end
	specs map[string]*v1beta2.Manifest // as the Kyma controller writes them, by version
}

// TestKilledAtEveryStep runs the life cycle of a module and of a Kyma again and again, and kills the manager after each
// of its steps once. Started again, it comes to the same end as the one that was never killed.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
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
	rounds := func(chapters ...chapter) {
		for i := 0; !t.Failed() && slices.ContainsFunc(
			chapters, func(c chapter) bool { return i < len(c.steps) }); i++ {
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
	rounds(create, remove)
	create.steps = nil
	if err := errors.Join(k.play(create), k.play(disable)); err != nil {
		t.Fatal(err)
	}
	rounds(enable, upgrade, disable)
}

// alive are the flags of the manager. There is one at a time, so that nobody has to wait for the lease of one that was
// killed; and nobody sets the state of the module's custom resource.
var alive = []string{"--leader-elect=false", "--custom-state-check=false"}

// bringUp starts a landscape with runtime-a, which goes with the test.
func bringUp(t testing.TB, flags ...string) *scenario {
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
		cancel()
		<-slots
	})
	starting <- struct{}{}
	defer func() { <-starting }()
	var err error
	if s.land, err = landscape.Up(ctx, landscape.Options{Dir: s.dir, Bin: bin, Runtimes: []string{"runtime-a"},
		ManagerArgs: flags}); err != nil {
		s.land = nil // it was stopped again
		t.Fatal(err)
	}
	return s
}

// prepare publishes the module and makes the runtime known.
func (k *killing) prepare() error {
	for _, version := range []string{"1.0.0", "2.0.0"} {
		if err := k.land.Publish(k.ctx, landscape.Module{
			Name: "fragile", Version: version, Component: "kyma-project.io/module/fragile",
			Manifest: []byte(strings.ReplaceAll(fragile, "VERSION", version)), DefaultCR: []byte(fragileCR),
		}); err != nil {
			return err
		}
	}
	if err := k.land.Assign(k.ctx, "fragile", "kyma-project.io/module/fragile",
		map[string]string{"regular": "1.0.0", "fast": "2.0.0"}); err != nil {
		return err
	}
	return k.land.SetAccess(k.ctx, "runtime-a", k.land.Clusters["runtime-a"].Kubeconfig())
}

// chapters returns the story. What the other controller does first is done here, where a step has a namesake in another
// story: with the manager away, nobody else can.
func (k *killing) chapters() (create, upgrade, disable, enable, remove chapter) {
	want := func(modules ...v1beta2.Module) error {
		return k.land.Edit(k.ctx, "runtime-a", func(s *v1beta2.KymaSpec) { s.Modules = modules })
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

// order lets the Manifest ask for a version as the Kyma controller does. In the first telling, it does.
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

// isAt reports whether both copies of the Kyma are Ready with so many modules, which have that version.
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

// isGone reports whether there is no Kyma any more.
func (k *killing) isGone(ctx context.Context) bool {
	return apierrors.IsNotFound(k.kcp().Get(ctx, k.copies()[landscape.ControlPlane], &v1beta2.Kyma{}))
}

// copies are where the two copies of the Kyma are, by cluster.
func (k *killing) copies() map[string]client.ObjectKey {
	_, remote := k.land.RequestKey("runtime-a")
	return map[string]client.ObjectKey{landscape.ControlPlane: {Namespace: k.land.Namespace(), Name: "runtime-a"},
		"runtime-a": remote}
}

// play runs a chapter without a fault. The first time, its end is what others with that end have to come to.
func (k *killing) play(c chapter) error {
	if err := c.do(k.ctx); err != nil {
		return err
	}
	return k.await(c)
}

// playKilled runs a chapter with a manager that is killed after a step, which is CONTROLLER/STEP, and then with another
// one. What the first one has installed is in the inventory when it dies. Without a step nobody is killed.
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
	if err := k.land.StartManager(k.ctx); err != nil {
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
	if err := k.land.StartManager(k.ctx); err != nil {
		return err
	}
	return k.await(c)
}

// checkRecorded fails if the manager that was killed has left something of a module in the runtime that is in no
// inventory.
func (k *killing) checkRecorded() error {
	if err := k.land.Manager.Kill(); err != nil { // it has ended; this marks its end as expected
		return err
	}
	var left picture
	err := k.poll(func(ctx context.Context) (bool, string) {
		var err error
		left, err = k.look(ctx) // a kind may go while we look
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

// await waits until a chapter has come to its end.
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

// remember takes the end of a chapter as the one to come to.
func (k *killing) remember(c chapter) error {
	got, err := k.look(k.ctx)
	if err != nil {
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

// look takes a picture.
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

// checkSteps fails if the steps that the manager took are others than the ones it will be killed after.
func (k *killing) checkSteps() error {
	for controller, lists := range map[string][][]string{"kyma": {kymaInstall, kymaDelete},
		"manifest": {manifestInstall, manifestDelete}} {
		const metric = "lifecycle_mgr_step_duration_seconds_count"
		of := fmt.Sprintf("controller=%q", controller)
		all, err := k.land.Metric(k.ctx, metric, of)
		if err != nil {
			return err
		}
		steps := slices.Concat(lists...)
		slices.Sort(steps)
		for _, step := range slices.Compact(steps) {
			n, err := k.land.Metric(k.ctx, metric, of, fmt.Sprintf("step=%q", step))
			if err != nil {
				return err
			}
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

// generic returns v as JSON has it.
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

// still returns v without what differs from run to run, or with how often something was asked for.
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
