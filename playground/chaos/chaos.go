// Package chaos runs the manager under random faults and random requests, and checks that it keeps the promises of the
// README.
//
// # Use
//
//	report, err := chaos.Run(ctx, chaos.Options{Dir: "…", Bin: "bin", Seed: 1, For: time.Minute})
//	fmt.Print(report)
//
// The command playground chaos runs the same test. Run returns an error only if it cannot do the run. If the manager
// breaks a promise, the report has a failure.
//
// # How it works
//
// A run has rounds. A plan has the requests and the faults of a round, computed from the seed and the number of the
// round (plan.go). In the first part of a round, the requests are made without faults, one after the other, and then
// all runtimes are removed. In the second part of a round, the same requests are made while faults are injected
// (fault.go, request.go). At the end of the second part, all faults are ended. The state of all clusters must then
// become equal to the state at the end of the first part (picture.go). When the states are equal, the manager must not
// write any more. The manager must then have about as many goroutines and use about as much memory as after the first
// part. Finally, all runtimes are removed, and the state of the clusters must equal their state before the first round.
//
// During the whole run, every change in etcd is checked against the promises of Lifecycle Manager (promise.go). Objects
// of users are not changed or deleted. Modules that stay requested are not deleted. No module gets an older version. No
// object is deleted that another module contains. Every object is in an inventory before it is created. etcd has the
// changes of all clusters in one order, also while API servers are stopped, so no change is missed.
//
// A run with the same seed has the same events in the same order, with the same parameters. The interleaving of
// processes differs from run to run.
//
// # What it does not do
//
// All clusters share one etcd, which has no faults of its own: it neither loses writes nor is split. The manager is one
// process without leader election.
package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// Options configure a run.
type Options struct {
	// Dir is the folder of the landscape. Dir is created and removed. Bin is the folder with the programs.
	Dir, Bin string
	// Runtimes are the names of the runtimes. The default is runtime-a, runtime-b and runtime-c. Requests delete only
	// the Kyma of the last runtime.
	Runtimes []string
	// Seed selects the plan.
	Seed uint64
	// The field For is the duration of the run: new rounds are started until this time has passed. At least one round
	// is started. The default is one round.
	For time.Duration
	// Round is the duration of the part of a round in which faults may begin. The default is one minute.
	Round time.Duration
	// Pace multiplies the number of events per second and divides the duration of faults. The default is 1.
	Pace float64
	// Heal is the maximum time from the end of the faults until the desired state is reached. The default is five
	// minutes.
	Heal time.Duration
	// Idle is the time for which the manager must not write after the desired state is reached. The default is five
	// seconds.
	Idle time.Duration
	// The field Only has the names of the faults that are injected. Empty means all faults.
	Only []string
	// Say is called with every event. nil means that events are not reported.
	Say func(format string, args ...any)
}

// managerFlags are the flags of the manager. The modules have no operator that would set the state of their custom
// resources. The delay after errors is limited, so that an outage of seconds does not delay the end by minutes.
var managerFlags = []string{"--leader-elect=false", "--custom-state-check=false", "--failure-max-delay=10s"}

// run is the state of a run.
type run struct {
	options  Options
	land     *landscape.Landscape
	manager  *supervisor
	promises *promises
	report   *Report
	begin    time.Time

	mu     sync.Mutex // guards what follows
	locked map[string]*sync.Mutex
}

