package v1alpha1

import (
	"cmp"
	"encoding/json"
	"regexp"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// The functions in this file copy only fields that have the same meaning in both versions. toStored… converts to
// v1beta2, and fromStored… converts back. toStored… sets the defaults that the API server would set, so that a default
// is not mistaken for an edit by a user.

func toStoredKyma(k *Kyma) *v1beta2.Kyma {
	out := &v1beta2.Kyma{}
	out.Spec.Channel = cmp.Or(k.Spec.Channel, v1beta2.DefaultChannel)
	named := map[string]bool{}
	for _, m := range k.Spec.Modules {
		named[m.Name] = true
	}
	for _, c := range k.Spec.Components {
		if !named[c.Name] {
			out.Spec.Modules = append(out.Spec.Modules, v1beta2.Module{
				Name: c.Name, CustomResourcePolicy: v1beta2.CreateAndDelete, Managed: new(true),
			})
		}
	}
	for _, m := range k.Spec.Modules {
		out.Spec.Modules = append(out.Spec.Modules, v1beta2.Module{
			Name: m.Name, Channel: m.Channel, Controller: m.Controller,
			CustomResourcePolicy: cmp.Or(m.CustomResourcePolicy, v1beta2.CreateAndDelete), Managed: new(true),
		})
	}
	k.Status.KymaStatus.DeepCopyInto(&out.Status)
	return out
}

func fromStoredKyma(k *v1beta2.Kyma) *Kyma {
	out := &Kyma{}
	out.Spec.Channel = k.Spec.Channel
	for _, m := range k.Spec.Modules {
		out.Spec.Modules = append(out.Spec.Modules, Module{
			Name: m.Name, Channel: m.Channel, Controller: m.Controller, CustomResourcePolicy: m.CustomResourcePolicy,
		})
	}
	k.Status.DeepCopyInto(&out.Status.KymaStatus)
	for _, m := range k.Status.Modules {
		if m.Manifest == nil {
			continue // early clients expect a Manifest for each entry
		}
		info := ModuleInfo{
			Name: m.Manifest.Metadata.Name, Namespace: m.Manifest.Metadata.Namespace,
			ModuleName: m.Name, State: m.State,
			TemplateInfo: TemplateInfo{Channel: m.Channel},
		}
		if m.Template != nil {
			info.TemplateInfo.Generation = m.Template.Metadata.Generation
		}
		if m.Resource != nil {
			info.TemplateInfo.GVK = GroupVersionKind(
				schema.FromAPIVersionAndKind(m.Resource.APIVersion, m.Resource.Kind))
		}
		out.Status.ModuleInfos = append(out.Status.ModuleInfos, info)
	}
	return out
}

func toStoredManifest(m *Manifest) *v1beta2.Manifest {
	from := m.DeepCopy()
	remote, target := true, v1beta2.Target("")
	if from.Spec.Remote != nil && !*from.Spec.Remote {
		remote, target = false, v1beta2.TargetControlPlane
	}
	return &v1beta2.Manifest{
		Spec: v1beta2.ManifestSpec{
			Remote: remote, Target: target, Resource: from.Spec.Resource,
			CRDs: from.Spec.CRDs, Config: from.Spec.Config, Installs: from.Spec.Installs,
		},
		Status: from.Status,
	}
}

func fromStoredManifest(m *v1beta2.Manifest) *Manifest {
	from := m.DeepCopy()
	return &Manifest{
		Spec: ManifestSpec{
			Remote:   new(from.Spec.Target != v1beta2.TargetControlPlane), // Remote of v1beta2 has no effect
			Resource: from.Spec.Resource,
			CRDs:     from.Spec.CRDs, Config: from.Spec.Config, Installs: from.Sources(),
		},
		Status: from.Status,
	}
}

func toStoredModuleTemplate(t *ModuleTemplate) *v1beta2.ModuleTemplate {
	from := t.DeepCopy()
	return &v1beta2.ModuleTemplate{Spec: v1beta2.ModuleTemplateSpec{
		Channel: from.Spec.Channel, Data: from.Spec.Data, Descriptor: from.Spec.Descriptor,
		ModuleName: validModuleNameFromLabel(t), Version: firstValidVersion(t),
		Target: storedTarget(from.Spec.Target),
	}}
}

// storedTarget returns the target that a template has in v1beta2; the default there is remote.
func storedTarget(t v1beta2.Target) v1beta2.Target {
	if t == v1beta2.TargetControlPlane {
		return t
	}
	return ""
}

func lossyFromStoredModuleTemplate(t *v1beta2.ModuleTemplate) *ModuleTemplate {
	from := t.DeepCopy()
	return &ModuleTemplate{Spec: ModuleTemplateSpec{
		Channel: from.Spec.Channel, Data: from.Spec.Data, Descriptor: from.Spec.Descriptor,
		Target: cmp.Or(from.Spec.Target, v1beta2.TargetRemote),
	}}
}

// annotationModuleVersion is an annotation that had the version of the module; in v1beta2, spec.version replaces it.
const annotationModuleVersion = "operator.kyma-project.io/module-version"

// The following patterns match the values that spec.moduleName and spec.version of v1beta2 accept. The conversion to
// v1beta2 does not copy a value that does not match its pattern.
var (
	validName    = regexp.MustCompile(`^[a-z]{3,}(-[a-z]{3,})*$`)
	validVersion = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[a-zA-Z-][0-9a-zA-Z-]*)?$`)
)

// validModuleNameFromLabel returns the name of the module from its label, or "" if v1beta2 does not accept this name.
func validModuleNameFromLabel(t *ModuleTemplate) string {
	if name := t.Labels[v1beta2.LabelModuleName]; len(name) <= 64 && validName.MatchString(name) {
		return name
	}
	return ""
}

// firstValidVersion returns the version of the module from its annotation, or else from its descriptor.
// firstValidVersion returns "" if v1beta2 accepts neither.
func firstValidVersion(t *ModuleTemplate) string {
	var descriptor struct {
		Component struct {
			Version string `json:"version"`
		} `json:"component"`
	}
	if len(t.Spec.Descriptor.Raw) > 0 {
		// The descriptor may be any JSON object, with or without a version.
		_ = json.Unmarshal(t.Spec.Descriptor.Raw, &descriptor)
	}
	for _, version := range []string{t.Annotations[annotationModuleVersion], descriptor.Component.Version} {
		if len(version) <= 32 && validVersion.MatchString(version) {
			return version
		}
	}
	return ""
}
