package recovery

import (
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// action is the action of klm restore for one object of the backup. The first row of this table that applies decides:
//
//	1  the object is a Manifest, and its Kyma is neither in the cluster nor in the backup   leftOut
//	2  the object does not exist                                                            create
//	3  it exists with another content, or only one of the two is being deleted              keep; replace with --replace
//	4  it exists, and its status is missing                                                 addStatus
//	5  it exists                                                                            unchanged
//
// If the deletion of the object is left to the user, row 3 does not compare whether the two are being deleted.
type action int

const (
	create action = iota
	addStatus
	unchanged
	keep
	replace
	leftOut
	actionCount
)

// actionTexts are the texts about each action: before and after it is done.
var actionTexts = [actionCount][2]string{
	create: {"to be created", "created"}, addStatus: {"to get their status", "got their status"},
	unchanged: {"unchanged", "unchanged"}, keep: {"kept: other content", "kept: other content"},
	replace: {"to be replaced", "replaced"}, leftOut: {"left out: no Kyma", "left out: no Kyma"},
}

// decide returns the action for an object of the backup. The parameter live is the object in the cluster, or nil if the
// object does not exist there.
func decide(d document, live *unstructured.Unstructured, hasKyma, isReplacing bool) action {
	switch {
	case d.GetKind() == v1beta2.KindManifest && !hasKyma:
		return leftOut
	case live == nil:
		return create
	case d.GetKind() == "Namespace":
		return unchanged
	case !isEqualExceptStatus(d.Unstructured, live),
		(live.GetDeletionTimestamp() != nil) != d.deleting && !d.isDeletionLeft:
		if isReplacing && live.GetDeletionTimestamp() == nil {
			return replace
		}
		return keep
	case len(statusOf(d.Unstructured)) > 0 && len(statusOf(live)) == 0:
		return addStatus
	}
	return unchanged
}

// isEqualExceptStatus reports whether an object of the backup and an object of the cluster are equal, without their
// status.
func isEqualExceptStatus(saved, live *unstructured.Unstructured) bool {
	without := func(o *unstructured.Unstructured) map[string]any {
		out := restorableCopy(o).Object
		delete(out, "status")
		return out
	}
	return equality.Semantic.DeepEqual(without(saved), without(live))
}

// statusOf returns the status of an object, or nil.
func statusOf(o *unstructured.Unstructured) map[string]any {
	status, _ := o.Object["status"].(map[string]any)
	return status
}

// survey contains the names of the objects that exist in the cluster, so that a restore into a new control plane does
// not read objects that do not exist.
type survey struct {
	cluster   *connection.Cluster
	existing  map[string]bool // by nameOf
	namespace string          // the namespace whose objects are in existing
	kymas     map[string]bool // the names of the Kymas in the cluster and in the backup
	// isSameControlPlane is true if the cluster is known to be the control plane that was backed up.
	isSameControlPlane bool
	deletionLeft       map[string]bool // the names of the Kymas whose deletion is left to the user
}

// leaveDeletionElsewhere leaves it to the user to delete a Kyma again, and the Manifests that were deleted with the
// Kyma, unless the cluster is the control plane that was backed up. In another control plane, the Kyma does not own its
// runtime until a person takes the runtime over, and a deletion of a Kyma that does not own its runtime ends at once:
// it leaves all modules in the runtime, and their inventories are lost. A Kyma that is being deleted cannot take a
// runtime over. The caller passes the objects in the order of the backup, in which Kymas are before Manifests.
func (s *survey) leaveDeletionElsewhere(d document) document {
	switch {
	case s.isSameControlPlane || !d.deleting:
	case d.GetKind() == v1beta2.KindKyma:
		s.deletionLeft[d.GetName()], d.isDeletionLeft = true, true
	case d.GetKind() == v1beta2.KindManifest:
		d.isDeletionLeft = s.deletionLeft[d.GetLabels()[v1beta2.LabelKymaName]]
	}
	return d
}

// listNames lists the names of all objects of a namespace.
func listNames(ctx context.Context, c *connection.Cluster, namespace string) (*survey, error) {
	s := &survey{cluster: c, existing: map[string]bool{}, namespace: namespace, kymas: map[string]bool{},
		deletionLeft: map[string]bool{}}
	for _, kind := range kinds {
		if kind.Kind == "Namespace" || kind.Group == v1beta2.GroupVersion.Group && !c.ServesKind(kind.Kind) {
			continue
		}
		for next := ""; ; {
			page := &metav1.PartialObjectMetadataList{}
			page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
			if err := c.List(ctx, page, client.InNamespace(namespace), client.Limit(pageSize),
				client.Continue(next)); err != nil {
				return nil, c.Explain(err, "listing "+kind.Kind+"s")
			}
			for i := range page.Items {
				s.existing[kind.Kind+" "+namespace+"/"+page.Items[i].Name] = true
				if kind.Kind == v1beta2.KindKyma {
					s.kymas[page.Items[i].Name] = true
				}
			}
			if next = page.GetContinue(); next == "" {
				break
			}
		}
	}
	return s, nil
}

// readLive returns the object in the cluster with the kind and name of o, or nil if this object does not exist.
func (s *survey) readLive(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if o.GetKind() != "Namespace" && !s.existing[nameOf(o)] {
		return nil, nil
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(o.GroupVersionKind())
	err := s.cluster.Get(ctx, client.ObjectKeyFromObject(o), live)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, s.cluster.Explain(err, "reading "+nameOf(o))
}

// decide reads the present version of a saved object from the cluster, and returns what has to be done with the saved
// object, and the present version.
func (s *survey) decide(ctx context.Context, d document, isReplacing bool) (action, *unstructured.Unstructured, error) {
	live, err := s.readLive(ctx, d.Unstructured)
	if err != nil {
		return 0, nil, err
	}
	return decide(d, live, s.kymas[d.GetLabels()[v1beta2.LabelKymaName]], isReplacing), live, nil
}

// plan has the number of objects for each action of a restore.
type plan struct {
	counts   map[string][actionCount]int // by kind
	examples [actionCount][]string       // the first names
	refused  []string                    // objects that the API server refuses to replace, with the reason
	deleting int                         // number of objects that are deleted again
	// deletionLeft are the names of the Kymas that were being deleted and that the user has to delete again.
	deletionLeft []string
}

// examplesLimit is the number of names that a plan shows for each action.
const examplesLimit = 10

// add counts an object.
func (p *plan) add(d document, a action) {
	if p.counts == nil {
		p.counts = map[string][actionCount]int{}
	}
	n := p.counts[d.GetKind()]
	n[a]++
	p.counts[d.GetKind()] = n
	if len(p.examples[a]) < examplesLimit {
		p.examples[a] = append(p.examples[a], nameOf(d.Unstructured))
	}
	if d.deleting && !d.isDeletionLeft && (a == create || a == replace) {
		p.deleting++
	}
	if d.isDeletionLeft && d.GetKind() == v1beta2.KindKyma {
		p.deletionLeft = append(p.deletionLeft, d.GetName())
	}
}

// addRefused records that the API server refuses to replace an object.
func (p *plan) addRefused(d document, why error) {
	if len(p.refused) < examplesLimit {
		p.refused = append(p.refused, nameOf(d.Unstructured)+": "+why.Error())
	}
}

// total returns the number of objects for which a restore has the given action.
func (p *plan) total(a action) int {
	n := 0
	for _, counts := range p.counts {
		n += counts[a]
	}
	return n
}

// newPlan compares the backup with the cluster. newPlan checks that the objects are in one namespace, that the cluster
// serves their kinds, and whether the cluster is the control plane that was backed up.
func newPlan(ctx context.Context, c *connection.Cluster, f io.ReadSeeker, namespace string,
	isReplacing bool) (*plan, *survey, error) {
	s, err := listNames(ctx, c, namespace)
	if err != nil {
		return nil, nil, err
	}
	uid, err := uidIfReadable(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	s.isSameControlPlane = uid != "" && uid == controlPlaneOf(f)
	p := &plan{}
	err = visitObjects(f, func(d document) error {
		switch {
		case d.GetKind() == "Namespace":
		case d.GetNamespace() != namespace:
			return console.Fail(console.ExitFailed, "%s is not in namespace %s, as the rest of the backup is: restore "+
				"it from a file of its own", nameOf(d.Unstructured), namespace)
		case d.GroupVersionKind().Group == v1beta2.GroupVersion.Group && !c.ServesKind(d.GetKind()):
			return console.Fail(console.ExitCluster, "%s has no CRD of kind %s: install the CRDs first "+
				"(klm install --set=replicas=0)", c, d.GetKind())
		}
		if d.GetKind() == v1beta2.KindKyma {
			s.kymas[d.GetName()] = true
		}
		d = s.leaveDeletionElsewhere(d)
		a, _, err := s.decide(ctx, d, isReplacing)
		p.add(d, a)
		return err
	})
	return p, s, err
}

// namespaceOf returns the namespace of the objects in a backup.
func namespaceOf(f io.ReadSeeker) (string, error) {
	namespace := ""
	err := visitObjects(f, func(d document) error {
		if namespace = d.GetNamespace(); d.GetKind() == "Namespace" {
			namespace = d.GetName()
		}
		return io.EOF // the first object is sufficient
	})
	if errors.Is(err, io.EOF) {
		return namespace, nil
	}
	if err == nil {
		err = fmt.Errorf("the backup has no objects")
	}
	return "", err
}
