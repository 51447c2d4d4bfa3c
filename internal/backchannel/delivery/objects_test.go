package delivery

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/authority"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// noIssuer is a certificate issuer that issues no certificates.
type noIssuer struct{}

func (noIssuer) Issue(context.Context, authority.Subject) (*authority.Certificate, error) {
	return nil, errors.New("no")
}
func (noIssuer) Stale(authority.Held, time.Time) (bool, string) { return false, "" }
func (noIssuer) Due(authority.Held) time.Time                   { return time.Time{} }
func (noIssuer) Release(context.Context, string) error          { return nil }

// issuer is a certificate issuer that records the subjects of its certificates.
type issuer struct {
	noIssuer
	issued []string // common names
}

func (i *issuer) Issue(_ context.Context, s authority.Subject) (*authority.Certificate, error) {
	i.issued = append(i.issued, s.CommonName)
	return &authority.Certificate{PEM: []byte("certificate"), Key: authority.Key("key"), CA: []byte("roots"),
		Serial: strconv.Itoa(len(i.issued))}, nil
}

func (*issuer) Stale(h authority.Held, _ time.Time) (bool, string) {
	return h == authority.Held{}, "it is missing"
}

func newDelivery(t *testing.T) *Delivery {
	t.Helper()
	d, err := New(Options{
		Issuer: noIssuer{}, Roots: func() []*x509.Certificate { return nil },
		Image:   "registry.example.com/runtime-watcher:1.2.3",
		Address: "events.example.com:444", MemoryLimit: "200Mi", CPULimit: "100m", GoDebug: "fips140=only",
		AuditInterval: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func request(watches ...protocol.Watch) Request {
	return Request{Kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		Server: "https://api.example.com:16443", Watchlist: protocol.Watchlist{Watches: watches}}
}

// content returns an object of a bundle in the form in which an API server receives the object.
func content(t *testing.T, b *render.Bundle, kind, name string) map[string]any {
	t.Helper()
	i := slices.IndexFunc(b.Objects, func(o *render.Object) bool { return o.GVK.Kind == kind && o.Name == name })
	if i < 0 {
		t.Fatalf("there is no %s %s", kind, name)
	}
	var o map[string]any
	if err := json.Unmarshal(b.Objects[i].AppendJSON(nil, "", render.Overlay{}), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestCompose(t *testing.T) {
	d := newDelivery(t)
	b, err := d.build(request(
		protocol.Watch{Group: "apps", Version: "v1", Resource: "deployments"},
		protocol.Watch{Group: "apps", Version: "v1", Resource: "deployments", Selector: "a=b"},
		protocol.Watch{Version: "v1", Resource: "configmaps"},
	), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range b.Objects {
		if o.Namespace != "" && o.Namespace != v1beta2.RuntimeNamespace {
			t.Errorf("%s %s is in %s", o.GVK.Kind, o.Name, o.Namespace)
		}
		if labels := content(t, b, o.GVK.Kind,
			o.Name)["metadata"].(map[string]any)["labels"]; labels.(map[string]any)[v1beta2.LabelManagedBy] !=
			v1beta2.ManagedByKyma {
			t.Errorf("%s %s does not say whose it is: %v", o.GVK.Kind, o.Name, labels)
		}
	}
	role := content(t, b, "ClusterRole", roleName)
	rules := []any{
		map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}, "verbs": []any{"list", "watch"}},
		map[string]any{"apiGroups": []any{"apps"}, "resources": []any{"deployments"}, "verbs": []any{"list", "watch"}},
	}
	if diff := cmp.Diff(rules, role["rules"]); diff != "" {
		t.Errorf("each kind once, nothing else: -want +got:\n%s", diff)
	}
	policy := content(t, b, "NetworkPolicy",
		apiServerPort)["spec"].(map[string]any)["egress"].([]any)[0].(map[string]any)
	var ports []float64
	for _, p := range policy["ports"].([]any) {
		ports = append(ports, p.(map[string]any)["port"].(float64))
	}
	if diff := cmp.Diff([]float64{443, 444, 6443, 16443}, ports); diff != "" {
		t.Errorf("ports of the API server and the listener: -want +got:\n%s", diff)
	}
	pod, err := json.Marshal(content(t, b, "Deployment", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"image":"registry.example.com/runtime-watcher:1.2.3"`,
		`"limits":{"cpu":"100m","memory":"200Mi"}`, `{"name":"KCP_ADDR","value":"events.example.com:444"}`,
		`{"name":"GODEBUG","value":"fips140=only"}`} {
		if !strings.Contains(string(pod), part) {
			t.Errorf("the Deployment has no %s", part)
		}
	}
}

func TestPlanRecordsBeforeItIsThere(t *testing.T) {
	d := newDelivery(t)
	s := &v1beta2.AgentStatus{Synced: []v1beta2.Resource{{Version: "v1", Kind: "ConfigMap", Namespace: "kyma-system",
		Name: "of-a-former-version"}}}
	plan, err := d.PlanAndAddRefs(request(protocol.Watch{Version: "v1", Resource: "configmaps"}), s)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Synced) != len(plan.bundle.Objects)+2 {
		t.Errorf("%d objects are recorded, want those of the plan, the Secret, and former ones", len(s.Synced))
	}
	s.Digest = plan.bundle.Digest
	before := slices.Clone(s.Synced)
	again, err := d.PlanAndAddRefs(request(protocol.Watch{Version: "v1", Resource: "configmaps"}), s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, s.Synced); diff != "" || again.bundle != plan.bundle {
		t.Errorf("the same plan changes nothing, and is shared: -want +got:\n%s", diff)
	}
	if other, err := d.PlanAndAddRefs(request(protocol.Watch{Version: "v1", Resource: "services"}), s); err != nil ||
		other.bundle.Digest == s.Digest {
		t.Errorf("another watch list needs another bundle: %v", err)
	}
}

// TestWebhooksReturn checks that the configuration of the webhooks is sent again if the agent needs it again after it
// was removed.
func TestWebhooksReturn(t *testing.T) {
	var (
		mu   sync.Mutex
		sent []string // the changes of webhook configurations
	)
	c := acceptingCluster(t, func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(r.URL.Path, "/validatingwebhookconfigurations/") {
			sent = append(sent, r.Method)
		}
	})
	d, m, s := newDelivery(t), &Memory{}, &v1beta2.AgentStatus{}
	m.AssumeCompared()
	without, with := request(), request()
	with.Webhooks = []Webhook{{Name: "a.example.com", Group: "apps", Version: "v1", Resource: "deployments"}}
	for _, r := range []Request{with, without, with} {
		plan, err := d.PlanAndAddRefs(r, s)
		if err != nil {
			t.Fatal(err)
		}
		waitsFor, err := d.Deliver(t.Context(), c, plan, m, s)
		if err != nil || waitsFor != "" || s.Digest != plan.Digest() {
			t.Fatalf("the delivery is not complete: %q, %v", waitsFor, err)
		}
	}
	if diff := cmp.Diff([]string{http.MethodPatch, http.MethodDelete, http.MethodPatch}, sent); diff != "" {
		t.Errorf("requests for the webhooks -want +got:\n%s", diff)
	}
}

// TestNamesOfCertificate checks that a certificate is replaced if the Kyma gets another runtime ID or domain, because
// the listener finds the Kyma of an agent by the name in its certificate.
func TestNamesOfCertificate(t *testing.T) {
	c := acceptingCluster(t, func(*http.Request) {})
	d, issuer, m, s := newDelivery(t), &issuer{}, &Memory{}, &v1beta2.AgentStatus{}
	d.Issuer = issuer
	forget := func(*v1beta2.Kyma) { s.Certificate.Names = "" }
	setID := func(id string) func(*v1beta2.Kyma) {
		return func(k *v1beta2.Kyma) { k.Labels = map[string]string{v1beta2.LabelRuntimeID: id} }
	}
	setDomain := func(k *v1beta2.Kyma) {
		k.Annotations = map[string]string{v1beta2.AnnotationSKRDomain: "a.example.com"}
	}
	kyma := request().Kyma
	for _, step := range []struct {
		reason string
		change func(*v1beta2.Kyma)
		want   []string // common names of all certificates
	}{
		{"there is no certificate", func(*v1beta2.Kyma) {}, []string{"a"}},
		{"nothing has changed", func(*v1beta2.Kyma) {}, []string{"a"}},
		{"the Kyma gets a runtime ID", setID("id-1"), []string{"a", "id-1"}},
		{"nothing has changed", setID("id-1"), []string{"a", "id-1"}},
		{"the runtime ID is corrected", setID("id-2"), []string{"a", "id-1", "id-2"}},
		{"the runtime gets a domain", setDomain, []string{"a", "id-1", "id-2", "id-2"}},
		{"an earlier version has recorded no names", forget, []string{"a", "id-1", "id-2", "id-2"}},
	} {
		step.change(kyma)
		d.DNSNames = append(d.DNSNames, "flag.example.com") // replaces no certificate
		waitsFor, err := d.ensureCertificate(t.Context(), c, Request{Kyma: kyma}, false, m, s)
		if err != nil || waitsFor != "" {
			t.Fatalf("%s: %q, %v", step.reason, waitsFor, err)
		}
		if diff := cmp.Diff(step.want, issuer.issued); diff != "" {
			t.Errorf("%s: certificates -want +got:\n%s", step.reason, diff)
		}
	}
}

// acceptingCluster returns a cluster whose API server accepts every object. The API server passes each request to the
// function record.
func acceptingCluster(t *testing.T, record func(*http.Request)) *apply.Cluster {
	t.Helper()
	return clusterOf(t, func(w http.ResponseWriter, r *http.Request) {
		record(r)
		if r.Method == http.MethodPatch {
			_, _ = w.Write(acceptedObject(t, r))
			return
		}
		_, _ = io.WriteString(w, `{"kind":"Status","status":"Success"}`)
	})
}

// clusterOf returns a cluster whose API server answers with the function serve.
func clusterOf(t *testing.T, serve http.HandlerFunc) *apply.Cluster {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		serve(w, r)
	}))
	t.Cleanup(server.Close)
	c, err := apply.New(&rest.Config{Host: server.URL}, nil, apply.ClusterOptions{RequestTimeout: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// acceptedObject returns the object in a PATCH request as an API server that accepts it returns the object.
func acceptedObject(t *testing.T, r *http.Request) []byte {
	var o map[string]any
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		t.Error(err)
		return nil
	}
	metadata := o["metadata"].(map[string]any)
	metadata["uid"], metadata["resourceVersion"] = "uid-1", "1"
	accepted, err := json.Marshal(o)
	if err != nil {
		t.Error(err)
	}
	return accepted
}

// slowIssuer is an issuer that returns the same certificate until the test replaces it.
type slowIssuer struct {
	noIssuer
	cert   authority.Certificate
	why    string // why the certificate is stale; "" if it is not stale
	issued int    // calls of Issue
}

func (i *slowIssuer) Issue(context.Context, authority.Subject) (*authority.Certificate, error) {
	i.issued++
	return new(i.cert), nil
}

func (i *slowIssuer) Stale(h authority.Held, _ time.Time) (bool, string) {
	if h == (authority.Held{}) {
		return true, "there is no certificate"
	}
	return i.why != "", i.why
}

// TestCertificateIsNotRenewed checks an issuer that does not renew a certificate although it is due: the certificate is
// not sent again, unless it does not exist in the runtime, and the issuer is asked again only after an interval.
func TestCertificateIsNotRenewed(t *testing.T) {
	var (
		stored []byte // the Secret in the runtime; nil if it does not exist
		sent   int
	)
	c := clusterOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPatch:
			sent++
			stored = acceptedObject(t, r)
		case stored == nil:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound",
				"details":{"name":"skr-webhook-tls","kind":"secrets"},"code":404}`)
			return
		}
		_, _ = w.Write(stored)
	})
	issuer := &slowIssuer{cert: authority.Certificate{Serial: "1", PEM: []byte("certificate"), Root: "root"}}
	d, m, s := newDelivery(t), &Memory{}, &v1beta2.AgentStatus{}
	d.Issuer = issuer
	steps := []struct {
		reason       string
		before       func()
		audit        bool
		issued, sent int
	}{
		{"the first one is sent", func() {}, false, 1, 1},
		{"it is not due", func() {}, true, 1, 1},
		{"it is due, but the issuer has no other one", func() { issuer.why = "it expires" }, false, 2, 1},
		{"the issuer was asked a moment ago", func() {}, true, 2, 1},
		{"it was deleted in the runtime", func() { stored = nil }, true, 3, 2},
		{"the issuer is asked again, and it still exists", func() { m.unrenewedAt = time.Time{} }, true, 4, 2},
		{"it was deleted before the issuer is asked again",
			func() { m.unrenewedAt, stored = time.Time{}, nil }, true, 5, 3},
		{"it is due for another reason, too", func() { issuer.why = "there is a newer root" }, false, 6, 3},
		{"the roots have changed", func() { issuer.why, issuer.cert.CA = "the roots have changed", []byte("roots") },
			false, 7, 4},
		{"the issuer has renewed it", func() { m.unrenewedAt, issuer.cert.Serial = time.Time{}, "2" }, false, 8, 5},
	}
	for _, step := range steps {
		step.before()
		waitsFor, err := d.ensureCertificate(t.Context(), c, request(), step.audit, m, s)
		if err != nil || waitsFor != "" {
			t.Fatalf("%s: %q, %v", step.reason, waitsFor, err)
		}
		if issuer.issued != step.issued || sent != step.sent || s.Certificate.Serial != issuer.cert.Serial {
			t.Fatalf("%s: issued %d times, sent %d times, serial %s recorded; want %d, %d, %s", step.reason,
				issuer.issued, sent, s.Certificate.Serial, step.issued, step.sent, issuer.cert.Serial)
		}
	}
}

func TestCommonName(t *testing.T) {
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	if got := CommonName(k); got != "a" {
		t.Errorf("without a runtime ID it is the name of the Kyma, not %q", got)
	}
	k.Labels = map[string]string{v1beta2.LabelRuntimeID: "id"}
	if got := CommonName(k); got != "id" {
		t.Errorf("with a runtime ID it is that, not %q", got)
	}
}
