package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

// Copied is a component version that was brought to a place.
type Copied struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Digest of the manifest, as it is at its new place.
	Digest string `json:"digest"`
	// Was is the digest at the old place, if the manifest had to be changed on the way; empty if it is the same, byte for byte.
	Was string `json:"was,omitempty"`
	// Signatures that came along.
	Signatures int `json:"signatures"`
	// New tells whether it was not there before.
	New bool `json:"new"`
	// Images that came along.
	Images []CopiedImage `json:"images,omitempty"`
	// OldNames are what objects will still ask for by the names of before, because nobody puts others in their place.
	OldNames []OldName `json:"oldNames,omitempty"`
}

// CopyOptions says what is copied.
type CopyOptions struct {
	// Images come along, and the descriptor names them at their new place then.
	Images bool
	// Replace what is there with other content.
	Replace bool
	// Progress is told of what takes its time; nil for nobody.
	Progress func(string)
}

// Copy brings component versions from one place to another, with their signatures, byte for byte but for two things. A version that states no
// repository context gets the registry it comes to as one, because without any the reference would find nothing to install. And in a registry the
// descriptor names images that came along where they are now; a signature in the descriptor does not cover that. One that cosign has signed stays as
// it is, or is refused if it has no repository context. A version that is there with other content is replaced only if asked to.
func Copy(ctx context.Context, from, to *Place, o CopyOptions) (done []Copied, err error) {
	all, err := from.Select(ctx)
	if err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	for _, a := range all {
		var c Copied
		if c, err = from.copy(ctx, to, a, o); err != nil {
			break
		}
		done = append(done, c)
	}
	if to.archive != nil && len(done) > 0 {
		err = errors.Join(err, to.archive.Save())
	}
	return done, err
}

// copy brings one component version to another place. In an archive it is not saved yet.
func (p *Place) copy(ctx context.Context, to *Place, a *ocm.Artifact, o CopyOptions) (Copied, error) {
	c := Copied{Name: a.Name(), Version: a.Version()}
	signatures, err := p.registry.Signatures(ctx, a)
	if err != nil {
		return c, err
	}
	c.Signatures = len(signatures)
	if o.Images {
		if c.Images, err = (courier{p, to, o.Replace, o.Progress}).bring(ctx, a); err != nil {
			return c, err
		}
	}
	made, err := to.adapt(a, c)
	if err != nil {
		return c, err
	}
	if c.Digest = made.Digest(); made != a {
		c.Was = a.Digest()
	}
	c.New, err = to.add(ctx, o.Replace, append([]*ocm.Artifact{made}, signatures...))
	if err == nil && to.archive == nil && len(c.Images) > 0 {
		var unknown error
		if c.OldNames, unknown = to.oldNames(ctx, c); unknown != nil { // the copy is whole
			o.Progress(fmt.Sprintf("%s:%s is copied, but it is not known by which names it asks for its images: %v", c.Name, c.Version, unknown))
		}
	}
	return c, err
}

// adapt returns a component version as it has to be in the place: an archive takes it as it is.
func (p *Place) adapt(a *ocm.Artifact, c Copied) (*ocm.Artifact, error) {
	if p.archive != nil {
		return a, nil
	}
	made, err := p.registry.WithRepositoryContext(a)
	switch {
	case err != nil:
		return nil, err
	case c.Signatures == 0:
		return rename(made, c.Images)
	case made != a:
		return nil, fmt.Errorf("copying %s:%s: its descriptor has no repository context, and needs one in a registry; but then its cosign signature is worth nothing: "+
			"push it before it is signed, or build it with --registry", a.Name(), a.Version())
	}
	return a, nil
}

// write brings artifacts to the place; the first is what the others sign.
func (p *Place) write(ctx context.Context, replace bool, artifacts []*ocm.Artifact) (isNew bool, err error) {
	if isNew, err = p.add(ctx, replace, artifacts); err != nil || p.archive == nil {
		return isNew, err
	}
	return isNew, p.archive.Save()
}

// add brings artifacts to the place; the first is what the others sign. They come last, so that there is never a signature of nothing. An archive
// has to be saved yet.
func (p *Place) add(ctx context.Context, replace bool, artifacts []*ocm.Artifact) (isNew bool, err error) {
	if p.archive != nil {
		isNew = !slices.ContainsFunc(p.archive.entries, func(e entry) bool { return e.Digest == artifacts[0].Digest() && e.Tag == artifacts[0].Tag })
		if err := p.archive.Add(replace, artifacts[0]); err != nil {
			return false, err
		}
		return isNew, p.archive.Add(true, artifacts[1:]...)
	}
	for i, a := range artifacts {
		written, err := p.registry.Write(ctx, a, replace || i > 0)
		if err != nil {
			return false, err
		}
		isNew = isNew || i == 0 && written
	}
	return isNew, nil
}

// Write brings a component version to the place, as Copy does.
func (p *Place) Write(ctx context.Context, replace bool, a *ocm.Artifact) (isNew bool, err error) {
	return p.write(ctx, replace, []*ocm.Artifact{a})
}
