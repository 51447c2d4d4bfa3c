package manifest

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/target"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// runWith returns a reconcile of a Manifest with one CRD, n ConfigMaps and n custom resources of another group.
func runWith(t testing.TB, n int) *run {
	t.Helper()
	server := newFakeRuntime(t)
	server.kinds["example.com/v1/things"] = "Thing"
	pool, err := runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{Host: server.URL},
		Timeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := apply.New(&rest.Config{Host: server.URL}, nil,
		apply.ClusterOptions{RequestTimeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "a-big",
		Labels: map[string]string{v1beta2.LabelKymaName: "a"}}}
	r := &run{manifest: m, runtime: &runtimes.Runtime{Cluster: cluster}, cluster: target.Of(m, pool,
		&target.ControlPlane{}), refs: []apply.Ref{{Group: "apiextensions.k8s.io", Version: "v1",
		Kind: "CustomResourceDefinition", Name: "bigs.big.example.com"}}}
	for i := range n {
		r.refs = append(r.refs,
			apply.Ref{Version: "v1", Kind: "ConfigMap", Namespace: "kyma-system", Name: fmt.Sprint("c-", i)},
			apply.Ref{Group: "example.com", Version: "v1", Kind: "Thing", Namespace: "kyma-system",
				Name: fmt.Sprint("t-", i)})
	}
	return r
}

// BenchmarkInterests measures how the kinds of a module are found, by the number of its objects.
func BenchmarkInterests(b *testing.B) {
	for _, n := range []int{25, 250} {
		b.Run(fmt.Sprint(2*n), func(b *testing.B) {
			r := runWith(b, n)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.interests(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
