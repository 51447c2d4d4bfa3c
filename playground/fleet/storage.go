package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// The following constants are resource versions of the objects that a handler reads and writes. versionBefore is the
// version of the object before the request, versionAfter the version that the request writes, and versionOther any
// other version that the request names. The resource versions are unusual numbers, so that Package fleet can find them
// in error messages and replace them.
const (
	versionBefore = 7_000_000_000_001
	versionAfter  = 7_000_000_000_002
	versionOther  = 7_000_000_000_003
)

// transaction is the storage that the handlers of the API server use during one request. transaction holds at most one
// object.
type transaction struct {
	resource schema.GroupResource // the resource of the object; there are no others
	object   []byte               // JSON in the storage version; nil for none
	written  bool                 // object has changed since the beginning
	version  uint64
}

type transactionKey struct{}

// storageOptions makes every registry of the API server use oneObject as its storage.
type storageOptions struct{}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (storageOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (
	generic.RESTOptions, error) {
	config := &storagebackend.ConfigForResource{GroupResource: resource}
	config.Codec = unstructured.UnstructuredJSONScheme // for custom resources: their handler wraps the codec
	if example != nil {
		if codec, version, err := builtinStorageCodec(resource, example); err == nil {
			config.Codec, config.EncodeVersioner = codec, version
		}
	}
	return generic.RESTOptions{
		StorageConfig: config, EnableGarbageCollection: true, DeleteCollectionWorkers: 1,
		ResourcePrefix: resource.Group + "/" + resource.Resource,
		Decorator: func(config *storagebackend.ConfigForResource, _ string, _ func(runtime.Object) (string, error),
			_, _ func() runtime.Object,
			_ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers) (storage.Interface,
			factory.DestroyFunc, error) {
			return &oneObject{codec: config.Codec, resource: config.GroupResource}, func() {}, nil
		},
	}, nil
}

// builtinStorageCodec returns a codec for JSON in the version that the API server prefers for the kind.
func builtinStorageCodec(resource schema.GroupResource, example runtime.Object) (
	runtime.Codec, runtime.GroupVersioner, error) {
	for _, known := range []struct {
		scheme *runtime.Scheme
		codecs serializer.CodecFactory
	}{
		{legacyscheme.Scheme, legacyscheme.Codecs},
		{apiextensionsapiserver.Scheme, apiextensionsapiserver.Codecs},
		{aggregatorscheme.Scheme, aggregatorscheme.Codecs},
	} {
		kinds, _, err := known.scheme.ObjectKinds(example)
		if err != nil {
			continue
		}
		info, ok := runtime.SerializerInfoForMediaType(known.codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
		if !ok {
			break
		}
		for _, version := range known.scheme.PrioritizedVersionsForGroup(resource.Group) {
			if known.scheme.Recognizes(version.WithKind(kinds[0].Kind)) {
				internal := schema.GroupVersion{Group: resource.Group, Version: runtime.APIVersionInternal}
				return known.codecs.CodecForVersions(info.Serializer, known.codecs.UniversalDeserializer(),
					version, internal), version, nil
			}
		}
	}
	return nil, nil, fmt.Errorf("no scheme has %s", resource)
}

// oneObject implements storage.Interface over the transaction in the context.
type oneObject struct {
	codec    runtime.Codec
	resource schema.GroupResource
}

var errOneObject = errors.New("this storage has one object and cannot do that")

// transactionOf returns the transaction in ctx if the transaction is for the resource that the storage s serves. If ctx
// contains no such transaction, transactionOf returns an empty one.
func (s *oneObject) transactionOf(ctx context.Context) *transaction {
	if t, ok := ctx.Value(transactionKey{}).(*transaction); ok && t.resource == s.resource {
		return t
	}
	return &transaction{}
}

// decode decodes the object of a transaction.
func (s *oneObject) decode(t *transaction, into runtime.Object) error {
	if _, _, err := s.codec.Decode(t.object, nil, into); err != nil {
		return fmt.Errorf("reading what is stored: %w", err)
	}
	return s.Versioner().UpdateObject(into, t.version)
}

// encode returns the stored form of an object.
func (s *oneObject) encode(obj runtime.Object) ([]byte, error) {
	if err := s.Versioner().PrepareObjectForStorage(obj); err != nil {
		return nil, err
	}
	return runtime.Encode(s.codec, obj)
}

// Versioner implements storage.Interface.
func (*oneObject) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

// Create implements storage.Interface.
func (s *oneObject) Create(ctx context.Context, key string, obj, out runtime.Object, _ uint64) error {
	t := s.transactionOf(ctx)
	if t.object != nil {
		return storage.NewKeyExistsError(key, 0)
	}
	if version, err := s.Versioner().ObjectResourceVersion(obj); err == nil && version != 0 {
		return storage.ErrResourceVersionSetOnCreate
	}
	data, err := s.encode(obj)
	if err != nil {
		return err
	}
	t.object, t.written, t.version = data, true, versionAfter
	if out == nil {
		return nil
	}
	return s.decode(t, out)
}

// Delete implements storage.Interface.
func (s *oneObject) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	t := s.transactionOf(ctx)
	if err := s.Get(ctx, key, storage.GetOptions{}, out); err != nil {
		return err
	}
	if preconditions != nil {
		if err := preconditions.Check(key, out); err != nil {
			return err
		}
	}
	if err := validate(ctx, out); err != nil {
		return err
	}
	t.object, t.written = nil, true
	return nil
}

// Get implements storage.Interface.
func (s *oneObject) Get(ctx context.Context, key string, opts storage.GetOptions, into runtime.Object) error {
	t := s.transactionOf(ctx)
	if t.object == nil {
		if opts.IgnoreNotFound {
			return runtime.SetZeroValue(into)
		}
		return storage.NewKeyNotFoundError(key, 0)
	}
	return s.decode(t, into)
}

// GuaranteedUpdate implements storage.Interface. GuaranteedUpdate writes nothing if the object does not change.
func (s *oneObject) GuaranteedUpdate(ctx context.Context, key string, into runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object) error {
	t := s.transactionOf(ctx)
	if err := s.Get(ctx, key, storage.GetOptions{IgnoreNotFound: ignoreNotFound}, into); err != nil {
		return err
	}
	before := []byte(nil)
	if t.object != nil {
		var err error
		if before, err = s.encode(into.DeepCopyObject()); err != nil {
			return err
		}
	}
	if err := preconditions.Check(key, into); err != nil {
		return err
	}
	updated, _, err := update(into, storage.ResponseMeta{ResourceVersion: t.version})
	if err != nil {
		return err
	}
	data, err := s.encode(updated)
	if err != nil {
		return err
	}
	if before == nil || !bytes.Equal(before, data) {
		t.object, t.written, t.version = data, true, versionAfter
	}
	return s.decode(t, into)
}

// GetList implements storage.Interface. GetList always fails, because package fleet serves lists itself.
func (*oneObject) GetList(context.Context, string, storage.ListOptions, runtime.Object) error {
	return errOneObject
}

// Watch implements storage.Interface. Watch always fails, because package fleet serves watches itself.
func (*oneObject) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return nil, errOneObject
}

// Stats implements storage.Interface.
func (*oneObject) Stats(context.Context) (storage.Stats, error) { return storage.Stats{}, nil }

// ReadinessCheck implements storage.Interface.
func (*oneObject) ReadinessCheck() error { return nil }

// RequestWatchProgress implements storage.Interface.
func (*oneObject) RequestWatchProgress(context.Context) error { return nil }

// GetCurrentResourceVersion implements storage.Interface.
func (*oneObject) GetCurrentResourceVersion(context.Context) (uint64, error) {
	return versionAfter, nil
}

// EnableResourceSizeEstimation implements storage.Interface.
func (*oneObject) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

// CompactRevision implements storage.Interface.
func (*oneObject) CompactRevision() int64 { return 0 }
