package manager

import (
	"context"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ownWriteTimeout is the maximum time for which a read waits until the cache contains our own writes.
const ownWriteTimeout = 5 * time.Second

// boundedClient is a client that reads from the cache. Get waits until the cache contains our own writes of the object,
// but only for a limited time.
//
// The cache contains a write when it has received an event with the resource version of the write, or with a later
// resource version. In one case there is no such event: the write was the last write of an object, and the connection
// broke before the event was sent. The next list of the API server then does not contain the object. In an idle control
// plane, each Get of that object would wait until somebody changes another object of the kind.
//
// List does not wait. List would have to wait for all current writes of the kind. In a rollout, there are hundreds of
// these writes. The lookup of an agent's identity would wait for all of them, and so would a reconcile for a person
// that lists its Manifests. A caller that needs its own writes in a list has to use the answers of these writes.
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
	// The timeout has passed. If the cache is still behind, another reconcile follows when the cache receives the
	// event.
	return c.Client.Get(ctx, key, o, append(slices.Clip(opts), client.DisableReadYourWritesConsistency)...)
}

// List implements [client.Reader].
func (c boundedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.Client.List(ctx, list, append(slices.Clip(opts), client.DisableReadYourWritesConsistency)...)
}
