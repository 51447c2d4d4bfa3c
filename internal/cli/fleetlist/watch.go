package fleetlist

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/watch"
)

// Change is an event of [Watch].
type Change struct {
	Member  *Member
	Deleted bool // the member in this event was deleted
	Reset   bool // a new list begins: the receiver must drop all members
	Listed  bool // all members of the list were sent
}

// Watch sends, to the channel "to", first the Kymas that match the label selector, and then the changes of these Kymas.
// Watch returns when ctx ends, or when the Kymas cannot be listed or watched. Watch does not change a Member after
// sending it, so the receiver may keep it.
func Watch(ctx context.Context, c *connection.Cluster, selector string, to chan<- Change) error {
	send := func(ch Change) {
		select {
		case to <- ch:
		case <-ctx.Done():
		}
	}
	get := func(ctx context.Context, query url.Values) (io.ReadCloser, error) {
		return c.OpenPath(ctx, pathOf(c, "kymas", query))
	}
	return watch.Run(ctx, watch.Options[Member]{
		Source: watch.Source[Member]{
			List: func(ctx context.Context, o metav1.ListOptions) (watch.Page[Member], error) {
				return membersPage(ctx, c, o)
			},
			Watch: watch.JSONWatch[Member](get),
		},
		Query: metav1.ListOptions{LabelSelector: selector}, PageSize: PageSize, MaxObjects: 1_000_000,
		MaxDelay: 10 * time.Second,
		Page: func(members []Member, first bool) {
			if first {
				send(Change{Reset: true})
			}
			for i := range members {
				send(Change{Member: &members[i]})
			}
		},
		Listed: func(bool) { send(Change{Listed: true}) },
		Event:  func(e watch.Event[Member]) { send(Change{Member: e.Object, Deleted: e.Deleted}) },
		Failed: func(err error, _ time.Time) error {
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || isNetworkError(err) {
				return nil // the caller tries again
			}
			return c.Explain(err, "watching the Kymas")
		},
	})
}

// refreshDelay is the time in which changes are collected, and then shown together.
const refreshDelay = 500 * time.Millisecond

// ShowLive shows the Kymas that match a label selector: it calls the function show with a map from names to Kymas when
// the list is complete, and after changes. ShowLive also calls the function needsRefresh once in every interval. If
// the function needsRefresh returns true, ShowLive calls the function show again. ShowLive returns when ctx ends, or
// when the function show or the watch fails.
func ShowLive(ctx context.Context, c *connection.Cluster, selector string, checkInterval time.Duration,
	needsRefresh func() bool,
	show func(map[string]*Member) error) error {
	fleet := map[string]*Member{}
	changes := make(chan Change)
	failed := make(chan error, 1)
	go func() { failed <- Watch(ctx, c, selector, changes) }()
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	var refresh <-chan time.Time
	listed := false // whether the list of the fleet is complete
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if ctx.Err() != nil {
				return nil
			}
			return err
		case <-ticker.C:
			if needsRefresh() && refresh == nil && listed {
				refresh = time.After(0)
			}
		case <-refresh:
			if refresh = nil; !listed {
				continue
			}
			if err := show(fleet); err != nil {
				return err
			}
		case ch := <-changes:
			switch {
			case ch.Reset:
				clear(fleet)
				listed = false
			case ch.Listed:
				listed, refresh = true, time.After(0)
			case ch.Deleted:
				delete(fleet, ch.Member.Metadata.Name)
			case ch.Member != nil:
				fleet[ch.Member.Metadata.Name] = ch.Member
			}
			if refresh == nil && listed {
				refresh = time.After(refreshDelay)
			}
		}
	}
}

// membersPage reads one page of Kymas.
func membersPage(ctx context.Context, c *connection.Cluster, o metav1.ListOptions) (
	page watch.Page[Member], err error) {
	s, err := readPage(ctx, c, pathOf(c, "kymas", listQuery(o.Continue, o.LabelSelector)))
	if apierrors.IsResourceExpired(err) {
		return page, err
	}
	if err != nil {
		return page, c.Explain(err, "listing kymas")
	}
	err = decodeUnordered(s.items, func(m *Member) { page.Items = append(page.Items, *m) })
	page.ResourceVersion, page.Continue = s.version, s.next
	return page, err
}

// isNetworkError reports whether a request failed, or a watch ended, because of a broken connection.
func isNetworkError(err error) bool {
	_, isNet := errors.AsType[net.Error](err)
	return isNet || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
