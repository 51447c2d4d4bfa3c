package connection

import (
	"context"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watchingClient sends watches with a client of their own.
type watchingClient struct {
	client.Client
	watches client.WithWatch
}

func (c watchingClient) Watch(ctx context.Context, list client.ObjectList, opts ...client.ListOption) (
	watch.Interface, error) {
	return c.watches.Watch(ctx, list, opts...)
}

// httpClientForWatches returns an HTTP client for watches that uses the connections of the client c. The timeout of an
// http.Client also limits the time in which a body is read, and would end each watch. Therefore, the timeout of the
// client c limits only the time until the API server answers.
func httpClientForWatches(c *http.Client) *http.Client {
	if c.Timeout == 0 {
		return c
	}
	return &http.Client{Transport: watchTransport{c.Transport, c.Timeout}}
}

// watchTransport limits the time until the header of an answer was received.
type watchTransport struct {
	http.RoundTripper
	timeout time.Duration
}

func (t watchTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	timer := time.AfterFunc(t.timeout, cancel)
	response, err := t.RoundTripper.RoundTrip(r.WithContext(ctx))
	isLate := !timer.Stop()
	if err == nil && !isLate {
		response.Body = watchBody{response.Body, cancel}
		return response, nil
	}
	cancel()
	if err == nil {
		_ = response.Body.Close() // nobody reads the answer
	}
	if isLate {
		err = context.DeadlineExceeded
	}
	return nil, err
}

// watchBody is the body of an answer that ends the context of its request when it is closed.
type watchBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b watchBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
