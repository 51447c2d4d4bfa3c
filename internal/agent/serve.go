package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// webhook returns the HTTP server of the admission webhook.
func (a *Agent) webhook() *http.Server {
	mux := http.NewServeMux()
	mux.Handle(admitPath, a.admission)
	return &http.Server{
		Addr: a.o.WebhookAddress, Handler: mux, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute,
		TLSConfig:   &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: a.identity.serverCertificate},
	}
}

// health returns the HTTP server of metrics and health checks.
func (a *Agent) health() *http.Server {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := a.checkInputsLoaded(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return &http.Server{Addr: a.o.MetricsAddress, Handler: mux, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second}
}

// checkInputsLoaded returns an error while the agent waits for its certificate files or its watch list, and otherwise
// nil.
func (a *Agent) checkInputsLoaded() error {
	if a.identity.current.Load() == nil {
		return errors.New("waiting for the certificate files")
	}
	if a.watchlist.Load() == nil {
		return fmt.Errorf("waiting for the watch list in ConfigMap %s", a.o.Watchlist)
	}
	return nil
}

// serve runs an HTTP server until ctx ends.
func serve(ctx context.Context, s *http.Server, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = s.Shutdown(ctx) // requests that take longer are cut off
		_ = s.Close()
	})
	defer stop()
	var err error
	if s.TLSConfig != nil {
		err = s.ServeTLS(listener, "", "")
	} else {
		err = s.Serve(listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving on %s: %w", listener.Addr(), err)
}
