package storage

import (
	"context"
	"fmt"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

// CopiedImage is an image that a component version names, and that was brought along.
type CopiedImage struct {
	// Resource of the component that it is.
	Resource string `json:"resource"`
	// Image is the reference by which the descriptor named it.
	Image string `json:"image"`
	// At is where it is now. In an archive that is a repository of the archive.
	At string `json:"at"`
	// Digest of its manifest; that of an index covers the images of all platforms.
	Digest string `json:"digest"`
	// New tells whether it was not there before.
	New bool `json:"new"`
}

// courier brings images from one place to another, by digest, and indexes whole.
type courier struct {
	from, to *Place
	replace  bool
	say      func(string)
}

// bring copies all images of a component version.
func (c courier) bring(ctx context.Context, a *ocm.Artifact) ([]CopiedImage, error) {
	images, err := a.Images()
	if err != nil {
		return nil, err
	}
	var done []CopiedImage
	for _, i := range images {
		copied, err := c.image(ctx, i)
		if err != nil {
			return done, fmt.Errorf("copying image %s, resource %s of %s:%s: %w; --images=false leaves images out", i.Reference, i.Resource, a.Name(), a.Version(), err)
		}
		done = append(done, copied)
	}
	return done, nil
}

// image copies one image, unless it is there, and looks whether it is there afterwards.
func (c courier) image(ctx context.Context, i ocm.Image) (CopiedImage, error) {
	l, err := c.from.locate(i)
	if err != nil {
		return CopiedImage{}, err
	}
	found, err := c.from.findImage(ctx, l)
	if err != nil {
		return CopiedImage{}, err
	}
	digest := found.Digest.String()
	target, text, err := c.to.imageAt(l.path, l.tag, digest)
	if err != nil {
		return CopiedImage{}, err
	}
	done := CopiedImage{Resource: i.Resource, Image: i.Reference, At: text, Digest: digest}
	options := c.to.client(ctx, target)
	standing, err := digestAt(target, options)
	if err != nil || standing == digest {
		return done, err
	}
	if standing != "" && !c.replace {
		return done, fmt.Errorf("%s is there with other content (%s, this is %s): give --overwrite if nobody needs that", strings.TrimSuffix(text, "@"+digest), standing, digest)
	}
	c.say(fmt.Sprintf("copying image %s", i.Reference))
	if err := writeImage(target, found, options); err != nil {
		return done, registry.ClassifyError("pushing", target.Name(), err)
	}
	if standing, err = digestAt(target, options); err == nil && standing != digest {
		err = fmt.Errorf("what is at %s after it was written has digest %q, not %s: does somebody else write there?", target, standing, digest)
	}
	done.New = true
	return done, err
}
