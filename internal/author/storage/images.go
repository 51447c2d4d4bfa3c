package storage

import (
	"context"
	"fmt"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

// CopiedImage is the result of copying one image of a component version.
type CopiedImage struct {
	// Resource is the name of the image's resource in the component.
	Resource string `json:"resource"`
	// Image is the original image reference in the descriptor.
	Image string `json:"image"`
	// The field At is the image reference after the copy. If the target is an archive, the reference names a repository
	// in the archive.
	At string `json:"at"`
	// Digest is the digest of the image manifest, or of the index if the image is an index. The digest of an index
	// covers the images of all platforms.
	Digest string `json:"digest"`
	// New is true if the image did not exist in the target.
	New bool `json:"new"`
}

// imageCopier copies images from one place to another by digest. If an image is an index, imageCopier copies all images
// of the index.
type imageCopier struct {
	from, to *Place
	replace  bool
	say      func(string)
	// copied has the images that were copied before, by the name with the tag that they have in the target. All
	// versions of one copy share the field copied.
	copied map[string]CopiedImage
}

// copyAll copies all images of a component version.
func (c imageCopier) copyAll(ctx context.Context, a *ocm.Artifact) ([]CopiedImage, error) {
	images, err := a.Images()
	if err != nil {
		return nil, err
	}
	var done []CopiedImage
	for _, i := range images {
		copied, err := c.copyImage(ctx, i)
		if err != nil {
			return done, fmt.Errorf("copying image %s, resource %s of %s:%s: %w; --images=false leaves images out",
				i.Reference, i.Resource, a.Name(), a.Version(), err)
		}
		done = append(done, copied)
	}
	return done, nil
}

// copyImage copies one image unless the image exists in the target. After the copy, copyImage checks the digest of the
// image in the target.
func (c imageCopier) copyImage(ctx context.Context, i ocm.Image) (CopiedImage, error) {
	l, err := c.from.parseImage(i)
	if err != nil {
		return CopiedImage{}, err
	}
	found, err := c.from.fetchFromArchiveOrSource(ctx, l)
	if err != nil {
		return CopiedImage{}, err
	}
	digest := found.Digest.String()
	target, text, err := c.to.imageAt(l.path, l.tag, digest)
	if err != nil {
		return CopiedImage{}, err
	}
	done := CopiedImage{Resource: i.Resource, Image: i.Reference, At: text, Digest: digest}
	if err := c.refuseSecondImage(done, l, strings.TrimSuffix(text, "@"+digest)); err != nil {
		return done, err
	}
	options := c.to.clientOptions(ctx, target)
	standing, err := digestOrEmpty(target, options)
	if err != nil || standing == digest {
		return done, err
	}
	if standing != "" && !c.replace {
		return done, fmt.Errorf(
			"%s exists with other content (%s, this is %s): use --overwrite if the existing content is not needed",
			strings.TrimSuffix(text, "@"+digest), standing, digest)
	}
	c.say(fmt.Sprintf("copying image %s", i.Reference))
	if err := writeImage(target, found, options); err != nil {
		return done, registry.ClassifyError("pushing", target.Name(), err)
	}
	if standing, err = digestOrEmpty(target, options); err == nil && standing != digest {
		err = fmt.Errorf("the digest of %s after writing is %q, not %s: check whether another client writes to the "+
			"same repository", target, standing, digest)
	}
	done.New = true
	return done, err
}

// refuseSecondImage returns an error if this copy has written another image to the same name: the target has the path
// of an image without its host. An archive has one image for each name, so the first image would be lost. In a
// registry, it can still be found by its digest, but not by the tag.
func (c imageCopier) refuseSecondImage(image CopiedImage, l imageLocation, nameInTarget string) error {
	before, is := c.copied[nameInTarget]
	c.copied[nameInTarget] = image
	byDigest := l.digest != "" && strings.Contains(before.Image, "@")
	if !is || l.tag == "" || before.Digest == image.Digest || c.to.archive == nil && byDigest {
		return nil
	}
	return fmt.Errorf("%s has the name %s in the target, too, with other content (%s, this is %s): give one of the images "+
		"another path or tag", before.Image, nameInTarget, before.Digest, image.Digest)
}
