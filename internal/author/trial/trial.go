package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/author"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Trial installs a module on a cluster that nobody needs, upgrades it, and removes it again, as a manager does.
type Trial struct {
	// Config leads to the cluster. All rights are needed.
	Config *rest.Config
	// Module is what is tried; Previous, which may be nil, is installed first and upgraded.
	Module, Previous *author.Module
	// Simulated says that no operator runs there, so that nobody reports the state of the default custom resource, which is not waited for then.
	Simulated bool
	// Timeout of each step; 0 means 3 minutes.
	Timeout time.Duration
	// Progress is told of each step when it begins, and what it waits for; nil tells nobody.
	Progress func(text string)

	cluster *apply.Cluster
	states  apply.StateEvaluator
}

// Step is what one step of a trial came to.
type Step struct {
	// Name of the step: install, upgrade, uninstall or leftovers.
	Name string `json:"name"`
	// Result in words.
	Result string `json:"result"`
}

// trialPeriod is how often a trial looks.
const trialPeriod = 300 * time.Millisecond

// Run runs all steps and ends with the first that fails; what is installed then stays, to be looked at. The error says which, and why.
func (t *Trial) Run(ctx context.Context) ([]Step, error) {
	if t.Timeout == 0 {
		t.Timeout = 3 * time.Minute
	}
	if t.Progress == nil {
		t.Progress = func(string) {}
	}
	var err error
	if t.cluster, err = apply.New(t.Config, nil, apply.ClusterOptions{}); err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	if err := t.prepare(ctx); err != nil {
		return nil, err
	}
	before, err := t.inventory(ctx)
	if err != nil {
		return nil, err
	}
	r := &trialRun{Trial: t}
	first := t.Module
	if t.Previous != nil {
		first = t.Previous
	}
	var steps []Step
	step := func(name, result string, run func(context.Context) error) error {
		t.Progress(name)
		bounded, cancel := context.WithTimeout(ctx, t.Timeout)
		defer cancel()
		if err := run(bounded); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		steps = append(steps, Step{name, result})
		return nil
	}
	err = step("install", fmt.Sprintf("%s is installed and ready", first.Version), func(ctx context.Context) error { return r.install(ctx, first) })
	if err == nil && t.Previous != nil {
		err = step("upgrade", fmt.Sprintf("%s became %s and is ready", t.Previous.Version, t.Module.Version), func(ctx context.Context) error { return r.upgrade(ctx, t.Module) })
	}
	if err == nil {
		err = step("uninstall", "all objects are gone", r.uninstall)
	}
	if err == nil {
		err = step("leftovers", "nothing is left", func(ctx context.Context) error { return t.leftovers(ctx, before) })
	}
	return steps, err
}

// prepare makes the namespace of modules, and fails if a module is there already.
func (t *Trial) prepare(ctx context.Context) error {
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": v1beta2.RuntimeNamespace}}}
	if _, err := t.cluster.Create(ctx, namespace, v1beta2.FieldOwnerApplier); err != nil && reasonOf(err) != apply.ObjectExists {
		return fmt.Errorf("preparing the cluster: %w", err)
	}
	for _, o := range t.Module.Objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		_, err := t.cluster.Get(ctx, apply.Ref{Group: o.GroupVersionKind().Group, Version: o.GroupVersionKind().Version, Kind: o.GetKind(), Name: o.GetName()})
		if err == nil {
			return fmt.Errorf("preparing the cluster: it has %s already: use a cluster without the module", content.NameOf(o))
		}
		if reasonOf(err) != apply.ObjectNotFound {
			return fmt.Errorf("preparing the cluster: %w", err)
		}
	}
	return nil
}

func reasonOf(err error) string {
	if e, ok := errors.AsType[*apply.Error](err); ok {
		return e.Reason()
	}
	return ""
}

// trialRun is what is known while a trial runs.
type trialRun struct {
	*Trial
	refs []apply.Ref // installed
	cr   apply.Ref   // the default custom resource; zero if there is none
	uid  string      // of cr
}

