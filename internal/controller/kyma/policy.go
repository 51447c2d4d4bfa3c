package kyma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// policies holds the maintenance policy in force. One that cannot be understood does not replace it; one that is taken away does.
type policies struct {
	mu      sync.Mutex
	seen    string          // guarded by mu: version of what was read last, understood or not; "" if there was none
	inForce *channel.Policy // guarded by mu
	problem error           // guarded by mu: why what was read last is not in force
}

// take puts a policy in force unless it was seen before. It tells whether something is new, and what is wrong with it.
func (p *policies) take(version string, read func() (*channel.Policy, error), least time.Duration) (changed bool, problem error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if version == p.seen {
		return false, p.problem
	}
	p.seen, p.problem = version, nil
	if version == "" {
		p.inForce = nil
		metrics.PolicyRead.Set(0)
		return true, nil
	}
	policy, err := read()
	if err != nil {
		p.problem = err
		metrics.PolicyRead.Set(0)
		return true, err
	}
	policy.Least, p.inForce = least, policy
	metrics.PolicyRead.Set(1)
	return true, nil
}

// problemNow returns why the policy that was read last is not in force, nil if it is.
func (p *policies) problemNow() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.problem
}

// policyNow returns the maintenance policy in force, nil if there is none. A ConfigMap is looked up in the cache each time, so that nobody
// decides by an older one.
func (r *Reconciler) policyNow(ctx context.Context) *channel.Policy {
	if r.PolicyConfigMap != "" {
		r.readPolicyConfigMap(ctx)
	}
	r.policies.mu.Lock()
	defer r.policies.mu.Unlock()
	return r.policies.inForce
}

// readPolicyConfigMap takes what the ConfigMap says.
func (r *Reconciler) readPolicyConfigMap(ctx context.Context) {
	cm := &corev1.ConfigMap{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.PolicyConfigMap}, cm)
	version := string(cm.UID) + " " + cm.ResourceVersion
	switch {
	case apierrors.IsNotFound(err):
		version = ""
	case err != nil:
		return // the cache says nothing, so nothing changes
	}
	changed, problem := r.policies.take(version, func() (*channel.Policy, error) { return channel.PolicyIn(cm.Data) }, r.LeastWindow)
	if !changed {
		return
	}
	r.logPolicy(ctx, "ConfigMap "+r.PolicyConfigMap, version, problem)
	if problem != nil && r.Events != nil {
		r.Events.Eventf(cm, nil, corev1.EventTypeWarning, v1beta2.ReasonInvalidPolicy, "Read", "%s; the policy before stays in force", problem)
	}
}

func (r *Reconciler) logPolicy(ctx context.Context, where, version string, problem error) {
	switch l := log.FromContext(ctx).WithValues("from", where); {
	case problem != nil:
		l.Error(problem, "the maintenance policy before stays in force")
	case version == "":
		l.Info("there is no maintenance policy")
	default:
		l.Info("a maintenance policy is in force")
	}
}

// onPolicy wakes who waits for a window when the ConfigMap with the policy changes.
func (r *Reconciler) onPolicy() handler.EventHandler {
	wake := func(ctx context.Context, o client.Object, q queue) {
		if o.GetName() == r.PolicyConfigMap && o.GetNamespace() == r.Namespace {
			r.readPolicyConfigMap(ctx)
			r.wakeIndexed(ctx, q, waitingIndex, v1beta2.ValueTrue)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { wake(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { wake(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { wake(ctx, e.Object, q) },
	}
}

// policyPeriod is how often the file with the policy is looked at.
const policyPeriod = 5 * time.Second

// followPolicyFile takes what the file says whenever it changes, until ctx ends.
func (r *Reconciler) followPolicyFile(ctx context.Context) error {
	ticker := time.NewTicker(policyPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if q := r.queue.Load(); r.readPolicyFile(ctx) && q != nil {
			r.wakeIndexed(ctx, *q, waitingIndex, v1beta2.ValueTrue)
		}
	}
}

// readPolicyFile takes what the file says, and tells whether it has changed.
func (r *Reconciler) readPolicyFile(ctx context.Context) bool {
	data, err := readBounded(r.PolicyFile)
	version := ""
	if !errors.Is(err, fs.ErrNotExist) {
		version = fmt.Sprintf("%v %s", err, data) // it is small, and compared once in a while
	}
	changed, problem := r.policies.take(version, func() (*channel.Policy, error) {
		if err != nil {
			return nil, &channel.MaintenancePolicyError{Problem: err.Error()}
		}
		return channel.ParsePolicy(data)
	}, r.LeastWindow)
	if changed {
		r.logPolicy(ctx, r.PolicyFile, version, problem)
	}
	return changed
}

// readBounded reads a file, of one that is too large for a policy only so much that it is seen to be too large.
func readBounded(path string) ([]byte, error) {
	const most = 1<<20 + 1
	f, err := os.Open(path) //nolint:gosec // whoever starts the manager names the file
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	return io.ReadAll(io.LimitReader(f, most))
}