// Run makes a run.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	o = o.withDefaults()
	r := &run{options: o, begin: time.Now(), locked: map[string]*sync.Mutex{},
		report: &Report{Seed: o.Seed, Faults: map[string]int{}, Requests: map[string]int{}}}
	r.land, err = landscape.Up(ctx, landscape.Options{Dir: o.Dir, Bin: o.Bin, Runtimes: o.Runtimes,
		ManagerArgs: managerFlags})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.land.CloseAndRemoveDir()) }()
	life, end := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer end()
	r.manager = &supervisor{land: r.land, say: r.logf}
	r.promises = newPromises(r.land.Namespace(), r.logf)
	var lost error
	observing := make(chan struct{})
	background.Go(func() {
		lost = r.land.Host.Observe(life, sync.OnceFunc(func() { close(observing) }), isObservedKey, r.promises.observe)
	})
	background.Go(func() { r.manager.restartUnlessKilled(life) })
	select {
	case <-observing:
	case <-time.After(10 * time.Minute):
		return nil, errors.New("observing etcd: the watch does not begin")
	}
	if err := r.prepareModulesAndUserObjects(ctx); err != nil {
		return nil, err
	}
	empty, err := r.takeSnapshot(ctx)
	if err != nil {
		return nil, err
	}
	for round := uint64(0); ; round++ {
		if err := r.runRound(ctx, round, empty); err != nil {
			r.report.fail("round %d: %v", round, err)
			r.report.Log = r.land.LogTail(40)
			break
		}
		if time.Since(r.begin) >= o.For {
			break
		}
	}
	end()
	background.Wait()
	r.completeReport(lost)
	return r.report, ctx.Err()
}

func (o Options) withDefaults() Options {
	if len(o.Runtimes) == 0 {
		o.Runtimes = []string{"runtime-a", "runtime-b", "runtime-c"}
	}
	if o.Round == 0 {
		o.Round = time.Minute
	}
	if o.Pace == 0 {
		o.Pace = 1
	}
	if o.Heal == 0 {
		o.Heal = 5 * time.Minute
	}
	if o.Idle == 0 {
		o.Idle = 5 * time.Second
	}
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	return o
}

// logf prints a line with the time since the beginning.
func (r *run) logf(format string, args ...any) {
	r.options.Say("t=%.1fs "+format, append([]any{time.Since(r.begin).Seconds()}, args...)...)
}

// completeReport completes the report.
func (r *run) completeReport(observeErr error) {
	r.report.Lasted = time.Since(r.begin)
	broken, changes, created := r.promises.result()
	r.report.Changes, r.report.Created = changes, created
	for _, b := range broken {
		r.report.fail("promise broken: %s", b)
	}
	if observeErr != nil {
		r.report.fail("not all changes were observed: %v", observeErr)
	}
	r.manager.mu.Lock()
	defer r.manager.mu.Unlock()
	r.report.Exits = len(r.manager.exits)
	if trace := r.land.FindFirstLogLineWithAny("panic: ", "fatal error: ", "Observed a panic",
		"WARNING: DATA RACE"); trace != "" {
		r.report.fail("the manager has crashed: %s", trace)
	}
}

// userObjects are objects of users, which exist before the first module.
func userObjects(namespace string) []client.Object {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: namespace} }
	return []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta("of-a-user"), Data: map[string]string{"text": "mine"}},
		&corev1.Secret{ObjectMeta: meta("of-a-user"), Data: map[string][]byte{"text": []byte("mine")}},
		&corev1.ServiceAccount{ObjectMeta: meta("of-a-user")},
	}
}

