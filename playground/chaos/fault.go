package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// fault is a kind of fault.
type fault struct {
	name    string
	targets func(runtimes []string) []string // returns the objects that the fault may affect
	needs   string                           // no other fault may use this part of the target at the same time
	// shortest and longest limit the duration of the fault. Both durations are zero if the fault has no end.
	shortest, longest time.Duration
	// The function begin injects the fault. A failed call of begin is repeated until the time of the fault is over. The
	// result of begin is a function that ends the fault. A failed call of the returned function is repeated until it
	// succeeds. If there is nothing to end, begin returns nil.
	begin func(ctx context.Context, r *run, e event, pick *rand.Rand) (undo, error)
}

// exclusivePart returns the name of the part of the system that only one fault at a time may use.
func (f fault) exclusivePart(target string) string { return f.needs + "/" + target }

// faults are all faults, in the order of the random choice. A new entry in this table, also at its end, changes the
// plans of all seeds.
var faults = []fault{
	{"manager-kill", managerTarget, "process", 0, 3 * time.Second, killManagerWithoutRestart},
	{"manager-freeze", managerTarget, "process", time.Second, 10 * time.Second, freezeManager},
	{"api-server-restart", allClusterNames, "server", 0, 5 * time.Second, stopCluster},
	{"connection-refused", allClusterNames, "server", time.Second, 10 * time.Second, cutFault(cluster.Refuse)},
	{"connection-silent", allClusterNames, "server", time.Second, 20 * time.Second, cutFault(cluster.BlackHole)},
	{"connection-slow", allClusterNames, "server", 2 * time.Second, 20 * time.Second, slowFault},
	{"registry-down", registryTarget, "registry", 2 * time.Second, 20 * time.Second, breakRegistry},
	{"tag-moved", registryTarget, "tags", 2 * time.Second, 20 * time.Second, moveTag},
	{"etcd-compact", etcdTarget, "etcd", 0, 0, compactFault},
	{"access-deleted", keptRuntimes, "access", time.Second, 10 * time.Second, deleteAccess},
	{"access-rotated", keptRuntimes, "access", 2 * time.Second, 20 * time.Second, rotateAccessCredential},
	{"answers-failing", keptRuntimes, "access", 2 * time.Second, 15 * time.Second, failAnswersToManager},
	{"webhook-dead", allRuntimes, "webhook", 2 * time.Second, 20 * time.Second, addDeadWebhookForKind},
	{"finalizer-held", allRuntimes, "finalizer", 2 * time.Second, 20 * time.Second, holdFinalizer},
	{"namespace-occupied", allRuntimes, "namespace", 2 * time.Second, 20 * time.Second, addUserObjectToModuleNamespace},
	{"object-deleted", allRuntimes, "hand", 0, 0, deleteObject},
	{"object-edited", allRuntimes, "hand", 0, 0, editObject},
}

func managerTarget([]string) []string  { return []string{"manager"} }
func registryTarget([]string) []string { return []string{"registry"} }

func allClusterNames(runtimes []string) []string {
	return append([]string{landscape.ControlPlane}, runtimes...)
}

func etcdTarget([]string) []string { return []string{"etcd"} }

func allRuntimes(runtimes []string) []string { return runtimes }

// keptRuntimes returns the runtimes whose Kyma is never deleted.
func keptRuntimes(runtimes []string) []string { return runtimes[:max(len(runtimes)-1, 1)] }

func killManagerWithoutRestart(_ context.Context, r *run, _ event, _ *rand.Rand) (undo, error) {
	if err := r.manager.kill(); err != nil {
		return nil, err
	}
	return func(context.Context) error { return r.manager.startAfterKill() }, nil
}

func freezeManager(_ context.Context, r *run, _ event, _ *rand.Rand) (undo, error) {
	if err := r.manager.signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	return func(context.Context) error { return r.manager.signal(syscall.SIGCONT) }, nil
}

