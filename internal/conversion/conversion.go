// Package conversion is the conversion webhook of our CRDs, with its certificate. It makes v1alpha1 available next to
// v1beta2.
//
// # Use
//
//	w, err := conversion.New(conversion.Options{Client: …, Namespace: "kcp-system", BindAddress: ":9443", Service: "lifecycle-manager-webhook"})
//	err = mgr.Add(w)                                // every replica serves, leader or not
//	err = mgr.AddReadyzCheck("conversion", w.Ready) // a pod gets no requests before it has a certificate
//
// # How it works
//
// API servers send objects to POST /convert and get them back in the requested version, converted by package
// api/v1alpha1. A conversion has no state and makes no request to a cluster.
//
// The manager makes the certificate itself: it makes a CA, signs one certificate with it, and drops the key of the CA.
// A Secret, which all replicas share, has the certificate, its key, and the trusted CAs: the new one and the former
// one. Every few seconds, each replica reads the Secret, replaces its content if it is missing, cannot be used or
// expires within RenewBefore, and updates the CRDs, so that they have our address and these CAs, and serve v1alpha1. It
// writes only what differs. A replica starts to use a new certificate one interval after its CA was written to the
// CRDs. So API servers trust the CA before they see the certificate, and still trust the former CA while other replicas
// use the former certificate.
//
// The generated CRDs do not serve v1alpha1: without this webhook, an API server would store such objects as v1beta2 and
// drop unknown fields. So the webhook enables v1alpha1 in the same patch that sets the conversion webhook. It does not
// disable v1alpha1 when the manager ends: then requests for v1alpha1 fail, and those for v1beta2 do not.
//
// The handler of controller-runtime is not used, because it reads bodies without a limit, and its errors do not name
// the object.
//
// # What it does not do
//
// It validates nothing, and has no admission webhooks. It does not install CRDs. It does not authenticate callers,
// because a response contains only what the request contains.
package conversion

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Path is the URL path of conversions.
const Path = "/convert"

// SecretName is the name of the Secret with the certificate.
const SecretName = "lifecycle-manager-webhook"

const (
	// Validity is the validity period of a certificate.
	Validity = 30 * 24 * time.Hour
	// RenewBefore is how long before its expiry a certificate is replaced.
	RenewBefore = 10 * 24 * time.Hour

	syncInterval    = 15 * time.Second // between two checks of Secret and CRDs
	retryDelay      = 2 * time.Second  // after a failed check
	shutdownTimeout = 5 * time.Second  // for requests in flight when the manager ends
)

// Options configure the webhook.
type Options struct {
	// Client reads and writes the Secret and the CRDs. It must not use a cache, which would need the permission to list
	// them.
	Client client.Client
	// Namespace has the Secret and the Service.
	Namespace string
	// BindAddress is the address on which the webhook listens, host:port.
	BindAddress string
	// Service is the name of the Service by which API servers reach the webhook, on port 443. Exactly one of Service
	// and URL must be set.
	Service string
	// URL is the address by which API servers reach the webhook, https://…/convert.
	URL string
	// Log logs errors. The zero value logs nothing.
	Log logr.Logger

	now      func() time.Time // time.Now unless a test sets it
	interval time.Duration    // syncInterval unless a test sets it
}

// Webhook is the conversion webhook. It is a runnable of a controller-runtime manager.
type Webhook struct {
	Options
	host    string                      // of the certificate
	serving atomic.Pointer[certificate] // the one in use; nil before the first one
	slots   chan struct{}               // one value for each review in progress
	address atomic.Pointer[string]      // on which it listens; nil before that
}

// New returns a webhook. It does not listen yet, and makes no request.
func New(o Options) (*Webhook, error) {
	if o.Client == nil || o.Namespace == "" || o.BindAddress == "" {
		return nil, errors.New("building the conversion webhook: options need Client, Namespace and BindAddress")
	}
	if (o.Service == "") == (o.URL == "") {
		return nil, errors.New("building the conversion webhook: options need either Service or URL")
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.interval == 0 {
		o.interval = syncInterval
	}
	w := &Webhook{Options: o, host: o.Service + "." + o.Namespace + ".svc", slots: make(chan struct{}, reviewsLimit)}
	if o.URL != "" {
		u, err := url.Parse(o.URL)
		if err != nil {
			return nil, fmt.Errorf("building the conversion webhook: %w", err)
		}
		if u.Scheme != "https" || u.Hostname() == "" || u.Path != Path || u.RawQuery != "" ||
			u.Fragment != "" || u.User != nil {
			return nil, fmt.Errorf("building the conversion webhook: %q is not https://HOST[:PORT]%s", o.URL, Path)
		}
		w.host = u.Hostname()
	}
	return w, nil
}

// NeedLeaderElection returns false: every replica serves.
func (w *Webhook) NeedLeaderElection() bool { return false }

// Ready returns an error until the webhook can answer requests. It is a check of package healthz.
func (w *Webhook) Ready(*http.Request) error {
	if w.address.Load() == nil || w.serving.Load() == nil {
		return errors.New("the conversion webhook has no certificate yet")
	}
	return nil
}

// Start serves until ctx ends. It fails only if it cannot listen or accept connections; everything else is retried.
func (w *Webhook) Start(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", w.BindAddress)
	if err != nil {
		return fmt.Errorf("listening for conversions (--webhook-bind-address): %w", err)
	}
	w.address.Store(new(listener.Addr().String()))
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+Path, w.review)
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: w.servedCertificate},
		ErrorLog:          slog.NewLogLogger(logr.ToSlogHandler(w.Log), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	if err := w.syncUntilEnd(ctx, ended); err != nil {
		return fmt.Errorf("serving conversions: %w", err)
	}
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(shutdown); err != nil {
		return errors.Join(fmt.Errorf("stopping the conversion webhook: %w", err), server.Close())
	}
	return nil
}

// syncUntilEnd calls sync in intervals until ctx ends, or until the server ends with an error.
func (w *Webhook) syncUntilEnd(ctx context.Context, ended <-chan error) error {
	for {
		after := w.interval
		if err := w.sync(ctx); err != nil && ctx.Err() == nil {
			after = retryDelay
			if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
				w.Log.V(1).Info("another replica has written first", "reason", err.Error())
			} else {
				w.Log.Error(err, "cannot update the certificate and the CRDs of the conversion webhook")
			}
		}
		timer := time.NewTimer(after)
		select {
		case <-timer.C:
		case err := <-ended:
			timer.Stop()
			return err
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// sync makes sure that there is a certificate, that the CRDs have its CA, and that it is used.
func (w *Webhook) sync(ctx context.Context) error {
	c, err := w.sharedCertificate(ctx)
	if err != nil {
		return err
	}
	w.serving.CompareAndSwap(nil, c)
	changed, err := w.updateCRDs(ctx, c.bundle)
	if err != nil {
		return err
	}
	if before := w.serving.Load(); !changed && before != c {
		w.serving.Store(c)
		if !before.equal(c) {
			w.Log.Info("using a new certificate for the conversion webhook", "until", c.leaf.NotAfter)
		}
	}
	return nil
}

// servedCertificate returns the certificate in use to the TLS server.
func (w *Webhook) servedCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c := w.serving.Load()
	if c == nil {
		return nil, errors.New("there is no certificate yet")
	}
	return &c.tls, nil
}
