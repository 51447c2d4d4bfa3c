package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// ObjectMetadata is the metadata of a listed object.
type ObjectMetadata struct {
	Ref
	UID string
	// ResourceVersion is the version of the object as it was listed, see [Cluster.DeleteVersion].
	ResourceVersion string
	// DeletionTime is the time when the deletion of the object began. DeletionTime is zero if the object is not being
	// deleted.
	DeletionTime time.Time
	Finalizers   []string
	Labels       map[string]string
	// Owners are the owner references of the object.
	Owners []metav1.OwnerReference

	annotations map[string]string // those in keptAnnotations
	appliers    []string          // the field managers that have applied fields
}

// annotationRevision is the annotation with the revision of a ReplicaSet.
const annotationRevision = "deployment.kubernetes.io/revision"

// keptAnnotations are the annotations that ObjectMetadata contains. Other annotations of an object, such as the last
// configuration that kubectl has applied, may have up to 256 KiB, and nobody reads them in a list.
var keptAnnotations = []string{AnnotationOwnedBy, AnnotationCoOwners, AnnotationAdopted, AnnotationPrune,
	annotationRevision}

// bytes returns the memory that the metadata needs, in bytes. The names of group, version and kind are not counted,
// because all objects of a list share them.
func (m *ObjectMetadata) bytes() int {
	n := objectBytes + len(m.Namespace) + len(m.Name) + len(m.UID) + len(m.ResourceVersion)
	for _, list := range [][]string{m.Finalizers, m.appliers} {
		for _, text := range list {
			n += stringBytes + len(text)
		}
	}
	for _, texts := range []map[string]string{m.Labels, m.annotations} {
		for key, value := range texts {
			n += 2*stringBytes + len(key) + len(value)
		}
	}
	for i := range m.Owners {
		o := &m.Owners[i]
		n += ownerBytes + len(o.APIVersion) + len(o.Kind) + len(o.Name) + len(o.UID)
	}
	return n
}

// Get reads one object. The Ref of a namespaced kind must have a namespace. Get returns an error with reason
// ObjectNotFound if the object does not exist, and with reason KindUnknown if the cluster does not serve the kind.
func (c *Cluster) Get(ctx context.Context, ref Ref) (*unstructured.Unstructured, error) {
	if err := validatePathSegments(ref); err != nil {
		return nil, err
	}
	res, err := c.resourceOf(ctx, ref.GVK())
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	r := request{method: http.MethodGet, path: res.urlPath(ref.GVK().GroupVersion(), ref.Namespace, ref.Name),
		operation: "reading", ref: ref}
	err = c.sendWithinConcurrencyLimit(ctx, &r, func(_ int, body []byte) (err error) {
		u.Object, err = decodeObject(body, ref)
		return err
	})
	if err != nil {
		c.forgetIfUnknown(ref.GVK(), err)
		return nil, err
	}
	return u, nil
}

// Created identifies an object that was created.
type Created struct {
	Ref
	UID             types.UID
	Generation      int64
	ResourceVersion string
}

// Create creates an object that does not exist yet, and returns its identity. The created object belongs to no
// installation, and so is not deleted with one. The parameter fieldManager names the field manager that owns the fields
// of the created object. A namespaced object without a namespace is created in "default". Create returns an error with
// reason ObjectExists if an object with this name exists, and with reason KindUnknown if the cluster does not serve the
// kind yet.
//
// Create reads the object first and then applies it without force. Create does not use POST, because an API server
// delays a POST of a custom resource by two seconds when its CRD is new, but does not delay a PATCH. If another client
// creates the object between the read and the apply, the fields of the other client are not overwritten.
func (c *Cluster) Create(ctx context.Context, obj *unstructured.Unstructured, fieldManager string) (Created, error) {
	return c.create(ctx, obj, fieldManager, true)
}

// CreateWithoutRead is like Create, but does not read the object first; it is for an object that most probably does not
// exist. If the object exists, the API server rejects the request.
func (c *Cluster) CreateWithoutRead(ctx context.Context, obj *unstructured.Unstructured, fieldManager string) (
	Created, error) {
	return c.create(ctx, obj, fieldManager, false)
}

