package source

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// resolveLayer resolves a source that is a layer in an OCI registry. A layer that is referenced by a tag is downloaded,
// because its digest is not known without the download.
func (f *Finder) resolveLayer(
	ctx context.Context, of origin, layer registry.Layer, selector *metav1.LabelSelector,
) (Artefact, error) {
	layer.Version = of.version
	artefact := Artefact{Digest: layer.Ref, Pinned: strings.HasPrefix(layer.Ref, "sha256:")}
	artefact.Load = func(ctx context.Context) (*render.Artefact, error) {
		data, _, err := f.fetchLayer(ctx, of, layer, selector)
		if err != nil {
			return nil, err
		}
		return render.Load(data, render.Limits{})
	}
	artefact.Verify = func(ctx context.Context) (signature trust.Signature, err error) {
		err = f.requestWithinAnswerTimeout(ctx, of, layer, selector, func(ctx context.Context,
			from *registry.Registry) error {
			signature, err = from.Verify(ctx, layer)
			return err
		})
		return signature, err
	}
	if !artefact.Pinned {
		var err error
		if _, artefact.Digest, err = f.fetchLayer(ctx, of, layer, selector); err != nil {
			return Artefact{}, err
		}
	}
	return artefact, nil
}

// fetchLayer downloads a layer, and returns its content and its digest.
func (f *Finder) fetchLayer(
	ctx context.Context, of origin, layer registry.Layer, selector *metav1.LabelSelector,
) (data []byte, digest string, err error) {
	layer.Version = of.version
	err = f.requestWithinAnswerTimeout(ctx, of, layer, selector, func(ctx context.Context,
		from *registry.Registry) error {
		data, digest, err = from.Fetch(ctx, layer)
		return err
	})
	return data, digest, err
}

// requestWithinAnswerTimeout sends a request to the registry of a layer, with the credentials in the Secrets that the
// label selector in the parameter "selector" matches. The function in the parameter "do" sends the request. If there is
// no answer within answerTimeout, requestWithinAnswerTimeout returns loop.Later. The registry client completes the
// request in the background, and returns the answer at the next call.
func (f *Finder) requestWithinAnswerTimeout(
	ctx context.Context, of origin, layer registry.Layer, selector *metav1.LabelSelector,
	do func(context.Context, *registry.Registry) error,
) error {
	from := f.opts.Registry
	if selector != nil {
		c, err := f.credentialsOf(ctx, of.namespace, selector)
		if err != nil {
			return err
		}
		from = f.registryWith(c)
	}
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	err := do(bounded, from)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return loop.Later(answerPollDelay, fmt.Sprintf("%s/%s to be pulled", layer.Repo, layer.Component))
	}
	return err
}

// registryWith returns a registry client that uses the credentials in the parameter c. All Manifests with the same
// credentials share one client.
func (f *Finder) registryWith(c credentials) *registry.Registry {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.registries[c.version]; r != nil {
		return r
	}
	r := f.opts.Registry.WithKeychain(c.keychain)
	putBounded(&f.registries, c.version, r)
	return r
}

// parseLayer parses a reference of the form host/path/name@digest or host/path/name:tag.
func parseLayer(reference string) (registry.Layer, error) {
	where, ref, byDigest := strings.Cut(reference, "@")
	if !byDigest {
		if i := strings.LastIndex(reference, ":"); i > strings.LastIndex(reference, "/") {
			where, ref = reference[:i], reference[i+1:]
		}
	}
	slash := strings.LastIndex(where, "/")
	if slash < 0 || ref == "" {
		return registry.Layer{}, refusal{fmt.Sprintf(
			"%q is not a reference to a layer: write oci://host/path/name@sha256:… or oci://host/path/name:tag",
			withoutSecrets(reference))}
	}
	return registry.Layer{Repo: where[:slash], Component: where[slash+1:], Ref: ref, Type: registry.OCIDir}, nil
}
