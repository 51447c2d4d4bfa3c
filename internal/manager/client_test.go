package manager

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// stuckClient is a client that waits for a write whose event the cache will never receive.
type stuckClient struct {
	client.Client
}

func (stuckClient) Get(ctx context.Context, _ client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if !(&client.GetOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency {
		<-ctx.Done()
		return ctx.Err()
	}
	o.SetName("seen")
	return nil
}

func (stuckClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if !(&client.ListOptions{}).ApplyOptions(opts).DisableReadYourWritesConsistency {
		<-ctx.Done()
		return ctx.Err()
	}
	list.(*v1beta2.KymaList).Items = make([]v1beta2.Kyma, 2)
	return nil
}

// TestReadsDoNotWaitForEver checks that Get waits only for a limited time for our own write of an object if the cache
// never receives the event of this write. The test also checks that List does not wait for writes.
func TestReadsDoNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := boundedClient{stuckClient{}, ownWriteTimeout}
		start := time.Now()
		var kyma v1beta2.Kyma
		if err := c.Get(t.Context(), client.ObjectKey{Name: "a"}, &kyma); err != nil || kyma.Name != "seen" {
			t.Errorf("getting: %v, name %q", err, kyma.Name)
		}
		if waited := time.Since(start); waited != ownWriteTimeout {
			t.Errorf("waited %s, want %s", waited, ownWriteTimeout)
		}
		start = time.Now()
		var list v1beta2.KymaList
		if err := c.List(t.Context(), &list); err != nil || len(list.Items) != 2 {
			t.Errorf("listing: %v, %d items", err, len(list.Items))
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("a list waited %s", waited)
		}
		ended, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		if err := c.Get(ended, client.ObjectKey{Name: "a"}, &kyma); err == nil {
			t.Error("a pass that has ended still reads")
		}
	})
}
