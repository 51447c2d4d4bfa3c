package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// configMap is what is read of one.
type configMap struct {
	Metadata struct{ ResourceVersion string }
	Data     map[string]string
}

// follower follows one ConfigMap.
type follower struct {
	client  rest.Interface
	name    types.NamespacedName
	timeout time.Duration         // of one watch
	seen    func(data *configMap) // nil if it does not exist
	failed  func(err error)       // it cannot be read; nil: it can
}

// run reads the ConfigMap and watches it until ctx ends.
func (f *follower) run(ctx context.Context) {
	version, failures := "", 0
	var failing time.Time
	for ctx.Err() == nil {
		begin := time.Now()
		var err error
		if version == "" {
			version, err = f.list(ctx)
		}
		if err == nil {
			version, err = f.watch(ctx, version)
		}
		if lasted := time.Since(begin); err == nil && lasted > time.Second || lasted > patience {
			failing, failures = time.Time{}, 0
		}
		if err == nil && failures == 0 {
			continue
		}
		failures++
		if failing.IsZero() {
			failing = begin
		}
		if err != nil && ctx.Err() == nil && (apierrors.IsForbidden(err) || time.Since(failing) >= patience) {
			f.failed(err)
		}
		timer := time.NewTimer(min(backoff(failures), maxRetry/2+rand.N(maxRetry/2)))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// request asks for the one ConfigMap as a list, which is what may be watched.
func (f *follower) request() *rest.Request {
	return f.client.Get().AbsPath("/api/v1/namespaces/"+f.name.Namespace+"/configmaps").
		Param("fieldSelector", "metadata.name="+f.name.Name).SetHeader("Accept", "application/json")
}

// list reads the ConfigMap. It returns the version to watch from.
func (f *follower) list(ctx context.Context) (version string, err error) {
	body, err := f.request().Do(ctx).Raw()
	if err != nil {
		return "", err
	}
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []configMap
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return "", fmt.Errorf("reading ConfigMap %s: %w", f.name, err)
	}
	f.failed(nil)
	if len(list.Items) == 0 {
		f.seen(nil)
	} else {
		f.seen(&list.Items[0])
	}
	return list.Metadata.ResourceVersion, nil
}

// watch follows changes until the watch ends. It returns the version to watch from next, "" to list before.
func (f *follower) watch(ctx context.Context, version string) (string, error) {
	timeout := f.timeout/2 + rand.N(f.timeout/2+1)
	ctx, cancel := context.WithTimeout(ctx, timeout+time.Minute)
	defer cancel()
	stream, err := f.request().Param("watch", "true").Param("allowWatchBookmarks", "true").Param("resourceVersion", version).
		Param("timeoutSeconds", strconv.Itoa(max(1, int(timeout.Seconds())))).Stream(ctx)
	if err != nil {
		return after(version, err), err
	}
	defer stream.Close()
	f.failed(nil)
	decoder := json.NewDecoder(stream)
	for {
		var event struct {
			Type   string
			Object json.RawMessage
		}
		if err := decoder.Decode(&event); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = nil
			}
			return version, err
		}
		if event.Type == "ERROR" {
			var status metav1.Status
			_ = json.Unmarshal(event.Object, &status) // whatever it is, it is an error
			err := &apierrors.StatusError{ErrStatus: status}
			return after(version, err), err
		}
		var object configMap
		if err := json.Unmarshal(event.Object, &object); err != nil {
			return "", fmt.Errorf("reading ConfigMap %s: %w", f.name, err)
		}
		switch event.Type {
		case "DELETED":
			f.seen(nil)
		case "ADDED", "MODIFIED":
			f.seen(&object)
		}
		version = object.Metadata.ResourceVersion
	}
}

// after returns where to go on after an error of a watch.
func after(version string, err error) string {
	if missed(err) || apierrors.IsBadRequest(err) {
		return ""
	}
	return version
}

// take puts what the ConfigMap says in force. A list that is missing or bad leaves the former one in force.
func (a *Agent) take(ctx context.Context, c *configMap) {
	const of = " watch list" // before all resources
	if c == nil {
		a.problems.set(of, fmt.Sprintf("ConfigMap %s does not exist", a.o.Watchlist))
		return
	}
	list, err := protocol.ParseWatchlist([]byte(c.Data[protocol.WatchlistKey]))
	if err == nil {
		if former := a.watchlist.Load(); former == nil || former.Digest() != list.Digest() {
			err = a.streams.apply(ctx, list)
		}
	}
	if err != nil {
		a.o.Log.Info("a watch list is not taken; the former one stays in force", "error", err.Error())
		a.problems.set(of, fmt.Sprintf("ConfigMap %s, key %s: %.180s", a.o.Watchlist, protocol.WatchlistKey, err.Error()))
		return
	}
	a.problems.set(of, "")
	if former := a.watchlist.Swap(&list); former == nil || former.Digest() != list.Digest() {
		a.o.Log.Info("a watch list is in force", "entries", len(list.Watches), "watches", len(a.streams.running), "digest", list.Digest())
		a.hurry()
	}
}
