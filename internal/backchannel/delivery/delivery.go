// Package delivery delivers the agent and its certificate to a runtime, and reverts changes of the delivered objects.
//
// # Use
//
//	d, err := delivery.New(delivery.Options{…})
//	plan, err := d.PlanAndAddRefs(request, status) // adds the objects to the status; save it before the next call
//	waitsFor, err := d.Deliver(ctx, cluster, plan, &memory, status)
//
// # How it works
//
// The embedded file objects.yaml contains the objects of the agent that a runtime gets. The package completes the
// objects of the agent with values of flags, with the watch list, and with the permissions that the watch list
// requires. Runtimes with the same modules share one bundle with the objects of the agent. The status of the Kyma
// contains the digest of this bundle. As long as the digest of the bundle stays the same, no object of the agent is
// sent to the runtime again. The status of the Kyma also lists the delivered objects, so that they can be deleted
// later. The bundle does not contain the client certificate of the agent. The private key of the certificate exists
// only in the runtime, so the manager issues a new certificate whenever it has to deliver one.
//
// # What it does not do
//
// The package does not check whether the agent is connected: package backchannel receives the heartbeats of the agent,
// and therefore checks the connection.
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

// Options configure a Delivery. The options apply to all runtimes.
type Options struct {
	// Issuer issues certificates.
	Issuer authority.Issuer
	// Roots returns the root certificates that agents and the listener trust at present.
	Roots func() []*x509.Certificate
	// Image is the agent's image.
	Image string
	// Address is the host:port at which agents reach the listener.
	Address string
	// MemoryLimit and CPULimit are the resource limits of the agent, as quantities.
	MemoryLimit, CPULimit string
	// GoDebug is the variable GODEBUG of the agent. "" means that the variable is not set.
	GoDebug string
	// DNSNames are additional DNS names in all certificates.
	DNSNames []string
	// PullSecret is the name of the image pull Secret in the runtime. "" means that there is no image pull Secret.
	PullSecret string
	// AuditInterval is the time between two comparisons of all delivered objects with the desired ones.
	AuditInterval time.Duration
}

// Delivery delivers agents to runtimes. Safe for concurrent use.
type Delivery struct {
	Options

	mu      sync.Mutex
	bundles map[string]*render.Bundle // guarded by mu; the key is the result of bundleKey
}

// bundlesLimit is the maximum number of cached bundles. The bundles of two runtimes differ if their modules differ, and
// there are few combinations of modules.
const bundlesLimit = 128

// New checks the options and returns a Delivery.
func New(o Options) (*Delivery, error) {
	if o.Issuer == nil || o.Roots == nil || o.Image == "" || o.Address == "" || o.AuditInterval <= 0 {
		return nil, fmt.Errorf(
			"making the delivery of agents: options need Issuer, Roots, Image, Address and AuditInterval")
	}
	return &Delivery{Options: o, bundles: map[string]*render.Bundle{}}, nil
}

// Request describes the agent and the certificate that must be delivered to one runtime.
type Request struct {
	// Kyma is the Kyma of the runtime.
	Kyma *v1beta2.Kyma
	// Server is the URL of the API server of the runtime.
	Server string
	// Watchlist is the watch list of the agent.
	Watchlist protocol.Watchlist
	// Webhooks are the webhooks of the agent.
	Webhooks []Webhook
	// NotBefore is a time of revocation: all certificates that were issued before NotBefore are replaced. If NotBefore
	// is the zero time, no certificate is revoked.
	NotBefore time.Time
}

// Memory contains the data that a Delivery remembers about one runtime between reconciles. If the content of Memory is
// lost, the next call of Deliver sends all patches again, although they change nothing. The zero value is ready for
// use.
type Memory struct {
	applied  apply.Progress
	deletion apply.DeletionProgress
	audited  time.Time

	// The issuer has not renewed a certificate although it is due: the reason why it is due, and the last attempt.
	unrenewed   string
	unrenewedAt time.Time
}

// renewalRetryInterval is the time between two requests for a certificate that the issuer has not renewed yet. A
// certificate of cert-manager is due weeks before its end, and each request costs three requests to the control plane,
// for every runtime while cert-manager does not work.
const renewalRetryInterval = time.Hour

