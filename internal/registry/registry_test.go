package registry

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	fake "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/internal/retry"
)

// server is a real registry for tests that counts requests. A test can make the server return faults.
type server struct {
	*httptest.Server

	mu       sync.Mutex
	requests []string
	fault    func(http.ResponseWriter, *http.Request) bool // writes the response, or returns false
	conns    int
}

func newServer(t *testing.T, options ...fake.Option) *server {
	t.Helper()
	s := &server{}
	next := fake.New(append(options, fake.Logger(log.New(io.Discard, "", 0)))...)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
		fault := s.fault
		s.mu.Unlock()
		if fault != nil && fault(w, r) {
			return
		}
		next.ServeHTTP(w, r)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.mu.Lock()
			s.conns++
			s.mu.Unlock()
		}
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *server) host() string { return strings.TrimPrefix(s.URL, "http://") }

// transport returns a transport that sends all requests to this server, whatever their host is. A test that counts
// requests uses transport with a host that is not local: if a local host does not respond to GET /v2/ within 300 ms,
// the library go-containerregistry sends this request a second time.
func (s *server) transport(t *testing.T) *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.host())
	}
	return transport
}

// takeRequests returns the requests since its last call.
func (s *server) takeRequests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.requests
	s.requests = nil
	return taken
}

func (s *server) setFault(f func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// clock is a clock whose time the test sets.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// openRegistry returns a Registry, and its clock that only the test moves. The timeout of a pull is 10 minutes, because
// a test can hold a response until many goroutines have started.
func openRegistry(t *testing.T, opts Options) (*Registry, *clock) {
	t.Helper()
	c := &clock{t: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	if opts.Transport == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		t.Cleanup(transport.CloseIdleConnections)
		opts.Transport = transport
	}
	r, err := newRegistry(opts, c.now)
	if err != nil {
		t.Fatal(err)
	}
	r.pullTimeout = 10 * time.Minute
	return r, c
}

const component = "kyma-project.io/module/sample"

const manifestYAML = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n"

func sampleArchive() ocm.Archive {
	return ocm.Archive{
		Name: component, Version: "1.2.3", Tar: true, ManifestFile: "dir/sample.yaml",
		RawManifest: []byte(manifestYAML), DefaultCR: []byte("kind: Sample\n"),
		Labels: []ocm.Label{{Name: "operator.kyma-project.io/beta", Value: "false"},
			{Name: "responsibles", Value: []map[string]string{{"teamname": "x"}}}},
		Images: []string{"europe-docker.pkg.dev/p/op:1.2.3", "r.io/side@sha256:" + strings.Repeat("ab", 32)},
	}
}

func push(t *testing.T, r *Registry, a ocm.Archive) string {
	t.Helper()
	digest, err := r.Push(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// reason returns the reason code of an error, or "" if the error has none.
func reason(err error) string {
	if e, ok := errors.AsType[interface {
		error
		Reason() string
	}](err); ok {
		return e.Reason()
	}
	return ""
}

func wantReason(t *testing.T, err error, want string) {
	t.Helper()
	if reason(err) != want {
		t.Errorf("got %q (%v), want %q", reason(err), err, want)
		return
	}
	if text := err.Error(); strings.ContainsAny(text, "\n\r") ||
		!slices.Contains([]string{"pulling", "pushing", "verifying", "reading"}, strings.SplitN(text, " ", 2)[0]) {
		t.Errorf("not one line that says what was done: %q", text)
	}
}

func TestPushAndRead(t *testing.T) {
	for name, change := range map[string]func(*ocm.Archive, *Options){
		"Tar":       func(*ocm.Archive, *Options) {},
		"Plain":     func(a *ocm.Archive, _ *Options) { a.Tar = false },
		"Subpath":   func(_ *ocm.Archive, o *Options) { o.Subpath = "/kyma/modules/" },
		"Scheme":    func(_ *ocm.Archive, o *Options) { o.Host = "http://" + o.Host + "/" },
		"PathInURL": func(_ *ocm.Archive, o *Options) { o.Host += "/kyma" },
		"Build":     func(a *ocm.Archive, _ *Options) { a.Version = "1.2.3-rc1+build.5" },
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			archive, opts := sampleArchive(), Options{Host: s.host()}
			change(&archive, &opts)
			r, _ := openRegistry(t, opts)
			push(t, r, archive)
			got, err := r.Component(t.Context(), archive.Name, archive.Version)
			if err != nil {
				t.Fatal(err)
			}
			wantType, wantRaw := OCIDir, archive.RawManifest
			if !archive.Tar {
				wantType = OCIRef
			} else if wantRaw, err = ocm.TarFile("sample.yaml", 0o644, wantRaw); err != nil {
				t.Fatal(err)
			}
			repo := s.host()
			if sub := strings.Trim(opts.Subpath, "/"); sub != "" {
				repo += "/" + sub
			}
			if strings.HasSuffix(opts.Host, "/kyma") {
				repo += "/kyma"
			}
			want := Layer{Name: "raw-manifest", Repo: repo, Component: component, Version: archive.Version,
				Ref: ocm.DigestOf(wantRaw), Type: wantType}
			if diff := cmp.Diff(want, got.Layers["raw-manifest"]); diff != "" {
				t.Errorf("raw-manifest (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(archive.Images, got.Images); diff != "" {
				t.Errorf("images (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff([]string{"default-cr", "raw-manifest"},
				slices.Sorted(maps.Keys(got.Layers))); diff != "" {
				t.Errorf("layers (-want +got)\n%s", diff)
			}
			data, digest, err := r.Fetch(t.Context(), got.Layers["raw-manifest"])
			if err != nil || !bytes.Equal(data, wantRaw) || digest != want.Ref {
				t.Errorf("got %q with %s, %v", data, digest, err)
			}
		})
	}
}

// TestPushLayout checks that a pushed component version has the layout that other tools expect.
func TestPushLayout(t *testing.T) {
	s := newServer(t)
	r, _ := openRegistry(t, Options{Host: "http://" + s.host(), Subpath: "sub/path"})
	digest := push(t, r, sampleArchive())
	get := func(path string) []byte {
		response, err := http.Get(s.URL + "/v2/sub/path/component-descriptors/" + component + "/" + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		data, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(path, response.Status, err)
		}
		return data
	}
	raw := get("manifests/1.2.3")
	if ocm.DigestOf(raw) != digest || ocm.DigestOf(get("manifests/"+digest)) != digest {
		t.Error("Push returns another digest than the manifest's")
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if manifest.MediaType != "application/vnd.oci.image.manifest.v1+json" ||
		manifest.Config.MediaType != ocm.ConfigType ||
		manifest.Annotations["software.ocm.componentversion"] != component+":1.2.3" {
		t.Errorf("manifest is %s", raw)
	}
	var config struct{ ComponentDescriptorLayer v1.Descriptor }
	if err := json.Unmarshal(get("blobs/"+manifest.Config.Digest.String()), &config); err != nil {
		t.Fatal(err)
	}
	first := manifest.Layers[0]
	if config.ComponentDescriptorLayer.Digest != first.Digest ||
		config.ComponentDescriptorLayer.MediaType != wantDescriptorType ||
		config.ComponentDescriptorLayer.Size != first.Size {
		t.Errorf("config names %v, layer 0 is %v", config.ComponentDescriptorLayer, first)
	}
	notes := []string{"", `[{"identity":{"name":"raw-manifest"},"kind":"resource"}]`,
		`[{"identity":{"name":"default-cr"},"kind":"resource"}]`}
	files := []string{wantDescriptorFile, "sample.yaml", "default-cr.yaml"}
	modes := []int64{0, 0o644, 0o644}
	var text []byte
	for i, layer := range manifest.Layers {
		if layer.Annotations[wantArtifactAnnotation] != notes[i] {
			t.Errorf("layer %d has annotations %v", i, layer.Annotations)
		}
		archive := tar.NewReader(bytes.NewReader(get("blobs/" + layer.Digest.String())))
		header, err := archive.Next()
		if err != nil {
			t.Fatal(err)
		}
		if header.Name != files[i] || header.Mode != modes[i] || header.Format != tar.FormatUSTAR ||
			!header.ModTime.Equal(time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("layer %d is %v", i, header)
		}
		if i == 0 {
			if text, err = io.ReadAll(archive); err != nil {
				t.Fatal(err)
			}
		}
	}
	var descriptor map[string]any
	if err := yaml.Unmarshal(text, &descriptor); err != nil {
		t.Fatal(err)
	}
	local := func(i int, name string) map[string]any {
		layer := manifest.Layers[i].Digest
		return map[string]any{
			"name": name, "version": "1.2.3", "type": "directoryTree", "relation": "local",
			"access": map[string]any{"type": "localBlob", "localReference": layer.String(),
				"mediaType": "application/x-tar"},
			"digest": map[string]any{"hashAlgorithm": "SHA-256", "normalisationAlgorithm": "genericBlobDigest/v1",
				"value": layer.Hex},
		}
	}
	image := func(name, version, reference string) map[string]any {
		return map[string]any{"name": name, "version": version, "type": "ociArtifact", "relation": "external",
			"labels": []any{map[string]any{"name": "scan.security.kyma-project.io/type",
				"value": "third-party-image", "version": "v1"}},
			"access": map[string]any{"type": "ociArtifact", "imageReference": reference}}
	}
	want := map[string]any{"meta": map[string]any{"schemaVersion": "v2"}, "component": map[string]any{
		"name": component, "version": "1.2.3", "componentReferences": []any{}, "sources": []any{},
		"provider": `{"labels":[{"name":"kyma-project.io/built-by","value":"lifecycle-manager","version":"v1"}],"name":"kyma-project.io"}`,
		"labels": []any{map[string]any{"name": "operator.kyma-project.io/beta", "value": "false", "version": "v1"},
			map[string]any{"name": "responsibles", "value": []any{map[string]any{"teamname": "x"}}, "version": "v1"}},
		"repositoryContexts": []any{map[string]any{"type": "OCIRegistry", "baseUrl": s.URL, "subPath": "sub/path",
			"componentNameMapping": "urlPath"}},
		"resources": []any{image("op", "1.2.3", "europe-docker.pkg.dev/p/op:1.2.3"),
			image("side-abababab", "0.0.0+sha256.abababababab", "r.io/side@sha256:"+strings.Repeat("ab", 32)),
			local(1, "raw-manifest"), local(2, "default-cr")},
	}}
	if diff := cmp.Diff(want, descriptor); diff != "" {
		t.Errorf("descriptor (-want +got)\n%s", diff)
	}
}

func TestPushReproducible(t *testing.T) {
	var digests []string
	for range 3 {
		r, _ := openRegistry(t, Options{Host: newServer(t).host()})
		a := sampleArchive()
		a.RepositoryContext, a.Provider = "https://registry.example.com", "example.com"
		digests = append(digests, push(t, r, a), push(t, r, a))
	}
	if len(slices.Compact(digests)) != 1 {
		t.Errorf("digests differ: %v", digests)
	}
}

func TestPushReplaces(t *testing.T) {
	s := newServer(t)
	r, _ := openRegistry(t, Options{Host: s.host()})
	if _, err := r.Component(t.Context(), component, "1.2.3"); reason(err) != ocm.ArtifactNotFound {
		t.Fatal(err)
	}
	a := sampleArchive()
	for _, content := range []string{"first", "second"} {
		a.RawManifest = []byte(content)
		push(t, r, a)
		c, err := r.Component(t.Context(), component, "1.2.3")
		if err != nil {
			t.Fatal(err)
		}
		if data, _, err := r.Fetch(t.Context(), c.Layers["raw-manifest"]); err != nil ||
			!strings.Contains(string(data), content) {
			t.Errorf("after pushing %q: %v", content, err)
		}
	}
}

func TestPushErrors(t *testing.T) {
	s := newServer(t)
	r, _ := openRegistry(t, Options{Host: s.host()})
	for name, tc := range map[string]struct {
		change func(*ocm.Archive)
		want   string
	}{
		"Name":       {func(a *ocm.Archive) { a.Name = "Upper/Case" }, ocm.InvalidReference},
		"NoName":     {func(a *ocm.Archive) { a.Name = "" }, ocm.InvalidReference},
		"Version":    {func(a *ocm.Archive) { a.Version = "a/b" }, ocm.InvalidReference},
		"NoVersion":  {func(a *ocm.Archive) { a.Version = "" }, ocm.InvalidReference},
		"NoManifest": {func(a *ocm.Archive) { a.RawManifest = nil }, ocm.InvalidDescriptor},
		"LongFile":   {func(a *ocm.Archive) { a.ManifestFile = strings.Repeat("a", 300) }, ocm.InvalidDescriptor},
		"Label": {func(a *ocm.Archive) { a.Labels = []ocm.Label{{Name: "x", Value: func() {}}} },
			ocm.InvalidDescriptor},
	} {
		a := sampleArchive()
		tc.change(&a)
		_, err := r.Push(t.Context(), a)
		if reason(err) != tc.want {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		}
	}
	if got := s.takeRequests(); len(got) > 0 {
		t.Errorf("requests were made: %v", got)
	}
	s.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		return r.Method != http.MethodGet
	})
	_, err := r.Push(t.Context(), sampleArchive())
	wantReason(t, err, ocm.RegistryUnauthorized)
	s.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		refused := strings.Contains(r.URL.Path, "/manifests/")
		if refused {
			w.WriteHeader(http.StatusForbidden)
		}
		return refused
	})
	_, err = r.Push(t.Context(), sampleArchive())
	wantReason(t, err, ocm.RegistryUnauthorized)
	r.opts.Keychain = brokenKeychain{}
	_, err = r.Push(t.Context(), sampleArchive())
	wantReason(t, err, ocm.RegistryUnauthorized)
}

