// Package loop runs the steps of a reconciler. Only this package patches the status of objects, and decides when an
// object is reconciled again.
//
// # Use
//
//	return loop.Run(ctx, loop.Options{Client: r.Client, Controller: "kyma", Object: obj, Report: n.report},
//	    loop.Step{Name: "connect", Do: n.connect},
//	    loop.Step{Name: "record", Do: n.record, Save: true},
//	    loop.Step{Name: "apply", Do: n.apply})
//
// A step does one thing and returns an error or nil. What a step returns determines how the reconcile continues:
//
//	1  nil                          run the next step
//	2  Done()                       stop; the other steps are not needed, and there is no failure
//	3  ContinueAndRequeueAfter(after)          run the next step; reconcile again after that time, even without an event
//	4  Later(after, why)            stop, because the step has to wait; reconcile again after that time
//	5  reconcile.TerminalError      stop; only a change of an object can help, so do not requeue
//	6  a [Postponed] error          stop, because a request was not sent; keep the status; reconcile again later
//	7  any other error              stop; requeue with back-off
//
// Done, ContinueAndRequeueAfter and Later (rows 2 to 4 of this table) return errors that are called answers: a step
// that returns an answer has not failed. The errors in rows 5 to 7 of the table are called failures. Answers and
// failures can be wrapped with %w and joined with errors.Join, like other Go errors. If a failure is joined with an
// answer such as Later, the failure determines how the reconcile continues. If a terminal error is joined with another
// failure, the object is requeued with a back-off.
//
// The package also contains functions that every reconciler needs: finalizers that are patched without losing the
// finalizers of other writers ([AddFinalizers], [RemoveFinalizers]), predicates and mappings of events
// ([SpecLabelsOrAnnotationsChanged], [RequestForKyma]), a store of values for each object ([Memory]), intervals
// ([PollDelay], [Spread]), and limits for texts in conditions and events ([ClipLine], [Message]).
//
// # How it works
//
// The runner copies the object before the first step and runs the steps in order until one step stops it. After the
// steps, the runner calls Report, which derives the status from the results of the steps. The runner shortens the texts
// in the status that are too long, and sends the difference as one merge patch. If there is no difference, the runner
// sends no request.
//
// If a step has Save set, the runner saves the status before the next step starts. For example, an inventory is saved
// before its objects are created, so that no object is unrecorded if the manager stops. Report is called in every
// reconcile, even if a step has failed. So the status never shows a problem that no longer exists.
//
// # What it does not do
//
// The package stores nothing between reconciles except in a Memory, and it never sleeps. Only the writer of the object
// may change the spec: if a step has changed the spec in memory, the runner stops with an error.
package loop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/internal/budget"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/telemetry"
)

// Step is one step of a reconciler.
type Step struct {
	// Name is a verb. Name is the name of the step in metrics and in the log.
	Name string
	// Do executes the step. The package comment explains what the error of Do means.
	Do func(context.Context) error
	// Save is true if the runner has to save the status before the next step starts.
	Save bool
	// SaveIf, if set, is called after Do. If SaveIf returns true, the runner saves the status before the next step
	// starts.
	SaveIf func() bool
}

// Options are the options of one reconcile of one object.
type Options struct {
	// Client patches the status.
	Client client.Client
	// Controller is the value of the controller label in metrics.
	Controller string
	// Object is the object as it was read. Steps may change only the status of this object in memory.
	Object client.Object
	// Read, if set, is the object with the status that was read. A controller sets Read if it has replaced the status
	// in Object by the status of an earlier reconcile that was not saved. If Read is not set, Object itself has the
	// status that was read.
	Read client.Object
	// Report derives the status of Object from the results of the steps. Report is called once, after the last step.
	Report func(Outcome)
	// DeferSave, if set, is called after Report if no step failed, with the object as it was saved last. If DeferSave
	// returns a positive duration, no reader needs the change of the status yet: the status is neither saved nor
	// published in this reconcile, and the object is reconciled again after this duration at the latest. If the process
	// ends in the meantime, the change is lost, so DeferSave may only defer a status that the next process derives
	// again. DeferSave has no effect on a status that the runner has already saved after an earlier step, because of
	// Step.Save.
	DeferSave func(saved client.Object) time.Duration
	// Saves, if set, limits the status patches for each runtime, see [NewSaveBudget]. Runtime is the name of the
	// runtime.
	Saves   *budget.Budget
	Runtime string
	// OnPostponed, if set, is called in place of Report if a step has failed with a [Postponed] error. OnPostponed puts
	// back what the steps have taken out of the memory of the controller.
	OnPostponed func()
	// BeforeSave, if set, is called each time before a changed status is saved. BeforeSave sets fields of the status
	// that are derived from other fields. A change of only the derived fields causes no patch. A new version of the
	// manager that sets a new status field therefore does not patch all objects at once.
	BeforeSave func()
	// AfterSave, if set, is called each time after the status was saved. The parameter before is the object with the
	// previous status. If the object no longer exists when its status is saved, AfterSave is called for the last time.
	AfterSave func(before client.Object)
	// Publish, if set, copies the status to another place. Publish is called after the status was saved, even if a step
	// has failed. The runner treats an error of Publish like an error of a step that runs after all other steps. An
	// error of Publish never replaces the error of an earlier step.
	Publish func(context.Context) error
	// AfterStep, if set, is called with the name of each step that ran, even if the step has failed. If the step has
	// Save set, AfterStep is called after the status was saved. Publish counts as a step with the name "publish". With
	// AfterStep, a test can end the process between two steps; the runner itself does nothing between two steps.
	AfterStep func(step string)
}

