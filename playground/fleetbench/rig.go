package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"time"

	"github.com/go-logr/logr"
	ociregistry "github.com/google/go-containerregistry/pkg/registry"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/playground/fleet"
)

// creating is the number of requests that the benchmark sends to the control plane at the same time.
const creating = 16

// first is the version of all modules at the beginning.
const first = "1.0.0"

// rig is the setup for one number of clusters: control plane, registry, fleet, agents, manager.
type rig struct {
	*options

	clusters  int
	dir       string
	plane     *plane
	store     *httptest.Server // registry of modules
	fleet     *fleet.Fleet
	artefacts *registry.Registry
	modules   []*module
	extra     *module // no Kyma has this module at the beginning
	kymas     *observer
	changes   *changes
	agents    *agents // nil if the agents are switched off
	crew      crew    // the running processes of the manager
	retired   usage   // usage of earlier processes of the manager; only cpu is used
	empty     inside  // figures of the manager without a fleet
	end       context.CancelFunc
	fail      context.CancelCauseFunc // cancels the measurement

	upgradeP99 float64 // time until Ready in scenario upgrade, in ms; 0 before that scenario
}

// openRig starts everything except the manager. openRig calls fail when the manager ends unexpectedly.
func openRig(ctx context.Context, o *options, clusters int, fail context.CancelCauseFunc) (_ *rig, err error) {
	r := &rig{options: o, clusters: clusters, fail: fail}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	klog.SetLogger(logr.Discard()) // the simulator would log as much as thousands of API servers
	ctrllog.SetLogger(logr.Discard())
	ctx, r.end = context.WithCancel(ctx)
	if r.dir, err = os.MkdirTemp("", "fleetbench-"); err != nil {
		return r, fmt.Errorf("making a folder: %w", err)
	}
	r.store = httptest.NewServer(ociregistry.New(ociregistry.Logger(log.New(io.Discard, "", 0))))
	if r.artefacts, err = registry.New(registry.Options{Host: r.store.URL}); err != nil {
		return r, fmt.Errorf("opening the registry: %w", err)
	}
	all := newModules(o.Modules+1+o.Catalog, o.Objects)
	r.modules, r.extra = all[:o.Modules], all[o.Modules]
	var operators []fleet.Operator
	for _, m := range all {
		operators = append(operators, m.simulatedOperator())
	}
	r.changes = newChanges()
	if r.fleet, err = fleet.Open(ctx, fleet.Options{Clusters: clusters, Seed: 1, Operators: operators,
		Changed: r.changes.enqueue}); err != nil {
		return r, err
	}
	if r.plane, err = startPlane(ctx, r.dir); err != nil {
		return r, err
	}
	for _, m := range all {
		if err := m.publish(ctx, r.artefacts, r.plane.client, first); err != nil {
			return r, err
		}
		if err := m.setChannel(ctx, r.plane.client, first); err != nil {
			return r, err
		}
	}
	r.kymas = observe(ctx, r.plane.client, clusters)
	go r.changes.run(ctx)
	if o.WatchMode == config.WatchAgent {
		r.agents = startAgents(ctx, r.fleet, r.changes, o.remember)
	}
	return r, nil
}

// close stops everything and removes temporary files.
func (r *rig) close() error {
	var errs []error
	errs = append(errs, r.crew.stopAll())
	if r.end != nil {
		r.end()
	}
	if r.agents != nil {
		r.agents.close()
	}
	if r.fleet != nil {
		errs = append(errs, r.fleet.Close())
	}
	if r.plane != nil && r.plane.child != nil {
		errs = append(errs, r.plane.stopProcessAndCloseLog())
	}
	if r.store != nil {
		r.store.Close()
	}
	if r.dir != "" && r.Keep == "" {
		errs = append(errs, os.RemoveAll(r.dir))
	}
	if r.dir != "" && r.Keep != "" {
		errs = append(errs, moveLogsAndRemove(r.dir, r.Keep))
	}
	return errors.Join(errs...)
}

// register registers a cluster in the control plane. register creates an access Secret, and a Kyma with all modules
// except the extra one.
func (r *rig) register(ctx context.Context, i int) error {
	c := r.fleet.Cluster(i)
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: c.Name() + "-access", Namespace: v1beta2.ControlPlaneNamespace,
			Labels: map[string]string{v1beta2.LabelKymaName: c.Name(),
				v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager},
		},
		Data: map[string][]byte{v1beta2.AccessSecretKey: c.Kubeconfig()},
	}
	if err := r.plane.client.Create(ctx, s); err != nil {
		return fmt.Errorf("creating the access Secret of %s: %w", c.Name(), err)
	}
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: c.Name(), Namespace: v1beta2.ControlPlaneNamespace},
		Spec: v1beta2.KymaSpec{Channel: benchChannel}}
	for _, m := range r.modules {
		k.Spec.Modules = append(k.Spec.Modules, v1beta2.Module{Name: m.name})
	}
	if err := r.plane.client.Create(ctx, k); err != nil {
		return fmt.Errorf("creating Kyma %s: %w", c.Name(), err)
	}
	return nil
}

// updateAccessSecret writes the present credentials of a cluster into its access Secret.
func (r *rig) updateAccessSecret(ctx context.Context, i int) error {
	c := r.fleet.Cluster(i)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: c.Name() + "-access",
		Namespace: v1beta2.ControlPlaneNamespace}}
	before := s.DeepCopy()
	s.Data = map[string][]byte{v1beta2.AccessSecretKey: c.Kubeconfig()}
	if err := r.plane.client.Patch(ctx, s, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("renewing the access Secret of %s: %w", c.Name(), err)
	}
	return nil
}

// deleteKymaOfCluster deletes the Kyma of a cluster.
func (r *rig) deleteKymaOfCluster(ctx context.Context, i int) error {
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: r.fleet.Cluster(i).Name(),
		Namespace: v1beta2.ControlPlaneNamespace}}
	if err := r.plane.client.Delete(ctx, k); err != nil {
		return fmt.Errorf("deleting Kyma %s: %w", k.Name, err)
	}
	return nil
}

var (
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	kymas       = v1beta2.GroupVersion.WithResource("kymas")
)

// isApplied reports whether a version of a module is applied to a cluster. The module need not run yet. isApplied
// checks the workload, because the workload is the last object that is applied.
func (r *rig) isApplied(i int, m *module, version string) bool {
	d, err := r.fleet.Cluster(i).Get(deployments, v1beta2.RuntimeNamespace, m.deploymentName())
	return err == nil && d != nil && d.GetLabels()[versionLabel] == version
}

// allAppliedInAnyVersion reports whether all modules are applied to a cluster, in any version.
func (r *rig) allAppliedInAnyVersion(i int) bool {
	there := map[string]bool{}
	for _, name := range r.fleet.Cluster(i).Names(deployments.GroupResource()) {
		there[name] = true
	}
	for _, m := range r.modules {
		if !there[types.NamespacedName{Namespace: v1beta2.RuntimeNamespace, Name: m.deploymentName()}.String()] {
			return false
		}
	}
	return true
}

// waitTimeout returns the maximum time of a scenario with this number of clusters. A longer scenario has failed.
func (r *rig) waitTimeout() time.Duration {
	return 20*time.Minute + time.Duration(r.clusters)*time.Second
}
