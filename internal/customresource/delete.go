package customresource

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// Delete deletes custom resources of users, at most 500 of each kind. Call FindOfUsers and Delete again until no custom
// resource is left. Delete returns the custom resources whose deletion the API server has accepted in this call. If a
// custom resource is already being deleted, it waits for its finalizers, which the operator of the module removes.
func (f Found) Delete(ctx context.Context) (accepted []apply.Ref, err error) {
	for _, k := range f.Kinds {
		refs, err := f.firstDeletable(ctx, k)
		if err != nil {
			return accepted, fmt.Errorf("deleting custom resources of users: %w", err)
		}
		left, err := f.question.Runtime.Delete(ctx, refs, nil)
		for _, r := range left.Remaining {
			if r.Err != nil {
				refs = slices.DeleteFunc(refs, r.Ref.SameObject)
			}
		}
		accepted = append(accepted, refs...)
		if err != nil {
			return accepted, fmt.Errorf("deleting custom resources of users: %w", err)
		}
	}
	return accepted, nil
}

// firstDeletable returns the custom resources of one page that Delete may delete: the first page that has any. Pages
// without any are common if the operator has made hundreds of custom resources, which the garbage collector deletes. If
// the first maxDeletePages pages have none, firstDeletable uses the page on which the search has found custom resources
// of users.
func (f Found) firstDeletable(ctx context.Context, k Kind) (refs []apply.Ref, err error) {
	if len(k.items) == 0 {
		return nil, nil
	}
	next := ""
	for range maxDeletePages {
		page, err := f.question.Runtime.ListInstances(ctx, k.CRD.Name, nextPage, next)
		if err != nil {
			return nil, err
		}
		if refs = f.deletable(page.Items); len(refs) > 0 || page.Continue == "" {
			return refs, nil
		}
		next = page.Continue
	}
	return f.deletable(k.items), nil
}

// deletable returns those custom resources that Delete may delete.
func (f Found) deletable(items []apply.ObjectMetadata) (refs []apply.Ref) {
	for i := range items {
		o := &items[i]
		if o.DeletionTime.IsZero() && f.own.isOfUser(o) && f.own.otherOwningManifest(o) == "" {
			refs = append(refs, o.Ref)
		}
	}
	return refs
}

// Dependents are custom resources that the garbage collector deletes after their owners, and whose CRDs are about to be
// deleted: row 4 of the table in the package comment. If the operator of the module is deleted before it has removed
// their finalizers, they exist for ever, and their CRDs do too.
type Dependents struct {
	// Finalized is the number of these custom resources that have finalizers.
	Finalized int
	// Pending is the number of custom resources in Finalized that are not being deleted yet.
	Pending int

	named   []apply.ObjectMetadata // the first few with finalizers
	pending []apply.Ref            // the first that are not being deleted yet, with or without finalizers
	lasting []apply.Ref            // like pending, but the garbage collector waits for the deletion of the operator
}

// add counts a custom resource that belongs to no user, if it is in row 4.
func (d *Dependents) add(own *ownership, o *apply.ObjectMetadata, kind schema.GroupKind) {
	if slices.Contains(own.stayingKinds, kind) || !own.isDependent(o) {
		return
	}
	if len(o.Finalizers) > 0 {
		if d.Finalized++; len(d.named) < namesLimit {
			d.named = append(d.named, *o)
		}
	}
	if !o.DeletionTime.IsZero() {
		return
	}
	if len(o.Finalizers) > 0 {
		d.Pending++
	}
	if len(d.pending) < nextPage {
		d.pending = append(d.pending, o.Ref)
	}
	if len(d.lasting) < nextPage && own.hasLastingOwner(o) {
		d.lasting = append(d.lasting, o.Ref)
	}
}

// WaitMessage returns a text about the custom resources with finalizers.
func (d *Dependents) WaitMessage() string {
	var names []string
	for _, o := range d.named {
		names = append(names, o.String()+" with finalizers "+strings.Join(o.Finalizers, " "))
	}
	if more := d.Finalized - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return loop.ClipLine("custom resources that the module's operator has made to be deleted; only the operator " +
		"removes their finalizers: " + strings.Join(names, ", "))
}

// DeleteDependents deletes custom resources of Dependents, at most 500. The garbage collector deletes most of them
// itself. DeleteDependents deletes those that it does not delete before the operator of the module is deleted, or, if
// the parameter "all" is true, all of them.
func (f Found) DeleteDependents(ctx context.Context, all bool) error {
	refs := f.Dependents.lasting
	if all {
		refs = f.Dependents.pending
	}
	if _, err := f.question.Runtime.Delete(ctx, refs, nil); err != nil {
		return fmt.Errorf("deleting custom resources of the module's operator: %w", err)
	}
	return nil
}

// isDeletionAllowedByUser reports whether the user allows the deletion of custom resources.
func (f Found) isDeletionAllowedByUser() bool {
	return f.question.Manifest.Annotations[v1beta2.AnnotationDeleteCustomResources] == v1beta2.ValueTrue
}