// Outcome is the result of all steps of a reconcile.
type Outcome struct {
	// Step is the name of the step that stopped the runner. Step is "" if all steps ran.
	Step string
	// Err is the failure of the step that stopped the runner. Err is nil if no step has failed. A step that waits has
	// not failed, see the field Waiting.
	Err error
	// Waiting states what the step waits for. Waiting is "" if the step does not wait.
	Waiting string
	// Terminal is true if Err is terminal: trying again cannot succeed.
	Terminal bool
}

// Postponed is an error that says nothing about the object: a request was not sent, because the manager has more urgent
// work. If a step fails with a Postponed error, the status stays as it was saved last.
type Postponed interface {
	error
	// PostponedFor returns the time after which the object is reconciled again, unless an event triggers a reconcile
	// before.
	PostponedFor() time.Duration
}

// Reason returns the stable reason code of Err. The reason code is the result of the method Reason() string of the
// first error in the chain of Err that has this method. If no error in the chain has this method, Reason returns "".
func (o Outcome) Reason() string { return Reason(o.Err) }

// Reason returns the stable reason code of err, or "" if err has no reason code.
func Reason(err error) string {
	if r, ok := errors.AsType[interface {
		error
		Reason() string
	}](err); ok {
		return r.Reason()
	}
	return ""
}

// Run reconciles an object once. Run runs the steps, calls Report, sends one status patch if the status has changed,
// and calls Publish. The package comment describes the steps of Run.
func Run(ctx context.Context, o Options, steps ...Step) (result reconcile.Result, err error) {
	ctx, end := startTrace(ctx, o)
	defer func() { err = end(err) }()
	first := o.Read
	if first == nil {
		first = o.Object.DeepCopyObject().(client.Object)
	}
	r := &runner{Options: o, first: first, saved: first}
	out, err := r.runSteps(ctx, steps)
	if broken := r.checkSpecUnchanged(); broken != nil {
		return reconcile.Result{}, broken
	}
	if postponed, ok := errors.AsType[Postponed](out.Err); ok {
		if o.OnPostponed != nil {
			o.OnPostponed()
		}
		log.FromContext(ctx).V(1).Info("postponed", "step", out.Step, "problem", postponed.Error())
		return reconcile.Result{RequeueAfter: postponed.PostponedFor()}, nil
	}
	if o.Report != nil {
		o.Report(out)
		clipStatus(o.Object)
	}
	if o.DeferSave != nil && out.Err == nil {
		if after := o.DeferSave(r.saved); after > 0 {
			r.recheckAfter(after)
			return r.result(ctx, err)
		}
	}
	if wait := r.takeSaveBudget(); wait > 0 {
		return r.postponeSave(ctx, wait, err)
	}
	if saveErr := r.patchStatusIfChanged(ctx); saveErr != nil {
		if isControlPlaneUnreachable(saveErr) {
			return r.result(ctx, saveErr) // the next reconcile finds the other errors again
		}
		return r.result(ctx, errors.Join(err, saveErr))
	}
	if o.Publish != nil && !apierrors.IsNotFound(err) {
		publish := Step{Name: "publish", Do: o.Publish}
		if v := r.runAndMeasureStep(ctx, publish); v.err != nil && err == nil {
			err = v.err
		}
		r.callAfterStepHook(publish)
	}
	return r.result(ctx, err)
}

// runner is the state of one reconcile.
type runner struct {
	Options
	first   client.Object // the object as it was read
	saved   client.Object // the object with the status as last saved in the control plane
	recheck time.Duration // shortest delay of ContinueAndRequeueAfter and DeferSave, 0 if there is none
}