func (c *Cluster) create(ctx context.Context, obj *unstructured.Unstructured, fieldManager string,
	readFirst bool) (made Created, err error) {
	gvk := obj.GroupVersionKind()
	ref := Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind,
		Namespace: obj.GetNamespace(), Name: obj.GetName()}
	made.Ref = ref
	if err := validatePathSegments(ref); err != nil {
		return made, err
	}
	res, err := c.resourceOf(ctx, gvk)
	if err != nil {
		return made, err
	}
	switch {
	case !res.namespaced && ref.Namespace != "":
		ref.Namespace = ""
		obj = obj.DeepCopy()
		obj.SetNamespace("")
	case res.namespaced && ref.Namespace == "":
		ref.Namespace = "default"
	}
	made.Ref = ref
	path := res.urlPath(gvk.GroupVersion(), ref.Namespace, ref.Name)
	if readFirst {
		r := request{method: http.MethodGet, path: path, accept: metadataType, operation: "reading", ref: ref}
		switch err := c.sendWithinConcurrencyLimit(ctx, &r, nil); {
		case err == nil:
			return made, &Error{Operation: "creating", Ref: ref, Message: "it already exists", reason: ObjectExists}
		case !reasonIs(err, ObjectNotFound) && !reasonIs(err, NamespaceNotFound):
			c.forgetIfUnknown(gvk, err)
			return made, err
		}
	}
	body, err := encodeForCreate(obj, !readFirst)
	if err != nil {
		return made, fmt.Errorf("encoding %s: %w", ref, err)
	}
	r := request{method: http.MethodPatch, path: path, query: "fieldManager=" + url.QueryEscape(fieldManager),
		accept: metadataType, contentType: applyType, body: body, operation: "creating", ref: ref}
	var answer partialObject
	err = c.sendWithinConcurrencyLimit(ctx, &r, func(_ int, body []byte) error { return answer.decode(body, ref) })
	if reasonIs(err, ObjectConflict) {
		return made, &Error{Operation: "creating", Ref: ref, Message: "another client has just created it",
			reason: ObjectExists}
	}
	c.forgetIfUnknown(gvk, err)
	made.UID, made.Generation = types.UID(answer.Metadata.UID), answer.Metadata.Generation
	made.ResourceVersion = answer.Metadata.ResourceVersion
	return made, err
}

// encodeForCreate encodes an object for a server-side apply request. If the parameter "rejectsExisting" is true, the
// content has resourceVersion 1, which no existing object has, so the request can create an object but cannot change an
// existing object.
func encodeForCreate(obj *unstructured.Unstructured, rejectsExisting bool) (*buffer, error) {
	content := obj.Object
	if rejectsExisting {
		content = maps.Clone(content)
		metadata, _ := content["metadata"].(map[string]any)
		metadata = maps.Clone(metadata)
		metadata["resourceVersion"] = "1"
		content["metadata"] = metadata
	}
	data, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	body := newBuffer()
	body.data = append(body.data, data...)
	return body, nil
}

// List returns the metadata of the objects of a kind in one namespace, in pages of 500. The namespace "" means all
// namespaces. An error with reason KindUnknown means that the cluster does not serve the kind in the API version of
// gvk, so no object of the kind can exist in this API version. If the metadata needs more than 32 MiB of memory, List
// returns an error; the metadata of 30,000 custom resources with five labels each needs less.
func (c *Cluster) List(ctx context.Context, gvk schema.GroupVersionKind, namespace string) ([]ObjectMetadata, error) {
	res, err := c.resourceOf(ctx, gvk)
	if err != nil {
		return nil, err
	}
	var all []ObjectMetadata
	var total listTotal
	for q := (pageQuery{limit: listed}); ; {
		found, err := c.listPage(ctx, gvk.GroupVersion(), res, namespace, &q)
		if err == nil {
			err = total.add(found.bytes, res.plural)
		}
		if err != nil {
			c.forgetIfUnknown(gvk, err)
			return nil, err
		}
		for i := range found.items {
			found.items[i].Kind = gvk.Kind
		}
		all = append(all, found.items...)
		if found.next == "" {
			return all, nil
		}
		if !q.advanceTo(found.next) {
			return nil, endlessList(res.plural)
		}
	}
}

