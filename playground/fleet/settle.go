package fleet

import (
	"container/heap"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// needs is a set of bits. Each bit of a task is a kind of work that the controllers of a real cluster would do for an
// object.
type needs uint8

const (
	needStatus  needs = 1 << iota // the status differs from the final status
	needEnd                       // the object is being deleted, and a controller takes part in the deletion
	needOwners                    // the object has owners, which may not exist any more
	needOperate                   // an Operator is responsible for the object
)

// dueTask is a task of a controller: the kind of task, the object, and the time at which the task is due.
type dueTask struct {
	at   time.Time
	what needs
	key  objectKey
}

// The simulated controllers act after a delay: the constant soon, or Options.Ready for the status of workloads.
const (
	soon         = 10 * time.Millisecond
	logRetention = 5 * time.Minute // the log of a cluster is dropped after this time without a change
)

// Finalizers that the controllers of the cluster itself remove.
const (
	finalizerForeground = "foregroundDeletion"
	finalizerOrphan     = "orphan"
	finalizerInstances  = "customresourcecleanup.apiextensions.k8s.io"
)

// setControllerTasks sets the field needs of a body: the tasks that the simulated controllers have to do for the
// object. The parameter text is the JSON of the object, with tokens in place of the values of its cluster.
func (f *Fleet) setControllerTasks(v *body, text []byte) {
	group, _, _ := strings.Cut(v.apiVersion, "/")
	if group == v.apiVersion {
		group = ""
	}
	if len(v.owners) > 0 {
		v.needs |= needOwners
	}
	if group == "apiextensions.k8s.io" && v.kind == "CustomResourceDefinition" {
		v.definition = readDefinition(text)
	}
	if v.deleting >= 0 {
		own := func(name string) bool {
			return name == finalizerForeground || name == finalizerOrphan || name == finalizerInstances
		}
		if slices.ContainsFunc(v.finalizers, own) || group == "" &&
			(v.kind == "Namespace" || v.kind == "Pod" && len(v.finalizers) == 0) {
			v.needs |= needEnd
		}
		return
	}
	if patch := settledStatusPatch(group, v, text); patch != nil {
		v.needs |= needStatus
		v.status = patch
	}
	for i := range f.options.Operators {
		if o := &f.options.Operators[i]; o.Kind == (schema.GroupKind{Group: group, Kind: v.kind}) &&
			!hasState(text, o.targetState()) {
			v.needs |= needOperate
		}
	}
}

func (o *Operator) targetState() string {
	if o.State == "" {
		return "Ready"
	}
	return o.State
}

func hasState(text []byte, state string) bool {
	var cr struct {
		Status struct {
			State string `json:"state"`
		} `json:"status"`
	}
	return json.Unmarshal(text, &cr) == nil && cr.Status.State == state
}

// operatorOf returns the Operator that is responsible for a custom resource.
func (f *Fleet) operatorOf(v *body) *Operator {
	group, _, _ := strings.Cut(v.apiVersion, "/")
	for i := range f.options.Operators {
		if o := &f.options.Operators[i]; o.Kind == (schema.GroupKind{Group: group, Kind: v.kind}) {
			return o
		}
	}
	return nil
}

// reactToChangeLocked plans the tasks of controllers that follow from a change of an object.
func (c *Cluster) reactToChangeLocked(before, after *object) {
	if after == nil {
		c.reactToRemovalLocked(before)
		return
	}
	v := after.body
	if d := v.definition; d != nil && (d.established || before != nil && before.body.definition.established) {
		c.updateSurfaceLocked()
	}
	if v.needs == 0 {
		return
	}
	key := after.key()
	if v.needs&needStatus != 0 {
		wait := c.fleet.options.Ready
		if v.definition != nil {
			wait = soon
		}
		c.ensurePlannedLocked(needStatus, key, wait)
	}
	if v.needs&needEnd != 0 {
		c.ensurePlannedLocked(needEnd, key, soon)
	}
	if v.needs&needOwners != 0 && before == nil {
		c.ensurePlannedLocked(needOwners, key, soon)
	}
	if v.needs&needOperate != 0 {
		c.ensurePlannedLocked(needOperate, key, c.fleet.operatorOf(v).After)
	}
}

// reactToRemovalLocked plans the tasks that follow from the removal of an object: tasks for its dependents, and for
// objects whose deletion can continue now.
func (c *Cluster) reactToRemovalLocked(gone *object) {
	if gone.body.definition != nil {
		c.updateSurfaceLocked()
	}
	uid := c.uid(gone)
	for _, o := range c.objects {
		for i := range o.body.owners {
			if o.ownerUID(&o.body.owners[i]) != uid {
				continue
			}
			c.ensurePlannedLocked(needOwners, o.key(), soon)
		}
		// The object o may be waiting for its own deletion until the removed object no longer exists.
		if o.body.needs&needEnd != 0 {
			c.ensurePlannedLocked(needEnd, o.key(), soon)
		}
	}
}

// ensurePlannedLocked plans a task for an object, unless the same task is planned already. The task is due after wait.
func (c *Cluster) ensurePlannedLocked(what needs, key objectKey, wait time.Duration) {
	for i := range c.tasks {
		if t := &c.tasks[i]; t.what == what && t.key == key {
			return
		}
	}
	at := c.fleet.now().Add(wait)
	c.tasks = append(c.tasks, dueTask{at, what, key})
	if c.wakeAt.IsZero() || at.Before(c.wakeAt) {
		c.wakeAt = at
		c.fleet.agenda.add(c, at)
	}
}

// runDueTasks runs the tasks of the cluster that are due.
func (c *Cluster) runDueTasks() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.fleet.now()
	var due []dueTask
	c.tasks = slices.DeleteFunc(c.tasks, func(t dueTask) bool {
		if t.at.After(now) {
			return false
		}
		due = append(due, t)
		return true
	})
	for _, t := range due {
		if o := c.findLocked(t.key.resource, t.key.namespace, t.key.name); o != nil && o.body.needs&t.what != 0 {
			c.doTaskLocked(t.what, o)
		}
	}
	c.wakeAt = time.Time{}
	for _, t := range c.tasks {
		if c.wakeAt.IsZero() || t.at.Before(c.wakeAt) {
			c.wakeAt = t.at
		}
	}
	if !c.wakeAt.IsZero() {
		c.fleet.agenda.add(c, c.wakeAt)
	} else {
		c.tasks = nil
	}
}