// install applies a version and waits until all is ready.
func (r *trialRun) install(ctx context.Context, m *author.Module) error {
	bundle, err := render.Build(m.Objects, render.Options{})
	if err != nil {
		return err
	}
	set := apply.Set{Bundle: bundle, Namespace: v1beta2.RuntimeNamespace, Owner: v1beta2.FieldOwnerApplier}
	refs, err := r.cluster.Inventory(ctx, set)
	if err != nil && len(refs) == 0 {
		return err
	}
	old := r.refs
	r.refs = append(slices.Clone(refs), apply.Removed(old, refs)...)
	var done apply.Progress
	err = r.until(ctx, func() (string, error) {
		result, err := r.cluster.Apply(ctx, set, &done)
		switch {
		case err != nil:
			return err.Error(), nil
		case len(result.Failed) > 0 && apply.ClassOf(result.Failed[0]) == apply.Terminal:
			return "", result.Failed[0]
		case len(result.Failed) > 0:
			return result.Failed[0].Error(), nil
		case len(result.Waiting) > 0:
			return fmt.Sprintf("%s: %s", result.Waiting[0].Ref, result.Waiting[0].Reason), nil
		}
		return "", nil
	})
	if err != nil {
		return err
	}
	if err := r.remove(ctx, apply.Removed(old, refs)); err != nil {
		return err
	}
	r.refs = refs
	if err := r.create(ctx, m); err != nil {
		return err
	}
	return r.until(ctx, func() (string, error) {
		notReady, err := r.cluster.CheckReady(ctx, refs, &done)
		switch {
		case err != nil:
			return err.Error(), nil
		case len(notReady) > 0:
			return notReady[0].Message, nil
		}
		return r.state(ctx)
	})
}

// create creates the default custom resource, once.
func (r *trialRun) create(ctx context.Context, m *author.Module) error {
	if m.DefaultCR == nil || r.uid != "" {
		return nil
	}
	cr := m.DefaultCR.DeepCopy()
	if cr.GetName() == "" {
		cr.SetName(m.Name[strings.LastIndex(m.Name, "/")+1:])
	}
	gvk := cr.GroupVersionKind()
	r.cr = apply.Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Name: cr.GetName()}
	return r.until(ctx, func() (string, error) {
		_, namespaced, err := r.cluster.Resource(ctx, r.cr)
		if err != nil {
			return err.Error(), nil
		}
		if namespaced && cr.GetNamespace() == "" {
			cr.SetNamespace(v1beta2.RuntimeNamespace)
		}
		if r.cr.Namespace = cr.GetNamespace(); !namespaced {
			r.cr.Namespace = ""
		}
		if r.cr, err = r.cluster.Create(ctx, cr, v1beta2.FieldOwnerApplier); err != nil && apply.ClassOf(err) == apply.Terminal {
			return "", err
		}
		if err != nil {
			return err.Error(), nil
		}
		made, err := r.cluster.Get(ctx, r.cr)
		if err != nil {
			return err.Error(), nil
		}
		r.uid = string(made.GetUID())
		return "", nil
	})
}

// state says what the default custom resource waits for, "" for nothing.
func (r *trialRun) state(ctx context.Context) (string, error) {
	if r.uid == "" || r.Simulated {
		return "", nil
	}
	cr, err := r.cluster.Get(ctx, r.cr)
	if err != nil {
		return err.Error(), nil
	}
	v, err := r.states.Evaluate(r.cr, cr, apply.StateRules{})
	switch {
	case err != nil:
		return "", err
	case v.State == apply.StateReady:
		return "", nil
	}
	return fmt.Sprintf("%s is %s: %s", r.cr, v.State, v.Message), nil
}

