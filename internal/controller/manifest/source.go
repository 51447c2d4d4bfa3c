package manifest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	library "github.com/kyma-fleet/lifecycle-manager/manifest"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Times that bound what a slow or dead source can cost.
const (
	patience    = 2 * time.Second  // how long a worker waits for a source; it goes on without the worker
	findTimeout = 30 * time.Second // how long an index of charts is asked for
	failureTime = 5 * time.Second  // how long a failure is repeated without asking again
	loginTime   = 30 * time.Second // how long a login is believed
)

// artefact is what a source comes to: which one exactly, and how to get it.
type artefact struct {
	digest string                                // "sha256:…"; the same digest is the same content
	fixed  bool                                  // the source names the content itself, so that nothing but a change of the Manifest can change it
	bytes  func(context.Context) ([]byte, error) // of a layer
	load   func(context.Context) (*render.Artefact, error)
	verify func(context.Context) (registry.Signature, error) // does what the trust policy says
}

// origin says for whom an artefact is looked for.
type origin struct {
	namespace string // of the Manifest: its Secrets hold the logins
	version   string // of the module: layers of this version of their component are trusted if it is
}

// sources finds artefacts for all Manifests. It remembers what an unchanged Manifest would otherwise ask for again.
type sources struct {
	registry *registry.Registry
	secrets  client.Reader // not cached: a login is read when it is needed
	local    string        // folder of Options.LocalSources

	finds singleflight.Group

	mu           sync.Mutex
	registries   map[string]*registry.Registry  // guarded by mu; by login
	logins       map[string]login               // guarded by mu; by namespace and selector
	repositories map[string]*library.Repository // guarded by mu; by URL and login
	fetched      map[string]fetched             // guarded by mu; by what was downloaded
	failures     map[string]failure             // guarded by mu; by what was looked for
	configs      map[string][]render.Config     // guarded by mu; by digest of the layer
}

// fetched is a chart that was downloaded a moment ago: it has to be rendered yet.
type fetched struct {
	chart *render.Artefact
	until time.Time
}

// maxFetched bounds the charts that are kept so, each of which may be large.
const maxFetched = 8

type failure struct {
	err   error
	until time.Time
}

// login is what Secrets say about how to sign in.
type login struct {
	keychain           registry.Logins
	username, password string
	version            string // of the Secrets
	until              time.Time
}

// maxRemembered bounds each of the maps; when one is full it begins anew.
const maxRemembered = 4096

// find locates the artefact of a source. Only what a tag or a range stands for is asked for.
func (s *sources) find(ctx context.Context, of origin, name string, source v1beta2.Source, config render.ClientConfig) (artefact, error) {
	switch {
	case source.Image != nil:
		layer := registry.Layer{Name: name, Repo: source.Image.Repo, Component: source.Image.Name, Ref: source.Image.Ref, Type: string(source.Image.Type)}
		return s.findLayer(ctx, of, layer, source.Image.CredSecretSelector)
	case source.HelmChart != nil:
		return s.findChart(ctx, of, source.HelmChart, config)
	default:
		return s.findKustomization(ctx, of, name, source.Kustomize)
	}
}

// findLayer locates a layer in an OCI registry.
func (s *sources) findLayer(ctx context.Context, of origin, layer registry.Layer, selector *metav1.LabelSelector) (artefact, error) {
	layer.Version = of.version
	a := artefact{digest: layer.Ref, fixed: true}
	a.bytes = func(ctx context.Context) (data []byte, err error) {
		err = s.ask(ctx, of, layer, selector, func(ctx context.Context, from *registry.Registry) error {
			data, a.digest, err = from.Fetch(ctx, layer)
			return err
		})
		return data, err
	}
	a.verify = func(ctx context.Context) (signature registry.Signature, err error) {
		err = s.ask(ctx, of, layer, selector, func(ctx context.Context, from *registry.Registry) error {
			signature, err = from.Verify(ctx, layer)
			return err
		})
		return signature, err
	}
	a.load = func(ctx context.Context) (*render.Artefact, error) {
		data, err := a.bytes(ctx)
		if err != nil {
			return nil, err
		}
		return render.Load(data, render.Limits{})
	}
	if !strings.HasPrefix(layer.Ref, "sha256:") {
		a.fixed = false
		if _, err := a.bytes(ctx); err != nil { // tells the digest
			return artefact{}, err
		}
	}
	return a, nil
}

