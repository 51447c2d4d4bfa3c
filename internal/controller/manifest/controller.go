// Package manifest is the life of a Manifest: one version of one module on one runtime.
//
// # Use
//
//	r, err := manifest.New(manifest.Options{…})
//	err = r.Register(ctx, mgr)
//
// # How it works
//
// The stories, install and delete, and handing a module over to its user, are the lists in [Reconciler.Reconcile]. A pass first finds the sources of the module and
// works out the digest of all that decides what the runtime should have. If the status says that this digest was applied, and nothing
// was seen to happen, the pass is over without a request to anyone. Otherwise what the sources hold is verified and rendered (once for
// all runtimes that answer a chart's questions alike), the inventory is written, then the objects, one source after the other, then the
// module's custom resource; what a former version had and this one has not is removed; and readiness is observed.
//
// A source that is slow holds up nobody: after two seconds the pass ends, and the answer is there when it comes back.
//
// Between passes the controller remembers, per Manifest, what was sent and what the runtime answered, so that an object is sent once per
// change and its echo in a watch is recognised. Losing that memory costs reads, never correctness.
//
// # What it does not do
//
// No step waits for a runtime: what has not happened yet is named in the status and looked at again. Removing a module needs
// neither registry nor template, only the inventory.
package manifest

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Options are what the controller works with.
type Options struct {
	// Client reads from the cache and sees its own writes.
	Client client.Client
	// Runtimes connects to runtimes.
	Runtimes *runtimes.Pool
	// Registry reads artefacts.
	Registry *registry.Registry
	// Secrets reads the Secrets with logins that Manifests select. It should not cache.
	Secrets client.Reader
	// Events tells people what has happened; nil tells nobody.
	Events events.EventRecorder
	// LocalSources is a folder of which Manifests may name folders as sources of type kustomize; "" means none.
	LocalSources string
	// PullSecret is the name of the Secret that workloads of modules pull images with; "" means none.
	PullSecret string
	// CustomStateCheck says that the state of a module's custom resource counts where its Manifest does not say.
	CustomStateCheck bool
	// BundleBytes bounds the memory for rendered modules; 0 means render.DefaultCacheBytes.
	BundleBytes int
	// AuditInterval is how often every object is compared with what it should be. Audits of a fleet are spread over it.
	AuditInterval time.Duration
	// HeardAuditInterval is the same where all changes are heard of. 0 means AuditInterval.
	HeardAuditInterval time.Duration
	// Urgent is the set of runtimes that a person waits for, the same for all controllers. Needed.
	Urgent *queueing.Urgent
	// Concurrency is the number of Manifests worked on at the same time.
	Concurrency int
	// RateLimiter spaces the tries after an error.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
	// Shards say which runtimes are worked on here. nil: all.
	Shards *shard.Keeper
	// After is told of each step, see loop.Options; nil in production.
	After func(step string)
}

// Reconciler reconciles Manifests.
type Reconciler struct {
	Options
	queue     atomic.Pointer[workqueue.TypedRateLimitingInterface[reconcile.Request]] // set when the controller starts
	sources   sources
	rendering rendering
	states    apply.StateEvaluator
	shared    shared

	mu    sync.Mutex
	known map[types.NamespacedName]*installation // guarded by mu
}

// New checks the options and returns a Reconciler.
func New(o Options) (*Reconciler, error) {
	if o.Client == nil || o.Runtimes == nil || o.Registry == nil || o.Secrets == nil || o.AuditInterval <= 0 {
		return nil, fmt.Errorf("making the Manifest controller: options need Client, Runtimes, Registry, Secrets and AuditInterval")
	}
	return &Reconciler{
		Options:   o,
		sources:   sources{registry: o.Registry, secrets: o.Secrets, local: o.LocalSources},
		rendering: rendering{bundles: render.Cache{MaxBytes: o.BundleBytes}},
		known:     map[types.NamespacedName]*installation{},
	}, nil
}

// Register adds the controller to a manager.
func (r *Reconciler) Register(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Watches(&v1beta2.Manifest{}, r.onManifest(), builder.WithPredicates(predicate.Funcs{UpdateFunc: wishChanged})).
		WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.queue.Store(&q)
			return nil
		})).
		Named("manifest").
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Concurrency, RateLimiter: r.RateLimiter}).
		Complete(r)
}

// wishChanged lets pass what is not our own status: spec, labels, annotations, deletion.
func wishChanged(e event.UpdateEvent) bool {
	before, after := e.ObjectOld, e.ObjectNew
	return before.GetGeneration() != after.GetGeneration() ||
		before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero() ||
		!sameStrings(before.GetLabels(), after.GetLabels()) || !sameStrings(said(before), said(after))
}