// upgrade installs the next version over the first, and looks whether the custom resource of users has stayed.
func (r *trialRun) upgrade(ctx context.Context, m *author.Module) error {
	if err := r.install(ctx, m); err != nil {
		return err
	}
	if r.uid == "" {
		return nil
	}
	cr, err := r.cluster.Get(ctx, r.cr)
	if err != nil {
		return fmt.Errorf("the custom resource of the first version was lost: %w", err)
	}
	if string(cr.GetUID()) != r.uid {
		return fmt.Errorf("%s was deleted and created again: what users had in it is lost", r.cr)
	}
	return nil
}

// uninstall removes the custom resource, while its operator runs, and then the rest.
func (r *trialRun) uninstall(ctx context.Context) error {
	if r.uid != "" {
		if err := r.remove(ctx, []apply.Ref{r.cr}); err != nil {
			return err
		}
	}
	return r.remove(ctx, r.refs)
}

func (r *trialRun) remove(ctx context.Context, refs []apply.Ref) error {
	if len(refs) == 0 {
		return nil
	}
	var asked apply.DeletionProgress
	return r.until(ctx, func() (string, error) {
		t, err := r.cluster.Delete(ctx, refs, &asked)
		switch {
		case err != nil:
			return err.Error(), nil
		case len(t.Remaining) > 0:
			return fmt.Sprintf("%s: %s", t.Remaining[0].Ref, t.Remaining[0].Message), nil
		}
		return "", nil
	})
}

// until looks again and again until nothing is in the way. The error of a timeout says what was.
func (t *Trial) until(ctx context.Context, look func() (inTheWay string, err error)) error {
	said := ""
	for {
		inTheWay, err := look()
		if err != nil || inTheWay == "" {
			return err
		}
		if inTheWay != said && ctx.Err() == nil {
			said = inTheWay
			t.Progress("  " + inTheWay)
		}
		timer := time.NewTimer(trialPeriod)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("not done after %s: %s", t.Timeout, said)
			}
			return ctx.Err()
		}
	}
}

// passing are kinds that come and go without anybody who installs something.
var passing = map[string]bool{"Event": true, "Endpoints": true, "EndpointSlice": true, "Lease": true, "ControllerRevision": true, "ComponentStatus": true}

// inventory lists all objects of the cluster, by UID.
func (t *Trial) inventory(ctx context.Context) (map[string]string, error) {
	client, err := discovery.NewDiscoveryClientForConfig(t.Config)
	if err != nil {
		return nil, fmt.Errorf("listing what is in the cluster: %w", err)
	}
	lists, err := client.ServerPreferredResources()
	if len(lists) == 0 && err != nil {
		return nil, fmt.Errorf("listing what is in the cluster: %w", err)
	}
	all := map[string]string{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || strings.HasPrefix(version.Group, "metrics") {
			continue
		}
		for _, resource := range list.APIResources {
			if strings.Contains(resource.Name, "/") || !slices.Contains(resource.Verbs, "list") || !slices.Contains(resource.Verbs, "delete") || passing[resource.Kind] {
				continue
			}
			found, err := t.cluster.List(ctx, version.WithKind(resource.Kind), "")
			if reasonOf(err) == apply.KindUnknown {
				continue // it went in the meantime
			}
			if err != nil {
				return nil, fmt.Errorf("listing what is in the cluster: %w", err)
			}
			for _, f := range found {
				all[f.UID] = f.String()
			}
		}
	}
	return all, nil
}

// leftovers waits until the cluster has nothing that it did not have before; garbage is collected with some delay.
func (t *Trial) leftovers(ctx context.Context, before map[string]string) error {
	const patience = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, min(patience, t.Timeout))
	defer cancel()
	var left []string
	err := t.until(ctx, func() (string, error) {
		now, err := t.inventory(ctx)
		if err != nil {
			return err.Error(), nil
		}
		left = nil
		for uid, name := range now {
			if before[uid] == "" {
				left = append(left, name)
			}
		}
		slices.Sort(left)
		return strings.Join(left, ", "), nil
	})
	if err != nil && len(left) > 0 {
		return fmt.Errorf("%d objects are left that were not there before: %s: let the operator remove what it has made, before it removes its finalizer", len(left), content.JoinFirst(left, ", "))
	}
	return err
}
