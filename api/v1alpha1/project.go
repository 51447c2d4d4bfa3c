package v1alpha1

import (
	"cmp"
	"encoding/json"
	"regexp"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// The functions here copy what means the same in both versions, and nothing else. up goes to v1beta2, down goes back. Where the
// API server would put a default, up puts it too, so that it does not look like an edit.

func upKyma(k *Kyma) *v1beta2.Kyma {
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

func downKyma(k *v1beta2.Kyma) *Kyma {
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
			continue // early clients take an entry for a Manifest
		}
		info := ModuleInfo{
			Name: m.Manifest.Metadata.Name, Namespace: m.Manifest.Metadata.Namespace, ModuleName: m.Name, State: m.State,
			TemplateInfo: TemplateInfo{Channel: m.Channel},
		}
		if m.Template != nil {
			info.TemplateInfo.Generation = m.Template.Metadata.Generation
		}
		if m.Resource != nil {
			info.TemplateInfo.GVK = GroupVersionKind(schema.FromAPIVersionAndKind(m.Resource.APIVersion, m.Resource.Kind))
		}
		out.Status.ModuleInfos = append(out.Status.ModuleInfos, info)
	}
	return out
}

func upManifest(m *Manifest) *v1beta2.Manifest {
	from := m.DeepCopy()
	return &v1beta2.Manifest{
		Spec: v1beta2.ManifestSpec{
			Remote: from.Spec.Remote == nil || *from.Spec.Remote, Resource: from.Spec.Resource,
			CRDs: from.Spec.CRDs, Config: from.Spec.Config, Installs: from.Spec.Installs,
		},
		Status: from.Status,
	}
}

func downManifest(m *v1beta2.Manifest) *Manifest {
	from := m.DeepCopy()
	return &Manifest{
		Spec: ManifestSpec{
			Remote: &from.Spec.Remote, Resource: from.Spec.Resource,
			CRDs: from.Spec.CRDs, Config: from.Spec.Config, Installs: from.Sources(),
		},
		Status: from.Status,
	}
}

func upModuleTemplate(t *ModuleTemplate) *v1beta2.ModuleTemplate {
	from := t.DeepCopy()
	return &v1beta2.ModuleTemplate{Spec: v1beta2.ModuleTemplateSpec{
		Channel: from.Spec.Channel, Data: from.Spec.Data, Descriptor: from.Spec.Descriptor,
		ModuleName: moduleName(t), Version: moduleVersion(t),
	}}
}

func downModuleTemplate(t *v1beta2.ModuleTemplate) *ModuleTemplate {
	from := t.DeepCopy()
	return &ModuleTemplate{Spec: ModuleTemplateSpec{
		Channel: from.Spec.Channel, Data: from.Spec.Data, Descriptor: from.Spec.Descriptor, Target: TargetRemote,
	}}
}

// annotationModuleVersion had the version of the module; today spec.version has.
const annotationModuleVersion = "operator.kyma-project.io/module-version"

// What spec.moduleName and spec.version of v1beta2 accept, see there. Other values stay where they are.
var (
	validName    = regexp.MustCompile(`^[a-z]{3,}(-[a-z]{3,})*$`)
	validVersion = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[a-zA-Z-][0-9a-zA-Z-]*)?$`)
)

// moduleName returns the name of the module by its label, "" if that is no name for v1beta2.
func moduleName(t *ModuleTemplate) string {
	if name := t.Labels[v1beta2.LabelModuleName]; len(name) <= 64 && validName.MatchString(name) {
		return name
	}
	return ""
}

// moduleVersion returns the version of the module by its annotation, else by its descriptor, "" if neither is a version for
// v1beta2.
func moduleVersion(t *ModuleTemplate) string {
	var descriptor struct {
		Component struct {
			Version string `json:"version"`
		} `json:"component"`
	}
	if len(t.Spec.Descriptor.Raw) > 0 {
		_ = json.Unmarshal(t.Spec.Descriptor.Raw, &descriptor) // any object may be there: without a version there is none
	}
	for _, version := range []string{t.Annotations[annotationModuleVersion], descriptor.Component.Version} {
		if len(version) <= 32 && validVersion.MatchString(version) {
			return version
		}
	}
	return ""
}
