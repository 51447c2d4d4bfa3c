package manifest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	ggcr "github.com/google/go-containerregistry/pkg/v1/types"
)

// chart packages a chart without templates.
func chart(t testing.TB, version string) []byte {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	w := tar.NewWriter(zip)
	text := "apiVersion: v2\nname: shop\nversion: " + version + "\n"
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "shop/Chart.yaml", Typeflag: tar.TypeReg,
		Size: int64(len(text)), Mode: 0o644}),
		func() error { _, err := io.WriteString(w, text); return err }(), w.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// shopAt is a chart repository with several versions of one chart. The chart repository of shopAt requires a password.
type shopAt struct {
	*httptest.Server
	asked atomic.Int32
	index atomic.Pointer[string] // if set, served instead of the index
}

func newShop(t testing.TB) *shopAt {
	s := &shopAt{}
	versions := []string{"1.0.0", "1.10.0", "1.9.0", "2.0.0-rc.1", "v0.5.0", "1.9.0+build.2"}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		if user, password, _ := r.BasicAuth(); user != "me" || password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.URL.Path == "/charts/index.yaml" {
			if text := s.index.Load(); text != nil {
				_, _ = io.WriteString(w, *text)
				return
			}
			_, _ = fmt.Fprint(w, "apiVersion: v1\nentries:\n  shop:\n")
			for _, v := range versions {
				_, _ = fmt.Fprintf(w, "  - {name: shop, version: %s, digest: %s, urls: [files/shop-%s.tgz]}\n",
					v, digestOf(chart(t, v)), v)
			}
			_, _ = fmt.Fprintf(
				w, "  - {name: shop, version: not-a-version, urls: [x]}\n  - null\n  - {version: 9.9.9}\n  forged:\n "+
					" - {version: 1.0.0, digest: %s, urls: [files/shop-1.0.0.tgz]}\n", strings.Repeat("0", 64))
			_, _ = fmt.Fprint(
				w, "  elsewhere:\n  - {version: 1.0.0, urls: ['https://127.0.0.1:1/x.tgz']}\n  odd:\n  - {version: "+
					"1.0.0, urls: ['file:///etc/passwd']}\n  missing:\n  - {version: 1.0.0, urls: [none.tgz]}\n")
			return
		}
		if v, ok := strings.CutPrefix(r.URL.Path, "/charts/files/shop-"); ok {
			_, _ = w.Write(chart(t, strings.TrimSuffix(v, ".tgz")))
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *shopAt) repository() *Repository {
	return &Repository{URL: s.URL + "/charts", Username: "me", Password: "secret"}
}

func reasonOf(err error) string {
	if e, ok := errors.AsType[interface {
		error
		Reason() string
	}](err); ok {
		return e.Reason()
	}
	return fmt.Sprint(err)
}

func TestFind(t *testing.T) {
	r := newShop(t).repository()
	cases := map[string]struct{ reason, name, version, want, fails string }{
		"Newest":      {reason: "no pre-release", name: "shop", want: "1.10.0"},
		"Alias":       {reason: "as Helm's users write it", name: "mine/shop", want: "1.10.0"},
		"Exact":       {name: "shop", version: "1.9.0", want: "1.9.0"},
		"Build":       {name: "shop", version: "1.9.0+build.2", want: "1.9.0+build.2"},
		"V":           {reason: "to the letter", name: "shop", version: "v0.5.0", want: "v0.5.0"},
		"NoV":         {reason: "or in meaning", name: "shop", version: "0.5.0", want: "v0.5.0"},
		"Range":       {name: "shop", version: ">=1 <1.10", want: "1.9.0"},
		"Wildcard":    {name: "shop", version: "1.x", want: "1.10.0"},
		"PreRelease":  {reason: "by name", name: "shop", version: "2.0.0-rc.1", want: "2.0.0-rc.1"},
		"Devel":       {reason: "as Helm's --devel", name: "shop", version: ">0.0.0-0", want: "2.0.0-rc.1"},
		"NoVersion":   {name: "shop", version: "3.x", fails: ChartNotFound},
		"NoRange":     {name: "shop", version: "newest", fails: ChartNotFound},
		"NoChart":     {name: "bakery", fails: ChartNotFound},
		"NoName":      {fails: InvalidInfo},
		"NotPackaged": {reason: "an entry without URL is none", name: "shop", version: "9.9.9", fails: ChartNotFound},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			found, err := r.Find(t.Context(), tc.name, tc.version)
			if tc.fails != "" {
				if reasonOf(err) != tc.fails {
					t.Errorf("got %v, want %s: %s", err, tc.fails, tc.reason)
				}
				return
			}
			if err != nil || found.Version != tc.want {
				t.Fatalf("got %v, %v, want %s: %s", found, err, tc.want, tc.reason)
			}
			if data, err := r.Fetch(t.Context(), found); err != nil || "sha256:"+digestOf(data) != found.Digest {
				t.Errorf("fetching: %v", err)
			}
		})
	}
}

