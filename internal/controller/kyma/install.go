package kyma

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
)

// install brings the Manifest of every resolved module up to date. A module that cannot be helped holds up neither the others nor what
// comes next: settle tells of it.
func (n *run) install(ctx context.Context) error {
	for i := range n.modules {
		m := &n.modules[i]
		switch {
		case !m.wanted:
		case m.pause() != nil:
			m.err = n.mark(ctx, m, v1beta2.AnnotationPaused, m.pause().Message)
		case !m.wish.IsManaged():
			m.err = n.mark(ctx, m, v1beta2.AnnotationIsUnmanaged, v1beta2.ValueTrue)
		case m.decision.Blocker != nil:
			m.err = n.mark(ctx, m, v1beta2.AnnotationPaused, "")
		default:
			m.err = n.installModule(ctx, m)
		}
	}
	return nil
}

// mark puts an annotation on the Manifest of a module, or with "" takes it off, unless there is no Manifest any more.
func (n *run) mark(ctx context.Context, m *module, key, value string) error {
	if m.manifest == nil || !m.manifest.DeletionTimestamp.IsZero() || m.manifest.Annotations[key] == value {
		return nil
	}
	updated := m.manifest.DeepCopy()
	metav1.SetMetaDataAnnotation(&updated.ObjectMeta, key, value)
	if value == "" {
		delete(updated.Annotations, key)
	}
	if key != v1beta2.AnnotationPaused {
		delete(updated.Annotations, v1beta2.AnnotationPaused)
	}
	return n.patchManifest(ctx, m, updated)
}

// patchManifest sends how the Manifest of a module differs from what it was.
func (n *run) patchManifest(ctx context.Context, m *module, updated *v1beta2.Manifest) error {
	n.echoes.expect(updated) // before it is sent: it may be heard of before the answer
	if err := n.Client.Patch(ctx, updated, client.MergeFrom(m.manifest), client.FieldOwner(v1beta2.FieldOwner)); err != nil {
		n.echoes.forget(client.ObjectKeyFromObject(m.manifest))
		return fmt.Errorf("updating Manifest %s: %w", m.manifest.Name, err)
	}
	m.manifest = updated
	return nil
}

// settle ends with the errors of modules that could not be helped, so that they are tried again, and tells people once of what keeps the
// others. Mandatory modules are nobody's business in the runtime: they are tried again without the Kyma being in Error.
func (n *run) settle(context.Context) error {
	var errs []error
	again := time.Duration(0)
	for i := range n.modules {
		m := &n.modules[i]
		switch {
		case m.err != nil && m.mandatory:
			again = loop.PollDelay(n.now, n.mandatorySince())
		case m.err != nil:
			errs = append(errs, m.err)
		case m.decision.Blocker != nil && !m.mandatory:
			n.tellBlocker(m)
		}
	}
	if err := errors.Join(errs...); err != nil || again == 0 {
		return err
	}
	return loop.RecheckAfter(again)
}

// tellBlocker reports what began to keep a module from its wish.
func (n *run) tellBlocker(m *module) {
	b := m.decision.Blocker
	if m.former != nil && m.former.Reason == b.Code {
		return
	}
	metrics.ModuleBlocked.WithLabelValues(metricName(m), b.Code).Inc()
	kind := corev1.EventTypeWarning
	if b.Code == v1beta2.ReasonWaitingForWindow || m.pause() != nil {
		kind = corev1.EventTypeNormal // somebody wants it so
	}
	n.event(kind, b.Code, b.Message)
}

// metricName is the name of a module in a metric that has no runtime: a name that no module has would be one that anybody may make up.
func metricName(m *module) string {
	if m.decision.Blocker.Code == v1beta2.ReasonModuleNotFound {
		return ""
	}
	return m.wish.Name
}

// event tells people of what has happened to the Kyma.
func (n *run) event(kind, reason, note string) {
	if n.Events != nil {
		n.Events.Eventf(n.kyma, nil, kind, reason, "Reconcile", "%s", note)
	}
}

