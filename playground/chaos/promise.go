package chaos

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// maxBroken limits the number of broken promises that are recorded.
const maxBroken = 50

// promises checks every change in etcd against the guarantees of the README.
type promises struct {
	namespace string // of Kymas and Manifests
	say       func(format string, args ...any)

	mu        sync.Mutex // guards what follows
	changes   int
	created   int                                   // objects of modules whose inventory was checked
	exact     map[string]bool                       // objects that nobody may change or delete, by cluster/key
	kept      map[string]bool                       // objects that nobody may delete
	excused   map[string]bool                       // objects that a user is about to delete
	newest    map[string]int                        // newest version that a module had in a runtime
	manifests map[string]*unstructured.Unstructured // by name
	broken    []string
}

func newPromises(namespace string, say func(string, ...any)) *promises {
	return &promises{namespace: namespace, say: say, exact: map[string]bool{}, kept: map[string]bool{},
		excused: map[string]bool{},
		newest:  map[string]int{}, manifests: map[string]*unstructured.Unstructured{}}
}

// isObservedKey reports whether changes of the object with the given etcd key are checked. The changes of objects that
// change all the time and concern no promise are not checked.
func isObservedKey(_, etcdKey string) bool {
	for _, prefix := range []string{"events/", "leases/", "masterleases/", "minions/", "pods/", "endpointslices/",
		"services/endpoints/", "replicasets/"} {
		if strings.HasPrefix(etcdKey, prefix) {
			return false
		}
	}
	return true
}

// protect adds objects that must not be deleted. If the parameter isImmutable is true, the objects must be neither
// deleted nor changed.
func (p *promises) protect(isImmutable bool, objects ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range objects {
		if isImmutable {
			p.exact[o] = true
		} else {
			p.kept[o] = true
		}
	}
}

// unprotect ends the protection of objects.
func (p *promises) unprotect(objects ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range objects {
		delete(p.exact, o)
		delete(p.kept, o)
	}
}

// excuseNextDeletion allows one deletion of an object that another module contains, because a user deletes the object.
func (p *promises) excuseNextDeletion(objectID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.excused[objectID] = true
}

// forgetVersions removes the recorded versions of the modules in a runtime. forgetVersions is called when the runtime
// has no Kyma.
func (p *promises) forgetVersions(runtime string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.newest {
		if strings.HasPrefix(key, runtime+"/") {
			delete(p.newest, key)
		}
	}
}

// observe checks one change.
func (p *promises) observe(c cluster.Change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes++
	id := c.Cluster + "/" + c.Key
	switch {
	case p.exact[id] && c.Deleted:
		p.recordBrokenLocked(c, "deleted an object of a user")
	case p.exact[id] && c.Before != nil: // the creation may be observed after protect
		p.recordBrokenLocked(c, "changed an object of a user")
	case p.kept[id] && c.Deleted:
		p.recordBrokenLocked(c, "deleted an object that was to stay")
	}
	if c.Cluster == landscape.ControlPlane {
		p.recordManifest(c)
		return
	}
	p.checkCreatedObjectIsInInventory(c)
	p.checkVersionNotOlder(c)
	p.checkDeletedHasNoOtherOwner(c)
}

// recordManifest records which objects a Manifest contains.
func (p *promises) recordManifest(c cluster.Change) {
	name, is := strings.CutPrefix(c.Key, v1beta2.GroupVersion.Group+"/manifests/"+p.namespace+"/")
	switch {
	case !is:
	case c.Deleted:
		delete(p.manifests, name)
	default:
		p.manifests[name] = c.Object
	}
}

// checkCreatedObjectIsInInventory checks that an object that a module has created is in the inventory already.
func (p *promises) checkCreatedObjectIsInInventory(c cluster.Change) {
	if c.Before != nil || c.Object == nil || c.Object.GetKind() == v1beta2.KindKyma {
		return
	}
	owner, is := strings.CutPrefix(c.Object.GetAnnotations()[v1beta2.AnnotationOwnedBy], p.namespace+"/")
	if !is {
		return
	}
	p.created++
	m := p.manifests[owner]
	if m == nil {
		p.recordBrokenLocked(c, "created for a Manifest that does not exist: "+owner)
		return
	}
	synced, _, _ := unstructured.NestedSlice(m.Object, "status", "synced")
	gvk := c.Object.GroupVersionKind()
	if !slices.ContainsFunc(synced, func(entry any) bool {
		e, _ := entry.(map[string]any)
		namespace, _ := e["namespace"].(string)
		return e["kind"] == gvk.Kind && e["group"] == gvk.Group && e["name"] == c.Object.GetName() &&
			(namespace == c.Object.GetNamespace() || c.Object.GetNamespace() == "")
	}) {
		p.recordBrokenLocked(c, "created before it was in the inventory of Manifest "+owner)
	}
}

// checkVersionNotOlder checks that a module never gets an older version.
func (p *promises) checkVersionNotOlder(c cluster.Change) {
	module, is := strings.CutPrefix(c.Key, "configmaps/"+v1beta2.RuntimeNamespace+"/")
	if !is || c.Object == nil {
		return
	}
	text, _, _ := unstructured.NestedString(c.Object.Object, "data", "version")
	major, _, _ := strings.Cut(text, ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		return
	}
	key := c.Cluster + "/" + module
	if n < p.newest[key] {
		p.recordBrokenLocked(c, fmt.Sprintf("has version %d after version %d", n, p.newest[key]))
	}
	p.newest[key] = max(n, p.newest[key])
}

// checkDeletedHasNoOtherOwner checks that no other Manifest contains a deleted object.
func (p *promises) checkDeletedHasNoOtherOwner(c cluster.Change) {
	if !c.Deleted || c.Before == nil {
		return
	}
	if id := c.Cluster + "/" + c.Key; p.excused[id] {
		delete(p.excused, id)
		return
	}
	for owner := range strings.SplitSeq(c.Before.GetAnnotations()[coOwners], ",") {
		name, is := strings.CutPrefix(strings.TrimSpace(owner), p.namespace+"/")
		if m := p.manifests[name]; is && m != nil && m.GetDeletionTimestamp() == nil {
			p.recordBrokenLocked(c, "deleted, although Manifest "+name+" contains it, too")
		}
	}
}

// coOwners is an annotation of an object that several Manifests contain. The owner of the object is one of these
// Manifests, and the annotation lists the others.
const coOwners = "operator.kyma-project.io/co-owners"

// recordBrokenLocked records a broken promise.
func (p *promises) recordBrokenLocked(c cluster.Change, what string) {
	o := c.Object
	if o == nil {
		o = c.Before
	}
	by := ""
	if o != nil {
		last := ""
		for _, f := range o.GetManagedFields() {
			if f.Time != nil && f.Time.UTC().Format("15:04:05") >= last {
				last, by = f.Time.UTC().Format("15:04:05"), f.Manager
			}
		}
	}
	text := fmt.Sprintf("%s/%s: %s (revision %d, last changed by %q)", c.Cluster, c.Key, what, c.Revision, by)
	p.say("BROKEN %s", text)
	if len(p.broken) < maxBroken {
		p.broken = append(p.broken, text)
	}
}

// result returns the broken promises and the number of observed changes and created objects.
func (p *promises) result() (broken []string, changes, created int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.broken), p.changes, p.created
}