// Plan has the objects that must be delivered to one runtime.
type Plan struct {
	request Request
	bundle  *render.Bundle // shared between runtimes
}

// Digest returns a digest of the objects in the plan, without the certificate.
func (p Plan) Digest() string { return p.bundle.Digest }

// RequireComparisonUnlessDoneWithin makes the next Deliver compare the delivered objects in the runtime with the
// desired ones. If the last comparison was within the given period, RequireComparisonUnlessDoneWithin has no effect.
func (m *Memory) RequireComparisonUnlessDoneWithin(period time.Duration) {
	if time.Since(m.audited) >= period {
		m.audited = time.Time{}
	}
}

// AssumeCompared records that a comparison at the present time has found all delivered objects unchanged.
func (m *Memory) AssumeCompared() { m.audited = time.Now() }

// owner is the field manager with which the delivered objects are applied.
const owner = v1beta2.FieldOwner

// PlanAndAddRefs computes the objects that must be delivered to a runtime, and adds references to these objects to the
// status of the agent. The caller must save the status in the Kyma before the caller calls Deliver, so that each
// delivered object is listed.
func (d *Delivery) PlanAndAddRefs(r Request, status *v1beta2.AgentStatus) (Plan, error) {
	bundle, err := d.bundleFor(r)
	if err != nil {
		return Plan{}, err
	}
	if status.Digest != bundle.Digest {
		for _, ref := range append(refsOf(bundle), secretRef()) {
			if !slices.Contains(status.Synced, ref) {
				status.Synced = append(status.Synced, ref)
			}
		}
	}
	return Plan{request: r, bundle: bundle}, nil
}

// IsDelivered reports whether the status s of the agent shows that everything was delivered for a request.
func (d *Delivery) IsDelivered(r Request, s *v1beta2.AgentStatus) (bool, error) {
	bundle, err := d.bundleFor(r)
	if err != nil {
		return false, err
	}
	return s.Digest == bundle.Digest, nil
}

// bundleFor returns the bundle of objects for a request, from the cache if possible.
func (d *Delivery) bundleFor(r Request) (*render.Bundle, error) {
	key := d.bundleKey(r)
	d.mu.Lock()
	bundle := d.bundles[key]
	d.mu.Unlock()
	if bundle != nil {
		return bundle, nil
	}
	bundle, err := d.build(r, d.roots())
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.bundles) >= bundlesLimit {
		clear(d.bundles)
	}
	d.bundles[key] = bundle
	return bundle, nil
}

// bundleKey returns the key of a request's bundle in the cache. Requests with the same key have the same bundle.
func (d *Delivery) bundleKey(r Request) string {
	key := r.Watchlist.Digest() + " " + explicitPortOf(r.Server)
	if len(r.Webhooks) > 0 {
		key += fmt.Sprintf(" %+v %s", r.Webhooks, authority.Digest(d.roots()))
	}
	return key
}

// Deliver applies the plan to the runtime and issues a certificate if necessary. If nothing has changed, Deliver sends
// no request, except for one comparison per AuditInterval. Deliver returns the reason why the caller must wait, or ""
// if everything is delivered.
func (d *Delivery) Deliver(ctx context.Context, c *apply.Cluster, p Plan, m *Memory, s *v1beta2.AgentStatus) (
	waitsFor string, err error) {
	audit := time.Since(m.audited) >= d.AuditInterval*7/8
	if waitsFor, err := d.ensureCertificate(ctx, c, p.request, audit, m, s); err != nil || waitsFor != "" {
		return waitsFor, err
	}
	set := apply.Set{Bundle: p.bundle, Owner: owner}
	drifted := false
	if audit && s.Digest == p.bundle.Digest {
		found, err := c.FindDrift(ctx, set, &m.applied)
		if err != nil {
			return "", fmt.Errorf("comparing the agent: %w", err)
		}
		drifted = len(found) > 0
	}
	if s.Digest != p.bundle.Digest || drifted {
		if waitsFor, err := d.applyAndPrune(ctx, c, set, m, s); err != nil || waitsFor != "" {
			return waitsFor, err
		}
	}
	if audit {
		m.audited = time.Now()
	}
	return "", nil
}

