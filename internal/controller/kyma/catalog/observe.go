package catalog

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// crds is the resource customresourcedefinitions of the API server.
var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}

// recentPeriod is the time for which a report of missed changes is ignored after objects of the catalog copy were sent
// or compared. An agent starts its watches soon after the runtime has got the catalog copy, and then always reports
// that changes may have been missed.
const recentPeriod = time.Minute

// subscriberKey returns the key with which the catalog copy of a runtime subscribes to events.
func subscriberKey(kyma string) string { return "Catalog/" + kyma }

// Unsubscribe ends the subscription to changes in a runtime.
func (c *Copies) Unsubscribe(kyma string) { c.options.Runtimes.Unsubscribe(kyma, subscriberKey(kyma)) }

// subscribe subscribes to changes of the catalog copy and of the CRDs in a runtime. If replay is true, subscribe also
// requests an event for changes that were missed before.
func (c *Copies) subscribe(kyma string, replayMissed bool) {
	interests := []runtimes.Interest{{ // modules have the same interest: no additional watch
		Resource: crds, Kind: "CustomResourceDefinition", Labels: v1beta2.LabelManagedBy + "=" + v1beta2.ManagedByKyma,
	}}
	for _, gvk := range kinds {
		plural := "moduletemplates"
		if gvk.Kind == v1beta2.KindModuleReleaseMeta {
			plural = "modulereleasemetas"
		}
		interests = append(interests, runtimes.Interest{
			Resource: gvk.GroupVersion().WithResource(plural), Kind: gvk.Kind, Namespace: v1beta2.RuntimeNamespace,
		})
	}
	c.options.Runtimes.Subscribe(kyma, runtimes.Subscriber{
		Key: subscriberKey(kyma), Interests: c.options.Runtimes.InternInterests(interests), ReplayMissed: replayMissed,
		Notify: func(e runtimes.Event) {
			if c.noteEvent(kyma, e) {
				c.options.Enqueue(kyma)
			}
		},
	})
}

// noteEvent records what an event in a runtime means for the catalog copy and the CRDs. noteEvent returns whether an
// object has to be corrected. noteEvent ignores changes of the connection: the subscriber for the Kyma handles them.
func (c *Copies) noteEvent(kyma string, e runtimes.Event) bool {
	switch {
	case e.ConnectionChanged:
		return false
	case e.Missed:
		return c.noteMissed(kyma, e.Interest)
	}
	return c.noteChange(kyma, e)
}

// noteMissed records that events may have been missed, so that the CRDs or the whole catalog copy are compared.
// noteMissed returns whether a comparison is needed.
func (c *Copies) noteMissed(kyma string, of runtimes.Interest) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.records[kyma]
	// An event without a resource concerns all objects that the subscriber wants to be notified of. After such an
	// event, the catalog copy is not compared object by object, because the digests on the Kyma in the runtime show
	// whether it is still complete.
	if r == nil || of.Resource.Empty() {
		return false
	}
	if of.Resource == crds {
		r.baseUncertain = r.baseUncertain || time.Since(r.baseComparedAt) > recentPeriod
		return r.baseUncertain
	}
	if time.Since(r.comparedAt) <= recentPeriod {
		return false
	}
	r.compareAll = true
	if time.Since(r.auditedAt) > recentPeriod {
		r.auditedAt = time.Time{}
	}
	return true
}

// noteChange records the objects that an event reports as changed or deleted as suspects, which the next reconcile
// compares with the catalog copy. noteChange reports whether there are such objects.
func (c *Copies) noteChange(kyma string, e runtimes.Event) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.records[kyma]
	switch {
	case r == nil:
		return false
	case e.Interest.Resource == crds:
		wrong := c.isCRDWrong(e)
		r.baseWrong = r.baseWrong || wrong
		return wrong
	}
	want := c.contents.known(r.key)
	if want == nil { // the catalog has changed and its contents are not computed yet
		r.compareAll = true
		return true
	}
	if !e.Listed {
		return e.Object != nil && r.suspectIfWrong(want, e.Interest.Kind, e.Object, e.Deleted)
	}
	wrong := false
	listed := map[string]bool{}
	for i := range e.Objects {
		listed[e.Objects[i].Name] = true
		wrong = r.suspectIfWrong(want, e.Interest.Kind, &e.Objects[i], false) || wrong
	}
	for _, h := range want.hashes {
		if h.kind == e.Interest.Kind && !listed[h.name] {
			r.suspect(h.objectKey)
			wrong = true
		}
	}
	return wrong
}

// suspectIfWrong adds an object to the suspects if it differs from the contents of the catalog copy, and returns
// whether it differs.
func (r *record) suspectIfWrong(want *contents, kind string, o *metav1.PartialObjectMetadata, deleted bool) (
	wrong bool) {
	key := objectKey{kind, o.Name}
	if wrong = !want.isSatisfiedBy(key, o, deleted); wrong {
		r.suspect(key)
	}
	return wrong
}

// isSatisfiedBy reports whether an object in the runtime needs no correction, given the contents of the catalog copy.
// The last column of this table is the result of isSatisfiedBy; "ours" means that this package has applied the object:
//
//	in the contents       deleted                                                    no
//	                      ours, with our label, not written by others after us       yes
//	                      any other object                                           no
//	not in the contents   deleted, or created by a user                              yes
//	                      ours                                                       no
func (v *contents) isSatisfiedBy(key objectKey, o *metav1.PartialObjectMetadata, deleted bool) bool {
	ours := isManagedBy(o.ManagedFields, v1beta2.FieldOwnerCatalog)
	hash := v.hashes.of(key)
	if hash == "" {
		return deleted || !ours
	}
	return !deleted && ours && o.Labels[v1beta2.LabelCatalogHash] == hash &&
		!isOverwrittenByOthers(o.ManagedFields, v1beta2.FieldOwnerCatalog)
}

// isCRDWrong reports whether an event shows that one of our CRDs does not exist, or that others have changed one of our
// CRDs.
func (c *Copies) isCRDWrong(e runtimes.Event) bool {
	ours := map[string]bool{}
	for _, o := range c.options.Base.Objects {
		if o.GVK.Kind == e.Interest.Kind {
			ours[o.Name] = true
		}
	}
	if !e.Listed {
		return e.Object != nil && ours[e.Object.Name] &&
			(e.Deleted || isOverwrittenByOthers(e.Object.ManagedFields, v1beta2.FieldOwner))
	}
	for i := range e.Objects {
		o := &e.Objects[i]
		if ours[o.Name] && isOverwrittenByOthers(o.ManagedFields, v1beta2.FieldOwner) {
			return true
		}
		delete(ours, o.Name)
	}
	return len(ours) > 0
}

// isManagedBy reports whether a field manager has applied an object.
func isManagedBy(fields []metav1.ManagedFieldsEntry, manager string) bool {
	for _, f := range fields {
		if f.Manager == manager && f.Subresource == "" {
			return true
		}
	}
	return false
}

// isOverwrittenByOthers reports whether another field manager may have written an object later than the given field
// manager has. Writes of the status are ignored. The times have a precision of one second, so the order of two writes
// within the same second is not known.
func isOverwrittenByOthers(fields []metav1.ManagedFieldsEntry, manager string) bool {
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
