package main

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// push pushes the images to a registry. The first image gets the reference in the parameter "firstReference". The other
// images keep their own names, and get the path and the tag of this reference. push prints the pushed references to
// out.
func push(ctx context.Context, firstReference string, images []*image, out io.Writer) error {
	first, err := name.ParseReference(firstReference)
	if err != nil {
		return fmt.Errorf("--push: %w", err)
	}
	tag, ok := first.(name.Tag)
	if !ok {
		return fmt.Errorf("--push: %q has a digest, which cannot be chosen: give a tag, or none", firstReference)
	}
	version := tag.TagStr()
	if !strings.HasSuffix(firstReference, ":"+version) {
		version = images[0].version
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithUserAgent("lifecycle-manager-image")}
	for n, m := range images {
		repository := first.Context()
		if n > 0 {
			repository = repository.Repo(path.Join(path.Dir(repository.RepositoryStr()), m.name))
		}
		if err := remote.WriteIndex(repository.Tag(version), m.index, options...); err != nil {
			return fmt.Errorf("pushing %s: %w", repository.Tag(version), err)
		}
		for _, bill := range m.bills {
			digest, err := bill.Digest()
			if err != nil {
				return fmt.Errorf("computing the digest of a bill of materials: %w", err)
			}
			if err := remote.Write(repository.Digest(digest.String()), bill, options...); err != nil {
				return fmt.Errorf("pushing the bill of materials of %s: %w", m.name, err)
			}
		}
		digest, err := m.index.Digest()
		if err != nil {
			return fmt.Errorf("computing the digest of %s: %w", m.name, err)
		}
		fmt.Fprintf(out, "pushed %s@%s\n", repository.Tag(version), digest)
	}
	return nil
}
