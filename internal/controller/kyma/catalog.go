package kyma

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// The catalog of a runtime is a copy of those ModuleTemplates and ModuleReleaseMetas that it may use. What runtimes with the same rights
// see is worked out once for each change of the catalog, and has a digest. The Kyma in the runtime carries the digest of what the runtime
// got, so that nothing is asked while it is the same. When it is not, each object says by a label which content of ours it has, and only
// those that differ are sent.

// catalogKinds are the kinds of the catalog, in the order of need.
var catalogKinds = []schema.GroupVersionKind{
	v1beta2.GroupVersion.WithKind(v1beta2.KindModuleTemplate), v1beta2.GroupVersion.WithKind(v1beta2.KindModuleReleaseMeta),
}

// item names one object of the catalog.
type item struct{ kind, name string }

func (i item) ref() apply.Ref {
	return apply.Ref{
		Group: v1beta2.GroupVersion.Group, Version: v1beta2.GroupVersion.Version, Kind: i.kind, Namespace: v1beta2.RuntimeNamespace, Name: i.name,
	}
}

// view is what runtimes with the same rights see of the catalog. It is shared and never changed.
type view struct {
	digest  string
	objects []*render.Object
	hashes  map[item]string // the label of each object
}

// views are the views of all groups of runtimes, as long as the catalog is as it was.
type views struct {
	changed chan struct{} // holds one signal that the catalog is not what it was

	mu      sync.Mutex
	byGroup map[channel.Access]*view // guarded by mu; dropped when the catalog changes
}