func TestRepositoryFails(t *testing.T) {
	shop := newShop(t)
	text := func(s string) *string { return &s }
	cases := map[string]struct {
		change func(*Repository)
		index  *string
		chart  string
		want   string
	}{
		"Password":     {func(r *Repository) { r.Password = "wrong" }, nil, "shop", RepositoryUnauthorized},
		"NoPassword":   {func(r *Repository) { r.Username, r.Password = "", "" }, nil, "shop", RepositoryUnauthorized},
		"URL":          {func(r *Repository) { r.URL = "ftp://example.com" }, nil, "shop", InvalidInfo},
		"NoURL":        {func(r *Repository) { r.URL = "" }, nil, "shop", InvalidInfo},
		"Path":         {func(r *Repository) { r.URL += "/other" }, nil, "shop", ChartNotFound},
		"Unreachable":  {func(r *Repository) { r.URL = "http://127.0.0.1:1" }, nil, "shop", RepositoryUnreachable},
		"NotAnIndex":   {nil, text("<html>"), "shop", InvalidIndex},
		"BrokenIndex":  {nil, text("entries: ["), "shop", InvalidIndex},
		"Forged":       {nil, nil, "forged", DigestMismatch},
		"TooLarge":     {func(r *Repository) { r.MaxBytes = 10 }, nil, "shop", ChartTooLarge},
		"File":         {nil, nil, "odd", InvalidIndex},
		"ChartMissing": {nil, nil, "missing", ChartNotFound},
		"Elsewhere":    {nil, nil, "elsewhere", EgressRefused},
		"JSON":         {nil, text(`{"apiVersion":"v1","entries":{}}`), "shop", ChartNotFound},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			shop.index.Store(tc.index)
			r := shop.repository()
			if tc.change != nil {
				tc.change(r)
			}
			found, err := r.Find(t.Context(), tc.chart, "")
			if err == nil {
				_, err = r.Fetch(t.Context(), found)
			}
			if reasonOf(err) != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("it contains the password: %v", err)
			}
		})
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	shop.index.Store(nil)
	if _, err := shop.repository().Find(cancelled, "shop", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestIndexIsRemembered tests that the index is requested once for many charts, and requested again after MaxAge.
func TestIndexIsRemembered(t *testing.T) {
	shop := newShop(t)
	find := func(r *Repository, times int) int32 {
		before := shop.asked.Load()
		for range times {
			if _, err := r.Find(t.Context(), "shop", "1.x"); err != nil {
				t.Fatal(err)
			}
		}
		return shop.asked.Load() - before
	}
	if n := find(shop.repository(), 5); n != 1 {
		t.Errorf("asked %d times", n)
	}
	r := shop.repository()
	r.MaxAge = -1
	if n := find(r, 3); n != 3 {
		t.Errorf("without memory it asked %d times", n)
	}
	r = shop.repository()
	r.MaxAge = time.Millisecond
	find(r, 1)
	<-time.After(2 * time.Millisecond)
	if n := find(r, 1); n != 1 {
		t.Errorf("an old index was used")
	}
}

// TestCredentialsStayHome tests that a chart on another host is requested without credentials, even after a redirect.
func TestCredentialsStayHome(t *testing.T) {
	var leaked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			leaked.Add(1)
		}
		_, _ = w.Write(chart(t, "1.0.0"))
	}))
	defer other.Close()
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/index.yaml" {
			_, _ = fmt.Fprintf(
				w, "apiVersion: v1\nentries:\n  a: [{version: 1.0.0, urls: ['%s/a.tgz']}]\n  b: [{version: 1.0.0, "+
					"urls: [moved.tgz]}]\n", other.URL)
			return
		}
		http.Redirect(w, r, other.URL+"/b.tgz", http.StatusFound) // another port of the same host
	}))
	defer home.Close()
	r := &Repository{URL: home.URL, Username: "me", Password: "secret", Transport: http.DefaultTransport}
	for _, c := range []string{"a", "b"} {
		found, err := r.Find(t.Context(), c, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Fetch(t.Context(), found); err != nil {
			t.Error(err)
		}
	}
	if leaked.Load() > 0 {
		t.Error("the credentials went to another host")
	}
}

