package recovery

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// concurrentWrites is the number of objects of one kind that are written at the same time.
const concurrentWrites = 8

func restoreCommand(a *console.App) *cobra.Command {
	o := restoreOptions{}
	c := a.Command("restore FILE [--replace] [--dry-run] [--yes]",
		"write the objects of a backup into a control plane, status included", `
klm shows what it will create, keep and replace, and asks before it starts. It refuses while a manager works, because a manager that finds a Kyma
without its Manifests and their status would install modules anew. Objects that exist with another content are kept, unless --replace is set; so
are those that the API server refuses to replace. If it is interrupted, run it again: it continues.

Objects that were being deleted when the backup was made are deleted again. In another control plane than that of the backup, Kymas are not: klm
names them, and they have to be removed after their runtimes were taken over.

The manager that starts afterwards does not downgrade a module that is newer in its runtime than in the backup; such a module may wait until a
person decides. Use the newest backup, so that few modules wait.`, `
klm restore control-plane.yaml --dry-run
klm restore control-plane.yaml
klm restore control-plane.yaml --replace --yes`,
		console.Arguments("FILE"), func(cmd *cobra.Command, args []string) error {
			o.file = args[0]
			return restore(cmd.Context(), a, o)
		})
	c.Flags().BoolVar(&o.replace, "replace", false, "replace objects that exist with another content")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "show what would be written, and write nothing")
	c.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	return c
}

// restoreOptions are the arguments and flags of klm restore.
type restoreOptions struct {
	file                 string
	replace, dryRun, yes bool
}

