package preflight

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

func version(of string) Version {
	t := &v1beta2.ModuleTemplate{}
	t.Name = "keda-" + of
	return Version{Module: "keda", Version: of, Component: "example.com/keda", Template: t}
}

// registry is a registry with the versions of a test. The fake registry counts the renderings.
type registry struct {
	renderings atomic.Int32
	changes    atomic.Int32
	render     func(v Version) (Content, error)
}

func start(t *testing.T, r *registry) *Checker {
	c := New(Options{Changed: func(string) { r.changes.Add(1) },
		Render: func(_ context.Context, v Version) (Content, error) {
			r.renderings.Add(1)
			return r.render(v)
		}})
	go func() { _ = c.Start(t.Context()) }()
	return c
}

// TestRepeats checks how often the check of a version is repeated in an hour in which a rollout uses its result.
func TestRepeats(t *testing.T) {
	down := &ocm.Error{Code: ocm.RegistryUnreachable, Problem: "it answers 503"}
	cases := map[string]struct {
		reason         string
		err            error
		code           string // of the blocker
		renderings     int32  // in an hour in which the result is used every minute
		renderingsIdle int32  // in a further hour without a use
	}{
		"Passed": {"a version that has passed is not checked again", nil, "", 1, 0},
		"Down": {"the registry is asked until it answers", down, v1beta2.ReasonPreflightPending, 361,
			30},
		"Unsigned": {"somebody may sign the version",
			&ocm.Error{Code: ocm.SignatureMissing, Problem: "no signature"},
			v1beta2.ReasonPreflightFailed, 121, 10},
		"Crashed": {"the same content would crash again", reconcile.TerminalError(errors.New("it crashed")),
			v1beta2.ReasonPreflightFailed, 1, 0},
		"Slow": {"the request continues", loop.Later(time.Second, "x to be pulled"),
			v1beta2.ReasonPreflightPending, 3601, 300},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &registry{render: func(Version) (Content, error) { return Content{Digest: "sha256:a"}, c.err }}
				checker := start(t, r)
				move := Move{To: version("2.0.0")}
				first := checker.RequestResult(move)
				if !first.IsRunning || first.Blocker == nil || first.Blocker.Code != v1beta2.ReasonPreflightPending {
					t.Errorf("%s: before the first check: %+v", c.reason, first)
				}
				for range 60 {
					time.Sleep(time.Minute)
					checker.RequestResult(move)
				}
				synctest.Wait()
				got := checker.RequestResult(move)
				if code := codeOf(got); code != c.code || (got.Digest == "") != (c.code != "") {
					t.Errorf("%s: %+v, want code %q", c.reason, got, c.code)
				}
				if n := r.renderings.Load(); n != c.renderings {
					t.Errorf("%s: %d renderings, want %d", c.reason, n, c.renderings)
				}
				if n := r.changes.Load(); n > 1 {
					t.Errorf("%s: %d changes of one result", c.reason, n)
				}
				time.Sleep(time.Hour)
				if n := r.renderings.Load() - c.renderings; n != c.renderingsIdle {
					t.Errorf("%s: %d renderings that nobody used, want %d", c.reason, n, c.renderingsIdle)
				}
				before := r.renderings.Load()
				checker.RequestResult(move)
				synctest.Wait()
				if again := r.renderings.Load() > before; again != (c.renderingsIdle > 0) {
					t.Errorf("%s: after an hour without a use, checked again: %t", c.reason, again)
				}
			})
		})
	}
}

func codeOf(r Result) string {
	if r.Blocker == nil {
		return ""
	}
	return r.Blocker.Code
}

// TestEnds checks that a version passes after the cause of its failure was removed, and that a version with a changed
// ModuleTemplate is checked again.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var isSigned atomic.Bool
		r := &registry{render: func(Version) (Content, error) {
			if !isSigned.Load() {
				return Content{}, &ocm.Error{Code: ocm.SignatureMissing, Problem: "no signature"}
			}
			return Content{Digest: "sha256:a"}, nil
		}}
		checker := start(t, r)
		checker.RequestResult(Move{To: version("2.0.0")})
		synctest.Wait()
		if got := checker.RequestResult(Move{To: version("2.0.0")}); got.Blocker == nil ||
			!strings.Contains(got.Blocker.Message, "no signature") || got.Blocker.Remedy == "" {
			t.Errorf("unsigned: %+v", got.Blocker)
		}
		isSigned.Store(true)
		time.Sleep(failedInterval + time.Second)
		if got := checker.RequestResult(Move{To: version("2.0.0")}); got.Digest != "sha256:a" || r.changes.Load() != 2 {
			t.Errorf("signed: %+v after %d changes", got, r.changes.Load())
		}
		changed := version("2.0.0")
		changed.Template.Spec.StateExpression = "true"
		if got := checker.RequestResult(Move{To: changed}); !got.IsRunning {
			t.Errorf("another content: %+v", got)
		}
	})
}

