// Package target determines on which cluster the objects of a Manifest are: the runtime, or the control plane.
//
// # Use
//
//	cluster := target.Of(manifest, pool, &controlPlane)
//	if err := cluster.CheckTarget(manifest); err != nil { … }    // before any request to the cluster
//	rt, err := cluster.Get(ctx)
//	err = cluster.CheckObjects(refs, manifest.Spec.Resource)     // before the objects are applied
//
// # How it works
//
// Almost every Manifest is installed on the runtime of its Kyma. A Manifest with spec.target control-plane is installed
// on the cluster of the manager. Besides the pool of connections to runtimes, there is a pool with one connection to
// the control plane. All Manifests with target control-plane share this connection, which needs no access Secret.
// Requests for modules on the control plane are sent with a separate ServiceAccount, not with the ServiceAccount of the
// manager. A module on the control plane therefore has only the rights that an administrator has granted to this
// separate ServiceAccount, and none of the rights of the manager.
//
// The cluster of a Manifest does not change: status.target shows where its objects are. If somebody changes spec.target
// while the module has objects, the Manifest is not reconciled until the target is changed back or the module is
// removed. If such a Manifest were reconciled, the objects that its inventory lists would be searched for on the new
// cluster, although they are on the former cluster.
//
// A module on the control plane could overwrite objects of the manager itself. Therefore [Cluster.CheckObjects] refuses
// a module for the control plane that contains an object of the manager.
//
// # What it does not do
//
// The package sends no request and writes no status. Package channel decides which template a Kyma gets, and the
// template decides about the target.
package target

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// ControlPlane describes the control plane as a cluster on which modules can be installed. The zero value means that no
// modules are allowed on the control plane.
type ControlPlane struct {
	// Pool contains only the connection to the control plane. If Pool is nil, no module is installed on the control
	// plane.
	Pool *runtimes.Pool
	// IsRuntime is true in in-cluster mode: the only runtime is the control plane, and targets have no effect.
	IsRuntime bool
	// Reserved are the namespaces of the control plane in which the manager reads and writes its own objects, such as
	// Kymas. A module on the control plane must not contain objects in a reserved namespace.
	Reserved []string
}

// connectionName is the name of the connection in ControlPlane.Pool. All Manifests for the control plane share one
// connection.
const connectionName = "control-plane"

// Cluster is the cluster on which the objects of one Manifest are.
type Cluster struct {
	// Target is TargetControlPlane or TargetRemote. Target is "" in in-cluster mode.
	Target v1beta2.Target

	pool     *runtimes.Pool // nil if no modules may be installed on the control plane
	name     string         // name of the connection in pool
	reserved *[]string      // ControlPlane.Reserved, if the cluster is the control plane; a pointer is comparable
}

// Of returns the cluster of a Manifest. pool is the pool with the connections to runtimes.
func Of(m *v1beta2.Manifest, pool *runtimes.Pool, c *ControlPlane) Cluster {
	runtime := Cluster{Target: v1beta2.TargetRemote, pool: pool, name: m.Labels[v1beta2.LabelKymaName]}
	switch {
	case c.IsRuntime:
		runtime.Target = ""
		return runtime
	case m.InstalledOrSpecTarget() != v1beta2.TargetControlPlane:
		return runtime
	}
	return Cluster{Target: v1beta2.TargetControlPlane, pool: c.Pool, name: connectionName, reserved: &c.Reserved}
}

// IsControlPlaneTarget reports whether the module is installed on the control plane instead of the runtime of its Kyma.
// In in-cluster mode, IsControlPlaneTarget returns false.
func (c Cluster) IsControlPlaneTarget() bool { return c.Target == v1beta2.TargetControlPlane }

// StatusTarget returns the value that status.target of a Manifest has for this cluster. StatusTarget returns
// TargetControlPlane for the control plane, and "" for a runtime.
func (c Cluster) StatusTarget() v1beta2.Target {
	if c.IsControlPlaneTarget() {
		return c.Target
	}
	return ""
}

// CheckTarget returns an error with a reason if, at present, the objects of the Manifest must not be applied or deleted
// on the cluster.
func (c Cluster) CheckTarget(m *v1beta2.Manifest) error {
	if c.pool == nil {
		return refusal{v1beta2.ReasonControlPlaneNotAllowed, "it is for the control plane (spec.target), where this " +
			"manager installs and deletes no modules: set the chart value controlPlaneModules.enabled"}
	}
	wanted := v1beta2.TargetRemote
	if m.Spec.Target == v1beta2.TargetControlPlane {
		wanted = m.Spec.Target
	}
	if c.Target != "" && wanted != c.Target && m.DeletionTimestamp.IsZero() {
		return refusal{v1beta2.ReasonTargetChanged, fmt.Sprintf("it is installed with target %s, and spec.target is "+
			"%s: set %s again, or delete the Manifest and create it again", c.Target, wanted, c.Target)}
	}
	return nil
}

// Get returns the connection to the cluster, see [runtimes.Pool.Get].
func (c Cluster) Get(ctx context.Context) (*runtimes.Runtime, error) { return c.pool.Get(ctx, c.name) }