// applyAndPrune applies the objects, and deletes objects that were delivered before and are no longer part of the
// agent.
func (d *Delivery) applyAndPrune(ctx context.Context, c *apply.Cluster, set apply.Set, m *Memory,
	s *v1beta2.AgentStatus) (
	waitsFor string, err error) {
	result, err := c.Apply(ctx, set, &m.applied)
	switch {
	case err != nil:
		return "", fmt.Errorf("delivering the agent: %w", err)
	case len(result.Failed) > 0:
		return "", fmt.Errorf("delivering the agent: %w", result.Failed[0])
	case len(result.Waiting) > 0:
		return result.Waiting[0].Message, nil
	}
	refs := append(refsOf(set.Bundle), secretRef())
	if extra := slices.DeleteFunc(slices.Clone(s.Synced),
		func(r v1beta2.Resource) bool { return slices.Contains(refs, r) }); len(extra) > 0 {
		m.applied.Forget(Refs(extra)...) // if a later bundle has them again, they are sent again
		left, err := c.Delete(ctx, Refs(extra), &m.deletion)
		if err != nil {
			return "", fmt.Errorf("removing former objects of the agent: %w", err)
		}
		if len(left.Remaining) > 0 {
			return left.WaitMessage(), nil
		}
		m.deletion = apply.DeletionProgress{}
	}
	s.Synced, s.Digest = refs, set.Bundle.Digest
	return "", nil
}

// ensureCertificate issues and delivers a certificate if the runtime has no certificate or if its certificate must be
// replaced. If the issuer returns the certificate that was delivered last, it is delivered again only if it does not
// exist in the runtime. Such a certificate is still valid, so it is no problem yet: Issue fails when it expires.
func (d *Delivery) ensureCertificate(ctx context.Context, c *apply.Cluster, r Request, audit bool, m *Memory,
	s *v1beta2.AgentStatus) (waitsFor string, err error) {
	delivered := deliveredCertificate(s)
	stale, why := d.Issuer.Stale(delivered, r.NotBefore)
	names := namesDigest(r.Kyma)
	if !stale && s.Certificate != nil && s.Certificate.Names != "" && s.Certificate.Names != names {
		stale, why = true, "its names have changed"
	}
	if stale && why == m.unrenewed && time.Since(m.unrenewedAt) < renewalRetryInterval {
		stale = false
	}
	if !stale {
		if why, err = d.reasonIfMissing(ctx, c, audit, s); err != nil || why == "" {
			return "", err
		}
	}
	cert, err := d.Issuer.Issue(ctx, authority.Subject{
		Kyma: r.Kyma.Name, CommonName: CommonName(r.Kyma), UID: string(r.Kyma.UID),
		DNSNames: d.additionalDNSNames(r.Kyma), NotBefore: r.NotBefore,
	})
	if err != nil {
		return "", fmt.Errorf("issuing a certificate for runtime %s: %w", r.Kyma.Name, err)
	}
	h := cert.Record()
	if stale && h.Serial == delivered.Serial && h.Root == delivered.Root && h.Bundle == delivered.Bundle {
		m.unrenewed, m.unrenewedAt = why, time.Now()
		log.FromContext(ctx).Info("certificate is due for renewal, but its issuer has not renewed it",
			"serial", h.Serial, "because", why, "until", h.NotAfter)
		if why, err = d.reasonIfMissing(ctx, c, audit, s); err != nil || why == "" {
			return "", err
		}
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
	rootInUse := ""
	if s.Certificate != nil {
		rootInUse = s.Certificate.RootInUse
	}
	s.Certificate = &v1beta2.AgentCertificate{
		Serial: h.Serial, Issued: metav1.NewTime(h.Issued), NotAfter: metav1.NewTime(h.NotAfter), Root: h.Root,
		Bundle: h.Bundle, Names: names, RootInUse: rootInUse,
	}
	return "", nil
}

// deliveredCertificate returns what the agent's status in the Kyma records about the certificate that was delivered
// last.
func deliveredCertificate(s *v1beta2.AgentStatus) authority.Held {
	c := s.Certificate
	if c == nil {
		return authority.Held{}
	}
	return authority.Held{Serial: c.Serial, Root: c.Root, Bundle: c.Bundle,
		Issued: c.Issued.Time, NotAfter: c.NotAfter.Time}
}

// RenewalTime returns the time at which the certificate must be renewed. If there is no certificate, RenewalTime
// returns the zero time.
func (d *Delivery) RenewalTime(s *v1beta2.AgentStatus) time.Time {
	if s.Certificate == nil {
		return time.Time{}
	}
	return d.Issuer.Due(deliveredCertificate(s))
}

// roots returns the trusted root certificates in PEM format.
func (d *Delivery) roots() []byte {
	var all []byte
	for _, root := range d.Roots() {
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})...)
	}
	return all
}

