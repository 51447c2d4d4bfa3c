package scenario

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// backedUp are the kinds that backup saves, in the order in which restore creates them.
var backedUp = []string{v1beta2.KindModuleTemplate, v1beta2.KindModuleReleaseMeta, v1beta2.KindKyma,
	v1beta2.KindManifest}

// backup saves the objects of the control plane.
func (s *scenario) backup(c *call) error {
	if err := c.want(1, 1, "backup NAME"); err != nil {
		return err
	}
	var all []unstructured.Unstructured
	for _, kind := range backedUp {
		found, err := s.listed(kind)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	if s.backups == nil {
		s.backups = map[string][]unstructured.Unstructured{}
	}
	s.backups[c.args[0]] = all
	return nil
}

// restore replaces the objects of the control plane by the saved objects.
func (s *scenario) restore(c *call) error {
	if err := c.want(1, 1, "restore [-no-status=RUNTIME…] [-no-manifest=RUNTIME…] NAME"); err != nil {
		return err
	}
	if s.managerRuns() {
		return fmt.Errorf("the manager runs: stop it before the control plane is lost")
	}
	if err := s.lose(); err != nil {
		return err
	}
	cp := s.land.Clients[landscape.ControlPlane]
	for _, saved := range s.backups[c.args[0]] {
		o := saved.DeepCopy()
		runtime := o.GetName()
		if o.GetKind() == v1beta2.KindManifest {
			runtime = o.GetLabels()[v1beta2.LabelKymaName]
			if slices.Contains(c.flags["no-manifest"], runtime) {
				continue
			}
		}
		o.SetUID("")
		o.SetResourceVersion("")
		o.SetGeneration(0)
		o.SetCreationTimestamp(metav1.Time{})
		o.SetOwnerReferences(nil)
		o.SetManagedFields(nil)
		status, hasStatus := o.Object["status"]
		if err := cp.Create(s.ctx, o); err != nil {
			return err
		}
		if !hasStatus || slices.Contains(c.flags["no-status"], runtime) {
			continue
		}
		o.Object["status"] = status
		if err := cp.Status().Update(s.ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// lose deletes the objects of the control plane, without their finalizers.
func (s *scenario) lose() error {
	cp := s.land.Clients[landscape.ControlPlane]
	for _, kind := range slices.Backward(backedUp) {
		found, err := s.listed(kind)
		if err != nil {
			return err
		}
		for i := range found {
			o := &found[i]
			before := o.DeepCopy()
			o.SetFinalizers(nil)
			if err := cp.Patch(s.ctx, o, client.MergeFrom(before)); err != nil {
				return err
			}
			if err := client.IgnoreNotFound(cp.Delete(s.ctx, o)); err != nil {
				return err
			}
		}
	}
	return nil
}

// listed returns the objects of a kind in the control plane.
func (s *scenario) listed(kind string) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1beta2.GroupVersion.WithKind(kind + "List"))
	err := s.land.Clients[landscape.ControlPlane].List(s.ctx, list, client.InNamespace(s.land.Namespace()))
	return list.Items, err
}
