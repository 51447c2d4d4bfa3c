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
// one case the cache never receives such an event: the object is deleted soon after the write, and the watch connection
// breaks before the event of the write is sent. The list after the reconnection lacks the deleted object. Without a
// time limit, each Get of the deleted object would wait until another object of the same kind is changed.
//
// List does not wait for our own writes, because it would have to wait for all current writes of the kind: during a
// rollout, there are hundreds of concurrent writes. The lookup of an agent's identity and the reconcile that a person
// waits for both use List, and would be delayed. A list may therefore lack the caller's own writes. A caller that needs
// its own writes has to use the objects that the write requests returned.
type boundedClient struct {
	client.Client
	timeout time.Duration
}

func newBoundedReadYourWritesClient(cfg *rest.Config, o client.Options) (client.Client, error) {
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
	// ownWriteTimeout has passed. If the cache still lacks our write, its event triggers another reconcile later.
	return c.Client.Get(ctx, key, o, append(slices.Clip(opts), client.DisableReadYourWritesConsistency)...)
}

// List implements [client.Reader].
func (c boundedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.Client.List(ctx, list, append(slices.Clip(opts), client.DisableReadYourWritesConsistency)...)
}
