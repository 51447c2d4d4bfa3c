package diagnosis

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/liveness"
)

// Facts has the objects that were read about a runtime. If objects could not be read and are not required, Facts
// contains a note about these objects.
type Facts struct {
	Cluster   *connection.Cluster
	Manager   *liveness.Observation // set by the caller of Read, and nil in a runtime, where there are no Leases
	Kyma      *v1beta2.Kyma
	Manifests []v1beta2.Manifest // empty in a runtime, which has no Manifests
	Catalog   *connection.Catalog
	Secrets   []metav1.PartialObjectMetadata
	NoSecrets bool // the access Secrets are not known
	Events    []corev1.Event
	Notes     []string
	Now       time.Time
}

// Options are the options of Read.
type Options struct {
	// If Module is not "", Read returns an error unless the runtime requests or has this module.
	Module string
	// If Catalog is not nil, Read uses this catalog instead of requesting the objects of the catalog from the API
	// server.
	Catalog *connection.Catalog
	// WithoutSecrets is true if the user has no permission to list access Secrets. If WithoutSecrets is true, Read does
	// not list access Secrets.
	WithoutSecrets bool
}

// Read reads all objects about a runtime in two rounds of parallel requests.
func Read(ctx context.Context, c *connection.Cluster, name string, o Options) (*Facts, error) {
	f := &Facts{Cluster: c, Catalog: o.Catalog, NoSecrets: o.WithoutSecrets}
	var manifests v1beta2.ManifestList
	var mu sync.Mutex
	note := func(what string, err error) {
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			f.Notes = append(f.Notes, what+" cannot be read: "+c.Explain(err, "reading them").Error())
		}
	}
	all, first := errgroup.WithContext(ctx)
	all.Go(func() (err error) {
		f.Kyma, err = c.Kyma(first, name)
		return err
	})
	if c.IsControlPlane() {
		all.Go(func() error {
			return c.Explain(c.List(first, &manifests, c.InNamespace(),
				client.MatchingLabels{v1beta2.LabelKymaName: name}), "reading the Manifests of "+name)
		})
	}
	if c.OwnKyma == "" && !o.WithoutSecrets {
		all.Go(func() error {
			secrets, err := c.AccessSecrets(first, name)
			note("access Secrets", err)
			f.Secrets, f.NoSecrets = secrets.Items, err != nil
			return nil
		})
	}
	all.Go(func() error {
		events, err := readEvents(first, c, name)
		note("events", err)
		f.Events = events
		return nil
	})
	if err := all.Wait(); err != nil {
		return nil, err
	}
	f.Manifests = manifests.Items
	if o.Module != "" {
		if err := f.RequireModuleInRuntime(ctx, o.Module); err != nil {
			return nil, err
		}
	}
	return f, f.readCatalogAndModuleEvents(ctx, o.Module)
}

// RequireModuleInRuntime returns an error if the runtime neither requests nor has the module.
func (f *Facts) RequireModuleInRuntime(ctx context.Context, module string) error {
	names := connection.ModuleNames(f.Kyma)
	for i := range f.Manifests {
		names = append(names, f.Manifests[i].ModuleName())
	}
	if slices.Contains(names, module) {
		return nil
	}
	s, err := f.Catalog, error(nil)
	if s == nil {
		s, err = f.Cluster.Catalog(ctx)
	}
	if err == nil && slices.Contains(s.Modules(), module) {
		return console.Fail(console.ExitNotFound,
			"%s neither requests module %s nor has it: the admin of the runtime enables it with klm module enable %s",
			f.Kyma.Name, module, module)
	}
	return console.Fail(console.ExitNotFound, "%s has no module %q: %s", f.Kyma.Name, module,
		console.SuggestionText(module, names))
}

// readCatalogAndModuleEvents reads the part of the catalog that the Kyma requests, and the events about the Manifest of
// the module.
func (f *Facts) readCatalogAndModuleEvents(ctx context.Context, module string) error {
	all, ctx := errgroup.WithContext(ctx)
	if f.Catalog == nil {
		all.Go(func() (err error) {
			f.Catalog, err = readCatalogFor(ctx, f.Cluster, connection.WithLastRequest(f.Kyma))
			return err
		})
	}
	if m := f.Manifest(module); m != nil {
		all.Go(func() error {
			events, err := readEvents(ctx, f.Cluster, m.Name)
			if err == nil {
				f.Events = append(f.Events, events...)
			}
			return nil
		})
	}
	return all.Wait()
}

