package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Result is the result of one call of Apply. Unless Apply returned an error, every object of the Set is in exactly one
// of Applied, Unchanged, Failed and Waiting.
type Result struct {
	// Applied are the objects that this call sent and the API server accepted.
	Applied []Ref
	// Created are the objects in Applied that did not exist before.
	Created []Ref
	// Ready are the workloads in Applied that the API server reported as ready in its response to the PATCH. The PATCH
	// of such a workload changed nothing that the controller of the workload has to act on.
	Ready []Ref
	// Unchanged are the objects that were not sent, because Progress contains them with the same content.
	Unchanged []Ref
	// Failed are the errors of rejected objects. Each error has the Ref of the object, a Reason and the message of the
	// API server.
	Failed []*Error
	// Waiting are the objects that Apply has not sent, or that the API server has not accepted, because another change
	// must happen first.
	Waiting []Waiting
	// TakenOver are the objects in Applied in which Apply overwrote fields that other field managers had set to other
	// values. After the takeover, the field manager of the Set owns the overwritten fields. TakenOver also has the
	// objects from whose managed fields Apply removed entries of other field managers with a dropped version, one
	// Takeover for each version, even if the object could not be applied after that.
	TakenOver []Takeover
	// Existing are the objects that existed before this call of Apply and were not known to belong to the installation.
	// An object in Existing is also in Applied, Unchanged, Failed or Waiting. For each object in Existing, the caller
	// has to record the flags of its Ref in the inventory. Existing is empty without Set.Ownership.
	Existing []Existing
}

// AllApplied reports whether all objects of the Set are applied.
func (r *Result) AllApplied() bool { return len(r.Failed) == 0 && len(r.Waiting) == 0 }

// Err returns Failed as one error; see JoinFailures. Err returns nil if Failed is empty.
func (r *Result) Err() error { return JoinFailures(r.Failed) }

// Existing is an object that existed before Apply and was not known to belong to the installation.
type Existing struct {
	// Ref is the reference to the object, with the flags that Apply has determined.
	Ref Ref
	// Met states what Apply did with the object. If the object conflicts with another installation, Met is MetShared,
	// and the object is also in Result.Failed.
	Met Met
	// Managers are the other field managers of the object, at most ten, sorted.
	Managers []string
}

// Takeover is an object whose fields Apply took over from other field managers.
type Takeover struct {
	Ref Ref
	// Fields are the fields that were taken over, at most ten, sorted:
	// "spec.template.spec.containers[name=manager].image".
	Fields []string
	// Managers are the former owners of these fields: the names of at most ten field managers, sorted.
	Managers []string
}

// String returns a text with the object, the fields that were taken over, and the former managers of these fields.
func (t Takeover) String() string {
	return t.Ref.String() + ": took " + strings.Join(t.Fields, ", ") + " over from " + strings.Join(t.Managers, ", ")
}

// Waiting is an object that cannot be applied yet.
type Waiting struct {
	Ref Ref
	// Reason is the reason why the object was not applied: one of the constants from CRDNotEstablished to
	// ChangedMeanwhile below.
	Reason string
	// Message states what the object waits for. Message stays the same as long as the cause stays the same.
	Message string
}

// The reasons why an object can be in Result.Waiting.
const (
	// CRDNotEstablished: a CustomResourceDefinition of the same bundle defines the kind of the object, but the cluster
	// does not serve the kind yet. The API server usually serves the kind within a second.
	CRDNotEstablished = "CRDNotEstablished"
	// DependencyFailed: the object depends on another object that has failed or is waiting.
	DependencyFailed = "DependencyFailed"
	// ObjectTerminating: the object exists and is being deleted. The next Apply after the deletion creates the object
	// again.
	ObjectTerminating = "ObjectTerminating"
	// ObjectRecreated: Apply deleted the object to create it again. The API server had rejected a change of an
	// immutable field, and AnnotationOnImmutable of the object has the value "recreate". The next Apply creates the
	// object again.
	ObjectRecreated = "ObjectRecreated"
	// ChangedMeanwhile: another client changed the object directly after it was applied. The next Apply sends the
	// object again.
	ChangedMeanwhile = "ChangedMeanwhile"
)

