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

// Trial installs a module on a test cluster, upgrades the module, and uninstalls the module, as the manager does.
type Trial struct {
	// Config is the configuration of the connection to the cluster. The user of the connection needs all permissions in
	// the cluster.
	Config *rest.Config
	// Module is the tested module. Previous is the version that is installed first and then upgraded to the version in
	// Module; Previous may be nil.
	Module, Previous *author.Module
	// Simulated is true if the module's operator does not run in the cluster. Without the operator, nothing sets the
	// state of the default custom resource, so Run does not wait for this state.
	Simulated bool
	// Timeout is the timeout of each step; 0 means that the timeout is 3 minutes.
	Timeout time.Duration
	// Progress is called with a message when a step starts, and with the reason while a step waits. If Progress is nil,
	// there are no messages.
	Progress func(text string)

	cluster *apply.Cluster
	states  apply.StateEvaluator
}

// Step is the result of one step of a trial.
type Step struct {
	// Name is the name of the step: install, upgrade, uninstall or leftovers.
	Name string `json:"name"`
	// Result is the result of the step as text.
	Result string `json:"result"`
}

// pollInterval is the interval at which a step checks a condition again.
const pollInterval = 300 * time.Millisecond

// Run runs all steps and stops after the first failed step. If the cluster already contains an object of a tested
// version, Run changes nothing and returns an error. After a failed step, the installed objects stay in the cluster, so
// that the author can inspect these objects. The error contains the name of the failed step and the cause.
func (t *Trial) Run(ctx context.Context) (passed []Step, _ error) {
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
	if err := t.requireNoObjects(ctx); err != nil {
		return nil, err
	}
	if err := t.createNamespace(ctx); err != nil {
		return nil, err
	}
	before, err := t.listObjectsByUID(ctx)
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
	err = step("install", fmt.Sprintf("%s is installed and ready", first.Version),
		func(ctx context.Context) error { return r.installOrUpgrade(ctx, first) })
	if err == nil && t.Previous != nil {
		err = step("upgrade", fmt.Sprintf("%s became %s and is ready", t.Previous.Version, t.Module.Version),
			func(ctx context.Context) error { return r.upgrade(ctx, t.Module) })
	}
	if err == nil {
		err = step("uninstall", "all objects are deleted", r.uninstall)
	}
	if err == nil {
		err = step("leftovers", "nothing is left",
			func(ctx context.Context) error { return t.waitForNoLeftovers(ctx, before) })
	}
	return steps, err
}

// requireNoObjects returns an error if the cluster already contains an object of a tested version. The trial would
// change such an object, and delete it at the end. Objects that an interrupted trial has left cannot be distinguished
// from objects that a manager has installed, so the error asks the user to delete them.
func (t *Trial) requireNoObjects(ctx context.Context) error {
	const problem = "preparing the cluster: %w"
	// A Cluster of its own, because DesiredInventory records the kinds of a version as if they were installed.
	c, err := apply.New(t.Config, nil, apply.ClusterOptions{})
	if err != nil {
		return fmt.Errorf(problem, err)
	}
	var existing []string
	seen := map[apply.Ref]bool{}
	for _, m := range []*author.Module{t.Module, t.Previous} {
		if m == nil {
			continue
		}
		bundle, err := render.Build(m.Objects, render.Options{})
		if err != nil {
			return err
		}
		refs, err := c.DesiredInventory(ctx, apply.Set{Bundle: bundle, Owner: v1beta2.FieldOwnerApplier})
		if err != nil && !isAllAbsent(err) {
			return fmt.Errorf(problem, err)
		}
		for _, ref := range refs {
			if apply.IsProtectedNamespace(ref) || seen[ref] { // a protected namespace is never deleted
				continue
			}
			seen[ref] = true
			_, err := c.Get(ctx, ref)
			if err == nil {
				existing = append(existing, ref.String())
			} else if !isAllAbsent(err) {
				return fmt.Errorf(problem, err)
			}
		}
	}
	if len(existing) > 0 {
		return fmt.Errorf("preparing the cluster: it has objects of the module already, which the test would delete: "+
			"%s: use a cluster without the module, or delete them if an earlier test has left them",
			content.JoinFirst(existing, ", "))
	}
	return nil
}

// isAllAbsent reports whether an error, or each of the errors that it joins, means that an object does not exist.
func isAllAbsent(err error) bool {
	all := []error{err}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		all = joined.Unwrap()
	}
	return !slices.ContainsFunc(all, func(err error) bool {
		reason := reasonOfApplyError(err)
		return reason != apply.ObjectNotFound && reason != apply.KindUnknown && reason != apply.NamespaceNotFound
	})
}

// createNamespace creates the namespace for modules, unless it exists.
func (t *Trial) createNamespace(ctx context.Context) error {
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": v1beta2.RuntimeNamespace}}}
	if _, err := t.cluster.Create(ctx, namespace, v1beta2.FieldOwnerApplier); err != nil &&
		reasonOfApplyError(err) != apply.ObjectExists {
		return fmt.Errorf("preparing the cluster: %w", err)
	}
	return nil
}

func reasonOfApplyError(err error) string {
	if e, ok := errors.AsType[*apply.Error](err); ok {
		return e.Reason()
	}
	return ""
}

// trialRun is the state of a running trial.
type trialRun struct {
	*Trial
	refs []apply.Ref // installed objects
	cr   apply.Ref   // the default custom resource; zero if there is none
	uid  string      // UID of cr
}

