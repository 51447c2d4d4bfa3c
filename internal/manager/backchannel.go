package manager

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/authority"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/delivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
)

// backChannel is how runtimes tell the manager what happens there: authority, listener and delivery, and the glue between them.
type backChannel struct {
	base   context.Context // ends what is asked for without a context of its own; kept because callbacks outlive the call that makes them
	config *config.Manager
	mgr    ctrl.Manager
	live   client.WithWatch // without cache
	pool   *runtimes.Pool
	lives  *kyma.Reconciler // set when the Kyma controller is made

	authority issuer
	listener  *backchannel.Listener
	delivery  *delivery.Delivery
	leader    leader
	keeper    *shard.Keeper // nil if one replica works
	names     cache.Cache   // of all Kymas, by metadata; nil without keeper
	fleet     fleetSize
}

// issuer is our own authority, or cert-manager.
type issuer interface {
	authority.Issuer
	ctrlmanager.Runnable
	Roots() []*x509.Certificate
	Serving() (*tls.Certificate, error)
	Changed() <-chan struct{}
}

// identityIndex finds Kymas by the name in their certificate.
const identityIndex = "backchannel.identity"

// newBackChannel makes what is needed for --watch-mode=agent; nil for other modes.
func newBackChannel(ctx context.Context, c *config.Manager, mgr ctrl.Manager, cfg *rest.Config, split *shards) (*backChannel, error) {
	if c.WatchMode != config.WatchAgent {
		return nil, nil
	}
	b := &backChannel{base: ctx, config: c, mgr: mgr, keeper: split.keeper}
	b.fleet = fleetSize{base: ctx, reader: mgr.GetClient(), namespace: c.Namespace}
	b.leader = leader{base: ctx, reader: mgr.GetAPIReader(), key: types.NamespacedName{Namespace: c.Namespace, Name: leaderElectionID}, elected: mgr.Elected()}
	err := mgr.GetFieldIndexer().IndexField(ctx, &v1beta2.Kyma{}, identityIndex, func(o client.Object) []string { return []string{commonName(o)} })
	if err != nil {
		return nil, fmt.Errorf("indexing Kymas by the name in their certificate: %w", err)
	}
	if b.names, err = split.newDirectory(ctx, c, mgr); err != nil {
		return nil, err
	}
	b.live, err = client.NewWithWatch(cfg, client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("building a client for the certificate authority: %w", err)
	}
	host, _, err := net.SplitHostPort(c.ListenerAddress)
	if err != nil {
		return nil, fmt.Errorf("reading --listener-address: %w", err)
	}
	if b.authority, err = b.newIssuer(host); err != nil {
		return nil, err
	}
	if err := b.addListener(); err != nil {
		return nil, err
	}
	b.delivery, err = delivery.New(delivery.Options{
		Issuer: b.authority, Roots: b.authority.Roots, Image: image(c), Address: c.ListenerAddress,
		MemoryLimit: c.SkrWebhookMemoryLimits, CPULimit: c.SkrWebhookCPULimits, DNSNames: c.AdditionalDNSNames,
		PullSecret: c.SKRImagePullSecret, AuditInterval: c.WatchedAuditInterval,
	})
	return b, err
}

// newIssuer makes who issues certificates.
func (b *backChannel) newIssuer(host string) (issuer, error) {
	c, log := b.config, b.mgr.GetLogger().WithName("authority")
	if c.CertManagement == config.CertManager {
		return authority.NewCertManager(authority.CertManagerOptions{
			Client: b.live, Namespace: c.Namespace, Issuer: c.SelfSignedCertIssuerName, Hosts: []string{host}, Reserved: c.ListenerPeers,
			Lifetime: c.SelfSignedCertDuration, Log: log,
		})
	}
	return authority.New(authority.Options{
		Client: b.live, Namespace: c.Namespace, Hosts: []string{host}, Reserved: c.ListenerPeers,
		Lifetime: c.SelfSignedCertDuration, RuntimesByRoot: b.seen, Log: log,
	})
}

// image is the agent's image.
func image(c *config.Manager) string {
	name := c.SkrWatcherImageName + ":" + c.SkrWatcherImageTag
	if c.SkrWatcherImageRegistry == "" {
		return name
	}
	return c.SkrWatcherImageRegistry + "/" + name
}

