package cli

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
)

func (a *app) whyCommand() *cobra.Command {
	c := a.command("why RUNTIME [MODULE]", "what a runtime shall have, what it has, what comes next, and what is in the way",
		"For each thing in the way it says since when, and what to do. With MODULE it says more about that one.", `
klm why runtime-a
klm why runtime-a sample
klm why runtime-a -o json | jq '.blockers[].reason'`,
		arguments("RUNTIME", "[MODULE]"), func(cmd *cobra.Command, args []string) error {
			c, err := a.controlPlane(cmd.Context())
			if err != nil {
				return err
			}
			module := ""
			if len(args) > 1 {
				module = args[1]
			}
			facts, err := c.factsOf(cmd.Context(), args[0], module)
			if err != nil {
				return err
			}
			facts.now = a.now()
			return a.print(facts.explain(module))
		})
	c.ValidArgsFunction = completing(a.runtimeNames, a.modulesOfRuntime)
	return c
}

// facts is what is known of a runtime. What could not be read, and is not needed, has a note.
type facts struct {
	cluster   *cluster
	kyma      *v1beta2.Kyma
	manifests []v1beta2.Manifest // empty in a runtime, where nobody knows them
	stock     *stock
	secrets   []metav1.PartialObjectMetadata
	events    []corev1.Event
	notes     []string
	now       time.Time
}

// factsOf reads all about a runtime, in two rounds. With a module, it fails if the runtime neither has nor wants it.
func (c *cluster) factsOf(ctx context.Context, name, module string) (*facts, error) {
	f := &facts{cluster: c}
	var manifests v1beta2.ManifestList
	var mu sync.Mutex
	note := func(what string, err error) {
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			f.notes = append(f.notes, what+" cannot be read: "+c.explain(err, "reading them").Error())
		}
	}
	all, first := errgroup.WithContext(ctx)
	all.Go(func() (err error) {
		f.kyma, err = c.kyma(first, name)
		return err
	})
	if c.isControlPlane() {
		all.Go(func() error {
			return c.explain(c.List(first, &manifests, c.here(), client.MatchingLabels{v1beta2.LabelKymaName: name}), "reading the Manifests of "+name)
		})
	}
	if c.wish == "" {
		all.Go(func() error {
			secrets, err := c.secretsOf(first, name)
			note("access Secrets", err)
			f.secrets = secrets.Items
			return nil
		})
	}
	all.Go(func() error {
		events, err := c.eventsOf(first, name)
		note("events", err)
		f.events = events
		return nil
	})
	if err := all.Wait(); err != nil {
		return nil, err
	}
	f.manifests = manifests.Items
	if module != "" {
		if err := f.require(ctx, module); err != nil {
			return nil, err
		}
	}
	return f, f.readMore(ctx, module)
}

// require fails if the runtime has nothing to do with a module.
func (f *facts) require(ctx context.Context, module string) error {
	names := modulesOf(f.kyma)
	for i := range f.manifests {
		names = append(names, f.manifests[i].ModuleName())
	}
	if slices.Contains(names, module) {
		return nil
	}
	if s, err := f.cluster.stock(ctx); err == nil && slices.Contains(s.modules(), module) {
		return fail(exitNotFound, "%s neither asks for module %s nor has it: its admin can have it by klm module enable %s", f.kyma.Name, module, module)
	}
	return fail(exitNotFound, "%s has no module %q: %s", f.kyma.Name, module, instead(module, names))
}

// readMore reads the part of the catalog that the wish is about, and the events of the Manifest of the module that is asked about.
func (f *facts) readMore(ctx context.Context, module string) error {
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() (err error) {
		f.stock, err = f.cluster.stockFor(ctx, wishFrom(f.kyma))
		return err
	})
	if m := f.manifest(module); m != nil {
		all.Go(func() error {
			events, err := f.cluster.eventsOf(ctx, m.Name)
			if err == nil {
				f.events = append(f.events, events...)
			}
			return nil
		})
	}
	return all.Wait()
}

// manifest returns the Manifest of a module, nil if there is none. Of several, it is one that is not on its way out.
func (f *facts) manifest(module string) *v1beta2.Manifest {
	var found *v1beta2.Manifest
	for i := range f.manifests {
		if m := &f.manifests[i]; m.ModuleName() == module && (found == nil || m.DeletionTimestamp.IsZero()) {
			found = m
		}
	}
	return found
}

// eventsOf lists the events about an object. In a large control plane that can take long, because nobody has an index of them.
func (c *cluster) eventsOf(ctx context.Context, name string) ([]corev1.Event, error) {
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var list corev1.EventList
	err := c.List(ctx, &list, c.here(), client.MatchingFields{"involvedObject.name": name})
	list.Items = slices.DeleteFunc(list.Items, func(e corev1.Event) bool {
		return !strings.HasPrefix(e.InvolvedObject.APIVersion, v1beta2.GroupVersion.Group+"/")
	})
	return list.Items, err
}

// stockFor reads the part of the catalog that a wish is about: for each module its release, and the template of the version that is wished.
func (c *cluster) stockFor(ctx context.Context, wished *v1beta2.Kyma) (*stock, error) {
	s := &stock{releases: map[string]*v1beta2.ModuleReleaseMeta{}, templates: map[string]*v1beta2.ModuleTemplate{}}
	var mu sync.Mutex
	early := false
	all, parallel := errgroup.WithContext(ctx)
	all.SetLimit(16)
	for _, m := range wished.Spec.Modules {
		all.Go(func() error {
			r := &v1beta2.ModuleReleaseMeta{}
			err := c.Get(parallel, client.ObjectKey{Namespace: c.namespace, Name: m.Name}, r)
			if apierrors.IsNotFound(err) {
				mu.Lock()
				defer mu.Unlock()
				early = true // or a wrong name; the list of templates will tell
				return nil
			}
			if err != nil {
				return c.explain(err, "reading ModuleReleaseMeta "+m.Name)
			}
			version := m.Version
			if version == "" {
				version, _ = r.ChannelVersion(wished.ModuleChannel(m.Name))
			}
			t := &v1beta2.ModuleTemplate{}
			name := channel.TemplateName(m.Name, version)
			err = c.Get(parallel, client.ObjectKey{Namespace: c.namespace, Name: name}, t)
			mu.Lock()
			defer mu.Unlock()
			s.releases[m.Name] = r
			if err == nil {
				s.templates[name] = t
			}
			return c.explain(client.IgnoreNotFound(err), "reading ModuleTemplate "+name)
		})
	}
	if err := all.Wait(); err != nil || !early {
		return s, err
	}
	return c.stock(ctx)
}