// item is one object of a Set, resolved for a cluster.
type item struct {
	ref      Ref
	object   *render.Object
	resource resource
	role     role
	content  uint64
	crd      Ref // CustomResourceDefinition in the bundle that defines the kind of the object; zero if none
	policy   policy
	problem  string // why the policy of the object is invalid; "" if the policy is valid
	recorded Ref    // entry in Ownership.Recorded; zero without an entry
	adopted  bool   // the object is applied with AnnotationAdopted
}

// setAdopted sets whether the object is applied with AnnotationAdopted. setAdopted also changes the content hash of the
// item, because the annotation is part of the content that is sent.
func (i *item) setAdopted(adopted bool) {
	if i.adopted != adopted {
		i.adopted, i.content = adopted, i.content^adoptedContent
	}
}

// adoptedContent is a bit that is flipped in the content hash of an object if the object is applied with
// AnnotationAdopted. Because of this bit, an object has different content hashes with and without AnnotationAdopted.
const adoptedContent = 1 << 63

// overlay returns the labels and annotations that override the labels and annotations of the object.
func (i *item) overlay(set Set) render.Overlay {
	over := set.Overlay
	if i.adopted {
		over.Annotations = maps.Clone(over.Annotations)
		if over.Annotations == nil {
			over.Annotations = map[string]string{}
		}
		over.Annotations[AnnotationAdopted] = "true"
	}
	return over
}

// namespace returns the namespace that is written into the object.
func (i *item) namespace() string { return i.ref.Namespace }

// resolveObjects determines for each object of a Set how the cluster serves its kind, in the order of the bundle. The
// result failed has an Error for each object that cannot exist in the cluster. If a discovery request fails for a
// reason that concerns the whole cluster, resolveObjects returns an error.
func (c *Cluster) resolveObjects(ctx context.Context, set Set) (items []item, failed []*Error, err error) {
	type bundleCRD struct {
		render.CRD
		ref Ref
	}
	crds := map[schema.GroupKind]bundleCRD{}
	for _, o := range set.Bundle.Objects {
		if crd, ok := o.CRD(); ok {
			c.rememberCRD(crd)
			crds[schema.GroupKind{Group: crd.Group, Kind: crd.Kind}] = bundleCRD{crd, refInNamespace(o, "")}
		}
	}
	fingerprint, recorded := set.ownerAndOverlayKey(), set.Ownership.recordedByIdentity()
	items = make([]item, 0, len(set.Bundle.Objects))
	seen := make(map[Ref]bool, len(set.Bundle.Objects))
	for _, o := range set.Bundle.Objects {
		it := item{object: o, role: roleOf(o.GVK.GroupKind())}
		if d, ok := crds[o.GVK.GroupKind()]; ok {
			if len(d.Versions) > 0 && !slices.Contains(d.Versions, o.GVK.Version) {
				failed = append(failed, &Error{Operation: "applying", Ref: refInNamespace(o, o.Namespace),
					reason:  KindUnknown,
					Message: "the module's own " + d.ref.String() + " does not serve version " + o.GVK.Version})
				continue
			}
			it.crd, it.resource = d.ref, resource{d.Plural, d.Namespaced}
		} else if it.resource, err = c.resourceOf(ctx, o.GVK); err != nil {
			e, ok := errors.AsType[*Error](err)
			if !ok || concernsCluster(err) {
				return nil, nil, err
			}
			failure := *e
			failure.Operation, failure.Ref = "applying", refInNamespace(o, o.Namespace)
			failed = append(failed, &failure)
			continue
		}
		namespace := ""
		if it.resource.namespaced {
			namespace = cmp.Or(o.Namespace, set.namespaceOrDefault())
		}
		it.ref = refInNamespace(o, namespace)
		it.policy, it.problem = policyOf(o, set.Overlay)
		it.ref.Keep = it.policy.keep
		content := o.Digest()
		if it.policy.createOnly {
			content = AnnotationApplyPolicy // the same hash for any content: the object is written only once
		}
		it.content = maphash.Comparable(seed, [...]string{content, namespace, fingerprint})
		it.recorded = recorded[it.ref.identity()]
		it.setAdopted(it.recorded.Adopted && !it.policy.createOnly)
		if err := validatePathSegments(it.ref); err != nil {
			failed = append(failed, err)
			continue
		}
		if seen[it.ref.identity()] {
			failed = append(failed, &Error{Operation: "applying", Ref: it.ref,
				Message: "the module contains this object twice, with and without its namespace or in two versions: " +
					"remove one", reason: ObjectRefused})
			continue
		}
		seen[it.ref.identity()] = true
		items = append(items, it)
	}
	return items, failed, nil
}