// addListener makes the listener and adds what has to run for it.
func (b *backChannel) addListener() error {
	c := b.config
	off := func(address string) string {
		if address == "0" {
			return ""
		}
		return address
	}
	var err error
	b.listener, err = backchannel.New(backchannel.Options{
		Address: off(c.ListenerBindAddress), ForwardedAddress: off(c.KymaSkrListenerBindAddress), ForwardedFrom: c.ListenerForwardedFrom,
		Peers: append([]string{protocol.ManagerName}, c.ListenerPeers...), Roots: b.authority.Roots, Certificate: b.authority.Serving,
		Lookup: b.lookup, Deliver: b.deliver, Missed: b.missed, Changed: func(kyma string) { b.lives.Review(kyma) },
		Route: b.route, Leader: b.find, HeartbeatTimeout: b.silence(), NextHeartbeat: b.pace, RuntimeMetrics: c.RuntimeMetrics, Log: b.mgr.GetLogger().WithName("listener"),
	})
	if err != nil {
		return err
	}
	for _, r := range []ctrlmanager.Runnable{b.authority, b.listener, ctrlmanager.RunnableFunc(b.announce), b.keeper.Runnable(b.followRoots), ctrlmanager.RunnableFunc(b.keepIngressSecret)} {
		if err := b.mgr.Add(r); err != nil {
			return fmt.Errorf("adding the back-channel: %w", err)
		}
	}
	if err := b.mgr.AddReadyzCheck("listener", b.listener.Ready); err != nil {
		return fmt.Errorf("adding the readiness check of the listener: %w", err)
	}
	return nil
}

// silence is how long an agent counts as heard after a heartbeat: two may be lost on the way.
func (b *backChannel) silence() time.Duration { return 3*b.config.HeartbeatInterval + 10*time.Second }

// pace is the time that agents are told to wait until the next heartbeat if nothing happens: so long that the budget is enough for all runtimes of this
// replica; 0 if the usual time is long enough for that.
func (b *backChannel) pace() time.Duration {
	if b.config.HeartbeatBudget == 0 {
		return 0
	}
	needed := time.Duration(b.fleet.size()) * time.Second / time.Duration(b.config.HeartbeatBudget)
	if needed <= b.config.HeartbeatInterval {
		return 0
	}
	return min(needed, protocol.MaxHeartbeatInterval)
}

// fleetSize counts the Kymas in the cache, now and then.
type fleetSize struct {
	base      context.Context // of the process: it is asked for where there is none
	reader    client.Reader
	namespace string

	mu    sync.Mutex
	kymas int       // guarded by mu
	at    time.Time // guarded by mu
}

// size returns their number, which is at most a minute old. Where they cannot be counted, it is what it was.
func (f *fleetSize) size() int {
	const valid = time.Minute
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.at) < valid {
		return f.kymas
	}
	f.at = time.Now() // also if it fails: each heartbeat and each pass asks
	var list v1beta2.KymaList
	if err := f.reader.List(f.base, &list, client.InNamespace(f.namespace), client.UnsafeDisableDeepCopy); err == nil {
		f.kymas = len(list.Items)
	}
	return f.kymas
}

// agents is what the Kyma controller needs to know.
func (b *backChannel) agents() kyma.Agents {
	if b == nil {
		return kyma.Agents{}
	}
	return kyma.Agents{
		Delivery: b.delivery, Voices: b.listener, Heartbeat: b.config.HeartbeatInterval, Silence: func() time.Duration { return b.silence() + b.pace() },
		Release: b.authority.Release,
	}
}

// interestsChanged is told by the pool.
func (b *backChannel) interestsChanged(kyma string) {
	if b.lives != nil {
		b.lives.Review(kyma)
	}
}

// commonName is the name in the certificate of a Kyma.
func commonName(o client.Object) string {
	return delivery.CommonName(&v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), Labels: o.GetLabels()}})
}

// named returns the Kymas with a name in their certificate.
func (b *backChannel) named(commonName string) ([]client.Object, error) {
	opts := []client.ListOption{client.InNamespace(b.config.Namespace), client.MatchingFields{identityIndex: commonName}, client.UnsafeDisableDeepCopy}
	var found []client.Object
	if b.names != nil {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(v1beta2.GroupVersion.WithKind(v1beta2.KindKyma + "List"))
		if err := b.names.List(b.base, list, opts...); err != nil {
			return nil, err
		}
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
		return found, nil
	}
	var list v1beta2.KymaList
	if err := b.mgr.GetClient().List(b.base, &list, opts...); err != nil {
		return nil, err
	}
	for i := range list.Items {
		found = append(found, &list.Items[i])
	}
	return found, nil
}