// runSteps runs the steps until a step stops the runner. runSteps returns the error that Run has to return.
func (r *runner) runSteps(ctx context.Context, steps []Step) (Outcome, error) {
	for _, step := range steps {
		v := r.runAndMeasureStep(ctx, step)
		if v.err == nil && (step.Save || step.SaveIf != nil && step.SaveIf()) {
			r.Saves.SpendIfAvailable(r.Runtime, time.Now()) // never postponed: the next step relies on it
			v = verdictOf(r.patchStatusIfChanged(ctx))
		}
		r.callAfterStepHook(step)
		switch {
		case v.err == nil:
		case v.done:
			return Outcome{}, nil
		case v.waiting:
			return Outcome{Step: step.Name, Waiting: v.err.Error()}, v.err
		default:
			return Outcome{Step: step.Name, Err: v.failure, Terminal: v.terminal}, v.err
		}
	}
	return Outcome{}, nil
}

// runAndMeasureStep runs one step and measures its duration. If the step returns ContinueAndRequeueAfter,
// runAndMeasureStep records the delay.
func (r *runner) runAndMeasureStep(ctx context.Context, step Step) verdict {
	start := time.Now()
	ctx, end := telemetry.StartStepSpan(ctx, r.Controller, step.Name)
	v := verdictOf(step.Do(ctx))
	if v.recheck > 0 {
		r.recheckAfter(v.recheck)
	}
	result := v.result()
	telemetry.Observe(ctx, metrics.Steps.WithLabelValues(r.Controller, step.Name, result), time.Since(start).Seconds())
	switch result {
	case metrics.ResultLater:
		metrics.Requeues.WithLabelValues(r.Controller+"_"+step.Name, metrics.RequeueIntended).Inc()
	case metrics.ResultError:
		metrics.Requeues.WithLabelValues(r.Controller+"_"+step.Name, metrics.RequeueUnexpected).Inc()
	}
	end(result, v.failure)
	return v
}

// recheckAfter requeues the object after the given time, or earlier if an earlier time was requested before.
func (r *runner) recheckAfter(after time.Duration) {
	if r.recheck == 0 || after < r.recheck {
		r.recheck = after
	}
}

// callAfterStepHook calls Options.AfterStep if it is set.
func (r *runner) callAfterStepHook(step Step) {
	if r.AfterStep != nil {
		r.AfterStep(step.Name)
	}
}

// NewSaveBudget returns the budget of status patches of all controllers. The budget allows 500 patches at once for each
// runtime, and after that 5 per second. Without this limit, a runtime in which something changes all the time would
// cause any number of patches. The first installation of 50 modules needs about 300 patches.
func NewSaveBudget() *budget.Budget { return budget.New(500, 200*time.Millisecond) }

// takeSaveBudget returns how long the status has to wait, because the runtime has used up its budget of status patches.
// takeSaveBudget returns 0 if the status may be saved now, if it is saved already, or if the object is being deleted.
func (r *runner) takeSaveBudget() (wait time.Duration) {
	if r.Saves == nil || !r.Object.GetDeletionTimestamp().IsZero() ||
		Equal(fieldPointer(r.saved, "Status"), fieldPointer(r.Object, "Status")) {
		return 0
	}
	return r.Saves.Take(r.Runtime, time.Now())
}

// postponeSave returns the result of a reconcile whose status is not saved yet. The object is reconciled again as soon
// as the budget allows a patch of its status. The next reconcile derives the status anew, so only the last of several
// statuses is saved.
func (r *runner) postponeSave(ctx context.Context, wait time.Duration, err error) (reconcile.Result, error) {
	metrics.SavesPostponed.WithLabelValues(r.Controller).Inc()
	wait = max(wait, time.Second)
	log.FromContext(ctx).V(1).Info("the status is saved later", "after", wait.String(), "problem", fmt.Sprint(err))
	return reconcile.Result{RequeueAfter: wait}, nil
}

// patchStatusIfChanged patches the status if it differs from the status that was saved last. If the object no longer
// exists, patchStatusIfChanged returns no error.
func (r *runner) patchStatusIfChanged(ctx context.Context) error {
	if Equal(fieldPointer(r.saved, "Status"), fieldPointer(r.Object, "Status")) {
		return nil
	}
	if r.BeforeSave != nil {
		r.BeforeSave()
	}
	patch, err := r.statusPatch()
	if err != nil || patch == nil {
		return err
	}
	after := reflect.New(reflect.TypeOf(r.Object).Elem()).Interface().(client.Object) // receives the answer
	after.SetNamespace(r.Object.GetNamespace())
	after.SetName(r.Object.GetName())
	if err := r.Client.Status().Patch(ctx, after, client.RawPatch(types.MergePatchType, patch)); err != nil {
		if apierrors.IsNotFound(err) {
			r.callAfterSaveHook(r.saved)
			return nil
		}
		return errors.Join(fmt.Errorf("saving the status of %s: %w", client.ObjectKeyFromObject(r.Object), err),
			r.reportIfRefused(ctx, err))
	}
	metrics.StatusWrites.WithLabelValues(r.Controller).Inc()
	r.Object.SetResourceVersion(after.GetResourceVersion())
	before := r.saved
	r.saved = r.Object.DeepCopyObject().(client.Object)
	r.callAfterSaveHook(before)
	return nil
}

