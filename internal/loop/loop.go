// Package loop runs the steps of a reconciler and is the only place that patches a status and picks the result of a pass.
//
// # Use
//
//	return loop.Run(ctx, loop.Options{Client: r.Client, Controller: "kyma", Object: obj, Report: n.report},
//	    loop.Step{Name: "connect", Do: n.connect},
//	    loop.Step{Name: "record", Do: n.record, Save: true},
//	    loop.Step{Name: "apply", Do: n.apply})
//
// A step does one thing and returns an error. What the error says decides how the pass goes on:
//
//	1  nil                          next step
//	2  Done()                       the story ends here and all is well
//	3  RecheckAfter(after)                  next step; come back after that time even if nothing happens
//	4  Later(after, why)            not yet: stop, come back after that time
//	5  reconcile.TerminalError      stop; nothing but a change will help, so wait for one
//	6  any other error              stop; try again with back-off
//
// # How it works
//
// The runner copies the object before the first step, runs the steps in order until one stops the story, lets Report derive
// the status from what was seen, and sends one merge patch with the difference, or nothing when there is none. A step marked
// Save has its status saved before the next step begins: that is how an inventory is written before the objects it names.
// Report runs on every pass, also after a failure, so that a state never outlives its reason.
//
// # What it does not do
//
// It keeps no memory between passes and it never sleeps. It refuses to go on when a step has touched the spec: a spec belongs
// to whoever wrote the object.
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

// Step is one step of a reconciler's story.
type Step struct {
	// Name is a verb; it labels the metrics and the log.
	Name string
	// Do performs the step. See the package comment for what its error means.
	Do func(context.Context) error
	// Save asks the runner to save the status before the next step begins.
	Save bool
}

// Options is one run of a reconciler over one object.
type Options struct {
	// Client patches the status.
	Client client.Client
	// Controller labels metrics.
	Controller string
	// Object is the object as read; steps may change its status in memory and nothing else.
	Object client.Object
	// Report derives the status of Object from what the steps saw. It is called once, after the last step.
	Report func(Outcome)
	// Minor, if set, is asked after Report whether what it changed is of no interest to anybody yet. Then the status is not saved and not
	// published: a later pass will, which the object's controller sees to. What a step saved before has been saved.
	Minor func() bool
	// Publish, if set, is called after the status was saved, also when a step failed: it carries the status elsewhere.
	// Its error counts like one of a last step, but never hides that of an earlier step.
	Publish func(context.Context) error
	// After, if set, is called with the name of each step that ran, however it ended, once what it asked to save is saved; Publish
	// is a step too, "publish". It is for tests of faults: nothing else happens between two steps.
	After func(step string)
}

// Outcome is how the steps of a pass ended.
type Outcome struct {
	// Step is the name of the step that stopped the story, "" if all ran to the end.
	Step string
	// Err is the error of that step, nil if all is well. A "not yet" is not an error: see Waiting.
	Err error
	// Waiting says what the pass waits for, "" if it does not wait.
	Waiting string
	// Terminal says that Err will not go away by trying again.
	Terminal bool
}

// Reason returns the stable reason code of the error that ended the pass: what the first error in its chain with a method
// Reason() string returns, else "".
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

// verdict is an answer of a step that is not a failure.
type verdict struct {
	after time.Duration
	why   string
	kind  int
}

const (
	later = iota
	look
	done
)

func (v *verdict) Error() string { return v.why }

// Later says "not yet": the pass stops and is repeated after the given time, or earlier when something happens. The text why
// names what is waited for; it ends up in the status, so it must not change while nothing changes.
func Later(after time.Duration, why string) error {
	return &verdict{after: after, why: why, kind: later}
}

// Look lets the story go on, and asks for another pass after the given time even if nothing happens. The earliest of several wins.
func RecheckAfter(after time.Duration) error { return &verdict{after: after, kind: look} }

// Done ends the story before its last step; all is well.
func Done() error { return &verdict{kind: done} }

// Run performs one pass: steps, report, one status patch if the status changed, publish. See the package comment.
func Run(ctx context.Context, p Options, steps ...Step) (result reconcile.Result, err error) {
	ctx, end := begin(ctx, p)
	defer func() { err = end(err) }()
	first := p.Object.DeepCopyObject().(client.Object)
	r := &runner{Options: p, first: first, saved: first}
	out, err := r.walk(ctx, steps)
	if broken := r.specTouched(); broken != nil {
		return reconcile.Result{}, broken
	}
	if p.Report != nil {
		p.Report(out)
	}
	if p.Minor != nil && out.Err == nil && p.Minor() {
		return r.result(ctx, err)
	}
	if saveErr := r.save(ctx); saveErr != nil {
		if isUnreached(saveErr) {
			return r.result(ctx, saveErr) // whatever else there was is found again
		}
		return reconcile.Result{}, errors.Join(err, saveErr)
	}
	if p.Publish != nil && !apierrors.IsNotFound(err) {
		publish := Step{Name: "publish", Do: p.Publish}
		if pubErr := r.do(ctx, publish); pubErr != nil && err == nil {
			err = pubErr
		}
		r.after(publish)
	}
	return r.result(ctx, err)
}

// runner is the state of one pass.
type runner struct {
	Options
	first client.Object // the object as it was read
	saved client.Object // the object with the status that the control plane knows
	look  time.Duration // the earliest repetition that a step asked for, 0 for none
}