// additionalDNSNames returns the additional DNS names in the certificate of a runtime; the names of the agent's Service
// are not among them.
func (d *Delivery) additionalDNSNames(k *v1beta2.Kyma) []string {
	names := slices.Clone(d.DNSNames)
	if domain := k.Annotations[v1beta2.AnnotationSKRDomain]; domain != "" {
		names = append(names, domain)
	}
	return names
}

// CommonName returns the common name in the certificate of a runtime. The common name is the runtime ID, or the name of
// the Kyma if there is no runtime ID.
func CommonName(k *v1beta2.Kyma) string {
	if id := k.Labels[v1beta2.LabelRuntimeID]; id != "" {
		return id
	}
	return k.Name
}

// namesDigest returns a digest of the names in a certificate that come from the Kyma. The listener finds the Kyma of an
// agent by the common name, so it refuses a certificate with a former runtime ID. The names in Options.DNSNames are not
// part of the digest: agents work with certificates that lack such a name, and a changed flag must not replace the
// certificates of all runtimes at once.
func namesDigest(k *v1beta2.Kyma) string {
	return authority.Digest([]byte(CommonName(k) + "\n" + k.Annotations[v1beta2.AnnotationSKRDomain]))
}

// serialAnnotation is the key of the annotation that states the serial number of the certificate on the agent's Secret.
const serialAnnotation = "operator.kyma-project.io/certificate-serial"

// reasonIfMissing returns the reason to deliver a certificate that is not stale, or "" if an audit finds it in the
// runtime. Without an audit, the certificate is assumed to exist.
func (d *Delivery) reasonIfMissing(ctx context.Context, c *apply.Cluster, audit bool, s *v1beta2.AgentStatus) (
	why string, err error) {
	if !audit || s.Certificate == nil {
		return "", nil
	}
	exists, err := d.hasCertificate(ctx, c, s.Certificate.Serial)
	if err != nil || exists {
		return "", err
	}
	return "it does not exist in the runtime", nil
}

// hasCertificate reports whether the certificate that was delivered last still exists in the runtime.
func (d *Delivery) hasCertificate(ctx context.Context, c *apply.Cluster, serial string) (bool, error) {
	u, err := c.Get(ctx, Refs([]v1beta2.Resource{secretRef()})[0])
	if loop.Reason(err) == apply.ObjectNotFound {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the certificate of the agent: %w", err)
	}
	data, _, _ := unstructured.NestedString(u.Object, "data", "tls.crt")
	return u.GetAnnotations()[serialAnnotation] == serial && data != "", nil
}

// secretOf returns the Secret that contains a certificate.
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

// secretRef is the reference to the Secret with the certificate.
func secretRef() v1beta2.Resource {
	return v1beta2.Resource{Name: secretName, Namespace: v1beta2.RuntimeNamespace, Version: "v1", Kind: "Secret"}
}

// refsOf returns references to the objects of a bundle.
func refsOf(b *render.Bundle) []v1beta2.Resource {
	refs := make([]v1beta2.Resource, len(b.Objects))
	for i, o := range b.Objects {
		refs[i] = v1beta2.Resource{Name: o.Name, Namespace: o.Namespace, Group: o.GVK.Group,
			Version: o.GVK.Version, Kind: o.GVK.Kind}
	}
	return refs
}

// Refs converts a list of objects in the status to references of package apply.
func Refs(synced []v1beta2.Resource) []apply.Ref {
	refs := make([]apply.Ref, len(synced))
	for i, r := range synced {
		refs[i] = apply.Ref{Group: r.Group, Version: r.Version, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
	}
	return refs
}

func ca64(pem []byte) string { return base64.StdEncoding.EncodeToString(pem) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func asAnySlice(in []string) []any {
	out := make([]any, len(in))
	for i, s := range in {
		out[i] = s
	}
	return out
}
