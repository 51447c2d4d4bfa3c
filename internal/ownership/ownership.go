// Package ownership decides which Kyma owns a runtime, so that two Kymas or two control planes never work on the same
// cluster.
//
// # Use
//
//	found, err := ownership.Verify(ctx, cluster, ownership.AnnotationsOrNil(remote), ownership.Claim{Me: me, …})
//	// err is a *Refusal if the runtime belongs to another owner; found.Owner is the record that the runtime has to have
//
// # How it works
//
// A cluster is identified by the UID of its Namespace kube-system. The owner of a runtime is a Kyma in a control plane.
// The record of the owner is the annotation [v1beta2.AnnotationOwner] on the Kyma in the runtime; reconciles read this
// Kyma anyway. The record of the owner also contains the UID that identifies the cluster of the runtime. A Kyma
// that is about to use a runtime makes a claim, and [Decide] compares the claim with the record; its doc comment has
// the table of all cases. The Namespace kube-system of the runtime is read only if the record of the owner is missing
// or contains no UID, or if the runtime is taken over.
//
// # What it does not do
//
// The package writes nothing. The package does not detect that a cluster is a copy of another cluster, because both
// have the same UID of Namespace kube-system.
package ownership

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// Owner is what the record of the owner of a runtime contains.
type Owner struct {
	// ControlPlane identifies the control plane by the UID of its Namespace kube-system.
	ControlPlane string `json:"controlPlane"`
	// Kyma is the namespace/name of the owning Kyma in the control plane.
	Kyma string `json:"kyma"`
	// UID is the UID of the owning Kyma. A Kyma that was deleted and created again under the same name has another UID,
	// but counts as the same owner, except for a claim with Claim.ByUID.
	UID types.UID `json:"uid,omitempty"`
	// Cluster identifies the runtime by the UID of its Namespace kube-system. "" means that it is not known.
	Cluster string `json:"cluster,omitempty"`
}

// AnnotationFormerInstallation on a Manifest is the namespace/name of the Manifest to which the objects of the module
// in the runtime belong, because a Kyma with another name owned the runtime before. The Kyma controller sets the
// annotation together with v1beta2.AnnotationRuntimeVersion, and removes both together.
const AnnotationFormerInstallation = "operator.kyma-project.io/former-installation"

// recordLimit is the maximum size of a record in bytes. The namespace and the name of a Kyma have at most 253
// characters each.
const recordLimit = 1024

// Encode returns the record as the value of the annotation.
func (o Owner) Encode() string {
	text, err := json.Marshal(o)
	if err != nil {
		return "" // impossible: all fields are strings
	}
	return string(text)
}

// Decode returns the record in the value of an annotation.
func Decode(text string) (Owner, error) {
	if len(text) > recordLimit {
		return Owner{}, fmt.Errorf("it has %d bytes, %d are allowed", len(text), recordLimit)
	}
	var o Owner
	// Unknown fields are allowed, because a later version may add fields.
	if err := json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&o); err != nil {
		return Owner{}, errors.New("it is not a JSON object")
	}
	if o.ControlPlane == "" || o.Kyma == "" {
		return Owner{}, errors.New("it names no control plane or no Kyma")
	}
	return o, nil
}

// Seen is what was read in a runtime to find its owner.
type Seen struct {
	// Annotations are the annotations of the Kyma in the runtime. Annotations are nil if the Kyma in the runtime does
	// not exist, or has no annotations: either way, the runtime has no record of an owner.
	Annotations map[string]string
	// Cluster is the UID of the Namespace kube-system in the runtime. "" means that it was not read.
	Cluster string
}

// Claim describes a Kyma that is about to use a runtime.
type Claim struct {
	// Me describes the Kyma that makes the claim as an owner. Me.Cluster is the UID of the Namespace kube-system in the
	// cluster that this Kyma used last, or "" if the cluster is not known.
	Me Owner
	// Server is the address of the API server of the runtime, for messages.
	Server string
	// Take is true if the Kyma may take the runtime over from another owner.
	Take bool
	// ByUID is true for a claim that speaks for exactly one UID of a Kyma, as a tombstone does. A record then is ours
	// if it names this UID, whatever its control plane is, because the UID of a Kyma is unique in all clusters: a
	// control plane that was restored into another cluster recognizes its own records. A record with another UID
	// belongs to a later Kyma of the same name.
	ByUID bool
}