func refInNamespace(o *render.Object, namespace string) Ref {
	return Ref{Group: o.GVK.Group, Version: o.GVK.Version, Kind: o.GVK.Kind, Namespace: namespace, Name: o.Name}
}

// ownerAndOverlayKey returns a text with the owner and the overlay of the Set. The text is part of the content hash of
// every object, because a changed owner or overlay (additional labels and annotations) changes the content of every
// PATCH.
func (s Set) ownerAndOverlayKey() string {
	var b strings.Builder
	b.WriteString(s.fieldManager())
	for _, over := range []map[string]string{s.Overlay.Labels, s.Overlay.Annotations} {
		b.WriteByte('\n')
		for _, key := range slices.Sorted(maps.Keys(over)) {
			fmt.Fprintf(&b, "%q=%q,", key, over[key])
		}
	}
	return b.String()
}

// DesiredInventory returns the Refs of the objects of a Set in the order of its bundle. Apply with the same Set would
// create or update exactly the objects whose Refs DesiredInventory returns. The caller has to record the Refs before it
// calls Apply. Kinds that are neither built in nor defined by the bundle need one discovery request per group and
// version. The discovery response is cached.
//
// Some objects cannot exist in the cluster, for example because the cluster does not serve their kind. DesiredInventory
// leaves out objects that cannot exist in the cluster, and Apply does not create such objects. If DesiredInventory
// leaves out objects, it returns the Refs of all other objects, together with an error that joins the failures of the
// omitted objects. Most of these failures have reason KindUnknown. If discovery fails, DesiredInventory returns no
// Refs.
func (c *Cluster) DesiredInventory(ctx context.Context, set Set) ([]Ref, error) {
	items, failed, err := c.resolveObjects(ctx, set)
	if err != nil {
		return nil, err
	}
	refs := make([]Ref, len(items))
	for i := range items {
		refs[i] = items[i].ref
	}
	return refs, JoinFailures(failed)
}

// Apply creates and updates the objects of a Set. Apply sends one PATCH for each object that the parameter progress
// does not record as applied. The package comment describes the order of the objects and the dependencies between
// objects. Apply does not wait until the objects are ready. Call Apply again later as long as Result has Failed or
// Waiting objects; the next call sends only the objects that have failed or are waiting.
//
// If Apply returns an error, the whole cluster cannot be used now: the API server cannot be reached, rejects the
// credential or throttles, or ctx has ended. Objects that were not sent because Apply returned an error are in no list
// of the Result. Apply does not return the failure of a single object as an error: the failure is only in
// Result.Failed.
func (c *Cluster) Apply(ctx context.Context, set Set, progress *Progress) (Result, error) {
	items, failed, err := c.resolveObjects(ctx, set)
	if err != nil {
		return Result{}, err
	}
	if progress == nil {
		progress = new(Progress)
	}
	a := applyCall{Cluster: c, set: set, done: progress, result: Result{Failed: failed}, unavailable: map[Ref]bool{},
		unserved: map[Ref]string{},
		query:    "fieldManager=" + url.QueryEscape(set.fieldManager())}
	for _, f := range failed {
		a.markFailedOrWaiting(f.Ref)
	}

	var todo [phaseCount][]item
	for _, it := range items {
		if it.problem != "" {
			a.recordInvalidPolicy(&it)
			continue
		}
		if progress.hasContent(it.ref, it.content) && !it.mustReportExisting(progress.recordOf(it.ref)) {
			a.result.Unchanged = append(a.result.Unchanged, it.ref)
			continue
		}
		phase := it.role.phase()
		if phase == phaseBindings && progress.recordOf(it.ref).uid != 0 {
			phase = phaseConfiguration // the binding and its role exist, so the binding needs no separate phase
		}
		todo[phase] = append(todo[phase], it)
	}
	for phase := range todo {
		if err := a.applyPhase(ctx, phase, todo[phase]); err != nil {
			a.sortResult()
			return a.result, err
		}
	}
	a.sortResult()
	return a.result, nil
}

