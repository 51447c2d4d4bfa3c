package fleetlist

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// Change is an event of [Watch].
type Change struct {
	Member  *Member
	Deleted bool // the member was deleted
	Reset   bool // a new list begins: the receiver forgets all members
	Listed  bool // all members of the list were sent
}

// Watch sends the Kymas that the label selector selects, and then their changes. It returns when ctx ends, or when
// they cannot be listed or watched. The receiver may keep the members that it receives.
func Watch(ctx context.Context, c *connection.Cluster, selector string, to chan<- Change) error {
	send := func(ch Change) {
		select {
		case to <- ch:
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
		send(Change{Reset: true})
		version, err := List(ctx, c, selector, func(m *Member) {
			send(Change{Member: m})
		})
		if err != nil {
			return err
		}
		send(Change{Listed: true})
		for err == nil && ctx.Err() == nil {
			version, err = watchFrom(ctx, c, selector, version, send)
			if err != nil && isBroken(err) {
				err = console.Sleep(ctx, time.Second)
			}
		}
		if err != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			return c.Explain(err, "watching the Kymas")
		}
	}
	return ctx.Err()
}

// watchFrom sends the events of one watch until it ends, which is normal, and returns the resource version that the
// next watch begins with.
func watchFrom(ctx context.Context, c *connection.Cluster, selector, version string, send func(Change)) (string, error) {
	body, err := c.OpenPath(ctx, pathOf(c, "kymas", url.Values{
		"watch": {"true"}, "resourceVersion": {version}, "allowWatchBookmarks": {"true"}, "labelSelector": {selector},
	}))
	if err != nil {
		return version, err
	}
	defer body.Close()
	d := json.NewDecoder(body)
	for {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := d.Decode(&e); err != nil {
			return version, err
		}
		if e.Type == "ERROR" {
			status := &metav1.Status{}
			if err := json.Unmarshal(e.Object, status); err != nil {
				return version, err
			}
			return version, apierrors.FromObject(status)
		}
		m := &Member{}
		if err := json.Unmarshal(e.Object, m); err != nil {
			return version, err
		}
		version = m.Metadata.ResourceVersion
		if e.Type != "BOOKMARK" {
			send(Change{Member: m, Deleted: e.Type == "DELETED"})
		}
	}
}

// isBroken reports whether a watch ended because its connection broke. Then the next watch continues from the same
// resource version.
func isBroken(err error) bool {
	_, isNet := errors.AsType[net.Error](err)
	return isNet || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
