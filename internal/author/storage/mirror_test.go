package storage_test

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	fake "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/kyma-fleet/lifecycle-manager/internal/author"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/storage"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
)

// gallery is a test registry with images. gallery requires the credentials that are in the Docker config.
type gallery struct {
	*httptest.Server
	host string
}

func newGallery(t *testing.T) gallery {
	t.Helper()
	inside := fake.New(fake.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "robot" || password != "sesame" {
			w.Header().Set("WWW-Authenticate", `Basic realm="images"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
			return
		}
		inside.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	g := gallery{s, strings.TrimPrefix(s.URL, "http://")}
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	config := fmt.Sprintf(`{"auths":{%q:{"username":"robot","password":"sesame"}}}`, g.host)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return g
}

// The constants tagged and untagged are the repositories of the images in the test registry. References to the first
// image have a tag, and references to the second image have only a digest.
const (
	tagged   = "team/widget:2.0.1"
	untagged = "team/agent"
)

// pushIndex pushes an image for two platforms and returns its digest. Each layer of the image is larger than
// maxInMemory.
func (g gallery) pushIndex(t *testing.T) string {
	t.Helper()
	made, err := random.Index(1<<20+5, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(g.host + "/" + tagged)
	if err == nil {
		err = remote.WriteIndex(tag, made, remote.WithAuthFromKeychain(authn.DefaultKeychain))
	}
	if err != nil {
		t.Fatal(err)
	}
	return digestOfImage(t, made)
}

// pushImage pushes an image without a tag and returns its digest.
func (g gallery) pushImage(t *testing.T) string {
	t.Helper()
	made, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	digest := digestOfImage(t, made)
	ref, err := name.NewDigest(g.host + "/" + untagged + "@" + digest)
	if err == nil {
		err = remote.Write(ref, made, remote.WithAuthFromKeychain(authn.DefaultKeychain))
	}
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func digestOfImage(t *testing.T, of interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	d, err := of.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// withImages builds a valid test module and writes it into an archive. The Deployment of the module has one image, and
// the DaemonSet has another image.
func withImages(t *testing.T, deployment, daemonSet string) *storage.Place {
	t.Helper()
	config := writeModule(t, okConfig, deployment, "")
	manifest := strings.ReplaceAll(okWorkload, "IMAGE", deployment) + "---\n" +
		strings.NewReplacer("Deployment", "DaemonSet", "name: widget", "name: agent", "IMAGE",
			daemonSet).Replace(okWorkload)
	if err := os.WriteFile(filepath.Join(filepath.Dir(config), "manifest.yaml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := author.Build(t.Context(), author.Source{File: config, Commit: "0123"})
	if err != nil {
		t.Fatal(err)
	}
	made, err := ocm.Pack(m.Archive())
	if err != nil {
		t.Fatal(err)
	}
	p := openPlace(t, filepath.Join(t.TempDir(), "built.ctf"), storage.Access{})
	if _, err := p.Write(t.Context(), false, made); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestMirrorImages copies a signed version with its images through an archive to a target that cannot connect to the
// registry in which the images originally are.
func TestMirrorImages(t *testing.T) {
	from := newGallery(t)
	index, single := from.pushIndex(t), from.pushImage(t)
	built := withImages(t, from.host+"/team/widget:2.0.1", from.host+"/team/agent@"+single)
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := storage.Sign(t.Context(), built, storage.SignOptions{Key: k}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	inside := serveRegistry(t) + "/modules"
	for _, step := range []struct {
		reason, from, to string
		isNew            bool
		want             string // location of the first image after the step
	}{
		{
			reason: "images come from where they lie",
			from:   built.String(),
			to:     filepath.Join(dir, "carried.tgz"),
			isNew:  true,
			want:   "team/widget:2.0.1@",
		},
		{
			reason: "an archive has all of it",
			from:   filepath.Join(dir, "carried.tgz"),
			to:     filepath.Join(dir, "folder"),
			isNew:  true,
			want:   "team/widget:2.0.1@",
		},
		{
			reason: "below the path of the place",
			from:   filepath.Join(dir, "folder"),
			to:     inside,
			isNew:  true,
			want:   strings.TrimPrefix(inside, "http://") + "/team/widget:2.0.1@",
		},
		{
			reason: "what is there is passed over",
			from:   filepath.Join(dir, "carried.tgz"),
			to:     inside,
			want:   strings.TrimPrefix(inside, "http://") + "/team/widget:2.0.1@",
		},
		{
			reason: "the path of the place is not a part of that of the image",
			from:   inside + "//example.com/module/widget",
			to:     filepath.Join(dir, "again.tar"),
			isNew:  true,
			want:   "team/widget:2.0.1@",
		},
		{
			reason: "an archive that has it",
			from:   inside + "//example.com/module/widget",
			to:     filepath.Join(dir, "again.tar"),
			want:   "team/widget:2.0.1@",
		},
	} {
		done, err := storage.Copy(t.Context(), openPlace(t, step.from, storage.Access{}),
			openPlace(t, step.to, storage.Access{}), storage.CopyOptions{Images: true})
		if err != nil || len(done) != 1 || len(done[0].Images) != 2 {
			t.Fatalf("%s: to %s: %+v, %v", step.reason, step.to, done, err)
		}
		i := slices.IndexFunc(done[0].Images, func(i storage.CopiedImage) bool { return i.Digest == index })
		if i < 0 || done[0].Images[i].At != step.want+index || done[0].Images[i].New != step.isNew ||
			done[0].New != step.isNew {
			t.Errorf("%s: to %s: %+v", step.reason, step.to, done[0])
		}
		if step.to == filepath.Join(dir, "carried.tgz") {
			from.Close()
		}
		if old := done[0].OldNames; step.to == inside &&
			(len(old) != 1 || old[0].Object != "DaemonSet kyma-system/agent" ||
				!strings.HasSuffix(old[0].At, "/team/agent@"+single)) {
			t.Errorf("%s: old names %+v, want that of the DaemonSet", step.reason, old)
		}
	}

	there := openPlace(t, inside+"//example.com/module/widget", storage.Access{Trust: policyOf(t, k)})
	if found, err := storage.Verify(t.Context(), there, true); err != nil || found[0].Kind != trust.KindOCM {
		t.Errorf("verified %+v, %v: the signature does not cover where images are", found, err)
	}
	ref, err := name.ParseReference(strings.TrimPrefix(inside, "http://") + "/team/widget:2.0.1")
	if err != nil {
		t.Fatal(err)
	}
	whole, err := remote.Index(ref)
	if err == nil {
		err = validate.Index(whole)
	}
	if err != nil {
		t.Errorf("the index is not whole: %v", err)
	}
	for _, left := range must(filepath.Glob(filepath.Join(dir, ".*"))) {
		t.Errorf("%s is left", left)
	}
}

func must(found []string, err error) []string {
	if err != nil {
		panic(err)
	}
	return found
}

// TestHalfOfImages checks that OpenArchive returns an error if any part of an image is missing.
func TestHalfOfImages(t *testing.T) {
	from := newGallery(t)
	from.pushIndex(t)
	built := withImages(t, from.host+"/"+tagged, from.host+"/"+untagged+"@"+from.pushImage(t))
	dir := filepath.Join(t.TempDir(), "a.ctf")
	if _, err := storage.Copy(t.Context(), built, openPlace(t, dir, storage.Access{}),
		storage.CopyOptions{Images: true}); err != nil {
		t.Fatal(err)
	}
	for _, blob := range must(filepath.Glob(filepath.Join(dir, "blobs", "*"))) {
		away := filepath.Join(t.TempDir(), "away")
		if err := os.Rename(blob, away); err != nil {
			t.Fatal(err)
		}
		if _, err := storage.OpenArchive(dir); err == nil || !strings.Contains(err.Error(), "it is not complete") {
			t.Errorf("without %s: got %v", filepath.Base(blob), err)
		}
		if err := os.Rename(away, blob); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := storage.OpenArchive(dir); err != nil {
		t.Errorf("whole again: %v", err)
	}
}

// TestMirrorRefused checks the errors of images that cannot be copied. If one image cannot be copied, no part of the
// version may be copied.
func TestMirrorRefused(t *testing.T) {
	from := newGallery(t)
	single := from.pushImage(t)
	from.pushIndex(t)
	agent := from.host + "/team/agent@" + single
	cases := map[string]struct {
		reason string
		image  string
		want   []string
	}{
		"Missing": {"names image and resource", from.host + "/team/gone:1.0.0",
			[]string{"/team/gone:1.0.0, resource gone of example.com/module/widget:2.0.1",
				"not found", "--images=false"}},
		"Login": {"another registry than that of the login", strings.Replace(from.host, "127.0.0.1", "localhost",
			1) + "/team/widget:2.0.1", []string{"401 Unauthorized"}},
		"Reserved": {"an image that would be a component version",
			from.host + "/component-descriptors/example.com/module/widget:2.0.1",
			[]string{"one of component versions"}},
		"Taken": {"another image has this name there", from.host + "/team/widget:2.0.1",
			[]string{"exists with other content", "--overwrite"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			to := serveRegistry(t)
			if name == "Taken" {
				g := gallery{host: strings.TrimPrefix(to, "http://")}
				g.pushIndex(t)
			}
			_, err := storage.Copy(t.Context(), withImages(t, c.image, agent), openPlace(t, to, storage.Access{}),
				storage.CopyOptions{Images: true})
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: got %v, want %q", c.reason, err, want)
				}
			}
			if _, err := openPlace(t, to+"//example.com/module/widget", storage.Access{}).Select(t.Context()); err == nil {
				t.Errorf("%s: the version is there", c.reason)
			}
		})
	}
}

// TestImagesWithOneName checks that a copy does not replace an image that it has just written: two images from
// different hosts may have the same path and tag.
func TestImagesWithOneName(t *testing.T) {
	from := newGallery(t)
	from.pushIndex(t)
	other := gallery{host: strings.TrimPrefix(serveRegistry(t), "http://")}
	other.pushIndex(t)
	source := withImages(t, from.host+"/"+tagged, other.host+"/"+tagged)
	for kind, place := range map[string]string{
		"archive": filepath.Join(t.TempDir(), "a.ctf"), "registry": serveRegistry(t)} {
		_, err := storage.Copy(t.Context(), source, openPlace(t, place, storage.Access{}),
			storage.CopyOptions{Images: true, Replace: true})
		if err == nil || !strings.Contains(err.Error(), tagged+" in the target, too, with other content") {
			t.Errorf("%s: got %v, want the second image to be refused", kind, err)
		}
	}
}

// TestImagesElsewhere checks that the registry of an image cannot lead requests to another address of this machine.
func TestImagesElsewhere(t *testing.T) {
	var requests atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		_, _ = io.WriteString(w, `{"token":"t"}`)
	}))
	t.Cleanup(other.Close)
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, lead := range map[string]http.HandlerFunc{
		"Redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
		},
		"Realm": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="images"`,
				strings.Replace(other.URL, "127.0.0.1", "localhost", 1)))
			w.WriteHeader(http.StatusUnauthorized)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(lead)
			t.Cleanup(s.Close)
			host := strings.TrimPrefix(s.URL, "http://")
			built := withImages(t, host+"/team/widget:2.0.1", host+"/team/agent@sha256:"+strings.Repeat("0", 64))
			for what, err := range map[string]error{
				"copy": second(storage.Copy(t.Context(), built, openPlace(t, serveRegistry(t), storage.Access{}),
					storage.CopyOptions{Images: true})),
				"verify": second(storage.Verify(t.Context(), built, true)),
				"sign":   second(storage.Sign(t.Context(), built, storage.SignOptions{Key: k})),
			} {
				if !ocm.IsReason(err, ocm.EgressRefused) {
					t.Errorf("%s: got %v, want that the address is refused", what, err)
				}
			}
			if n := requests.Load(); n > 0 {
				t.Errorf("%d requests were sent to the other address", n)
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

// TestImageNames checks that images whose references would lead to another path of the registry are refused.
func TestImageNames(t *testing.T) {
	made := packModule(t, "https://example.com", "0123")
	for _, image := range []string{
		"h.example.com/x/../component-descriptors/example.com/module/widget:1.0.0",
		"h.example.com/x/app:..",
		"h.example.com/x/app@../../../other/manifests/1.0.0",
	} {
		changed, err := made.WithEditedDescriptor(func(d map[string]any) error {
			return ocm.EachImage(d, func(resource, access map[string]any, _ string) error {
				delete(resource, "digest")
				access["imageReference"] = image
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		p := openPlace(t, filepath.Join(t.TempDir(), "a.ctf"), storage.Access{})
		if _, err := p.Write(t.Context(), false, changed); err != nil {
			t.Fatal(err)
		}
		if _, err := storage.Verify(t.Context(), p, true); err == nil ||
			!strings.Contains(err.Error(), "it is not an image reference") &&
				!strings.Contains(err.Error(), "is not a digest") {
			t.Errorf("%s: got %v, want that it is refused", image, err)
		}
	}
}

// spy is a keychain that records for which registries credentials are requested.
type spy map[string]bool

func (s spy) Resolve(r authn.Resource) (authn.Authenticator, error) {
	s[r.RegistryStr()] = true
	return authn.Anonymous, nil
}

// TestLoginStaysHome checks that the credentials for a registry with modules are not sent to other registries with
// images.
func TestLoginStaysHome(t *testing.T) {
	from := newGallery(t)
	from.pushIndex(t)
	built := withImages(t, from.host+"/team/widget:2.0.1", from.host+"/team/agent@"+from.pushImage(t))
	asked, to := spy{}, serveRegistry(t)
	if _, err := storage.Copy(t.Context(), openPlace(t, built.String(), storage.Access{Keychain: asked}),
		openPlace(t, to, storage.Access{Keychain: asked}), storage.CopyOptions{Images: true}); err != nil {
		t.Fatal(err)
	}
	if asked[from.host] || !asked[strings.TrimPrefix(to, "http://")] {
		t.Errorf("the login was looked for by %v", asked)
	}
}

// TestSignTags checks signatures in the descriptor for images with a tag. A signature in the descriptor covers the
// digest to which the tag of the image refers. If the digest of an image tag cannot be read, signing fails.
func TestSignTags(t *testing.T) {
	from := newGallery(t)
	index, single := from.pushIndex(t), from.pushImage(t)
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := withImages(t, from.host+"/team/widget:2.0.1", from.host+"/team/agent@"+single)
	if _, err := storage.Sign(t.Context(), p, storage.SignOptions{Key: k}); err != nil {
		t.Fatal(err)
	}
	signed, err := openPlace(t, p.String(), storage.Access{}).One(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found, err := signed.Images()
	if err != nil || len(found) != 2 || !slices.ContainsFunc(
		found, func(i ocm.Image) bool { return i.Resource == "widget" && i.Digest == index }) {
		t.Errorf("signed %+v, %v, want the digest of the index", found, err)
	}
	from.pushIndex(t) // moves the tag to another index
	if _, err := storage.Copy(t.Context(), p, openPlace(t, serveRegistry(t), storage.Access{}),
		storage.CopyOptions{Images: true}); err != nil {
		t.Errorf("got %v, want that what was signed is copied", err)
	}
	if _, err := storage.Verify(t.Context(), p, false); err != nil {
		t.Errorf("got %v, want that images are not checked", err)
	}
	if _, err := storage.Verify(t.Context(), p, true); err == nil ||
		!strings.Contains(err.Error(), "the tag was moved") {
		t.Errorf("got %v, want that the tag has moved", err)
	}

	p = withImages(t, from.host+"/team/gone:1.0.0", from.host+"/team/agent@"+single)
	_, err = storage.Sign(t.Context(), p, storage.SignOptions{Key: k})
	for _, want := range []string{`resource "gone"`, "/team/gone:1.0.0", "not found",
		"push the image first", "--kind cosign"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