// TestEgress checks that neither an index nor a redirect leads to loopback or to metadata of cloud providers, although
// the repository itself is on loopback.
func TestEgress(t *testing.T) {
	var requests atomic.Int32
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer inside.Close()
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inside.URL+r.URL.Path, http.StatusFound)
	}))
	defer home.Close()
	registry := strings.TrimPrefix(inside.URL, "http://")
	for _, location := range []string{inside.URL + "/a.tgz", home.URL + "/a.tgz", "oci://" + registry + "/a:1.0.0",
		"http://169.254.169.254/latest/meta-data", "http://[fd00:ec2::254]/latest"} {
		r := &Repository{URL: home.URL}
		_, err := r.Fetch(t.Context(), ChartVersion{Name: "a", Version: "1.0.0", URL: location})
		if reasonOf(err) != EgressRefused || requests.Load() != 0 {
			t.Errorf("%s: got %v after %d requests", location, err, requests.Load())
		}
	}
}

// TestRedirect checks to which addresses a repository may redirect, and which of these addresses get the credentials.
// The test sends no request.
func TestRedirect(t *testing.T) {
	for name, c := range map[string]struct {
		from, to string
		allowed  bool
		keeps    bool // the credentials
	}{
		"SameHost":  {"https://a.example.com/x", "https://a.example.com/y", true, true},
		"OtherHost": {"https://a.example.com/x", "https://b.example.com/y", true, false},
		"OtherPort": {"https://a.example.com/x", "https://a.example.com:8443/y", true, false},
		"Subdomain": {"https://example.com/x", "https://a.example.com/y", true, false},
		"PlainHTTP": {"https://a.example.com/x", "http://a.example.com/y", false, false},
		"ToTLS":     {"http://a.example.com/x", "https://a.example.com/y", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			via, next := httptest.NewRequest(http.MethodGet, c.from, http.NoBody), httptest.NewRequest(
				http.MethodGet, c.to, http.NoBody)
			next.SetBasicAuth("me", "secret")
			err := checkRedirect(next, []*http.Request{via})
			if (err == nil) != c.allowed || (next.Header.Get("Authorization") != "") != c.keeps {
				t.Errorf("got %v, authorization %q", err, next.Header.Get("Authorization"))
			}
		})
	}
	insecure := &Repository{URL: "https://127.0.0.1:1/charts"}
	_, err := insecure.Fetch(t.Context(), ChartVersion{Name: "a", Version: "1.0.0", URL: "http://127.0.0.1:1/a.tgz"})
	if e, ok := errors.AsType[*Error](err); !ok || e.Reason() != InvalidIndex {
		t.Errorf("got %v", err)
	}
}

