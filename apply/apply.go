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

// Result is the outcome of one call of Apply. Every object of the Set is in exactly one list, unless Apply returned an
// error.
type Result struct {
	// Applied were sent by this call and accepted.
	Applied []Ref
	// Unchanged were not sent, because the same content was applied before according to Progress.
	Unchanged []Ref
	// Failed were refused, each with the Ref of the object, a Reason and the message of the API server.
	Failed []*Error
	// Waiting were not sent, or not accepted yet, because something else must happen first.
	Waiting []Waiting
	// TakenOver are those of Applied that had fields which other field managers had set to other values. These fields
	// are ours now.
	TakenOver []Takeover
}

// Done reports whether all objects of the Set are applied.
func (r *Result) Done() bool { return len(r.Failed) == 0 && len(r.Waiting) == 0 }

// Err returns Failed as one error, see JoinFailures; nil if there is none.
func (r *Result) Err() error { return JoinFailures(r.Failed) }

// Takeover is an object of which Apply took fields from other field managers.
type Takeover struct {
	Ref Ref
	// Fields that were taken over, at most ten, sorted: "spec.template.spec.containers[name=manager].image".
	Fields []string
	// Managers are the field managers that owned them before, at most ten, sorted.
	Managers []string
}

// String names the object, the fields that were taken over, and their former managers.
func (t Takeover) String() string {
	return t.Ref.String() + ": took " + strings.Join(t.Fields, ", ") + " over from " + strings.Join(t.Managers, ", ")
}

// Waiting is an object that cannot be applied yet.
type Waiting struct {
	Ref Ref
	// Reason is one of CRDNotEstablished, DependencyFailed, ObjectTerminating, ObjectRecreated, ChangedMeanwhile.
	Reason string
	// Message states what the object waits for. It does not change as long as the cause does not.
	Message string
}

// Reasons of Wait.
const (
	// CRDNotEstablished: the cluster does not serve the kind yet that a CustomResourceDefinition of the same bundle
	// defines. It usually does within a second.
	CRDNotEstablished = "CRDNotEstablished"
	// DependencyFailed: an object that this one depends on has failed or is waiting.
	DependencyFailed = "DependencyFailed"
	// ObjectTerminating: the object exists and is being deleted. It is created again after that.
	ObjectTerminating = "ObjectTerminating"
	// ObjectRecreated: the object was deleted because one of its fields is immutable, as its annotation allows. The
	// next Apply creates it again.
	ObjectRecreated = "ObjectRecreated"
	// ChangedMeanwhile: another client changed the object right after it was applied. The next Apply sends it again.
	ChangedMeanwhile = "ChangedMeanwhile"
)

// item is one object of a Set, resolved for a cluster.
type item struct {
	ref      Ref
	object   *render.Object
	resource resource
	role     role
	content  uint64
	crd      Ref // CustomResourceDefinition of the same bundle that defines its kind; zero if there is none
	policy   policy
	problem  string // why its policy is invalid; "" if it can be applied
}

// namespace is the namespace to write into the object.
func (i *item) namespace() string { return i.ref.Namespace }

