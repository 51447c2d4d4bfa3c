package source

import (
	"context"
	"errors"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/retry"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Failure is the error of a rendering that had to be stopped, or that crashed its process. The same content would fail
// again, so it is rendered again only when a person requests a retry. The status of the Manifest stores the fields of
// the Failure, so that a restart of the manager does not repeat the rendering.
type Failure struct {
	// Digest is the digest of the bundle, see render.Options.ResultingBundleDigest.
	Digest string
	// Code is the reason code of the failure. Possible values are RenderCrashed, RenderMemory and RenderTimeout.
	Code string
	// Message is the text of the error.
	Message string
}

// notAgain is the end of the text of every Failure.
const notAgain = "; this version is not rendered again until a retry is requested"

func (f Failure) Error() string { return f.Message }

// Reason returns Code.
func (f Failure) Reason() string { return f.Code }

// rememberedFailure is a Failure together with the time at which it occurred.
type rememberedFailure struct {
	Failure
	at time.Time
}

// stillApplies reports whether a failure that a Manifest has stored still applies to the bundle with this digest. A
// stored failure says nothing about other Manifests, and ends when another Manifest has rendered the bundle: a timeout,
// for example, may depend on the load of the machine, and only one of the Manifests may have been retried.
func (r *Renderer) stillApplies(ctx context.Context, stored *Failure, digest string) bool {
	if stored == nil || stored.Digest != digest || retry.IsOutdated(ctx, time.Time{}) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.rendered[digest]
}

// renderUnlessKnownToFail renders the bundle with this digest, unless its rendering is known to fail.
func (r *Renderer) renderUnlessKnownToFail(ctx context.Context, digest string, do func() (*render.Bundle, error)) (
	*render.Bundle, error) {
	r.mu.Lock()
	failed, known := r.failures[digest]
	r.mu.Unlock()
	if known && !retry.IsOutdated(ctx, failed.at) {
		return nil, failed.Failure
	}
	bundle, err := do()
	e, ok := errors.AsType[*render.Error](err)
	result := metrics.RenderDone
	if ok {
		result = e.Reason()
	} else if err != nil {
		result = metrics.RenderError
	}
	metrics.Renderings.WithLabelValues(result).Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.failures, digest)
	if !ok || !isFatal(e.Reason()) {
		if err == nil {
			putBounded(&r.rendered, digest, true)
		}
		return bundle, err
	}
	delete(r.rendered, digest)
	f := Failure{Digest: digest, Code: e.Reason(), Message: e.Error() + notAgain}
	putBounded(&r.failures, digest, rememberedFailure{f, time.Now()})
	return nil, f
}

// isFatal reports whether a reason code means that the process of a rendering has ended without a result.
func isFatal(reason string) bool {
	return reason == render.RenderCrashed || reason == render.RenderMemory || reason == render.RenderTimeout
}
