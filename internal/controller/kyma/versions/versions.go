// Package versions records which content each version of a module has, and finds versions that were replaced in the
// registry.
//
// # Use
//
//	r := versions.New(versions.Options{Client: c, Live: live})
//	template, err := r.RecordContentOrReplacement(ctx, template, component.Content)
//	if b := channel.ReplacedContentBlocker(template, module, version); b != nil { … }
//
// # How it works
//
// The record is stored in annotations of the ModuleTemplate in the control plane, so all replicas and all runtimes
// share the record:
//
//	content-digest   the content with which the version was first installed
//	replaced-by      other content that the registry has now; while it is set, the version is blocked in all runtimes
//	accept-content   content that a person accepts in place of the recorded content
//
// RecordContentOrReplacement compares the content that was found in the registry with the record. The first matching
// row determines the new record:
//
//	1  nothing is recorded                         content-digest = found
//	2  found is the recorded content               replaced-by is removed, if it is set
//	3  found is the content that a person accepts  content-digest = found, replaced-by is removed
//	4  otherwise                                   replaced-by = found
//
// A change of the record is one patch that requires the resource version of the ModuleTemplate that was read. If
// another replica has written the record meanwhile, the API server refuses the patch. After a refused patch, the
// replica compares the found content again, now with the record of the other replica. If two replicas find different
// content at the same time, the content that was recorded first is therefore the valid one. A version of a module is
// installed only after the digest of its content was recorded in the ModuleTemplate.
//
// # What it does not do
//
// The package does not read the registry. If the content of a version was replaced in the registry, package channel
// decides what follows from that, not this package. The package compares only the digests of component descriptors. A
// component descriptor contains only the name and version of a chart in a chart repository, and only the name and tag
// of an image. If the content of a chart or an image is replaced under the same version or tag, the package does not
// notice it.
package versions

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Options are the clients that Records uses. Client and Live are both required.
type Options struct {
	// Client reads from the cache, and its reads include its own writes.
	Client client.Client
	// Live reads from the API server. Live is used only after the API server has refused a patch with a conflict.
	Live client.Reader
}

// Records compares the content of versions with the recorded content. Records is safe for concurrent use.
type Records struct {
	options Options
	mu      sync.Mutex // held while a record is written, so that one of many concurrent reconciles writes it
}

// New returns Records.
func New(o Options) *Records { return &Records{options: o} }

// maxTries is the maximum number of patches that one call of RecordContentOrReplacement sends. A patch of
// RecordContentOrReplacement fails with a conflict only if somebody else has changed the ModuleTemplate after
// RecordContentOrReplacement read it.
const maxTries = 5

// RecordContentOrReplacement compares the content of a version with the record of the version in its ModuleTemplate.
// RecordContentOrReplacement returns the ModuleTemplate with the current record in its annotations. If the record needs
// no change, RecordContentOrReplacement makes no request.
func (r *Records) RecordContentOrReplacement(ctx context.Context, t *v1beta2.ModuleTemplate, foundDigest string) (
	*v1beta2.ModuleTemplate, error) {
	if recordOf(t) == nextRecord(t, foundDigest) {
		return t, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var from client.Reader = r.options.Client
	for try := 1; ; try++ {
		current := &v1beta2.ModuleTemplate{}
		if err := from.Get(ctx, client.ObjectKeyFromObject(t), current); err != nil {
			return nil, fmt.Errorf("reading ModuleTemplate %s: %w", t.Name, err)
		}
		want := nextRecord(current, foundDigest)
		if recordOf(current) == want {
			return current, nil
		}
		updated := current.DeepCopy()
		want.annotate(updated)
		err := r.options.Client.Patch(ctx, updated, client.MergeFromWithOptions(current,
			client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1beta2.FieldOwner))
		if err == nil {
			return updated, nil
		}
		if !apierrors.IsConflict(err) || try == maxTries {
			return nil, fmt.Errorf("recording the content of ModuleTemplate %s: %w", t.Name, err)
		}
		from = r.options.Live
	}
}

// record has those parts of the stored record that this package writes.
type record struct {
	digest, replacedBy string // "" means that there is no such annotation
}

func recordOf(t *v1beta2.ModuleTemplate) record {
	return record{t.Annotations[v1beta2.AnnotationContentDigest], t.Annotations[v1beta2.AnnotationReplacedBy]}
}

// nextRecord applies the table in the package comment: it returns the new record of a version after the content "found"
// was found in the registry.
func nextRecord(t *v1beta2.ModuleTemplate, found string) record {
	is := recordOf(t)
	switch found {
	case is.digest, t.Annotations[v1beta2.AnnotationAcceptContent]:
		return record{digest: found}
	}
	if is.digest == "" {
		return record{digest: found}
	}
	return record{digest: is.digest, replacedBy: found}
}

func (r record) annotate(t *v1beta2.ModuleTemplate) {
	metav1.SetMetaDataAnnotation(&t.ObjectMeta, v1beta2.AnnotationContentDigest, r.digest)
	if r.replacedBy == "" {
		delete(t.Annotations, v1beta2.AnnotationReplacedBy)
	} else {
		metav1.SetMetaDataAnnotation(&t.ObjectMeta, v1beta2.AnnotationReplacedBy, r.replacedBy)
	}
}