const (
	// listed is the number of objects in one page of a list.
	listed = 500
	// maxPages is the maximum number of pages of a list.
	maxPages = 200
	// maxListBytes is the maximum memory, in bytes, of the metadata that one call keeps of all pages of all its lists.
	// A usual object with five labels, a finalizer and an owner needs about 1 KiB, so a list of 30,000 objects is
	// within the limit. A runtime has at most a few thousand custom resources of a module, and an inventory of 20,000
	// objects does not fit into a Manifest.
	maxListBytes = 32 << 20
	// maxPageBytes and maxPageBytesPerObject limit the memory of the metadata of one page, in bytes: maxPageBytes, and
	// maxPageBytesPerObject for each object that the page may have. An object in etcd has at most 1.5 MiB, so a page
	// with one object is within the limit.
	maxPageBytes          = 2 << 20
	maxPageBytesPerObject = 4 << 10

	// objectBytes is the memory of an ObjectMetadata without its texts and lists, in bytes. objectBytes also limits the
	// number of objects in maxListBytes, to 131,072.
	objectBytes = 256
	// stringBytes is the memory of a string without its text, in bytes.
	stringBytes = 16
	// ownerBytes is the memory of an owner reference without its texts, in bytes.
	ownerBytes = 80
)

// listTotal counts what one call of a function keeps of all pages of all its lists. The zero value is ready to use. A
// listTotal is safe for concurrent use.
type listTotal struct {
	bytes atomic.Int64
	pages atomic.Int64 // the pages after the first page of each list
}

// add adds the memory of a page, in bytes. If the sum exceeds maxListBytes, add returns an error.
func (t *listTotal) add(bytes int, plural string) error {
	if t.bytes.Add(int64(bytes)) > maxListBytes {
		return tooLargeList(plural, maxListBytes)
	}
	return nil
}

// tooLargeList returns the Error of a list whose metadata needs more memory than the limit, in bytes.
func tooLargeList(plural string, limit int) *Error {
	return &Error{Operation: "listing " + clipMessage(plural), reason: ServerFault,
		Message: fmt.Sprintf("names, labels, owners and finalizers of the objects need more than %d MiB of memory",
			limit>>20),
		advice: "delete objects of this kind that are not needed, or remove labels and owner references from them; " +
			"the list is retried"}
}

// pageQuery selects one page of a list: its size and where it begins.
type pageQuery struct {
	limit    int    // maximum number of objects
	selector string // label selector; "" selects all objects
	next     string // the continue token of the previous page; "" for the first page
	// isAnyKind means that the kind comes from discovery. The API server of the kind may be an aggregated one. Such an
	// API server may ignore the limit, so the caller has to limit the objects of a page and their memory.
	isAnyKind bool

	pages int // the number of pages before this one
}

// advanceTo changes the query so that it requests the next page of the list. If the list has too many pages, advanceTo
// returns false.
func (q *pageQuery) advanceTo(next string) (isWithinLimit bool) {
	q.next, q.pages = next, q.pages+1
	return q.pages < maxPages
}

// encode returns the query as part of a URL.
func (q *pageQuery) encode() string {
	text := "limit=" + strconv.Itoa(q.limit)
	if q.selector != "" {
		text += "&labelSelector=" + url.QueryEscape(q.selector)
	}
	if q.next != "" {
		text += "&continue=" + url.QueryEscape(q.next)
	}
	return text
}

// requestPageShrinkingIfTooLarge requests one page of a list. If the objects of the page together are too large for one
// answer, requestPageShrinkingIfTooLarge requests smaller pages, down to one object; the smaller size is also used for
// the following pages.
func (c *Cluster) requestPageShrinkingIfTooLarge(ctx context.Context, r *request, q *pageQuery, read func(int,
	[]byte) error) error {
	for {
		r.query = q.encode()
		err := c.sendWithinConcurrencyLimit(ctx, r, read)
		isTooLarge := errors.Is(err, errTooLarge) || err != nil && c.isTooLarge != nil && c.isTooLarge(err)
		if !isTooLarge || q.limit <= 1 {
			return err
		}
		q.limit = max(q.limit/4, 1)
	}
}

