// Package delivery puts the agent into a runtime, keeps it there as it should be, and gives it its certificate.
//
// # Use
//
//	d, err := delivery.New(delivery.Options{…})
//	kit, err := d.Plan(request, status)                            // what is to be there, recorded before it is
//	waits, err := d.Deliver(ctx, cluster, kit, &memory, status)
//
// # How it works
//
// What a runtime gets is the kit: the objects of kit.yaml, with what comes from flags, the watch list, and the rights that the list
// needs. Runtimes with the same modules share one. The status has a digest of it, so that nothing is sent while it is the same, and the list of its objects, by which they
// are removed. The certificate is not part of the kit: its key is nowhere but in the runtime, so it is issued anew when it has to be
// delivered again.
//
// # What it does not do
//
// It does not know whether the agent is heard: that is known where its heartbeats arrive.
package delivery

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/authority"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Options are the same for all runtimes.
type Options struct {
	// Issuer issues certificates.
	Issuer authority.Issuer
	// Roots are what everybody trusts at this moment.
	Roots func() []*x509.Certificate
	// Image is the agent's image.
	Image string
	// Address is host:port by which agents reach the listener.
	Address string
	// MemoryLimit and CPULimit are quantities.
	MemoryLimit, CPULimit string
	// DNSNames are added to certificates.
	DNSNames []string
	// PullSecret is the Secret in the runtime that the image is pulled with; "" is none.
	PullSecret string
	// AuditInterval is how often everything is compared with what it should be.
	AuditInterval time.Duration
}

// Delivery delivers agents. Safe for concurrent use.
type Delivery struct {
	Options

	mu   sync.Mutex
	kits map[string]*render.Bundle // guarded by mu; by what they are made from
}

// maxKits bounds how many kits are remembered: runtimes differ by their modules, of which there are few combinations.
const maxKits = 128

// New checks the options.
func New(o Options) (*Delivery, error) {
	if o.Issuer == nil || o.Roots == nil || o.Image == "" || o.Address == "" || o.AuditInterval <= 0 {
		return nil, fmt.Errorf("making the delivery of agents: options need Issuer, Roots, Image, Address and AuditInterval")
	}
	return &Delivery{Options: o, kits: map[string]*render.Bundle{}}, nil
}

// Request is what one runtime is to have.
type Request struct {
	// Kyma stands for the runtime.
	Kyma *v1beta2.Kyma
	// Server is the address of the runtime's API server.
	Server string
	// Watchlist is what the agent watches.
	Watchlist protocol.Watchlist
	// Webhooks are what the API server asks the agent about.
	Webhooks []Webhook
	// NotBefore revokes certificates that were issued earlier; zero is none.
	NotBefore time.Time
}

// Memory is what is known of one runtime between passes. Losing it costs patches that change nothing. The zero value is ready to use.
type Memory struct {
	kit      apply.Progress
	deletion apply.DeletionProgress
	audited  time.Time
}

// Kit is what one runtime is to have.
type Kit struct {
	request Request
	bundle  *render.Bundle // shared
}

// Digest identifies what the runtime is to have, but for the certificate.
func (k Kit) Digest() string { return k.bundle.Digest }

// Doubt says that something may not be as it was delivered, so that the next Deliver compares it, if that was not done for so long.
func (m *Memory) Doubt(after time.Duration) {
	if time.Since(m.audited) >= after {
		m.audited = time.Time{}
	}
}

// Trust says that what was delivered is taken to be as it was. It is compared when that was not done for Options.AuditInterval, or on a Doubt.
func (m *Memory) Trust() { m.audited = time.Now() }

// owner is the field manager of the kit: what we deliver is ours.
const owner = v1beta2.FieldOwner

// Plan works out what is to be delivered, and records its objects in s. Save s before Deliver is called.
func (d *Delivery) Plan(r Request, s *v1beta2.AgentStatus) (Kit, error) {
	bundle, err := d.kit(r)
	if err != nil {
		return Kit{}, err
	}
	if s.Digest != bundle.Digest {
		for _, ref := range append(refsOf(bundle), secretRef()) {
			if !slices.Contains(s.Synced, ref) {
				s.Synced = append(s.Synced, ref)
			}
		}
	}
	return Kit{request: r, bundle: bundle}, nil
}

// IsDelivered tells whether what is to be delivered for a request is what s says the runtime has.
func (d *Delivery) IsDelivered(r Request, s *v1beta2.AgentStatus) (bool, error) {
	bundle, err := d.kit(r)
	if err != nil {
		return false, err
	}
	return s.Digest == bundle.Digest, nil
}

