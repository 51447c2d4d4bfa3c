package manager

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/delivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/agentdelivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard/shardcache"
)

// identityIndex is the name of the index that finds Kymas by the common name in the certificate of their agent.
const identityIndex = "backchannel.identity"

// identities finds the Kyma for which a client certificate was issued.
type identities struct {
	base      context.Context // context of the process, because callers have no context
	namespace string
	reader    client.Reader // reads all Kymas, with identityIndex
	metadata  bool          // the reader contains only the metadata of Kymas
}

// setUpIdentities indexes the Kymas by the name in their certificates. With shards, the cache of the manager contains
// only some Kymas, so setUpIdentities makes a separate cache with the metadata of all Kymas.
func setUpIdentities(ctx context.Context, f foundation) (*identities, error) {
	commonNames := func(o client.Object) []string { return []string{commonName(o)} }
	if err := f.manager.GetFieldIndexer().IndexField(ctx, &v1beta2.Kyma{}, identityIndex, commonNames); err != nil {
		return nil, fmt.Errorf("indexing Kymas by the name in their certificate: %w", err)
	}
	i := &identities{base: ctx, namespace: f.config.Namespace, reader: f.manager.GetClient()}
	if f.keeper == nil {
		return i, nil
	}
	all, err := addCache(f.manager, f.config.Namespace, "the metadata of Kymas",
		cache.Options{DefaultTransform: shardcache.StripToIdentifyingMetadata})
	if err != nil {
		return nil, err
	}
	if err := all.IndexField(ctx, kymaMetadata(), identityIndex, commonNames); err != nil {
		return nil, fmt.Errorf("indexing Kymas by the name in their certificate: %w", err)
	}
	i.reader, i.metadata = all, true
	return i, nil
}

// commonName returns the common name in the certificate of a Kyma's agent.
func commonName(o client.Object) string {
	return delivery.CommonName(&v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), Labels: o.GetLabels()}})
}

// lookup returns the runtime that has an identity. If the Kyma for which a certificate was issued no longer exists,
// lookup refuses the certificate, even if there is another Kyma with the same name. A certificate of cert-manager does
// not contain the UID of the Kyma. Such a certificate is revoked if it was issued before the Kyma was created.
func (i *identities) lookup(id protocol.Identity) (backchannel.Runtime, error) {
	found, err := i.findKymas(id.CommonName)
	switch {
	case err != nil:
		return backchannel.Runtime{}, fmt.Errorf("looking for the Kyma of %q: %w", id.CommonName, err)
	case len(found) == 0:
		return backchannel.Runtime{}, fmt.Errorf("no Kyma has the runtime ID or name %q", id.CommonName)
	case len(found) > 1:
		return backchannel.Runtime{}, fmt.Errorf("%d Kymas have the runtime ID or name %q: give each its own",
			len(found), id.CommonName)
	}
	k := found[0].(client.Object)
	if id.UID != "" && id.UID != string(k.GetUID()) {
		return backchannel.Runtime{}, fmt.Errorf("the certificate was issued for a former Kyma %s, which was deleted",
			k.GetName())
	}
	notBefore := agentdelivery.RevokedBefore(k.GetAnnotations(), time.Now())
	if created := k.GetCreationTimestamp().Time; id.UID == "" && created.After(notBefore) {
		notBefore = created
	}
	return backchannel.Runtime{Kyma: k.GetName(), NotBefore: notBefore}, nil
}

// findKymas returns the Kymas with the given common name.
func (i *identities) findKymas(commonName string) ([]runtime.Object, error) {
	return i.listKymas(client.MatchingFields{identityIndex: commonName})
}

// listKymas returns the Kymas that the reader has and the options select.
func (i *identities) listKymas(opts ...client.ListOption) ([]runtime.Object, error) {
	var list client.ObjectList = &v1beta2.KymaList{}
	if i.metadata {
		list = &metav1.PartialObjectMetadataList{}
		list.GetObjectKind().SetGroupVersionKind(v1beta2.GroupVersion.WithKind(v1beta2.KindKyma + "List"))
	}
	opts = append(opts, client.InNamespace(i.namespace), client.UnsafeDisableDeepCopy)
	if err := i.reader.List(i.base, list, opts...); err != nil {
		return nil, err
	}
	return meta.ExtractList(list)
}