// installModule creates or patches one Manifest, or does nothing if it says what it should.
func (n *run) installModule(ctx context.Context, m *module) error {
	if m.manifest != nil && (!m.manifest.DeletionTimestamp.IsZero() || m.manifest.IsUnmanaged()) {
		return nil // it has to be gone before the module can be installed anew; its end wakes us
	}
	artefact, err := n.artefactOf(ctx, m)
	if err != nil {
		return fmt.Errorf("module %s, version %s: %w", m.wish.Name, m.decision.Version, err)
	}
	want := desiredManifest(n.kyma, m, artefact)
	n.Shards.SetLabel(want, n.kyma.Name)
	if m.manifest == nil {
		if m.manifest, err = n.readManifest(ctx, want.Name); err != nil || m.manifest != nil && !m.manifest.DeletionTimestamp.IsZero() {
			return err
		}
	}
	if m.manifest == nil || m.manifest.Name != want.Name {
		if source, err := v1beta2.DecodeImageSpec(want.Spec.Install.Source); err == nil && n.Registry.HasCached(source.Ref) {
			want.Annotations[v1beta2.AnnotationSyncOCIRef] = source.Ref // its controller would write it, but for a first installation that says little
		}
		if err := n.Client.Create(ctx, want, client.FieldOwner(v1beta2.FieldOwner)); err != nil {
			return fmt.Errorf("creating Manifest %s: %w", want.Name, err)
		}
		m.manifest = want
		return nil
	}
	updated := withDesired(m.manifest, want)
	if updated == nil {
		return nil
	}
	return n.patchManifest(ctx, m, updated)
}

// artefact is where a module version lies in the registry.
type artefact struct {
	install  v1beta2.InstallInfo // raw-manifest; zero if the module has none
	installs []v1beta2.InstallInfo
	config   *v1beta2.ManifestConfig
	crds     *v1beta2.ManifestConfig
	images   []string
}

// artefactOf finds the artefact of the decided version. What an existing Manifest of the same version already says needs no registry.
func (n *run) artefactOf(ctx context.Context, m *module) (artefact, error) {
	if is := m.manifest; is != nil && is.Spec.Version == m.decision.Version && is.Annotations[v1beta2.AnnotationOCMComponentName] == m.decision.Component {
		if source, err := v1beta2.DecodeImageSpec(is.Spec.Install.Source); err == nil && source.Repo == n.Registry.Base() {
			return artefact{install: is.Spec.Install, config: is.Spec.Config, crds: is.Spec.CRDs, images: is.Spec.LocalizedImages}, nil
		}
	}
	component, err := n.Registry.Component(ctx, m.decision.Component, m.decision.Version)
	if err != nil {
		return artefact{}, err
	}
	return artefactIn(component)
}

// artefactIn reads the resources of a component by their names: raw-manifest is what is installed, config and crds go with it. Early
// modules have no raw-manifest; there every other resource is installed, in the order of names, but for default-cr, which people read.
func artefactIn(c *registry.Component) (artefact, error) {
	a := artefact{images: c.Images}
	for _, name := range slices.Sorted(maps.Keys(c.Layers)) {
		layer := c.Layers[name]
		switch name {
		case v1beta2.LayerConfig:
			a.config = configOf(layer)
		case v1beta2.LayerCRDs:
			a.crds = configOf(layer)
		case v1beta2.LayerDefaultCR:
		default:
			source, err := v1beta2.ImageSpec{Repo: layer.Repo, Name: layer.Component, Ref: layer.Ref, Type: v1beta2.SourceType(layer.Type)}.Encode()
			if err != nil {
				return artefact{}, fmt.Errorf("encoding the source of the Manifest: %w", err)
			}
			a.installs = append(a.installs, v1beta2.InstallInfo{Name: name, Source: source})
		}
	}
	for _, install := range a.installs {
		if install.Name == v1beta2.RawManifest {
			a.install, a.installs = install, nil
		}
	}
	if a.install.Name == "" && len(a.installs) == 0 {
		return artefact{}, &channel.Blocker{Code: v1beta2.ReasonInvalidDescriptor, Message: fmt.Sprintf(
			"the component descriptor of %s:%s has no resource %s: build the module anew", c.Name, c.Version, v1beta2.RawManifest)}
	}
	return a, nil
}

func configOf(l registry.Layer) *v1beta2.ManifestConfig {
	return &v1beta2.ManifestConfig{Repo: l.Repo, Name: l.Component, Ref: l.Ref, Type: registry.OCIRef}
}

// remove deletes the Manifests of modules that nobody wants any more, or that this runtime may not have.
func (n *run) remove(ctx context.Context) error {
	var errs []error
	for i := range n.modules {
		m := &n.modules[i]
		refused := m.decision.Blocker != nil && !m.decision.Blocker.KeepInstalled
		if m.manifest == nil || (m.wanted && !refused) || !m.manifest.DeletionTimestamp.IsZero() {
			continue
		}
		if err := client.IgnoreNotFound(n.Client.Delete(ctx, m.manifest)); err != nil {
			errs = append(errs, fmt.Errorf("deleting Manifest %s: %w", m.manifest.Name, err))
		}
	}
	return errors.Join(errs...)
}
