package manager

import (
	"context"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ownWriteTimeout is the maximum time that a read waits until the cache contains our own writes.
const ownWriteTimeout = 5 * time.Second

// boundedClient is a client whose reads come from the cache. Before Get returns an object, it waits until the cache
// contains our own writes of the object, but only for a limited time.
//
// The cache contains a write when it has received an event with the resource version of the write, or a later one. In
// one case there is no such event: the write was the last write of the object before it was deleted, and the connection
// broke before the event was sent. After that, the next list from the API server does not contain the object. In an
// idle control plane, each Get of the object would then wait until somebody changes another object of the same kind.
//
// List does not wait for own writes. Otherwise List would have to wait for all current writes of the kind. During a
// rollout, there are hundreds of such writes. The lookup of an agent's identity would have to wait for all of them, and
// so would a reconcile that a person waits for, because it lists Manifests. If a caller needs its own writes in a list,
// it has to use the answers to these writes.
type boundedClient struct {
	client.Client
	timeout time.Duration
}

func newClient(cfg *rest.Config, o client.Options) (client.Client, error) {
	c, err := client.New(cfg, o)
	return boundedClient{c, ownWriteTimeout}, err
}

// Get implements [client.Reader].
func (c boundedClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := c.Client.Get(limited, key, o, opts...)
	if err == nil || limited.Err() == nil || ctx.Err() != nil {
		return err
	}
	// ownWriteTimeout has passed. If the cache still lacks the write, its event triggers another reconcile later.
	return c.Client.Get(ctx, key, o, append(slices.Clip(opts), client.DisableReadYourWritesConsistency)...)
}

// List implements [client.Reader].
func (c boundedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.Client.List(ctx, list, append(slices.Clip(opts), client.DisableReadYourWritesConsistency)...)
}