// ask asks a registry something about a layer, signed in as the selected Secrets say. When a worker has waited long enough it goes on
// with other work, and so does the registry, which then has the answer when the worker comes back.
func (s *sources) ask(ctx context.Context, of origin, layer registry.Layer, selector *metav1.LabelSelector, question func(context.Context, *registry.Registry) error) error {
	from := s.registry
	if selector != nil {
		l, err := s.login(ctx, of.namespace, selector)
		if err != nil {
			return err
		}
		from = s.signedIn(l)
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := question(bounded, from)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return loop.Later(notYet, fmt.Sprintf("%s/%s to be pulled", layer.Repo, layer.Component))
	}
	return err
}

// signedIn returns the registry for a login, shared by all who have it.
func (s *sources) signedIn(l login) *registry.Registry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.registries[l.version]; r != nil {
		return r
	}
	r := s.registry.With(l.keychain)
	put(&s.registries, l.version, r)
	return r
}

// findChart locates a chart in a chart repository, or in an OCI registry.
func (s *sources) findChart(ctx context.Context, of origin, chart *v1beta2.HelmChartSpec, config render.ClientConfig) (artefact, error) {
	l := login{}
	if chart.CredSecretSelector != nil {
		var err error
		if l, err = s.login(ctx, of.namespace, chart.CredSecretSelector); err != nil {
			return artefact{}, err
		}
	}
	version := chart.Version
	if version == "" {
		version = config.Version
	}
	if version == "" && config.Devel {
		version = ">0.0.0-0"
	}
	repository := s.repository(chart.URL, l)
	found, err := s.findVersion(ctx, repository, strings.Join([]string{chart.URL, l.version, chart.ChartName, version}, " "), chart.ChartName, version)
	if err != nil {
		return artefact{}, err
	}
	a := artefact{digest: found.Digest}
	if a.digest == "" { // the repository does not say, so a version has to be taken for its content
		sum := sha256.Sum256([]byte(found.URL + " " + found.Name + " " + found.Version))
		a.digest = "sha256:" + hex.EncodeToString(sum[:])
	}
	a.load = func(ctx context.Context) (*render.Artefact, error) {
		return s.fetchChart(ctx, repository, found, "fetch "+l.version+found.URL+" "+a.digest)
	}
	a.verify = func(context.Context) (registry.Signature, error) {
		_, location, _ := strings.Cut(redacted(chart.URL), "://")
		return s.registry.VerifyUnsigned(location+"/"+chart.ChartName, "signatures of charts are not known here")
	}
	return a, nil
}

// findVersion asks a repository of charts for a version. All who ask for the same share one answer, and a failure for a moment. A
// worker that has waited long enough goes on with other work; the answer is there when it comes back.
func (s *sources) findVersion(ctx context.Context, from *library.Repository, key, chart, version string) (library.ChartVersion, error) {
	s.mu.Lock()
	failed := s.failures[key]
	s.mu.Unlock()
	if time.Now().Before(failed.until) {
		return library.ChartVersion{}, failed.err
	}
	answers := s.finds.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), findTimeout)
		defer cancel()
		found, err := from.Find(ctx, chart, version)
		if err != nil {
			s.mu.Lock()
			put(&s.failures, key, failure{err, time.Now().Add(failureTime)})
			s.mu.Unlock()
		}
		return found, err
	})
	select {
	case answer := <-answers:
		if answer.Err != nil {
			return library.ChartVersion{}, answer.Err
		}
		return answer.Val.(library.ChartVersion), nil
	case <-time.After(patience):
		return library.ChartVersion{}, loop.Later(notYet, fmt.Sprintf("the repository of chart %s to answer", chart))
	case <-ctx.Done():
		return library.ChartVersion{}, ctx.Err()
	}
}