// ConfirmAccessSecretRemoved decides whether the access Secret of the runtime was removed, see [runtimes.Pool].
func (c Cluster) ConfirmAccessSecretRemoved(ctx context.Context) (wait time.Duration, err error) {
	return c.pool.ConfirmAccessSecretRemoved(ctx, c.name)
}

// GetIfOpenOrNoAgents returns the connection to the cluster, see [runtimes.Pool.GetIfOpenOrNoAgents].
func (c Cluster) GetIfOpenOrNoAgents(ctx context.Context) (*runtimes.Runtime, error) {
	return c.pool.GetIfOpenOrNoAgents(ctx, c.name)
}

// Subscribe adds or replaces a subscriber to events of the cluster.
func (c Cluster) Subscribe(s runtimes.Subscriber) { c.pool.Subscribe(c.name, s) }

// Unsubscribe removes a subscriber from the events of the cluster.
func (c Cluster) Unsubscribe(key string) { c.pool.Unsubscribe(c.name, key) }

// Probe immediately sends a request to a cluster that was unreachable at the last request, to find out whether the
// cluster is reachable again.
func (c Cluster) Probe() {
	if c.pool != nil {
		c.pool.Probe(c.name)
	}
}

// IsWatched reports whether watches or an agent report the changes in the cluster.
func (c Cluster) IsWatched() bool { return c.pool.IsWatched(c.name) }

// IsAgentAwaited reports whether the agent in the cluster counts as connected, although it has sent no heartbeat yet.
func (c Cluster) IsAgentAwaited() bool { return c.pool.IsAgentAwaited(c.name) }

// PollInterval returns the interval after which the cluster is read even without an event.
func (c Cluster) PollInterval() time.Duration { return c.pool.PollInterval(c.name) }

// UsesInterests reports whether subscribers have to declare their interests, which are the objects that the manager or
// an agent watches for them. In a cluster without watches and without an agent, UsesInterests returns false.
func (c Cluster) UsesInterests() bool { return c.pool.UsesInterests() }

// ShareInterests returns one shared slice for equal interests.
func (c Cluster) ShareInterests(all []runtimes.Interest) []runtimes.Interest {
	return c.pool.InternInterests(all)
}

// LookupResource returns the resource of a kind if it is known, and sends no request.
func (c Cluster) LookupResource(ref apply.Ref) (schema.GroupVersionResource, bool) {
	return c.pool.LookupResource(ref)
}

// StoreIn stores a copy of c. If another cluster was stored before, StoreIn ends the subscription of the Manifest to
// that cluster.
func (c Cluster) StoreIn(stored *atomic.Pointer[Cluster], subscriptionKey string) {
	c.name = strings.Clone(c.name) // a part of the Manifest would keep all of it in memory
	if old := stored.Swap(&c); old != nil && *old != c {
		old.Unsubscribe(subscriptionKey)
	}
}

// CheckObjects returns an error with a reason if a module for the control plane contains an object of the manager
// itself. cr is the default custom resource of the module, or nil. CheckObjects refuses a module that contains one of
// these:
//
//	1  a namespace that the manager serves, or an object in it
//	2  a CRD of this API, or an object of one of its kinds
//	3  a default custom resource of a built-in kind
//
// Row 1 does not apply to the default custom resource of a module. The default custom resource is created in the
// namespace of the Kyma, and the manager serves this namespace.
func (c Cluster) CheckObjects(refs []apply.Ref, cr *unstructured.Unstructured) error {
	if !c.IsControlPlaneTarget() {
		return nil
	}
	refuse := func(object, why string) error {
		return reconcile.TerminalError(refusal{v1beta2.ReasonReservedObject, fmt.Sprintf(
			"%s %s: a module on the control plane must not "+
				"contain it; remove it from the module, or rename it", object, why)})
	}
	for _, r := range refs {
		switch {
		case slices.Contains(*c.reserved, r.Namespace),
			r.Group == "" && r.Kind == "Namespace" && slices.Contains(*c.reserved, r.Name):
			return refuse(r.String(), "belongs to the manager (namespaces "+strings.Join(*c.reserved, ", ")+")")
		case isOfManagerAPI(r.Group, r.Kind, r.Name):
			return refuse(r.String(), "belongs to the API of the manager")
		}
	}
	if cr == nil {
		return nil
	}
	gvk := cr.GroupVersionKind()
	title := fmt.Sprintf("%s %s", gvk.GroupKind(), cr.GetName())
	switch {
	case !strings.Contains(gvk.Group, ".") || strings.HasSuffix(gvk.Group, ".k8s.io"):
		return refuse(title, "is in spec.data, and is no custom resource")
	case isOfManagerAPI(gvk.Group, gvk.Kind, ""):
		return refuse(title, "belongs to the API of the manager")
	}
	return nil
}

// isOfManagerAPI reports whether an object is a CRD of the API of this project, or an object of a kind of this API.
func isOfManagerAPI(group, kind, name string) bool {
	if group == v1beta2.Group {
		return v1beta2.ResourceOf(kind) != ""
	}
	return kind == "CustomResourceDefinition" && v1beta2.IsLifecycleManagerCRD(name)
}

// refusal is an error with a reason code.
type refusal struct{ reason, message string }

func (r refusal) Error() string { return r.message }

// Reason returns the reason code of the error.
func (r refusal) Reason() string { return r.reason }
