// Package preflight checks that a version of a module can be installed, before a rollout admits the first runtime.
//
// # Use
//
//	c := preflight.New(preflight.Options{Render: …, Changed: …})
//	err := mgr.Add(c)                  // makes the checks, one after the other
//	result := c.Check(preflight.Move{…}) // returns at once
//
// # How it works
//
// A check verifies the signatures of a version and renders it, with the functions and the limits of an installation in
// a runtime. The check also renders the former version and compares the CustomResourceDefinitions of both versions,
// because no runtime can be updated if an API server refuses the new CustomResourceDefinitions.
//
// Check only reads the result from memory. Until a check has ended, Check returns a blocker, so the rollout waits. One
// goroutine makes the checks, and calls Changed after each new result. A result is valid for the ModuleTemplates of the
// new and of the former version, in the generations that were checked.
//
// A version that has passed is not checked again. A check that could not read the version is repeated after
// unreadableInterval, and any other failure after failedInterval, as long as the result is used. A failure that only
// another version can correct is not repeated, for example a rendering that had to be stopped.
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
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/check"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

const (
	// checkTimeout limits one check. checkTimeout is longer than the timeouts of both renderings of a check together:
	// of the new and of the former version.
	checkTimeout = 4 * time.Minute
	// unreadableInterval is the time after which a version that could not be read is checked again.
	unreadableInterval = 10 * time.Second
	// failedInterval is the time after which a failed check is repeated, for example because somebody has signed the
	// version.
	failedInterval = 30 * time.Second
	// idlePeriod is the time after the last use of a result in which its check is repeated.
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

// Content is the content of a version that was verified and rendered.
type Content struct {
	// Digest identifies the content.
	Digest string
	// CRDs are the CustomResourceDefinitions in the content.
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
	queue workqueue.TypedDelayingInterface[string]

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

// key identifies a Move with the content of the ModuleTemplates.
func (m Move) key() string {
	parts := []string{m.To.Module, m.To.Component}
	for _, t := range []*v1beta2.ModuleTemplate{m.From.Template, m.To.Template} {
		if t != nil {
			parts = append(parts, fmt.Sprintf("%s %s %d", t.Name, t.UID, t.Generation))
		}
	}
	return strings.Join(parts, "\n")
}

// Result is the result of the check of a version.
type Result struct {
	// Digest identifies the content of a version that has passed. Digest is "" if the version has not passed.
	Digest string
	// Blocker is the reason why the version cannot be installed, or why this is not known. Blocker is nil if the
	// version has passed.
	Blocker *v1beta2.RolloutBlocker
	// IsRunning means that no check of the version has ended yet.
	IsRunning bool
}

// entry is a check and its result.
type entry struct {
	move   Move
	result Result
	used   time.Time // time of the last call of Check
	isIdle bool      // the check has to be repeated, and was not because nobody has used the result
}

// New returns a Checker.
func New(o Options) *Checker {
	return &Checker{Options: o, checks: map[string]*entry{},
		queue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{})}
}

// Check returns the result of a check. If there is no result, or if the check has to be repeated, Check requests the
// check and does not wait for it.
func (c *Checker) Check(m Move) Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, key := time.Now(), m.key()
	e := c.checks[key]
	if e == nil {
		maps.DeleteFunc(c.checks, func(_ string, old *entry) bool { return now.Sub(old.used) > keepPeriod })
		e = &entry{move: m, result: Result{IsRunning: true, Blocker: running(m)}}
		c.checks[key] = e
		c.queue.Add(key)
	}
	e.used = now
	if e.isIdle {
		e.isIdle = false
		c.queue.Add(key)
	}
	return e.result
}

// Start makes the requested checks until the context ends.
func (c *Checker) Start(ctx context.Context) error {
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()
	for {
		key, isShutDown := c.queue.Get()
		if isShutDown {
			return nil
		}
		c.work(ctx, key)
		c.queue.Done(key)
	}
}

