package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/retry"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// TestCancelledLoad checks a caller that has started to load an artefact: when it is cancelled, it returns at once. If
// a second caller waits for the same artefact, it still gets the artefact after the first one was cancelled.
func TestCancelledLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := Source{Name: "a", Artefact: Artefact{Digest: "sha256:x",
			Load: func(ctx context.Context) (*render.Artefact, error) {
				select {
				case <-release:
					return &render.Artefact{}, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}}}
		var r Renderer
		started, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := r.capabilityQueriesOf(started, s)
			first <- err
		}()
		synctest.Wait()
		go func() {
			_, err := r.capabilityQueriesOf(t.Context(), s)
			second <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the cancelled caller gets %v", err)
		}
		close(release)
		if err := <-second; err != nil {
			t.Errorf("the other caller, which is not cancelled, gets %v", err)
		}
	})
}

// TestLoadTimeout checks an artefact that never arrives: all callers get an error after loadTimeout, even if their own
// contexts have not ended.
func TestLoadTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Renderer
		s := Source{Name: "a", Artefact: Artefact{Digest: "sha256:x",
			Load: func(ctx context.Context) (*render.Artefact, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}}}
		if _, err := r.capabilityQueriesOf(t.Context(), s); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
	})
}

func TestParseLayer(t *testing.T) {
	cases := map[string]registry.Layer{
		"r.example.com/path/name@sha256:abc": {
			Repo:      "r.example.com/path",
			Component: "name",
			Ref:       "sha256:abc",
			Type:      registry.OCIDir,
		},
		"r.example.com:5000/name:1.0": {
			Repo:      "r.example.com:5000",
			Component: "name",
			Ref:       "1.0",
			Type:      registry.OCIDir,
		},
		"r.example.com:5000/name": {},
		"name:1.0":                {},
		"r.example.com/name":      {},
	}
	for reference, want := range cases {
		got, err := parseLayer(reference)
		if got != want || (err == nil) != (want != registry.Layer{}) {
			t.Errorf("%s: got %+v, %v, want %+v", reference, got, err, want)
		}
		if err != nil && loop.Reason(err) != v1beta2.ReasonRefusedFeature {
			t.Errorf("%s: reason %q", reference, loop.Reason(err))
		}
	}
}

func TestRedacted(t *testing.T) {
	for location, want := range map[string]string{
		"https://user:secret@charts.example.com/a?token=secret#secret": "https://charts.example.com/a",
		"https://charts.example.com":                                   "https://charts.example.com",
		"https://%zz":                                                  "(not a URL)",
	} {
		if got := withoutSecrets(location); got != want {
			t.Errorf("%s: got %s, want %s", location, got, want)
		}
	}
}