func (c *Cluster) doTaskLocked(what needs, o *object) {
	switch what {
	case needStatus:
		c.writeAsControllerLocked(o, http.MethodPatch, "status", statusFieldManager(o.body), o.body.status)
	case needOwners:
		c.deleteIfOwnerlessLocked(o)
	case needOperate:
		c.setStateOrReplanLocked(o)
	case needEnd:
		switch {
		case o.resource == c.fleet.namespaceResource:
			c.deleteContentThenNamespaceLocked(o)
		case slices.Contains(o.body.finalizers, finalizerInstances):
			c.deleteInstancesThenCRDLocked(o)
		case slices.Contains(o.body.finalizers, finalizerForeground):
			c.deleteDependentsThenOwnerLocked(o)
		case slices.Contains(o.body.finalizers, finalizerOrphan):
			c.orphanThenDeleteOwnerLocked(o)
		case o.body.kind == "Pod":
			c.removeLocked(o)
		}
	}
}

// statusFieldManager returns the name of the component that writes the status of an object in a real cluster.
func statusFieldManager(v *body) string {
	if v.definition != nil {
		return "kube-apiserver"
	}
	return "kube-controller-manager"
}

// writeAsControllerLocked sends a merge patch or a DELETE in the name of a controller. A refused request is not
// repeated.
func (c *Cluster) writeAsControllerLocked(o *object, method, subresource, agent string, body []byte) {
	k := c.servedKindOf(o.body)
	if k == nil {
		if method == http.MethodDelete {
			c.removeLocked(o) // the definition was deleted before the object
		}
		return
	}
	if subresource != "" && !hasSubresource(k, subresource) {
		subresource = ""
	}
	contentType := string(types.MergePatchType)
	if method == http.MethodDelete {
		contentType = jsonType
	}
	r := &request{kind: k, namespace: o.body.namespace, name: o.body.name, subresource: subresource, method: method,
		contentType: contentType, agent: agent, body: body,
		uri: k.path(o.body.namespace, o.body.name, subresource)}
	_, _ = c.executeLocked(c.fleet.life, r) // no client receives the answer
}

var inBackground = []byte(`{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"}`)

// deleteAsControllerLocked deletes an object, unless the object is already being deleted.
func (c *Cluster) deleteAsControllerLocked(o *object) {
	if o.body.deleting < 0 {
		c.writeAsControllerLocked(o, http.MethodDelete, "", "kube-controller-manager", inBackground)
	}
}

// dropFinalizerLocked removes a finalizer from an object. When its last finalizer is removed, the object is deleted.
func (c *Cluster) dropFinalizerLocked(o *object, name string) {
	rest := slices.DeleteFunc(slices.Clone(o.body.finalizers), func(f string) bool { return f == name })
	if rest == nil {
		rest = []string{}
	}
	c.patchLocked(o, "", map[string]any{"metadata": map[string]any{"finalizers": rest}})
}

func (c *Cluster) patchLocked(o *object, subresource string, patch any) {
	data, err := json.Marshal(patch)
	if err == nil {
		c.writeAsControllerLocked(o, http.MethodPatch, subresource, "kube-controller-manager", data)
	}
}

