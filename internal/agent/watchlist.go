package agent

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/internal/agent/outbox"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
	"github.com/kyma-fleet/lifecycle-manager/internal/watch"
)

// configMap is the part of a ConfigMap that the agent reads.
type configMap struct {
	Data map[string]string `json:"data"`
}

// configMapWatch watches one ConfigMap.
type configMapWatch struct {
	client  rest.Interface
	name    types.NamespacedName
	timeout time.Duration         // duration of one watch
	changed func(to *configMap)   // called with nil if the ConfigMap does not exist
	failed  func(readError error) // called with nil if the ConfigMap can be read
}

// run reads the ConfigMap and watches it until ctx ends.
func (w *configMapWatch) run(ctx context.Context) {
	var listed *configMap
	_ = watch.Run(ctx, watch.Options[configMap]{ // Run returns only when ctx ends
		Source:       watch.JSONSource[configMap](w.get),
		Query:        metav1.ListOptions{FieldSelector: "metadata.name=" + w.name.Name},
		WatchTimeout: w.timeout, MinDelay: outbox.MinRetryDelay, MaxDelay: maxRetryDelay,
		Page: func(items []configMap, first bool) {
			if first {
				listed = nil
			}
			if len(items) > 0 {
				listed = &items[0]
			}
		},
		Listed: func(bool) {
			w.failed(nil)
			w.changed(listed)
		},
		Opened: func() { w.failed(nil) },
		Event: func(e watch.Event[configMap]) {
			if e.Deleted {
				w.changed(nil)
				return
			}
			w.changed(e.Object)
		},
		Failed: func(err error, since time.Time) error {
			if apierrors.IsForbidden(err) || time.Since(since) >= defaultProblemDelay {
				w.failed(err)
			}
			return nil
		},
	})
}

// get requests the ConfigMaps of the namespace.
func (w *configMapWatch) get(ctx context.Context, query url.Values) (io.ReadCloser, error) {
	request := w.client.Get().AbsPath("/api/v1/namespaces/"+w.name.Namespace+"/configmaps").SetHeader(
		"Accept", "application/json")
	for name := range query {
		request.Param(name, query.Get(name))
	}
	return request.Stream(ctx)
}

// applyWatchlist starts to use the watch list in the ConfigMap. If the watch list is missing or invalid, the former
// watch list stays in use.
func (a *Agent) applyWatchlist(ctx context.Context, c *configMap) {
	const problemKey = " watch list" // sorts before all resources
	if c == nil {
		a.problems.set(problemKey, fmt.Sprintf("ConfigMap %s does not exist", a.o.Watchlist))
		return
	}
	list, err := protocol.ParseWatchlist([]byte(c.Data[protocol.WatchlistKey]))
	if err == nil {
		if former := a.watchlist.Load(); former == nil || former.Digest() != list.Digest() {
			err = a.streams.apply(ctx, list)
		}
	}
	if err != nil {
		a.o.Log.Info("the watch list is invalid; the former one stays in force", "error", err.Error())
		a.problems.set(problemKey, fmt.Sprintf("ConfigMap %s, key %s: %.180s", a.o.Watchlist,
			protocol.WatchlistKey, err.Error()))
		return
	}
	a.problems.set(problemKey, "")
	if former := a.watchlist.Swap(&list); former == nil || former.Digest() != list.Digest() {
		a.o.Log.Info("a watch list is in force", "entries", len(list.Watches), "watches",
			len(a.streams.running), "digest", list.Digest())
		a.triggerHeartbeat()
	}
}
