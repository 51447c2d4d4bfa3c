package retry

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

var key = types.NamespacedName{Namespace: "kcp-system", Name: "a"}

// kyma returns a Kyma whose annotation has the given value; "" means that it has no annotation.
func kyma(value string) client.Object {
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if value != "" {
		k.Annotations = map[string]string{v1beta2.AnnotationRetry: value}
	}
	return k
}

func TestIsRequested(t *testing.T) {
	cases := map[string]struct {
		reason        string
		before, after string
		want          bool
	}{
		"First":     {"the annotation is new", "", "1", true},
		"Second":    {"another value", "1", "2", true},
		"Unchanged": {"a change of something else", "1", "1", false},
		"None":      {"there is none", "", "", false},
		"Removed":   {"somebody tidies up", "1", "", false},
	}
	for name, c := range cases {
		if got := IsNewlyRequested(kyma(c.before), kyma(c.after)); got != c.want {
			t.Errorf("%s: %s: %v", name, c.reason, got)
		}
	}
}

// TestHandler checks that a retry request ends the back-off of the object. Until keepPeriod has passed, reconciles of
// the object must not use cached answers from before the request.
func TestHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Hour, time.Hour)
		q := workqueue.NewTypedRateLimitingQueue(limiter)
		defer q.ShutDown()
		item := reconcile.Request{NamespacedName: key}
		q.AddRateLimited(item)
		var r Requests
		var prepared []string
		h := r.Handler(func(_ context.Context, o client.Object) []client.Object {
			prepared = append(prepared, o.GetName())
			return []client.Object{o}
		})

		h.Update(t.Context(), event.UpdateEvent{ObjectOld: kyma("1"), ObjectNew: kyma("1")}, q)
		h.Create(t.Context(), event.CreateEvent{Object: kyma("1")}, q)
		if q.Len() != 0 || len(prepared) != 0 || r.Context(t.Context(), key) != t.Context() {
			t.Errorf("an annotation that has not changed has an effect: %d, %q", q.Len(), prepared)
		}

		before := time.Now()
		time.Sleep(time.Second)
		h.Update(t.Context(), event.UpdateEvent{ObjectOld: kyma("1"), ObjectNew: kyma("2")}, q)
		synctest.Wait()
		if q.Len() != 1 || q.NumRequeues(item) != 0 || !slices.Equal(prepared, []string{"a"}) {
			t.Errorf("%d in the queue, %d failures remembered, %q prepared", q.Len(), q.NumRequeues(item), prepared)
		}
		ctx := r.Context(t.Context(), key)
		time.Sleep(time.Second)
		if !IsOutdated(ctx, before) || IsOutdated(ctx, time.Now()) {
			t.Error("answers from before the request are used, or answers from after it are not")
		}
		if other := r.Context(t.Context(), types.NamespacedName{Name: "b"}); IsOutdated(other, before) {
			t.Error("another object does not use its answers")
		}
		time.Sleep(keepPeriod)
		if IsOutdated(r.Context(t.Context(), key), before) {
			t.Error("the request is still in effect")
		}
		r.Retry(q, types.NamespacedName{Name: "c"})
		if len(r.at) != 1 {
			t.Errorf("old requests are kept: %v", r.at)
		}
	})
}