// dependentsLocked returns the dependents of o: the objects that name o as an owner.
func (c *Cluster) dependentsLocked(o *object) []*object {
	uid := c.uid(o)
	var all []*object
	for _, other := range c.objects {
		if slices.ContainsFunc(other.body.owners, func(w owner) bool { return other.ownerUID(&w) == uid }) {
			all = append(all, other)
		}
	}
	return all
}

// deleteIfOwnerlessLocked deletes an object if none of its owners exists.
func (c *Cluster) deleteIfOwnerlessLocked(o *object) {
	wanted := map[string]bool{}
	for i := range o.body.owners {
		wanted[o.ownerUID(&o.body.owners[i])] = true
	}
	for _, other := range c.objects {
		if wanted[c.uid(other)] {
			return
		}
	}
	c.deleteAsControllerLocked(o)
}

// deleteDependentsThenOwnerLocked deletes the dependents of an object. When no dependent is left,
// deleteDependentsThenOwnerLocked deletes the object.
func (c *Cluster) deleteDependentsThenOwnerLocked(o *object) {
	dependents := c.dependentsLocked(o)
	if len(dependents) == 0 {
		c.dropFinalizerLocked(o, finalizerForeground)
		return
	}
	for _, d := range dependents {
		c.deleteAsControllerLocked(d)
	}
}

// orphanThenDeleteOwnerLocked removes o from the ownerReferences of its dependents, and then removes the finalizer
// orphan from o, so that o can be deleted.
func (c *Cluster) orphanThenDeleteOwnerLocked(o *object) {
	uid := c.uid(o)
	for _, d := range c.dependentsLocked(o) {
		var full struct {
			Metadata struct {
				OwnerReferences []map[string]any `json:"ownerReferences"`
			} `json:"metadata"`
		}
		if json.Unmarshal(c.appendObject(nil, d), &full) != nil {
			continue
		}
		rest := slices.DeleteFunc(full.Metadata.OwnerReferences, func(w map[string]any) bool { return w["uid"] == uid })
		c.patchLocked(d, "", map[string]any{"metadata": map[string]any{"ownerReferences": rest}})
	}
	if now := c.findLocked(o.resource, o.body.namespace, o.body.name); now != nil {
		c.dropFinalizerLocked(now, finalizerOrphan)
	}
}

// deleteInstancesThenCRDLocked deletes the custom resources of a definition. When no custom resource is left,
// deleteInstancesThenCRDLocked deletes the definition.
func (c *Cluster) deleteInstancesThenCRDLocked(o *object) {
	names := o.body.definition.crd.Spec
	resource := c.fleet.resources.idOf(schema.GroupResource{Group: names.Group, Resource: names.Names.Plural})
	for _, one := range slices.Clone(c.rangeLocked(resource, "")) {
		c.deleteAsControllerLocked(one)
	}
	if len(c.rangeLocked(resource, "")) == 0 {
		c.dropFinalizerLocked(o, finalizerInstances)
	}
}

// deleteContentThenNamespaceLocked deletes the objects in a namespace. When no object is left,
// deleteContentThenNamespaceLocked deletes the namespace. As long as objects are left, the status of the namespace
// lists them.
func (c *Cluster) deleteContentThenNamespaceLocked(o *object) {
	inside := func() (all []*object) {
		for _, one := range c.objects {
			if one.body.namespace == o.body.name {
				all = append(all, one)
			}
		}
		return all
	}
	for _, one := range inside() {
		c.deleteAsControllerLocked(one)
	}
	left := inside()
	if len(left) == 0 {
		if now := c.findLocked(o.resource, "", o.body.name); now != nil && len(now.body.finalizers) == 0 {
			c.removeLocked(now)
		}
		return
	}
	resources, finalizers := map[string]int{}, map[string]int{}
	for _, one := range left {
		resources[c.resourceName(one)]++
		for _, f := range one.body.finalizers {
			finalizers[f]++
		}
	}
	conditions := []any{
		newCondition("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered",
			"All resources successfully discovered"),
		newCondition("NamespaceDeletionGroupVersionParsingFailure", "False", "ParsedGroupVersions",
			"All legacy kube types successfully parsed"),
		newCondition("NamespaceDeletionContentFailure", "False", "ContentDeleted",
			"All content successfully deleted, may be waiting on finalization"),
		newCondition("NamespaceContentRemaining", "True", "SomeResourcesRemain",
			"Some resources are remaining: "+countsText(
				resources, "%s has %d resource instances")),
		newCondition("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain",
			"Some content in the namespace has finalizers remaining: "+countsText(
				finalizers, "%s in %d resource instances")),
	}
	if now := c.findLocked(o.resource, "", o.body.name); now != nil &&
		!strings.Contains(now.body.text, "SomeResourcesRemain") {
		c.patchLocked(now, "status", map[string]any{"status": map[string]any{"conditions": conditions}})
	}
}

