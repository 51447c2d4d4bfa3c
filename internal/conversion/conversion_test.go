package conversion

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	definitions "github.com/kyma-fleet/lifecycle-manager/crds"
)

// controlPlane is a fake cluster that has the CRDs of this project. controlPlane records all writes.
type controlPlane struct {
	client.WithWatch
	mu     sync.Mutex
	writes []string
}

func newControlPlane(t *testing.T) *controlPlane {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	build := fake.NewClientBuilder().WithScheme(scheme)
	for _, crd := range definitions.All() {
		build.WithObjects(crd)
	}
	c := &controlPlane{}
	c.WithWatch = interceptor.NewClient(build.Build(), interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			c.count("create " + o.GetName())
			return w.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			c.count("update " + o.GetName())
			return w.Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			c.count("patch " + o.GetName())
			return w.Patch(ctx, o, p, opts...)
		},
	})
	return c
}

func (c *controlPlane) count(write string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = append(c.writes, write)
}

// takeWrites returns the writes since the last call of takeWrites.
func (c *controlPlane) takeWrites() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.writes
	c.writes = nil
	return w
}

func (c *controlPlane) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "kcp-system", Name: SecretName}, s); err != nil {
		t.Fatal(err)
	}
	return s
}

func (c *controlPlane) crd(t *testing.T, name string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

// clock is a clock whose time the test sets.
type clock struct{ time.Time }

func newWebhook(t *testing.T, c *controlPlane, at *clock, change func(*Options)) *Webhook {
	t.Helper()
	o := Options{Client: c, Namespace: "kcp-system", BindAddress: "127.0.0.1:0", Service: "lifecycle-manager-webhook"}
	if at != nil {
		o.now = func() time.Time { return at.Time }
	}
	if change != nil {
		change(&o)
	}
	w, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func syncOnce(t *testing.T, w *Webhook) {
	t.Helper()
	if err := w.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

var patches = []string{"patch kymas.operator.kyma-project.io", "patch manifests.operator.kyma-project.io",
	"patch moduletemplates.operator.kyma-project.io"}

func wantWrites(t *testing.T, c *controlPlane, when string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, c.takeWrites()); diff != "" {
		t.Errorf("%s: writes differ (-want +got):\n%s", when, diff)
	}
}

// TestUpdateCRDs checks how the CRDs are changed, and that they are written only once.
func TestUpdateCRDs(t *testing.T) {
	c := newControlPlane(t)
	w := newWebhook(t, c, nil, nil)
	if w.Ready(nil) == nil {
		t.Error("ready before there is a certificate")
	}
	syncOnce(t, w)
	wantWrites(t, c, "at first", append([]string{"create lifecycle-manager-webhook"}, patches...)...)
	for _, crd := range definitions.All() {
		crd := c.crd(t, crd.Name)
		ours := slices.Contains(crds[:], crd.Name)
		for _, v := range crd.Spec.Versions {
			if !v.Served || v.Storage != (v.Name == "v1beta2") {
				t.Errorf("%s %s: served is %t, storage is %t", crd.Name, v.Name, v.Served, v.Storage)
			}
		}
		if !ours {
			if crd.Spec.Conversion != nil {
				t.Errorf("%s: has a conversion", crd.Name)
			}
			continue
		}
		want := &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{ConversionReviewVersions: []string{"v1"},
				ClientConfig: &apiextensionsv1.WebhookClientConfig{
					CABundle: c.secret(t).Data["ca.crt"],
					Service: &apiextensionsv1.ServiceReference{Namespace: "kcp-system",
						Name: "lifecycle-manager-webhook", Path: new("/convert"), Port: new(int32(443))},
				}},
		}
		if diff := cmp.Diff(want, crd.Spec.Conversion); diff != "" {
			t.Errorf("%s: conversion differs (-want +got):\n%s", crd.Name, diff)
		}
	}

	syncOnce(t, w)
	syncOnce(t, newWebhook(t, c, nil, nil))
	wantWrites(t, c, "unchanged, and another replica")

	reset := c.crd(t, crds[0])
	reset.Spec.Versions[0].Served = false
	if err := c.Update(t.Context(), reset); err != nil {
		t.Fatal(err)
	}
	c.takeWrites()
	syncOnce(t, w)
	wantWrites(t, c, "after the CRDs were installed anew", patches[0])

	other := newWebhook(t, c, nil, func(o *Options) { o.Service, o.URL = "", "https://127.0.0.1:9443/convert" })
	syncOnce(t, other)
	wantWrites(t, c, "with another address", append([]string{"update lifecycle-manager-webhook"}, patches...)...)
	if got := c.crd(t, crds[1]).Spec.Conversion.Webhook.ClientConfig; got.Service != nil || got.URL == nil ||
		*got.URL != "https://127.0.0.1:9443/convert" {
		t.Errorf("the address is %v, %v", got.Service, got.URL)
	}
}

// TestRotation checks that a certificate is replaced in time, and that both the old and the new CA are trusted while
// both certificates are in use.
func TestRotation(t *testing.T) {
	c, at := newControlPlane(t), &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	one, two := newWebhook(t, c, at, nil), newWebhook(t, c, at, nil)
	syncOnce(t, one)
	syncOnce(t, two)
	first := one.serving.Load()
	if !first.equal(two.serving.Load()) {
		t.Error("the replicas serve different certificates")
	}
	c.takeWrites()

	at.Time = at.Add(Validity - RenewBefore - time.Minute)
	syncOnce(t, one)
	wantWrites(t, c, "before it is time")
	at.Time = at.Add(2 * time.Minute)
	syncOnce(t, one)
	wantWrites(t, c, "when it is time", append([]string{"update lifecycle-manager-webhook"}, patches...)...)
	if !one.serving.Load().equal(first) {
		t.Error("the new certificate is in use before its CA is known to all")
	}
	believed := c.crd(t, crds[0]).Spec.Conversion.Webhook.ClientConfig.CABundle
	second, err := parseCertificate(c.secret(t).Data)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*certificate{"old": first, "new": second} {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(believed)
		if _, err := p.leaf.Verify(x509.VerifyOptions{DNSName: one.host, Roots: roots,
			CurrentTime: at.Time}); err != nil {
			t.Errorf("the %s certificate is not trusted: %v", name, err)
		}
	}
	syncOnce(t, one)
	syncOnce(t, two)
	if !one.serving.Load().equal(second) || !two.serving.Load().equal(second) {
		t.Error("the new certificate is not in use")
	}
	wantWrites(t, c, "after the rotation")

	at.Time = at.Add(10 * Validity) // the manager did not run
	syncOnce(t, two)
	syncOnce(t, two)
	bundle := two.serving.Load().bundle
	if n := bytes.Count(bundle, []byte("BEGIN CERTIFICATE")); n != 1 {
		t.Errorf("%d CAs are trusted, want the valid one", n)
	}
}

// TestSecret checks that the Secret is written again after it was deleted or changed.
func TestSecret(t *testing.T) {
	tests := map[string]struct {
		reason string
		spoil  func(*testing.T, *controlPlane, *corev1.Secret)
		write  string
		cas    int // trusted afterwards
	}{
		"Deleted": {"the old certificate is still in use for a short time",
			func(t *testing.T, c *controlPlane, s *corev1.Secret) {
				if err := c.Delete(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}, "create lifecycle-manager-webhook", 2},
		"Empty": {"it has no data", func(t *testing.T, c *controlPlane, s *corev1.Secret) {
			s.Data = nil
			update(
				t, c, s)
		}, "update lifecycle-manager-webhook", 1},
		"Key": {"a key of another certificate", func(t *testing.T, c *controlPlane, s *corev1.Secret) {
			p, err := newCertificate("other", time.Now(), nil)
			if err != nil {
				t.Fatal(err)
			}
			s.Data[corev1.TLSPrivateKeyKey] = p.key
			update(t, c, s)
		}, "update lifecycle-manager-webhook", 2},
		"CA": {"no CA", func(t *testing.T, c *controlPlane, s *corev1.Secret) {
			s.Data["ca.crt"] = []byte("?")
			update(
				t, c, s)
		}, "update lifecycle-manager-webhook", 1},
		"Host": {"a certificate for another host", func(t *testing.T, c *controlPlane, s *corev1.Secret) {
			p, err := newCertificate("other", time.Now(), nil)
			if err != nil {
				t.Fatal(err)
			}
			s.Data = map[string][]byte{corev1.TLSCertKey: p.cert, corev1.TLSPrivateKeyKey: p.key, "ca.crt": p.bundle}
			update(t, c, s)
		}, "update lifecycle-manager-webhook", 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newControlPlane(t)
			w := newWebhook(t, c, nil, nil)
			syncOnce(t, w)
			before := w.serving.Load()
			tc.spoil(t, c, c.secret(t))
			c.takeWrites()
			syncOnce(t, w)
			wantWrites(t, c, tc.reason, append([]string{tc.write}, patches...)...)
			syncOnce(t, w)
			wantWrites(t, c, "in the next sync")
			after := w.serving.Load()
			if after.equal(before) {
				t.Error("the old certificate is still in use")
			}
			if n := bytes.Count(after.bundle, []byte("BEGIN CERTIFICATE")); n != tc.cas {
				t.Errorf("%s: %d CAs are trusted, want %d", tc.reason, n, tc.cas)
			}
		})
	}
}

func update(t *testing.T, c *controlPlane, o client.Object) {
	t.Helper()
	if err := c.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// TestRace starts two replicas at the same time. TestRace checks that one of the replicas creates the certificate, and
// that both replicas use this certificate.
func TestRace(t *testing.T) {
	c := newControlPlane(t)
	winner := newWebhook(t, c, nil, nil)
	late := &lateReader{Client: c, raced: func() { syncOnce(t, winner) }}
	loser := newWebhook(t, c, nil, func(o *Options) { o.Client = late })
	if err := loser.sync(t.Context()); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the second Secret was created with error %v", err)
	}
	syncOnce(t, loser)
	if !loser.serving.Load().equal(winner.serving.Load()) {
		t.Error("the replicas serve different certificates")
	}
}

// lateReader is a client that simulates a write of another replica, once, directly after a read.
type lateReader struct {
	client.Client
	raced func()
}

func (r *lateReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := r.Client.Get(ctx, key, o, opts...)
	if raced := r.raced; raced != nil {
		r.raced = nil
		raced()
	}
	return err
}

// TestMissingVersion checks that a CRD is changed only if it has the version v1alpha1.
func TestMissingVersion(t *testing.T) {
	c := newControlPlane(t)
	old := c.crd(t, crds[0])
	old.Spec.Versions = old.Spec.Versions[1:]
	update(t, c, old)
	if err := c.Delete(t.Context(), c.crd(t, crds[1])); err != nil {
		t.Fatal(err)
	}
	c.takeWrites()
	err := newWebhook(t, c, nil, nil).sync(t.Context())
	if err == nil || !strings.Contains(err.Error(), "CRD kymas.operator.kyma-project.io has no version v1alpha1") ||
		!strings.Contains(err.Error(), crds[1]) {
		t.Errorf("error is %v", err)
	}
	wantWrites(t, c, "with old CRDs", "create lifecycle-manager-webhook", patches[2])
}

// TestServe checks requests over TLS: a client that trusts the CAs in the CRD gets answers, even after a rotation of
// the certificate without a restart.
func TestServe(t *testing.T) {
	const longTimeout = 10 * time.Minute // only a test that fails waits so long, also on a slow machine
	c := newControlPlane(t)
	w := newWebhook(t, c, nil, func(o *Options) {
		o.Service, o.URL = "", "https://127.0.0.1:1/convert"
		o.interval, o.slack = 10*time.Millisecond, longTimeout
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Start(ctx) }()
	until := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(longTimeout); !done(); {
			select {
			case err := <-ended:
				t.Fatalf("%s: ended with %v", what, err)
			case <-time.After(5 * time.Millisecond):
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: not seen in %s", what, longTimeout)
			}
		}
	}
	until("ready", func() bool { return w.Ready(nil) == nil && c.crd(t, crds[2]).Spec.Conversion != nil })
	bundle := func() []byte {
		t.Helper()
		if conversion := c.crd(t, crds[2]).Spec.Conversion; conversion != nil {
			return conversion.Webhook.ClientConfig.CABundle
		}
		return nil
	}
	ask := func(trusted []byte) (*x509.Certificate, error) {
		t.Helper()
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(trusted)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
		defer transport.CloseIdleConnections()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+*w.address.Load()+Path,
			strings.NewReader(
				review(`{"apiVersion":"operator.kyma-project.io/v1alpha1","kind":"Kyma","metadata":{"name":"k"}}`)))
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || !strings.Contains(string(body), `"channel":"regular"`) {
			t.Errorf("the answer is %s, %v", body, err)
		}
		return response.TLS.PeerCertificates[0], nil
	}
	served := func() *x509.Certificate {
		t.Helper()
		for trusted := bundle(); ; {
			certificate, err := ask(trusted)
			if err == nil {
				return certificate
			}
			now := bundle()
			if bytes.Equal(now, trusted) {
				t.Fatal(err)
			}
			trusted = now // the certificate was rotated after the client has read the CAs
		}
	}
	first := served()
	if err := c.Delete(ctx, c.secret(t)); err != nil {
		t.Fatal(err)
	}
	until("another certificate", func() bool { return !served().Equal(first) })
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestNew(t *testing.T) {
	c := newControlPlane(t)
	good := Options{Client: c, Namespace: "ns", BindAddress: ":9443", Service: "s"}
	tests := map[string]struct {
		reason string
		change func(*Options)
		fails  bool
	}{
		"Service": {"in the cluster", func(*Options) {}, false},
		"URL": {"outside of the cluster", func(o *Options) {
			o.Service, o.URL = "",
				"https://127.0.0.1:9443/convert"
		}, false},
		"Both":    {"only one may be set", func(o *Options) { o.URL = "https://h/convert" }, true},
		"Neither": {"one must be set", func(o *Options) { o.Service = "" }, true},
		"HTTP":    {"API servers require TLS", func(o *Options) { o.Service, o.URL = "", "http://h/convert" }, true},
		"Path":    {"another path", func(o *Options) { o.Service, o.URL = "", "https://h/" }, true},
		"Query": {"API servers reject a query", func(o *Options) { o.Service, o.URL = "", "https://h/convert?a=b" },
			true},
		"NoHost":   {"the host is missing", func(o *Options) { o.Service, o.URL = "", "https:///convert" }, true},
		"NoURL":    {"not an address", func(o *Options) { o.Service, o.URL = "", "://" }, true},
		"NoClient": {"needed", func(o *Options) { o.Client = nil }, true},
	}
	for name, tc := range tests {
		o := good
		tc.change(&o)
		w, err := New(o)
		if (err != nil) != tc.fails {
			t.Errorf("%s: %s: error is %v", name, tc.reason, err)
		}
		if err == nil && w.NeedLeaderElection() {
			t.Error("only the leader would serve")
		}
	}
}

// review returns a request that asks for a conversion of objects to v1beta2.
func review(objects ...string) string {
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"operator.kyma-project.io/v1beta2","objects":[` + strings.Join(objects, ",") + `]}}`
}

func TestReview(t *testing.T) {
	kyma := func(name string) string {
		return `{"apiVersion":"operator.kyma-project.io/v1alpha1","kind":"Kyma","metadata":{"name":"` + name +
			`","namespace":"ns","uid":"1"},"spec":{"components":[{"name":"istio"}]}}`
	}
	bad := func(name string) string {
		return `{"apiVersion":"operator.kyma-project.io/v1alpha1","kind":"Kyma","metadata":{"name":"` + name +
			`","namespace":"ns","annotations":{"operator.kyma-project.io/conversion":"?"}}}`
	}
	tests := map[string]struct {
		reason  string
		body    string
		status  int
		failure []string // parts of the message
		want    string   // the first object
	}{
		"One": {
			reason: "an object",
			body:   review(kyma("k")),
			status: 200,
			want:   `{"apiVersion":"operator.kyma-project.io/v1beta2","kind":"Kyma","metadata":{"annotations":{"operator.kyma-project.io/conversion":"{\"for\":\"v1alpha1\",\"losses\":[{\"path\":[\"spec\",\"channel\"],\"was\":\"regular\"},{\"path\":[\"spec\",\"modules\",{\"name\":\"istio\"},\"component\"],\"is\":{}},{\"path\":[\"spec\",\"modules\",{\"name\":\"istio\"},\"customResourcePolicy\"],\"was\":\"CreateAndDelete\"}]}"},"name":"k","namespace":"ns","uid":"1"},"spec":{"channel":"regular","modules":[{"customResourcePolicy":"CreateAndDelete","managed":true,"name":"istio"}]}}`,
		},
		"Two": {
			reason: "several",
			body: review(kyma("k"),
				`{"apiVersion":"operator.kyma-project.io/v1alpha1","kind":"Manifest","metadata":{"name":"m"}}`,
				`{"apiVersion":"operator.kyma-project.io/v1alpha1","kind":"ModuleTemplate","metadata":{"name":"t"}}`),
			status: 200,
		},
		"None": {reason: "nothing to do", body: review(), status: 200},
		"Same": {
			reason: "it is in that version",
			body:   review(`{"apiVersion":"operator.kyma-project.io/v1beta2","kind":"Kyma","metadata":{"name":"k"},"any":1}`),
			status: 200,
			want:   `{"any":1,"apiVersion":"operator.kyma-project.io/v1beta2","kind":"Kyma","metadata":{"name":"k"}}`,
		},
		"Bad": {
			reason: "the message names the object and what to do",
			body:   review(kyma("good"), bad("spoilt")),
			status: 200,
			failure: []string{"Kyma ns/spoilt from operator.kyma-project.io/v1alpha1 to " +
				"operator.kyma-project.io/v1beta2", "remove it"},
		},
		"Many": {
			reason:  "the message is limited",
			body:    review(bad("1"), bad("2"), bad("3"), bad("4"), bad("5"), bad("6"), bad("7")),
			status:  200,
			failure: []string{"ns/5", "and 2 more"},
		},
		"Kind": {
			reason:  "a kind with one version",
			body:    review(`{"apiVersion":"operator.kyma-project.io/v1alpha1","kind":"Watcher","metadata":{"name":"w"}}`),
			status:  200,
			failure: []string{"Watcher /w", "no other version"},
		},
		"Version": {
			reason:  "a version that does not exist",
			body:    review(`{"apiVersion":"operator.kyma-project.io/v7","kind":"Kyma","metadata":{"name":"k"}}`),
			status:  200,
			failure: []string{"this conversion does not exist"},
		},
		"Type": {
			reason:  "a schema would reject it",
			body:    review(`{"apiVersion":"operator.kyma-project.io/v1alpha1","kind":"Kyma","metadata":{"name":"k"},"spec":{"modules":7}}`),
			status:  200,
			failure: []string{"Kyma /k", "modules"},
		},
		"NoObject": {reason: "not an object", body: review(`7`), status: 200, failure: []string{"reading an object"}},
		"NoJSON":   {reason: "not JSON", body: "hello", status: 400, failure: []string{"reading the review"}},
		"Other": {
			reason:  "another review",
			body:    `{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"ConversionReview","request":{}}`,
			status:  400,
			failure: []string{"apiextensions.k8s.io/v1beta1"},
		},
		"Answer": {
			reason:  "not a request",
			body:    `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}`,
			status:  400,
			failure: []string{"not a request"},
		},
		"Large": {
			reason:  "the size is limited",
			body:    review(`"` + strings.Repeat("x", reviewBytesLimit) + `"`),
			status:  413,
			failure: []string{"fewer objects"},
		},
	}
	w := newWebhook(t, newControlPlane(t), nil, nil)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			out := httptest.NewRecorder()
			w.review(out, httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path,
				strings.NewReader(tc.body)))
			if out.Code != tc.status {
				t.Fatalf("%s: status is %d, want %d: %s", tc.reason, out.Code, tc.status, out.Body)
			}
			message := out.Body.String()
			if tc.status == http.StatusOK {
				message = checkAnswer(t, tc.body, tc.want, len(tc.failure) == 0, out.Body.Bytes())
			}
			for _, part := range tc.failure {
				if !strings.Contains(message, part) {
					t.Errorf("%s: message %q does not contain %q", tc.reason, message, part)
				}
			}
		})
	}
}

