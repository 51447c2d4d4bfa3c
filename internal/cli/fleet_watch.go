package cli

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
)

// change is something that happened to a fleet.
type change struct {
	member *member
	gone   bool // the member is gone
	reset  bool // what is known is forgotten; everything comes again
	listed bool // everything has come
}

// watchMembers sends the Kymas that the label selector selects, and then what happens to them. It returns when ctx ends, or when they cannot be
// listed. Each member that is sent belongs to the receiver.
func (c *cluster) watchMembers(ctx context.Context, selector string, to chan<- change) error {
	send := func(ch change) {
		select {
		case to <- ch:
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
		send(change{reset: true})
		version, err := c.members(ctx, selector, func(m *member) {
			send(change{member: m})
		})
		if err != nil {
			return err
		}
		send(change{listed: true})
		for err == nil && ctx.Err() == nil {
			version, err = c.watchFrom(ctx, selector, version, send)
			if err != nil && isBroken(err) {
				err = pause(ctx, time.Second)
			}
		}
		if err != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			return c.explain(err, "watching the Kymas")
		}
	}
	return ctx.Err()
}

// watchFrom follows one watch until it ends, which is normal, and returns how far it came.
func (c *cluster) watchFrom(ctx context.Context, selector, version string, send func(change)) (string, error) {
	body, err := c.stream(ctx, c.pathOf("kymas", url.Values{
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
		m := &member{}
		if err := json.Unmarshal(e.Object, m); err != nil {
			return version, err
		}
		version = m.Metadata.ResourceVersion
		if e.Type != "BOOKMARK" {
			send(change{member: m, gone: e.Type == "DELETED"})
		}
	}
}

// isBroken tells whether a watch ended because its connection did: then the next one goes on where it ended.
func isBroken(err error) bool {
	_, isNet := errors.AsType[net.Error](err)
	return isNet || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// pause waits, or returns the error of ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