// lookup finds the Kyma of an identity. A certificate of a Kyma that is gone is nobody's, even if there is another of the same name.
func (b *backChannel) lookup(id protocol.Identity) (backchannel.Runtime, error) {
	found, err := b.named(id.CommonName)
	switch {
	case err != nil:
		return backchannel.Runtime{}, fmt.Errorf("looking for the Kyma of %q: %w", id.CommonName, err)
	case len(found) == 0:
		return backchannel.Runtime{}, fmt.Errorf("no Kyma has the runtime ID or name %q", id.CommonName)
	case len(found) > 1:
		return backchannel.Runtime{}, fmt.Errorf("%d Kymas have the runtime ID or name %q: give each its own", len(found), id.CommonName)
	}
	k := found[0]
	if id.UID != "" && id.UID != string(k.GetUID()) {
		return backchannel.Runtime{}, fmt.Errorf("the certificate was issued to a former Kyma %s", k.GetName())
	}
	notBefore := kyma.NotBefore(&v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Annotations: k.GetAnnotations()}})
	return backchannel.Runtime{Kyma: k.GetName(), NotBefore: notBefore}, nil
}

// find returns where the listener of the replica is that works on a runtime, and whether that is this one.
func (b *backChannel) find(kyma string) (address string, me bool) {
	if b.keeper != nil {
		return b.keeper.HolderAddress(kyma)
	}
	return b.leader.find()
}

// deliver tells the followers of a runtime what its agent has seen.
func (b *backChannel) deliver(name string, e protocol.Event) {
	i := runtimes.Interest{Kind: e.WatchedGVK.Kind}
	i.Resource.Group, i.Resource.Version, i.Resource.Resource = e.WatchedGVK.Group, e.WatchedGVK.Version, e.Resource
	if e.Resource == "" || !e.WatchStarted && e.Object == nil { // of the Kyma project's agent, or what did not fit
		if e.WatchedGVK.Kind == v1beta2.KindKyma {
			b.lives.Wake(name)
			return
		}
		b.pool.Publish(name, runtimes.Event{Missed: true, Interest: i})
		return
	}
	if e.WatchStarted {
		b.pool.Publish(name, began(i, e))
		return
	}
	o := &metav1.PartialObjectMetadata{ObjectMeta: *e.Object}
	o.Namespace, o.Name = e.Watched.Namespace, e.Watched.Name
	b.pool.Publish(name, runtimes.Event{Interest: i, Object: o, Deleted: e.Deleted})
}

// began is what the beginning of a watch means: how all objects are, if the agent says that, and else that anything may have changed.
func began(i runtimes.Interest, e protocol.Event) runtimes.Event {
	if !e.ObjectsComplete {
		return runtimes.Event{Missed: true, Interest: i}
	}
	s := runtimes.Event{Listed: true, Interest: i, Objects: make([]metav1.PartialObjectMetadata, len(e.Objects))}
	for k := range e.Objects {
		s.Objects[k].ObjectMeta = e.Objects[k]
	}
	return s
}

// missed tells the followers of a runtime that they have to look.
func (b *backChannel) missed(name string) { b.pool.Publish(name, runtimes.Event{Missed: true}) }

// route says where events for another manager go: to the Service that its Watcher names.
func (b *backChannel) route(manager string) (string, bool) {
	var list v1beta2.WatcherList
	if err := b.mgr.GetClient().List(b.base, &list, client.InNamespace(b.config.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", false
	}
	for i := range list.Items {
		if w := &list.Items[i]; w.ManagerName() == manager {
			s := w.Spec.ServiceInfo
			return fmt.Sprintf("http://%s.%s.svc:%d", s.Name, s.Namespace, s.Port), true
		}
	}
	return "", false
}

// seen tells which runtimes were heard with certificates of which root.
func (b *backChannel) seen() (map[string][]string, bool) {
	select {
	case <-b.mgr.Elected():
	default:
		return nil, false
	}
	from, opts := client.Reader(b.mgr.GetClient()), []client.ListOption{client.InNamespace(b.config.Namespace), client.UnsafeDisableDeepCopy}
	if b.keeper != nil { // the cache has the shards of this replica only
		from, opts = b.mgr.GetAPIReader(), append(opts, client.Limit(500))
	}
	on := map[string][]string{}
	for next := ""; ; {
		var list v1beta2.KymaList
		if err := from.List(b.base, &list, append(opts, client.Continue(next))...); err != nil {
			return nil, false
		}
		for i := range list.Items {
			if s := list.Items[i].Status.Agent; s != nil && s.Certificate != nil {
				on[s.Certificate.RootInUse] = append(on[s.Certificate.RootInUse], list.Items[i].Name)
			}
		}
		if next = list.Continue; next == "" || b.keeper == nil {
			return on, true
		}
	}
}

// followRoots wakes the fleet, spread, when the roots change: everybody gets a new certificate.
func (b *backChannel) followRoots(ctx context.Context) error {
	for {
		changed := b.authority.Changed()
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			b.lives.WakeAll(ctx)
		}
	}
}