// stale drops all views, because the catalog has changed, and says so to who hands it out.
func (v *views) stale() {
	v.mu.Lock()
	v.byGroup = nil
	v.mu.Unlock()
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

// peek returns the view of a group if it was worked out already, else nil.
func (v *views) peek(g channel.Access) *view {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.byGroup[g]
}

// viewOf returns what a group sees. It is worked out under the lock, so that it is done once.
func (r *Reconciler) viewOf(ctx context.Context, g channel.Access) (*view, error) {
	r.views.mu.Lock()
	defer r.views.mu.Unlock()
	if v := r.views.byGroup[g]; v != nil {
		return v, nil
	}
	var templates v1beta2.ModuleTemplateList
	var releases v1beta2.ModuleReleaseMetaList
	for _, list := range []client.ObjectList{&templates, &releases} {
		if err := r.Client.List(ctx, list, client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("reading the catalog: %w", err)
		}
	}
	seen, err := channel.CatalogCopyFor(g, channel.Contents{
		Templates: pointers(templates.Items), Releases: pointers(releases.Items), Restricted: r.Restricted,
	}, v1beta2.RuntimeNamespace)
	if err != nil {
		return nil, err
	}
	v, err := newView(seen)
	if err != nil {
		return nil, err
	}
	if r.views.byGroup == nil {
		r.views.byGroup = map[channel.Access]*view{}
	}
	r.views.byGroup[g] = v
	return v, nil
}

// newView labels and encodes the objects of a view.
func newView(seen channel.CatalogCopy) (*view, error) {
	v := &view{digest: "sha256:" + seen.Digest, hashes: map[item]string{}}
	objects := make([]*unstructured.Unstructured, len(seen.Objects))
	for i, o := range seen.Objects {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(o.JSON); err != nil {
			return nil, fmt.Errorf("decoding %s %s for the catalog of runtimes: %w", o.Kind, o.Name, err)
		}
		sum := sha256.Sum256(o.JSON)
		hash := hex.EncodeToString(sum[:8])
		v.hashes[item{o.Kind, o.Name}] = hash
		labels := u.GetLabels()
		labels[v1beta2.LabelCatalogHash] = hash
		u.SetLabels(labels)
		objects[i] = u
	}
	bundle, err := render.Build(objects, render.Options{})
	if err != nil {
		return nil, fmt.Errorf("encoding the catalog of runtimes: %w", err)
	}
	v.objects = bundle.Objects
	return v, nil
}

// sighting is what is known of the catalog in a runtime, and of our definitions there. Reconciler.mu guards it.
type sighting struct {
	group   channel.Access
	digest  string        // of what the runtime has; "" if that is not known
	news    map[item]bool // objects that were seen to be other than they should be
	all     bool          // anything may be other than it should be
	audited time.Time     // when all objects were last compared, where there are no watches
	seen    time.Time     // when all objects were last sent, or their labels compared
	base    bool          // a definition of ours was seen to be other than it should be
	unsure  bool          // it may be: changes of definitions may have been missed

	baseSeen time.Time // when the definitions were last sent or compared
}

// syncCatalog brings the catalog of the runtime up to date.
func (n *run) syncCatalog(ctx context.Context) error {
	if n.InCluster || n.paused {
		return nil
	}
	stock, failed := n.catalog(ctx)
	group := channel.AccessOf(stock, n.kyma)
	if err := failed(); err != nil {
		return err
	}
	v, err := n.viewOf(ctx, group)
	if err != nil {
		return err
	}
	news, all := n.takeSighting(group)
	all = all || n.remote.Annotations[v1beta2.AnnotationCatalogDigest] != v.digest
	if err := n.updateCatalog(ctx, v, news, all); err != nil {
		n.giveSightingBack(news, all)
		if loop.Reason(err) == apply.KindUnknown {
			n.doubtBase() // the next pass brings the kind back
		}
		return err
	}
	if err := n.noteCatalog(ctx, v, all); err != nil {
		return err
	}
	n.catalogued = true
	return nil
}

// updateCatalog sends what differs and deletes what is too much: all of it, or what was seen to differ.
func (n *run) updateCatalog(ctx context.Context, v *view, news map[item]bool, all bool) error {
	if m := n.memory(n.kyma.Name, n.runtime); !n.Runtimes.IsWatched(n.kyma.Name) || m.catalog.audited.IsZero() {
		if err := n.auditCatalog(ctx, v, news); err != nil {
			return err
		}
	}
	gone := map[item]bool{}
	for i := range news {
		if v.hashes[i] == "" {
			gone[i] = true
		} else if err := n.stripAdditions(ctx, v, i); err != nil {
			return err
		}
	}
	if all {
		if err := n.compareCatalog(ctx, v, news, gone); err != nil {
			return err
		}
	}
	return errors.Join(n.sendCatalog(ctx, v, news), n.deleteFromCatalog(ctx, gone))
}

// compareCatalog looks which objects are there, and adds those that differ to news, and those that may be too much to gone.
func (n *run) compareCatalog(ctx context.Context, v *view, news, gone map[item]bool) error {
	there := map[item]string{}
	for _, gvk := range catalogKinds {
		found, err := n.runtime.List(ctx, gvk, v1beta2.RuntimeNamespace)
		if loop.Reason(err) == apply.KindUnknown && n.resent {
			return n.notServed("the runtime to serve the kind " + gvk.Kind)
		}
		if err != nil {
			return fmt.Errorf("reading the catalog of runtime %s: %w", n.kyma.Name, err)
		}
		for _, f := range found {
			i := item{gvk.Kind, f.Name}
			if hash := f.Labels[v1beta2.LabelCatalogHash]; v.hashes[i] != "" && f.DeletionTime.IsZero() {
				there[i] = hash
			} else if v.hashes[i] == "" && (hash != "" || f.Labels[v1beta2.LabelManagedBy] == v1beta2.ManagedByKyma) {
				gone[i] = true
			}
		}
	}
	for i, hash := range v.hashes {
		if there[i] != hash {
			news[i] = true
		}
	}
	return nil
}

// auditCatalog compares each object field by field once in a while, where nobody tells of changes or some may have been missed.
func (n *run) auditCatalog(ctx context.Context, v *view, news map[item]bool) error {
	m := n.memory(n.kyma.Name, n.runtime)
	if time.Since(m.catalog.audited) < n.AuditInterval*7/8 {
		return nil
	}
	drifted, err := n.runtime.FindDrift(ctx, n.catalogSet(v.objects), &apply.Progress{})
	if err != nil {
		return fmt.Errorf("comparing the catalog of runtime %s: %w", n.kyma.Name, err)
	}
	for _, d := range drifted {
		news[item{d.Ref.Kind, d.Ref.Name}] = true
	}
	n.mu.Lock()
	m.catalog.audited = time.Now()
	n.mu.Unlock()
	return nil
}

func (n *run) catalogSet(objects []*render.Object) apply.Set {
	return apply.Set{Bundle: &render.Bundle{Objects: objects}, Owner: v1beta2.FieldOwnerCatalog, Namespace: v1beta2.RuntimeNamespace}
}

// stripAdditions takes out of the spec of an object what somebody has put there next to ours: that is not what applying does.
func (n *run) stripAdditions(ctx context.Context, v *view, i item) error {
	at := slices.IndexFunc(v.objects, func(o *render.Object) bool { return o.GVK.Kind == i.kind && o.Name == i.name })
	u, err := n.runtime.Get(ctx, i.ref())
	if absent(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the catalog of runtime %s: %w", n.kyma.Name, err)
	}
	want := &unstructured.Unstructured{}
	if err := want.UnmarshalJSON(v.objects[at].AppendJSON(nil, v1beta2.RuntimeNamespace, render.Overlay{})); err != nil {
		return fmt.Errorf("decoding %s for the catalog of runtimes: %w", i.name, err)
	}
	patch, err := specPatch(u, want)
	if err != nil || patch == nil {
		return err
	}
	if _, err := n.runtime.Patch(ctx, i.ref(), types.MergePatchType, "", patch, v1beta2.FieldOwnerCatalog); err != nil && !absent(err) {
		return fmt.Errorf("undoing an edit of the catalog of runtime %s: %w", n.kyma.Name, err)
	}
	return nil
}

// specPatch returns the merge patch that makes the spec of an object another one; nil if it is that already.
func specPatch(is, want *unstructured.Unstructured) ([]byte, error) {
	patch, err := loop.MergePatch("spec", is.Object["spec"], want.Object["spec"])
	if err != nil {
		return nil, fmt.Errorf("comparing %s: %w", want.GetName(), err)
	}
	return patch, nil
}

// sendCatalog sends some objects of a view. One that is refused does not hold up the others.
func (n *run) sendCatalog(ctx context.Context, v *view, which map[item]bool) error {
	objects := slices.DeleteFunc(slices.Clone(v.objects), func(o *render.Object) bool { return !which[item{o.GVK.Kind, o.Name}] })
	if len(objects) == 0 {
		return nil
	}
	result, err := n.runtime.Apply(ctx, n.catalogSet(objects), &apply.Progress{})
	metrics.CatalogWrites.Add(float64(len(result.Applied)))
	for _, t := range result.TakenOver {
		log.FromContext(ctx).Info("undid an edit of the catalog", "object", t.String())
	}
	if err == nil && len(result.Failed) > 0 {
		err = result.Failed[0]
	}
	if err != nil {
		return fmt.Errorf("writing the catalog of runtime %s: %w", n.kyma.Name, err)
	}
	if len(result.Waiting) > 0 {
		return n.notServed(result.Waiting[0].Ref.String() + ": " + result.Waiting[0].Message)
	}
	return nil
}

// deleteFromCatalog deletes those objects that we have written. What a user made stays, whatever it is labelled with.
func (n *run) deleteFromCatalog(ctx context.Context, which map[item]bool) error {
	var refs []apply.Ref
	for _, i := range slices.SortedFunc(maps.Keys(which), func(a, b item) int { return strings.Compare(a.kind+a.name, b.kind+b.name) }) {
		u, err := n.runtime.Get(ctx, i.ref())
		if absent(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading the catalog of runtime %s: %w", n.kyma.Name, err)
		}
		if isManagedBy(u.GetManagedFields(), v1beta2.FieldOwnerCatalog) {
			refs = append(refs, i.ref())
		}
	}
	if len(refs) == 0 {
		return nil
	}
	left, err := n.runtime.Delete(ctx, refs, &apply.DeletionProgress{})
	for _, r := range left.Remaining {
		if err == nil && r.Err != nil {
			err = r.Err
		}
	}
	if err != nil {
		return fmt.Errorf("deleting from the catalog of runtime %s: %w", n.kyma.Name, err)
	}
	metrics.CatalogWrites.Add(float64(len(refs)))
	return nil
}

// noteCatalog writes down that the runtime has a view, and whether all of it was compared just now, and begins to listen for changes of it.
func (n *run) noteCatalog(ctx context.Context, v *view, compared bool) error {
	if n.remote.Annotations[v1beta2.AnnotationCatalogDigest] != v.digest {
		metav1.SetMetaDataAnnotation(&n.remote.ObjectMeta, v1beta2.AnnotationCatalogDigest, v.digest)
		n.noteRemote() // before it is sent, so that the echo is recognised
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1beta2.AnnotationCatalogDigest: v.digest}}})
		if err != nil {
			return fmt.Errorf("encoding the digest of the catalog of runtime %s: %w", n.kyma.Name, err)
		}
		if _, err := n.runtime.Patch(ctx, remoteRef, types.MergePatchType, "", body, syncOwner); err != nil {
			return fmt.Errorf("writing the digest of the catalog of runtime %s: %w", n.kyma.Name, err)
		}
	}
	m := n.memory(n.kyma.Name, n.runtime)
	n.mu.Lock()
	m.catalog.digest = v.digest
	if compared {
		m.catalog.seen = n.now
	}
	n.mu.Unlock()
	n.Runtimes.Subscribe(n.kyma.Name, n.catalogFollower())
	return nil
}

