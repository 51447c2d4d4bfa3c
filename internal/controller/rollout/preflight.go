package rollout

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/rollout/preflight"
)

// preflightOf returns whether the version of a rollout can be installed. When a version has passed this preflight
// check, its digest is written into the status of the rollout. A restarted manager has lost its copy of the version,
// and cannot know whether the registry still has the version. Therefore it checks the version again. Until this check
// has ended, the field IsRunning of the result is true: the rollout continues, but admits no further runtime. A version
// whose content was changed after it had passed is checked again, and holds the rollout until it passes again. The
// ModuleTemplate is checked each time, because a person may withdraw it.
func (p *pass) preflightOf(ctx context.Context, r *v1beta2.ModuleRollout) preflight.Result {
	is := p.requestPreflight(ctx, r.Spec.From, r.Spec.To)
	if r.Status.Content == "" {
		return is
	}
	if is.Digest == "" {
		is.Digest, is.Template = r.Status.Content, r.Status.Template
	}
	v, b := p.installableVersion(ctx, r.Spec.To)
	isChanged := b == nil && r.Status.Template != "" && r.Status.Template != v.Digest()
	switch {
	case isChanged && is.Blocker != nil:
		is.Blocker = is.Blocker.DeepCopy()
		is.Blocker.Message = "the ModuleTemplate or the component was changed during the rollout: " + is.Blocker.Message
	case is.IsRunning:
		is.Blocker = nil
	}
	return is
}

// requestPreflight returns whether the version in the parameter to can be installed as an update of the version in the
// parameter from. If this has to be checked first, requestPreflight requests the check and does not wait for it.
func (p *pass) requestPreflight(ctx context.Context, from, to string) preflight.Result {
	version, b := p.installableVersion(ctx, to)
	if b != nil || p.checker == nil {
		return preflight.Result{Blocker: b}
	}
	move := preflight.Move{To: version}
	former := &v1beta2.ModuleTemplate{}
	key := client.ObjectKey{Namespace: p.Namespace, Name: channel.TemplateName(p.release.Name, from)}
	err := p.Client.Get(ctx, key, former)
	switch {
	case err == nil:
		move.From = version
		move.From.Version, move.From.Template = from, former
	case client.IgnoreNotFound(err) != nil:
		return preflight.Result{IsRunning: true, Blocker: &v1beta2.RolloutBlocker{Code: v1beta2.ReasonPreflightPending,
			Object: "ModuleTemplate " + key.Name, Message: fmt.Sprintf("version %s cannot be read: %v", from, err),
			Remedy: "wait: the rollout goes on by itself"}}
	}
	return p.checker.RequestResult(move)
}

// installableVersion returns a version of the module, or the reason why the version cannot be installed.
func (p *pass) installableVersion(ctx context.Context, version string) (
	v preflight.Version, b *v1beta2.RolloutBlocker) {
	module, t := p.release.Name, &v1beta2.ModuleTemplate{}
	name := channel.TemplateName(module, version)
	if err := p.Client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, t); err != nil {
		return v, &v1beta2.RolloutBlocker{Code: v1beta2.ReasonPreflightFailed, Object: "ModuleTemplate " + name,
			Message: fmt.Sprintf("version %s has no ModuleTemplate: %v", version, err),
			Remedy:  "publish the ModuleTemplate, or move the channel to another version"}
	}
	if is, why := channel.IsWithdrawn(t); is {
		return v, &v1beta2.RolloutBlocker{Code: v1beta2.ReasonVersionWithdrawn, Object: "ModuleTemplate " + name,
			Message: fmt.Sprintf("version %s was withdrawn: %.128s", version, why),
			Remedy:  fmt.Sprintf("move the channel to another version: klm channel set %s CHANNEL VERSION", module)}
	}
	if b := channel.ReplacedContentBlocker(t, module, version); b != nil {
		return v, &v1beta2.RolloutBlocker{Code: v1beta2.ReasonPreflightFailed, Object: b.Object, Message: b.Message}
	}
	return preflight.Version{Module: module, Version: version, Component: p.release.Spec.OCMComponentName,
		Template: t}, nil
}

// newChecker returns the checker of versions, or nil if no version is checked.
func (r *Reconciler) newChecker() *preflight.Checker {
	if r.Check == nil {
		return nil
	}
	return preflight.New(preflight.Options{
		Changed: r.triggerModule,
		Render: func(ctx context.Context, v preflight.Version) (c preflight.Content, err error) {
			m, err := r.Manifest(ctx, v.Component, v.Version, v.Template)
			if err == nil {
				c.Digest, c.CRDs, err = r.Check(ctx, m)
			}
			return c, err
		},
	})
}