func TestRegistry(t *testing.T) {
	var locked atomic.Bool
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); locked.Load() && (user != "me" || password != "secret") {
			w.Header().Set("WWW-Authenticate", "Basic realm=x")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	host, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	push := func(tag string, data []byte, media ggcr.MediaType) {
		t.Helper()
		image, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, ggcr.OCIManifestSchema1),
			"application/vnd.cncf.helm.config.v1+json"),
			mutate.Addendum{Layer: static.NewLayer([]byte("signature"),
				"application/vnd.cncf.helm.chart.provenance.v1.prov")},
			mutate.Addendum{Layer: static.NewLayer(data, media)})
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.NewTag(host.Host+"/charts/"+tag, name.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(ref, image); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range []string{"1.0.0", "1.10.0", "1.9.0", "2.0.0-rc.1", "1.9.0_build.2"} {
		push("shop:"+v, chart(t, strings.ReplaceAll(v, "_", "+")), ggcr.MediaType(chartLayerTypes[0]))
	}
	push("shop:latest", chart(t, "9.0.0"), ggcr.MediaType(chartLayerTypes[0]))
	push("old:1.0.0", chart(t, "1.0.0"), ggcr.MediaType(chartLayerTypes[1]))
	push("image:1.0.0", []byte("x"), ggcr.DockerLayer)

	locked.Store(true)
	own := func() *Repository {
		return &Repository{URL: "oci://" + host.Host + "/charts/", Username: "me", Password: "secret"}
	}
	cases := map[string]struct {
		change              func(*Repository)
		name, version, want string
		fails               string
	}{
		"Newest":       {name: "shop", want: "1.10.0"},
		"Exact":        {name: "shop", version: "1.9.0", want: "1.9.0"},
		"Build":        {name: "shop", version: "1.9.0+build.2", want: "1.9.0+build.2"},
		"Range":        {name: "shop", version: "~1.9", want: "1.9.0+build.2"},
		"PreRelease":   {name: "shop", version: ">0.0.0-0", want: "2.0.0-rc.1"},
		"OldMediaType": {name: "old", version: "1.0.0", want: "1.0.0"},
		"NoVersion":    {name: "shop", version: "5.0.0", fails: ChartNotFound},
		"NoRange":      {name: "shop", version: "5.x", fails: ChartNotFound},
		"NoChart":      {name: "bakery", version: "1.x", fails: ChartNotFound},
		"NoChartExact": {name: "bakery", version: "1.0.0", fails: ChartNotFound},
		"Image":        {name: "image", version: "1.0.0", fails: InvalidIndex},
		"TooLarge": {
			change:  func(r *Repository) { r.MaxBytes = 10 },
			name:    "shop",
			version: "1.0.0",
			fails:   ChartTooLarge,
		},
		"Password": {
			change:  func(r *Repository) { r.Password = "wrong" },
			name:    "shop",
			version: "1.0.0",
			fails:   RepositoryUnauthorized,
		},
		"Anonymous": {
			change:  func(r *Repository) { r.Username, r.Password = "", "" },
			name:    "shop",
			version: "1.0.0",
			fails:   RepositoryUnauthorized,
		},
		"URL": {
			change:  func(r *Repository) { r.URL = "oci://Not A Host/" },
			name:    "shop",
			version: "1.0.0",
			fails:   InvalidInfo,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := own()
			if tc.change != nil {
				tc.change(r)
			}
			found, err := r.Find(t.Context(), tc.name, tc.version)
			var data []byte
			if err == nil {
				data, err = r.Fetch(t.Context(), found)
			}
			if tc.fails != "" {
				if reasonOf(err) != tc.fails || strings.Contains(err.Error(), "secret") {
					t.Errorf("got %v, want %s", err, tc.fails)
				}
				return
			}
			if err != nil || found.Version != tc.want || "sha256:"+digestOf(data) != found.Digest {
				t.Errorf("got %v, %v", found, err)
			}
		})
	}

	t.Run("ByDigest", func(t *testing.T) {
		locked.Store(false)
		ref, _ := name.NewTag(host.Host+"/charts/shop:1.0.0", name.Insecure)
		descriptor, err := remote.Head(ref)
		if err != nil {
			t.Fatal(err)
		}
		found, err := own().Find(t.Context(), "shop", descriptor.Digest.String())
		if err != nil || found.Digest != "sha256:"+digestOf(chart(t, "1.0.0")) {
			t.Errorf("got %v, %v", found, err)
		}
	})

	t.Run("IndexOfRegistry", func(t *testing.T) {
		locked.Store(false)
		index := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(
				w, "apiVersion: v1\nentries:\n  shop: [{version: 1.0.0, urls: ['oci://%s/charts/shop:1.0.0']}]\n  "+
					"bad: [{version: 1.0.0, urls: ['oci://x']}]\n", host.Host)
		}))
		defer index.Close()
		r := &Repository{URL: index.URL, Transport: http.DefaultTransport}
		found, err := r.Find(t.Context(), "shop", "")
		if err != nil {
			t.Fatal(err)
		}
		if data, err := r.Fetch(t.Context(), found); err != nil || digestOf(data) != digestOf(chart(t, "1.0.0")) {
			t.Errorf("got %v", err)
		}
		found, err = r.Find(t.Context(), "bad", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Fetch(t.Context(), found); reasonOf(err) != InvalidIndex {
			t.Errorf("got %v", err)
		}
	})
}