// takeSighting returns what was seen to differ since the last call.
func (n *run) takeSighting(g channel.Access) (news map[item]bool, all bool) {
	m := n.memory(n.kyma.Name, n.runtime)
	n.mu.Lock()
	defer n.mu.Unlock()
	news, all = m.catalog.news, m.catalog.all
	m.catalog.news, m.catalog.all, m.catalog.group = nil, false, g
	if news == nil {
		news = map[item]bool{}
	}
	return news, all
}

// giveSightingBack puts back what could not be dealt with.
func (n *run) giveSightingBack(news map[item]bool, all bool) {
	m := n.memory(n.kyma.Name, n.runtime)
	n.mu.Lock()
	defer n.mu.Unlock()
	m.catalog.digest, m.catalog.all = "", m.catalog.all || all
	for i := range news {
		m.catalog.note(i)
	}
}

func (s *sighting) note(i item) {
	if s.news == nil {
		s.news = map[item]bool{}
	}
	s.news[i] = true
}

// handOutCatalog wakes the Kymas whose runtimes have an older catalog, whenever the catalog changes, until ctx ends.
func (r *Reconciler) handOutCatalog(ctx context.Context) error {
	const together = 200 * time.Millisecond // a release is some objects, one after the other
	const soon = 5 * time.Second            // for definitions of mandatory modules that are to go
	var again <-chan time.Time              // nil: nothing is waited for
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.views.changed:
		case <-again:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(together):
		}
		if err := r.wakeOutdated(ctx); err != nil {
			log.FromContext(ctx).Error(err, "cannot hand out the catalog")
		}
		waits, err := r.releaseDefinitions(ctx)
		if err != nil {
			log.FromContext(ctx).Error(err, "cannot let the definition of a mandatory module go")
		}
		again = nil
		if waits || err != nil {
			again = time.After(soon)
		}
	}
}