// said returns the annotations that somebody else than this controller may have written.
func said(o client.Object) map[string]string {
	annotations := o.GetAnnotations()
	if _, there := annotations[v1beta2.AnnotationSyncOCIRef]; there {
		annotations = maps.Clone(annotations)
		delete(annotations, v1beta2.AnnotationSyncOCIRef)
	}
	return annotations
}

// run is one pass over one Manifest.
type run struct {
	*Reconciler
	manifest *v1beta2.Manifest // as read; steps change its status only through status.go
	kyma     string            // the runtime
	inst     *installation     // what is remembered; this pass alone uses it

	runtime    *runtimes.Runtime      // set by connect, or by reach; nil if nothing is asked of it
	abandoned  bool                   // set by connectToDelete: no access Secret, so the runtime is left as it is
	plan       plan                   // set by decide
	news       map[apply.Ref]sighting // taken by decide from what was heard, like the next two
	stirred    bool
	missed     bool
	signatures []signed               // set by render: of all artefacts
	rendered   bool                   // set by render: there is something to apply or compare
	sets       []apply.Set            // set by render, one for each part of the plan
	setRefs    [][]apply.Ref          // set by record: what each of the sets brings
	refs       []apply.Ref            // set by record: all of it, else what was applied before
	kept       []apply.Ref            // set by prune: no longer of the sets, but to be kept
	applied    bool                   // set by prune: a new plan was carried out, and all that it replaced is gone
	saved      v1beta2.ManifestStatus // the status as the control plane knows it: as it was read, or since record
	looked     bool                   // set by createResource: cr is how the module's custom resource is, nil if it is not there
	cr         *unstructured.Unstructured
	fresh      bool     // set by apply: a workload was sent in this pass, so that it is not ready
	seen       observed // set by observe
	blocker    string   // set by blockers, resource and teardown: the reason code of what stands in the way
}

// Reconcile is the whole life of a Manifest.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (result reconcile.Result, err error) {
	m := &v1beta2.Manifest{}
	if err := r.Client.Get(ctx, req.NamespacedName, m); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	kyma := m.Labels[v1beta2.LabelKymaName]
	defer func() { result.Priority = r.Runtimes.Again(kyma) }()
	ctx, leave, ours := r.Shards.BeginReconcile(ctx, kyma)
	defer leave()
	ctx = r.Runtimes.Hurried(ctx, kyma)
	if !ours || !r.Shards.IsLabelled(m, kyma) {
		r.forget(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	if r.Shards != nil { // now that it is known where to look: this sees our own writes
		if err := r.Client.Get(ctx, req.NamespacedName, m); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err) // its end wakes us
		}
	}
	inst := r.remember(req.NamespacedName, m.UID)
	if inst.released {
		return reconcile.Result{}, nil // it is gone; the cache will say so and wake us
	}
	n := &run{Reconciler: r, manifest: m, kyma: m.Labels[v1beta2.LabelKymaName], inst: inst}
	pass := loop.Options{Client: r.Client, Controller: "manifest", Object: m, Report: n.report, AfterStep: r.After}
	if m.IsUnmanaged() {
		return loop.Run(ctx, pass,
			loop.Step{Name: "connect", Do: n.connectToDelete},
			loop.Step{Name: "handover", Do: n.handOver},
			loop.Step{Name: "release", Do: n.release})
	}
	if !m.DeletionTimestamp.IsZero() {
		n.saved, pass.DeferSave = *m.Status.DeepCopy(), n.isMinor
		return loop.Run(ctx, pass,
			loop.Step{Name: "connect", Do: n.connectToDelete},
			loop.Step{Name: "blockers", Do: n.findBlockers},
			loop.Step{Name: "resource", Do: n.deleteResource},
			loop.Step{Name: "teardown", Do: n.teardown},
			loop.Step{Name: "release", Do: n.release})
	}
	if reason, why := hold(m); reason != "" {
		pass.Report = func(loop.Outcome) { n.reportHeld(reason, why) }
		return loop.Run(ctx, pass)
	}
	pass.Publish, pass.DeferSave = n.publishRef, n.isMinor
	return loop.Run(ctx, pass,
		loop.Step{Name: "adopt", Do: n.adopt},
		loop.Step{Name: "connect", Do: n.connect},
		loop.Step{Name: "decide", Do: n.decide},
		loop.Step{Name: "reach", Do: n.reach},
		loop.Step{Name: "render", Do: n.render},
		loop.Step{Name: "record", Do: n.record, Save: true},
		loop.Step{Name: "apply", Do: n.apply},
		loop.Step{Name: "resource", Do: n.createResource},
		loop.Step{Name: "prune", Do: n.prune},
		loop.Step{Name: "observe", Do: n.observe},
		loop.Step{Name: "audit", Do: n.nextAudit})
}

