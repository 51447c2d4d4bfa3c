package shardcache

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Client is the client of a controller-runtime manager that uses a Cache. In a reconcile, Client reads sharded kinds
// from the cache of the shard of that reconcile. A read of a sharded kind waits until the cache contains the writes of
// the same reconcile. Outside of a reconcile, Client reads like Cache, and reads do not wait for writes.
type Client struct {
	client.Client // for kinds that are not sharded
	cache         *Cache
	live          client.Client
}

// NewClient returns a Client. The parameter unsharded is the client for kinds that are not divided into shards. The
// parameter live is a client without a cache.
func NewClient(c *Cache, unsharded, live client.Client) *Client { return &Client{unsharded, c, live} }

// clientFor returns the client with which an object or list is read.
func (c *Client) clientFor(ctx context.Context, o runtime.Object) (client.Client, error) {
	kind, err := c.cache.shardedInformerOrNil(o)
	if err != nil {
		return nil, err
	}
	if kind == nil {
		return c.Client, nil
	}
	own, _, err := c.cache.cachesFor(ctx)
	switch {
	case err != nil:
		return nil, err
	case own == nil:
		return c.live, nil
	}
	return own.client, nil
}

// with calls the function do with the client that is responsible for an object.
func (c *Client) with(ctx context.Context, o runtime.Object, do func(to client.Client) error) error {
	to, err := c.clientFor(ctx, o)
	if err != nil {
		return err
	}
	return do(to)
}

// Get implements [client.Reader].
func (c *Client) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	to, err := c.clientFor(ctx, o)
	if err != nil {
		return err
	}
	if to == c.live {
		return c.cache.Get(ctx, key, o, opts...)
	}
	return to.Get(ctx, key, o, opts...)
}

// List implements [client.Reader].
func (c *Client) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	to, err := c.clientFor(ctx, list)
	if err != nil {
		return err
	}
	if to == c.live {
		return c.cache.List(ctx, list, opts...)
	}
	return to.List(ctx, list, opts...)
}

// Create implements [client.Writer].
func (c *Client) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return c.with(ctx, o, func(to client.Client) error { return to.Create(ctx, o, opts...) })
}

// Delete implements [client.Writer].
func (c *Client) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return c.with(ctx, o, func(to client.Client) error { return to.Delete(ctx, o, opts...) })
}

// Update implements [client.Writer].
func (c *Client) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return c.with(ctx, o, func(to client.Client) error { return to.Update(ctx, o, opts...) })
}

// Patch implements [client.Writer].
func (c *Client) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return c.with(ctx, o, func(to client.Client) error { return to.Patch(ctx, o, patch, opts...) })
}

// DeleteAllOf implements [client.Writer].
func (c *Client) DeleteAllOf(ctx context.Context, o client.Object, opts ...client.DeleteAllOfOption) error {
	return c.with(ctx, o, func(to client.Client) error { return to.DeleteAllOf(ctx, o, opts...) })
}

// Status implements [client.StatusClient].
func (c *Client) Status() client.SubResourceWriter { return subresource{c.Client.Status(), c} }

// subresource is the status writer of a Client.
type subresource struct {
	client.SubResourceWriter // implements Apply, which is not used for sharded kinds
	client                   *Client
}

// Create implements [client.SubResourceWriter].
func (s subresource) Create(ctx context.Context, o, sub client.Object, opts ...client.SubResourceCreateOption) error {
	return s.client.with(ctx, o, func(to client.Client) error { return to.Status().Create(ctx, o, sub, opts...) })
}

// Update implements [client.SubResourceWriter].
func (s subresource) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.client.with(ctx, o, func(to client.Client) error { return to.Status().Update(ctx, o, opts...) })
}

// Patch implements [client.SubResourceWriter].
func (s subresource) Patch(ctx context.Context, o client.Object, patch client.Patch,
	opts ...client.SubResourcePatchOption) error {
	return s.client.with(ctx, o, func(to client.Client) error { return to.Status().Patch(ctx, o, patch, opts...) })
}