// ingressSecret is the name of the Secret that an ingress in front of the listener serves with. It is that of the Kyma project's gateway.
const ingressSecret = "klm-istio-gateway"

// keepIngressSecret keeps a Secret for the ingress that ends TLS, if there is to be one: agents trust no other authority than ours.
func (b *backChannel) keepIngressSecret(ctx context.Context) error {
	own, is := b.authority.(*authority.Authority)
	if b.config.KymaSkrListenerBindAddress == "0" || !is {
		return nil // with cert-manager, it is the business of whoever looks after the issuer
	}
	logger, tick := b.mgr.GetLogger().WithName("authority"), time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		changed := own.Changed()
		if err := b.writeIngressSecret(ctx, own); err != nil {
			logger.Error(err, "the certificate of the ingress is not up to date", "secret", ingressSecret)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		}
	}
}

// writeIngressSecret writes a certificate for the listener's hosts, and the roots of the agents', unless the Secret has them.
func (b *backChannel) writeIngressSecret(ctx context.Context, own *authority.Authority) error {
	const roots = "ca.crt"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.config.Namespace, Name: ingressSecret}}
	err := b.live.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading Secret %s/%s: %w", b.config.Namespace, ingressSecret, err)
	}
	cert, issueErr := own.Ingress(secret.Data[corev1.TLSCertKey], secret.Data[roots])
	if issueErr != nil || cert == nil {
		return issueErr
	}
	secret.Data = map[string][]byte{corev1.TLSCertKey: cert.PEM, corev1.TLSPrivateKeyKey: cert.Key, roots: cert.CA}
	if err == nil {
		err = b.live.Update(ctx, secret)
	} else {
		secret.Type, secret.Labels = corev1.SecretTypeTLS, map[string]string{v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager}
		err = b.live.Create(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s/%s: %w", b.config.Namespace, ingressSecret, err)
	}
	return nil
}

// addressAnnotation on the Lease says where the listener of its holder is.
const addressAnnotation = "operator.kyma-project.io/listener-address"

// announce writes down, once this replica works, where its listener is, for the other replicas.
func (b *backChannel) announce(ctx context.Context) error {
	if !b.config.LeaderElect || b.keeper != nil { // a keeper says it in the Lease of the replica
		return nil
	}
	address, err := listenerAddress(b.config)
	if err != nil || address == "" {
		return err
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{addressAnnotation: address}}})
	if err != nil {
		return fmt.Errorf("encoding the address of the listener: %w", err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: b.config.Namespace, Name: leaderElectionID}}
	if err := b.live.Patch(ctx, lease, client.RawPatch(types.MergePatchType, body)); err != nil {
		return fmt.Errorf("telling other replicas where the listener is: %w", err)
	}
	return nil
}

// leader finds the replica that works.
type leader struct {
	base    context.Context
	reader  client.Reader
	key     types.NamespacedName
	elected <-chan struct{}

	mu      sync.Mutex
	address string    // guarded by mu
	read    time.Time // guarded by mu
}

// find returns the address of the listener of the replica that works, and whether that is this one.
func (l *leader) find() (address string, me bool) {
	select {
	case <-l.elected:
		return "", true
	default:
	}
	const valid = 2 * time.Second
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.read) < valid {
		return l.address, false
	}
	ctx, cancel := context.WithTimeout(l.base, valid)
	defer cancel()
	lease := &coordinationv1.Lease{}
	l.read = time.Now()
	if err := l.reader.Get(ctx, l.key, lease); err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" {
		l.address = lease.Annotations[addressAnnotation]
	}
	return l.address, false
}
