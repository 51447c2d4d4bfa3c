// Package preflight checks that a version of a module can be installed, before a rollout admits the first runtime.
//
// # Use
//
//	c := preflight.New(preflight.Options{Render: …, Changed: …})
//	err := mgr.Add(c)                            // makes the checks
//	result := c.RequestResult(preflight.Move{…}) // returns at once
//
// # How it works
//
// A check verifies the signatures of a version and renders it, with the functions and the limits of an installation in
// a runtime. The check also renders the former version and compares the CustomResourceDefinitions of both versions,
// because no runtime can be updated if an API server refuses the new CustomResourceDefinitions.
//
// The method RequestResult does not check anything itself: it returns the result of the last check of the version from
// memory. Until a check has ended, RequestResult returns a blocker, so the rollout waits. Other goroutines make the
// checks, and call Changed after each new result. At most maxParallel checks are made at the same time, and at most one
// of each module, so that a version that takes minutes delays only the versions of its own module. A result is valid
// for the digests of the new and of the former version, see [Version.Digest].
//
// A version that has passed is not checked again. A check that could not read the version is repeated after
// unreadableInterval. A check with any other failure is repeated after failedInterval. Checks are repeated only while a
// caller still asks for their result. A check is not repeated if only another version can correct the failure, for
// example a rendering that had to be stopped.
//
// # What it does not do
//
// The package does not connect to a runtime, so it cannot detect what only some API servers refuse. The package does
// not compare the schemas of CustomResourceDefinitions: klm module lint --previous compares them. If the former version
// cannot be rendered, for example because it is no longer in the registry, nothing is compared: the API server of each
// runtime still checks the CustomResourceDefinitions.
package preflight

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/check"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

const (
	// maxParallel is the maximum number of checks at the same time.
	maxParallel = 4
	// checkTimeout limits one check. checkTimeout is longer than the timeouts of both renderings of a check together:
	// of the new and of the former version.
	checkTimeout = 4 * time.Minute
	// unreadableInterval is the time after which a version that could not be read is checked again.
	unreadableInterval = 10 * time.Second
	// failedInterval is the time after which a failed check is repeated, because the cause may be gone: for example,
	// somebody has signed the version.
	failedInterval = 30 * time.Second
	// idlePeriod is how long a check is still repeated after its result was last used.
	idlePeriod = 5 * time.Minute
	// keepPeriod is the time for which a result is kept after its last use.
	keepPeriod = time.Hour
)

// Version is a version of a module. The zero value is no version.
type Version struct {
	// Module is the name of the module, and Version the version.
	Module, Version string
	// Component is the name of the component in the registry.
	Component string
	// Template is the ModuleTemplate of the version. The checker must not change the ModuleTemplate.
	Template *v1beta2.ModuleTemplate
}

// Digest identifies what decides the content of a version: the component, the fields of the ModuleTemplate that decide
// what a runtime gets, and the new content that a person has accepted. Fields that are only for information, such as
// links, are not part of the digest.
func (v Version) Digest() string {
	spec := v.Template.Spec.DeepCopy()
	spec.Channel, spec.Descriptor, spec.Resources = "", runtime.RawExtension{}, nil
	spec.Info, spec.AssociatedResources = nil, nil
	data, err := json.Marshal([]any{v.Component, v.Template.Name, spec,
		v.Template.Annotations[v1beta2.AnnotationAcceptContent]})
	if err != nil { // not possible: the ModuleTemplate was read as JSON
		data = []byte(err.Error() + v.Template.ResourceVersion)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(data))
}

// Content is the content of a version that was verified and rendered.
type Content struct {
	// Digest identifies the content.
	Digest string
	// CRDs are the CustomResourceDefinitions that the version contains.
	CRDs []*unstructured.Unstructured
}

// Options are the dependencies of a Checker. All are required.
type Options struct {
	// Render verifies and renders a version.
	Render func(ctx context.Context, v Version) (Content, error)
	// Changed is called after each new result, with the module.
	Changed func(module string)
}

// Checker checks versions. Checker is safe for concurrent use.
type Checker struct {
	Options
	queue workqueue.TypedDelayingInterface[string] // modules with requested checks; one worker at a time has a module

	mu     sync.Mutex
	checks map[string]*entry // guarded by mu; by key of the Move
}

// Move is a move of a module to a version.
type Move struct {
	// From is the former version. If From is the zero value, nothing is compared.
	From Version
	// To is the version that is checked.
	To Version
}