func restore(ctx context.Context, a *console.App, o restoreOptions) error {
	if o.file == "-" {
		return console.Fail(console.ExitUsage, "the backup is read twice, so it must be a file, not standard input")
	}
	f, err := os.Open(o.file)
	if err != nil {
		return console.Fail(console.ExitUsage, "%v", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	if err := checkLastLine(f); err != nil {
		return err
	}
	namespace, err := namespaceOf(f)
	if err != nil {
		return err
	}
	if n := a.Config.Namespace; n != "" && n != namespace {
		return console.Fail(console.ExitUsage, "%s is a backup of namespace %s, not of %s", o.file, namespace, n)
	}
	c, err := connection.ControlPlane(ctx, a)
	if err != nil {
		return err
	}
	c.Namespace = namespace
	if err := refuseLiveManager(ctx, c); err != nil {
		return err
	}
	p, s, err := newPlan(ctx, c, f, namespace, o.replace)
	if err != nil {
		return err
	}
	report := restoreReport{File: o.file, Namespace: namespace, plan: p}
	if o.dryRun {
		return a.Print(report)
	}
	page := a.Page()
	report.Show(page)
	fmt.Fprint(a.Err, page.String())
	if !o.yes {
		if err := a.Confirm("Write them into " + c.String() + "?"); err != nil {
			return err
		}
	}
	if err := refuseLiveManager(ctx, c); err != nil { // the user may have taken time to answer
		return err
	}
	w := &restorer{survey: s, options: o, uids: map[string]types.UID{}}
	if err := w.run(ctx, f); err != nil {
		return err
	}
	report.plan, report.done = &w.plan, true
	if err := a.Print(report); err != nil {
		return err
	}
	if n := w.plan.total(keep) + w.plan.total(leftOut); n > 0 {
		advice := "add --replace to replace the objects that exist"
		if len(w.plan.refused) > 0 {
			advice = "change or delete those that the API server refuses to replace"
		}
		return console.Fail(console.ExitNotReady, "%s of the backup %s not restored: compare them, and %s",
			console.Count(n, "object"), isOrAre(n), advice)
	}
	if n := len(w.plan.deletionLeft); n > 0 {
		return console.Fail(console.ExitNotReady, "%s %s not deleted again: start the manager, take the runtimes over "+
			"(klm runtime take), and then remove them (klm runtime remove)", console.Count(n, "Kyma"), isOrAre(n))
	}
	return nil
}

func isOrAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// restorer writes the objects of a backup.
type restorer struct {
	*survey
	options restoreOptions

	mu   sync.Mutex
	plan plan                 // guarded by mu: what was done
	uids map[string]types.UID // guarded by mu: by name of the Kyma
}

// run restores all objects, one kind after another.
func (w *restorer) run(ctx context.Context, f *os.File) error {
	kind := ""
	group, groupCtx := newGroup(ctx)
	err := visitObjects(f, func(d document) error {
		if d.GetKind() != kind {
			if err := group.Wait(); err != nil {
				return err
			}
			kind = d.GetKind()
			group, groupCtx = newGroup(ctx)
		}
		d, current := w.leaveDeletionElsewhere(d), groupCtx
		group.Go(func() error { return w.restoreObject(current, d) })
		return groupCtx.Err()
	})
	if failed := group.Wait(); failed != nil {
		return failed
	}
	return err
}

func newGroup(ctx context.Context) (*errgroup.Group, context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrentWrites)
	return group, ctx
}

// restoreObject restores one object and its status. If an object was being deleted at the time of the backup,
// restoreObject deletes it again after it was restored, unless its deletion is left to the user.
func (w *restorer) restoreObject(ctx context.Context, d document) error {
	act, live, err := w.decide(ctx, d, w.options.replace)
	if err != nil {
		return err
	}
	var refused error // why the API server refuses to replace the object
	status := statusOf(d.Unstructured)
	o := d.DeepCopy()
	delete(o.Object, "status")
	switch act {
	case create:
		if err := w.setKymaAsManifestOwner(ctx, o); err != nil {
			return err
		}
		err := w.cluster.Create(ctx, o, client.FieldOwner(connection.FieldOwner))
		if apierrors.IsAlreadyExists(err) {
			act = keep // it was created after the comparison
		} else if err != nil {
			return w.cluster.Explain(err, "creating "+nameOf(o))
		}
	case replace:
		o.SetResourceVersion(live.GetResourceVersion())
		o.SetOwnerReferences(live.GetOwnerReferences())
		err := w.cluster.Update(ctx, o, client.FieldOwner(connection.FieldOwner))
		switch {
		case apierrors.IsInvalid(err) || apierrors.IsForbidden(err):
			// The present object may have gone on to a state that does not go back, such as an aborted rollout. The
			// rest of the backup does not need this object.
			act, refused = keep, err
		case err != nil:
			return w.cluster.Explain(err, "replacing "+nameOf(o))
		}
	case addStatus:
		o = live
	}
	if len(status) > 0 && (act == create || act == replace || act == addStatus) {
		if err := w.writeStatus(ctx, o, status); err != nil {
			return err
		}
	}
	if d.deleting && !d.isDeletionLeft && (act == create || act == replace) {
		// its finalizers keep it until the manager works
		if err := w.cluster.Delete(ctx, d.Unstructured); client.IgnoreNotFound(err) != nil {
			return w.cluster.Explain(err, "deleting "+nameOf(o)+" again")
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plan.add(d, act)
	if refused != nil {
		w.plan.addRefused(d, refused)
	}
	if d.GetKind() == v1beta2.KindKyma {
		if act == unchanged || act == keep {
			o = live
		}
		if o != nil {
			w.uids[o.GetName()] = o.GetUID()
		}
	}
	return nil
}

// setKymaAsManifestOwner makes a Kyma the owner of its Manifest, as the manager does for a new Manifest. A Manifest
// that a user has created has no owner.
func (w *restorer) setKymaAsManifestOwner(ctx context.Context, o *unstructured.Unstructured) error {
	labels := o.GetLabels()
	if o.GetKind() != v1beta2.KindManifest || labels[v1beta2.LabelManagedBy] != v1beta2.ManagedByLifecycleManager {
		return nil
	}
	name := labels[v1beta2.LabelKymaName]
	w.mu.Lock()
	uid := w.uids[name]
	w.mu.Unlock()
	kyma := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
	if uid == "" {
		kyma.SetGroupVersionKind(v1beta2.GroupVersion.WithKind(v1beta2.KindKyma))
		err := w.cluster.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: name}, kyma)
		if err != nil {
			return w.cluster.Explain(err, "reading the Kyma of "+nameOf(o))
		}
	}
	o.SetOwnerReferences([]metav1.OwnerReference{
		*metav1.NewControllerRef(kyma, v1beta2.GroupVersion.WithKind(v1beta2.KindKyma))})
	return nil
}

// writeStatus writes the status of an object. An existing status is replaced.
func (w *restorer) writeStatus(ctx context.Context, o *unstructured.Unstructured, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("encoding the status of %s: %w", nameOf(o), err)
	}
	err = w.cluster.Status().Patch(ctx, o.DeepCopy(), client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(connection.FieldOwner))
	return w.cluster.Explain(err, "writing the status of "+nameOf(o))
}