// prepareModulesAndUserObjects publishes the modules and creates the objects of users.
func (r *run) prepareModulesAndUserObjects(ctx context.Context) error {
	if err := publishAllModules(ctx, r.land); err != nil {
		return err
	}
	if err := r.await(ctx, r.options.Heal, func(ctx context.Context) string { // creates the account that reads metrics
		if _, err := r.land.Metric(ctx, "go_goroutines"); err != nil {
			return err.Error()
		}
		return ""
	}); err != nil {
		return err
	}
	for _, name := range allClusterNames(r.options.Runtimes) {
		if _, err := r.land.Gate(name); err != nil { // before faults use them concurrently
			return err
		}
		c := r.land.Clients[name]
		for _, o := range userObjects("default") {
			if err := c.Create(ctx, o); err != nil {
				return fmt.Errorf("creating an object of a user in %s: %w", name, err)
			}
		}
		r.promises.protect(true, name+"/configmaps/default/of-a-user", name+"/secrets/default/of-a-user",
			name+"/serviceaccounts/default/of-a-user")
		if name == landscape.ControlPlane {
			continue
		}
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1beta2.RuntimeNamespace}}
		if err := c.Create(ctx, namespace); err != nil {
			return fmt.Errorf("creating the namespace of modules in %s: %w", name, err)
		}
		inherited := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "inherited", Namespace: "default"},
			Data: map[string]string{"text": "theirs"}}
		if err := c.Create(ctx, inherited); err != nil {
			return fmt.Errorf("creating an object of a user in %s: %w", name, err)
		}
		r.promises.protect(false, name+"/configmaps/default/inherited", name+"/namespaces/"+v1beta2.RuntimeNamespace)
	}
	return r.await(ctx, r.options.Heal, func(ctx context.Context) string {
		for _, name := range r.options.Runtimes { // controllers create these objects shortly after the namespace
			key := client.ObjectKey{Namespace: v1beta2.RuntimeNamespace, Name: "default"}
			if err := r.land.Clients[name].Get(ctx, key, &corev1.ServiceAccount{}); err != nil {
				return err.Error()
			}
			key.Name = "kube-root-ca.crt"
			if err := r.land.Clients[name].Get(ctx, key, &corev1.ConfigMap{}); err != nil {
				return err.Error()
			}
		}
		return ""
	})
}

// keptSteadyObjectKeys returns the objects of module steady in the runtimes whose Kyma is never deleted.
func (r *run) keptSteadyObjectKeys() []string {
	var all []string
	for _, name := range keptRuntimes(r.options.Runtimes) {
		all = append(all, name+"/deployments/steady-system/steady", name+"/configmaps/kyma-system/steady",
			name+"/secrets/steady-system/steady", name+"/namespaces/steady-system",
			name+"/chaos.example.com/steadys/kyma-system/steady", name+"/serviceaccounts/steady-system/steady-1.0.0",
			name+"/apiextensions.k8s.io/customresourcedefinitions/steadys.chaos.example.com")
	}
	return all
}

// runRound makes one round.
func (r *run) runRound(ctx context.Context, n uint64, empty picture) error {
	p := newPlan(r.options.Seed, n, r.options.Round, r.options.Runtimes, r.options.Pace)
	if len(r.options.Only) > 0 {
		p.faults = slices.DeleteFunc(p.faults, func(e event) bool { return !slices.Contains(r.options.Only, e.What) })
	}
	r.logf("round %d: %d requests, %d faults; first without faults", n, len(p.requests), len(p.faults))
	if err := r.makeInitialRequests(ctx); err != nil {
		return err
	}
	for _, e := range p.requests {
		if err := r.requestAndAwait(ctx, e); err != nil {
			return fmt.Errorf("without faults: %w", err)
		}
	}
	want, before, err := r.awaitIdleManagerAndSnapshot(ctx)
	if err != nil {
		return err
	}
	if err := r.unregisterAllAndAwaitEmpty(ctx, empty); err != nil {
		return fmt.Errorf("removing everything, without faults: %w", err)
	}
	r.logf("round %d: with faults", n)
	if err := r.makeInitialRequests(ctx); err != nil {
		return err
	}
	r.promises.protect(false, r.keptSteadyObjectKeys()...)
	if err := r.runWithFaults(ctx, p); err != nil {
		return err
	}
	healed := time.Now()
	r.logf("round %d: all faults have ended", n)
	if err := r.await(ctx, r.options.Heal, func(ctx context.Context) string {
		got, err := r.takeSnapshot(ctx)
		if err != nil {
			return err.Error()
		}
		return cmp.Or(snapshotDiff(want, got), r.uncompletedMoves(ctx))
	}); err != nil {
		return fmt.Errorf("the state does not become that of the run without faults: %w", err)
	}
	r.report.Healing = append(r.report.Healing, time.Since(healed))
	r.logf("round %d: healed after %.1f s", n, time.Since(healed).Seconds())
	if err := r.awaitIdleManagerAndCheck(ctx, want, before); err != nil {
		return err
	}
	r.promises.unprotect(r.keptSteadyObjectKeys()...)
	if err := r.unregisterAllAndAwaitEmpty(ctx, empty); err != nil {
		return fmt.Errorf("removing everything, after the faults: %w", err)
	}
	r.report.Rounds++
	return nil
}

