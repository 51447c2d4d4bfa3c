// Package reclaim completes the inventory of a Manifest with the objects that the module has in its runtime. An
// inventory has to be completed if it was lost, or if the control plane was restored from a backup that is older than
// the last changes in the runtime.
//
// # Use
//
//	if manifest.IsRestored() && !manifest.IsInventoryReadFromRuntime() {
//	    found, unlisted, err := reclaim.RestoreInventoryAndVersion(ctx, cluster, manifest) // and save the status
//	}
//
// # How it works
//
// After a restore of the control plane, the controller of Kymas marks Manifests with
// [v1beta2.AnnotationRuntimeVersion]. Every object of a module in a runtime has a label, an annotation with the name of
// its Manifest, and our field manager. The package finds the objects of a Manifest by the label, by the annotation with
// the name of the Manifest, and by our field manager. When the package has found the objects, it sets two values in the
// status of the Manifest: the version in [v1beta2.AnnotationRuntimeVersion] becomes the installed version, and
// [v1beta2.DigestUnknown] becomes the applied digest. So the next version that is installed is applied completely, and
// objects that it does not contain are deleted.
//
// If the runtime was taken over from a Kyma with another name, its objects have the annotation with the name of the
// former Manifest, which is in [ownership.AnnotationFormerInstallation]. The package finds these objects, too.
//
// # What it does not do
//
// The package changes nothing in the runtime. The package does not find objects whose label or annotation somebody has
// removed.
package reclaim

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/inventory"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
)

// RestoreInventoryAndVersion lists the objects of a Manifest in the runtime, and sets the inventory and the version in
// the status of the Manifest. RestoreInventoryAndVersion returns the number of objects that it found in the runtime.
// For the costs of the list, see apply.ListOwned.
//
// If the credential may not list a kind of which the recorded inventory has objects, the restored inventory would
// probably lack objects. In this case RestoreInventoryAndVersion returns an error with reason RuntimeForbidden, and
// does not change the status. Other kinds that the credential may not list are in the result unlisted, and are no
// error: a credential may lack the right to list kinds that no module has.
func RestoreInventoryAndVersion(ctx context.Context, cluster *apply.Cluster, m *v1beta2.Manifest) (
	found int, unlisted []schema.GroupKind, _ error) {
	owned, refused, err := listOwned(ctx, cluster, m)
	var missing []*apply.Error
	for _, r := range refused {
		if slices.ContainsFunc(m.Status.Synced, func(o v1beta2.Resource) bool {
			return o.Group == r.Kind.Group && o.Kind == r.Kind.Kind
		}) {
			missing = append(missing, r.Err)
			continue
		}
		unlisted = append(unlisted, r.Kind)
	}
	if err == nil {
		err = apply.JoinFailures(missing)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("listing the objects of module %s in the runtime: %w", m.ModuleName(), err)
	}
	s := &m.Status
	s.Synced = inventory.Of(appendNotFoundAsPending(owned, inventory.Refs(s.Synced)))
	s.AppliedDigest, s.AppliedGeneration = v1beta2.DigestUnknown, 0
	if v := m.Annotations[v1beta2.AnnotationRuntimeVersion]; v != v1beta2.VersionUnknown && len(s.Synced) > 0 {
		s.Version = v
	}
	return len(owned), unlisted, nil
}

// listOwned lists the objects of a Manifest in the runtime, and those of the Manifest of the former owner of the
// runtime. On the control plane, the former Manifest still works.
func listOwned(ctx context.Context, cluster *apply.Cluster, m *v1beta2.Manifest) (
	owned []apply.Ref, refused []apply.RefusedKind, err error) {
	list := func(installation string) ([]apply.Ref, []apply.RefusedKind, error) {
		return cluster.ListOwned(ctx, installation, v1beta2.FieldOwnerApplier,
			v1beta2.LabelManagedBy+"="+v1beta2.ManagedByKyma)
	}
	owned, refused, err = list(m.Namespace + "/" + m.Name)
	former := m.Annotations[ownership.AnnotationFormerInstallation]
	if err != nil || former == "" || m.InstalledOrSpecTarget() == v1beta2.TargetControlPlane {
		return owned, refused, err
	}
	ofFormer, refusedNow, err := list(former)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range refusedNow {
		if !slices.ContainsFunc(refused, func(known apply.RefusedKind) bool { return known.Kind == r.Kind }) {
			refused = append(refused, r)
		}
	}
	return append(owned, inventory.NotIn(ofFormer, owned)...), refused, nil
}

// appendNotFoundAsPending returns the objects that were found, followed by the recorded objects that were not found.
// Objects that were not found get the inventory flag pending, because it is not known whether the module has created
// them.
func appendNotFoundAsPending(found, recorded []apply.Ref) []apply.Ref {
	missing := inventory.NotIn(recorded, found)
	for i := range missing {
		missing[i].Pending = true
	}
	return append(found, missing...)
}

// Note returns the text of the event that the inventory of a Manifest was restored.
func Note(m *v1beta2.Manifest, found int) string {
	return fmt.Sprintf("%d objects in the runtime belong to the module; %d are in its inventory now", found,
		len(m.Status.Synced))
}

// UnlistedNote returns the text of the event that the credential may not list some kinds.
func UnlistedNote(kinds []schema.GroupKind) string {
	const most = 10 // few, because users read the text
	var names []string
	for _, kind := range kinds[:min(most, len(kinds))] {
		names = append(names, kind.String())
	}
	others := ""
	if more := len(kinds) - most; more > 0 {
		others = fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("the credential in the access Secret may not list %s%s: if the module has objects of these "+
		"kinds in the runtime, they are missing in its inventory", strings.Join(names, ", "), others)
}

// Message returns the text for the status of a Manifest after the objects that were found in the runtime were added to
// its inventory.
func Message(m *v1beta2.Manifest) string {
	version := m.Annotations[v1beta2.AnnotationRuntimeVersion]
	switch {
	case len(m.Status.Synced) == 0 && m.Annotations[ownership.AnnotationFormerInstallation] != "":
		return "the runtime was taken over from another Kyma, and no object of the module was found there"
	case len(m.Status.Synced) == 0:
		return "this control plane was restored, and the runtime has no object of the module"
	case version == v1beta2.VersionUnknown:
		return "this control plane was restored without the inventory of the module, and the runtime has the module"
	}
	return "this control plane was restored from an older state, and the runtime has version " + version +
		": nothing is changed until the Kyma requests a version"
}
