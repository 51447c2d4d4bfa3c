package storage_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/internal/author/storage"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// TestInstallation checks which layers of a component version the manager installs, in which order, and with which
// settings.
func TestInstallation(t *testing.T) {
	const (
		config = "configs: [{name: raw-manifest, clientConfig: {Namespace: here}}, {name: operator, " +
			"clientConfig: {Namespace: there}}]"
		definitions = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: " +
			"a.example.com}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
		object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n"
	)
	cases := map[string]struct {
		reason string
		rename string // new name of the resource that Pack names raw-manifest
		layers map[string]string
		want   []string
	}{
		"RawManifest": {"others are for people", "raw-manifest",
			map[string]string{"default-cr": object, "moduletemplate": object},
			[]string{"raw-manifest of raw-manifest in : 1"}},
		"All": {"definitions come first, and nothing else of their layer", "raw-manifest",
			map[string]string{"config": config, "crds": definitions},
			[]string{"crds of  in : 1", "raw-manifest of raw-manifest in here: 1"}},
		"Early": {"without raw-manifest all others, in the order of the descriptor", "operator",
			map[string]string{"config": config, "default-cr": object, "agent": object},
			[]string{"operator of operator in there: 1", "agent of agent in : 1"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := openPlace(t, serveRegistry(t)+"//example.com/module/widget", storage.Access{})
			writeLayered(t, p, c.rename, object, c.layers)
			i, err := p.Installation(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, part := range i.Parts {
				b, err := part.Bundle(t.Context(), render.Options{}, func(context.Context, []string) (
					render.Capabilities, error) {
					return render.Capabilities{}, nil
				})
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%s of %s in %s: %d", part.Resource, part.Settings.Release,
					part.Settings.Namespace, len(b.Objects)))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

// writeLayered writes a component version with the given layers.
func writeLayered(t *testing.T, p *storage.Place, rename, manifest string, layers map[string]string) {
	t.Helper()
	made, err := ocm.Pack(ocm.Archive{Name: "example.com/module/widget", Version: "2.0.1",
		RawManifest: []byte(manifest), RepositoryContext: "https://example.com"})
	if err != nil {
		t.Fatal(err)
	}
	blobs := map[string][]byte{}
	made, err = made.WithEditedDescriptor(func(d map[string]any) error {
		component := d["component"].(map[string]any)
		resources := component["resources"].([]any)
		resources[0].(map[string]any)["name"] = rename
		for name, text := range layers {
			digest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text)))
			blobs[digest] = []byte(text)
			resources = append(resources, map[string]any{"name": name, "version": "2.0.1",
				"type": "plainText", "relation": "local",
				"access": map[string]any{"type": "localBlob", "localReference": digest, "mediaType": "text/plain"}})
		}
		component["resources"] = resources
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(made.Blobs, blobs)
	if _, err := p.Write(t.Context(), false, made); err != nil {
		t.Fatal(err)
	}
}