// applyCall is the state of one call of Apply: its arguments, its result, and the objects that are not available.
type applyCall struct {
	*Cluster
	set   Set
	done  *Progress
	query string

	unserved map[Ref]string // reasons why the kinds of existing CRDs are not served; written before requests are sent

	mu               sync.Mutex
	result           Result          // guarded by mu
	unavailable      map[Ref]bool    // namespaces and CRDs that failed or wait; guarded by mu
	droppedVersion   Ref             // first CRD that failed with StoredVersionDropped; guarded by mu
	firstUnavailable [phaseCount]Ref // first object (of phaseFoundation: CRD) that failed or waits; guarded by mu
}

// applyPhase sends the objects of one phase. Objects with failed dependencies are not sent.
func (a *applyCall) applyPhase(ctx context.Context, phase int, items []item) error {
	if len(items) == 0 {
		return nil
	}
	if phase == phaseCustom {
		if err := a.discoverWhetherCRDsAreServed(ctx, items); err != nil {
			return err
		}
	}
	return a.forEachConcurrently(len(items), func(i int) error {
		it := &items[i]
		if w, wait := a.mustWait(phase, it); wait {
			a.recordWaiting(it, w)
			return nil
		}
		return a.applyObject(ctx, it)
	})
}

// mustWait reports whether an object has to wait before it is sent. Each row of the table below has a cause of waiting
// and the reason that mustWait returns for this cause.
//
//	a CRD drops a version in which objects are stored          DependencyFailed
//	its namespace is in this bundle and does not exist         DependencyFailed
//	its CRD is in this bundle and failed                       DependencyFailed
//	its CRD is in this bundle and its kind is not served yet   CRDNotEstablished
//	it is a workload, and a CRD was rejected                   DependencyFailed
//	it is a workload, and configuration or a binding failed    DependencyFailed
//	it is a webhook, and one of these or a workload failed     DependencyFailed
func (a *applyCall) mustWait(phase int, it *item) (Waiting, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var needs Ref
	switch home := (Ref{Kind: "Namespace", Name: it.ref.Namespace}); {
	case phase > phaseFoundation && a.droppedVersion != (Ref{}):
		needs = a.droppedVersion // the former version of the module stays, with its configuration and rights
	case it.ref.Namespace != "" && a.unavailable[home]:
		needs = home
	case it.crd.Name != "" && a.unavailable[it.crd.identity()]:
		needs = it.crd
	case it.crd.Name != "" && a.done.recordOf(it.crd).maybeUnserved:
		return a.waitingForCRD(it), true
	case phase == phaseWorkloads:
		needs = cmp.Or(a.firstUnavailable[phaseFoundation], a.firstUnavailable[phaseConfiguration],
			a.firstUnavailable[phaseBindings])
	case phase == phaseAdmission:
		needs = cmp.Or(a.firstUnavailable[phaseFoundation], a.firstUnavailable[phaseConfiguration],
			a.firstUnavailable[phaseBindings], a.firstUnavailable[phaseWorkloads])
	}
	if needs == (Ref{}) {
		return Waiting{}, false
	}
	return Waiting{Ref: it.ref, Reason: DependencyFailed, Message: "waits until " + needs.String() + " is applied"},
		true
}

func (a *applyCall) waitingForCRD(it *item) Waiting {
	w := Waiting{Ref: it.ref, Reason: CRDNotEstablished, Message: "waits until the cluster serves " + it.crd.String()}
	if why := a.unserved[it.crd.identity()]; why != "" {
		w.Message = "waits until the cluster serves its kind: " + why
	}
	return w
}

