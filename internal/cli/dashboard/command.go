package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/page"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/pageserver"
)

// options are the flags of klm dashboard.
type options struct {
	port    int
	noOpen  bool
	actions bool

	inCluster bool
	cluster   clusterOptions
}

// Command returns the command klm dashboard.
func Command(a *console.App) *cobra.Command {
	o := options{}
	c := a.Command("dashboard [--port PORT] [--actions] [--no-open]", "show the fleet in a browser", `
It serves pages at 127.0.0.1 with the rights of your kubeconfig, and installs nothing. The printed address works once: the browser that opens
it first stays logged in until the command ends. The pages only read, unless --actions allows to approve, pause, resume and abort rollouts,
and to have runtimes tried again.`, `
klm dashboard
klm dashboard --port 8080 --no-open
klm dashboard --actions --context prod`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error {
			if o.inCluster {
				return runInCluster(cmd.Context(), a, o)
			}
			return runLocally(cmd.Context(), a, o)
		})
	c.Flags().IntVar(&o.port, "port", 0, "port at 127.0.0.1; 0: a free one")
	c.Flags().BoolVar(&o.noOpen, "no-open", false, "only print the address, and open no browser")
	c.Flags().BoolVar(&o.inCluster, "in-cluster", false,
		"serve many people, who sign in with OpenID Connect; the chart starts it so (dashboard.enabled)")
	o.cluster.register(c.Flags())
	c.Flags().BoolVar(&o.actions, "actions", false, "allow to change rollouts, and to have runtimes tried again")
	return c
}

// runLocally serves the dashboard until ctx ends.
func runLocally(ctx context.Context, a *console.App, o options) error {
	if o.port < 0 || o.port > 65535 {
		return console.Fail(console.ExitUsage, "--port: %d is not a port", o.port)
	}
	if _, err := connection.Open(a); err != nil { // only a wrong kubeconfig ends the command
		return err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port)))
	if err != nil {
		return console.Fail(console.ExitFailed, "listening at port %d of 127.0.0.1: %v: choose another --port", o.port,
			err)
	}
	address := listener.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	host, token := newLocalHost(port)
	index := fleetindex.New()
	host.viewer = func() *pageserver.Viewer {
		v := &pageserver.Viewer{}
		if o.actions {
			v.Acts = index.Snapshot().Cluster
			v.MayMove, v.MayApprove, v.MayRetry = true, true, true // the API server decides
		}
		return v
	}
	pages, err := page.New(page.Options{Index: index, Viewer: host.authenticate, Program: a.Name,
		Hosts: []string{address, net.JoinHostPort("localhost", port)}})
	if err != nil {
		return err
	}
	address = "http://" + address + "/?" + tokenParam + "=" + token
	fmt.Fprintf(a.Out, "The dashboard is at %s\n", address)
	fmt.Fprintln(a.Err, "The address works once, for the browser that opens it first. Press Ctrl+C to end the dashboard.")
	if !o.noOpen {
		openBrowser(ctx, a.Err, address)
	}
	return serve(ctx, a, listener, index, pages, nil)
}

// serve keeps the index up to date and serves the handler, until ctx ends or the listener fails. While the listener is
// served, serve also runs the parameter beside, if it is not nil.
func serve(ctx context.Context, a *console.App, listener net.Listener, index *fleetindex.Index, handler http.Handler,
	beside func(context.Context)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	server := newServer(ctx, handler)
	var all errgroup.Group
	all.Go(func() error {
		index.Run(ctx, func(ctx context.Context) (*connection.Cluster, error) {
			return connection.ControlPlane(ctx, a)
		})
		return nil
	})
	if beside != nil {
		all.Go(func() error { beside(ctx); return nil })
	}
	all.Go(func() error {
		defer stop()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return console.Fail(console.ExitFailed, "serving the dashboard: %v", err)
		}
		return nil
	})
	all.Go(func() error {
		<-ctx.Done()
		return server.Close() // streams of events do not end by themselves
	})
	return all.Wait()
}

// readHeaderTimeout and readTimeout are the times in which a client has to send the header of a request, and the whole
// request. Tests change them.
var readHeaderTimeout, readTimeout = 5 * time.Second, 30 * time.Second

// newServer returns a server with limits for slow clients. The handlers of the pages set the deadline of each write,
// because a stream of events has no deadline as a whole.
func newServer(ctx context.Context, pages http.Handler) *http.Server {
	return &http.Server{
		Handler: pages, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog: slog.NewLogLogger(slog.NewTextHandler(io.Discard, nil), slog.LevelError),
	}
}
