package scenario

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// small is a module without an operator, so that a cycle is short.
const small = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: smalls.small.example.com}
spec:
  group: small.example.com
  scope: Namespaced
  names: {kind: Small, listKind: SmallList, plural: smalls, singular: small}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: small, namespace: kyma-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: small, namespace: kyma-system}
spec:
  selector: {matchLabels: {app: small}}
  template:
    metadata: {labels: {app: small}}
    spec: {containers: [{name: main, image: registry.example.com/small:1}]}
`

const (
	// cycles is the number of times that the module is enabled and disabled.
	cycles = 20
	// warm is the cycle after which the manager has all resources that it keeps: connections, watches, caches.
	warm = 3
)

// usage is the number of resources that the manager and its clusters use.
type usage struct {
	Goroutines, Files, Connections float64  // counts of the manager
	Runtime                        []string // objects in the runtime with the manager's label
	Manifests                      int      // number of Manifests in the control plane
}

// TestNothingLeaks enables and disables a module many times, each time with another credential for the runtime. The
// usage at the end must equal the usage after the first few cycles.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	s := bringUp(t, "--leader-elect=false") // a manager that loses its Lease on a busy machine ends
	if err := s.cycle(t.Context(), t); err != nil {
		t.Fatal(err)
	}
}

// cycle enables and disables a module many times. cycle compares the numbers of the manager's goroutines, files and
// connections after some cycles with the numbers after all cycles. The objects in the runtime are compared, too.
func (s *scenario) cycle(ctx context.Context, t *testing.T) error {
	m := landscape.Module{Name: "small", Version: "1.0.0", Component: "kyma-project.io/module/small",
		Manifest: []byte(small)}
	if err := s.land.PushAndCreateModuleTemplate(ctx, m); err != nil {
		return err
	}
	if err := s.land.SetChannels(ctx, m.Name, m.Component,
		map[string]string{v1beta2.DefaultChannel: m.Version}); err != nil {
		return err
	}
	if err := s.land.Register(ctx, "runtime-a", v1beta2.DefaultChannel); err != nil {
		return err
	}
	if err := s.seeReady("0/0"); err != nil {
		return err
	}
	var before usage
	for i := range cycles {
		if err := s.rotate(ctx, i); err != nil {
			return err
		}
		if err := s.land.PatchDesiredKymaSpec(ctx, "runtime-a", func(
			k *v1beta2.KymaSpec) {
			k.Modules = []v1beta2.Module{{Name: m.Name}}
		}); err != nil {
			return err
		}
		if err := s.seeReady("1/1"); err != nil {
			return fmt.Errorf("enabling, cycle %d: %w", i+1, err)
		}
		if err := s.land.PatchDesiredKymaSpec(ctx, "runtime-a",
			func(k *v1beta2.KymaSpec) { k.Modules = nil }); err != nil {
			return err
		}
		if err := s.seeReady("0/0"); err != nil {
			return fmt.Errorf("disabling, cycle %d: %w", i+1, err)
		}
		if i+1 == warm {
			var err error
			if before, err = s.usage(ctx); err != nil {
				return err
			}
		}
	}
	// Requests and connections cause small differences in the numbers of goroutines and files. A leak of one goroutine
	// or file per cycle causes a larger difference. On a busy machine, connections are closed later.
	const some, attempts = (cycles - warm) / 2, 20
	var after usage
	isMore := true
	for i := 0; isMore && i < attempts; i++ {
		var err error
		if after, err = s.usage(ctx); err != nil {
			return err
		}
		isMore = after.Goroutines > before.Goroutines+some || after.Files > before.Files+some
	}
	t.Logf("after %d cycles: %+v; after %d: %+v", warm, before, cycles, after)
	if isMore {
		t.Errorf("the manager has %v goroutines and %v files, it had %v and %v", after.Goroutines, after.Files,
			before.Goroutines, before.Files)
	}
	before.Goroutines, before.Files, after.Goroutines, after.Files = 0, 0, 0, 0
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("something is left (-after %d cycles +after %d):\n%s", warm, cycles, diff)
	}
	return nil
}

// rotate replaces the manager's credential for the runtime.
func (s *scenario) rotate(ctx context.Context, i int) error {
	kubeconfig, err := s.land.CreateAdmin(ctx, "runtime-a", fmt.Sprintf("user-%d", i+1))
	if err != nil {
		return err
	}
	return s.land.SetAccessSecret(ctx, "runtime-a", kubeconfig)
}

// seeReady waits until the Kyma in the runtime is Ready and has this number of modules, as in 1/1.
func (s *scenario) seeReady(modules string) error {
	where, key := s.land.DesiredKymaKey("runtime-a")
	return s.poll(func(ctx context.Context) (bool, string) {
		k := &v1beta2.Kyma{}
		if err := s.land.Clients[where].Get(ctx, key, k); err != nil {
			return false, err.Error()
		}
		return k.Status.State == v1beta2.StateReady && k.Status.ModulesReady == modules, text(k.Status)
	})
}

// usage waits until the manager has no work, and returns the present usage.
func (s *scenario) usage(ctx context.Context) (u usage, err error) {
	if err := s.settle(); err != nil {
		return usage{}, err
	}
	all, err := s.metrics()
	if err != nil {
		return usage{}, err
	}
	u.Goroutines, u.Files = all.Sum("go_goroutines"), all.Sum("process_open_fds")
	u.Connections = all.Sum("lifecycle_mgr_runtimes")
	if u.Runtime, err = s.oursIn(ctx, "runtime-a"); err != nil {
		return usage{}, err
	}
	list := &v1beta2.ManifestList{}
	if err := s.land.Clients[landscape.ControlPlane].List(ctx, list); err != nil {
		return usage{}, fmt.Errorf("listing Manifests: %w", err)
	}
	u.Manifests = len(list.Items)
	return u, nil
}