// checkAnswer decodes the answer of the webhook as an API server does, checks its content, and returns the message in
// the answer.
func checkAnswer(t *testing.T, asked, want string, succeeds bool, body []byte) string {
	t.Helper()
	var request, got apiextensionsv1.ConversionReview
	if err := json.Unmarshal([]byte(asked), &request); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("the answer is no review: %v\n%s", err, body)
	}
	if got.Request != nil || got.Response == nil || got.Response.UID != types.UID("u") ||
		got.APIVersion != "apiextensions.k8s.io/v1" {
		t.Fatalf("the answer is %s", body)
	}
	if !succeeds {
		if got.Response.Result.Status != metav1.StatusFailure || len(got.Response.ConvertedObjects) > 0 {
			t.Errorf("the answer is %s", body)
		}
		return got.Response.Result.Message
	}
	if got.Response.Result.Status != metav1.StatusSuccess ||
		len(got.Response.ConvertedObjects) != len(request.Request.Objects) {
		t.Fatalf("the answer is %s", body)
	}
	for i, o := range got.Response.ConvertedObjects {
		fields := map[string]any{}
		if err := json.Unmarshal(o.Raw, &fields); err != nil {
			t.Fatal(err)
		}
		if fields["apiVersion"] != request.Request.DesiredAPIVersion {
			t.Errorf("object %d is in version %v", i, fields["apiVersion"])
		}
		if i > 0 || want == "" {
			continue
		}
		expected := map[string]any{}
		if err := json.Unmarshal([]byte(want), &expected); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(expected, fields); diff != "" {
			t.Errorf("object differs (-want +got):\n%s", diff)
		}
	}
	return ""
}