func stopCluster(ctx context.Context, r *run, e event, _ *rand.Rand) (undo, error) {
	c := r.land.Clusters[e.Target]
	return c.Start, c.Stop(ctx)
}

func cutFault(how cluster.Cut) func(context.Context, *run, event, *rand.Rand) (undo, error) {
	return func(_ context.Context, r *run, e event, _ *rand.Rand) (undo, error) {
		r.land.Clusters[e.Target].Cut(how)
		return r.mendUndo(e.Target), nil
	}
}

func slowFault(_ context.Context, r *run, e event, pick *rand.Rand) (undo, error) {
	r.land.Clusters[e.Target].Slow(time.Duration(20+pick.IntN(400)) * time.Millisecond)
	return r.mendUndo(e.Target), nil
}

func (r *run) mendUndo(clusterName string) undo {
	return func(context.Context) error {
		r.land.Clusters[clusterName].Mend()
		return nil
	}
}

func breakRegistry(_ context.Context, r *run, _ event, _ *rand.Rand) (undo, error) {
	r.land.SetRegistryDown(true)
	return func(context.Context) error {
		r.land.SetRegistryDown(false)
		return nil
	}, nil
}

// moveTag pushes other content under the tag of a version whose content the manager has recorded. At the end of the
// fault, the tag is moved back to the original content, and a retry of all Kymas is requested, as the message of the
// blocker about a changed tag advises.
func moveTag(ctx context.Context, r *run, _ event, pick *rand.Rand) (undo, error) {
	name, v := varied[pick.IntN(len(varied))], 1+pick.IntN(versions)
	t := &v1beta2.ModuleTemplate{}
	key := client.ObjectKey{Namespace: r.land.Namespace(), Name: v1beta2.ModuleTemplateName(name, semverOfMajor(v))}
	if err := r.land.Clients[landscape.ControlPlane].Get(ctx, key, t); err != nil {
		return nil, fmt.Errorf("reading ModuleTemplate %s: %w", key.Name, err)
	}
	if t.Annotations[v1beta2.AnnotationContentDigest] == "" {
		return nil, errNothing // the manager accepts the first content that it finds
	}
	r.logf("moving the tag of %s %s", name, semverOfMajor(v))
	return func(ctx context.Context) error {
		if err := r.land.Push(ctx, newModule(name, v, original)); err != nil {
			return err
		}
		return r.requestRetryOfAllKymas(ctx)
	}, r.land.Push(ctx, newModule(name, v, "replaced"))
}

// requestRetryOfAllKymas requests a retry of all Kymas.
func (r *run) requestRetryOfAllKymas(ctx context.Context) error {
	c := r.land.Clients[landscape.ControlPlane]
	var kymas v1beta2.KymaList
	if err := c.List(ctx, &kymas, client.InNamespace(r.land.Namespace())); err != nil {
		return fmt.Errorf("listing Kymas: %w", err)
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`,
		v1beta2.AnnotationRetry, time.Now().Format(time.RFC3339Nano)))
	for i := range kymas.Items {
		if err := c.Patch(ctx, &kymas.Items[i], patch); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("requesting a retry of Kyma %s: %w", kymas.Items[i].Name, err)
		}
	}
	return nil
}

func compactFault(ctx context.Context, r *run, _ event, _ *rand.Rand) (undo, error) {
	return nil, r.land.Host.Compact(ctx)
}

// requestsWithPrefix returns an expression for all requests whose method and path begin with a text.
func requestsWithPrefix(prefix string) *regexp.Regexp { return regexp.MustCompile("^" + prefix) }

// ignoreNotFoundOrNoMatch returns nil for an error that means that an object or its kind does not exist.
func ignoreNotFoundOrNoMatch(err error) error {
	if meta.IsNoMatchError(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// faultNamed returns the fault with this name from the table of faults.
func faultNamed(name string) (fault, error) {
	i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
	if i < 0 {
		return fault{}, fmt.Errorf("there is no fault %q", name)
	}
	return faults[i], nil
}