// callAfterSaveHook calls Options.AfterSave if it is set.
func (r *runner) callAfterSaveHook(before client.Object) {
	if r.AfterSave != nil {
		r.AfterSave(before)
	}
}

// statusPatch returns the change of the status as a merge patch, or nil if there is no change. The patch contains only
// the status, for two reasons: A step may have patched the metadata since the object was read. Encoding the whole
// object costs more than comparing its status.
func (r *runner) statusPatch() ([]byte, error) {
	patch, err := MergePatch("status", fieldPointer(r.saved, "Status"), fieldPointer(r.Object, "Status"))
	if err != nil {
		return nil, fmt.Errorf("comparing the status of %s: %w", client.ObjectKeyFromObject(r.Object), err)
	}
	return patch, nil
}

// checkSpecUnchanged returns a terminal error if a step has changed the spec in memory.
func (r *runner) checkSpecUnchanged() error {
	if Equal(fieldPointer(r.first, "Spec"), fieldPointer(r.Object, "Spec")) {
		return nil
	}
	return reconcile.TerminalError(
		fmt.Errorf("a step of controller %s changed the spec of %s in memory: a bug in this program",
			r.Controller, client.ObjectKeyFromObject(r.Object)))
}

// result converts the error of a reconcile into the result and the error that controller-runtime gets.
func (r *runner) result(ctx context.Context, err error) (reconcile.Result, error) {
	v := verdictOf(err)
	switch {
	case v.err == nil:
		return reconcile.Result{RequeueAfter: r.recheck}, nil
	case errors.Is(ctx.Err(), context.Canceled):
		// The manager is stopping, so the interrupted reconcile is not a failure. After the start, the next process of
		// the manager reconciles all objects anyway.
		log.FromContext(ctx).V(1).Info("interrupted", "problem", v.err.Error())
		return reconcile.Result{}, nil
	case v.waiting:
		log.FromContext(ctx).V(1).Info("waiting", "for", v.err.Error(), "after", v.after.String())
		after := v.after
		if r.recheck > 0 && r.recheck < after {
			after = r.recheck
		}
		return reconcile.Result{RequeueAfter: after}, nil
	case apierrors.IsConflict(v.err):
		// The write was refused with a conflict, because another writer has changed the object since the runner read
		// it. A conflict does not count as a failure. The object is requeued with a random delay, so that the two
		// writers do not conflict again.
		return reconcile.Result{RequeueAfter: 50*time.Millisecond + rand.N(50*time.Millisecond)}, nil
	case isControlPlaneUnreachable(v.err):
		// The control plane does not answer. The delay is fixed, because a back-off that has grown during the outage
		// would last minutes longer than the outage.
		log.FromContext(ctx).Info("the control plane cannot be reached", "problem", v.err.Error())
		return reconcile.Result{RequeueAfter: time.Second + rand.N(time.Second)}, nil
	default:
		return ctrl.Result{}, v.err
	}
}

// isControlPlaneUnreachable reports whether an error means that the control plane did not answer. Errors of runtimes
// and registries have a reason code. Errors of the client of the control plane have no reason code.
func isControlPlaneUnreachable(err error) bool {
	if Reason(err) != "" || isTerminal(err) {
		return false
	}
	_, transport := errors.AsType[*url.Error](err)
	return transport || apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err)
}

// fieldPointer returns a pointer to the field with the given name in the struct to which obj points.
func fieldPointer(obj client.Object, name string) any {
	return reflect.ValueOf(obj).Elem().FieldByName(name).Addr().Interface()
}

// Equal reports whether two values are equal for Kubernetes, which treats an empty list like a missing list. Equal
// first compares the values with reflect.DeepEqual, which takes a third of the time of the comparison by the rules of
// Kubernetes. Most values that are equal in Kubernetes are also deeply equal in Go.
func Equal(a, b any) bool {
	return reflect.DeepEqual(a, b) || equality.Semantic.DeepEqual(a, b)
}