// restoreReport is the report of klm restore.
type restoreReport struct {
	File      string `json:"file"`
	Namespace string `json:"namespace"`
	plan      *plan
	done      bool // the backup is restored; before that, the plan is shown
}

// MarshalJSON encodes the numbers of objects by kind and action.
func (r restoreReport) MarshalJSON() ([]byte, error) {
	objects := map[string]map[string]int{}
	for kind, counts := range r.plan.counts {
		objects[kind] = map[string]int{}
		for a, n := range counts {
			if n > 0 {
				objects[kind][actionKeys[a]] = n
			}
		}
	}
	return json.Marshal(map[string]any{"file": r.File, "namespace": r.Namespace, "done": r.done,
		"objects": objects, "kept": r.plan.examples[keep], "leftOut": r.plan.examples[leftOut],
		"refused": r.plan.refused, "notDeletedAgain": r.plan.deletionLeft})
}

// actionKeys are the names of the actions in the JSON of the report.
var actionKeys = [actionCount]string{create: "created", addStatus: "statusAdded", unchanged: "unchanged", keep: "kept",
	replace: "replaced", leftOut: "leftOut"}

func (r restoreReport) Names() []string { return []string{r.File} }

// actionWording returns the text about an action.
func (r restoreReport) actionWording(a action) string {
	if r.done {
		return actionTexts[a][1]
	}
	return actionTexts[a][0]
}

func (r restoreReport) Show(p *console.Page) {
	p.Line("%s → namespace %s", r.File, r.Namespace)
	var rows [][]string
	for _, kind := range kinds {
		counts, there := r.plan.counts[kind.Kind]
		if !there {
			continue
		}
		var parts []string
		for a, n := range counts {
			if n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n, r.actionWording(action(a))))
			}
		}
		rows = append(rows, []string{"  " + kind.Kind, strings.Join(parts, ", ")})
	}
	p.Rows(rows)
	for _, a := range []action{keep, replace, leftOut} {
		if names := r.plan.examples[a]; len(names) > 0 {
			more := ""
			if n := r.plan.total(a) - len(names); n > 0 {
				more = fmt.Sprintf(" and %d more", n)
			}
			p.Wrap("  ", r.actionWording(a)+": "+strings.Join(names, ", ")+more)
		}
	}
	for _, text := range r.plan.refused {
		p.Wrap("  ", "the API server refuses to replace "+text)
	}
	if n := r.plan.deleting; n > 0 {
		text := "%s to be deleted again: their deletion had begun"
		if r.done {
			text = "%s deleted again: their deletion had begun"
		}
		p.Line("  "+text, console.Count(n, "object"))
	}
	if len(r.plan.deletionLeft) > 0 {
		p.Wrap("  ", "not deleted again, because this is not known to be the control plane of the backup: Kymas "+
			strings.Join(slices.Sorted(slices.Values(r.plan.deletionLeft)), ", ")+". Their deletion had begun, but "+
			"as long as they do not own their runtimes, it would leave all modules there. After the start of the "+
			"manager, take each of these runtimes over (klm runtime take), and then remove it (klm runtime remove)")
	}
	if r.done {
		p.Line("Now start the manager (klm install), and look at klm status.")
	}
}