// endlessList returns the Error of a list that has more than maxPages pages.
func endlessList(plural string) *Error {
	return &Error{Operation: "listing " + plural, reason: RuntimeUnreachable,
		Message: fmt.Sprintf("the list does not end after %d pages", maxPages)}
}

// page is one page of a list.
type page struct {
	items     []ObjectMetadata
	bytes     int    // the memory that the items need
	next      string // the continue token of the next page; "" for the last page
	remaining int    // the number of objects after this page; 0 if the API server does not count them
	hasMore   bool   // objects of this page were left out
}

// errNoList is the error for a response that is not a list.
var errNoList = errors.New("it is a list without resourceVersion")

// listPage requests and decodes one page of a list. A page with more objects than were requested is an error, unless
// the API server may be an aggregated one.
func (c *Cluster) listPage(ctx context.Context, version schema.GroupVersion, res resource, namespace string,
	q *pageQuery) (page, error) {
	var list struct {
		Metadata struct {
			ResourceVersion    string `json:"resourceVersion"`
			Continue           string `json:"continue"`
			RemainingItemCount int    `json:"remainingItemCount"`
		} `json:"metadata"`
		Items []struct {
			Kind     string `json:"kind"`
			Metadata struct {
				metadata
				Namespace       string                  `json:"namespace"`
				Labels          map[string]string       `json:"labels"`
				Annotations     map[string]string       `json:"annotations"`
				OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
			} `json:"metadata"`
		} `json:"items"`
	}
	r := request{method: http.MethodGet, path: res.urlPath(version, namespace, ""), accept: listType,
		operation: "listing " + res.plural}
	err := c.requestPageShrinkingIfTooLarge(ctx, &r, q, func(_ int, body []byte) error {
		err := json.Unmarshal(body, &list)
		switch {
		case err != nil:
			return err
		case list.Metadata.ResourceVersion == "":
			return errNoList
		case len(list.Items) > q.limit && !q.isAnyKind:
			return fmt.Errorf("it is a list of %d objects, although at most %d were requested", len(list.Items),
				q.limit)
		}
		return nil
	})
	if err != nil {
		return page{}, err
	}
	maxBytes := maxPageBytes + q.limit*maxPageBytesPerObject
	found := page{next: list.Metadata.Continue, remaining: list.Metadata.RemainingItemCount}
	for i := range list.Items {
		m := &list.Items[i].Metadata
		f := ObjectMetadata{Ref: Ref{Group: version.Group, Version: version.Version, Namespace: m.Namespace,
			Name: m.Name}, UID: m.UID, ResourceVersion: m.ResourceVersion, Finalizers: m.Finalizers, Labels: m.Labels,
			Owners: m.OwnerReferences}
		for _, key := range keptAnnotations {
			if value, ok := m.Annotations[key]; ok {
				if f.annotations == nil {
					f.annotations = map[string]string{}
				}
				f.annotations[key] = value
			}
		}
		if m.DeletionTimestamp != nil {
			f.DeletionTime = m.DeletionTimestamp.Time
		}
		for _, fields := range m.ManagedFields {
			if fields.Operation == "Apply" && fields.Subresource == "" {
				f.appliers = append(f.appliers, fields.Manager)
			}
		}
		found.items = append(found.items, f)
		if found.bytes += f.bytes(); found.bytes > maxBytes && !q.isAnyKind {
			return page{}, tooLargeList(res.plural, maxBytes)
		}
	}
	return found, nil
}

// forgetIfUnknown removes a kind from the cache if err means that the cluster does not serve the kind.
func (c *Cluster) forgetIfUnknown(gvk schema.GroupVersionKind, err error) {
	if reasonIs(err, KindUnknown) {
		c.forgetKind(gvk)
	}
}
