package connection_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// pipeListener accepts connections in memory, with which the clock of a synctest bubble advances.
type pipeListener chan net.Conn

func (l pipeListener) Accept() (net.Conn, error) {
	c, is := <-l
	if !is {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l pipeListener) Close() error   { return nil }
func (l pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

// TestRequestTimeout checks that a watch receives an event that comes long after the timeout of a request, and that the
// timeout ends all other requests, and a watch to which the API server does not answer.
func TestRequestTimeout(t *testing.T) {
	const timeout, event = 30 * time.Second, 10 * time.Minute
	const kymas, silent = "/apis/operator.kyma-project.io/v1beta2/namespaces/%s/kymas", "silent"
	serve := func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, silent) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(event):
				fmt.Fprintln(w, `{"type":"ADDED","object":{"apiVersion":"operator.kyma-project.io/v1beta2",`+
					`"kind":"Kyma","metadata":{"name":"a"}}}`)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
			}
		}
		<-r.Context().Done()
	}
	watchPath := func(ctx context.Context, c *connection.Cluster, namespace string) error {
		body, err := c.OpenPath(ctx, fmt.Sprintf(kymas, namespace)+"?watch=true")
		if err != nil {
			return err
		}
		defer body.Close()
		_, err = bufio.NewReader(body).ReadString('\n')
		return err
	}
	watchObjects := func(ctx context.Context, c *connection.Cluster, namespace string) error {
		w, err := c.Watch(ctx, &v1beta2.KymaList{}, client.InNamespace(namespace))
		if err != nil {
			return err
		}
		defer w.Stop()
		if _, is := <-w.ResultChan(); !is {
			return io.ErrUnexpectedEOF
		}
		return nil
	}
	for name, c := range map[string]struct {
		reason    string
		namespace string
		send      func(context.Context, *connection.Cluster, string) error
		ends      time.Duration
		code      int
	}{
		"Path":       {"an event of a watch of JSON", "kcp-system", watchPath, event, console.ExitOK},
		"Objects":    {"an event of a watch of objects", "kcp-system", watchObjects, event, console.ExitOK},
		"SilentPath": {"no answer to a watch", silent, watchPath, timeout, console.ExitCluster},
		"Get": {"no answer to a read", silent, func(ctx context.Context, c *connection.Cluster, in string) error {
			return c.Get(ctx, client.ObjectKey{Namespace: in, Name: "a"}, &v1beta2.Kyma{})
		}, timeout, console.ExitCluster},
		"Body": {"an answer without an end", "kcp-system", func(ctx context.Context, c *connection.Cluster,
			in string) error {
			return c.GetJSON(ctx, fmt.Sprintf(kymas, in), &v1beta2.KymaList{})
		}, timeout, console.ExitCluster},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				connections := make(pipeListener)
				server := &http.Server{Handler: http.HandlerFunc(serve), ReadHeaderTimeout: time.Minute}
				ended := make(chan struct{})
				go func() { defer close(ended); _ = server.Serve(connections) }()
				cluster, err := connection.New(&rest.Config{Host: "http://example.com", Timeout: timeout, QPS: -1,
					Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
					Dial: func(context.Context, string, string) (net.Conn, error) {
						ours, theirs := net.Pipe()
						connections <- theirs
						return ours, nil
					}}, "test", "kcp-system")
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				err = cluster.Explain(c.send(t.Context(), cluster, c.namespace), "testing")
				if after := time.Since(begin); after != c.ends || console.ExitCode(err) != c.code {
					t.Errorf("%s: after %s exit code %d, want after %s %d: %v", c.reason, after,
						console.ExitCode(err), c.ends, c.code, err)
				}
				close(connections)
				if err := server.Close(); err != nil {
					t.Error(err)
				}
				<-ended
			})
		})
	}
}