// kit returns the kit for a request, made if nobody has had the same yet.
func (d *Delivery) kit(r Request) (*render.Bundle, error) {
	key := d.keyOf(r)
	d.mu.Lock()
	bundle := d.kits[key]
	d.mu.Unlock()
	if bundle != nil {
		return bundle, nil
	}
	bundle, err := d.compose(r, d.roots())
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.kits) >= maxKits {
		clear(d.kits)
	}
	d.kits[key] = bundle
	return bundle, nil
}

// keyOf says what a kit is made from.
func (d *Delivery) keyOf(r Request) string {
	key := r.Watchlist.Digest() + " " + portOf(r.Server)
	if len(r.Webhooks) > 0 {
		key += fmt.Sprintf(" %+v %s", r.Webhooks, authority.Digest(d.roots()))
	}
	return key
}

// Deliver brings the runtime to what was planned. What is there costs nothing, but for a comparison now and then. If it is not done yet it says
// what it waits for.
func (d *Delivery) Deliver(ctx context.Context, c *apply.Cluster, k Kit, m *Memory, s *v1beta2.AgentStatus) (waits string, err error) {
	audit := time.Since(m.audited) >= d.AuditInterval*7/8
	if waits, err := d.certify(ctx, c, k.request, audit, s); err != nil || waits != "" {
		return waits, err
	}
	set := apply.Set{Bundle: k.bundle, Owner: owner}
	drifted := false
	if audit && s.Digest == k.bundle.Digest {
		found, err := c.FindDrift(ctx, set, &m.kit)
		if err != nil {
			return "", fmt.Errorf("comparing the agent: %w", err)
		}
		drifted = len(found) > 0
	}
	if s.Digest != k.bundle.Digest || drifted {
		if waits, err := d.send(ctx, c, set, m, s); err != nil || waits != "" {
			return waits, err
		}
	}
	if audit {
		m.audited = time.Now()
	}
	return "", nil
}

// send applies the kit and removes what is no longer of it.
func (d *Delivery) send(ctx context.Context, c *apply.Cluster, set apply.Set, m *Memory, s *v1beta2.AgentStatus) (waits string, err error) {
	result, err := c.Apply(ctx, set, &m.kit)
	switch {
	case err != nil:
		return "", fmt.Errorf("delivering the agent: %w", err)
	case len(result.Failed) > 0:
		return "", fmt.Errorf("delivering the agent: %w", result.Failed[0])
	case len(result.Waiting) > 0:
		return result.Waiting[0].Message, nil
	}
	refs := append(refsOf(set.Bundle), secretRef())
	if gone := slices.DeleteFunc(slices.Clone(s.Synced), func(r v1beta2.Resource) bool { return slices.Contains(refs, r) }); len(gone) > 0 {
		left, err := c.Delete(ctx, Refs(gone), &m.deletion)
		if err != nil {
			return "", fmt.Errorf("removing what the agent no longer has: %w", err)
		}
		if len(left.Remaining) > 0 {
			return left.WaitMessage(), nil
		}
		m.deletion = apply.DeletionProgress{}
	}
	s.Synced, s.Digest = refs, set.Bundle.Digest
	return "", nil
}

// certify delivers a certificate if there is none that will do.
func (d *Delivery) certify(ctx context.Context, c *apply.Cluster, r Request, audit bool, s *v1beta2.AgentStatus) (waits string, err error) {
	stale, why := d.Issuer.Stale(held(s), r.NotBefore)
	if !stale && audit && s.Certificate != nil {
		there, err := d.hasCertificate(ctx, c, s.Certificate.Serial)
		if err != nil {
			return "", err
		}
		stale, why = !there, "it is not in the runtime"
	}
	if !stale {
		return "", nil
	}
	cert, err := d.Issuer.Issue(ctx, authority.Subject{
		Kyma: r.Kyma.Name, CommonName: CommonName(r.Kyma), UID: string(r.Kyma.UID), DNSNames: d.dnsNames(r.Kyma), NotBefore: r.NotBefore,
	})
	if err != nil {
		return "", fmt.Errorf("issuing a certificate for runtime %s: %w", r.Kyma.Name, err)
	}
	bundle, err := render.Build([]*unstructured.Unstructured{secretOf(cert)}, render.Options{})
	if err != nil {
		return "", fmt.Errorf("building the certificate of runtime %s: %w", r.Kyma.Name, err)
	}
	result, err := c.Apply(ctx, apply.Set{Bundle: bundle, Owner: owner}, &apply.Progress{})
	if err == nil && len(result.Failed) > 0 {
		err = result.Failed[0]
	}
	if err != nil {
		return "", fmt.Errorf("delivering the certificate of runtime %s: %w", r.Kyma.Name, err)
	}
	if len(result.Waiting) > 0 {
		return result.Waiting[0].Message, nil
	}
	log.FromContext(ctx).Info("certificate delivered", "serial", cert.Serial, "because", why, "until", cert.NotAfter)
	seen := ""
	if s.Certificate != nil {
		seen = s.Certificate.RootInUse
	}
	h := cert.Held()
	s.Certificate = &v1beta2.AgentCertificate{
		Serial: h.Serial, Issued: metav1.NewTime(h.Issued), NotAfter: metav1.NewTime(h.NotAfter), Root: h.Root, Bundle: h.Bundle, RootInUse: seen,
	}
	return "", nil
}