// fetchChart downloads a chart, for all who want it at the same time. A worker waits for it like for an answer of findVersion; what has
// come meanwhile is kept for a moment.
func (s *sources) fetchChart(ctx context.Context, from *library.Repository, chart library.ChartVersion, key string) (*render.Artefact, error) {
	s.mu.Lock()
	failed, kept := s.failures[key], s.fetched[key]
	s.mu.Unlock()
	switch {
	case time.Now().Before(failed.until):
		return nil, failed.err
	case time.Now().Before(kept.until):
		return kept.chart, nil
	}
	answers := s.finds.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), findTimeout)
		defer cancel()
		data, err := from.Fetch(ctx, chart)
		var artefact *render.Artefact
		if err == nil {
			artefact, err = render.Load(data, render.Limits{})
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			put(&s.failures, key, failure{err, time.Now().Add(failureTime)})
			return nil, err
		}
		maps.DeleteFunc(s.fetched, func(_ string, f fetched) bool { return time.Now().After(f.until) })
		if len(s.fetched) >= maxFetched {
			s.fetched = nil
		}
		put(&s.fetched, key, fetched{artefact, time.Now().Add(loginTime)})
		return artefact, nil
	})
	select {
	case answer := <-answers:
		if answer.Err != nil {
			return nil, answer.Err
		}
		return answer.Val.(*render.Artefact), nil
	case <-time.After(patience):
		return nil, loop.Later(notYet, fmt.Sprintf("chart %s %s to be downloaded", chart.Name, chart.Version))
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// repository returns the client for a chart repository, shared by all who sign in the same way.
func (s *sources) repository(location string, l login) *library.Repository {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := location + " " + l.version
	if r := s.repositories[key]; r != nil {
		return r
	}
	r := &library.Repository{URL: location, Username: l.username, Password: l.password}
	if l.keychain != nil {
		r.Keychain = l.keychain
	}
	put(&s.repositories, key, r)
	return r
}

// findKustomization locates a Kustomize directory: in an OCI layer, or in the folder that the manager was given for that.
func (s *sources) findKustomization(ctx context.Context, of origin, name string, k *v1beta2.KustomizeSpec) (artefact, error) {
	if in, ok := strings.CutPrefix(k.URL, "oci://"); ok {
		layer, err := layerAt(in)
		if err != nil {
			return artefact{}, err
		}
		layer.Name = name
		a, err := s.findLayer(ctx, of, layer, nil)
		return a.sub(k.Path), err
	}
	if k.Path == "" {
		return artefact{}, refusal{fmt.Sprintf("%q is not fetched: package the Kustomize directory as an OCI layer and name it by oci://, or use oci-ref", redacted(k.URL))}
	}
	if s.local == "" {
		return artefact{}, refusal{fmt.Sprintf("the path %q is in the manager's file system, which is closed to sources: start the manager with --local-sources, or package the directory as an OCI layer", k.Path)}
	}
	return s.findFolder(k.Path)
}

// findFolder reads a folder below LocalSources. It is read whole, because nothing else tells whether it has changed.
func (s *sources) findFolder(path string) (artefact, error) {
	refuse := func(err error) error {
		return refusal{fmt.Sprintf("the folder %q below --local-sources cannot be read: %s", path, err)}
	}
	top, err := os.OpenRoot(s.local)
	if err != nil {
		return artefact{}, refuse(errors.New("there is no such folder"))
	}
	defer func() { _ = top.Close() }()
	relative := filepath.Clean(strings.TrimPrefix(path, strings.TrimSuffix(s.local, "/")+"/"))
	folder, err := top.OpenRoot(relative)
	if err != nil {
		return artefact{}, refuse(errors.New("there is no such folder, or it lies outside"))
	}
	defer func() { _ = folder.Close() }()
	a, err := render.LoadFolder(folder.FS(), render.Limits{})
	if err != nil {
		return artefact{}, err
	}
	return artefact{
		digest: a.Digest(),
		load:   func(context.Context) (*render.Artefact, error) { return a, nil },
		verify: func(context.Context) (registry.Signature, error) {
			return s.registry.VerifyUnsigned("local-sources/"+relative, "a folder bears no signature")
		},
	}, nil
}

// sub is a folder in an artefact.
func (a artefact) sub(folder string) artefact {
	if folder == "" || a.load == nil {
		return a
	}
	whole := a.load
	sum := sha256.Sum256([]byte(a.digest + " " + folder))
	a.digest = "sha256:" + hex.EncodeToString(sum[:])
	a.load = func(ctx context.Context) (*render.Artefact, error) {
		artefact, err := whole(ctx)
		if err != nil {
			return nil, err
		}
		return artefact.Subfolder(folder)
	}
	return a
}

// layerAt reads host/path/name@digest or host/path/name:tag.
func layerAt(reference string) (registry.Layer, error) {
	where, ref, byDigest := strings.Cut(reference, "@")
	if !byDigest {
		if i := strings.LastIndex(reference, ":"); i > strings.LastIndex(reference, "/") {
			where, ref = reference[:i], reference[i+1:]
		}
	}
	slash := strings.LastIndex(where, "/")
	if slash < 0 || ref == "" {
		return registry.Layer{}, refusal{fmt.Sprintf("%q names no layer: write oci://host/path/name@sha256:… or oci://host/path/name:tag", redacted(reference))}
	}
	return registry.Layer{Repo: where[:slash], Component: where[slash+1:], Ref: ref, Type: registry.OCIDir}, nil
}

// config returns the settings in a config layer, and the layer.
func (s *sources) config(ctx context.Context, of origin, from *v1beta2.ManifestConfig) ([]render.Config, artefact, error) {
	a, err := s.findLayer(ctx, of, layerOf("config", from), from.CredSecretSelector)
	if err != nil {
		return nil, artefact{}, err
	}
	s.mu.Lock()
	configs, known := s.configs[a.digest]
	s.mu.Unlock()
	if known {
		return configs, a, nil
	}
	data, err := a.bytes(ctx)
	if err != nil {
		return nil, artefact{}, err
	}
	if configs, err = render.ParseConfig(data); err != nil {
		return nil, artefact{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	put(&s.configs, a.digest, configs)
	return configs, a, nil
}

func layerOf(name string, from *v1beta2.ManifestConfig) registry.Layer {
	return registry.Layer{Name: name, Repo: from.Repo, Component: from.Name, Ref: from.Ref, Type: registry.OCIRef}
}

// login reads the Secrets that a selector selects: for registries, and user and password for chart repositories.
func (s *sources) login(ctx context.Context, namespace string, selector *metav1.LabelSelector) (login, error) {
	labels, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return login{}, loginError{fmt.Sprintf("credSecretSelector is not valid: %s", err)}
	}
	key := namespace + " " + labels.String()
	s.mu.Lock()
	known := s.logins[key]
	s.mu.Unlock()
	if time.Now().Before(known.until) {
		return known, nil
	}
	var found corev1.SecretList
	if err := s.secrets.List(ctx, &found, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: labels}); err != nil {
		return login{}, fmt.Errorf("reading the Secrets with %s: %w", labels, err)
	}
	l := login{keychain: registry.Logins{}, until: time.Now().Add(loginTime)}
	for _, secret := range found.Items {
		switch secret.Type {
		case corev1.SecretTypeDockerConfigJson:
			if err := l.keychain.Add(secret.Data[corev1.DockerConfigJsonKey]); err != nil {
				return login{}, loginError{fmt.Sprintf("the Secret %s/%s, key %s: %s", namespace, secret.Name, corev1.DockerConfigJsonKey, err)}
			}
		case corev1.SecretTypeBasicAuth:
			l.username, l.password = string(secret.Data[corev1.BasicAuthUsernameKey]), string(secret.Data[corev1.BasicAuthPasswordKey])
		default:
			continue
		}
		l.version += string(secret.UID) + secret.ResourceVersion + " "
	}
	if l.version == "" {
		return login{}, loginError{fmt.Sprintf("no Secret of type %s or %s in namespace %s has the labels %q: create one", corev1.SecretTypeDockerConfigJson, corev1.SecretTypeBasicAuth, namespace, labels)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	put(&s.logins, key, l)
	return l, nil
}

// loginError says why there is no login.
type loginError struct{ problem string }

func (e loginError) Error() string { return "finding the login: " + e.problem }

// Reason returns ReasonLoginNotFound.
func (loginError) Reason() string { return v1beta2.ReasonLoginNotFound }

// refusal is the error of a source that is not served, by decision.
type refusal struct{ problem string }

func (e refusal) Error() string { return "finding the source: " + e.problem }

// Reason returns ReasonRefusedFeature.
func (refusal) Reason() string { return v1beta2.ReasonRefusedFeature }

// put adds to a map that begins anew when it is full. What was in it costs a question.
func put[V any](m *map[string]V, key string, value V) {
	if *m == nil || len(*m) >= maxRemembered {
		*m = map[string]V{}
	}
	(*m)[key] = value
}

// redacted returns a URL without what may be secret in it.
func redacted(location string) string {
	u, err := url.Parse(location)
	if err != nil {
		return "(not a URL)"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
