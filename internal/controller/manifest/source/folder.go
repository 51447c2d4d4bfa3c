package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// findKustomization resolves a source that is a Kustomize directory. The directory of a kustomization is either in an
// OCI layer or in a folder below LocalSources.
func (f *Finder) findKustomization(ctx context.Context, of origin, name string, spec *v1beta2.KustomizeSpec) (
	Artefact, error) {
	if reference, ok := strings.CutPrefix(spec.URL, "oci://"); ok {
		layer, err := parseLayer(reference)
		if err != nil {
			return Artefact{}, err
		}
		layer.Name = name
		artefact, err := f.resolveLayer(ctx, of, layer, nil)
		return artefact.subfolder(spec.Path), err
	}
	if spec.Path == "" {
		return Artefact{}, refusal{fmt.Sprintf(
			"%q is not fetched: package the Kustomize directory as an OCI layer and name it by oci://, or use oci-ref",
			withoutSecrets(spec.URL))}
	}
	if f.opts.LocalSources == "" {
		return Artefact{}, refusal{fmt.Sprintf(
			"the path %q is in the file system of the manager, which sources must not use: "+
				"start the manager with --local-sources, or package the directory as an OCI layer", spec.Path)}
	}
	return f.findFolder(spec.Path)
}

// findFolder reads a folder below LocalSources. findFolder reads all files each time, because only their content shows
// whether the folder has changed.
func (f *Finder) findFolder(path string) (Artefact, error) {
	refuse := func(err error) error {
		return refusal{fmt.Sprintf("the folder %q below --local-sources cannot be read: %s", path, err)}
	}
	top, err := os.OpenRoot(f.opts.LocalSources)
	if err != nil {
		return Artefact{}, refuse(errors.New("the folder of --local-sources does not exist"))
	}
	defer func() { _ = top.Close() }()
	relative := filepath.Clean(strings.TrimPrefix(path, strings.TrimSuffix(f.opts.LocalSources, "/")+"/"))
	folder, err := top.OpenRoot(relative)
	if err != nil {
		return Artefact{}, refuse(errors.New("it does not exist, or it is outside of --local-sources"))
	}
	defer func() { _ = folder.Close() }()
	content, err := render.LoadFolder(folder.FS(), render.Limits{})
	if err != nil {
		return Artefact{}, err
	}
	return Artefact{
		Digest: content.Digest(),
		Load:   func(context.Context) (*render.Artefact, error) { return content, nil },
		Verify: func(context.Context) (trust.Signature, error) {
			return f.opts.Registry.CheckUnsignedSource("local-sources/"+relative, "a folder has no signature")
		},
	}, nil
}

// subfolder returns an artefact with the content of one folder of this artefact.
func (a Artefact) subfolder(folder string) Artefact {
	if folder == "" || a.Load == nil {
		return a
	}
	load := a.Load
	a.Digest = digestOf(a.Digest + " " + folder)
	a.Load = func(ctx context.Context) (*render.Artefact, error) {
		whole, err := load(ctx)
		if err != nil {
			return nil, err
		}
		return whole.Subfolder(folder)
	}
	return a
}
