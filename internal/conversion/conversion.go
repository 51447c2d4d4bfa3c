// Package conversion is the conversion webhook for the CRDs of this project, including the webhook's certificate. With
// the webhook, API servers serve the API version v1alpha1 in addition to v1beta2.
//
// # Use
//
//	w, err := conversion.New(conversion.Options{Client: …, Namespace: "kcp-system", BindAddress: ":9443", Service: "lifecycle-manager-webhook"})
//	err = mgr.Add(w)                                // every replica serves, leader or not
//	err = mgr.AddReadyzCheck("conversion", w.Ready) // a pod is not ready until it has a certificate
//
// # How it works
//
// API servers send objects to POST /convert. The response contains the objects in the requested version. Package
// api/v1alpha1 converts the objects. A conversion needs no state, and sends no request to a cluster.
//
// The manager creates the certificate: it creates a CA, signs one certificate with the CA, and discards the key of the
// CA. All replicas share one Secret. The Secret contains the certificate, its private key, and the trusted CAs, which
// are the new CA and the former CA. Each replica checks the Secret and the CRDs every 15 seconds:
//
//   - The replica replaces the content of the Secret if the content is missing, cannot be used, or expires
//     within RenewBefore.
//   - The replica updates the CRDs, so that they contain the address of the webhook and the trusted CAs, and
//     serve v1alpha1.
//
// A replica writes the Secret or a CRD only if it differs from its desired state. After a new CA was written to the
// CRDs, a replica waits one interval before it uses the new certificate. Therefore API servers trust the new CA before
// they receive the new certificate. API servers also trust the former CA, because other replicas may still use the
// former certificate.
//
// The generated CRDs do not serve v1alpha1. Without this webhook, an API server would store v1alpha1 objects as v1beta2
// and drop unknown fields. Therefore a replica enables v1alpha1 in a CRD with the same patch that enters the conversion
// webhook into the CRD. When the manager stops, v1alpha1 stays enabled: requests for v1alpha1 then fail, but requests
// for v1beta2 succeed.
//
// The package does not use the handler of controller-runtime, for two reasons: that handler reads request bodies
// without a limit, and its errors do not contain the name of the object.
//
// # What it does not do
//
// The package does not validate objects and has no admission webhooks. The package does not install CRDs. The package
// does not authenticate callers, because a response contains only data from the request.
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

// Path is the URL path of conversion requests.
const Path = "/convert"

// SecretName is the name of the Secret with the certificate.
const SecretName = "lifecycle-manager-webhook"

const (
	// Validity is the validity period of a certificate.
	Validity = 30 * 24 * time.Hour
	// RenewBefore is the remaining validity period of a certificate at which it is replaced.
	RenewBefore = 10 * 24 * time.Hour

	syncInterval    = 15 * time.Second // interval between two checks of Secret and CRDs
	retryDelay      = 2 * time.Second  // delay after a failed check
	shutdownTimeout = 5 * time.Second  // timeout for requests in progress when the manager stops
)

// Options configures the webhook.
type Options struct {
	// Client reads and writes the Secret and the CRDs. Client must not use a cache, because a cache needs the
	// permission to list Secrets and CRDs.
	Client client.Client
	// Namespace is the namespace of the Secret and the Service.
	Namespace string
	// BindAddress is the address on which the webhook listens, in the format host:port.
	BindAddress string
	// Service is the name of the Service through which API servers connect to the webhook, on port 443. Exactly one of
	// Service and URL must be set.
	Service string
	// URL is the address at which API servers connect to the webhook, in the format https://…/convert.
	URL string
	// Log logs errors. The zero value logs nothing.
	Log logr.Logger

	now      func() time.Time // the default is time.Now; tests can replace it
	interval time.Duration    // the default is syncInterval; tests can replace it
	slack    time.Duration    // is added to all timeouts of the server; the default is 0; tests can set it
}

// Webhook is the conversion webhook. Webhook is a runnable of a controller-runtime manager.
type Webhook struct {
	Options
	host    string                      // host name in the certificate
	serving atomic.Pointer[certificate] // certificate in use; nil until there is a certificate
	slots   chan struct{}               // one value for each review in progress
	address atomic.Pointer[string]      // address of the listener; nil until the webhook listens
}

// New returns a webhook. New does not open a listener and does not send requests.
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

// NeedLeaderElection returns false, because every replica serves requests.
func (w *Webhook) NeedLeaderElection() bool { return false }

// Ready returns an error until the webhook can respond to requests. Ready is a check of package healthz.
func (w *Webhook) Ready(*http.Request) error {
	if w.address.Load() == nil || w.serving.Load() == nil {
		return errors.New("the conversion webhook has no certificate yet")
	}
	return nil
}

// Start runs the webhook server until ctx ends. Start returns an error only if the server cannot listen or accept
// connections. If any other operation fails, such as renewing the certificate, Start retries it.
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
		ReadHeaderTimeout: 5*time.Second + w.slack,
		ReadTimeout:       15*time.Second + w.slack,
		WriteTimeout:      30*time.Second + w.slack,
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
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout+w.slack)
	defer cancel()
	if err := server.Shutdown(shutdown); err != nil {
		return errors.Join(fmt.Errorf("stopping the conversion webhook: %w", err), server.Close())
	}
	return nil
}

// syncUntilEnd calls sync at an interval until ctx ends. If the server stops with an error, syncUntilEnd returns the
// error.
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

// sync makes sure that a certificate exists, that the CRDs contain its CA, and that the webhook uses the certificate.
func (w *Webhook) sync(ctx context.Context) error {
	c, err := w.ensureCertificate(ctx)
	if err != nil {
		return err
	}
	w.serving.CompareAndSwap(nil, c)
	changed, err := w.enableConversion(ctx, c.bundle)
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

// servedCertificate returns the certificate that the server uses at present. The TLS server calls servedCertificate for
// each connection.
func (w *Webhook) servedCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c := w.serving.Load()
	if c == nil {
		return nil, errors.New("there is no certificate yet")
	}
	return &c.tls, nil
}
