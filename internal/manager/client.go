package manager

import (
	"context"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// catchUp is how long a read waits for the cache to have seen our own writes.
const catchUp = 5 * time.Second

// patientClient reads from the cache and sees its own writes of the object that it gets, but does not wait for them for ever.
//
// A write is seen when the cache gets an event with its resource version or a later one. If the write was the last of an object, and the connection
// broke before the event came, there is none: the next list of the API server just does not have the object. In a quiet control plane,
// whatever gets that object would wait until somebody changes one.
//
// Lists see what the cache has. Else each would wait for all writes of its kind that are under way, of which there are hundreds in a roll-out: an agent
// that asks who it is, and a person's pass that looks for its Manifests, would stand behind all of them. Who needs a list with its own writes gets
// what is on it.
type patientClient struct {
	client.Client
	wait time.Duration
}

func newClient(config *rest.Config, o client.Options) (client.Client, error) {
	c, err := client.New(config, o)
	return patientClient{c, catchUp}, err
}

func (c patientClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.patiently(ctx, func(ctx context.Context) error { return c.Client.Get(ctx, key, o, opts...) },
		func() error {
			return c.Client.Get(ctx, key, o, append(slices.Clip(opts), client.DisableReadYourWritesConsistency)...)
		})
}

func (c patientClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.Client.List(ctx, list, append(slices.Clip(opts), client.DisableReadYourWritesConsistency)...)
}

// patiently reads, and if that takes too long, reads what there is. A pass that sees too little is mended by the next.
func (c patientClient) patiently(ctx context.Context, read func(context.Context) error, anyhow func() error) error {
	limited, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	err := read(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return anyhow()
	}
	return err
}