// Found is what a caller has to know after its claim was accepted.
type Found struct {
	// Owner is the record that has to be written to the runtime.
	Owner Owner
	// IsRecorded is true if the runtime already has a record that names this Kyma. If IsRecorded is false, another
	// client may write its own record at the same time, so this record has to be written with a precondition.
	IsRecorded bool
	// TakenFrom describes the former owner, or the former cluster, if the runtime is being taken over. If the runtime
	// is not being taken over, TakenFrom is "".
	TakenFrom string
	// FormerKyma is the namespace/name of the Kyma from which the runtime is being taken over, if it differs from that
	// of this Kyma. The objects of the modules in the runtime belong to Manifests of FormerKyma.
	FormerKyma string
}

// Refusal is the error of a claim that was not accepted. After a Refusal, nothing may be changed in the runtime.
type Refusal struct {
	// Code is the reason code: RuntimeTaken, RuntimeIsControlPlane or RuntimeReplaced.
	Code string
	// Problem names the cluster and its owner.
	Problem string
	// Advice states what to do.
	Advice string
}

func (e *Refusal) Error() string { return e.Problem + ": nothing is changed there; " + e.Advice }

// Reason returns Code.
func (e *Refusal) Reason() string { return e.Code }

// Decide decides whether a claim is accepted. needsCluster is true if the decision needs the UID of the Namespace
// kube-system in the runtime, which was not read. The first row that matches decides about the claim:
//
//	   record of the owner       owned-by    cluster                       result
//	1  of another control plane                                            refused: RuntimeTaken
//	2  of another Kyma                                                     refused: RuntimeTaken
//	3  cannot be read                                                      refused: RuntimeTaken
//	4  none                      other Kyma                                refused: RuntimeTaken
//	5  ours, with a cluster                  not the one of the claim      refused: RuntimeReplaced
//	6  ours, with a cluster                                                accepted, without reading the cluster
//	7                                        the control plane itself      refused: RuntimeIsControlPlane
//	8                                        not the one of the claim      refused: RuntimeReplaced
//	9                                                                      accepted: a new runtime, or one of an earlier
//	                                                                       version, which wrote only owned-by
//
// If Claim.Take is true, rows 1 to 5 and row 8 of the table do not refuse the claim. If Claim.ByUID is true, a record
// with the Kyma and the UID of the claim does not match row 1, and any other record matches row 1 or 2. If this record
// is of another control plane, row 6 does not match, so the cluster is read and compared.
func Decide(seen Seen, c Claim) (found Found, needsCluster bool, err error) {
	owner, other := ownerOf(seen.Annotations, c)
	moved := func(cluster string) bool { return c.Me.Cluster != "" && cluster != "" && cluster != c.Me.Cluster }
	isOurs := owner != nil && other == ""
	switch {
	case other != "" && !c.Take:
		return found, false, &Refusal{v1beta2.ReasonRuntimeTaken, fmt.Sprintf("the cluster %s %s", c.server(), other),
			"write the kubeconfig of another cluster into the access Secret, or take the cluster over: klm runtime " +
				"take " + c.kymaNameWithoutNamespace()}
	case isOurs && moved(owner.Cluster) && !c.Take:
		return found, false, c.clusterReplacedRefusal(owner.Cluster)
	case isOurs && owner.Cluster != "" && !moved(owner.Cluster) && owner.ControlPlane == c.Me.ControlPlane:
		return Found{Owner: c.ownerRecord(owner.Cluster), IsRecorded: true}, false, nil
	case seen.Cluster == "":
		return found, true, nil
	case seen.Cluster == c.Me.ControlPlane:
		return found, false, &Refusal{v1beta2.ReasonRuntimeIsControlPlane, fmt.Sprintf(
			"the access Secret leads to the control plane itself (%s), which is no runtime", c.server()),
			"write the kubeconfig of the runtime into the access Secret"}
	case moved(seen.Cluster) && !c.Take:
		return found, false, c.clusterReplacedRefusal(seen.Cluster)
	}
	found = Found{Owner: c.ownerRecord(seen.Cluster), IsRecorded: isOurs}
	switch {
	case other != "":
		found.TakenFrom = "it belonged" + strings.TrimPrefix(other, "belongs")
		found.FormerKyma = formerKyma(owner, seen.Annotations, c)
	case moved(seen.Cluster):
		found.TakenFrom = "this Kyma had the cluster with UID " + c.Me.Cluster
	}
	return found, false, nil
}