// TestHostileObjects sends objects to the webhook that are made to need much memory or stack, in requests that are as
// large as allowed. The test checks that each request gets a valid response, and that its memory is released
// afterwards.
func TestHostileObjects(t *testing.T) {
	const conversion = `"annotations":{"operator.kyma-project.io/conversion":`
	object := func(metadata, spec string) string {
		return `{"apiVersion":"operator.kyma-project.io/v1alpha1","kind":"Kyma","metadata":{"name":"k"` + metadata +
			`},"spec":{` + spec + `}}`
	}
	long := strings.Repeat(`{\"path\":[\"spec\",\"channel\"],\"was\":1},`, 20_000)
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	tests := map[string]struct {
		object string
		fails  bool
	}{
		"DeepField":      {object("", `"any":`+deep(9_000)), false},
		"TooDeepField":   {object("", `"any":`+deep(200_000)), true},
		"ManyValues":     {object("", `"any":[`+strings.Repeat("{},", 300_000)+`{}]`), false},
		"LongAnnotation": {object(","+conversion+`"{\"for\":\"v1alpha1\",\"losses\":[`+long+`{}]}"}`, ""), true},
		"DeepAnnotation": {object(","+conversion+`"`+deep(200_000)+`"}`, ""), true},
		"PathOutOfRange": {object(","+conversion+
			`"{\"for\":\"v1beta2\",\"losses\":[{\"path\":[\"spec\",99999999999],\"was\":1}]}"}`, ""), false},
		"MetadataIsAList": {`{"apiVersion":"operator.kyma-project.io/v1alpha1","kind":"Kyma","metadata":[]}`, true},
		"DuplicateNames":  {object("", `"modules":[`+strings.Repeat(`{"name":"a"},`, 5_000)+`{"name":"a"}]`), true},
	}
	w := newWebhook(t, newControlPlane(t), nil, nil)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			out := httptest.NewRecorder()
			w.review(out, httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path,
				strings.NewReader(review(tc.object))))
			var got apiextensionsv1.ConversionReview
			failed := out.Code != http.StatusOK
			if !failed {
				if err := json.Unmarshal(out.Body.Bytes(), &got); err != nil || got.Response == nil {
					t.Fatalf("the answer is no review: %v", err)
				}
				failed = got.Response.Result.Status != metav1.StatusSuccess
			}
			if failed != tc.fails {
				t.Errorf("status %d, failed %v, want failed %v: %.300s", out.Code, failed, tc.fails, out.Body)
			}
			if failed && out.Body.Len() > 4096 {
				t.Errorf("the refusal has %d bytes", out.Body.Len())
			}
		})
	}
}