// wakeOutdated puts into the queue, spread, the Kymas whose runtimes have not what they may see. It looks at the whole fleet, in memory.
func (r *Reconciler) wakeOutdated(ctx context.Context) error {
	q := r.queue.Load()
	if q == nil || r.InCluster {
		return nil
	}
	var kymas v1beta2.KymaList
	if err := r.Client.List(ctx, &kymas, client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing Kymas: %w", err)
	}
	var outdated []types.NamespacedName
	for i := range kymas.Items {
		k := &kymas.Items[i]
		stock, failed := (&run{Reconciler: r, kyma: k}).catalog(ctx)
		group := channel.AccessOf(stock, k)
		if err := failed(); err != nil {
			return err
		}
		v, err := r.viewOf(ctx, group)
		if err != nil {
			return err
		}
		if digest, known := r.catalogOf(k.Name); known && digest != v.digest {
			outdated = append(outdated, client.ObjectKeyFromObject(k))
		}
	}
	r.wakeSpread(*q, outdated)
	return nil
}

// catalogOf returns the digest of the catalog that a runtime has, and whether its Kyma was worked on already. A runtime that is still to be looked at
// will get what is new then.
func (r *Reconciler) catalogOf(kyma string) (digest string, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.known[kyma]
	if m == nil || m.presumed {
		return "", false
	}
	return m.catalog.digest, true
}
