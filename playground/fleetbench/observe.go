package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// shown has the fields of a Kyma that the benchmark needs.
type shown struct {
	there   bool
	state   v1beta2.State
	message string
	heard   bool // the Kyma shows the agent as connected
	agent   string
	modules map[string]shownModule
}

// shownModule is the status of one module in a Kyma.
type shownModule struct {
	version string
	state   v1beta2.State
	message string
}

// ready reports whether the Kyma shows a module as Ready in the given version.
func (s *shown) ready(module, version string) bool {
	m := s.modules[module]
	return m.version == version && m.state == v1beta2.StateReady
}

// observer watches the Kymas in the control plane with one watch, and keeps the latest state of each.
type observer struct {
	mu     sync.Mutex
	shown  []shown                  // by index of the cluster; guarded by mu, as all following fields
	follow map[int]func(int, shown) // the listeners, each with a number
	next   int
}

// observe starts an observer of the Kymas. The observer runs until the context ends.
func observe(ctx context.Context, c client.WithWatch, clusters int) *observer {
	o := &observer{shown: make([]shown, clusters), follow: map[int]func(int, shown){}}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &v1beta2.KymaList{}
			return list, c.List(ctx, list, &client.ListOptions{Namespace: v1beta2.ControlPlaneNamespace, Raw: &options})
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, &v1beta2.KymaList{},
				&client.ListOptions{Namespace: v1beta2.ControlPlaneNamespace, Raw: &options})
		},
	}
	reflector := cache.NewReflectorWithOptions(lw, &v1beta2.Kyma{}, o, cache.ReflectorOptions{Name: "fleetbench"})
	go reflector.RunWithContext(ctx)
	return o
}

// onKymaChange calls f for each change of a Kyma until stop is called. f must neither block nor call the observer.
func (o *observer) onKymaChange(f func(i int, s shown)) (stop func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next++
	number := o.next
	o.follow[number] = f
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.follow, number)
	}
}

// statusOf returns the latest status that the observer has received for the Kyma of a cluster.
func (o *observer) statusOf(i int) shown {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.shown[i]
}

// countKymas returns the number of Kymas for which the function is() returns true.
func (o *observer) countKymas(is func(s *shown) bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for i := range o.shown {
		if is(&o.shown[i]) {
			n++
		}
	}
	return n
}

// runtimeName is the prefix of the cluster names in package fleet.
const runtimeName = "runtime-"

// clusterIndexOf returns the index of the cluster that belongs to a Kyma.
func clusterIndexOf(kymaName string) (int, error) {
	i, err := strconv.Atoi(strings.TrimPrefix(kymaName, runtimeName))
	if err != nil {
		return 0, fmt.Errorf("finding the cluster of Kyma %q: %w", kymaName, err)
	}
	return i, nil
}

func (o *observer) setStatus(name string, s shown) error {
	i, err := clusterIndexOf(name)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if i >= len(o.shown) {
		return fmt.Errorf("following Kymas: %q stands for no cluster", name)
	}
	o.shown[i] = s
	for _, f := range o.follow {
		f(i, s)
	}
	return nil
}

// Add implements cache.ReflectorStore.
func (o *observer) Add(object any) error { return o.Update(object) }

// Update implements cache.ReflectorStore.
func (o *observer) Update(object any) error {
	k, ok := object.(*v1beta2.Kyma)
	if !ok {
		return fmt.Errorf("following Kymas: got %T", object)
	}
	s := shown{there: true, state: k.Status.State, message: strings.Clone(k.Status.LastOperation.Operation),
		modules: make(map[string]shownModule, len(k.Status.Modules))}
	if a := k.Status.Agent; a != nil {
		s.heard, s.agent = a.Connected, strings.Clone(a.Message)
	}
	for _, m := range k.Status.Modules {
		s.modules[m.Name] = shownModule{m.Version, m.State, m.Message}
	}
	return o.setStatus(k.Name, s)
}

// Delete implements cache.ReflectorStore.
func (o *observer) Delete(object any) error {
	k, ok := object.(*v1beta2.Kyma)
	if !ok {
		return fmt.Errorf("following Kymas: got %T", object)
	}
	return o.setStatus(k.Name, shown{})
}

// Replace implements cache.ReflectorStore.
func (o *observer) Replace(objects []any, _ string) error {
	there := map[int]bool{}
	for _, object := range objects {
		k, ok := object.(*v1beta2.Kyma)
		if !ok {
			return fmt.Errorf("following Kymas: got %T", object)
		}
		if i, err := clusterIndexOf(k.Name); err == nil {
			there[i] = true
		}
		if err := o.Update(k); err != nil {
			return err
		}
	}
	for i := range o.shown {
		if !there[i] && o.statusOf(i).there {
			if err := o.setStatus(runtimeName+strconv.Itoa(i), shown{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (o *observer) Resync() error { return nil }