// installOrUpgrade applies a version and waits until all its objects are ready.
func (r *trialRun) installOrUpgrade(ctx context.Context, m *author.Module) error {
	bundle, err := render.Build(m.Objects, render.Options{})
	if err != nil {
		return err
	}
	set := apply.Set{Bundle: bundle, Owner: v1beta2.FieldOwnerApplier} // objects without namespace: as in the manager
	refs, err := r.cluster.DesiredInventory(ctx, set)
	if err != nil && len(refs) == 0 {
		return err
	}
	old := r.refs
	r.refs = append(slices.Clone(refs), apply.Removed(old, refs)...)
	var done apply.Progress
	err = r.waitUntil(ctx, func() (string, error) {
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
	if err := r.ensureDefaultCR(ctx, m); err != nil {
		return err
	}
	return r.waitUntil(ctx, func() (string, error) {
		notReady, err := r.cluster.CheckReady(ctx, refs, &done)
		switch {
		case err != nil:
			return err.Error(), nil
		case len(notReady) > 0:
			return notReady[0].Message, nil
		}
		return r.defaultCRNotReadyReason(ctx)
	})
}

// ensureDefaultCR creates the default custom resource, unless this trial has created it before.
func (r *trialRun) ensureDefaultCR(ctx context.Context, m *author.Module) error {
	if m.DefaultCR == nil || r.uid != "" {
		return nil
	}
	cr := m.DefaultCR.DeepCopy()
	if cr.GetName() == "" {
		cr.SetName(m.Name[strings.LastIndex(m.Name, "/")+1:])
	}
	gvk := cr.GroupVersionKind()
	r.cr = apply.Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Name: cr.GetName()}
	return r.waitUntil(ctx, func() (string, error) {
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
		created, err := r.cluster.Create(ctx, cr, v1beta2.FieldOwnerApplier)
		if r.cr = created.Ref; err != nil && apply.ClassOf(err) == apply.Terminal {
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

// defaultCRNotReadyReason returns the reason why the default custom resource is not ready, or "" if the custom resource
// is ready.
func (r *trialRun) defaultCRNotReadyReason(ctx context.Context) (string, error) {
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

// upgrade applies the next version, and checks that the upgrade does not delete the custom resource.
func (r *trialRun) upgrade(ctx context.Context, m *author.Module) error {
	if err := r.installOrUpgrade(ctx, m); err != nil {
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

// uninstall deletes the default custom resource while the operator is still running. When the custom resource is
// deleted, uninstall deletes the other objects of the module.
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
	return r.waitUntil(ctx, func() (string, error) {
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

// waitUntil calls the function check repeatedly until the function returns "", which means that nothing blocks the step
// any more. If the step times out, the error contains the last result of the function check.
func (t *Trial) waitUntil(ctx context.Context, check func() (blocker string, err error)) error {
	lastBlocker := ""
	for {
		blocker, err := check()
		if err != nil || blocker == "" {
			return err
		}
		if blocker != lastBlocker && ctx.Err() == nil {
			lastBlocker = blocker
			t.Progress("  " + blocker)
		}
		timer := time.NewTimer(pollInterval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("not done after %s: %s", t.Timeout, lastBlocker)
			}
			return ctx.Err()
		}
	}
}

// transientKinds are kinds whose objects come and go even while no module is installed or uninstalled.
var transientKinds = map[string]bool{"Event": true, "Endpoints": true, "EndpointSlice": true, "Lease": true,
	"ControllerRevision": true, "ComponentStatus": true}

// createdByCluster reports whether the cluster itself creates the object in each namespace. The cluster may create an
// object of this kind some time after the namespace, so the object may be missing when the trial starts.
func createdByCluster(r apply.Ref) bool {
	return r.Group == "" && (r.Kind == "ConfigMap" && r.Name == "kube-root-ca.crt" ||
		r.Kind == "ServiceAccount" && r.Name == "default")
}

// listObjectsByUID returns all objects in the cluster, except the objects that the cluster creates in each namespace.
// The keys of the returned map are the UIDs of the objects.
func (t *Trial) listObjectsByUID(ctx context.Context) (map[string]string, error) {
	client, err := discovery.NewDiscoveryClientForConfig(t.Config)
	if err != nil {
		return nil, fmt.Errorf("listing the objects of the cluster: %w", err)
	}
	lists, err := client.ServerPreferredResources()
	if len(lists) == 0 && err != nil {
		return nil, fmt.Errorf("listing the objects of the cluster: %w", err)
	}
	all := map[string]string{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || strings.HasPrefix(version.Group, "metrics") {
			continue
		}
		for _, resource := range list.APIResources {
			if strings.Contains(resource.Name, "/") || !slices.Contains(resource.Verbs, "list") ||
				!slices.Contains(resource.Verbs, "delete") || transientKinds[resource.Kind] {
				continue
			}
			found, err := t.cluster.List(ctx, version.WithKind(resource.Kind), "")
			if reasonOfApplyError(err) == apply.KindUnknown {
				continue // the CRD was deleted in the meantime
			}
			if err != nil {
				return nil, fmt.Errorf("listing the objects of the cluster: %w", err)
			}
			for _, f := range found {
				if !createdByCluster(f.Ref) {
					all[f.UID] = f.String()
				}
			}
		}
	}
	return all, nil
}

// waitForNoLeftovers waits until the cluster has only objects that are listed in the parameter "before": the objects
// from before the installation. waitForNoLeftovers has to wait because the garbage collection of Kubernetes is
// asynchronous.
func (t *Trial) waitForNoLeftovers(ctx context.Context, before map[string]string) error {
	const timeout = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, min(timeout, t.Timeout))
	defer cancel()
	var left []string
	err := t.waitUntil(ctx, func() (string, error) {
		now, err := t.listObjectsByUID(ctx)
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
		return fmt.Errorf("%d objects remain that did not exist before the trial: %s: the operator must delete the "+
			"objects that it created before it removes its finalizer", len(left), content.JoinFirst(left, ", "))
	}
	return err
}