// ownerOf returns the record of the owner in the annotations, or nil if there is none. If the annotations name another
// owner or cannot be read, the result conflict is a text for messages, which describes the owner or the error.
func ownerOf(annotations map[string]string, c Claim) (owner *Owner, conflict string) {
	text, ownedBy := annotations[v1beta2.AnnotationOwner], annotations[v1beta2.AnnotationOwnedBy]
	if text == "" {
		if ownedBy != "" && ownedBy != c.Me.Kyma {
			return nil, "belongs to Kyma " + clip(ownedBy) + " (annotation " + v1beta2.AnnotationOwnedBy + ")"
		}
		return nil, ""
	}
	o, err := Decode(text)
	switch {
	case err != nil:
		return nil, fmt.Sprintf("belongs to an owner that is not known, because the annotation %s on its Kyma "+
			"cannot be read (%v)", v1beta2.AnnotationOwner, err)
	case c.ByUID && o.Kyma == c.Me.Kyma && o.UID == c.Me.UID:
	case o.ControlPlane != c.Me.ControlPlane:
		return &o, fmt.Sprintf("belongs to Kyma %s of another control plane (UID %s)", clip(o.Kyma),
			clip(o.ControlPlane))
	case o.Kyma != c.Me.Kyma:
		return &o, fmt.Sprintf("belongs to Kyma %s of this control plane", clip(o.Kyma))
	case c.ByUID:
		return &o, fmt.Sprintf("belongs to another Kyma %s of this control plane (UID %s)", clip(o.Kyma),
			clip(string(o.UID)))
	}
	return &o, ""
}

// formerKyma returns the namespace/name of the Kyma that the record names, if it is not the Kyma of the claim. If the
// record is missing or cannot be read, formerKyma uses the annotation owned-by, which every version of the manager has
// written.
func formerKyma(owner *Owner, annotations map[string]string, c Claim) string {
	former := annotations[v1beta2.AnnotationOwnedBy]
	if owner != nil {
		former = owner.Kyma
	}
	if former == c.Me.Kyma || len(former) > recordLimit {
		return ""
	}
	return former
}

// clusterReplacedRefusal returns the refusal of a cluster that is not the one that the Kyma used before.
func (c Claim) clusterReplacedRefusal(clusterUID string) error {
	return &Refusal{v1beta2.ReasonRuntimeReplaced, fmt.Sprintf(
		"the access Secret leads to another cluster than before (%s with UID %s, before: UID %s)", c.server(),
		clip(clusterUID), c.Me.Cluster),
		"write the kubeconfig of the former cluster into the access Secret, or take the new one over: klm runtime take " +
			c.kymaNameWithoutNamespace()}
}

// ownerRecord returns the record that this claim needs in a cluster.
func (c Claim) ownerRecord(clusterUID string) Owner {
	o := c.Me
	o.Cluster = clusterUID
	return o
}

// kymaNameWithoutNamespace returns the name of the Kyma without its namespace.
func (c Claim) kymaNameWithoutNamespace() string {
	_, name, _ := strings.Cut(c.Me.Kyma, "/")
	return name
}

func (c Claim) server() string { return clip(c.Server) }

// clip shortens a text that comes from the runtime, for a message.
func clip(text string) string {
	const limit = 160
	return loop.ClipLineTo(text, limit)
}
