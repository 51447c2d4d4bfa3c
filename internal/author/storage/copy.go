package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
)

// Copied is the result of copying one component version.
type Copied struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Digest is the digest of the manifest in the target.
	Digest string `json:"digest"`
	// The field Was contains the digest that the manifest has in the source, if the copy of the manifest differs from
	// it. The field Was is empty if the manifest was copied byte for byte.
	Was string `json:"was,omitempty"`
	// Signatures is the number of copied signatures.
	Signatures int `json:"signatures"`
	// New is true if the component version did not exist in the target.
	New bool `json:"new"`
	// Images are the copied images.
	Images []CopiedImage `json:"images,omitempty"`
	// OldNames are the image references in objects of the module that the manager does not replace at the installation.
	// Images with a reference in OldNames are still pulled from their original location.
	OldNames []OldName `json:"oldNames,omitempty"`
}

// CopyOptions are the options of Copy.
type CopyOptions struct {
	// Images is true if images are copied, too. If images are copied to a registry, the descriptor of the copied
	// version contains their locations there.
	Images bool
	// Replace is true if existing versions with other content are replaced.
	Replace bool
	// Progress is called with a message before a long operation; nil means that there are no messages.
	Progress func(string)
}

// Copy copies component versions with their signatures from one place to another. The copy is identical byte for byte,
// with two exceptions. First, a version without a repository context gets the target registry as its repository
// context, because Kyma's lifecycle-manager needs a repository context. Second, if Copy also copies the images of a
// version into a registry, the copied descriptor contains the new locations of these images. A signature in the
// descriptor does not cover the locations of images, so the signature is still valid for a descriptor with new
// locations.
//
// Signatures that the target already has are kept: another person may have signed the copy.
//
// A version with a cosign signature is copied unchanged. If a version with a cosign signature has no repository
// context, Copy returns an error. An existing version with other content is replaced only if CopyOptions.Replace is
// set.
func Copy(ctx context.Context, from, to *Place, o CopyOptions) (done []Copied, err error) {
	all, err := from.Select(ctx)
	if err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	images := imageCopier{from, to, o.Replace, o.Progress, map[string]CopiedImage{}}
	for _, a := range all {
		var c Copied
		if c, err = from.copyVersion(ctx, to, a, o, images); err != nil {
			break
		}
		done = append(done, c)
	}
	if to.archive != nil && len(done) > 0 {
		err = errors.Join(err, to.archive.Save())
	}
	return done, err
}

// copyVersion copies one component version to another place. If the target is an archive, the caller must save the
// archive after the call.
func (p *Place) copyVersion(ctx context.Context, to *Place, a *ocm.Artifact, o CopyOptions, images imageCopier) (
	Copied, error) {
	c := Copied{Name: a.Name(), Version: a.Version()}
	signatures, err := p.registry.CosignArtifacts(ctx, a)
	if err != nil {
		return c, err
	}
	c.Signatures = len(signatures)
	if o.Images {
		if c.Images, err = images.copyAll(ctx, a); err != nil {
			return c, err
		}
	}
	made, err := to.adaptToTarget(a, c)
	if err != nil {
		return c, err
	}
	if c.Digest = made.Digest(); made != a {
		c.Was = a.Digest()
	}
	c.New, err = to.addArtifacts(ctx, o.Replace, append([]*ocm.Artifact{made}, signatures...))
	if err == nil && to.archive == nil && len(c.Images) > 0 {
		var unknown error
		if c.OldNames, unknown = to.staleImageReferences(ctx, c); unknown != nil { // the copy itself is complete
			o.Progress(fmt.Sprintf("%s:%s is copied, but its image references could not be read: %v",
				c.Name, c.Version, unknown))
		}
	}
	return c, err
}

// adaptToTarget returns a component version with the changes that the target place needs. If the target is an archive,
// adapt changes nothing.
func (p *Place) adaptToTarget(a *ocm.Artifact, c Copied) (*ocm.Artifact, error) {
	if p.archive != nil {
		return a, nil
	}
	made, err := p.registry.WithRepositoryContextIfMissing(a)
	switch {
	case err != nil:
		return nil, err
	case c.Signatures == 0:
		return withRelocatedImages(made, c.Images)
	case made != a:
		return nil, fmt.Errorf(
			"copying %s:%s: its descriptor has no repository context, and needs one in a registry; but then its "+
				"cosign signature is worth nothing: "+
				"push it before it is signed, or build it with --registry", a.Name(), a.Version())
	}
	return a, nil
}

// addArtifactsAndSave adds artifacts to the registry or archive p. If p is an archive, addArtifactsAndSave saves the
// archive. The first item of the parameter "artifacts" is a component version, and the other items are its signatures.
func (p *Place) addArtifactsAndSave(ctx context.Context, replaceFirst bool, artifacts []*ocm.Artifact) (
	isFirstNew bool, err error) {
	if isFirstNew, err = p.addArtifacts(ctx, replaceFirst, artifacts); err != nil || p.archive == nil {
		return isFirstNew, err
	}
	return isFirstNew, p.archive.Save()
}

// addArtifacts adds artifacts to the place p (a registry or an archive). The first artifact is a component version, and
// the other artifacts are its signatures. The signatures are written last, so that a signature never exists without its
// component version. They are added to the signatures that p has already. If p is an archive, the caller must save the
// archive after the call.
func (p *Place) addArtifacts(ctx context.Context, replaceFirst bool, artifacts []*ocm.Artifact) (
	isFirstNew bool, err error) {
	if p.archive != nil {
		isFirstNew = !slices.ContainsFunc(p.archive.entries, func(e entry) bool {
			return e.Digest == artifacts[0].Digest() &&
				e.Tag == artifacts[0].Tag
		})
		if err := p.archive.Add(replaceFirst, artifacts[0]); err != nil {
			return false, err
		}
		for _, a := range artifacts[1:] {
			if a, err = p.withExistingSignatures(ctx, a); err != nil {
				return false, err
			}
			if err := p.archive.Add(true, a); err != nil {
				return false, err
			}
		}
		return isFirstNew, nil
	}
	for i, a := range artifacts {
		if i > 0 {
			if a, err = p.withExistingSignatures(ctx, a); err != nil {
				return false, err
			}
		}
		written, err := p.registry.Write(ctx, a, replaceFirst || i > 0)
		if err != nil {
			return false, err
		}
		isFirstNew = isFirstNew || i == 0 && written
	}
	return isFirstNew, nil
}

// withExistingSignatures adds the signatures that p has under the tag of an artifact with signatures. Otherwise a
// repeated copy would remove the signatures that others have added in the target.
func (p *Place) withExistingSignatures(ctx context.Context, a *ocm.Artifact) (*ocm.Artifact, error) {
	if a.Tag == "" {
		return a, nil // an artifact without a tag replaces nothing
	}
	existing, err := p.registry.Artifact(ctx, a.Repository, a.Tag)
	switch {
	case ocm.IsReason(err, ocm.ArtifactNotFound), ocm.IsReason(err, ocm.InvalidDescriptor):
		return a, nil
	case err != nil:
		return nil, err
	}
	return trust.MergeSignatures(existing, a)
}

// Write writes a component version to the registry or archive p.
func (p *Place) Write(ctx context.Context, replace bool, a *ocm.Artifact) (isNew bool, err error) {
	return p.addArtifactsAndSave(ctx, replace, []*ocm.Artifact{a})
}
