package handover

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
)

// remoteRef is the Kyma in a runtime, which has the record of the owner.
var remoteRef = apply.Ref{Group: v1beta2.GroupVersion.Group, Version: v1beta2.GroupVersion.Version,
	Kind: v1beta2.KindKyma, Namespace: v1beta2.RuntimeNamespace, Name: v1beta2.RuntimeKymaName}

// VerifyOwner decides whether a Kyma may use a cluster, by the same rules as the manager. The parameter uid is the UID
// of the Kyma, or "" if the Kyma does not exist yet. If the parameter mayTake is true, the Kyma may take the cluster
// over. If the Kyma is refused, the error is a *[ownership.Refusal].
func VerifyOwner(ctx context.Context, controlPlane *connection.Cluster, name string, uid types.UID,
	r *connection.Cluster, mayTake bool) (ownership.Found, error) {
	here, err := controlPlane.UID(ctx)
	if err != nil {
		return ownership.Found{}, controlPlane.Explain(err, "identifying this control plane")
	}
	objects, err := r.AnyKind()
	if err != nil {
		return ownership.Found{}, err
	}
	remote, err := objects.Get(ctx, remoteRef)
	switch loop.Reason(err) {
	case apply.ObjectNotFound, apply.NamespaceNotFound, apply.KindUnknown:
		remote, err = nil, nil
	}
	if err != nil {
		return ownership.Found{}, r.Explain(err, "reading whose the cluster is")
	}
	var annotations map[string]string
	if remote != nil {
		annotations = remote.GetAnnotations()
	}
	found, err := ownership.Verify(ctx, objects, annotations, ownership.Claim{Take: mayTake, Server: r.Config.Host,
		Me: ownership.Owner{ControlPlane: here, Kyma: controlPlane.Namespace + "/" + name, UID: uid}})
	if _, refused := errors.AsType[*ownership.Refusal](err); refused || err == nil {
		return found, err
	}
	return found, r.Explain(err, "reading whose the cluster is")
}

// isOtherOwnerReason reports whether a reason means that the cluster does not belong to the Kyma, so that klm must not
// change the cluster.
func isOtherOwnerReason(reason string) bool {
	switch reason {
	case v1beta2.ReasonRuntimeTaken, v1beta2.ReasonRuntimeReplaced, v1beta2.ReasonRuntimeIsControlPlane:
		return true
	}
	return false
}
