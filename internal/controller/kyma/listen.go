package kyma

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// What people do to the catalog and to our definitions in a runtime is undone. It is heard of by watches on metadata, in which the API
// server says who wrote last.

// definitions are the CustomResourceDefinitions.
var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// catalogKey tells apart who follows the catalog of a runtime.
func catalogKey(kyma string) string { return "Catalog/" + kyma }

// catalogFollower follows the catalog and the definitions of the runtime. The watch on definitions is one that modules need, too.
func (n *run) catalogFollower() runtimes.Subscriber {
	key := types.NamespacedName{Namespace: n.kyma.Namespace, Name: n.kyma.Name}
	f := runtimes.Subscriber{Key: catalogKey(n.kyma.Name), Notify: n.wakeOnCatalog(key), Interests: []runtimes.Interest{
		{Resource: definitions, Kind: "CustomResourceDefinition", Labels: v1beta2.LabelManagedBy + "=" + v1beta2.ManagedByKyma},
	}}
	for _, gvk := range catalogKinds {
		plural := "moduletemplates"
		if gvk.Kind == v1beta2.KindModuleReleaseMeta {
			plural = "modulereleasemetas"
		}
		f.Interests = append(f.Interests, runtimes.Interest{
			Resource: gvk.GroupVersion().WithResource(plural), Kind: gvk.Kind, Namespace: v1beta2.RuntimeNamespace,
		})
	}
	f.Interests = n.Runtimes.ShareInterests(f.Interests)
	m := n.memory(n.kyma.Name, n.runtime)
	n.mu.Lock()
	defer n.mu.Unlock()
	f.ReplayMissed = m.catalog.seen.IsZero()
	return f
}

// wakeOnCatalog returns what the pool calls when the catalog or a definition changes in the runtime.
func (r *Reconciler) wakeOnCatalog(key types.NamespacedName) func(runtimes.Event) {
	return func(s runtimes.Event) {
		if s.ConnectionChanged || !s.Missed && !r.noteSeen(key.Name, s) || s.Missed && !r.noteMissed(key.Name, s.Interest) {
			return // of the connection the other follower hears
		}
		if q := r.queue.Load(); q != nil {
			(*q).Add(reconcile.Request{NamespacedName: key})
		}
	}
}

// recently is how long what was written or compared need not be compared again because changes may have been missed: an agent begins to watch
// soon after its runtime got all this, and says so.
const recently = time.Minute

// noteMissed records that changes may have been missed: then the definitions, or the whole catalog, are compared.
func (r *Reconciler) noteMissed(kyma string, of runtimes.Interest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.known[kyma]
	if m == nil || of.Resource.Empty() { // of all that may have been missed, the digests on the Kyma tell enough
		return false
	}
	if of.Resource == definitions {
		m.catalog.unsure = m.catalog.unsure || time.Since(m.catalog.baseSeen) > recently
		return m.catalog.unsure
	}
	if time.Since(m.catalog.seen) <= recently {
		return false
	}
	m.catalog.all = true
	if time.Since(m.catalog.audited) > recently {
		m.catalog.audited = time.Time{}
	}
	return true
}

// noteSeen records what was seen and tells whether something is to be put right.
func (r *Reconciler) noteSeen(kyma string, s runtimes.Event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.known[kyma]
	switch {
	case m == nil:
		return false
	case s.Interest.Resource == definitions:
		wrong := r.definitionsWrong(s)
		m.catalog.base = m.catalog.base || wrong
		return wrong
	}
	v := r.views.peek(m.catalog.group)
	if v == nil { // the catalog is being worked out anew
		m.catalog.all = true
		return true
	}
	if !s.Listed {
		return s.Object != nil && m.catalog.judge(v, s.Interest.Kind, s.Object, s.Deleted)
	}
	wrong := false
	there := map[string]bool{}
	for i := range s.Objects {
		there[s.Objects[i].Name] = true
		wrong = m.catalog.judge(v, s.Interest.Kind, &s.Objects[i], false) || wrong
	}
	for i := range v.hashes {
		if i.kind == s.Interest.Kind && !there[i.name] {
			m.catalog.note(i)
			wrong = true
		}
	}
	return wrong
}

// judge notes an object that is not as the view has it, and tells whether that is so:
//
//	in the view   gone                      wrong
//	              ours, with our label, and nobody wrote since   right
//	              else                      wrong
//	not in it     gone, or of a user        right
//	              ours                      wrong
func (s *sighting) judge(v *view, kind string, o *metav1.PartialObjectMetadata, deleted bool) bool {
	i := item{kind, o.Name}
	ours := isManagedBy(o.ManagedFields, v1beta2.FieldOwnerCatalog)
	right := v.hashes[i] == "" && (deleted || !ours) ||
		v.hashes[i] != "" && !deleted && ours && o.Labels[v1beta2.LabelCatalogHash] == v.hashes[i] && !touched(o.ManagedFields, v1beta2.FieldOwnerCatalog)
	if !right {
		s.note(i)
	}
	return !right
}

// definitionsWrong tells whether a definition of ours is gone, or was changed by somebody else.
func (r *Reconciler) definitionsWrong(s runtimes.Event) bool {
	ours := map[string]bool{}
	for _, o := range r.Base.Objects {
		if o.GVK.Kind == s.Interest.Kind {
			ours[o.Name] = true
		}
	}
	if !s.Listed {
		return s.Object != nil && ours[s.Object.Name] && (s.Deleted || touched(s.Object.ManagedFields, v1beta2.FieldOwner))
	}
	for i := range s.Objects {
		o := &s.Objects[i]
		if ours[o.Name] && touched(o.ManagedFields, v1beta2.FieldOwner) {
			return true
		}
		delete(ours, o.Name)
	}
	return len(ours) > 0
}

// isManagedBy tells whether a field manager has applied an object.
func isManagedBy(fields []metav1.ManagedFieldsEntry, manager string) bool {
	for _, f := range fields {
		if f.Manager == manager && f.Subresource == "" {
			return true
		}
	}
	return false
}

// touched tells whether somebody else may have written an object, apart from its status, since its manager did. The API server counts in
// seconds: within the same one, both may have been last.
func touched(fields []metav1.ManagedFieldsEntry, manager string) bool {
	var ours, others metav1.Time
	for _, f := range fields {
		switch {
		case f.Time == nil || f.Subresource != "":
		case f.Manager == manager:
			if ours.Before(f.Time) {
				ours = *f.Time
			}
		case others.Before(f.Time):
			others = *f.Time
		}
	}
	return !others.IsZero() && !others.Before(&ours)
}