// key returns a text that identifies a Move by its module and the digests of its two versions.
func (m Move) key() string {
	from := ""
	if m.From.Template != nil {
		from = m.From.Digest()
	}
	return m.To.Module + " " + from + " " + m.To.Digest()
}

// Result is the result of the check of a version.
type Result struct {
	// Digest identifies the content of a version that has passed. Digest is "" if the version has not passed.
	Digest string
	// Template is the digest of the Version, which covers its ModuleTemplate and its component. Template is "" if the
	// version has not passed.
	Template string
	// Blocker is the reason why the version cannot be installed, or why this is not known. Blocker is nil if the
	// version has passed.
	Blocker *v1beta2.RolloutBlocker
	// IsRunning is true until the first check of the version has ended.
	IsRunning bool
}

// entry is a check and its result.
type entry struct {
	move   Move
	result Result
	used   time.Time // time of the last call of RequestResult
	due    time.Time // time of the next check; the zero time: none is requested
	isIdle bool      // the check has to be repeated, and was not because nobody has used the result
}

// New returns a Checker.
func New(o Options) *Checker {
	return &Checker{Options: o, checks: map[string]*entry{},
		queue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{})}
}

// RequestResult returns the result of the last check of a version. If the version was never checked, or if its check
// has to be repeated, RequestResult requests a check and does not wait for it.
func (c *Checker) RequestResult(m Move) (last Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, key := time.Now(), m.key()
	e := c.checks[key]
	if e == nil {
		maps.DeleteFunc(c.checks, func(_ string, old *entry) bool { return now.Sub(old.used) > keepPeriod })
		e = &entry{move: m, result: Result{IsRunning: true, Blocker: pendingBlocker(m)}}
		c.checks[key] = e
		c.requestLocked(e, 0)
	}
	e.used = now
	if e.isIdle {
		e.isIdle = false
		c.requestLocked(e, 0)
	}
	return e.result
}

// requestLocked requests a check after a delay. The caller holds mu.
func (c *Checker) requestLocked(e *entry, delay time.Duration) {
	e.due = time.Now().Add(delay)
	c.queue.AddAfter(e.move.To.Module, delay)
}

// Start makes the requested checks until the context ends.
func (c *Checker) Start(ctx context.Context) error {
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()
	var workers sync.WaitGroup
	for range maxParallel {
		workers.Go(func() {
			for module, isShutDown := c.queue.Get(); !isShutDown; module, isShutDown = c.queue.Get() {
				if e := c.takeFirstDue(module); e != nil {
					c.work(ctx, e)
				}
				c.requestNext(module)
				c.queue.Done(module)
			}
		})
	}
	workers.Wait()
	return nil
}

// takeFirstDue returns the entry of a module whose check is due first, or nil if no check is due. If no caller has
// asked for the result of an entry for idlePeriod, its check is omitted until a caller asks for the result.
func (c *Checker) takeFirstDue(module string) (first *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, e := range c.checks {
		if e.move.To.Module != module || e.due.IsZero() || e.due.After(now) {
			continue
		}
		if now.Sub(e.used) > idlePeriod {
			e.due, e.isIdle = time.Time{}, true
			continue
		}
		if first == nil || e.due.Before(first.due) {
			first = e
		}
	}
	if first != nil {
		first.due = time.Time{}
	}
	return first
}

// requestNext makes the queue return the module again when its next check is due. For each module, the queue keeps only
// the earliest point in time. Therefore requestNext has to be called after each check.
func (c *Checker) requestNext(module string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var next time.Time
	for _, e := range c.checks {
		if e.move.To.Module == module && !e.due.IsZero() && (next.IsZero() || e.due.Before(next)) {
			next = e.due
		}
	}
	if !next.IsZero() {
		c.queue.AddAfter(module, time.Until(next))
	}
}

// work makes one check and stores its result.
func (c *Checker) work(ctx context.Context, e *entry) {
	bounded, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	digest, err := c.renderAndCompareCRDs(bounded, e.move)
	if delay, isWaiting := loop.WaitDelay(err); isWaiting { // the request to the registry continues
		c.mu.Lock()
		defer c.mu.Unlock()
		c.requestLocked(e, delay)
		return
	}
	if ctx.Err() != nil {
		return
	}
	result, again := Result{Digest: digest, Template: e.move.To.Digest()}, time.Duration(0)
	if err != nil {
		result = Result{Blocker: blockerOf(e.move, err)}
		switch {
		case isUnreachableOrUnauthorized(err):
			again = unreadableInterval
		case !errors.Is(err, reconcile.TerminalError(nil)):
			again = failedInterval
		}
	}
	if c.store(e, result, again) {
		c.Changed(e.move.To.Module)
	}
}