// resolveObjects resolves the objects of a Set in the order of the bundle. Objects that the cluster cannot have are
// returned as failed. An error means that a discovery request failed for the cluster as a whole.
func (c *Cluster) resolveObjects(ctx context.Context, set Set) (items []item, failed []*Error, err error) {
	type bundleCRD struct {
		render.CRD
		ref Ref
	}
	crds := map[schema.GroupKind]bundleCRD{}
	for _, o := range set.Bundle.Objects {
		if crd, ok := o.CRD(); ok {
			c.rememberCRD(crd)
			crds[schema.GroupKind{Group: crd.Group, Kind: crd.Kind}] = bundleCRD{crd, refOf(o, "")}
		}
	}
	fingerprint := set.fingerprint()
	items = make([]item, 0, len(set.Bundle.Objects))
	seen := make(map[Ref]bool, len(set.Bundle.Objects))
	for _, o := range set.Bundle.Objects {
		it := item{object: o, role: roleOf(o.GVK.GroupKind())}
		if d, ok := crds[o.GVK.GroupKind()]; ok {
			if len(d.Versions) > 0 && !slices.Contains(d.Versions, o.GVK.Version) {
				failed = append(failed, &Error{Operation: "applying", Ref: refOf(o, o.Namespace), reason: KindUnknown,
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
			failure.Operation, failure.Ref = "applying", refOf(o, o.Namespace)
			failed = append(failed, &failure)
			continue
		}
		namespace := ""
		if it.resource.namespaced {
			namespace = cmp.Or(o.Namespace, set.namespace())
		}
		it.ref = refOf(o, namespace)
		it.policy, it.problem = policyOf(o, set.Overlay)
		it.ref.Keep = it.policy.keep
		content := o.Digest()
		if it.policy.createOnly {
			content = AnnotationApplyPolicy // the same hash for any content: it is written once only
		}
		it.content = maphash.Comparable(seed, [...]string{content, namespace, fingerprint})
		if err := validateIdentity(it.ref); err != nil {
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

func refOf(o *render.Object, namespace string) Ref {
	return Ref{Group: o.GVK.Group, Version: o.GVK.Version, Kind: o.GVK.Kind, Namespace: namespace, Name: o.Name}
}

// fingerprint returns a text that differs if owner or overlay of the Set differ: they affect every object.
func (s Set) fingerprint() string {
	var b strings.Builder
	b.WriteString(s.owner())
	for _, over := range []map[string]string{s.Overlay.Labels, s.Overlay.Annotations} {
		b.WriteByte('\n')
		for _, key := range slices.Sorted(maps.Keys(over)) {
			fmt.Fprintf(&b, "%q=%q,", key, over[key])
		}
	}
	return b.String()
}

// Inventory returns the Refs of the objects of a Set in the order of its bundle: what Apply would create. Record it
// before Apply. Kinds that are neither built in nor defined by the bundle cost one discovery request per group and
// version, once.
//
// Objects that the cluster cannot have are left out, and Apply does not create them. The error is then that of
// JoinFailures, mostly with reason KindUnknown, and the Refs of the others are valid. If discovery fails, there are no
// Refs.
func (c *Cluster) Inventory(ctx context.Context, set Set) ([]Ref, error) {
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

// Apply creates and updates the objects of a Set: one PATCH for each object that is not recorded in done. See the
// package comment for order and dependencies. It does not wait: as long as Result has Failed or Waiting objects, call
// it again later; it then sends only what is left.
//
// The error means that the cluster as a whole cannot be used now (unreachable, unauthorized, throttled, or ctx has
// ended). The remaining objects were not sent and are in no list. Failures of single objects are in the Result only.
func (c *Cluster) Apply(ctx context.Context, set Set, done *Progress) (Result, error) {
	items, failed, err := c.resolveObjects(ctx, set)
	if err != nil {
		return Result{}, err
	}
	if done == nil {
		done = new(Progress)
	}
	a := applyCall{Cluster: c, set: set, done: done, result: Result{Failed: failed}, unavailable: map[Ref]bool{},
		unserved: map[Ref]string{},
		query:    "fieldManager=" + url.QueryEscape(set.owner())}
	for _, f := range failed {
		a.markUnavailable(f.Ref)
	}

	var todo [phaseCount][]item
	for _, it := range items {
		if it.problem != "" {
			a.recordInvalidPolicy(&it)
			continue
		}
		if done.hasContent(it.ref, it.content) {
			a.result.Unchanged = append(a.result.Unchanged, it.ref)
			continue
		}
		phase := it.role.phase()
		if phase == phaseBindings && done.recordOf(it.ref).uid != 0 {
			phase = phaseConfiguration // it exists, and so does its role: it needs no phase of its own
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

// application is one call of Apply.
type applyCall struct {
	*Cluster
	set   Set
	done  *Progress
	query string

	unserved map[Ref]string // existing CRDs whose kinds are not served, and why; written before requests are sent

	mu               sync.Mutex
	result           Result          // guarded by mu
	unavailable      map[Ref]bool    // namespaces and CRDs that failed or wait; guarded by mu
	firstUnavailable [phaseCount]Ref // first object (of phaseFoundation: CRD) that failed or waits; guarded by mu
}

// applyPhase sends the objects of one phase whose dependencies have not failed.
func (a *applyCall) applyPhase(ctx context.Context, phase int, items []item) error {
	if len(items) == 0 {
		return nil
	}
	if phase == phaseCustom {
		if err := a.checkServed(ctx, items); err != nil {
			return err
		}
	}
	return a.forEach(len(items), func(i int) error {
		it := &items[i]
		if w, wait := a.mustWait(phase, it); wait {
			a.recordWaiting(it, w)
			return nil
		}
		return a.applyObject(ctx, it)
	})
}

// mustWait returns whether and for what an object has to wait:
//
//	its namespace is in this bundle and does not exist       DependencyFailed
//	its CRD is in this bundle and failed                     DependencyFailed
//	its CRD is in this bundle and is not served yet          CRDNotEstablished
//	a workload, and a CRD was refused                        DependencyFailed
//	a workload, and configuration or access rights failed    DependencyFailed
//	a webhook, and what it calls failed                      DependencyFailed
func (a *applyCall) mustWait(phase int, it *item) (Waiting, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var needs Ref
	switch home := (Ref{Kind: "Namespace", Name: it.ref.Namespace}); {
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

// checkServed finds out with one discovery request per group and version whether kinds are served whose CRDs are new.
// That saves PATCHes that could only fail. For a CRD that existed before this call and still is not served, it reads
// the reason from the CRD, because that may need a person to correct it.
func (a *applyCall) checkServed(ctx context.Context, items []item) error {
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
			asked[version] = kinds // none after an error: the objects wait
		}
		if kind, ok := kinds[it.ref.Kind]; ok && kind.plural == it.resource.plural { // not of another CRD
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

// recordWaiting records that an object has to wait, and that others cannot depend on it yet.
func (a *applyCall) recordWaiting(it *item, w Waiting) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.result.Waiting = append(a.result.Waiting, w)
	if w.Reason != ChangedMeanwhile {
		a.markUnavailableLocked(it.ref)
	}
}

func (a *applyCall) markUnavailable(ref Ref) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.markUnavailableLocked(ref)
}

// markUnavailableLocked records that other objects cannot depend on ref. The first by name represents its phase, so
// that messages are stable.
func (a *applyCall) markUnavailableLocked(ref Ref) {
	role := roleOf(ref.groupKind())
	if role == roleNamespace || role == roleCRD {
		a.unavailable[ref.identity()] = true
	}
	if role == roleNamespace {
		return // objects outside of it do not depend on it
	}
	phase := role.phase()
	if a.firstUnavailable[phase] == (Ref{}) || compareRefs(ref, a.firstUnavailable[phase]) < 0 {
		a.firstUnavailable[phase] = ref
	}
}

// sortResult sorts the lists, which many goroutines have filled.
func (a *applyCall) sortResult() {
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.SortFunc(a.result.Applied, compareRefs)
	slices.SortFunc(a.result.Failed, func(x, y *Error) int { return compareRefs(x.Ref, y.Ref) })
	slices.SortFunc(a.result.TakenOver, func(x, y Takeover) int { return compareRefs(x.Ref, y.Ref) })
	slices.SortFunc(a.result.Waiting, func(x, y Waiting) int { return compareRefs(x.Ref, y.Ref) })
}

func compareRefs(x, y Ref) int {
	return cmp.Or(
		cmp.Compare(x.Group, y.Group), cmp.Compare(x.Kind, y.Kind),
		cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Version, y.Version))
}
