package manifest

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/condition"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/source"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// renderIfNeeded verifies and renders all sources if objects have to be applied or compared.
func (n *run) renderIfNeeded(ctx context.Context) error {
	if n.observed.outage.is || !n.plan.hasWork() {
		return nil
	}
	if err := n.verifyAndRenderSources(ctx); err != nil {
		return n.continueIfSourcesUnreadable(err, !n.plan.applyAll)
	}
	return nil
}

// verifyAndRenderSources verifies and renders all sources.
func (n *run) verifyAndRenderSources(ctx context.Context) error {
	out := &rendered{}
	n.rendered = out // set before verify can fail, because the report includes the signatures of a failed verification
	var err error
	if out.signatures, err = n.plan.verify(ctx); err != nil {
		return err
	}
	var stored *source.Failure
	if f := n.manifest.Status.RenderFailure; f != nil {
		stored = &source.Failure{Digest: f.Digest, Code: f.Reason, Message: f.Message}
	}
	total, own := 0, n.peers().Ownership(ctx, n.manifest, n.Adoption)
	for _, s := range n.plan.sources {
		bundle, err := n.bundles.Bundle(ctx, s, n.plan.options, stored, n.runtime.Capabilities)
		if err != nil {
			return terminalIfPinned(fmt.Errorf("rendering %s: %w", s.Name, err), s.Artefact)
		}
		total += len(bundle.Objects)
		out.sets = append(out.sets, apply.Set{
			Bundle: bundle, Overlay: n.plan.overlay, Namespace: s.Settings.Namespace, Owner: v1beta2.FieldOwnerApplier,
			Ownership: own,
		})
	}
	if total == 0 && len(n.plan.sources) > 0 { // applying no objects would delete all installed objects
		return fmt.Errorf("rendering %s: %w", n.plan.sources[0].Name, source.EmptyError{})
	}
	return nil
}

// verify checks the signature of each artefact by the trust policy, even if the content of the artefact is cached. If
// the check of an artefact fails, the result has the signatures of the artefacts that were checked before it.
func (p plan) verify(ctx context.Context) (signatures []condition.Signature, err error) {
	check := func(name string, a source.Artefact) error {
		s, err := a.Verify(ctx)
		if err != nil {
			return fmt.Errorf("verifying %s: %w", name, err)
		}
		signatures = append(signatures, condition.Signature{Source: name, Signature: s})
		return nil
	}
	if p.config.Verify != nil {
		if err := check("config", p.config); err != nil {
			return signatures, err
		}
	}
	for _, s := range p.sources {
		if err := check(s.Name, s.Artefact); err != nil {
			return signatures, err
		}
	}
	return signatures, nil
}

// terminalIfPinned marks a rendering error as terminal if a digest pins the source to its content. The content of a
// pinned source never changes, so only a change of the Manifest can fix its rendering error.
func terminalIfPinned(err error, a source.Artefact) error {
	_, ofContent := errors.AsType[*render.Error](err)
	_, failed := errors.AsType[source.Failure](err)
	if !ofContent && !failed || !a.Pinned {
		return err
	}
	switch loop.Reason(err) {
	case render.KubernetesTooOld, render.InjectionFailed:
		return err
	}
	return reconcile.TerminalError(err)
}