// discoverWhetherCRDsAreServed checks with one discovery request per group and version whether the kinds of new CRDs
// are served. The discovery request avoids PATCHes that the API server would reject. If a CRD existed before this call
// and its kind is still not served, discoverWhetherCRDsAreServed reads the reason from the CRD, because a user may have
// to correct the CRD.
func (a *applyCall) discoverWhetherCRDsAreServed(ctx context.Context, items []item) error {
	asked := map[schema.GroupVersion]map[string]resource{}
	for i := range items {
		it := &items[i]
		if it.crd.Name == "" || !a.done.recordOf(it.crd).maybeUnserved || a.unavailable[it.crd.identity()] {
			continue
		}
		version := it.ref.GVK().GroupVersion()
		kinds, ok := asked[version]
		if !ok {
			var err error
			if kinds, err = a.servedKinds(ctx, version); err != nil && concernsCluster(err) {
				return err
			}
			asked[version] = kinds // no kinds after an error: the objects wait
		}
		if kind, ok := kinds[it.ref.Kind]; ok && kind.plural == it.resource.plural { // skip a kind of another CRD
			a.done.setMaybeUnserved(it.crd, false)
			continue
		}
		if _, known := a.unserved[it.crd.identity()]; known ||
			slices.ContainsFunc(a.result.Applied, it.crd.SameObject) {
			continue
		}
		answer, err := a.checkCRD(ctx, it.crd, nil)
		if err != nil && concernsCluster(err) {
			return err
		}
		a.unserved[it.crd.identity()] = ""
		if answer != nil {
			a.unserved[it.crd.identity()] = answer.Message
		}
	}
	return nil
}

// recordWaiting records that an object has to wait. Objects that depend on the recorded object have to wait, too.
func (a *applyCall) recordWaiting(it *item, w Waiting) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.result.Waiting = append(a.result.Waiting, w)
	if w.Reason != ChangedMeanwhile {
		a.markFailedOrWaitingLocked(it.ref)
	}
}

func (a *applyCall) markFailedOrWaiting(ref Ref) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.markFailedOrWaitingLocked(ref)
}

// markFailedOrWaitingLocked records that the object ref has failed or is waiting, so that dependent objects wait. If
// several objects of a phase have failed or are waiting, the object with the smallest name is recorded for the phase,
// so that messages are stable.
func (a *applyCall) markFailedOrWaitingLocked(ref Ref) {
	role := roleOf(ref.groupKind())
	if role == roleNamespace || role == roleCRD {
		a.unavailable[ref.identity()] = true
	}
	if role == roleNamespace {
		return // other objects do not depend on this object
	}
	phase := role.phase()
	if a.firstUnavailable[phase] == (Ref{}) || compareRefs(ref, a.firstUnavailable[phase]) < 0 {
		a.firstUnavailable[phase] = ref
	}
}

// sortResult sorts the lists of objects in the Result of Apply, because concurrent goroutines add objects to these
// lists in random order.
func (a *applyCall) sortResult() {
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.SortFunc(a.result.Applied, compareRefs)
	slices.SortFunc(a.result.Created, compareRefs)
	slices.SortFunc(a.result.Ready, compareRefs)
	slices.SortFunc(a.result.Failed, func(x, y *Error) int { return compareRefs(x.Ref, y.Ref) })
	slices.SortStableFunc(a.result.TakenOver, func(x, y Takeover) int { return compareRefs(x.Ref, y.Ref) })
	slices.SortFunc(a.result.Waiting, func(x, y Waiting) int { return compareRefs(x.Ref, y.Ref) })
	slices.SortFunc(a.result.Existing, func(x, y Existing) int { return compareRefs(x.Ref, y.Ref) })
}

func compareRefs(x, y Ref) int {
	return cmp.Or(
		cmp.Compare(x.Group, y.Group), cmp.Compare(x.Kind, y.Kind),
		cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Version, y.Version))
}
