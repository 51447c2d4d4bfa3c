package manager

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/source"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
)

// TestLogin checks that the credentials are sent only to the registry that they belong to, in any spelling of its
// address.
func TestLogin(t *testing.T) {
	cases := map[string]struct {
		reason, entry, asks, want string
	}{
		"Host":   {"a name alone", "registry.example.com", "registry.example.com", "admin"},
		"Port":   {"a name and a port", "registry.example.com:5000", "registry.example.com:5000", "admin"},
		"Path":   {"a path is not part of the name", "registry.example.com/modules", "registry.example.com", "admin"},
		"Scheme": {"as other tools write it", "https://registry.example.com", "registry.example.com", "admin"},
		"Plain": {"a registry without TLS", "http://registry.example.com:5000/modules",
			"registry.example.com:5000", "admin"},
		"Other": {"nobody else gets it", "registry.example.com", "registry.example.org", ""},
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			secret := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "login"},
				Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(
					`{"auths":{"` + c.entry + `":{"username":"admin","password":"x"}}}`)},
			}
			k := keychain{reader: fake.NewClientBuilder().WithObjects(secret).Build(),
				key: client.ObjectKeyFromObject(secret)}
			asks, err := name.NewRegistry(c.asks)
			if err != nil {
				t.Fatal(err)
			}
			login, err := k.ResolveContext(t.Context(), asks)
			if err != nil {
				t.Fatal(err)
			}
			got, err := authn.Authorization(t.Context(), login)
			if err != nil || got.Username != c.want {
				t.Errorf("%s: logs in as %q (%v), want %q", c.reason, got.Username, err, c.want)
			}
		})
	}
}

// TestSharedPullOfLostShard checks a pull that was started by a reconcile whose shard was lost in the meantime. Because
// reconciles of other shards wait for the pull, it can read the credentials of the manager and those of a Manifest.
func TestSharedPullOfLostShard(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "login"},
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(
			`{"auths":{"registry.example.com":{"username":"admin","password":"x"}}}`)},
	}
	fenced := interceptor.NewClient(fake.NewClientBuilder().WithObjects(secret).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			return errors.Join(shard.CheckHeld(ctx), c.Get(ctx, key, o, opts...))
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return errors.Join(shard.CheckHeld(ctx), c.List(ctx, list, opts...))
		},
	})
	ctx := contextOfLostShard(t)
	registry, err := name.NewRegistry("registry.example.com")
	if err != nil {
		t.Fatal(err)
	}
	k := keychain{reader: fenced, key: client.ObjectKeyFromObject(secret)}
	if _, err := k.ResolveContext(ctx, registry); err != nil {
		t.Errorf("the credentials of the manager: %v", err)
	}
	m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "a"}}
	m.Spec.Install = v1beta2.InstallInfo{Name: v1beta2.RawManifest, Source: runtime.RawExtension{Raw: []byte(
		`{"type":"oci-ref","repo":"registry.example.com","name":"a","ref":"1.0.0",` +
			`"credSecretSelector":{"matchLabels":{"for":"nobody"}}}`)}}
	_, err = source.NewFinder(source.Options{Secrets: fenced}).Find(ctx, m)
	if loop.Reason(err) != v1beta2.ReasonLoginNotFound {
		t.Errorf("the credentials of a Manifest: got %v, want the error that no Secret matches", err)
	}
}

// contextOfLostShard returns the context of work that was started by a reconcile whose shard was lost later.
func contextOfLostShard(t *testing.T) context.Context {
	t.Helper()
	const kyma = "runtime-a"
	opened := make(chan struct{})
	keeper, err := shard.New(shard.Options{Leases: &memoryLeases{}, Opened: func(n int) {
		if n == shard.Of(kyma) {
			close(opened)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- keeper.Start(running) }()
	<-opened
	ctx, done, held := keeper.BeginReconcile(t.Context(), kyma)
	done()
	stop()
	if err := <-stopped; err != nil || !held || !errors.Is(shard.CheckHeld(ctx), shard.ErrLost) {
		t.Fatalf("the shard was held: %t; it was not lost: %v, %v", held, shard.CheckHeld(ctx), err)
	}
	return context.WithoutCancel(ctx)
}

// memoryLeases stores the Leases of one replica in memory. It has only the methods that are called before a Lease has
// to be renewed.
type memoryLeases struct {
	shard.Leases
	mu     sync.Mutex
	leases []coordinationv1.Lease // guarded by mu
}

func (m *memoryLeases) Create(_ context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (
	*coordinationv1.Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leases = append(m.leases, *l)
	return l, nil
}

func (m *memoryLeases) List(context.Context, metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: "1"},
		Items: slices.Clone(m.leases)}, nil
}

func (m *memoryLeases) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

func (m *memoryLeases) Delete(context.Context, string, metav1.DeleteOptions) error { return nil }