func TestCredentials(t *testing.T) {
	secret := func(name string, kind corev1.SecretType, data map[string][]byte) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: name, UID: "u",
				Labels: map[string]string{"for": name}}, Type: kind, Data: data,
		}
	}
	secrets := fake.NewClientBuilder().WithObjects(
		secret("basic", corev1.SecretTypeBasicAuth,
			map[string][]byte{"username": []byte("me"), "password": []byte("secret")}),
		secret("docker", corev1.SecretTypeDockerConfigJson,
			map[string][]byte{corev1.DockerConfigJsonKey: []byte(
				`{"auths":{"r.example.com":{"username":"me","password":"x"}}}`)}),
		secret("broken", corev1.SecretTypeDockerConfigJson, map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{`)}),
		secret("opaque", corev1.SecretTypeOpaque, nil),
	).Build()
	cases := map[string]struct {
		reason   string
		selector metav1.LabelSelector
		username string
		logins   int
		ok       bool
	}{
		"Basic": {
			reason:   "for chart repositories",
			selector: metav1.LabelSelector{MatchLabels: map[string]string{"for": "basic"}},
			username: "me",
			ok:       true,
		},
		"Docker": {
			reason:   "for registries",
			selector: metav1.LabelSelector{MatchLabels: map[string]string{"for": "docker"}},
			logins:   1,
			ok:       true,
		},
		"Broken": {
			reason:   "the Secret cannot be parsed",
			selector: metav1.LabelSelector{MatchLabels: map[string]string{"for": "broken"}},
		},
		"Opaque": {
			reason:   "the type is not supported",
			selector: metav1.LabelSelector{MatchLabels: map[string]string{"for": "opaque"}},
		},
		"None": {
			reason:   "no Secret matches",
			selector: metav1.LabelSelector{MatchLabels: map[string]string{"for": "none"}},
		},
		"Invalid": {
			reason: "the selector is not valid",
			selector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "for",
				Operator: "~"}}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f := NewFinder(Options{Secrets: secrets})
			got, err := f.credentialsOf(t.Context(), "kcp-system", &c.selector)
			if (err == nil) != c.ok || got.username != c.username || len(got.keychain) != c.logins {
				t.Errorf("%s: got %q, %d logins, %v", c.reason, got.username, len(got.keychain), err)
			}
			if err != nil && loop.Reason(err) != v1beta2.ReasonLoginNotFound {
				t.Errorf("%s: reason %q", c.reason, loop.Reason(err))
			}
		})
	}
}

// TestCredentialsAreCached checks that Secrets are read once per credentialCachePeriod.
func TestCredentialsAreCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		basic := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a", Labels: map[string]string{"a": "b"}},
			Type:       corev1.SecretTypeBasicAuth,
			Data:       map[string][]byte{"username": []byte("me")},
		}
		secrets := fake.NewClientBuilder().WithObjects(basic).Build()
		f := NewFinder(Options{Secrets: secrets})
		selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		if _, err := f.credentialsOf(t.Context(), "n", selector); err != nil {
			t.Fatal(err)
		}
		if err := secrets.DeleteAllOf(t.Context(), &corev1.Secret{}, client.InNamespace("n")); err != nil {
			t.Fatal(err)
		}
		if c, err := f.credentialsOf(t.Context(), "n", selector); err != nil || c.username != "me" {
			t.Errorf("the credentials are read again: %q, %v", c.username, err)
		}
		time.Sleep(time.Millisecond)
		if _, err := f.credentialsOf(retry.WithTime(t.Context(), time.Now()), "n", selector); err == nil {
			t.Error("a retry uses credentials from before it")
		}
	})
}

// TestFolder checks that only folders below LocalSources are read, and that a change of their content changes the
// digest.
func TestFolder(t *testing.T) {
	top := t.TempDir()
	write := func(path, text string) {
		file := filepath.Join(top, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("local/a/kustomization.yaml", "resources: []\n")
	write("outside/kustomization.yaml", "resources: []\n")
	find := func(local, path string) (Artefact, error) {
		f := NewFinder(Options{LocalSources: local})
		return f.findKustomization(t.Context(), origin{}, "a", &v1beta2.KustomizeSpec{Path: path})
	}
	local := filepath.Join(top, "local")
	first, err := find(local, "a")
	if err != nil {
		t.Fatal(err)
	}
	if absolute, err := find(local, filepath.Join(local, "a")); err != nil || absolute.Digest != first.Digest {
		t.Errorf("the absolute path: %s, %v, want %s", absolute.Digest, err, first.Digest)
	}
	for _, path := range []string{"../outside", "missing", "a/kustomization.yaml"} {
		if _, err := find(local, path); loop.Reason(err) != v1beta2.ReasonRefusedFeature {
			t.Errorf("%s: %v, want a refusal", path, err)
		}
	}
	if _, err := find("", "a"); loop.Reason(err) != v1beta2.ReasonRefusedFeature {
		t.Errorf("without --local-sources: %v, want a refusal", err)
	}
	write("local/a/kustomization.yaml", "resources: [b.yaml]\n")
	if second, err := find(local, "a"); err != nil || second.Digest == first.Digest {
		t.Errorf("after a change: %s, %v, want another digest", second.Digest, err)
	}
}

// TestFindPermanentErrors checks that an error is terminal if only a change of the Manifest can fix it.
func TestFindPermanentErrors(t *testing.T) {
	cases := map[string]struct {
		source   string
		terminal bool
	}{
		"NotFetched": {`{"url":"https://example.com/x","type":"kustomize"}`, true},
		"NoJSON":     {`{`, true},
		"Outside":    {`{"path":"../x","type":"kustomize"}`, true},
	}
	for name, c := range cases {
		m := &v1beta2.Manifest{}
		m.Spec.Installs = []v1beta2.InstallInfo{{Name: "a"}}
		m.Spec.Installs[0].Source.Raw = []byte(c.source)
		_, err := NewFinder(Options{LocalSources: t.TempDir()}).Find(t.Context(), m)
		if err == nil || errors.Is(err, reconcile.TerminalError(nil)) != c.terminal {
			t.Errorf("%s: %v, want terminal: %t", name, err, c.terminal)
		}
	}
}

// TestCachesAreBounded checks that a full cache is emptied, and contains only the newest entry after that.
func TestCachesAreBounded(t *testing.T) {
	var m map[string]int
	for i := range 2*cacheLimit + 1 {
		putBounded(&m, fmt.Sprint(i), i)
		if len(m) > cacheLimit || m[fmt.Sprint(i)] != i {
			t.Fatalf("%d entries, the newest is %d", len(m), m[fmt.Sprint(i)])
		}
	}
	f := NewFinder(Options{})
	for i := range 3 * cachedChartsLimit {
		f.keepChart(fmt.Sprint(i), &render.Artefact{})
		if len(f.charts) > cachedChartsLimit {
			t.Fatalf("%d charts are kept", len(f.charts))
		}
	}
}

// crashing is a fake render.Runner for tests: every rendering returns the error of a crash, and the field count has the
// number of renderings.
type crashing struct{ count int }

func (c *crashing) Run(context.Context, []byte) ([]byte, error) {
	c.count++
	return nil, &render.Error{Code: render.RenderCrashed, Problem: "it crashed"}
}

// TestFailure checks that a rendering that crashed is not repeated, not even by a Renderer that knows the failure only
// from a status. A failure in the status of one Manifest does not apply to other Manifests. When a person requests a
// retry, the chart is rendered again once, and all Manifests with this chart share the rendering.
func TestFailure(t *testing.T) {
	chart, err := render.LoadFolder(fstest.MapFS{
		"Chart.yaml":       {Data: []byte("apiVersion: v2\nname: a\nversion: 1.0.0\n")},
		"templates/a.yaml": {Data: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")}},
		render.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	s := Source{Name: "a", Artefact: Artefact{Digest: "sha256:x",
		Load: func(context.Context) (*render.Artefact, error) { return chart, nil }}}
	nothing := func(context.Context, []string) (render.Capabilities, error) { return render.Capabilities{}, nil }
	runner := &crashing{}
	ctx := render.WithRunner(t.Context(), runner)
	var last Failure
	var stored *Failure
	fail := func(ctx context.Context, r *Renderer, options render.Options, want int) {
		t.Helper()
		_, err := r.Bundle(ctx, s, options, stored, nothing)
		var ok bool
		last, ok = errors.AsType[Failure](err)
		if !ok || loop.Reason(err) != v1beta2.ReasonRenderCrashed || runner.count != want {
			t.Fatalf("got %v after %d renderings, want %d", err, runner.count, want)
		}
	}
	first := Renderer{LoadTimeout: 5 * time.Minute}
	fail(ctx, &first, render.Options{}, 1)
	f := last
	fail(ctx, &first, render.Options{}, 1)
	fail(ctx, &first, render.Options{PullSecret: "p"}, 2) // other objects

	restarted := Renderer{LoadTimeout: 5 * time.Minute}
	stored = &f
	if fail(ctx, &restarted, render.Options{}, 2); last != f {
		t.Errorf("after a restart, the failure is %v, and was %v", last, f)
	}
	requested := retry.WithTime(ctx, time.Now())
	fail(requested, &restarted, render.Options{}, 3)
	fail(requested, &restarted, render.Options{}, 3)

	healthy := Renderer{LoadTimeout: 5 * time.Minute}
	fail(ctx, &healthy, render.Options{}, 3) // the Manifest with the stored failure comes first
	works := t.Context()                     // without the runner that crashes
	if _, err := healthy.Bundle(works, s, render.Options{}, nil, nothing); err != nil {
		t.Errorf("another Manifest has the stored failure: %v", err)
	}
	healthy.Bundles.Forget(f.Digest)
	if _, err := healthy.Bundle(works, s, render.Options{}, stored, nothing); err != nil {
		t.Errorf("the stored failure applies after another Manifest has rendered the bundle: %v", err)
	}
}