// makeInitialRequests sets all channels and registers all runtimes with module steady.
func (r *run) makeInitialRequests(ctx context.Context) error {
	for _, e := range initialRequests(r.options.Runtimes) {
		if err := r.requestAndAwait(ctx, e); err != nil {
			return fmt.Errorf("at the beginning: %w", err)
		}
	}
	return nil
}

// runWithFaults makes the requests of a plan and injects its faults. runWithFaults returns when all requests were
// accepted and all faults have ended.
func (r *run) runWithFaults(ctx context.Context, p plan) error {
	begin := time.Now()
	limit, cancel := context.WithTimeoutCause(ctx, r.options.Round+r.options.Heal,
		errors.New("a request or the end of a fault does not succeed"))
	defer cancel()
	var group sync.WaitGroup
	var mu sync.Mutex
	var problems []error
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		problems = append(problems, err)
	}
	group.Go(func() { note(r.makeRequests(limit, begin, p.requests)) })
	for _, e := range p.faults {
		group.Go(func() { note(r.runFault(limit, begin, e)) })
	}
	group.Wait()
	return errors.Join(problems...)
}

// retryDelay is the interval between two attempts of a user's request, and between two checks of a state.
const retryDelay = 250 * time.Millisecond

// sayInterval is the interval between two messages about an operation that takes long.
const sayInterval = 30 * time.Second

// runFault waits for the time of a fault, injects it, and ends it.
func (r *run) runFault(ctx context.Context, begin time.Time, e event) error {
	f, err := faultNamed(e.What)
	if err != nil {
		return err
	}
	if err := sleep(ctx, e.At-time.Since(begin)); err != nil {
		return err
	}
	mine := r.lockOf(f.exclusivePart(e.Target))
	mine.Lock()
	defer mine.Unlock()
	until := time.Now().Add(e.For)
	var undo func(context.Context) error
	for {
		undo, err = f.begin(ctx, r, e, rand.New(rand.NewPCG(e.Pick, 0)))
		if err == nil || ctx.Err() != nil || time.Now().After(until) {
			break
		}
		if err := sleep(ctx, retryDelay); err != nil {
			break
		}
	}
	if err == nil {
		r.logf("fault %s", e)
		r.report.countIn(r.report.Faults, e.What)
	} else {
		r.logf("fault %s was not possible: %v", e, err)
	}
	if undo == nil {
		return nil
	}
	if sleep(ctx, time.Until(until)) != nil {
		r.logf("fault %s %s: the run ends", e.What, e.Target)
	}
	if err := r.await(context.WithoutCancel(ctx), r.options.Heal, func(ctx context.Context) string {
		if err := undo(ctx); err != nil {
			return err.Error()
		}
		return ""
	}); err != nil {
		return fmt.Errorf("ending fault %s: %w", e, err)
	}
	r.logf("fault %s %s has ended", e.What, e.Target)
	return nil
}

// lockOf returns the lock of a part of the system, because only one fault at a time may use this part.
func (r *run) lockOf(thing string) *sync.Mutex {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.locked[thing] == nil {
		r.locked[thing] = &sync.Mutex{}
	}
	return r.locked[thing]
}

// sleep waits for a duration, or until the context ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(max(d, 0)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// await calls the function findProblem until it returns "". After the limit, await returns the last text as an error.
func (r *run) await(ctx context.Context, limit time.Duration, findProblem func(context.Context) string) error {
	last, said := "", time.Now()
	for end := time.Now().Add(limit); time.Now().Before(end); {
		if last = findProblem(ctx); last == "" {
			return nil
		}
		if time.Since(said) > sayInterval {
			r.logf("still waiting: %s", last)
			said = time.Now()
		}
		if err := sleep(ctx, retryDelay); err != nil {
			return fmt.Errorf("%w; seen last: %s", err, last)
		}
	}
	return fmt.Errorf("not in %s; seen last: %s", limit, strings.TrimSpace(last))
}
