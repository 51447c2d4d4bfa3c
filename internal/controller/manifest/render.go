package manifest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// renderTimeout bounds the rendering of one artefact.
const renderTimeout = 20 * time.Second

// planOf turns the spec into what has to be rendered. It asks registries and repositories only what a tag or a range stands for.
func (n *run) planOf(ctx context.Context) (plan, error) {
	spec := &n.manifest.Spec
	var p plan
	var options render.Options
	options, p.overlay = newOptions(n.manifest, n.PullSecret)
	of := origin{namespace: n.manifest.Namespace, version: spec.Version}
	var configs []render.Config
	if spec.Config != nil && spec.Config.Type != "" {
		found, layer, err := n.sources.config(ctx, of, spec.Config)
		if err != nil {
			return plan{}, fmt.Errorf("reading spec.config: %w", err)
		}
		configs, p.config = found, layer
	}
	if spec.CRDs != nil && spec.CRDs.Type != "" {
		a, err := n.sources.findLayer(ctx, of, layerOf("crds", spec.CRDs), spec.CRDs.CredSecretSelector)
		if err != nil {
			return plan{}, fmt.Errorf("finding spec.crds: %w", err)
		}
		p.add(part{name: "crds", definitions: true, artefact: a, options: options})
	}
	for _, install := range n.manifest.Sources() {
		config := render.FindConfig(configs, install.Name)
		source, err := sourceOf(n.manifest, install)
		if err != nil {
			return plan{}, reconcile.TerminalError(fmt.Errorf("reading the source of %s in Manifest %s: %w", install.Name, n.manifest.Name, err))
		}
		a, err := n.sources.find(ctx, of, install.Name, source, config.Client)
		if err != nil {
			return plan{}, lasting(fmt.Errorf("finding the source of %s: %w", install.Name, err))
		}
		settings := config.ApplyTo(render.Settings{Release: install.Name})
		p.add(part{name: install.Name, artefact: a, settings: settings, options: options})
	}
	p.digest = p.sum(n.manifest)
	return p, nil
}

// sourceOf decodes a source. The only one of spec.install is in a registry, and may have fields that nobody knows.
func sourceOf(m *v1beta2.Manifest, install v1beta2.InstallInfo) (v1beta2.Source, error) {
	if len(m.Spec.Install.Source.Raw) == 0 && m.Spec.Install.Name == "" {
		return install.Decode()
	}
	image, err := v1beta2.DecodeImageSpec(install.Source)
	return v1beta2.Source{Image: &image}, err
}

// add appends a part, identified by artefact and settings.
func (p *plan) add(one part) {
	one.options.Digest = one.settings.Digest(one.artefact.digest, nil)
	if one.definitions {
		one.options.Digest = "definitions of " + one.options.Digest
	}
	p.parts = append(p.parts, one)
}

// lasting marks errors that only a change of the Manifest can mend.
func lasting(err error) error {
	if reason := loop.Reason(err); reason == v1beta2.ReasonInvalidReference || reason == v1beta2.ReasonRefusedFeature {
		return reconcile.TerminalError(err)
	}
	return err
}

// render makes the bundles, if anything has to be applied or compared. Runtimes that want the same share them.
func (n *run) render(ctx context.Context) error {
	if !n.plan.work() {
		return nil
	}
	if err := n.verify(ctx); err != nil {
		return err
	}
	total := 0
	for _, p := range n.plan.parts {
		bundle, err := n.bundle(ctx, p)
		if err != nil {
			err = fmt.Errorf("rendering %s: %w", p.name, err)
			if reason := loop.Reason(err); p.artefact.fixed && isRenderError(err) && reason != render.KubernetesTooOld && reason != render.RenderTimeout {
				return reconcile.TerminalError(err)
			}
			return err
		}
		total += len(bundle.Objects)
		n.sets = append(n.sets, apply.Set{Bundle: bundle, Overlay: n.plan.overlay, Namespace: p.settings.Namespace, Owner: v1beta2.FieldOwnerApplier})
	}
	if total == 0 && len(n.plan.parts) > 0 { // would remove all that was installed before
		return fmt.Errorf("rendering %s: %w", n.plan.parts[0].name, emptyArtefact{})
	}
	n.rendered = true
	return nil
}