// adopt adds the finalizers, so that the Manifest cannot vanish before its objects do.
func (n *run) adopt(ctx context.Context) error {
	missing := slices.DeleteFunc([]string{v1beta2.FinalizerManifest, v1beta2.FinalizerLabelRemoval}, func(f string) bool {
		return controllerutil.ContainsFinalizer(n.manifest, f)
	})
	if len(missing) == 0 {
		return nil
	}
	old := n.manifest.DeepCopy()
	n.manifest.Finalizers = append(n.manifest.Finalizers, missing...)
	return n.patchMetadata(ctx, old)
}

// patchMetadata sends what changed since old.
func (n *run) patchMetadata(ctx context.Context, old *v1beta2.Manifest, opts ...client.PatchOption) error {
	copied := n.manifest.DeepCopy()
	if err := n.Client.Patch(ctx, copied, client.MergeFrom(old), append(opts, client.FieldOwner(v1beta2.FieldOwner))...); err != nil {
		return fmt.Errorf("marking Manifest %s: %w", n.manifest.Name, err)
	}
	n.manifest.ObjectMeta = copied.ObjectMeta
	return nil
}

// publishRef says in an annotation which ref of the source was applied completely, for clients that wait for that.
func (n *run) publishRef(ctx context.Context) error {
	source, err := v1beta2.DecodeImageSpec(n.manifest.Spec.Install.Source)
	if err != nil || source.Ref == "" || n.plan.digest == "" || n.manifest.Status.AppliedDigest != n.plan.digest ||
		n.manifest.Annotations[v1beta2.AnnotationSyncOCIRef] == source.Ref {
		return nil // of other sources there is no ref to tell
	}
	old := n.manifest.DeepCopy()
	metav1.SetMetaDataAnnotation(&n.manifest.ObjectMeta, v1beta2.AnnotationSyncOCIRef, source.Ref)
	return n.patchMetadata(ctx, old)
}

// connect finds the way to the runtime. It makes no request to it. Every failure waits for a change, of which the pool tells us. What is Ready may not need
// the runtime: then the first connection since the program started is left to reach.
func (n *run) connect(ctx context.Context) error {
	n.follow()
	if s := &n.manifest.Status; s.State == v1beta2.StateReady && s.AppliedDigest != "" && s.ObservedGeneration == n.manifest.Generation {
		return n.connectBy(ctx, n.Runtimes.GetIfOpen)
	}
	return n.connectBy(ctx, n.Runtimes.Get)
}

// reach connects after all, unless there is nothing to do.
func (n *run) reach(ctx context.Context) error {
	if n.runtime != nil || !n.plan.work() && n.isQuiet(judgingBy(n.manifest, n.CustomStateCheck)) {
		return nil
	}
	return n.connectBy(ctx, n.Runtimes.Get)
}

func (n *run) connectBy(ctx context.Context, way func(context.Context, string) (*runtimes.Runtime, error)) error {
	rt, err := way(ctx, n.kyma)
	if err != nil && loop.Reason(err) != "" {
		return reconcile.TerminalError(err)
	}
	n.runtime = rt
	return err
}

// auditInterval is how long what is not heard of may stay as it is. Agents do not tell of Secrets.
func (n *run) auditInterval() time.Duration {
	isSecret := func(r v1beta2.Resource) bool { return r.Group == "" && r.Kind == "Secret" }
	if n.HeardAuditInterval == 0 || !n.Runtimes.IsWatched(n.kyma) || slices.ContainsFunc(n.manifest.Status.Synced, isSecret) {
		return n.AuditInterval
	}
	return n.HeardAuditInterval
}

// nextAudit asks for the next look without a reason. Those of a fleet are spread.
func (n *run) nextAudit(context.Context) error {
	interval := min(n.auditInterval(), n.Runtimes.PollInterval(n.kyma))
	h := fnv.New32a()
	_, _ = h.Write([]byte(n.manifest.Namespace + "/" + n.manifest.Name))
	return loop.RecheckAfter(interval - interval/8 + interval/4*time.Duration(h.Sum32()%1024)/1024)
}