// walk runs the steps until one stops the story.
func (r *runner) walk(ctx context.Context, steps []Step) (Outcome, error) {
	for _, step := range steps {
		err := r.do(ctx, step)
		if err == nil && step.Save {
			err = r.save(ctx)
		}
		r.after(step)
		if err == nil {
			continue
		}
		if v, ok := errors.AsType[*verdict](err); ok {
			if v.kind == done {
				return Outcome{}, nil
			}
			return Outcome{Step: step.Name, Waiting: v.why}, err
		}
		if isTerminal(err) {
			return Outcome{Step: step.Name, Err: errors.Unwrap(err), Terminal: true}, err // without the wrapper, whose text is for programs
		}
		return Outcome{Step: step.Name, Err: err}, err
	}
	return Outcome{}, nil
}

// do runs one step, measures it, and takes note of a wish to look again.
func (r *runner) do(ctx context.Context, step Step) error {
	start := time.Now()
	ctx, end := telemetry.Step(ctx, r.Controller, step.Name)
	err := step.Do(ctx)
	result := metrics.ResultDone
	if v, ok := errors.AsType[*verdict](err); ok {
		switch v.kind {
		case look:
			if r.look == 0 || v.after < r.look {
				r.look = v.after
			}
			err = nil
		case later:
			result = metrics.ResultLater
		}
	} else if isTerminal(err) {
		result = metrics.ResultTerminal
	} else if err != nil {
		result = metrics.ResultError
	}
	telemetry.Observe(ctx, metrics.Steps.WithLabelValues(r.Controller, step.Name, result), time.Since(start).Seconds())
	switch result {
	case metrics.ResultLater:
		metrics.Requeues.WithLabelValues(r.Controller+"_"+step.Name, metrics.RequeueIntended).Inc()
	case metrics.ResultError:
		metrics.Requeues.WithLabelValues(r.Controller+"_"+step.Name, metrics.RequeueUnexpected).Inc()
	}
	end(result, failure(err))
	return err
}

// after tells that a step ran.
func (r *runner) after(step Step) {
	if r.After != nil {
		r.After(step.Name)
	}
}

// save patches the status if it differs from what the control plane knows. An object that is gone needs no status.
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

// patch returns the change of the status as a merge patch, nil if it is none that a client could see. It carries the status alone: metadata may have
// moved on through a step's own patch, and to encode all of an object costs more than to compare it.
func (r *runner) patch() ([]byte, error) {
	patch, err := MergePatch("status", field(r.saved, "Status"), field(r.Object, "Status"))
	if err != nil {
		return nil, fmt.Errorf("comparing the status of %s: %w", client.ObjectKeyFromObject(r.Object), err)
	}
	return patch, nil
}

// specTouched returns a terminal error if a step changed the spec in memory.
func (r *runner) specTouched() error {
	if Equal(field(r.first, "Spec"), field(r.Object, "Spec")) {
		return nil
	}
	return reconcile.TerminalError(fmt.Errorf("a step of controller %s changed the spec of %s in memory: a bug in this program",
		r.Controller, client.ObjectKeyFromObject(r.Object)))
}

// result turns how the pass ended into what the queue does next.
func (r *runner) result(ctx context.Context, err error) (reconcile.Result, error) {
	v, isVerdict := errors.AsType[*verdict](err)
	switch {
	case err == nil:
		return reconcile.Result{RequeueAfter: r.look}, nil
	case isVerdict:
		log.FromContext(ctx).V(1).Info("waiting", "for", v.why, "after", v.after.String())
		after := v.after
		if r.look > 0 && r.look < after {
			after = r.look
		}
		return reconcile.Result{RequeueAfter: after}, nil
	case apierrors.IsConflict(err):
		// Somebody else wrote first. That is no news: read again and go on, a little apart from each other.
		return reconcile.Result{RequeueAfter: 50*time.Millisecond + rand.N(50*time.Millisecond)}, nil
	case isUnreached(err):
		// Our own control plane was away: that is nobody's fault, and a back-off that has grown meanwhile would outlast it by minutes.
		log.FromContext(ctx).Info("the control plane cannot be reached", "problem", err.Error())
		return reconcile.Result{RequeueAfter: time.Second + rand.N(time.Second)}, nil
	default:
		return ctrl.Result{}, err
	}
}

// isUnreached tells whether the control plane did not answer. Errors of runtimes and registries have a reason; those of the client of the control
// plane have none.
func isUnreached(err error) bool {
	if Reason(err) != "" || isTerminal(err) {
		return false
	}
	_, transport := errors.AsType[*url.Error](err)
	return transport || apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err)
}

func isTerminal(err error) bool { return errors.Is(err, reconcile.TerminalError(nil)) }

// field returns a pointer to the named field of the struct behind obj.
func field(obj client.Object, name string) any {
	return reflect.ValueOf(obj).Elem().FieldByName(name).Addr().Interface()
}

// Equal tells whether two values mean the same in Kubernetes, where an empty list is none. Most are the same in all of Go, too, which is found out in
// a third of the time.
func Equal(a, b any) bool {
	return reflect.DeepEqual(a, b) || equality.Semantic.DeepEqual(a, b)
}
