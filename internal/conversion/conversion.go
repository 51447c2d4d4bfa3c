// Package conversion serves v1alpha1 next to v1beta2: it is the conversion webhook of our CRDs, with all that it needs.
//
// # Use
//
//	w, err := conversion.New(conversion.Options{Client: …, Namespace: "kcp-system", BindAddress: ":9443", Service: "lifecycle-manager-webhook"})
//	err = mgr.Add(w)                                // every replica serves, leader or not
//	err = mgr.AddReadyzCheck("conversion", w.Ready) // a pod gets requests only when it can answer
//
// # How it works
//
// API servers send objects to POST /convert and get them back in the version that somebody asked for; package api/v1alpha1 does the
// work. Nothing is kept and nothing is read from a cluster meanwhile.
//
// The certificate is the manager's own. A CA is made for it, signs this one certificate, and its key is thrown away. Certificate, key and
// the CAs that are to be believed, the new one and the one before, are in a Secret that all replicas share. A pass, every few
// seconds, reads the Secret, makes it anew if it is missing, cannot be used or ends within RenewBefore, and sees to it that the
// CRDs name our address and these CAs and serve v1alpha1. Only what differs is written. A replica changes to a new certificate in the
// pass after the one that published its CA, so API servers know the CA before they meet the certificate, and still know the old one while
// other replicas use it.
//
// The definitions as generated do not serve v1alpha1: without this webhook an API server would store such objects as if they were
// v1beta2, and drop what it does not know. So the webhook switches v1alpha1 on in the same patch that says who converts. It is not
// switched off when the manager ends: while nobody answers, requests for v1alpha1 fail and those for v1beta2 do not.
//
// The handler of controller-runtime is not used: it reads bodies without a limit, and an error does not say which object it is about.
//
// # What it does not do
//
// It validates nothing, and it has no admission webhooks. It does not install CRDs. It does not ask callers who they are, as a
// conversion tells nothing that the caller did not send.
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

// Path is where conversions are asked for.
const Path = "/convert"

// SecretName is the name of the Secret with the certificate.
const SecretName = "lifecycle-manager-webhook"

const (
	// Validity is how long a certificate is valid.
	Validity = 30 * 24 * time.Hour
	// RenewBefore is how long before its end a certificate is replaced.
	RenewBefore = 10 * 24 * time.Hour

	lookInterval  = 15 * time.Second // between passes
	retryInterval = 2 * time.Second  // after a failed pass
	stopTimeout   = 5 * time.Second  // for requests under way when the manager ends
)

// Options say where the webhook is.
type Options struct {
	// Client reads and writes the Secret and the CRDs. It must have no cache: that would want to list them.
	Client client.Client
	// Namespace is that of the Secret and the Service.
	Namespace string
	// BindAddress is where the webhook listens, host:port.
	BindAddress string
	// Service is the name of the Service by which API servers reach it, on port 443. Exactly one of Service and URL is given.
	Service string
	// URL is the address by which API servers reach it, https://…/convert.
	URL string
	// Log is told what goes wrong. The zero value is silence.
	Log logr.Logger

	now  func() time.Time // time.Now unless a test sets it
	look time.Duration    // lookInterval unless a test sets it
}

// Webhook is the conversion webhook. It is a runnable of a controller-runtime manager.
type Webhook struct {
	Options
	host    string                 // that the certificate is for
	serving atomic.Pointer[pair]   // nil until there is one
	slots   chan struct{}          // taken by each review under way
	address atomic.Pointer[string] // where it listens, nil until then
}

// New returns a webhook that does not listen yet. It makes no request.
func New(o Options) (*Webhook, error) {
	if o.Client == nil || o.Namespace == "" || o.BindAddress == "" {
		return nil, errors.New("building the conversion webhook: it needs a client, a namespace and an address")
	}
	if (o.Service == "") == (o.URL == "") {
		return nil, errors.New("building the conversion webhook: it needs either a Service or a URL")
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.look == 0 {
		o.look = lookInterval
	}
	w := &Webhook{Options: o, host: o.Service + "." + o.Namespace + ".svc", slots: make(chan struct{}, maxReviews)}
	if o.URL != "" {
		u, err := url.Parse(o.URL)
		if err != nil {
			return nil, fmt.Errorf("building the conversion webhook: %w", err)
		}
		if u.Scheme != "https" || u.Hostname() == "" || u.Path != Path || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return nil, fmt.Errorf("building the conversion webhook: %q is not https://HOST[:PORT]%s", o.URL, Path)
		}
		w.host = u.Hostname()
	}
	return w, nil
}

// NeedLeaderElection returns false: every replica serves.
func (w *Webhook) NeedLeaderElection() bool { return false }

// Ready fails until conversions are answered. It is a check of package healthz.
func (w *Webhook) Ready(*http.Request) error {
	if w.address.Load() == nil || w.serving.Load() == nil {
		return errors.New("the conversion webhook has no certificate yet")
	}
	return nil
}

// Start serves until ctx ends. It fails only if it cannot listen or accept connections; all else is tried again.
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
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: w.certificate},
		ErrorLog:          slog.NewLogLogger(logr.ToSlogHandler(w.Log), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	if err := w.keep(ctx, ended); err != nil {
		return fmt.Errorf("serving conversions: %w", err)
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := server.Shutdown(stop); err != nil {
		return errors.Join(fmt.Errorf("ending the conversion webhook: %w", err), server.Close())
	}
	return nil
}

// keep passes again and again until ctx ends, or the server, with its error.
func (w *Webhook) keep(ctx context.Context, ended <-chan error) error {
	for {
		after := w.look
		if err := w.pass(ctx); err != nil && ctx.Err() == nil {
			after = retryInterval
			if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
				w.Log.V(1).Info("another replica was faster", "reason", err.Error())
			} else {
				w.Log.Error(err, "keeping the conversion webhook known to API servers")
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

// pass sees to it that there is a certificate, that the CRDs say so, and that it is in use.
func (w *Webhook) pass(ctx context.Context) error {
	p, err := w.shared(ctx)
	if err != nil {
		return err
	}
	w.serving.CompareAndSwap(nil, p)
	changed, err := w.publish(ctx, p.bundle)
	if err != nil {
		return err
	}
	if before := w.serving.Load(); !changed && before != p {
		w.serving.Store(p)
		if !before.same(p) {
			w.Log.Info("serving conversions with another certificate", "until", p.leaf.NotAfter)
		}
	}
	return nil
}

// certificate gives the TLS server what it serves now.
func (w *Webhook) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p := w.serving.Load()
	if p == nil {
		return nil, errors.New("there is no certificate yet")
	}
	return &p.certificate, nil
}