// TestParallel checks that a version that takes long delays only the versions of its own module, that at most one
// version of a module and maxParallel of all modules are checked at the same time, and that no request is lost.
func TestParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		r := &registry{render: func(v Version) (Content, error) {
			running := now.Add(1)
			for last := most.Load(); running > last && !most.CompareAndSwap(last, running); last = most.Load() {
			}
			defer now.Add(-1)
			if v.Module == "slow" || strings.HasPrefix(v.Module, "many") {
				time.Sleep(checkTimeout)
				return Content{}, context.DeadlineExceeded
			}
			return Content{Digest: "sha256:a"}, nil
		}}
		checker := start(t, r)
		move := func(module, of string) Move {
			v := version(of)
			v.Module = module
			return Move{To: v}
		}
		checker.RequestResult(move("slow", "1.0.0"))
		checker.RequestResult(move("slow", "2.0.0"))
		synctest.Wait()
		if n := r.renderings.Load(); n != 1 {
			t.Errorf("%d renderings of one module at the same time", n)
		}
		checker.RequestResult(move("quick", "1.0.0"))
		synctest.Wait()
		if got := checker.RequestResult(move("quick", "1.0.0")); got.Digest == "" {
			t.Errorf("it waits for the slow module: %+v", got)
		}
		for i := range 2 * maxParallel {
			checker.RequestResult(move(fmt.Sprint("many-", i), "1.0.0"))
		}
		synctest.Wait()
		if n := most.Load(); n != maxParallel {
			t.Errorf("%d renderings at the same time, want %d", n, maxParallel)
		}
		for range 13 { // three rounds of maxParallel
			time.Sleep(time.Minute)
			checker.RequestResult(move("slow", "1.0.0"))
			checker.RequestResult(move("slow", "2.0.0"))
		}
		for _, of := range []string{"1.0.0", "2.0.0"} {
			if got := checker.RequestResult(move("slow", of)); got.IsRunning || got.Blocker == nil {
				t.Errorf("version %s was never checked: %+v", of, got)
			}
		}
		time.Sleep(time.Hour) // no check is made any more
	})
}

// TestRetriesOfOneModule checks that two versions of one module are both checked again, although their checks are due
// at different times.
func TestRetriesOfOneModule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := map[string]error{"1.0.0": &ocm.Error{Code: ocm.SignatureMissing, Problem: "no signature"},
			"2.0.0": &ocm.Error{Code: ocm.RegistryUnreachable, Problem: "503"}}
		r := &registry{render: func(v Version) (Content, error) { // one version of a module at a time
			err := failures[v.Version]
			delete(failures, v.Version)
			return Content{Digest: "sha256:a"}, err
		}}
		checker := start(t, r)
		for _, of := range []string{"1.0.0", "2.0.0"} {
			checker.RequestResult(Move{To: version(of)})
		}
		time.Sleep(failedInterval + time.Second)
		for _, of := range []string{"1.0.0", "2.0.0"} {
			if got := checker.RequestResult(Move{To: version(of)}); got.Digest == "" ||
				got.Template != version(of).Digest() {
				t.Errorf("version %s was not checked again: %+v", of, got)
			}
		}
	})
}