// held is what is recorded of the certificate that was delivered last.
func held(s *v1beta2.AgentStatus) authority.Held {
	c := s.Certificate
	if c == nil {
		return authority.Held{}
	}
	return authority.Held{Serial: c.Serial, Root: c.Root, Bundle: c.Bundle, Issued: c.Issued.Time, NotAfter: c.NotAfter.Time}
}

// Due returns when the certificate is to be renewed; zero if there is none.
func (d *Delivery) Due(s *v1beta2.AgentStatus) time.Time {
	if s.Certificate == nil {
		return time.Time{}
	}
	return d.Issuer.Due(held(s))
}

// roots returns what everybody trusts as PEM.
func (d *Delivery) roots() []byte {
	var all []byte
	for _, root := range d.Roots() {
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})...)
	}
	return all
}

// dnsNames are the names that the certificate of a runtime is for, beside those of its Service.
func (d *Delivery) dnsNames(k *v1beta2.Kyma) []string {
	names := slices.Clone(d.DNSNames)
	if domain := k.Annotations[v1beta2.AnnotationSKRDomain]; domain != "" {
		names = append(names, domain)
	}
	return names
}

// CommonName is by which name a runtime is known: its runtime ID, else the name of its Kyma.
func CommonName(k *v1beta2.Kyma) string {
	if id := k.Labels[v1beta2.LabelRuntimeID]; id != "" {
		return id
	}
	return k.Name
}

// serialAnnotation tells which certificate a Secret holds, without reading it.
const serialAnnotation = "operator.kyma-project.io/certificate-serial"

// hasCertificate tells whether the certificate that was delivered is there.
func (d *Delivery) hasCertificate(ctx context.Context, c *apply.Cluster, serial string) (bool, error) {
	u, err := c.Get(ctx, Refs([]v1beta2.Resource{secretRef()})[0])
	if loop.Reason(err) == apply.ObjectNotFound {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for the certificate of the agent: %w", err)
	}
	data, _, _ := unstructured.NestedString(u.Object, "data", "tls.crt")
	return u.GetAnnotations()[serialAnnotation] == serial && data != "", nil
}

func secretOf(cert *authority.Certificate) *unstructured.Unstructured {
	encode := func(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
		"metadata": map[string]any{
			"name": secretName, "namespace": v1beta2.RuntimeNamespace,
			"labels":      map[string]any{v1beta2.LabelManagedBy: v1beta2.ManagedByKyma},
			"annotations": map[string]any{serialAnnotation: cert.Serial},
		},
		"data": map[string]any{caKey: encode(cert.CA), "tls.crt": encode(cert.PEM), "tls.key": encode(cert.Key)},
	}}
}

func secretRef() v1beta2.Resource {
	return v1beta2.Resource{Name: secretName, Namespace: v1beta2.RuntimeNamespace, Version: "v1", Kind: "Secret"}
}

func refsOf(b *render.Bundle) []v1beta2.Resource {
	refs := make([]v1beta2.Resource, len(b.Objects))
	for i, o := range b.Objects {
		refs[i] = v1beta2.Resource{Name: o.Name, Namespace: o.Namespace, Group: o.GVK.Group, Version: o.GVK.Version, Kind: o.GVK.Kind}
	}
	return refs
}

// Refs are what a runtime got, for those who remove it.
func Refs(synced []v1beta2.Resource) []apply.Ref {
	refs := make([]apply.Ref, len(synced))
	for i, r := range synced {
		refs[i] = apply.Ref{Group: r.Group, Version: r.Version, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
	}
	return refs
}

func ca64(pem []byte) string { return base64.StdEncoding.EncodeToString(pem) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func anys(in []string) []any {
	out := make([]any, len(in))
	for i, s := range in {
		out[i] = s
	}
	return out
}
