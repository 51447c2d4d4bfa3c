package manifest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/inventory"
	"github.com/kyma-fleet/lifecycle-manager/internal/dedup"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// subscribe subscribes to events of the connection to the runtime, to events of the kinds in the inventory, and to
// events of the module's custom resource.
func (n *run) subscribe() {
	key := types.NamespacedName{Namespace: n.manifest.Namespace, Name: n.manifest.Name}
	n.cluster.StoreIn(&n.memory.cluster, subscriptionKey(key))
	n.memory.setEvaluator(n.moduleCREvaluator())
	n.cluster.Subscribe(runtimes.Subscriber{
		Key: subscriptionKey(key), Interests: n.memory.interests, ReplayMissed: n.memory.compared.IsZero(),
		Notify: n.notifier(key, n.memory, inventory.ModuleCRRef(n.manifest)),
	})
}

// notifier returns the function that the pool calls for each event from the runtime. The returned function enqueues the
// Manifest if the event concerns the Manifest.
func (r *Reconciler) notifier(key types.NamespacedName, memory *memory, resource apply.Ref) func(runtimes.Event) {
	owner := key.Namespace + "/" + key.Name
	return func(e runtimes.Event) {
		if memory.addEvent(e, owner, resource) {
			r.trigger.Add(queueing.Event, 0, reconcile.Request{NamespacedName: key})
		}
	}
}

// subscriptionKey returns the key with which a Manifest subscribes to events of its runtime.
func subscriptionKey(key types.NamespacedName) string {
	return runtimes.ManifestSubscriberKey(key.Namespace, key.Name)
}

// subscribeToObjects subscribes to the kinds of the objects that the runtime should have. subscribeToObjects also keeps
// the list of these objects in memory, so that their deletion is detected.
func (n *run) subscribeToObjects(ctx context.Context) error {
	if !n.cluster.UsesInterests() {
		return nil
	}
	interests, err := n.interests(ctx)
	if err != nil {
		return err
	}
	n.memory.setExpected(n.refs, &n.shared)
	n.memory.setNeeded(n.readinessRefs())
	if !slices.Equal(interests, n.memory.interests) {
		n.memory.interests = dedup.Share(&n.shared, fmt.Sprint("interests ", interests), slices.Clip(interests))
		n.subscribe()
	}
	return nil
}

// interests returns the kinds of which the Manifest needs events: the kinds of the objects in the inventory and the
// kind of the custom resource, without duplicates.
func (n *run) interests(ctx context.Context) ([]runtimes.Interest, error) {
	var all []runtimes.Interest
	add := func(ref apply.Ref, i runtimes.Interest) error {
		resource, err := n.resourceOfKind(ctx, ref)
		if err != nil {
			if loop.Reason(err) == v1beta2.ReasonKindUnknown {
				return nil // the kind is not served yet, so it has no events
			}
			return err
		}
		i.Resource, i.Kind = resource, ref.Kind
		if !slices.Contains(all, i) {
			all = append(all, i)
		}
		return nil
	}
	done := map[schema.GroupVersionKind]bool{} // a module may have many objects of few kinds
	for _, ref := range n.refs {
		if done[ref.GVK()] {
			continue
		}
		done[ref.GVK()] = true
		if err := add(ref, runtimes.Interest{Labels: v1beta2.LabelManagedBy + "=" +
			v1beta2.ManagedByKyma}); err != nil {
			return nil, err
		}
	}
	if ref := inventory.ModuleCRRef(n.manifest); ref != (apply.Ref{}) {
		if err := add(ref, runtimes.Interest{Namespace: ref.Namespace, Name: ref.Name}); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, runtimes.Interest.Compare)
	return n.cluster.ShareInterests(all), nil
}

// resourceOfKind returns the API resource of a kind: its plural name. After a restart, resourceOfKind needs no request
// if the module is installed and its inventory has exactly one CRD of the API group, because this CRD defines the kind.
func (n *run) resourceOfKind(ctx context.Context, ref apply.Ref) (schema.GroupVersionResource, error) {
	plural := ""
	for _, r := range n.refs {
		if r.Kind != "CustomResourceDefinition" {
			continue
		}
		name, inGroup := strings.CutSuffix(r.Name, "."+ref.Group)
		switch {
		case !inGroup:
		case plural != "" || n.manifest.Status.AppliedDigest == "":
			return n.lookupOrDiscoverResource(ctx, ref)
		default:
			plural = name
		}
	}
	if plural != "" {
		return ref.GVK().GroupVersion().WithResource(plural), nil
	}
	return n.lookupOrDiscoverResource(ctx, ref)
}

// lookupOrDiscoverResource returns the API resource of a kind. If a discovery result of another runtime contains the
// kind, this result is used. If no discovery result contains the kind, lookupOrDiscoverResource sends a discovery
// request to the runtime of the Manifest.
func (n *run) lookupOrDiscoverResource(ctx context.Context, ref apply.Ref) (schema.GroupVersionResource, error) {
	if n.runtime == nil {
		if resource, known := n.cluster.LookupResource(ref); known {
			return resource, nil
		}
		if err := n.connectBy(ctx, n.cluster.Get); err != nil {
			return schema.GroupVersionResource{}, err
		}
	}
	resource, _, err := n.runtime.Resource(ctx, ref)
	return resource, err
}