// verify does what the trust policy says about each artefact, whether or not its content is in memory already.
func (n *run) verify(ctx context.Context) error {
	check := func(name string, a artefact) error {
		signature, err := a.verify(ctx)
		if err != nil {
			return fmt.Errorf("verifying %s: %w", name, err)
		}
		n.signatures = append(n.signatures, signed{name, signature})
		return nil
	}
	if n.plan.config.verify != nil {
		if err := check("config", n.plan.config); err != nil {
			return err
		}
	}
	for _, p := range n.plan.parts {
		if err := check(p.name, p.artefact); err != nil {
			return err
		}
	}
	return nil
}

// signed is what was found out about the signature of one artefact.
type signed struct {
	name string
	registry.Signature
}

func isRenderError(err error) bool {
	_, ok := errors.AsType[*render.Error](err)
	return ok
}

// emptyArtefact is the error of an artefact without objects. Taken at its word it would remove everything.
type emptyArtefact struct{}

func (emptyArtefact) Error() string  { return "the artefact holds no object: build the module anew" }
func (emptyArtefact) Reason() string { return v1beta2.ReasonInvalidObject }

// bundle returns the objects of a part, rendered for what the runtime answers to the questions of the artefact.
func (n *run) bundle(ctx context.Context, p part) (*render.Bundle, error) {
	ctx, cancel := context.WithTimeout(ctx, renderTimeout)
	defer cancel()
	load := func() (*render.Artefact, error) {
		a, err := p.artefact.load(ctx)
		if err != nil && p.name == v1beta2.RawManifest {
			err = fmt.Errorf("%s: %w", v1beta2.OperationManifestLayerFailed, err)
		}
		return a, err
	}
	asks, err := n.rendering.asks(p, load)
	if err != nil {
		return nil, err
	}
	settings := p.settings
	if settings.Capabilities, err = n.runtime.Capabilities(ctx, asks); err != nil {
		return nil, err
	}
	options := p.options
	if len(asks) > 0 {
		options.Digest = settings.Digest(options.Digest, asks)
	}
	return n.rendering.bundles.Get(ctx, options.BundleDigest(), func() (*render.Bundle, error) {
		a, err := load()
		if err != nil {
			return nil, err
		}
		if p.definitions {
			return definitionsBundle(ctx, a, settings, options)
		}
		return a.Render(ctx, settings, options)
	})
}

// definitionsBundle makes a bundle of the definitions in a crds layer.
func definitionsBundle(ctx context.Context, a *render.Artefact, settings render.Settings, options render.Options) (*render.Bundle, error) {
	objects, _, err := a.RenderObjects(ctx, settings)
	if err != nil {
		return nil, err
	}
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() != "CustomResourceDefinition" })
	if len(objects) == 0 {
		return nil, emptyArtefact{}
	}
	return render.Build(objects, options)
}

// rendering is what is shared by all Manifests that want the same.
type rendering struct {
	bundles render.Cache

	loads singleflight.Group
	mu    sync.Mutex
	known map[string][]string // guarded by mu; what an artefact asks about the cluster, by its digest with settings
}

// asks returns what an artefact asks about the cluster. To know it, the artefact is loaded, once.
func (r *rendering) asks(p part, load func() (*render.Artefact, error)) ([]string, error) {
	key := p.options.Digest
	r.mu.Lock()
	asks, known := r.known[key]
	r.mu.Unlock()
	if known {
		return asks, nil
	}
	answer, err, _ := r.loads.Do(key, func() (any, error) {
		a, err := load()
		if err != nil {
			return nil, err
		}
		asks := a.CapabilityQueries(p.settings)
		r.mu.Lock()
		defer r.mu.Unlock()
		put(&r.known, key, asks)
		return asks, nil
	})
	if err != nil {
		return nil, err
	}
	return answer.([]string), nil
}