// TestRequests counts the requests to the registry. The test checks that 100 concurrent callers cause only one pull,
// and that later calls use the cache and send no request.
func TestRequests(t *testing.T) {
	s := newServer(t)
	writer, _ := openRegistry(t, Options{Host: s.host()})
	push(t, writer, sampleArchive())
	s.takeRequests()

	r, _ := openRegistry(t, Options{Host: "http://registry.example.com", Transport: s.transport(t)})
	pull := func() error {
		c, err := r.Component(t.Context(), component, "1.2.3")
		if err != nil {
			return err
		}
		for _, name := range []string{"raw-manifest", "default-cr"} {
			if _, _, err := r.Fetch(t.Context(), c.Layers[name]); err != nil {
				return err
			}
		}
		return nil
	}
	// The first response is delayed until all callers wait for it.
	var callers sync.WaitGroup
	var started sync.WaitGroup
	started.Add(100)
	s.setFault(func(http.ResponseWriter, *http.Request) bool { started.Wait(); return false })
	for range 100 {
		callers.Go(func() {
			started.Done()
			if err := pull(); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	got := s.takeRequests()
	count := map[string]int{}
	for _, request := range got {
		count[strings.Split(strings.Split(request, "/v2/")[1], "@")[0]]++
	}
	// The component needs four requests: sign-in, manifest, config and descriptor. Each of the two layers needs two
	// requests: sign-in and blob.
	if len(got) != 8 || count[""] != 3 {
		t.Errorf("100 callers cost %d requests, want 8: %v", len(got), got)
	}
	for range 10 {
		if err := pull(); err != nil {
			t.Error(err)
		}
	}
	if got := s.takeRequests(); len(got) > 0 {
		t.Errorf("what is known costs requests: %v", got)
	}
	if s.conns > 20 {
		t.Errorf("%d connections", s.conns)
	}
}

// TestFaults makes the registry return a wrong response to one of the requests of a pull.
func TestFaults(t *testing.T) {
	answer := func(status int, body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	truncated := func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, "short")
	}
	cut := func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	endless := func(w http.ResponseWriter) {
		for range 200 {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}
	cases := map[string]struct {
		part   string // of the path
		answer func(http.ResponseWriter)
		want   string
		text   string
	}{
		"WrongManifest": {"/manifests/", func(w http.ResponseWriter) {
			w.Header().Set("Docker-Content-Digest", ocm.DigestOf(nil))
			answer(200, "{}")(w)
		}, ocm.DigestMismatch, "1.2.3"},
		"ManifestText": {"/manifests/", answer(200, "hello"), ocm.InvalidDescriptor, "not JSON"},
		"ManifestIndex": {"/manifests/", answer(
			200, `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`),
			ocm.InvalidDescriptor, "index"},
		"ManifestEndless": {"/manifests/", endless, ocm.ArtifactTooLarge, "4194304"},
		"WrongBlob":       {"/blobs/", answer(200, "wrong bytes"), ocm.DigestMismatch, "@sha256:"},
		"Truncated":       {"/blobs/", truncated, ocm.RegistryUnreachable, "EOF"},
		"Cut":             {"/blobs/", cut, ocm.RegistryUnreachable, "EOF"},
		"Endless":         {"/blobs/", endless, ocm.ArtifactTooLarge, "65536"},
		"Announced": {"/blobs/", func(w http.ResponseWriter) { w.Header().Set("Content-Length", "99999999999") },
			ocm.ArtifactTooLarge, "65536"},
		"Unauthorized": {"/blobs/", answer(401, `{"errors":[{"code":"UNAUTHORIZED","message":"who are you"}]}`),
			ocm.RegistryUnauthorized, "who are you"},
		"Forbidden":   {"/blobs/", answer(403, ""), ocm.RegistryUnauthorized, "403 Forbidden"},
		"Gone":        {"/blobs/", answer(404, ""), ocm.ArtifactNotFound, "404"},
		"TooMany":     {"/blobs/", answer(429, ""), ocm.RegistryUnreachable, "429"},
		"Internal":    {"/blobs/", answer(500, "<html>\nlong story</html>"), ocm.RegistryUnreachable, "500"},
		"Unwilling":   {"/blobs/", answer(400, ""), ocm.InvalidReference, "400"},
		"SignInFails": {"/v2/", answer(503, ""), ocm.RegistryUnreachable, "503"},
		"SignInOdd": {"/v2/", func(w http.ResponseWriter) {
			w.Header().Set("WWW-Authenticate", "Bearer service=x")
			w.WriteHeader(401)
		}, ocm.RegistryUnreachable, "realm"},
		"Chatter": {"/blobs/", answer(403, `{"errors":[{"code":"DENIED","message":"`+strings.Repeat(
			"é\\n", 500)+`"}]}`), ocm.RegistryUnauthorized, "DENIED"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			r, c := openRegistry(t, Options{Host: "http://" + s.host()})
			push(t, r, sampleArchive())
			s.setFault(func(w http.ResponseWriter, r *http.Request) bool {
				hit := strings.Contains(r.URL.Path, tc.part) && (tc.part != "/v2/" || r.URL.Path == "/v2/")
				if hit {
					tc.answer(w)
				}
				return hit
			})
			_, err := r.Component(t.Context(), component, "1.2.3")
			wantReason(t, err, tc.want)
			if err != nil && (!strings.Contains(err.Error(), tc.text) ||
				!strings.Contains(err.Error(), s.host()+"/component-descriptors/"+component)) ||
				len(err.Error()) > 700 {
				t.Errorf("the text is %q", err)
			}
			s.takeRequests()
			if _, again := r.Component(t.Context(), component, "1.2.3"); again == nil || len(s.takeRequests()) > 0 {
				t.Error("the same error again costs requests")
			}
			s.setFault(nil)
			c.forward(errorCachePeriod)
			if _, err := r.Component(t.Context(), component, "1.2.3"); err != nil {
				t.Errorf("it does not heal: %v", err)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	const host = "127.0.0.1:1" // nobody listens there; a port that was closed may be used again by another program
	for name, tc := range map[string]struct{ host, text string }{
		"Refused": {"http://" + host, "refused"}, "RefusedLocal": {host, "refused"},
		"Name": {"http://no.invalid", "invalid"}} {
		t.Run(name, func(t *testing.T) {
			r, _ := openRegistry(t, Options{Host: tc.host})
			if name == "Name" { // a test must not use a real name server
				r.opts.Transport = &http.Transport{DialContext: func(context.Context, string,
					string) (net.Conn, error) {
					return nil, &net.DNSError{Err: "no such host", Name: "no.invalid", IsNotFound: true}
				}}
			}
			_, err := r.Component(t.Context(), component, "1.2.3")
			wantReason(t, err, ocm.RegistryUnreachable)
			if err == nil || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestSlow cancels one caller while another caller waits for the same pull.
func TestSlow(t *testing.T) {
	s := newServer(t)
	r, _ := openRegistry(t, Options{Host: "http://" + s.host()})
	push(t, r, sampleArchive())
	arrived, proceed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.setFault(func(http.ResponseWriter, *http.Request) bool {
		once.Do(func() { close(arrived) })
		<-proceed
		return false
	})
	impatient, cancel := context.WithCancel(t.Context())
	deadline, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	results := make(chan error, 3)
	go func() { _, err := r.Component(impatient, component, "1.2.3"); results <- err }()
	<-arrived
	_, err := r.Component(deadline, component, "1.2.3")
	wantReason(t, err, ocm.RegistryUnreachable)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	cancel()
	if err := <-results; !errors.Is(err, context.Canceled) || reason(err) != "" {
		t.Errorf("a caller who gave up got %v", err)
	}
	go func() { _, err := r.Component(t.Context(), component, "1.2.3"); results <- err }()
	close(proceed)
	if err := <-results; err != nil {
		t.Errorf("a cancelled caller's error reached another: %v", err)
	}
}

// TestTimeout checks that a pull from a registry that never responds ends after 30 seconds.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Options{Host: "http://registry.example.com",
			Transport: roundTripper(func(request *http.Request) (*http.Response, error) {
				<-request.Context().Done()
				return nil, request.Context().Err()
			})})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err = r.Component(t.Context(), component, "1.2.3")
		wantReason(t, err, ocm.RegistryUnreachable)
		if waited := time.Since(start); waited != pullTimeout {
			t.Errorf("waited %v", waited)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestPlainHTTP checks that requests to a host with the prefix http:// are sent without TLS, even if the host is not
// local.
func TestPlainHTTP(t *testing.T) {
	s := newServer(t)
	var schemes []string
	var mu sync.Mutex
	transport := s.transport(t)
	r, _ := openRegistry(t, Options{Host: "http://registry.example.com",
		Transport: roundTripper(func(request *http.Request) (*http.Response, error) {
			mu.Lock()
			schemes = append(schemes, request.URL.Scheme)
			mu.Unlock()
			return transport.RoundTrip(request)
		})})
	push(t, r, sampleArchive())
	c, err := r.Component(t.Context(), component, "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	layer := c.Layers["raw-manifest"]
	if layer.Repo != "registry.example.com" {
		t.Errorf("repo is %q", layer.Repo)
	}
	if _, _, err := r.Fetch(t.Context(), layer); err != nil {
		t.Error(err)
	}
	layer = c.Layers["default-cr"]
	layer.Repo = "http://other.example.com"
	if _, _, err := r.Fetch(t.Context(), layer); err != nil {
		t.Errorf("a layer with its own http:// repository: %v", err)
	}
	if slices.Contains(schemes, "https") {
		t.Errorf("TLS was tried: %v", schemes)
	}
	layer.Repo, layer.Ref = "other.example.com", ocm.DigestOf([]byte("not cached"))
	_, _, err = r.Fetch(t.Context(), layer)
	wantReason(t, err, ocm.RegistryUnreachable)
	if !slices.Contains(schemes, "https") {
		t.Error("another host inherits plain HTTP")
	}
}

func TestFallbackRepository(t *testing.T) {
	s := newServer(t)
	r, _ := openRegistry(t, Options{Host: "http://" + s.host()})
	blob := []byte("layer")
	putBlob(t, s, "charts/sample", blob)
	layer := Layer{Repo: s.host(), Component: "charts/sample", Ref: ocm.DigestOf(blob)}
	if data, _, err := r.Fetch(t.Context(), layer); err != nil || string(data) != "layer" {
		t.Errorf("got %q, %v", data, err)
	}
	// If a repository does not exist, some registries respond with 403.
	s.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		hidden := strings.Contains(r.URL.Path, "component-descriptors")
		if hidden {
			w.WriteHeader(http.StatusForbidden)
		}
		return hidden
	})
	r, _ = openRegistry(t, Options{Host: "http://" + s.host()})
	if _, _, err := r.Fetch(t.Context(), layer); err != nil {
		t.Errorf("behind a forbidden repository: %v", err)
	}
	layer.Ref = ocm.DigestOf([]byte("nowhere"))
	_, _, err := r.Fetch(t.Context(), layer)
	wantReason(t, err, ocm.RegistryUnauthorized)
	s.setFault(nil)
	layer.Ref = ocm.DigestOf([]byte("nowhere else"))
	_, _, err = r.Fetch(t.Context(), layer)
	wantReason(t, err, ocm.ArtifactNotFound)
	if !strings.Contains(err.Error(), "/component-descriptors/charts/sample@") {
		t.Errorf("the first place is not named: %v", err)
	}
}

// putBlob stores a blob in the registry, as any client would.
func putBlob(t *testing.T, s *server, repo string, data []byte) string {
	t.Helper()
	return send(t, http.MethodPost, s.URL+"/v2/"+repo+"/blobs/uploads/?digest="+url.QueryEscape(ocm.DigestOf(data)),
		data)
}

func send(t *testing.T, method, url string, data []byte) string {
	t.Helper()
	request, err := http.NewRequest(method, url, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		t.Fatal(url, response.Status)
	}
	return ocm.DigestOf(data)
}

// putImage stores an image manifest with some layers under a tag.
func putImage(t *testing.T, s *server, repo, tag string, config []byte, layers ...v1.Descriptor) {
	t.Helper()
	hash, _ := v1.NewHash(putBlob(t, s, repo, config))
	if layers == nil {
		layers = []v1.Descriptor{}
	}
	manifest, err := json.Marshal(v1.Manifest{SchemaVersion: 2, MediaType: "application/vnd.oci.image.manifest.v1+json",
		Config: v1.Descriptor{MediaType: ocm.ConfigType, Digest: hash, Size: int64(len(config))}, Layers: layers})
	if err != nil {
		t.Fatal(err)
	}
	send(t, http.MethodPut, s.URL+"/v2/"+repo+"/manifests/"+tag, manifest)
}

func layerOfBytes(t *testing.T, s *server, repo string, data []byte, resource string) v1.Descriptor {
	t.Helper()
	hash, _ := v1.NewHash(putBlob(t, s, repo, data))
	d := v1.Descriptor{MediaType: "application/x-tar", Digest: hash, Size: int64(len(data))}
	if resource != "" {
		d.Annotations = map[string]string{wantArtifactAnnotation: `[{"kind":"resource","identity":{"name":"` +
			resource + `"}}]`}
	}
	return d
}

// TestVersionsInPages checks that Versions reads all pages of tags, or returns an error, but never a part of the list.
func TestVersionsInPages(t *testing.T) {
	const list = "/v2/component-descriptors/example.com/module/sample/tags/list"
	cases := map[string]struct {
		link   string // of each page, with the number of the next page; the last page has none
		pages  int
		want   int
		reason string
	}{
		"One":      {"", 1, 2, ""},
		"Relative": {`<` + list + `?n=2&last=%d>; rel="next"`, 3, 6, ""},
		"Several":  {`</other>; rel="first", <` + list + `?n=2&last=%d>; title="a"; rel=next`, 3, 6, ""},
		"Endless":  {`<` + list + `?n=2&last=%d>; rel="next"`, 1 << 30, 0, ocm.ArtifactTooLarge},
		"Path":     {`</v2/other/tags/list?n=2&last=%d>; rel="next"`, 3, 0, ocm.RegistryUnreachable},
		"Host":     {`<http://127.0.0.2` + list + `?n=2&last=%d>; rel="next"`, 3, 0, ocm.RegistryUnreachable},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.setFault(func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != list {
					return false
				}
				page, _ := strconv.Atoi(r.URL.Query().Get("last"))
				if page+1 < c.pages {
					w.Header().Set("Link", fmt.Sprintf(c.link, page+1))
				}
				_, _ = fmt.Fprintf(w, `{"tags":["1.%d.0","1.%d.1"]}`, page, page)
				return true
			})
			r, _ := openRegistry(t, Options{Host: s.host()})
			got, err := r.Versions(t.Context(), "example.com/module/sample")
			if len(got) != c.want || reason(err) != c.reason {
				t.Errorf("%d versions %q, error %v; want %d, reason %q", len(got), got, err, c.want, c.reason)
			}
		})
	}
}

func TestTags(t *testing.T) {
	s := newServer(t)
	r, c := openRegistry(t, Options{Host: "http://" + s.host()})
	fetch := func(component, ref, resource string) (string, error) {
		data, digest, err := r.Fetch(t.Context(), Layer{Name: resource, Component: component, Ref: ref})
		if err == nil && digest != ocm.DigestOf(data) {
			t.Errorf("the digest is %s", digest)
		}
		return string(data), err
	}
	putImage(t, s, "one", "1.0.build-5", []byte("{}"), layerOfBytes(t, s, "one", []byte("first"), ""))
	if got, err := fetch("one", "1.0+5", "any"); err != nil || got != "first" {
		t.Errorf("got %q, %v", got, err)
	}
	putImage(t, s, "one", "1.0.build-5", []byte("{}"), layerOfBytes(t, s, "one", []byte("second"), ""))
	s.takeRequests()
	if got, err := fetch("one", "1.0+5", "any"); err != nil || got != "first" || len(s.takeRequests()) > 0 {
		t.Errorf("within a minute: got %q, %v", got, err)
	}
	c.forward(tagCachePeriod)
	if got, err := fetch("one", "1.0+5", "any"); err != nil || got != "second" {
		t.Errorf("after a minute: got %q, %v", got, err)
	}
	putImage(t, s, "many", "1.0", []byte("{}"), layerOfBytes(t, s, "many", []byte("a"), "raw-manifest"),
		layerOfBytes(t, s, "many", []byte("b"), "config"))
	if got, err := fetch("many", "1.0", "config"); err != nil || got != "b" {
		t.Errorf("got %q, %v", got, err)
	}
	_, err := fetch("many", "1.0", "other")
	wantReason(t, err, ocm.InvalidReference)
	_, err = fetch("many", "2.0", "config")
	wantReason(t, err, ocm.ArtifactNotFound)
}

// TestRetry checks that the registry is read again after a person has requested a retry, and that the new result is
// returned from then on.
func TestRetry(t *testing.T) {
	s := newServer(t)
	r, c := openRegistry(t, Options{Host: "http://" + s.host()})
	layer := Layer{Name: "any", Component: "one", Ref: "1.0"}
	_, _, err := r.Fetch(t.Context(), layer)
	wantReason(t, err, ocm.ArtifactNotFound)
	putImage(t, s, "one", "1.0", []byte("{}"), layerOfBytes(t, s, "one", []byte("first"), ""))
	_, _, err = r.Fetch(t.Context(), layer)
	wantReason(t, err, ocm.ArtifactNotFound)
	c.forward(time.Millisecond)
	again := retry.WithTime(t.Context(), c.now())
	if got, _, err := r.Fetch(again, layer); err != nil || string(got) != "first" {
		t.Errorf("a remembered failure: got %q, %v", got, err)
	}
	putImage(t, s, "one", "1.0", []byte("{}"), layerOfBytes(t, s, "one", []byte("second"), ""))
	s.takeRequests()
	if got, _, err := r.Fetch(again, layer); err != nil || string(got) != "first" || len(s.takeRequests()) > 0 {
		t.Errorf("the answer of the retry itself: got %q, %v", got, err)
	}
	c.forward(time.Millisecond)
	if got, _, err := r.Fetch(retry.WithTime(t.Context(), c.now()), layer); err != nil || string(got) != "second" {
		t.Errorf("a tag that leads to another layer: got %q, %v", got, err)
	}
}

// TestReplacedComponent pushes other content under the same version. Component must return the new content after
// componentCachePeriod, or earlier if the caller requests a retry. While the registry does not respond, the earlier
// content is used.
func TestReplacedComponent(t *testing.T) {
	s := newServer(t)
	r, c := openRegistry(t, Options{Host: "http://" + s.host()})
	author, _ := openRegistry(t, Options{Host: "http://" + s.host()})
	content := func(ctx context.Context) string {
		t.Helper()
		got, err := r.Component(ctx, component, "1.2.3")
		if err != nil {
			t.Fatal(err)
		}
		return got.Content
	}
	push(t, author, sampleArchive())
	first := content(t.Context())
	other := sampleArchive()
	other.RawManifest = []byte(manifestYAML + "data: {}\n")
	push(t, author, other)
	if got := content(t.Context()); got != first {
		t.Errorf("a cached component: got %s, want %s", got, first)
	}
	c.forward(time.Millisecond)
	second := content(retry.WithTime(t.Context(), c.now()))
	if second == first {
		t.Error("a retry does not find the other content")
	}
	push(t, author, sampleArchive())
	c.forward(componentCachePeriod)
	s.setFault(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	if got := content(t.Context()); got != second {
		t.Errorf("without a registry: got %s, want %s", got, second)
	}
	s.setFault(nil)
	s.takeRequests()
	if got := content(t.Context()); got != second || len(s.takeRequests()) > 0 {
		t.Errorf("after that, the registry is asked before the next period, or it is %s", got)
	}
	c.forward(componentCachePeriod)
	if got := content(t.Context()); got != first {
		t.Errorf("after the period: got %s, want %s", got, first)
	}
}

func TestReferences(t *testing.T) {
	s := newServer(t)
	r, _ := openRegistry(t, Options{Host: s.host()})
	good := ocm.DigestOf(nil)
	for name, layer := range map[string]Layer{
		"NoRef": {
			Component: "a"}, "Tag": {Component: "a",
			Ref: "a/b"}, "DotDotTag": {Component: "a",
			Ref: ".."}, "LongTag": {Component: "a",
			Ref: strings.Repeat("a", 129),
		},
		"ShortDigest": {
			Component: "a",
			Ref:       "sha256:12"}, "OtherDigest": {Component: "a",
			Ref: "md5:" + strings.Repeat("a", 32)}, "Upper": {Component: "a",
			Ref: strings.ToUpper(good),
		},
		"NoName": {
			Ref: good}, "UpperName": {Component: "A",
			Ref: good}, "Traversal": {Component: "../../x",
			Ref: good}, "Query": {Component: "a?b",
			Ref: good,
		},
		"Repo": {
			Repo:      "a b",
			Component: "a",
			Ref:       good}, "NoHost": {Repo: "https://",
			Component: "a",
			Ref:       good}, "Credentials": {Repo: "http://u:secret@" + s.host(),
			Component: "a",
			Ref:       good,
		},
	} {
		_, _, err := r.Fetch(t.Context(), layer)
		if reason(err) != ocm.InvalidReference || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for name, version := range map[string][2]string{"Name": {"A b", "1"}, "Traversal": {"a/../b", "1"},
		"Version": {"a", ""}, "Slash": {"a", "1/2"}, "Lines": {"a", "1\n2"}} {
		_, err := r.Component(t.Context(), version[0], version[1])
		if reason(err) != ocm.InvalidReference || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if got := s.takeRequests(); len(got) > 0 {
		t.Errorf("requests were made: %v", got)
	}
	for name, opts := range map[string]Options{
		"Empty": {}, "OnlyScheme": {Host: "http://"}, "Blank": {Host: "a b"},
		"Credentials": {Host: "https://user:secret@r.io"}, "Subpath": {Host: "r.io", Subpath: "A/B"},
		"DotDot": {Host: "r.io", Subpath: "../b"}, "Scheme": {Host: "ftp://r.io"},
	} {
		_, err := New(opts)
		if reason(err) != ocm.InvalidReference || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func tarOf(t *testing.T, entries ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(entries); i += 2 {
		if err := w.WriteHeader(&tar.Header{Name: entries[i], Size: int64(len(entries[i+1])),
			Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(entries[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipOf(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(data)
	_ = w.Close()
	return b.Bytes()
}

const descriptorV2 = `
meta: {schemaVersion: v2}
component:
  name: a
  version: 1.0.0
  resources:
  - {name: raw-manifest, access: {type: localBlob/v1, localReference: "sha256:1", mediaType: application/x-tar}}
  - {name: default-cr, access: {type: localOciBlob, digest: "sha256:2", mediaType: application/octet-stream}}
  - {name: config, access: {type: localBlob}}
  - {name: op, access: {type: ociArtifact, imageReference: r.io/op:1}}
  - {name: op2, access: {type: ociArtifact/v1, imageReference: r.io/op2:1}}
  - {name: op3, access: {type: ociRegistry, imageReference: r.io/op3:1}}
  - {name: op4, access: {type: ociImage, imageReference: r.io/op4:1}}
  - {name: op5, access: {type: OCIImage/v1, imageReference: r.io/op5:1}}
  - {name: nothing, access: {type: none}}
`

const descriptorV3 = `{"apiVersion":"ocm.software/v3alpha1","kind":"ComponentVersion","metadata":{"name":"a","version":"1.0.0"},"repositoryContexts":[],
"spec":{"resources":[{"name":"raw-manifest","access":{"type":"localBlob","localReference":"sha256:1"}},{"name":"op","access":{"type":"ociArtifact","imageReference":"r.io/op:1"}}]}}`

func TestDescriptors(t *testing.T) {
	v2 := Component{Name: "a", Version: "1.0.0", Images: []string{"r.io/op:1"},
		Order: []string{"raw-manifest", "default-cr", "config"},
		Layers: map[string]Layer{
			"raw-manifest": {Name: "raw-manifest", Component: "a", Version: "1.0.0", Ref: "sha256:1", Type: OCIDir},
			"default-cr":   {Name: "default-cr", Component: "a", Version: "1.0.0", Ref: "sha256:2", Type: OCIRef},
			"config":       {Name: "config", Component: "a", Version: "1.0.0", Ref: "1.0.0", Type: OCIRef},
		}}
	v3 := Component{Name: "a", Version: "1.0.0", Images: v2.Images, Order: []string{"raw-manifest"},
		Layers: map[string]Layer{"raw-manifest": {Name: "raw-manifest", Component: "a", Version: "1.0.0",
			Ref: "sha256:1", Type: OCIRef}}}
	big := descriptorV2 + "#" + strings.Repeat("x", 200<<10)
	for name, tc := range map[string]struct {
		layer  []byte
		config string // "" means the right one
		want   *Component
		reason string
		text   string
	}{
		"Tar":      {layer: tarOf(t, wantDescriptorFile, descriptorV2), want: &v2},
		"TarGzip":  {layer: gzipOf(tarOf(t, wantDescriptorFile, descriptorV2)), want: &v2},
		"TarOther": {layer: tarOf(t, "README", "x", "./"+wantDescriptorFile, descriptorV2), want: &v2},
		"YAML":     {layer: []byte(descriptorV2), want: &v2},
		"YAMLGzip": {layer: gzipOf([]byte(descriptorV2)), want: &v2},
		"V3":       {layer: tarOf(t, wantDescriptorFile, descriptorV3), want: &v3},
		"NoContexts": {
			layer: []byte(strings.Replace(descriptorV2, "  version: 1.0.0",
				"  version: 1.0.0\n  repositoryContexts: []", 1)),
			want: &v2,
		},
		"OtherContexts": {
			layer: []byte(strings.Replace(descriptorV2, "  version: 1.0.0",
				"  version: 1.0.0\n  repositoryContexts: [{type: S3, bucket: b}]", 1)),
			want: &v2,
		},
		"V3JSON": {layer: []byte(descriptorV3), want: &v3},
		"NoFile": {
			layer:  tarOf(t, "other.yaml", descriptorV2),
			reason: ocm.InvalidDescriptor,
			text:   wantDescriptorFile,
		},
		"Escaping": {
			layer:  tarOf(t, "../"+wantDescriptorFile, descriptorV2, "/"+wantDescriptorFile, descriptorV2),
			reason: ocm.InvalidDescriptor,
			text:   wantDescriptorFile,
		},
		"DamagedTar": {
			layer:  tarOf(t, "a", "b", wantDescriptorFile, descriptorV2)[:1100],
			reason: ocm.InvalidDescriptor,
			text:   "damaged",
		},
		"CutTar": {
			layer:  tarOf(t, wantDescriptorFile, descriptorV2)[:700],
			reason: ocm.InvalidDescriptor,
			text:   "damaged",
		},
		"DamagedGzip": {
			layer:  append([]byte{0x1f, 0x8b}, "xxxxxxxxxxxxxx"...),
			reason: ocm.InvalidDescriptor,
			text:   "gzip",
		},
		"Large":     {layer: tarOf(t, wantDescriptorFile, big), reason: ocm.ArtifactTooLarge, text: "102400"},
		"LargeText": {layer: []byte(big), reason: ocm.ArtifactTooLarge, text: "102400"},
		"LargeLayer": {
			layer:  tarOf(t, "a", strings.Repeat("x", 2<<20), wantDescriptorFile, descriptorV2),
			reason: ocm.ArtifactTooLarge,
			text:   "larger than",
		},
		"Bomb":        {layer: gzipOf(make([]byte, 20<<20)), reason: ocm.ArtifactTooLarge, text: "102400"},
		"NotYAML":     {layer: []byte("a: b: c"), reason: ocm.InvalidDescriptor, text: "not YAML"},
		"OldSchema":   {layer: []byte("meta: {schemaVersion: v1}"), reason: ocm.InvalidDescriptor, text: `"v1"`},
		"OtherSchema": {layer: []byte("apiVersion: ocm.software/v9"), reason: ocm.InvalidDescriptor, text: "v9"},
		"OtherName": {
			layer:  []byte(strings.Replace(descriptorV2, "name: a", "name: b", 1)),
			reason: ocm.InvalidDescriptor,
			text:   "b:1.0.0",
		},
		"OtherVersion": {
			layer:  []byte(strings.Replace(descriptorV2, "1.0.0", "2.0.0", 1)),
			reason: ocm.InvalidDescriptor,
			text:   "a:2.0.0",
		},
		"Access": {
			layer:  []byte(strings.Replace(descriptorV2, "localOciBlob", "s3", 1)),
			reason: ocm.AccessTypeNotSupported,
			text:   `"default-cr" has access type "s3"`,
		},
		"AccessOfOther": {
			layer:  []byte(descriptorV2 + "  - {name: docs, access: {type: gitHub, repoUrl: r, commit: c, version: 1}}\n"),
			reason: ocm.AccessTypeNotSupported,
			text:   `"docs" has access type "gitHub"`,
		},
		"ChartOfConfig": {
			layer: []byte(strings.Replace(descriptorV2, "{name: config, access: {type: localBlob}}",
				"{name: config, access: {type: helm, helmRepository: \"https://c\", helmChart: \"a:1.0.0\"}}", 1)),
			reason: ocm.AccessTypeNotSupported,
			text:   `"config" has access type "helm"`,
		},
		"ChartWithoutVersion": {
			layer: []byte(descriptorV2 +
				"  - {name: chart, access: {type: helm/v1, helmRepository: \"https://c\", helmChart: shop}}\n"),
			reason: ocm.InvalidDescriptor,
			text:   `"chart" with access type "helm/v1" has version "" of chart "shop"`,
		},
		"ChartTwice": {
			layer: []byte(descriptorV2 +
				"  - {name: config, access: {type: helm, helmRepository: \"https://c\", helmChart: \"a:1.0.0\"}}\n"),
			reason: ocm.InvalidDescriptor,
			text:   `two resources "config"`,
		},
		"NoAccess": {
			layer:  []byte(descriptorV2 + "  - {name: crds}\n"),
			reason: ocm.AccessTypeNotSupported,
			text:   `"crds"`,
		},
		"Twice": {
			layer:  []byte(descriptorV2 + "  - {name: config, access: {type: localBlob}}\n"),
			reason: ocm.InvalidDescriptor,
			text:   `"config"`,
		},
		"Config": {
			layer:  []byte(descriptorV2),
			config: "garbage",
			reason: ocm.InvalidDescriptor,
			text:   "componentDescriptorLayer",
		},
		"ConfigNull": {
			layer:  []byte(descriptorV2),
			config: "{}",
			reason: ocm.InvalidDescriptor,
			text:   "componentDescriptorLayer",
		},
		"ConfigDigest": {
			layer:  []byte(descriptorV2),
			config: `{"componentDescriptorLayer":{"digest":"../x"}}`,
			reason: ocm.InvalidDescriptor,
			text:   "no digest",
		},
		"ConfigMissing": {
			layer:  []byte(descriptorV2),
			config: `{"componentDescriptorLayer":{"digest":"` + ocm.DigestOf([]byte("gone")) + `"}}`,
			reason: ocm.ArtifactNotFound,
			text:   "@sha256:",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			repo := "component-descriptors/a"
			layer := layerOfBytes(t, s, repo, tc.layer, "")
			config := tc.config
			if config == "" {
				config = `{"componentDescriptorLayer":{"digest":"` + layer.Digest.String() + `"}}`
			}
			putImage(t, s, repo, "1.0.0", []byte(config), layer)
			r, _ := openRegistry(t, Options{Host: "http://" + s.host()})
			got, err := r.Component(t.Context(), "a", "1.0.0")
			if tc.want == nil {
				wantReason(t, err, tc.reason)
				if err == nil || !strings.Contains(err.Error(), tc.text) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			manifest, err := r.Artifact(t.Context(), repo, "1.0.0")
			if err != nil {
				t.Fatal(err)
			}
			want := *tc.want
			want.Digest, want.Content = manifest.Digest(), got.Content // see TestContent
			want.Layers = maps.Clone(want.Layers)
			for name, layer := range want.Layers {
				layer.Repo = s.host()
				want.Layers[name] = layer
			}
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestLayerTooLarge(t *testing.T) {
	s := newServer(t)
	r, _ := openRegistry(t, Options{Host: "http://" + s.host(), MaxLayerBytes: 100})
	for _, size := range []int{100, 101} {
		data := bytes.Repeat([]byte("x"), size)
		putBlob(t, s, "component-descriptors/a", data)
		_, _, err := r.Fetch(t.Context(), Layer{Component: "a", Ref: ocm.DigestOf(data)})
		if size == 100 && err != nil {
			t.Error(err)
		}
		if size == 101 {
			wantReason(t, err, ocm.ArtifactTooLarge)
		}
	}
}

// TestContent checks that the digest of the content changes if the installed objects change, and stays the same in all
// other cases.
func TestContent(t *testing.T) {
	chart := "  - {name: chart, access: {type: helm, helmRepository: \"https://c\", helmChart: \"shop:1.0.0\"}}\n"
	descriptorV2 := strings.Replace(descriptorV2, "config, access: {type: localBlob}",
		`config, access: {type: localBlob, localReference: "sha256:3"}`, 1)
	first := ""
	for _, tc := range []struct {
		reason, descriptor string
		want               bool // whether the digest equals the first digest
	}{
		{"the first", descriptorV2 + chart, true},
		{"a label", strings.Replace(descriptorV2, "  version: 1.0.0",
			"  version: 1.0.0\n  labels: [{name: a, value: b}]", 1) + chart, true},
		{"another place", strings.Replace(descriptorV2, "  version: 1.0.0",
			"  version: 1.0.0\n  repositoryContexts: [{type: OCIRegistry, baseUrl: r}]", 1) + chart, true},
		{"a signature", descriptorV2 + chart + "signatures: [{name: a}]\n", true},
		{"another layer", strings.Replace(descriptorV2, "sha256:1", "sha256:9", 1) + chart, false},
		{"another image", strings.Replace(descriptorV2, "op:1", "op:2", 1) + chart, false},
		{"another chart", descriptorV2 + strings.Replace(chart, "shop:1.0.0", "shop:1.0.1", 1), false},
		{"another repository", descriptorV2 + strings.Replace(chart, "https://c", "https://d", 1), false},
		{"one less", descriptorV2, false},
	} {
		s := newServer(t)
		repo := "component-descriptors/a"
		layer := layerOfBytes(t, s, repo, []byte(tc.descriptor), "")
		putImage(t, s, repo, "1.0.0", []byte(`{"componentDescriptorLayer":{"digest":"`+layer.Digest.String()+`"}}`), layer)
		r, _ := openRegistry(t, Options{Host: "http://" + s.host()})
		c, err := r.Component(t.Context(), "a", "1.0.0")
		if err != nil {
			t.Fatalf("%s: %v", tc.reason, err)
		}
		if first == "" {
			first = c.Content
		}
		if (c.Content == first) != tc.want || !strings.HasPrefix(c.Content, "sha256:") {
			t.Errorf("%s: %s, the first is %s", tc.reason, c.Content, first)
		}
	}
}

// TestCacheIsVerified changes bytes of a cached layer, as a bug in another package might do. The next Fetch must detect
// the change and pull the layer again.
func TestCacheIsVerified(t *testing.T) {
	s := newServer(t)
	r, _ := openRegistry(t, Options{Host: "http://" + s.host()})
	putBlob(t, s, "component-descriptors/a", []byte("content"))
	layer := Layer{Component: "a", Ref: ocm.DigestOf([]byte("content"))}
	data, _, err := r.Fetch(t.Context(), layer)
	if err != nil {
		t.Fatal(err)
	}
	data[0] = 'X'
	data, _, err = r.Fetch(t.Context(), layer)
	if err != nil || string(data) != "content" {
		t.Errorf("got %q, %v", data, err)
	}
}

func TestCacheLimit(t *testing.T) {
	s := newServer(t)
	r, _ := openRegistry(t, Options{Host: "http://" + s.host(), CacheBytes: 25})
	refs := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		refs[name] = putBlob(t, s, "component-descriptors/a", bytes.Repeat([]byte(name), 10))
	}
	refs["large"] = putBlob(t, s, "component-descriptors/a", bytes.Repeat([]byte("l"), 30))
	for i, step := range []struct {
		ref  string
		pull bool
	}{{"a", true}, {"b", true}, {"a", false}, {"c", true}, {"a", false}, {"b", true}, {"large", true},
		{"large", true}, {"b", false}} {
		s.takeRequests()
		if _, _, err := r.Fetch(t.Context(), Layer{Component: "a", Ref: refs[step.ref]}); err != nil {
			t.Fatal(err)
		}
		if pulled := len(s.takeRequests()) > 0; pulled != step.pull {
			t.Errorf("step %d, %s: pulled %v, want %v", i, step.ref, pulled, step.pull)
		}
	}
	if r.layers.used > 25 || r.layers.order.Len() != len(r.layers.entries) {
		t.Errorf("%d bytes in %d entries", r.layers.used, r.layers.order.Len())
	}
	off, _ := openRegistry(t, Options{Host: "http://" + s.host(), CacheBytes: -1})
	for range 2 {
		s.takeRequests()
		if _, _, err := off.Fetch(t.Context(), Layer{Component: "a", Ref: refs["a"]}); err != nil ||
			len(s.takeRequests()) == 0 {
			t.Errorf("without a cache: %v", err)
		}
	}
}

// TestSignIn uses a registry that requires a password, and tests each supported method of authentication.
func TestSignIn(t *testing.T) {
	for name, bearer := range map[string]bool{"Basic": false, "Bearer": true} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.setFault(func(w http.ResponseWriter, r *http.Request) bool {
				user, password, basic := r.BasicAuth()
				good := basic && user == "robot" && password == "s3cret"
				switch {
				case r.URL.Path == "/token" && good:
					_, _ = io.WriteString(w, `{"token":"t0ken"}`)
				case r.URL.Path != "/token" && (good && !bearer || bearer &&
					r.Header.Get("Authorization") == "Bearer t0ken"):
					return false
				default:
					w.Header().Set("WWW-Authenticate", "Basic")
					if bearer && r.URL.Path != "/token" {
						w.Header().Set("WWW-Authenticate", `Bearer realm="`+s.URL+`/token",service="s"`)
					}
					w.WriteHeader(http.StatusUnauthorized)
				}
				return true
			})
			keys := keychain{s.host(): {Username: "robot", Password: "s3cret"}}
			r, _ := openRegistry(t, Options{Host: "http://" + s.host(), Keychain: keys})
			push(t, r, sampleArchive())
			if _, err := r.Component(t.Context(), component, "1.2.3"); err != nil {
				t.Error(err)
			}
			for name, keys := range map[string]authn.Keychain{"None": nil,
				"Wrong": keychain{s.host(): {Username: "robot", Password: "wr0ng"}}, "Broken": brokenKeychain{}} {
				r, _ := openRegistry(t, Options{Host: "http://" + s.host(), Keychain: keys})
				_, err := r.Component(t.Context(), component, "1.2.3")
				wantReason(t, err, ocm.RegistryUnauthorized)
				if err != nil && (strings.Contains(err.Error(), "wr0ng") || strings.Contains(err.Error(), "token=")) {
					t.Errorf("%s: credentials in %v", name, err)
				}
			}
		})
	}
}

type keychain map[string]authn.AuthConfig

func (k keychain) Resolve(r authn.Resource) (authn.Authenticator, error) {
	return authn.FromConfig(k[r.RegistryStr()]), nil
}

type brokenKeychain struct{}

func (brokenKeychain) Resolve(authn.Resource) (authn.Authenticator, error) {
	return nil, errors.New("the Secret has no key .dockerconfigjson\nsecond line")
}

// TestRedirect checks two kinds of redirects: redirects of a registry to its blob storage are followed without the
// credentials of the registry, and redirects to forbidden addresses are refused.
func TestRedirect(t *testing.T) {
	data := []byte("stored elsewhere")
	var seen http.Header
	storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header
		_, _ = w.Write(data)
	}))
	t.Cleanup(storage.Close)
	s := newServer(t)
	to := ""
	s.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == "" {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		http.Redirect(w, r, to+"?X-Signature=s1gned", http.StatusTemporaryRedirect)
		return true
	})
	r, _ := openRegistry(t, Options{Host: "http://" + s.host(), Keychain: keychain{s.host(): {Username: "u", Password: "p"}}})
	to = strings.Replace(storage.URL, "127.0.0.1", "localhost", 1) + "/blob"
	got, _, err := r.Fetch(t.Context(), Layer{Component: "a", Ref: ocm.DigestOf(data)})
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %q, %v", got, err)
	}
	if seen.Get("Authorization") != "" {
		t.Error("the registry's credentials went elsewhere")
	}
	for i, target := range []string{s.URL + "/v2/again", "http://127.0.0.1:1/refused"} {
		to = target
		_, _, err := r.Fetch(t.Context(), Layer{Component: "a", Ref: ocm.DigestOf([]byte{byte(i)})})
		wantReason(t, err, ocm.RegistryUnreachable)
		if err == nil || strings.Contains(err.Error(), "s1gned") {
			t.Errorf("%s: got %v", target, err)
		}
	}
}

// TestEgress checks that neither a redirect nor the token server of a registry leads to a loopback address, although
// the configured address of the registry itself is a loopback address.
func TestEgress(t *testing.T) {
	var requests atomic.Int32
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	t.Cleanup(inside.Close)
	at := strings.Replace(inside.URL, "127.0.0.1", "localhost", 1)
	for name, answer := range map[string]http.HandlerFunc{
		"Redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, at, http.StatusFound) },
		"Realm": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+at+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.setFault(func(w http.ResponseWriter, r *http.Request) bool {
				if name == "Redirect" && r.URL.Path == "/v2/" {
					return false
				}
				answer(w, r)
				return true
			})
			r, err := New(Options{Host: "http://" + s.host(), Keychain: keychain{s.host(): {Username: "u", Password: "p"}}})
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = r.Fetch(t.Context(), Layer{Component: "a", Ref: ocm.DigestOf([]byte("a"))})
			wantReason(t, err, ocm.EgressRefused)
			if requests.Load() != 0 {
				t.Errorf("%d requests were sent", requests.Load())
			}
		})
	}
}

// TestConnections checks that no connections stay open after failures.
func TestConnections(t *testing.T) {
	s := newServer(t)
	r, c := openRegistry(t, Options{Host: "http://" + s.host()})
	s.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/v2/" {
			return false
		}
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, "no")
		return true
	})
	for range 50 {
		_, err := r.Component(t.Context(), component, "1.2.3")
		wantReason(t, err, ocm.RegistryUnreachable)
		c.forward(errorCachePeriod)
	}
	if s.conns > 2 {
		t.Errorf("50 failures one after another took %d connections", s.conns)
	}
}

func TestDigestOf(t *testing.T) {
	sum := sha256.Sum256([]byte("a"))
	if got, want := ocm.DigestOf([]byte("a")), "sha256:"+hex.EncodeToString(sum[:]); got != want {
		t.Errorf("got %s", got)
	}
}

func FuzzDescriptor(f *testing.F) {
	f.Add([]byte(descriptorV2))
	f.Add([]byte(descriptorV3))
	f.Add(gzipOf([]byte(descriptorV2)))
	f.Fuzz(func(t *testing.T, data []byte) {
		text, err := ocm.UnpackDescriptor(data, 1000, "r.io/a:1")
		if err == nil {
			if len(text) > 1000 {
				t.Fatalf("%d bytes", len(text))
			}
			var d *ocm.Descriptor
			if d, err = ocm.ParseDescriptor(text, "r.io/a:1"); err == nil {
				_, err = componentOf(d, "r.io", "r.io/a:1")
			}
		}
		if err != nil && (reason(err) == "" || strings.Contains(err.Error(), "\n")) {
			t.Fatalf("not a proper error: %q", err)
		}
	})
}