// Manifest returns the Manifest of a module, or nil if the module has no Manifest. If a module has several Manifests,
// Manifest prefers a Manifest that is not being deleted.
func (f *Facts) Manifest(module string) *v1beta2.Manifest {
	var found *v1beta2.Manifest
	for i := range f.Manifests {
		if m := &f.Manifests[i]; m.ModuleName() == module && (found == nil || m.DeletionTimestamp.IsZero()) {
			found = m
		}
	}
	return found
}

// readEvents lists the events about an object. In a large control plane this can take long, because the API server has
// no index of events by object.
func readEvents(ctx context.Context, c *connection.Cluster, objectName string) ([]corev1.Event, error) {
	const eventsTimeout = 8 * time.Second
	ctx, cancel := context.WithTimeout(ctx, eventsTimeout)
	defer cancel()
	var list corev1.EventList
	err := c.List(ctx, &list, c.InNamespace(), client.MatchingFields{"involvedObject.name": objectName})
	list.Items = slices.DeleteFunc(list.Items, func(e corev1.Event) bool {
		return !strings.HasPrefix(e.InvolvedObject.APIVersion, v1beta2.GroupVersion.Group+"/")
	})
	return list.Items, err
}

// readCatalogFor reads the part of the catalog that a Kyma requests. For each module, this part consists of the
// ModuleReleaseMeta and the ModuleTemplate of the requested version. While the channel of the module moves,
// readCatalogFor also reads the rollout and the ModuleTemplate of the former version. If a module has no
// ModuleReleaseMeta, readCatalogFor reads the whole catalog.
func readCatalogFor(ctx context.Context, c *connection.Cluster, requested *v1beta2.Kyma) (*connection.Catalog, error) {
	s := &connection.Catalog{Releases: map[string]*v1beta2.ModuleReleaseMeta{},
		Templates: map[string]*v1beta2.ModuleTemplate{}}
	var mu sync.Mutex
	incomplete := false
	var moving []string // guarded by mu: the rollouts of channels that move, "" for one that does not exist yet
	all, parallel := errgroup.WithContext(ctx)
	all.SetLimit(16)
	for _, m := range requested.Spec.Modules {
		all.Go(func() error {
			r := &v1beta2.ModuleReleaseMeta{}
			err := c.Get(parallel, client.ObjectKey{Namespace: c.Namespace, Name: m.Name}, r)
			if apierrors.IsNotFound(err) {
				mu.Lock()
				defer mu.Unlock()
				incomplete = true // an old module with channels in its ModuleTemplates, or a wrong name
				return nil
			}
			if err != nil {
				return c.Explain(err, "reading ModuleReleaseMeta "+m.Name)
			}
			version := m.Version
			if version == "" {
				version, _ = r.ChannelVersion(requested.ModuleChannelOrDefault(m.Name))
			}
			mu.Lock()
			s.Releases[m.Name] = r
			mu.Unlock()
			versions := []string{version}
			if of := r.ChannelStatus(requested.ModuleChannelOrDefault(m.Name)); m.Version == "" && of != nil &&
				of.Version != version { // the channel moves, and a runtime may keep the former version
				versions = append(versions, of.Version)
				mu.Lock()
				moving = append(moving, of.Rollout)
				mu.Unlock()
			}
			for _, version := range versions {
				t := &v1beta2.ModuleTemplate{}
				name := channel.TemplateName(m.Name, version)
				err := c.Get(parallel, client.ObjectKey{Namespace: c.Namespace, Name: name}, t)
				if client.IgnoreNotFound(err) != nil {
					return c.Explain(err, "reading ModuleTemplate "+name)
				}
				if err == nil {
					mu.Lock()
					s.Templates[name] = t
					mu.Unlock()
				}
			}
			return nil
		})
	}
	err := all.Wait()
	if err == nil && incomplete {
		s, err = c.Catalog(ctx)
	}
	if err != nil || len(moving) == 0 {
		return s, err
	}
	return s, readPoliciesAndRollouts(ctx, c, s, moving)
}

// readPoliciesAndRollouts reads all RolloutPolicies and the named ModuleRollouts into a catalog. The catalog does not
// contain the names of ModuleRollouts that do not exist.
func readPoliciesAndRollouts(ctx context.Context, c *connection.Cluster, into *connection.Catalog,
	rolloutNames []string) (
	err error) {
	if into.Policies, err = c.Policies(ctx); err != nil {
		return err
	}
	into.Rollouts = map[string]*v1beta2.ModuleRollout{}
	for _, name := range rolloutNames {
		if name == "" || !c.Serves[connection.ResourceRollouts] {
			continue
		}
		r := &v1beta2.ModuleRollout{}
		err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, r)
		if client.IgnoreNotFound(err) != nil {
			return c.Explain(err, "reading ModuleRollout "+name)
		}
		if err == nil {
			into.Rollouts[name] = r
		}
	}
	return nil
}
