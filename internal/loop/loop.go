// Package loop runs the steps of a reconciler. It alone patches the status of objects and decides when they are
// reconciled again.
//
// # Use
//
//	return loop.Run(ctx, loop.Options{Client: r.Client, Controller: "kyma", Object: obj, Report: n.report},
//	    loop.Step{Name: "connect", Do: n.connect},
//	    loop.Step{Name: "record", Do: n.record, Save: true},
//	    loop.Step{Name: "apply", Do: n.apply})
//
// A step does one thing and returns an error. The error decides how the reconcile goes on:
//
//	1  nil                          next step
//	2  Done()                       stop; the other steps are not needed and all is well
//	3  RecheckAfter(after)          next step; reconcile again after that time even if nothing happens
//	4  Later(after, why)            not yet: stop, reconcile again after that time
//	5  reconcile.TerminalError      stop; only a change will help, so wait for one
//	6  any other error              stop; try again with back-off
//
// Answers (2 to 4) and failures (5 and 6) can be wrapped with %w and joined with errors.Join. A failure that is joined
// with an answer counts. A terminal error that is joined with anything else is tried again with it.
//
// The package also has what every reconciler needs around its steps: finalizers that are patched without losing those
// of others ([AddFinalizers], [RemoveFinalizers]), predicates and mappings of events ([SpecChanged], [RequestForKyma]),
// memory for each object ([Memory]), intervals ([PollDelay], [Spread]), and the form of texts in conditions and events
// ([Clip], [Message]).
//
// # How it works
//
// The runner copies the object before the first step, runs the steps in order until one stops, lets Report derive the
// status from what the steps found, clips the texts in it, and sends one merge patch with the difference, or nothing if
// there is none. The status is saved before the step after one that is marked Save: so an inventory is written before
// the objects that it names. Report runs in every reconcile, also after a failure, so that a state never outlives its
// reason.
//
// # What it does not do
//
// It keeps no memory between reconciles of its own, and it never sleeps. It stops when a step has changed the spec in
// memory: the spec belongs to the writer of the object.
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

	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/telemetry"
)

// Step is one step of a reconciler.
type Step struct {
	// Name is a verb; it labels the metrics and the log.
	Name string
	// Do performs the step. See the package comment for the meaning of its error.
	Do func(context.Context) error
	// Save makes the runner save the status before the next step begins.
	Save bool
}

// Options are the options of one reconcile of one object.
type Options struct {
	// Client patches the status.
	Client client.Client
	// Controller labels metrics.
	Controller string
	// Object is the object as read; steps may change its status in memory and nothing else.
	Object client.Object
	// Report derives the status of Object from what the steps found. It is called once, after the last step.
	Report func(Outcome)
	// DeferSave, if set, is called after Report when no step failed. If it returns true, the status is neither saved
	// nor published now, because the change does not matter to any reader yet. The controller has to see to it that a
	// later reconcile saves it. What was saved for a step stays saved.
	DeferSave func() bool
	// Publish, if set, is called after the status was saved, also if a step failed: it copies the status to another
	// place. Its error counts like that of a last step, but never hides that of an earlier step.
	Publish func(context.Context) error
	// AfterStep, if set, is called with the name of each step that ran, however it ended, once the status that it asked
	// to save is saved; Publish is a step too, "publish". It is for tests of faults: nothing else happens between two
	// steps.
	AfterStep func(step string)
}

// Outcome is how the steps of a reconcile ended.
type Outcome struct {
	// Step is the name of the step that stopped the others, "" if all ran.
	Step string
	// Err is the failure of that step, nil if there is none. "Not yet" is no failure: see Waiting.
	Err error
	// Waiting names what the step waits for, "" if it does not wait.
	Waiting string
	// Terminal reports that Err will not go away by trying again.
	Terminal bool
}

// Reason returns the stable reason code of Err: what the first error in its chain with a method Reason() string
// returns, else "".
func (o Outcome) Reason() string { return Reason(o.Err) }

// Reason returns the stable reason code that err carries, or "" if it carries none.
func Reason(err error) string {
	if r, ok := errors.AsType[interface {
		error
		Reason() string
	}](err); ok {
		return r.Reason()
	}
	return ""
}

// Run reconciles an object once: steps, report, one status patch if the status changed, publish. See the package
// comment.
func Run(ctx context.Context, o Options, steps ...Step) (result reconcile.Result, err error) {
	ctx, end := startTrace(ctx, o)
	defer func() { err = end(err) }()
	first := o.Object.DeepCopyObject().(client.Object)
	r := &runner{Options: o, first: first, saved: first}
	out, err := r.runSteps(ctx, steps)
	if broken := r.checkSpec(); broken != nil {
		return reconcile.Result{}, broken
	}
	if o.Report != nil {
		o.Report(out)
		clipStatus(o.Object)
	}
	if o.DeferSave != nil && out.Err == nil && o.DeferSave() {
		return r.result(ctx, err)
	}
	if saveErr := r.save(ctx); saveErr != nil {
		if isUnreachable(saveErr) {
			return r.result(ctx, saveErr) // the next reconcile finds again what else there was
		}
		return r.result(ctx, errors.Join(err, saveErr))
	}
	if o.Publish != nil && !apierrors.IsNotFound(err) {
		publish := Step{Name: "publish", Do: o.Publish}
		if v := r.do(ctx, publish); v.err != nil && err == nil {
			err = v.err
		}
		r.afterStep(publish)
	}
	return r.result(ctx, err)
}

