package kyma

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
)

// indexed is a client for tests that lists Kymas by an index, as the cache of a manager does.
type indexed struct {
	client.Client // its other methods are not called

	kymas toolscache.Indexer
}

func (i indexed) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return fmt.Errorf("not in this benchmark")
}

func (i indexed) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	of := o.FieldSelector.Requirements()[0]
	found, err := i.kymas.ByIndex(of.Field, of.Value)
	if err != nil {
		return err
	}
	for _, k := range found {
		list.(*v1beta2.KymaList).Items = append(list.(*v1beta2.KymaList).Items, *k.(*v1beta2.Kyma))
	}
	return nil
}

// BenchmarkRelease changes the release of one module in a catalog of 100 modules. BenchmarkRelease measures a module
// that 500 of 10,000 Kymas have, and a module that 5 Kymas have. The measured time per change should depend only on the
// number of Kymas that have the module, and not on the number of all Kymas.
func BenchmarkRelease(b *testing.B) {
	kymas := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{
		moduleIndex: func(o any) ([]string, error) { return modulesOf(o.(*v1beta2.Kyma)), nil },
	})
	for i := range 10000 {
		k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: fmt.Sprintf("runtime-%d", i)}}
		for m := range 5 {
			k.Status.Modules = append(k.Status.Modules,
				v1beta2.ModuleStatus{Name: fmt.Sprintf("module-%d", (i+m*20)%100)})
		}
		if i%2000 == 0 {
			k.Status.Modules = append(k.Status.Modules, v1beta2.ModuleStatus{Name: "rare"})
		}
		if err := kymas.Add(k); err != nil {
			b.Fatal(err)
		}
	}
	r := testReconciler(b, Options{Client: indexed{kymas: kymas}, Namespace: "kcp-system", Concurrency: 2 * 10000})
	for name, users := range map[string]int{"module-7": 500, "rare": 5} {
		b.Run(fmt.Sprintf("users=%d", users), func(b *testing.B) {
			b.ReportAllocs()
			release := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Name: name}}
			for b.Loop() {
				q := queueOf(b, r)
				r.enqueueKymasUsing(b.Context(), release)
				if got := len(q.all()); got != users {
					b.Fatalf("%d Kymas are enqueued, want %d", got, users)
				}
			}
		})
	}
}

// BenchmarkResolve resolves the modules of one Kyma in a catalog of 100 modules with 5 channels. The measured time per
// Kyma should depend only on the number of modules of the Kyma, and not on the size of the catalog.
func BenchmarkResolve(b *testing.B) {
	releases, templates := map[string]*v1beta2.ModuleReleaseMeta{}, map[string]*v1beta2.ModuleTemplate{}
	channels := []string{"regular", "fast", "slow", "edge", "trial"}
	for m := range 100 {
		r := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("module-%d", m)}}
		r.Spec.OCMComponentName = "example.com/module"
		for c, name := range channels {
			version := fmt.Sprintf("1.%d.0", c)
			r.Spec.Channels = append(r.Spec.Channels, v1beta2.ChannelVersion{Channel: name, Version: version})
			t := &v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: channel.TemplateName(r.Name, version)}}
			templates[t.Name] = t
		}
		releases[r.Name] = r
	}
	catalog := channel.Catalog{
		Release:  func(name string) *v1beta2.ModuleReleaseMeta { return releases[name] },
		Template: func(name string) *v1beta2.ModuleTemplate { return templates[name] },
	}
	k := &v1beta2.Kyma{Spec: v1beta2.KymaSpec{Channel: "fast"}}
	for m := range 6 {
		k.Spec.Modules = append(k.Spec.Modules, v1beta2.Module{Name: fmt.Sprintf("module-%d", m*10)})
	}
	b.ReportAllocs()
	for b.Loop() {
		for i := range k.Spec.Modules {
			if d := channel.Resolve(catalog, channel.RequestFor(k, k, &k.Spec.Modules[i])); d.Blocker != nil {
				b.Fatal(d.Blocker)
			}
		}
	}
}
