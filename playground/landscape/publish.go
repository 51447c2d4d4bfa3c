package landscape

import (
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

// Module is one version of a module, as its author provides it.
type Module struct {
	// Name and Version identify the version of the module. Component is the name of the module in the registry.
	Name, Version, Component string
	// Manifest is the content to install. DefaultCR is the default custom resource. If DefaultCR is empty, the module
	// has no default custom resource. If Manifest is empty, the module has no manifest.
	Manifest, DefaultCR []byte
	// Resources are further resources of the component descriptor, such as charts.
	Resources []any
	// Tar packs Manifest into a tar layer, as module tools do.
	Tar bool
	// Manager is the workload whose readiness is the readiness of the module.
	Manager *v1beta2.Manager
}

// PushAndCreateModuleTemplate pushes a version to the registry and creates its ModuleTemplate.
func (l *Landscape) PushAndCreateModuleTemplate(ctx context.Context, m Module) error {
	if err := l.Push(ctx, m); err != nil {
		return err
	}
	return l.CreateTemplate(ctx, m)
}

// Push pushes a version to the registry, without a ModuleTemplate.
func (l *Landscape) Push(ctx context.Context, m Module) error {
	archive := ocm.Archive{
		Name: m.Component, Version: m.Version, Provider: "kyma-project.io",
		RawManifest: m.Manifest, ManifestFile: m.Name + ".yaml", Tar: m.Tar, DefaultCR: m.DefaultCR,
	}
	push := func() error {
		_, err := l.Registry.Push(ctx, archive)
		return err
	}
	if len(m.Resources) > 0 {
		push = func() error { return l.pushWithResources(ctx, archive, m.Resources) }
	}
	if err := push(); err != nil {
		return fmt.Errorf("publishing %s %s: %w", m.Name, m.Version, err)
	}
	return nil
}

// pushWithResources pushes a component version with further resources in its descriptor.
func (l *Landscape) pushWithResources(ctx context.Context, archive ocm.Archive, entries []any) error {
	a, err := ocm.Pack(archive)
	if err != nil {
		return err
	}
	a, err = a.WithEditedDescriptor(func(d map[string]any) error {
		c := d["component"].(map[string]any)
		c["resources"] = append(c["resources"].([]any), entries...)
		return nil
	})
	if err != nil {
		return err
	}
	_, err = l.Registry.Write(ctx, a, true)
	return err
}

// CreateTemplate creates the ModuleTemplate of a version that is in the registry already.
func (l *Landscape) CreateTemplate(ctx context.Context, m Module) error {
	t := &v1beta2.ModuleTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Name: v1beta2.ModuleTemplateName(m.Name, m.Version), Namespace: l.Namespace(),
			Labels: map[string]string{v1beta2.LabelModuleName: m.Name},
		},
		Spec: v1beta2.ModuleTemplateSpec{
			ModuleName: m.Name, Version: m.Version, Manager: m.Manager,
			Descriptor: runtime.RawExtension{Raw: []byte("{}")},
		},
	}
	if len(m.DefaultCR) > 0 {
		t.Spec.Data = &unstructured.Unstructured{}
		if err := yaml.Unmarshal(m.DefaultCR, &t.Spec.Data.Object); err != nil {
			return fmt.Errorf("reading the default custom resource of %s %s: %w", m.Name, m.Version, err)
		}
	}
	if err := l.Clients[ControlPlane].Create(ctx, t); err != nil {
		return fmt.Errorf("creating ModuleTemplate %s: %w", t.Name, err)
	}
	return nil
}

// SetChannels sets the channels of a module to versions. SetChannels removes all other channels.
func (l *Landscape) SetChannels(ctx context.Context, module, component string, versions map[string]string) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error { // the manager may be writing the status
		r := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Name: module, Namespace: l.Namespace()}}
		_, err := controllerutil.CreateOrUpdate(ctx, l.Clients[ControlPlane], r, func() error {
			r.Spec.ModuleName, r.Spec.OCMComponentName, r.Spec.Channels = module, component, nil
			for _, channel := range slices.Sorted(maps.Keys(versions)) {
				r.Spec.Channels = append(r.Spec.Channels,
					v1beta2.ChannelVersion{Channel: channel, Version: versions[channel]})
			}
			return nil
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("assigning the channels of %s: %w", module, err)
	}
	return nil
}

// DesiredKymaKey returns the key of the Kyma whose spec is the desired state of a runtime. The result named cluster is
// the name of the cluster that contains this Kyma.
func (l *Landscape) DesiredKymaKey(runtime string) (cluster string, key client.ObjectKey) {
	if l.InCluster {
		return ControlPlane, client.ObjectKey{Namespace: l.Namespace(), Name: runtime}
	}
	return runtime, client.ObjectKey{Namespace: v1beta2.RuntimeNamespace, Name: v1beta2.RuntimeKymaName}
}

// PatchDesiredKymaSpec changes the spec of a runtime's Kyma, as its admin would.
func (l *Landscape) PatchDesiredKymaSpec(ctx context.Context, runtimeName string,
	change func(*v1beta2.KymaSpec)) error {
	cluster, key := l.DesiredKymaKey(runtimeName)
	k := &v1beta2.Kyma{}
	if err := l.Clients[cluster].Get(ctx, key, k); err != nil {
		return fmt.Errorf("reading the Kyma of %s: %w", runtimeName, err)
	}
	before := k.DeepCopy()
	change(&k.Spec)
	if err := l.Clients[cluster].Patch(ctx, k, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("editing the Kyma of %s: %w", runtimeName, err)
	}
	return nil
}