// TestLargeIndex checks that an index is refused before its values are decoded, if the values would need gigabytes.
func TestLargeIndex(t *testing.T) {
	base, err := url.Parse("https://example.com/charts/")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"YAML": "apiVersion: v1\nentries: {a: [" + strings.Repeat("{},", 10<<20) + "]}\n",
		"JSON": `{"apiVersion":"v1","entries":{"a":[` + strings.Repeat("{},", 10<<20) + "{}]}}",
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := parseIndex([]byte(data), base)
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), "more than 1000000 values") {
				t.Fatal(err)
			}
			if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 100 {
				t.Errorf("%d MiB were allocated", used)
			}
		})
	}
	usual := "apiVersion: v1\nentries:\n" + "  b:\n" +
		strings.Repeat("  - version: 1.0.0\n    urls: [x]\n    description: one, two\n", 20_000)
	if index, err := parseIndex([]byte(usual), base); err != nil || len(index["b"]) != 20_000 {
		t.Errorf("%d versions, %v", len(index["b"]), err)
	}
}

// TestLargeTagList checks that the list of tags of a chart is refused before it fills the memory, and that a list whose
// pages do not end is not followed forever.
func TestLargeTagList(t *testing.T) {
	page := strings.Repeat(`"latest-1.0.0",`, 15_000)
	var requests atomic.Int32
	var tags func(w http.ResponseWriter, r *http.Request)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/tags/list") {
			if r.URL.Path != "/v2/" { // the ping
				w.WriteHeader(http.StatusNotFound)
			}
			return
		}
		requests.Add(1)
		tags(w, r)
	}))
	defer server.Close()
	compressed := func(repeated string, n int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			zip := gzip.NewWriter(w)
			_, _ = io.WriteString(zip, `{"tags":[`)
			for range n {
				_, _ = io.WriteString(zip, repeated)
			}
			_, _ = io.WriteString(zip, `"1.0.0"]}`)
			_ = zip.Close()
		}
	}
	linked := func(page string, pages int32) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			if requests.Load() < pages {
				w.Header().Set("Link", "<"+r.URL.Path+`?last=x>; rel="next"`)
				_, _ = io.WriteString(w, `{"tags":[`+page+`"1.0.0"]}`)
				return
			}
			_, _ = io.WriteString(w, `{"tags":["1.0.1"]}`)
		}
	}
	for name, tc := range map[string]struct {
		tags func(http.ResponseWriter, *http.Request)
		most int32 // requests for tags
		want string
		text string
	}{
		"Bytes":  {compressed(strings.Repeat(`"a",`, 1<<18), 64), 1, ChartTooLarge, "16777216 bytes"},
		"Values": {compressed(strings.Repeat(`"",`, 1<<18), 5), 1, ChartTooLarge, "exceeds"},
		"Tags":   {compressed(strings.Repeat(`"1.0.0",`, 1000), 300), 1, ChartTooLarge, "300000 tags"},
		// The lists with many pages end, otherwise the test would not end without the limits.
		"AllPages": {linked(strings.Repeat(`"latest",`, 100_000), 40), 19, ChartTooLarge, "16777216 bytes"},
		"Pages":    {linked("", 2*maxTagPages), maxTagPages + 1, ChartTooLarge, "1000 pages"},
		"Usual":    {linked(page, 15), 15, ChartNotFound, "no 1.0.1"}, // the server has tags, but no charts
	} {
		t.Run(name, func(t *testing.T) {
			tags = tc.tags
			requests.Store(0)
			r := &Repository{URL: "oci://" + strings.TrimPrefix(server.URL, "http://")}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := r.Find(t.Context(), "x", "1.x")
			runtime.ReadMemStats(&after)
			if reasonOf(err) != tc.want || !strings.Contains(fmt.Sprint(err), tc.text) || requests.Load() > tc.most {
				t.Errorf("got %v after %d requests, want %s after %d", err, requests.Load(), tc.want, tc.most)
			}
			used := (after.TotalAlloc - before.TotalAlloc) >> 20
			if tc.most == 1 && used > 150 {
				t.Errorf("%d MiB were allocated", used)
			}
		})
	}
}

func FuzzParseIndex(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nentries:\n  a: [{version: 1.0.0, urls: [x], digest: abc}, null]\n"))
	f.Add([]byte(`{"apiVersion":"v1","entries":{"a":[{"version":"1.0.0","urls":["https://b/c"]}]}}`))
	base, err := url.Parse("https://example.com/charts/")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		index, err := parseIndex(data, base)
		if err != nil {
			return
		}
		for name, versions := range index {
			for _, v := range versions {
				if v.Name != name || v.Version == "" || v.URL == "" {
					t.Errorf("%q has %+v", name, v)
				}
			}
		}
	})
}