// store stores the result of a check, and reports whether the result differs from the result before. The parameter
// again is the delay until the check is repeated; 0 means that the check is not repeated.
func (c *Checker) store(e *entry, result Result, again time.Duration) (isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isNew = !reflect.DeepEqual(e.result, result)
	e.result = result
	if again > 0 {
		c.requestLocked(e, again)
	}
	return isNew
}

// refusedError reports CustomResourceDefinitions that every API server refuses.
type refusedError struct{ findings []content.Finding }

func (e refusedError) Error() string {
	var all []string
	for _, f := range e.findings {
		all = append(all, f.String())
	}
	return content.JoinFirst(all, "; ")
}

// renderAndCompareCRDs verifies and renders the version, and compares its CustomResourceDefinitions with those of the
// former version.
func (c *Checker) renderAndCompareCRDs(ctx context.Context, m Move) (digest string, err error) {
	to, err := c.Render(ctx, m.To)
	if err != nil || m.From.Template == nil || len(to.CRDs) == 0 {
		return to.Digest, err
	}
	from, err := c.Render(ctx, m.From)
	if _, isWaiting := loop.WaitDelay(err); isWaiting || isRegistryOutage(err) {
		return "", err
	}
	if err == nil {
		if refused := check.RefusedCRDChanges(check.CRDsByGroupKind(from.CRDs),
			check.CRDsByGroupKind(to.CRDs)); len(refused) > 0 {
			return "", reconcile.TerminalError(refusedError{refused})
		}
	}
	return to.Digest, ctx.Err()
}

// isRegistryOutage reports whether a registry or repository does not answer.
func isRegistryOutage(err error) bool {
	switch loop.Reason(err) {
	case v1beta2.ReasonRegistryUnreachable, v1beta2.ReasonRepositoryUnreachable:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// isUnreachableOrUnauthorized reports whether a version could not be read, although nothing is known to be wrong with
// it.
func isUnreachableOrUnauthorized(err error) bool {
	switch loop.Reason(err) {
	case v1beta2.ReasonRegistryUnauthorized, v1beta2.ReasonRepositoryUnauthorized, v1beta2.ReasonLoginNotFound:
		return true
	}
	return isRegistryOutage(err)
}

// pendingBlocker returns the blocker of a rollout that waits because the check of its version has not ended yet.
func pendingBlocker(m Move) *v1beta2.RolloutBlocker {
	return &v1beta2.RolloutBlocker{Code: v1beta2.ReasonPreflightPending, Object: objectOf(m),
		Message: fmt.Sprintf("version %s is being verified and rendered", m.To.Version),
		Remedy:  "wait: the rollout goes on by itself"}
}

// blockerOf returns the blocker of a failed check.
func blockerOf(m Move, err error) *v1beta2.RolloutBlocker {
	version := m.To.Version
	isTerminal := errors.Is(err, reconcile.TerminalError(nil))
	if inner := errors.Unwrap(err); isTerminal && inner != nil { // without the words that mark a terminal error
		err = inner
	}
	message := text.ClipLine(err.Error(), 768)
	switch {
	case isUnreachableOrUnauthorized(err):
		return &v1beta2.RolloutBlocker{Code: v1beta2.ReasonPreflightPending, Object: objectOf(m),
			Message: fmt.Sprintf("version %s cannot be read: %s", version, message),
			Remedy:  "check the registry: the rollout goes on by itself when the version can be read"}
	case isTerminal:
		return &v1beta2.RolloutBlocker{Code: v1beta2.ReasonPreflightFailed, Object: objectOf(m),
			Message: fmt.Sprintf("version %s cannot be installed in any runtime: %s", version, message),
			Remedy:  "publish a corrected version, and move the channel to it"}
	}
	return &v1beta2.RolloutBlocker{Code: v1beta2.ReasonPreflightFailed, Object: objectOf(m),
		Message: fmt.Sprintf("version %s cannot be installed in any runtime: %s", version, message),
		Remedy: "correct the cause: the rollout goes on by itself after it; or move the channel to another " +
			"version"}
}

func objectOf(m Move) string { return "ModuleTemplate " + m.To.Template.Name }
