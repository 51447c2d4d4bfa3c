package author

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
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

	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
)

// pack builds the good module.
func pack(t *testing.T, home, commit string) *registry.Artifact {
	t.Helper()
	m, err := Build(t.Context(), Source{File: write(t, good, "example.com/widget@sha256:"+strings.Repeat("0", 64), ""), Commit: commit, Home: home})
	if err != nil {
		t.Fatal(err)
	}
	a, err := registry.Pack(m.Archive())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func place(t *testing.T, reference string, access Access) *Place {
	t.Helper()
	p, err := Open(reference, access, true)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func serve(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(fake.New(fake.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	return s.URL
}

// TestSameDigest builds in two folders and packs the same.
func TestSameDigest(t *testing.T) {
	if a, b := pack(t, "", "0123"), pack(t, "", "0123"); a.Digest() != b.Digest() {
		t.Errorf("digests %s and %s differ", a.Digest(), b.Digest())
	}
	if a, b := pack(t, "", "0123"), pack(t, "", "4567"); a.Digest() == b.Digest() {
		t.Error("another commit has the same digest")
	}
}

// TestRound brings a signed version from an archive through registries and an archive of another form, and finds it as it was.
func TestRound(t *testing.T) {
	dir := t.TempDir()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := registry.PublicPEM(k)
	if err != nil {
		t.Fatal(err)
	}
	made := pack(t, "https://example.com", "0123")
	first := place(t, filepath.Join(dir, "first.ctf"), Access{})
	if _, err := first.Write(t.Context(), false, made); err != nil {
		t.Fatal(err)
	}
	if _, err := Sign(t.Context(), first, Signing{Key: k}); err != nil {
		t.Fatal(err)
	}
	at := []string{first.String(), serve(t), filepath.Join(dir, "second.tgz"), serve(t) + "/below", filepath.Join(dir, "third.tar")}
	for i := 1; i < len(at); i++ {
		from := at[i-1]
		if i%2 == 0 {
			from += "//example.com/module/widget"
		}
		done, err := Copy(t.Context(), place(t, from, Access{}), place(t, at[i], Access{}), Copying{})
		if err != nil {
			t.Fatalf("to %s: %v", at[i], err)
		}
		if len(done) != 1 || done[0].Digest != made.Digest() || done[0].Signatures != 1 || !done[0].New || done[0].Was != "" {
			t.Errorf("to %s: got %+v, want it byte for byte with one signature", at[i], done)
		}
	}
	rules := fmt.Sprintf("rules: [{prefix: '', mode: enforce, keys: [%q]}]", public)
	trust, err := registry.ParseTrust([]byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	found, err := Verify(t.Context(), place(t, at[len(at)-1], Access{Trust: trust}), false)
	if err != nil || len(found) != 1 || found[0].Kind != registry.KindCosign {
		t.Errorf("verified %+v, %v", found, err)
	}
	m, err := place(t, at[3]+"//example.com/module/widget:2.0.1", Access{}).Load(t.Context())
	if err != nil || len(m.Objects) != 1 || len(m.Images) != 1 || m.Template == nil {
		t.Errorf("loaded %+v, %v", m, err)
	}
}

// TestSignDescriptor signs in the descriptor, which is worth something after the push as well.
func TestSignDescriptor(t *testing.T) {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public, err := registry.PublicPEM(k)
	if err != nil {
		t.Fatal(err)
	}
	archive := place(t, filepath.Join(t.TempDir(), "a.ctf"), Access{})
	if _, err := archive.Write(t.Context(), false, pack(t, "", "0123")); err != nil {
		t.Fatal(err)
	}
	if _, err := Sign(t.Context(), archive, Signing{Key: k}); err != nil {
		t.Fatal(err)
	}
	to := serve(t)
	done, err := Copy(t.Context(), archive, place(t, to, Access{}), Copying{})
	if err != nil || done[0].Was == "" {
		t.Fatalf("copied %+v, %v: want a repository context added", done, err)
	}
	trust, err := registry.ParseTrust(fmt.Appendf(nil, "rules: [{prefix: '', mode: enforce, keys: [%q]}]", public))
	if err != nil {
		t.Fatal(err)
	}
	found, err := Verify(t.Context(), place(t, to+"//example.com/module/widget", Access{Trust: trust}), false)
	if err != nil || found[0].Kind != registry.KindOCM {
		t.Errorf("verified %+v, %v", found, err)
	}
}

// TestRefused: what cannot be copied, and why.
func TestRefused(t *testing.T) {
	to := serve(t)
	if _, err := place(t, to, Access{}).Write(t.Context(), false, pack(t, "https://a", "0123")); err != nil {
		t.Fatal(err)
	}
	_, err := place(t, to, Access{}).Write(t.Context(), false, pack(t, "https://b", "4567"))
	if !registry.IsReason(err, registry.ArtifactExists) {
		t.Errorf("got %v, want that the version is there with other content", err)
	}
	if _, err := place(t, to, Access{}).Write(t.Context(), true, pack(t, "https://b", "4567")); err != nil {
		t.Errorf("got %v, want it replaced", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := place(t, serve(t), Access{}).Write(ctx, false, pack(t, "https://a", "0123")); err == nil {
		t.Error("a cancelled push succeeds")
	}
	for _, reference := range []string{"", "//a", "http://", to + "//"} {
		if _, err := Open(reference, Access{}, true); err == nil {
			t.Errorf("%q is taken for a place", reference)
		}
	}
}

// TestDamagedArchive: half of an archive is never taken for one.
func TestDamagedArchive(t *testing.T) {
	cases := map[string]struct {
		reason string
		harm   func(dir string, blobs []string) error
		want   string
	}{
		"BlobGone":  {"a copy broke off", func(_ string, blobs []string) error { return os.Remove(blobs[0]) }, "it is not complete"},
		"BlobHalf":  {"a copy broke off", func(_ string, blobs []string) error { return os.Truncate(blobs[0], 3) }, "is damaged"},
		"IndexGone": {"the index is written last", func(dir string, _ []string) error { return os.Remove(filepath.Join(dir, indexFile)) }, "it has no artifact-index.json"},
		"IndexHalf": {"a copy broke off", func(dir string, _ []string) error { return os.Truncate(filepath.Join(dir, indexFile), 9) }, "is not JSON"},
		"Foreign": {"files of others do no harm", func(dir string, _ []string) error {
			return os.WriteFile(filepath.Join(dir, blobFolder, ".new-1"), nil, 0o600)
		}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a.ctf")
			if _, err := place(t, dir, Access{}).Write(t.Context(), false, pack(t, "", "0123")); err != nil {
				t.Fatal(err)
			}
			blobs, err := filepath.Glob(filepath.Join(dir, blobFolder, "*"))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.harm(dir, blobs); err != nil {
				t.Fatal(err)
			}
			_, err = OpenArchive(dir)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: got %v, want %q", c.reason, err, c.want)
			}
		})
	}
}

// TestFolders builds from a chart and from a Kustomize directory.
func TestFolders(t *testing.T) {
	cases := map[string]struct {
		files map[string]string
		want  string
	}{
		"Chart": {map[string]string{
			"Chart.yaml": "apiVersion: v2\nname: widget\nversion: 1.0.0\n", "values.yaml": "tag: 1.2.3\n",
			"templates/pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: '{{ .Release.Name }}'}\nspec: {containers: [{name: a, image: 'example.com/a:{{ .Values.tag }}'}]}\n",
		}, "name: widget"},
		"Kustomize": {map[string]string{
			"kustomization.yaml": "namePrefix: my-\nresources: [pod.yaml]\n", "pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: widget}\nspec: {containers: [{name: a, image: 'example.com/a:1.2.3'}]}\n",
		}, "name: my-widget"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			config := write(t, line("manifest", "manifest: folder"), "x", "")
			for file, text := range c.files {
				path := filepath.Join(filepath.Dir(config), "folder", file)
				if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			m, err := Build(t.Context(), Source{File: config, Commit: "0123"})
			if err != nil || !strings.Contains(string(m.Manifest), c.want) || len(m.Images) != 1 {
				t.Errorf("built %+v, %v, want %q", m, err, c.want)
			}
		})
	}
}

// TestInit writes a skeleton that can be built without a finding that matters.
func TestInit(t *testing.T) {
	dir := t.TempDir()
	if _, err := Init(dir, "example.com/module/red-widget", "a/b"); err != nil {
		t.Fatal(err)
	}
	m, err := Build(t.Context(), Source{File: filepath.Join(dir, "module-config.yaml"), Commit: "0123"})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Lint(nil) {
		if f.Level != Info {
			t.Error(f)
		}
	}
	if _, err := Init(dir, "Widget", ""); err == nil {
		t.Error("a bad name is taken")
	}
}

// BenchmarkBuild builds and packs a module with a manifest of 5 MB.
func BenchmarkBuild(b *testing.B) {
	dir := b.TempDir()
	var text strings.Builder
	text.WriteString(strings.NewReplacer("IMAGE", "example.com/widget:2.0.1").Replace(workload))
	for i := 0; text.Len() < 5<<20; i++ {
		fmt.Fprintf(&text, "---\n%s", strings.ReplaceAll(definition, "widgets", fmt.Sprintf("widgets%d", i)))
	}
	if err := os.WriteFile(filepath.Join(dir, "module-config.yaml"), []byte(good), 0o600); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "manifest.yaml"), []byte(text.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		m, err := Build(b.Context(), Source{File: filepath.Join(dir, "module-config.yaml"), Commit: "0123"})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := registry.Pack(m.Archive()); err != nil {
			b.Fatal(err)
		}
	}
}

// TestBrokenPush: a push that breaks off before the manifest leaves nothing to be seen, and the next one completes it; a tag that somebody else
// moves at the same time is noticed.
func TestBrokenPush(t *testing.T) {
	inside := fake.New(fake.Logger(log.New(io.Discard, "", 0)))
	var broken, moved atomic.Bool
	broken.Store(true)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case broken.Load() && r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/"):
			http.Error(w, "quota", http.StatusForbidden)
		case moved.Load() && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/manifests/2.0.1"): // somebody else is faster, and wins
			w.WriteHeader(http.StatusCreated)
		default:
			inside.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	first := pack(t, "https://a", "0123")
	if _, err := place(t, s.URL, Access{}).Write(t.Context(), false, first); !registry.IsReason(err, registry.RegistryUnauthorized) {
		t.Fatalf("got %v, want the refusal", err)
	}
	broken.Store(false)
	if _, err := place(t, s.URL+"//example.com/module/widget", Access{}).Select(t.Context()); err == nil {
		t.Error("half of a push is seen")
	}
	if isNew, err := place(t, s.URL, Access{}).Write(t.Context(), false, first); err != nil || !isNew {
		t.Errorf("going on: %v, %v", isNew, err)
	}
	moved.Store(true)
	if _, err := place(t, s.URL, Access{}).Write(t.Context(), true, pack(t, "https://b", "4567")); !registry.IsReason(err, registry.DigestMismatch) {
		t.Errorf("got %v, want that the tag was moved", err)
	}
}
