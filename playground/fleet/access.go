package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// SendInProcess sends a request as the admin of the cluster, with the given User-Agent, and returns the status and the
// body of the answer. The request bypasses the network, credentials, faults and counters. uri is a path and a query.
// SendInProcess does not support watches and discovery.
func (c *Cluster) SendInProcess(method, uri, contentType, agent string, body []byte) (
	code int, answer []byte, err error) {
	r, err := c.handleInProcess(c.fleet.life, method, uri, contentType, agent, body)
	if r == nil {
		return 0, nil, err
	}
	if r.object != nil {
		return r.code, c.appendObject(nil, r.object), nil
	}
	return r.code, r.raw, nil
}

// Get returns an object, or nil if there is none. The namespace is empty for a cluster-scoped object.
func (c *Cluster) Get(resource schema.GroupVersionResource, namespace, name string) (
	*unstructured.Unstructured, error) {
	k := c.kindOf(kindKey{resource.Group, resource.Version, resource.Resource})
	if k == nil {
		return nil, nil
	}
	r := c.get(c.fleet.life, k, place{namespace: namespace, name: name})
	switch {
	case r.code == http.StatusNotFound:
		return nil, nil
	case r.object == nil:
		return nil, &Refusal{Code: r.code, Body: r.raw}
	}
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(c.appendObject(nil, r.object), &u.Object); err != nil {
		return nil, fmt.Errorf("reading %s %s of %s: %w", resource.Resource, name, c.Name(), err)
	}
	return u, nil
}

// FindMetadata returns the metadata that identifies an object, or nil if there is none.
func (c *Cluster) FindMetadata(resource schema.GroupResource, namespace, name string) (
	*metav1.PartialObjectMetadata, error) {
	c.mu.Lock()
	o := c.findLocked(c.fleet.resources.idOf(resource), namespace, name)
	c.mu.Unlock()
	if o == nil {
		return nil, nil
	}
	m := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(c.appendMetadata(nil, o), m); err != nil {
		return nil, fmt.Errorf("reading the metadata of %s %s of %s: %w", resource, name, c.Name(), err)
	}
	return m, nil
}

// Names returns the names of the objects of a resource, in order. The form is "namespace/name", or "name" if the
// resource is cluster-scoped.
func (c *Cluster) Names(resource schema.GroupResource) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, o := range c.rangeLocked(c.fleet.resources.idOf(resource), "") {
		all = append(all, continueKey(o))
	}
	return all
}

// Objects returns the number of objects in the cluster.
func (c *Cluster) Objects() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.objects)
}

// Version returns the resourceVersion of the last change. If two calls of Version return the same value, nothing was
// written between these calls.
func (c *Cluster) Version() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(c.version)
}

// Apply applies an object by server-side apply with force, as a user of the cluster would.
func (c *Cluster) Apply(o *unstructured.Unstructured, fieldManager string) error {
	k := c.servedKindOf(&body{apiVersion: o.GetAPIVersion(), kind: o.GetKind()})
	if k == nil {
		return fmt.Errorf("applying %s %s to %s: the cluster does not serve its kind",
			o.GetKind(), o.GetName(), c.Name())
	}
	data, err := json.Marshal(o.Object)
	if err == nil {
		_, err = c.handleInProcess(c.fleet.life, http.MethodPatch,
			k.path(o.GetNamespace(), o.GetName(), "")+"?force=true&fieldManager="+fieldManager,
			string(types.ApplyPatchType), fieldManager, data)
	}
	if err != nil {
		return fmt.Errorf("applying %s %s to %s: %w", o.GetKind(), o.GetName(), c.Name(), err)
	}
	return nil
}

// Edit reads an object, calls edit to change it, and writes it, as a user would with kubectl edit. If the write
// conflicts with another write, Edit reads the object and edits it again. The resource's name may have a subresource
// such as "status": "kymas/status".
func (c *Cluster) Edit(resource schema.GroupVersionResource, namespace, name string,
	edit func(*unstructured.Unstructured)) error {
	plural, subresource, _ := strings.Cut(resource.Resource, "/")
	resource.Resource = plural
	for {
		err := c.editOnce(resource, subresource, namespace, name, edit)
		switch {
		case isConflict(err):
			continue
		case err != nil:
			return fmt.Errorf("editing %s %s of %s: %w", plural, name, c.Name(), err)
		}
		return nil
	}
}

func (c *Cluster) editOnce(resource schema.GroupVersionResource, subresource, namespace, name string,
	edit func(*unstructured.Unstructured)) error {
	u, err := c.Get(resource, namespace, name)
	if err != nil {
		return err
	}
	if u == nil {
		return fmt.Errorf("there is no such object")
	}
	edit(u)
	data, err := json.Marshal(u.Object)
	if err != nil {
		return fmt.Errorf("encoding it: %w", err)
	}
	k := c.kindOf(kindKey{resource.Group, resource.Version, resource.Resource})
	_, err = c.handleInProcess(c.fleet.life, http.MethodPut, k.path(namespace, name, subresource), jsonType,
		"kubectl-edit",
		data)
	return err
}

// Delete deletes an object with propagation policy Background. Delete returns no error if the object does not exist.
func (c *Cluster) Delete(resource schema.GroupVersionResource, namespace, name string) error {
	k := c.kindOf(kindKey{resource.Group, resource.Version, resource.Resource})
	if k == nil {
		return nil
	}
	_, err := c.handleInProcess(c.fleet.life, http.MethodDelete, k.path(namespace, name, ""), jsonType, "kubectl",
		inBackground)
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("deleting %s %s of %s: %w", resource.Resource, name, c.Name(), err)
	}
	return nil
}