// TestSlots checks that a request that waits for other requests ends when its caller cancels it.
func TestSlots(t *testing.T) {
	w := newWebhook(t, newControlPlane(t), nil, nil)
	for range reviewsLimit {
		w.slots <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out := httptest.NewRecorder()
	w.review(out, httptest.NewRequestWithContext(ctx, http.MethodPost, Path, strings.NewReader(review())))
	if out.Body.Len() > 0 {
		t.Errorf("answered above the limit of requests: %s", out.Body)
	}
}

// FuzzReview checks that every fuzzed request gets a valid answer.
func FuzzReview(f *testing.F) {
	f.Add([]byte(review(`{"apiVersion":"operator.kyma-project.io/v1alpha1","kind":"Kyma","metadata":{"name":"k"},"spec":{"components":[{"name":"istio"}]}}`)))
	f.Add([]byte(strings.ReplaceAll(
		review(`{"apiVersion":"operator.kyma-project.io/v1beta2","kind":"Manifest","metadata":{"name":"k","annotations":{"operator.kyma-project.io/conversion":"{\"for\":\"v1alpha1\",\"losses\":[{\"path\":[\"spec\",\"remote\"],\"was\":false}]}"}},"spec":{"install":{"name":"a","source":{}}}}`), `"operator.kyma-project.io/v1beta2","objects"`, `"operator.kyma-project.io/v1alpha1","objects"`)))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		w := &Webhook{slots: make(chan struct{}, 1)}
		out := httptest.NewRecorder()
		w.review(out, httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, bytes.NewReader(body)))
		if out.Code == http.StatusOK && !json.Valid(out.Body.Bytes()) {
			t.Errorf("the answer is %s", out.Body)
		}
	})
}

// BenchmarkConvert measures the conversion of a Kyma with 20 modules, because Kymas are the objects that are read most
// often.
func BenchmarkConvert(b *testing.B) {
	var modules []string
	for i := range 20 {
		modules = append(modules,
			fmt.Sprintf(`{"name":"module-%d","managed":true,"customResourcePolicy":"CreateAndDelete"}`, i))
	}
	raw := []byte(`{"apiVersion":"operator.kyma-project.io/v1beta2","kind":"Kyma","metadata":{"name":"k"},"spec":{"channel":"fast","modules":[` + strings.Join(modules, ",") + `]}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := convert(raw, "operator.kyma-project.io/v1alpha1"); err != nil {
			b.Fatal(err)
		}
	}
}