// DeleteIfUserAllows calls Delete if the user allows the deletion. DeleteIfUserAllows records an event about the
// deleted custom resources.
func (f Found) DeleteIfUserAllows(ctx context.Context, record func(reason, note string)) error {
	if !f.isDeletionAllowedByUser() {
		return nil
	}
	deleted, err := f.Delete(ctx)
	if len(deleted) > 0 {
		var names []string
		for _, ref := range deleted[:min(len(deleted), kindsLimit*namesLimit)] {
			names = append(names, ref.String())
		}
		record(v1beta2.EventCustomResourcesDeleted, fmt.Sprintf("deleted %d custom resources of users, as the "+
			"annotation %s allows: %s", len(deleted), v1beta2.AnnotationDeleteCustomResources,
			strings.Join(names, ", ")))
	}
	return err
}

// WaitMessage returns a text about the custom resources that delay the deletion of the CRDs, with an instruction to
// allow their deletion.
func (f Found) WaitMessage() string {
	if f.Count() == 0 {
		return f.UnreadMessage()
	}
	what := "custom resources of users to be deleted: " + f.String()
	if f.isDeletionAllowedByUser() {
		return what
	}
	m := f.question.Manifest
	where, namespace, name := "the runtime", v1beta2.RuntimeNamespace, v1beta2.RuntimeKymaName
	if m.IsMandatory() {
		where, namespace, name = "the control plane", m.Namespace, m.KymaName()
	}
	return fmt.Sprintf("%s; delete them, or allow that in %s: kubectl annotate -n %s kyma %s %s=%s", what, where,
		namespace, name, v1beta2.AnnotationDeleteCustomResources, m.ModuleName())
}

// UnreadMessage returns a text about the kinds whose custom resources were not all read yet. UnreadMessage returns ""
// if all custom resources were read, or if custom resources of users were found.
func (f Found) UnreadMessage() string {
	var kinds []string
	for _, k := range f.Kinds {
		if k.isUnread {
			kinds = append(kinds, k.kind.String())
		}
	}
	if len(kinds) == 0 || f.Count() > 0 {
		return ""
	}
	if more := len(kinds) - kindsLimit; more > 0 {
		kinds = append(kinds[:kindsLimit], fmt.Sprintf("%d more kinds", more))
	}
	return loop.ClipLine(fmt.Sprintf("the search for custom resources of users: the runtime has more than %d custom "+
		"resources of %s, and those that were read belong to no user", maxPages*nextPage, strings.Join(kinds, ", ")))
}

// WithoutFoundCRDs returns the references in the parameter refs, except those to CRDs of which custom resources of
// users were found, or were not all read yet.
func (f Found) WithoutFoundCRDs(refs []apply.Ref) []apply.Ref {
	return slices.DeleteFunc(slices.Clone(refs), func(r apply.Ref) bool {
		return slices.ContainsFunc(f.Kinds, func(k Kind) bool { return k.CRD.SameObject(r) })
	})
}

// otherOwningManifest returns which other Manifest of the runtime has applied a custom resource, or has it as its
// default custom resource and stays, in the form namespace/name. If there is no such Manifest, otherOwningManifest
// returns "".
func (w *ownership) otherOwningManifest(o *apply.ObjectMetadata) (namespacedName string) {
	if owner := o.Annotation(v1beta2.AnnotationOwnedBy); slices.Contains(w.others, owner) {
		return owner
	}
	owner, _ := w.stayingDefaultOwner(o)
	return owner
}

const (
	namesLimit = 5 // maximum number of names of a kind in a message
	kindsLimit = 5 // maximum number of kinds in a message
)

// Count returns the number of custom resources of users, over all kinds.
func (f Found) Count() int {
	n := 0
	for _, k := range f.Kinds {
		n += k.count
	}
	return n
}

// String returns a text that states, for each kind, how many custom resources of users were found, and the names of the
// first few.
func (f Found) String() string {
	var parts []string
	kinds := slices.DeleteFunc(slices.Clone(f.Kinds), func(k Kind) bool { return k.isUnread })
	for _, k := range kinds[:min(kindsLimit, len(kinds))] {
		var names []string
		for i := range k.items[:min(namesLimit, len(k.items))] {
			names = append(names, f.nameAndBlocker(&k.items[i]))
		}
		if more := k.count - len(names); more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		parts = append(parts, fmt.Sprintf("%d %s (%s)", k.count, k.kind, strings.Join(names, ", ")))
	}
	if more := len(kinds) - kindsLimit; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more kinds", more))
	}
	return loop.ClipLine(strings.Join(parts, "; "))
}

// nameAndBlocker returns the name of a custom resource, and what its deletion waits for.
func (f Found) nameAndBlocker(cr *apply.ObjectMetadata) string {
	name := strings.TrimPrefix(cr.Namespace+"/"+cr.Name, "/")
	switch owner := f.own.otherOwningManifest(cr); {
	case owner != "":
		name += " of Manifest " + owner
	case !cr.DeletionTime.IsZero() && len(cr.Finalizers) > 0:
		name += " with finalizers " + strings.Join(cr.Finalizers, " ")
	}
	return name
}