// work makes one check and stores its result.
func (c *Checker) work(ctx context.Context, key string) {
	e := c.toCheck(key)
	if e == nil {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	digest, err := c.try(bounded, e.move)
	if delay, isWaiting := loop.WaitDelay(err); isWaiting { // the request to the registry continues
		c.queue.AddAfter(key, delay)
		return
	}
	if ctx.Err() != nil {
		return
	}
	result := Result{Digest: digest}
	if err != nil {
		result = Result{Blocker: blockerOf(e.move, err)}
		switch {
		case isUnreadable(err):
			c.queue.AddAfter(key, unreadableInterval)
		case !errors.Is(err, reconcile.TerminalError(nil)):
			c.queue.AddAfter(key, failedInterval)
		}
	}
	if c.store(e, result) {
		c.Changed(e.move.To.Module)
	}
}

// toCheck returns the entry of a requested check. toCheck returns nil if Check was not called for this entry for
// idlePeriod.
func (c *Checker) toCheck(key string) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.checks[key]
	if e != nil && time.Since(e.used) > idlePeriod {
		e.isIdle = true
		return nil
	}
	return e
}

// store stores a result, and reports whether it is another one than before.
func (c *Checker) store(e *entry, result Result) (isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isNew = !reflect.DeepEqual(e.result, result)
	e.result = result
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

// try verifies and renders the version, and compares its CustomResourceDefinitions with those of the former version.
func (c *Checker) try(ctx context.Context, m Move) (digest string, err error) {
	to, err := c.Render(ctx, m.To)
	if err != nil || m.From.Template == nil || len(to.CRDs) == 0 {
		return to.Digest, err
	}
	from, err := c.Render(ctx, m.From)
	if _, isWaiting := loop.WaitDelay(err); isWaiting || isOutage(err) {
		return "", err
	}
	if err == nil {
		if refused := check.RefusedCRDs(check.CRDs(from.CRDs), check.CRDs(to.CRDs)); len(refused) > 0 {
			return "", reconcile.TerminalError(refusedError{refused})
		}
	}
	return to.Digest, ctx.Err()
}

// isOutage reports whether a registry or repository does not answer.
func isOutage(err error) bool {
	switch loop.Reason(err) {
	case v1beta2.ReasonRegistryUnreachable, v1beta2.ReasonRepositoryUnreachable:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// isUnreadable reports whether a version could not be read, although nothing is known to be wrong with it.
func isUnreadable(err error) bool {
	switch loop.Reason(err) {
	case v1beta2.ReasonRegistryUnauthorized, v1beta2.ReasonRepositoryUnauthorized, v1beta2.ReasonLoginNotFound:
		return true
	}
	return isOutage(err)
}

// running returns the blocker of a rollout that waits because the check of its version has not ended yet.
func running(m Move) *v1beta2.RolloutBlocker {
	return &v1beta2.RolloutBlocker{Code: v1beta2.ReasonPreflightPending, Object: objectOf(m),
		Message: fmt.Sprintf("version %s is being verified and rendered", m.To.Version),
		Remedy:  "wait: the rollout begins by itself"}
}

// blockerOf returns the blocker of a failed check.
func blockerOf(m Move, err error) *v1beta2.RolloutBlocker {
	version := m.To.Version
	isTerminal := errors.Is(err, reconcile.TerminalError(nil))
	if inner := errors.Unwrap(err); isTerminal && inner != nil { // without the words that mark a terminal error
		err = inner
	}
	message := text.Clip(err.Error(), 768)
	switch {
	case isUnreadable(err):
		return &v1beta2.RolloutBlocker{Code: v1beta2.ReasonPreflightPending, Object: objectOf(m),
			Message: fmt.Sprintf("version %s cannot be read: %s", version, message),
			Remedy:  "check the registry: the rollout begins by itself when the version can be read"}
	case isTerminal:
		return &v1beta2.RolloutBlocker{Code: v1beta2.ReasonPreflightFailed, Object: objectOf(m),
			Message: fmt.Sprintf("version %s cannot be installed in any runtime: %s", version, message),
			Remedy:  "publish a corrected version, and move the channel to it"}
	}
	return &v1beta2.RolloutBlocker{Code: v1beta2.ReasonPreflightFailed, Object: objectOf(m),
		Message: fmt.Sprintf("version %s cannot be installed in any runtime: %s", version, message),
		Remedy: "correct the cause: the rollout begins by itself after it; or move the channel to another " +
			"version"}
}

func objectOf(m Move) string { return "ModuleTemplate " + m.To.Template.Name }
