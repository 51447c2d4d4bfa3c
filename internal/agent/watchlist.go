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

// configMap has the fields of a ConfigMap that the agent reads.
type configMap struct {
	Data map[string]string `json:"data"`
}

// objectWatch watches one object. The type parameter T is the type into which the JSON of the object is decoded.
type objectWatch[T any] struct {
	client   rest.Interface
	resource string // such as configmaps, in the core group
	metadata bool   // only the metadata of the object is read
	name     types.NamespacedName
	timeout  time.Duration         // duration of one watch
	changed  func(to *T)           // called with nil if the object does not exist
	failed   func(readError error) // called with nil if the object can be read
}

// run reads the object and watches it until ctx ends.
func (w *objectWatch[T]) run(ctx context.Context) {
	var listed *T
	_ = watch.Run(ctx, watch.Options[T]{ // Run returns only when ctx ends
		Source:       watch.JSONSource[T](w.openListOrWatch),
		Query:        metav1.ListOptions{FieldSelector: "metadata.name=" + w.name.Name},
		WatchTimeout: w.timeout, MinDelay: outbox.MinRetryDelay, MaxDelay: maxRetryDelay,
		Page: func(items []T, first bool) {
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
		Event: func(e watch.Event[T]) {
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

// openListOrWatch requests the objects of a namespace.
func (w *objectWatch[T]) openListOrWatch(ctx context.Context, query url.Values) (io.ReadCloser, error) {
	accept := "application/json"
	if w.metadata && query.Get("watch") != "" {
		accept += ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	} else if w.metadata {
		accept += ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	}
	request := w.client.Get().AbsPath("/api/v1/namespaces/"+w.name.Namespace+"/"+w.resource).SetHeader("Accept", accept)
	for name := range query {
		request.Param(name, query.Get(name))
	}
	return request.Stream(ctx)
}

// setOrClearMissingSecretProblem records a problem while the Secret with the certificate does not exist. The files that
// are mounted from the Secret remain when the Secret is deleted. The running agent does not need the Secret, but the
// next pod of the agent cannot start without it. Heartbeats report the problem, so that somebody notices the missing
// Secret.
func (a *Agent) setOrClearMissingSecretProblem(secretOrNil *metav1.PartialObjectMetadata) {
	text := ""
	if secretOrNil == nil {
		text = fmt.Sprintf("Secret %s, which has the certificate of the agent, does not exist", a.o.Secret)
	}
	a.problems.setAndNotify(" secret", text)
}

// applyWatchlist starts to use the watch list in the ConfigMap. If the watch list is missing or invalid, the agent
// continues to use the former watch list.
func (a *Agent) applyWatchlist(ctx context.Context, c *configMap) {
	const problemKey = " watch list" // sorts before all resources
	if c == nil {
		a.problems.setAndNotify(problemKey, fmt.Sprintf("ConfigMap %s does not exist", a.o.Watchlist))
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
		a.problems.setAndNotify(problemKey, fmt.Sprintf("ConfigMap %s, key %s: %.180s", a.o.Watchlist,
			protocol.WatchlistKey, err.Error()))
		return
	}
	a.problems.setAndNotify(problemKey, "")
	a.queue.SetWatchlist(list)
	if former := a.watchlist.Swap(&list); former == nil || former.Digest() != list.Digest() {
		a.o.Log.Info("a watch list is in force", "entries", len(list.Watches), "watches",
			len(a.streams.running), "digest", list.Digest())
		a.triggerHeartbeat()
	}
}
