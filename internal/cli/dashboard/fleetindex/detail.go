package fleetindex

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/watch"
)

const (
	// maxViewed is the maximum number of runtimes whose Manifests are watched. When the limit is exceeded, the
	// Manifests of the runtime whose page was viewed least recently are no longer watched.
	maxViewed = 50
	// viewTime is how long the Manifests of a runtime are watched after its page was last viewed.
	viewTime = 5 * time.Minute
	// detailAge is the maximum age of the data of one runtime while its Manifests are watched. The age is limited
	// because the data contains events, and events are not watched: an API server has no cache for events, so each
	// watch would make the API server copy all events.
	detailAge = time.Minute
	// unwatchedAge is the maximum age of the data of one runtime while its Manifests are not watched.
	unwatchedAge = 2 * time.Second
	// openTimeout is how long the first request for the page of a runtime waits until the watch of its Manifests is
	// open.
	openTimeout = 2 * time.Second
)

// viewed is a runtime whose page is viewed. The index watches the Manifests of each viewed runtime. The Kyma of a
// viewed runtime needs no watch of its own, because one watch follows all Kymas.
type viewed struct {
	name  string
	ready chan struct{} // closed when the watch was opened for the first time, or has failed
	once  sync.Once     // for ready

	// The following fields are guarded by the lock of the index.
	used      time.Time
	idle      *time.Timer // ends the watch; nil while the runtime is not followed
	isListed  bool        // the Manifests were listed once
	isWatched bool        // every change until now was received
	closed    time.Time   // when the last watch ended; the next one begins at once and continues from there
	changes   int         // of the Manifests
	read      *Detail     // nil until it was read
}

// Detail contains the data that was read about one runtime.
type Detail struct {
	Value any
	At    time.Time // when it was read
	err   error
	of    string // the state of the runtime at the beginning of the read
}

// Detail returns data of one runtime that the index does not contain. The function "read" reads the data from the API
// server. While the Manifests of the runtime can be watched, Detail reads the data once after each change of the Kyma
// or of a Manifest. Data that is older than detailAge is read again. Concurrent viewers share one read.
func (x *Index) Detail(ctx context.Context, name string, read func(context.Context) (any, error)) (*Detail, error) {
	v := x.markViewed(name)
	timer := time.NewTimer(openTimeout)
	defer timer.Stop()
	select {
	case <-v.ready:
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	d, of := x.freshDetail(v)
	if d != nil {
		return d, d.err
	}
	// the key contains the state, so no viewer gets data of a read that began before a change
	value, _, _ := x.flights.Do(name+" "+of, func() (any, error) {
		// other viewers may wait for the same read, so the read does not end with the request of the first viewer
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), OnDemandTimeout)
		defer cancel()
		d := &Detail{of: of}
		d.Value, d.err = read(ctx)
		d.At = x.now()
		x.mu.Lock()
		defer x.mu.Unlock()
		v.read = d
		return d, nil
	})
	d, _ = value.(*Detail)
	return d, d.err
}

// markViewed returns the runtime with a name, and requests that its Manifests are watched.
func (x *Index) markViewed(name string) *viewed {
	x.mu.Lock()
	defer x.mu.Unlock()
	v := x.viewed[name]
	if v == nil {
		v = &viewed{name: name, ready: make(chan struct{})}
		if len(x.viewed) >= maxViewed {
			x.unwatchLeastRecentlyViewedLocked()
		}
		x.viewed[name] = v
		select {
		case x.follows <- v:
			if !x.isFollowing { // there is nothing to wait for
				v.releaseWaiters()
			}
		default: // many were requested while there was no connection
			v.releaseWaiters()
		}
	}
	v.used = x.now()
	if v.idle != nil {
		v.idle.Reset(viewTime)
	}
	return v
}

// unwatchLeastRecentlyViewedLocked drops the runtime that was viewed least recently. The caller holds the lock.
func (x *Index) unwatchLeastRecentlyViewedLocked() {
	var oldest *viewed
	for _, v := range x.viewed {
		if oldest == nil || v.used.Before(oldest.used) {
			oldest = v
		}
	}
	delete(x.viewed, oldest.name)
	if oldest.idle != nil {
		oldest.idle.Reset(0)
	}
}