// TestDigest checks which changes of a version count as a change of its content.
func TestDigest(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(v *Version)
		want   bool
	}{
		"Nothing":   {"it is the same version", func(*Version) {}, false},
		"Component": {"it is pulled from another place", func(v *Version) { v.Component = "example.com/other" }, true},
		"Data": {"the custom resource is installed", func(v *Version) {
			v.Template.Spec.Data = &unstructured.Unstructured{Object: map[string]any{"kind": "Keda"}}
		}, true},
		"Upgrade": {"it decides which runtimes get it", func(v *Version) {
			v.Template.Spec.Upgrade = &v1beta2.ModuleUpgrade{From: ">=1.0.0"}
		}, true},
		"Accepted": {"the registry has another content", func(v *Version) {
			v.Template.Annotations = map[string]string{v1beta2.AnnotationAcceptContent: "sha256:b"}
		}, true},
		"FirstRecord": {"the manager records the content that it has verified", func(v *Version) {
			v.Template.Annotations = map[string]string{v1beta2.AnnotationContentDigest: "sha256:a"}
		}, false},
		"Links": {"they are for information", func(v *Version) {
			v.Template.Spec.Resources = []v1beta2.ResourceLink{{Name: "docs", Link: "https://example.com"}}
			v.Template.Spec.Info = &v1beta2.ModuleInfo{Repository: "https://example.com"}
		}, false},
		"Written": {"the status or a label was written", func(v *Version) { v.Template.ResourceVersion = "2" }, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before, after := version("2.0.0"), version("2.0.0")
			c.change(&after)
			if is := before.Digest() != after.Digest(); is != c.want {
				t.Errorf("%s: another digest: %t", c.reason, is)
			}
		})
	}
}

// crd returns a CustomResourceDefinition with versions, of which the last one is stored.
func crd(t *testing.T, scope string, versions ...string) *unstructured.Unstructured {
	t.Helper()
	text := "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.example.com}\n" +
		"spec:\n  group: example.com\n  scope: " + scope + "\n  names: {kind: Thing, plural: things}\n  versions:\n"
	for i, v := range versions {
		text += fmt.Sprintf("  - {name: %s, served: true, storage: %t, schema: {openAPIV3Schema: {type: object}}}\n", v,
			i == len(versions)-1)
	}
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestCRDs checks that a version does not pass if every API server would refuse the update of its CRDs.
func TestCRDs(t *testing.T) {
	v1, v2, both := crd(t, "Namespaced", "v1"), crd(t, "Namespaced", "v2"), crd(t, "Namespaced", "v1", "v2")
	cases := map[string]struct {
		reason   string
		from, to *unstructured.Unstructured
		err      error // of the former version
		code     string
		message  string
	}{
		"Same":    {reason: "nothing changes", from: v1, to: v1},
		"Added":   {reason: "both versions are served", from: v1, to: both},
		"Dropped": {"objects are stored in v1", v1, v2, nil, v1beta2.ReasonPreflightFailed, "version v1 goes"},
		"Back":    {"objects are stored in v2", both, v1, nil, v1beta2.ReasonPreflightFailed, "version v2 goes"},
		"Scope": {"a scope is immutable", v1, crd(t, "Cluster", "v1"), nil, v1beta2.ReasonPreflightFailed,
			"its scope changes"},
		"Unreachable": {"whether it is refused is not known", v1, v2,
			&ocm.Error{Code: ocm.RegistryUnreachable, Problem: "503"}, v1beta2.ReasonPreflightPending, "503"},
		"Unreadable": {reason: "a broken version must not keep the fleet from a better one", from: v1, to: v2,
			err: &render.Error{Code: render.InvalidObject, Problem: "no kind"}},
		"Removed": {reason: "the registry has only the new version", from: v1, to: v2,
			err: &ocm.Error{Code: ocm.ArtifactNotFound, Problem: "404"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &registry{render: func(v Version) (Content, error) {
					if v.Version == "1.0.0" {
						return Content{Digest: "sha256:a", CRDs: []*unstructured.Unstructured{c.from}}, c.err
					}
					return Content{Digest: "sha256:b", CRDs: []*unstructured.Unstructured{c.to}}, nil
				}}
				checker := start(t, r)
				move := Move{From: version("1.0.0"), To: version("2.0.0")}
				checker.RequestResult(move)
				synctest.Wait()
				got := checker.RequestResult(move)
				if codeOf(got) != c.code || c.code != "" && !strings.Contains(got.Blocker.Message, c.message) {
					t.Errorf("%s: %+v %+v, want code %q", c.reason, got, got.Blocker, c.code)
				}
				if b := got.Blocker; b != nil && strings.Contains(b.Message, "terminal error") {
					t.Errorf("%s: %q has words that are not for users", c.reason, b.Message)
				}
			})
		})
	}
}
