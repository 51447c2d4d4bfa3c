package storage_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	fake "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kyma-fleet/lifecycle-manager/internal/author"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/storage"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
)

// packModule builds and packs a valid test module.
func packModule(t *testing.T, home, commit string) *ocm.Artifact {
	t.Helper()
	m, err := author.Build(t.Context(), author.Source{File: writeModule(
		t, okConfig, "example.com/widget@sha256:"+strings.Repeat("0", 64), ""), Commit: commit, Home: home})
	if err != nil {
		t.Fatal(err)
	}
	a, err := ocm.Pack(m.Archive())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func openPlace(t *testing.T, reference string, access storage.Access) *storage.Place {
	t.Helper()
	p, err := storage.Open(reference, access, true)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func serveRegistry(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(fake.New(fake.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	return s.URL
}

// TestSameDigest builds and packs the same module in two folders, and compares the digests of the results.
func TestSameDigest(t *testing.T) {
	if a, b := packModule(t, "", "0123"), packModule(t, "", "0123"); a.Digest() != b.Digest() {
		t.Errorf("digests %s and %s differ", a.Digest(), b.Digest())
	}
	if a, b := packModule(t, "", "0123"), packModule(t, "", "4567"); a.Digest() == b.Digest() {
		t.Error("another commit has the same digest")
	}
}

// TestRound copies a signed version from an archive to registries, and from there to an archive in another format, and
// checks that the version is unchanged.
func TestRound(t *testing.T) {
	dir := t.TempDir()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := trust.PublicPEM(k)
	if err != nil {
		t.Fatal(err)
	}
	made := packModule(t, "https://example.com", "0123")
	first := openPlace(t, filepath.Join(dir, "first.ctf"), storage.Access{})
	if _, err := first.Write(t.Context(), false, made); err != nil {
		t.Fatal(err)
	}
	if _, err := storage.Sign(t.Context(), first, storage.SignOptions{Key: k}); err != nil {
		t.Fatal(err)
	}
	at := []string{first.String(), serveRegistry(t), filepath.Join(dir, "second.tgz"), serveRegistry(t) + "/below",
		filepath.Join(dir, "third.tar")}
	for i := 1; i < len(at); i++ {
		from := at[i-1]
		if i%2 == 0 {
			from += "//example.com/module/widget"
		}
		done, err := storage.Copy(t.Context(), openPlace(t, from, storage.Access{}),
			openPlace(t, at[i], storage.Access{}), storage.CopyOptions{})
		if err != nil {
			t.Fatalf("to %s: %v", at[i], err)
		}
		if len(done) != 1 || done[0].Digest != made.Digest() || done[0].Signatures != 1 ||
			!done[0].New || done[0].Was != "" {
			t.Errorf("to %s: got %+v, want it byte for byte with one signature", at[i], done)
		}
	}
	rules := fmt.Sprintf("rules: [{prefix: '', mode: enforce, keys: [%q]}]", public)
	policy, err := trust.Parse([]byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	found, err := storage.Verify(t.Context(), openPlace(t, at[len(at)-1], storage.Access{Trust: policy}), false)
	if err != nil || len(found) != 1 || found[0].Kind != trust.KindCosign {
		t.Errorf("verified %+v, %v", found, err)
	}
	m, err := author.Load(t.Context(), openPlace(t, at[3]+"//example.com/module/widget:2.0.1", storage.Access{}))
	if err != nil || len(m.Objects) != 1 || len(m.Images) != 1 || m.Template == nil {
		t.Errorf("loaded %+v, %v", m, err)
	}
}

// addReferrer writes an artefact that looks like a signature of a component version, and a list of referrers that names
// only this artefact. addReferrer returns the digest of the artefact and the tag of the list.
func addReferrer(t *testing.T, p *storage.Place, of *ocm.Artifact, text string) (digest, tag string) {
	t.Helper()
	a := &ocm.Artifact{Repository: of.Repository, Blobs: map[string][]byte{}}
	layer := a.AddBlob([]byte(text), "text/plain")
	var err error
	if a.Manifest, err = json.Marshal(v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: a.AddBlob([]byte("{}"), types.OCIConfigJSON), Layers: []v1.Descriptor{layer}}); err != nil {
		t.Fatal(err)
	}
	hash, err := v1.NewHash(a.Digest())
	if err != nil {
		t.Fatal(err)
	}
	list := &ocm.Artifact{Repository: of.Repository, Tag: strings.Replace(of.Digest(), ":", "-", 1),
		MediaType: string(types.OCIImageIndex)}
	if list.Manifest, err = json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex,
		Manifests: []v1.Descriptor{{MediaType: types.OCIManifestSchema1, Size: int64(len(a.Manifest)),
			Digest: hash}}}); err != nil {
		t.Fatal(err)
	}
	for _, a := range []*ocm.Artifact{a, list} {
		if _, err := p.Write(t.Context(), true, a); err != nil {
			t.Fatal(err)
		}
	}
	return a.Digest(), list.Tag
}

// TestKeepSignatures checks that a repeated copy keeps the signatures that others have added in the target, and changes
// nothing if the target has all signatures.
func TestKeepSignatures(t *testing.T) {
	var keys [3]*ecdsa.PrivateKey
	for i := range keys {
		var err error
		if keys[i], err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	const component = "//example.com/module/widget"
	made := packModule(t, "https://example.com", "0123")
	from := openPlace(t, serveRegistry(t)+component, storage.Access{})
	if _, err := from.Write(t.Context(), false, made); err != nil {
		t.Fatal(err)
	}
	first, list := addReferrer(t, from, made, "first")
	sign := func(p *storage.Place, k *ecdsa.PrivateKey) {
		t.Helper()
		if _, err := storage.Sign(t.Context(), p, storage.SignOptions{Key: k}); err != nil {
			t.Fatal(err)
		}
	}
	sign(from, keys[0])
	for _, at := range []string{serveRegistry(t), filepath.Join(t.TempDir(), "a.ctf")} {
		digests := map[string]bool{} // of the signatures after each copy
		for i := range 3 {
			if _, err := storage.Copy(t.Context(), from, openPlace(t, at, storage.Access{}),
				storage.CopyOptions{}); err != nil {
				t.Fatal(err)
			}
			to := openPlace(t, at+component, storage.Access{})
			if i == 0 {
				sign(to, keys[1])
				sign(from, keys[2]) // its payload is the same as that of the first key
				addReferrer(t, to, made, "second")
				continue
			}
			for j, k := range keys {
				if _, err := storage.Verify(t.Context(), openPlace(t, at+component,
					storage.Access{Trust: policyOf(t, k)}), false); err != nil {
					t.Errorf("copy %d to %s: signature %d: %v", i, at, j, err)
				}
			}
			signatures, err := to.Registry().Artifact(t.Context(), made.Repository, list+".sig")
			if err != nil {
				t.Fatal(err)
			}
			digests[signatures.Digest()] = true
			referrers, err := to.Registry().Artifact(t.Context(), made.Repository, list)
			if err != nil || !strings.Contains(string(referrers.Manifest), first) ||
				strings.Count(string(referrers.Manifest), "sha256:") != 2 {
				t.Errorf("copy %d to %s: got the referrers %s, %v, want both", i, at, referrers.Manifest, err)
			}
		}
		if len(digests) != 1 {
			t.Errorf("in %s: a copy has changed complete signatures: %v", at, digests)
		}
	}
}

// TestSignDescriptor makes a signature in the descriptor of a component version and checks that the signature is still
// valid after a push.
func TestSignDescriptor(t *testing.T) {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public, err := trust.PublicPEM(k)
	if err != nil {
		t.Fatal(err)
	}
	archive := openPlace(t, filepath.Join(t.TempDir(), "a.ctf"), storage.Access{})
	if _, err := archive.Write(t.Context(), false, packModule(t, "", "0123")); err != nil {
		t.Fatal(err)
	}
	if _, err := storage.Sign(t.Context(), archive, storage.SignOptions{Key: k}); err != nil {
		t.Fatal(err)
	}
	to := serveRegistry(t)
	done, err := storage.Copy(t.Context(), archive, openPlace(t, to, storage.Access{}), storage.CopyOptions{})
	if err != nil || done[0].Was == "" {
		t.Fatalf("copied %+v, %v: want a repository context added", done, err)
	}
	policy, err := trust.Parse(fmt.Appendf(nil, "rules: [{prefix: '', mode: enforce, keys: [%q]}]", public))
	if err != nil {
		t.Fatal(err)
	}
	found, err := storage.Verify(t.Context(), openPlace(t, to+"//example.com/module/widget", storage.Access{Trust: policy}),
		false)
	if err != nil || found[0].Kind != trust.KindOCM {
		t.Errorf("verified %+v, %v", found, err)
	}
}

// policyOf returns a trust policy in which all artefacts must be signed with a key.
func policyOf(t *testing.T, k crypto.Signer) *trust.Policy {
	t.Helper()
	public, err := trust.PublicPEM(k)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := trust.Parse(fmt.Appendf(nil, "rules: [{prefix: '', mode: enforce, keys: [%q]}]", public))
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

// TestVerifyMovedTag checks that Verify never reports the digest of a manifest that it has not verified. The registry
// first answers with a manifest that has no signature, and then with the signed manifest.
func TestVerifyMovedTag(t *testing.T) {
	inside := fake.New(fake.Logger(log.New(io.Discard, "", 0)))
	var unsigned atomic.Pointer[string] // the digest in the next answer about the tag
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before, ok := strings.CutSuffix(r.URL.Path, "/manifests/2.0.1"); ok && r.Method == http.MethodGet {
			if digest := unsigned.Swap(nil); digest != nil {
				r.URL.Path = before + "/manifests/" + *digest
			}
		}
		inside.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other := packModule(t, "https://b", "4567")
	for _, a := range []*ocm.Artifact{other, packModule(t, "https://a", "0123")} {
		if _, err := openPlace(t, s.URL, storage.Access{}).Write(t.Context(), true, a); err != nil {
			t.Fatal(err)
		}
	}
	reference := s.URL + "//example.com/module/widget:2.0.1"
	if _, err := storage.Sign(t.Context(), openPlace(t, reference, storage.Access{}),
		storage.SignOptions{Key: k}); err != nil {
		t.Fatal(err)
	}
	access := storage.Access{Trust: policyOf(t, k)}
	unsigned.Store(new(other.Digest()))
	if found, err := storage.Verify(t.Context(), openPlace(t, reference, access), false); !ocm.IsReason(
		err, ocm.DigestMismatch) {
		t.Errorf("got %+v, %v, want that the tag was moved", found, err)
	}
	if _, err := storage.Verify(t.Context(), openPlace(t, reference, access), false); err != nil {
		t.Errorf("of the signed version: %v", err)
	}
}

// TestRefused checks the errors for versions that cannot be copied.
func TestRefused(t *testing.T) {
	to := serveRegistry(t)
	if _, err := openPlace(t, to, storage.Access{}).Write(t.Context(), false, packModule(t, "https://a", "0123")); err != nil {
		t.Fatal(err)
	}
	_, err := openPlace(t, to, storage.Access{}).Write(t.Context(), false, packModule(t, "https://b", "4567"))
	if !ocm.IsReason(err, ocm.ArtifactExists) {
		t.Errorf("got %v, want that the version is there with other content", err)
	}
	if _, err := openPlace(t, to, storage.Access{}).Write(t.Context(), true, packModule(t, "https://b", "4567")); err != nil {
		t.Errorf("got %v, want it replaced", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := openPlace(t, serveRegistry(t), storage.Access{}).Write(ctx, false, packModule(t, "https://a", "0123")); err == nil {
		t.Error("a cancelled push succeeds")
	}
	for _, reference := range []string{"", "//a", "http://", to + "//"} {
		if _, err := storage.Open(reference, storage.Access{}, true); err == nil {
			t.Errorf("%q is taken for a place", reference)
		}
	}
}

// TestDamagedArchive checks that an incomplete archive is rejected.
func TestDamagedArchive(t *testing.T) {
	cases := map[string]struct {
		reason string
		harm   func(dir string, blobs []string) error
		want   string
	}{
		"BlobGone": {"a copy broke off", func(_ string, blobs []string) error { return os.Remove(blobs[0]) },
			"it is not complete"},
		"BlobHalf": {"a copy broke off", func(_ string, blobs []string) error { return os.Truncate(blobs[0], 3) },
			"is damaged"},
		"IndexGone": {"the index is written last",
			func(dir string, _ []string) error { return os.Remove(filepath.Join(dir, "artifact-index.json")) },
			"it has no artifact-index.json"},
		"IndexHalf": {"a copy broke off", func(dir string, _ []string) error {
			return os.Truncate(
				filepath.Join(dir, "artifact-index.json"), 9)
		}, "is not JSON"},
		"Foreign": {"files of others do no harm", func(dir string, _ []string) error {
			return os.WriteFile(filepath.Join(dir, "blobs", ".new-1"), nil, 0o600)
		}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a.ctf")
			if _, err := openPlace(t, dir, storage.Access{}).Write(t.Context(), false, packModule(t, "",
				"0123")); err != nil {
				t.Fatal(err)
			}
			blobs, err := filepath.Glob(filepath.Join(dir, "blobs", "*"))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.harm(dir, blobs); err != nil {
				t.Fatal(err)
			}
			_, err = storage.OpenArchive(dir)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: got %v, want %q", c.reason, err, c.want)
			}
		})
	}
}

// TestBrokenPush checks two failures of a push. First, if a push fails before the manifest is written, the version does
// not exist in the registry, and the next push completes the version. Second, if another client moves the tag at the
// same time, the push returns an error about it.
func TestBrokenPush(t *testing.T) {
	inside := fake.New(fake.Logger(log.New(io.Discard, "", 0)))
	var broken, moved atomic.Bool
	broken.Store(true)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case broken.Load() && r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/"):
			http.Error(w, "quota", http.StatusForbidden)
		case moved.Load() && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/manifests/2.0.1"):
			// Another client has written its manifest before the push under test writes its own manifest.
			w.WriteHeader(http.StatusCreated)
		default:
			inside.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	first := packModule(t, "https://a", "0123")
	if _, err := openPlace(t, s.URL, storage.Access{}).Write(t.Context(), false, first); !ocm.IsReason(
		err, ocm.RegistryUnauthorized) {
		t.Fatalf("got %v, want the refusal", err)
	}
	broken.Store(false)
	if _, err := openPlace(t, s.URL+"//example.com/module/widget", storage.Access{}).Select(t.Context()); err == nil {
		t.Error("half of a push is seen")
	}
	if isNew, err := openPlace(t, s.URL, storage.Access{}).Write(t.Context(), false, first); err != nil || !isNew {
		t.Errorf("going on: %v, %v", isNew, err)
	}
	moved.Store(true)
	if _, err := openPlace(t, s.URL, storage.Access{}).Write(t.Context(), true,
		packModule(t, "https://b", "4567")); !ocm.IsReason(err, ocm.DigestMismatch) {
		t.Errorf("got %v, want that the tag was moved", err)
	}
}