// runner is the state of one reconcile.
type runner struct {
	Options
	first   client.Object // the object as it was read
	saved   client.Object // the object with the status that the control plane has
	recheck time.Duration // the earliest reconcile that a step asked for, 0 for none
}

// runSteps runs the steps until one stops the others. The error is what Run returns.
func (r *runner) runSteps(ctx context.Context, steps []Step) (Outcome, error) {
	for _, step := range steps {
		v := r.do(ctx, step)
		if v.err == nil && step.Save {
			v = judge(r.save(ctx))
		}
		r.afterStep(step)
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

// do runs one step, measures it, and records when it asked to be reconciled again.
func (r *runner) do(ctx context.Context, step Step) verdict {
	start := time.Now()
	ctx, end := telemetry.Step(ctx, r.Controller, step.Name)
	v := judge(step.Do(ctx))
	if v.recheck > 0 && (r.recheck == 0 || v.recheck < r.recheck) {
		r.recheck = v.recheck
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

// afterStep calls AfterStep of the options.
func (r *runner) afterStep(step Step) {
	if r.AfterStep != nil {
		r.AfterStep(step.Name)
	}
}

// save patches the status if it differs from what the control plane has. An object that does not exist any more needs
// no status.
func (r *runner) save(ctx context.Context) error {
	if Equal(field(r.saved, "Status"), field(r.Object, "Status")) {
		return nil
	}
	patch, err := r.patch()
	if err != nil || patch == nil {
		return err
	}
	after := reflect.New(reflect.TypeOf(r.Object).Elem()).Interface().(client.Object) // takes the answer
	after.SetNamespace(r.Object.GetNamespace())
	after.SetName(r.Object.GetName())
	if err := r.Client.Status().Patch(ctx, after, client.RawPatch(types.MergePatchType, patch)); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("saving the status of %s: %w", client.ObjectKeyFromObject(r.Object), err)
	}
	metrics.StatusWrites.WithLabelValues(r.Controller).Inc()
	r.Object.SetResourceVersion(after.GetResourceVersion())
	r.saved = r.Object.DeepCopyObject().(client.Object)
	return nil
}

// patch returns the change of the status as a merge patch, nil if the encoded status is the same. It has the status
// only: a step may have patched the metadata meanwhile, and encoding a whole object costs more than comparing its
// status.
func (r *runner) patch() ([]byte, error) {
	patch, err := MergePatch("status", field(r.saved, "Status"), field(r.Object, "Status"))
	if err != nil {
		return nil, fmt.Errorf("comparing the status of %s: %w", client.ObjectKeyFromObject(r.Object), err)
	}
	return patch, nil
}

// checkSpec returns a terminal error if a step changed the spec in memory.
func (r *runner) checkSpec() error {
	if Equal(field(r.first, "Spec"), field(r.Object, "Spec")) {
		return nil
	}
	return reconcile.TerminalError(
		fmt.Errorf("a step of controller %s changed the spec of %s in memory: a bug in this program",
			r.Controller, client.ObjectKeyFromObject(r.Object)))
}

// result turns the error of the reconcile into what the queue does next.
func (r *runner) result(ctx context.Context, err error) (reconcile.Result, error) {
	v := judge(err)
	switch {
	case v.err == nil:
		return reconcile.Result{RequeueAfter: r.recheck}, nil
	case v.waiting:
		log.FromContext(ctx).V(1).Info("waiting", "for", v.err.Error(), "after", v.after.String())
		after := v.after
		if r.recheck > 0 && r.recheck < after {
			after = r.recheck
		}
		return reconcile.Result{RequeueAfter: after}, nil
	case apierrors.IsConflict(v.err):
		// Somebody else wrote first, which is no failure: read again, with a random delay so that the writers do not
		// meet again.
		return reconcile.Result{RequeueAfter: 50*time.Millisecond + rand.N(50*time.Millisecond)}, nil
	case isUnreachable(v.err):
		// The control plane does not answer. A back-off that has grown meanwhile would last minutes longer.
		log.FromContext(ctx).Info("the control plane cannot be reached", "problem", v.err.Error())
		return reconcile.Result{RequeueAfter: time.Second + rand.N(time.Second)}, nil
	default:
		return ctrl.Result{}, v.err
	}
}

// isUnreachable reports whether the control plane did not answer. Errors of runtimes and registries have a reason;
// those of the client of the control plane have none.
func isUnreachable(err error) bool {
	if Reason(err) != "" || isTerminal(err) {
		return false
	}
	_, transport := errors.AsType[*url.Error](err)
	return transport || apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err)
}

// field returns a pointer to the named field of the struct behind obj.
func field(obj client.Object, name string) any {
	return reflect.ValueOf(obj).Elem().FieldByName(name).Addr().Interface()
}

// Equal reports whether two values mean the same in Kubernetes, where an empty list equals none. Most values that do
// are deeply equal in Go too, and that comparison takes a third of the time, so it comes first.
func Equal(a, b any) bool {
	return reflect.DeepEqual(a, b) || equality.Semantic.DeepEqual(a, b)
}