// releaseWaiters closes the channel ready, so that the first viewers of the runtime stop waiting for the watch.
func (v *viewed) releaseWaiters() { v.once.Do(func() { close(v.ready) }) }

// freshDetail returns the data that was read about a runtime, or nil if the data is not up to date. The second result,
// versionKey, identifies the present versions of the Kyma and of its Manifests.
func (x *Index) freshDetail(v *viewed) (d *Detail, versionKey string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	version := ""
	if m := x.runtimes.all[v.name]; m != nil {
		version = m.Metadata.ResourceVersion
	}
	versionKey = fmt.Sprint(version, " ", v.changes)
	age := time.Duration(unwatchedAge)
	if d = v.read; d == nil || d.of != versionKey {
		return nil, versionKey
	}
	if isWatched := v.isWatched || x.now().Sub(v.closed) < unwatchedAge; isWatched && d.err == nil {
		age = detailAge
	}
	if x.now().Sub(d.At) >= age {
		return nil, versionKey
	}
	return d, versionKey
}

// followViewed watches the Manifests of the runtimes whose pages are viewed.
func (x *Index) followViewed(ctx context.Context, c *connection.Cluster) error {
	following := func(is bool) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.isFollowing = is
	}
	following(true)
	defer following(false)
	var all errgroup.Group
	for {
		select {
		case v := <-x.follows:
			all.Go(func() error { x.followManifests(ctx, c, v); return nil })
		case <-ctx.Done():
			return all.Wait()
		}
	}
}

// followManifests watches the metadata of the Manifests of one runtime until nobody has viewed the page of the runtime
// for viewTime.
func (x *Index) followManifests(ctx context.Context, c *connection.Cluster, v *viewed) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	locked := func(do func()) {
		x.mu.Lock()
		defer x.mu.Unlock()
		do()
	}
	isDropped := false
	locked(func() {
		isDropped = x.viewed[v.name] != v
		v.idle = time.AfterFunc(viewTime, stop)
	})
	defer locked(func() {
		v.idle.Stop()
		v.isWatched = false
		v.releaseWaiters()
		if x.viewed[v.name] == v {
			delete(x.viewed, v.name)
		}
	})
	if isDropped || !c.IsControlPlane() {
		return
	}
	changed := func() {
		v.changes++
		x.touchLocked(Details)
	}
	path := "/apis/" + v1beta2.GroupVersion.String() + "/namespaces/" + c.Namespace + "/manifests?"
	err := watch.Run(ctx, watch.Options[metav1.PartialObjectMetadata]{
		Source: watch.JSONSource[metav1.PartialObjectMetadata](func(ctx context.Context, query url.Values) (
			io.ReadCloser, error) {
			return c.OpenMetadata(ctx, path+query.Encode(), query.Get("watch") != "")
		}),
		Query:    metav1.ListOptions{LabelSelector: labels.Set{v1beta2.LabelKymaName: v.name}.String()},
		MaxDelay: 10 * time.Second,
		Listed: func(bool) {
			locked(func() {
				if v.isListed || v.read != nil { // changes may have been missed
					changed()
				}
				v.isListed = true
			})
		},
		Opened: func() { locked(func() { v.isWatched = true; v.releaseWaiters() }) },
		Closed: func() { locked(func() { v.isWatched, v.closed = false, x.now() }) },
		Event:  func(watch.Event[metav1.PartialObjectMetadata]) { locked(changed) },
		Failed: func(err error, _ time.Time) error {
			locked(func() { v.isWatched = false; v.releaseWaiters() })
			if err = c.Explain(err, "watching the Manifests of "+v.name); console.ExitCode(err) ==
				console.ExitForbidden {
				return err
			}
			return nil
		},
	})
	if err != nil && ctx.Err() == nil { // without the right to watch, the pages read after unwatchedAge
		<-ctx.Done()
	}
}