// resourceName returns the resource of an object as "resource.group".
func (c *Cluster) resourceName(o *object) string {
	c.fleet.resources.mu.Lock()
	defer c.fleet.resources.mu.Unlock()
	name := c.fleet.resources.names[o.resource]
	if !strings.Contains(name, ".") {
		name += "."
	}
	return name
}

func countsText(counts map[string]int, format string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf(format, name, counts[name]))
	}
	return strings.Join(parts, ", ")
}

// setStateOrReplanLocked runs the task of an Operator: it sets status.state of a custom resource if the Deployment of
// the Operator is available, and plans the task again if not.
func (c *Cluster) setStateOrReplanLocked(o *object) {
	operator := c.fleet.operatorOf(o.body)
	if operator.Deployment != "" {
		deployments := c.fleet.resources.idOf(schema.GroupResource{Group: "apps", Resource: "deployments"})
		d := c.findLocked(deployments, operator.Namespace, operator.Deployment)
		if d == nil || d.body.needs&needStatus != 0 {
			c.ensurePlannedLocked(needOperate, o.key(), c.fleet.options.Ready)
			return
		}
	}
	c.setStateLocked(o, operator)
}

// setStateLocked sets status.state of a custom resource.
func (c *Cluster) setStateLocked(o *object, operator *Operator) {
	state := operator.targetState()
	if other, found := c.operates[operator.Kind]; found {
		state = other
	}
	data, err := json.Marshal(map[string]any{"status": map[string]any{"state": state}})
	if err == nil {
		c.writeAsControllerLocked(o, http.MethodPatch, "status", "operator", data)
	}
}

// OverrideOperatorState makes the simulated operator of a kind set another state from now on, and at once for the
// custom resources that exist. If the parameter state is empty, the operator sets the state in Operator.State again.
func (c *Cluster) OverrideOperatorState(kind schema.GroupKind, state string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.operates == nil {
		c.operates = map[schema.GroupKind]string{}
	}
	if c.operates[kind] = state; state == "" {
		delete(c.operates, kind)
	}
	for _, o := range slices.Clone(c.objects) {
		if operator := c.fleet.operatorOf(o.body); operator != nil && operator.Kind == kind {
			c.setStateLocked(o, operator)
		}
	}
}

// agenda holds, for each cluster with tasks, the time of its next task.
type agenda struct {
	mu      sync.Mutex
	entries entries       // guarded by mu
	earlier chan struct{} // receives a value when an entry becomes the first
}

type entry struct {
	at      time.Time
	cluster *Cluster
}

// entries implements heap.Interface, ordered by time.
type entries []entry

func (e entries) Len() int           { return len(e) }
func (e entries) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e entries) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *entries) Push(x any)        { *e = append(*e, x.(entry)) }
func (e *entries) Pop() any {
	last := (*e)[len(*e)-1]
	(*e)[len(*e)-1] = entry{}
	*e = (*e)[:len(*e)-1]
	return last
}

// add adds an entry: the cluster has a task at this time.
func (a *agenda) add(c *Cluster, at time.Time) {
	a.mu.Lock()
	heap.Push(&a.entries, entry{at, c})
	first := a.entries[0].at.Equal(at)
	a.mu.Unlock()
	if first {
		select {
		case a.earlier <- struct{}{}:
		default:
		}
	}
}

// popDue removes and returns a cluster that has a due task. If no cluster has a due task, popDue returns nil and the
// time until the next task.
func (a *agenda) popDue(now time.Time) (*Cluster, time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.entries) == 0 {
		a.entries = nil
		return nil, time.Hour
	}
	if wait := a.entries[0].at.Sub(now); wait > 0 {
		return nil, wait
	}
	return heap.Pop(&a.entries).(entry).cluster, 0
}

// runTasksUntilClosed runs the due tasks of all clusters until the fleet is closed.
func (f *Fleet) runTasksUntilClosed() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for f.life.Err() == nil {
		c, wait := f.agenda.popDue(f.now())
		if c != nil {
			c.runDueTasks()
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-f.agenda.earlier:
		case <-f.life.Done():
		}
	}
}

// dropIdleLogsUntilClosed drops the log of every cluster that had no change for the time logRetention.
func (f *Fleet) dropIdleLogsUntilClosed() {
	ticker := time.NewTicker(logRetention / 10)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-f.life.Done():
			return
		}
		for _, c := range f.clusters {
			c.mu.Lock()
			if len(c.log) > 0 && f.now().Sub(c.logged) > logRetention {
				c.log, c.forgotten = nil, c.version
			}
			c.mu.Unlock()
		}
	}
}
