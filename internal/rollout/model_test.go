package rollout

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/admission"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/evidence"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/place"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/urgency"
)

// TestModel simulates a fleet, a coordinator and the controllers that act on its decisions. TestModel runs actions of
// people, of the runtimes, of the coordinator and of the controllers in random order, and checks the invariants in
// model_invariants_test.go after every action. A long run:
//
//	go test ./internal/rollout -run TestModel -rapid.checks=100000 -rapid.seed=$RANDOM -timeout 2h
func TestModel(t *testing.T) {
	// The default run always uses the same seed, so that only a change of the code can make the test fail.
	for name, value := range map[string]string{"rapid.checks": "400", "rapid.steps": "80", "rapid.seed": "1"} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			if err := flag.Set(name, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		t.Repeat(map[string]func(*rapid.T){
			"coordinate": m.coordinate, "coordinateStale": m.coordinateStale, "sync": m.sync, "obey": m.obey,
			"crash1": m.crash, "crash2": m.crash, "removeChannel": m.removeChannel, "addChannel": m.move,
			"ready": m.ready, "error": m.error, "unclear": m.unclear, "registryDown": m.registryDown,
			"pass":       m.passTime,
			"disconnect": m.disconnect, "reconnect": m.reconnect, "block": m.block, "unblock": m.unblock,
			"join":  m.join,
			"leave": m.leave, "relabel": m.relabel, "move": m.move, "moveBack": m.moveBack, "approve": m.approve,
			"approveOther": m.approveOther, "pause": m.pause, "resume": m.resume, "abort": m.abort,
			"deleteRollout": m.deleteRollout, "loseRelease": m.loseRelease, "loseRollout": m.loseRollout,
			"preflight": m.preflight, "clockBack": m.clockBack, "declare": m.declare, "freeze": m.freeze,
			"defer": m.defers, "halt": m.halt, "interrupt": m.interrupt, "setClock": m.setClock,
			// The map contains some actions several times, so that the random test runs them more often and rollouts
			// reach their later stages.
			"work1": m.work, "work2": m.work, "work3": m.work, "work4": m.work, "finish1": m.finishSome,
			"finish2": m.finishSome, "fail1": m.failUpdated, "fail2": m.failUpdated, "pass1": m.passTime,
			"": m.check,
		})
		m.finish(t)
	})
}

// part is one simulated runtime of TestModel.
type part struct {
	name    string
	labels  map[string]string
	ordered string
	state   v1beta2.State
	reason  string
	since   time.Time // of state
	silent  time.Time // since when it cannot be reached; zero if it can be reached
	started time.Time
	rollout string
	excused bool
	blocked string // the reason why its window is closed, or a person has paused it; "" if nothing is
	// deferred is the time until which the admin has deferred updates; zero means that updates are not deferred.
	deferred time.Time
	// The field changed is the time of the last change of the fields started and since. The field silenced is the time
	// of the last change of the field silent. The times changed and silenced come from a clock that no action of the
	// test sets.
	changed, silenced time.Time
}

// runtime returns the data of the coordinator about the runtime.
func (m *model) runtime(p *part) Runtime {
	r := Runtime{Kyma: p.name, Labels: p.labels, Ordered: p.ordered, State: p.state, Reason: p.reason, Since: p.since,
		IsReady: evidence.IsWell(p.state), IsObserved: true, Started: p.started, IsExcused: p.excused,
		UnreachableSince: p.silent}
	r.Rollout, _, _ = strings.Cut(p.rollout, "/")
	if !p.silent.IsZero() {
		r.UnreachableReason = v1beta2.ReasonRuntimeUnreachable
	}
	r.Blocked = func() *channel.Blocker {
		if p.blocked != "" {
			return &channel.Blocker{Code: p.blocked}
		}
		limit := DeferrableUntil(m.advanced, nil, m.now)
		until, _ := channel.DeferredUntil(m.deferral(p), limit)
		if until.IsZero() || m.advanced.Spec.IsRollback() {
			return nil
		}
		return &channel.Blocker{Code: v1beta2.ReasonUpdateDeferred, Until: until}
	}
	return r
}

// deferral returns the deferral in the request of a runtime.
func (m *model) deferral(p *part) channel.Request {
	r := channel.Request{Now: m.now}
	if !p.deferred.IsZero() {
		r.NotBefore = p.deferred.Format(time.RFC3339)
	}
	return r
}

// stored is an object in the API server. version is its resourceVersion.
type stored struct {
	version  int
	release  *v1beta2.ModuleReleaseMeta
	rollouts map[string]*v1beta2.ModuleRollout
}

// all returns the rollouts, by name.
func (s stored) all() []v1beta2.ModuleRollout {
	var all []v1beta2.ModuleRollout
	for _, name := range slices.Sorted(maps.Keys(s.rollouts)) {
		all = append(all, *s.rollouts[name])
	}
	return all
}

func (s stored) clone() stored {
	c := stored{version: s.version, release: s.release.DeepCopy(), rollouts: map[string]*v1beta2.ModuleRollout{}}
	for name, r := range s.rollouts {
		c.rollouts[name] = r.DeepCopy()
	}
	return c
}

// model is the state of a run.
type model struct {
	now       time.Time
	policy    *v1beta2.RolloutPolicy
	hasEdges  bool // versions declare that going back is safe
	api       stored
	cache     stored // the cache of the controllers; it may be outdated
	old       stored // the cache of a second coordinator
	parts     map[string]*part
	joined    int
	preflown  *v1beta2.RolloutBlocker
	left      int           // number of writes after which the coordinator ends; negative: never
	forgets   bool          // the coordinator ends before it writes the status of the release
	ahead     time.Duration // how far the clock of the managers, now, is ahead of the right time
	clockSet  time.Time     // when the coordinator has noticed last that its clock was set
	violation string        // set by an action

	// The checks of the invariants compare the fields below. The fields have the input and the result of the last
	// simulated run of the coordinator, and what has happened since the test began.
	before, after *v1beta2.ModuleRollout
	result        *Result
	seen          []Runtime
	deleted       string // the name of the rollout that was deleted last
	lost          bool   // the status of the release was lost, until it is made again
	revisions     map[int64]string
	placed        map[string]place.Place
	declared      map[string]int          // how often a person has written a line of the annotation urgency
	withdrawn     map[string]bool         // versions that a halt has withdrawn
	takenBack     string                  // the last of them, until a person moves the channel
	used          map[string]int          // how many rollouts were recorded by it
	proven        map[string]time.Time    // the right time at which a stage of a rollout was proven last
	recorded      map[string]bool         // rollouts that the status of the release has named
	hold          *v1beta2.RolloutBlocker // the hold of the policy for the rollout of the last pass
	advanced      *v1beta2.ModuleRollout  // the rollout of the last pass
}

const (
	modelChannel = "regular"
	modelModule  = "mod"
)

// newModel returns a model with a random policy and a random fleet.
func newModel(t *rapid.T) *model {
	m := &model{now: start, left: -1, parts: map[string]*part{}, revisions: map[int64]string{},
		placed: map[string]place.Place{}, declared: map[string]int{}, used: map[string]int{},
		withdrawn: map[string]bool{}, recorded: map[string]bool{}, proven: map[string]time.Time{}}
	count := func(label string, least, most int) *intstr.IntOrString {
		return new(intstr.FromInt32(int32(rapid.IntRange(least, most).Draw(t, label))))
	}
	stages := []v1beta2.RolloutStage{
		{Name: "own", Selector: &v1beta2.StageSelector{MatchLabels: map[string]string{"stage": "own"}}},
		{Name: "half", Percent: 50},
		{Name: "rest"},
	}
	stages = stages[rapid.IntRange(0, 2).Draw(t, "first stage"):]
	for i := range stages {
		s := &stages[i]
		s.MaxConcurrency, s.MaxFailures = count("concurrency", 1, 4), count("failures", 0, 2)
		s.Soak = metav1.Duration{Duration: time.Duration(rapid.IntRange(0, 2).Draw(t, "soak")) * 10 * time.Minute}
		if rapid.Bool().Draw(t, "gate") {
			s.Gates = []v1beta2.RolloutGate{{Name: "go", Approval: &v1beta2.ApprovalGate{Count: 1}}}
		}
		if rapid.Bool().Draw(t, "per minute") {
			s.MaxStartsPerMinute = int32(rapid.IntRange(1, 3).Draw(t, "starts"))
		}
	}
	m.policy = &v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "standard"}, Spec: v1beta2.RolloutPolicySpec{
		Modules: v1beta2.RolloutModules{Names: []string{"*"}}, Stages: stages,
		MaxUpdating: int32(rapid.IntRange(0, 5).Draw(t, "max updating"))}}
	if rapid.Bool().Draw(t, "hotfix") {
		m.policy.Spec.Hotfix = &v1beta2.RolloutHotfix{Soak: &metav1.Duration{Duration: time.Minute},
			Stages: []string{stages[0].Name, "rest"}}
	}
	m.policy.Spec.OnHalt = rapid.SampledFrom([]v1beta2.HaltAction{v1beta2.HaltHold, v1beta2.HaltTakeBackFailed,
		v1beta2.HaltTakeBack}).Draw(t, "on halt")
	m.hasEdges = rapid.Bool().Draw(t, "edges")
	m.policy.Spec.MaxDeferral = metav1.Duration{Duration: time.Duration(rapid.IntRange(0, 2).Draw(t, "deferral")) *
		time.Hour}
	release := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Name: modelModule, Namespace: "kcp-system"},
		Spec: v1beta2.ModuleReleaseMetaSpec{Channels: []v1beta2.ChannelVersion{{Channel: modelChannel,
			Version: "1.0.0"}}}}
	m.api = stored{release: release, rollouts: map[string]*v1beta2.ModuleRollout{}}
	for range rapid.IntRange(1, 12).Draw(t, "runtimes") {
		m.join(t)
	}
	m.coordinate(t)
	m.sync(t)
	m.old = m.api.clone()
	return m
}

// names returns the names of the runtimes, sorted.
func (m *model) names() []string { return slices.Sorted(maps.Keys(m.parts)) }

// pick returns a random runtime. If there is no runtime, pick skips the present action of the random test.
func (m *model) pick(t *rapid.T) *part {
	if len(m.parts) == 0 {
		t.Skip("no runtime")
	}
	return m.parts[rapid.SampledFrom(m.names()).Draw(t, "runtime")]
}

// current returns the rollout that is under way in the API server, or nil.
func (m *model) current() *v1beta2.ModuleRollout {
	s := m.api.release.ChannelStatus(modelChannel)
	if s == nil || m.api.rollouts[s.Rollout] == nil || m.api.rollouts[s.Rollout].Status.Phase.IsOver() {
		return nil
	}
	return m.api.rollouts[s.Rollout]
}

// active returns the rollout under way of the channel, as the simulated API server has it. If no rollout is under way,
// active skips the present action of the random test.
func (m *model) active(t *rapid.T) *v1beta2.ModuleRollout {
	r := m.current()
	if r == nil {
		t.Skip("no rollout")
	}
	return r
}

// write changes an object in the API server, as a person or a controller does.
func (m *model) write() { m.api.version++ }

// coordinate is one pass of the coordinator, with fresh objects.
func (m *model) coordinate(*rapid.T) { m.run(m.api.clone()) }

// coordinateStale is one pass of a second coordinator, which has not seen the last writes. Every write with another
// resourceVersion than the stored one is refused.
func (m *model) coordinateStale(*rapid.T) {
	m.run(m.old.clone())
	m.old = m.api.clone()
}

// crash is one pass of a coordinator that ends after some of its writes.
func (m *model) crash(t *rapid.T) {
	m.left = rapid.IntRange(0, 3).Draw(t, "writes")
	m.run(m.api.clone())
	m.left = -1
}

// run calls the same functions as the rollout controller does for one channel.
func (m *model) run(view stored) {
	m.before, m.after, m.result, m.seen = nil, nil, nil, nil
	save := func(change func(api *stored)) bool {
		if view.version != m.api.version || m.left == 0 {
			return false
		}
		m.left--
		change(&m.api)
		m.write()
		view = m.api.clone()
		return true
	}
	saveStatus := func(s v1beta2.ChannelStatus) bool {
		saved := !m.forgets && save(func(api *stored) { api.release.Status.Channels = []v1beta2.ChannelStatus{s} })
		m.lost = m.lost && !saved
		if r := m.api.rollouts[s.Rollout]; saved && r != nil && !m.recorded[s.Rollout] {
			m.recorded[s.Rollout] = true
			if r.Spec.Urgency != "" {
				m.used[lineOf(r)]++
			}
		}
		return saved
	}
	var channels []string
	for _, c := range view.release.Spec.Channels {
		channels = append(channels, c.Channel)
	}
	for _, stray := range Strays(view.release, channels, view.all()) {
		if !save(func(api *stored) {
			r := api.rollouts[stray.Rollout.Name]
			r.Status.Phase, r.Status.Admitted = stray.Phase, ""
		}) {
			return
		}
	}
	if len(channels) == 0 {
		if view.release.ChannelStatus(modelChannel) != nil && save(func(api *stored) {
			api.release.Status.Channels = nil
		}) {
			m.forgetStatus()
		}
		return
	}
	var runtimes []Runtime
	for _, name := range m.names() {
		runtimes = append(runtimes, m.runtime(m.parts[name]))
	}
	was := cmp.Or(view.release.ChannelStatus(modelChannel), &v1beta2.ChannelStatus{})
	last := int64(0)
	for name := range view.rollouts {
		last = max(last, RevisionOf(name, modelModule, modelChannel))
	}
	target, _ := view.release.Current(modelChannel)
	declared, err := urgency.Of(view.release, modelChannel, target)
	if err != nil {
		m.violation = err.Error()
		return
	}
	unrecorded := Unrecorded(view.release, modelChannel, view.all())
	recorded := PlanMove(Channel{Release: view.release, Name: modelChannel, Policy: m.policy, Urgency: declared,
		Active: view.rollouts[was.Rollout], Unrecorded: unrecorded, Runtimes: runtimes, GoesBack: m.goesBack,
		LastRevision: last, Now: m.now})
	if recorded.Refused != "" && !save(func(api *stored) {
		r := api.rollouts[unrecorded.Name]
		r.Status.Phase, r.Status.Admitted = v1beta2.RolloutSuperseded, ""
	}) {
		return
	}
	former := view.rollouts[was.Rollout].DeepCopy()
	if recorded.Withdraw != "" && !m.withdrawn[recorded.Withdraw] && !save(func(*stored) {
		m.withdrawn[recorded.Withdraw], m.takenBack = true, recorded.Withdraw
	}) {
		return
	}
	if recorded.Ended != "" && !save(func(api *stored) {
		r := api.rollouts[was.Rollout]
		r.Status.Phase, r.Status.Admitted = recorded.Ended, ""
	}) {
		return
	}
	if made := recorded.Make; made != nil {
		if view.version != m.api.version || m.left == 0 {
			return
		}
		made.CreationTimestamp = metav1.NewTime(m.right()) // by the clock of the API server
		m.checkUrgent(former, made)
		m.checkTakeBack(&view, former, made)
		if m.takenBack != "" && made.Spec.To == m.takenBack {
			m.violation = fmt.Sprintf("7: %s goes to %s again, and nobody has asked for it", made.Name, m.takenBack)
		}
		if made.Spec.State == v1beta2.RolloutRunning && (made.Name == m.deleted || m.lost && m.begun()) {
			m.violation = fmt.Sprintf("15: deleting makes nothing faster: %s runs at once", made.Name)
		}
		if m.api.rollouts[made.Name] == nil {
			save(func(api *stored) { api.rollouts[made.Name] = made })
		}
	}
	s := recorded.Status
	if active := view.rollouts[s.Rollout]; active != nil && !active.Status.Phase.IsOver() {
		m.advanced = active
		in := Inputs{Rollout: active, Runtimes: runtimes, Now: m.now, ClockSetAt: m.clockSet, Slots: -1}
		in.Hold, _ = HoldOfPolicy(m.policy, active, m.now)
		in.Preflight, in.WayBack = m.preflightOf(active), m.wayBack(active)
		if m.policy.Spec.MaxUpdating > 0 {
			in.Slots = int(m.policy.Spec.MaxUpdating)
		}
		result, err := Advance(in)
		if err != nil {
			m.violation = err.Error()
			return
		}
		if !save(func(api *stored) { api.rollouts[active.Name].Status = result.Status }) {
			return
		}
		m.hold = in.Hold
		m.noteProven(active, &result.Status.Stage)
		m.before, m.after, m.result, m.seen = active, view.rollouts[active.Name].DeepCopy(), &result, runtimes
		if result.Status.Phase == v1beta2.RolloutCompleted {
			view.release.Status.Channels = []v1beta2.ChannelStatus{s}
			s = PlanMove(Channel{Release: view.release, Name: modelChannel, Policy: m.policy, Active: m.after,
				Runtimes: runtimes, LastRevision: last, Now: m.now}).Status
		}
	}
	saveStatus(s)
}

// noteProven stores the time at which the stage of a rollout was proven, by the clock of the API server, because the
// clock of the managers may have been set.
func (m *model) noteProven(before *v1beta2.ModuleRollout, is *v1beta2.RolloutStageStatus) {
	was := &before.Status.Stage
	if !is.ProvenAt.IsZero() && (was.ProvenAt.IsZero() || was.Name != is.Name) {
		m.proven[before.Name+"/"+is.Name] = m.right()
	}
}

// goesBack returns an error if the module may not go back from one version to another. In one run of the random
// test, either all versions declare that going back to a lower version is safe, or no version declares this.
func (m *model) goesBack(from, to string) error {
	if !m.hasEdges || !channel.IsLower(to, from) {
		return errors.New("not declared")
	}
	return nil
}

// preflightOf returns the reason why the version of a rollout cannot be installed.
func (m *model) preflightOf(r *v1beta2.ModuleRollout) *v1beta2.RolloutBlocker {
	if m.withdrawn[r.Spec.To] {
		return &v1beta2.RolloutBlocker{Code: v1beta2.ReasonVersionWithdrawn, Message: "withdrawn",
			Remedy: "another one"}
	}
	return m.preflown
}

func (m *model) wayBack(r *v1beta2.ModuleRollout) *v1beta2.RolloutWayBack {
	if r.Spec.IsRollback() {
		return nil
	}
	return &v1beta2.RolloutWayBack{Declared: m.goesBack(r.Spec.To, r.Spec.From) == nil, To: r.Spec.From}
}

// work runs the coordinator and then the simulated controllers of the runtimes. In some runs, random controllers are
// slow and do nothing yet.
func (m *model) work(t *rapid.T) {
	m.coordinate(t)
	m.check(t)
	m.sync(t)
	areSlow := rapid.Bool().Draw(t, "some are slow")
	for _, name := range m.names() {
		if !areSlow || rapid.Bool().Draw(t, "works") {
			m.obeyWith(m.parts[name])
		}
	}
}

// finishSome makes all runtimes that are being updated Ready, except one.
func (m *model) finishSome(t *rapid.T) {
	left := rapid.IntRange(0, len(m.parts)).Draw(t, "left")
	for i, name := range m.names() {
		if p := m.parts[name]; i != left && p.state == v1beta2.StateProcessing {
			p.set(m, v1beta2.StateReady, "")
		}
	}
}

// failUpdated makes the module fail in a runtime whose version a rollout has requested.
func (m *model) failUpdated(t *rapid.T) {
	for _, name := range m.names() {
		if p := m.parts[name]; p.rollout != "" && p.state != v1beta2.StateError {
			p.set(m, v1beta2.StateError, v1beta2.ReasonWorkloadFailed)
			return
		}
	}
	t.Skip("nobody has begun")
}

// halt moves the channel to a version that fails in every runtime whose update has begun, so that its rollout is
// halted. At random, one of these runtimes does not fail. Before the next reconcile of the coordinator, a person
// pauses, resumes or aborts the rollout, moves the channel, or does nothing. Without the action halt, TestModel would
// seldom reach the states that follow a halt.
func (m *model) halt(t *rapid.T) {
	m.move(t)
	for range 3 {
		m.coordinate(t)
		m.check(t)
		m.sync(t)
		for _, name := range m.names() {
			m.obeyWith(m.parts[name])
		}
	}
	r := m.api.rollouts[m.api.release.ChannelStatus(modelChannel).Rollout]
	if r == nil || r.Status.Phase.IsOver() {
		return
	}
	var begun []*part
	for _, name := range m.names() {
		if p := m.parts[name]; p.ordered == r.Spec.To && strings.HasPrefix(p.rollout, r.Name+"/") {
			begun = append(begun, p)
		}
	}
	if len(begun) == 0 {
		return
	}
	works := -1
	if len(begun) > 1 && rapid.Bool().Draw(t, "one works") {
		works = rapid.IntRange(0, len(begun)-1).Draw(t, "works")
	}
	for i, p := range begun {
		if i == works {
			p.set(m, v1beta2.StateReady, "")
			continue
		}
		p.set(m, v1beta2.StateError, v1beta2.ReasonWorkloadFailed)
	}
	m.coordinate(t)
	m.check(t)
	switch rapid.IntRange(0, 7).Draw(t, "a person") {
	case 1:
		r.Spec.State = v1beta2.RolloutPaused
	case 2:
		r.Spec.Resumptions = append(r.Spec.Resumptions, v1beta2.RolloutResumption{By: "ann", Reason: "known"})
	case 3:
		m.move(t)
	case 4:
		r.Spec.State = v1beta2.RolloutAborted
	}
	m.write()
	m.coordinate(t)
	m.check(t)
}

// sync brings the cache of the controllers up to date.
func (m *model) sync(*rapid.T) { m.cache = m.api.clone() }

// turn returns the version that the controllers choose for a runtime. The controllers read their cache, which may be
// outdated.
func (m *model) turn(p *part) channel.Turn {
	turns := admission.NewTurnFunc(admission.Lookups{
		Rollout:   func(name string) *v1beta2.ModuleRollout { return m.cache.rollouts[name] },
		HasPolicy: func(string, string) bool { return true }})
	return turns(m.cache.release, channel.Request{Kyma: p.name, Labels: p.labels, Module: modelModule,
		Channel: modelChannel, ManifestVersion: p.ordered})
}

// obey simulates the controller of one runtime: the controller sets the version in the Manifest to the version that the
// rollout allows. Of all actions of the model, only those that call obeyWith change the version of a runtime.
func (m *model) obey(t *rapid.T) { m.obeyWith(m.pick(t)) }

func (m *model) obeyWith(p *part) {
	if len(m.cache.release.Spec.Channels) == 0 {
		return // the channel is not found
	}
	is := m.turn(p)
	m.checkTurn(p, is)
	isLower := p.ordered != "" && channel.IsLower(is.Version, p.ordered)
	if m.withdrawn[is.Version] || is.Version == p.ordered || is.Version == "" || isLower && !is.IsBack ||
		!p.silent.IsZero() || p.blocked != "" {
		return
	}
	if until, _ := channel.DeferredUntil(m.deferral(p), is.DeferUntil); !until.IsZero() && !is.IsBack {
		return
	}
	m.checkDeferral(p, is)
	deadline := cmp.Or(is.RuntimeDeadline, admission.DefaultRuntimeDeadline)
	p.excused = p.ordered != "" && !is.IsCorrection && !evidence.IsWell(p.state) && m.now.Sub(p.since) >= deadline
	p.ordered, p.state, p.reason, p.since, p.changed = is.Version, v1beta2.StateProcessing, "", m.now, m.right()
	p.rollout, p.started = "", time.Time{}
	if is.Rollout != "" {
		p.rollout, p.started = is.Rollout, m.now
	}
}

func (p *part) set(m *model, state v1beta2.State, reason string) {
	if evidence.IsWell(state) != evidence.IsWell(p.state) {
		p.since, p.changed = m.now, m.right()
	}
	p.state, p.reason = state, reason
}

func (m *model) ready(t *rapid.T) { m.pick(t).set(m, v1beta2.StateReady, "") }

func (m *model) error(t *rapid.T) { m.pick(t).set(m, v1beta2.StateError, v1beta2.ReasonWorkloadFailed) }

func (m *model) unclear(t *rapid.T) {
	m.pick(t).set(m, v1beta2.StateProcessing, v1beta2.ReasonInternalError)
}

func (m *model) registryDown(t *rapid.T) {
	m.pick(t).set(m, v1beta2.StateError, v1beta2.ReasonRegistryUnreachable)
}

func (m *model) passTime(t *rapid.T) {
	m.now = m.now.Add(rapid.SampledFrom([]time.Duration{2 * time.Second, time.Minute, 11 * time.Minute,
		31 * time.Minute}).Draw(t, "time"))
}

// right returns the right time, which is the time of the API server.
func (m *model) right() time.Time { return m.now.Add(-m.ahead) }

// setClock sets the clock of the managers forward by hours. If the clock is ahead already, setClock sets it back to the
// time of the API server. A manager that is restarted does not notice that its clock was set back.
func (m *model) setClock(t *rapid.T) {
	if m.ahead > 0 {
		m.now, m.ahead, m.clockSet = m.right(), 0, time.Time{}
		if rapid.Bool().Draw(t, "noticed") {
			m.clockSet = m.now
		}
		return
	}
	m.ahead = rapid.SampledFrom([]time.Duration{2 * time.Hour, 50 * time.Hour, 9000 * time.Hour}).Draw(t, "ahead")
	m.now = m.now.Add(m.ahead)
	m.clockSet = m.now
}

// interrupt moves the channel. The coordinator stops after it has created the rollout and before it has recorded the
// rollout in the status of the release, and then a person changes something. interrupt checks that the coordinator
// adopts the unrecorded rollout if it would create the same rollout again. interrupt also checks that no new rollout to
// the same version runs if a person has paused or aborted the unrecorded rollout.
func (m *model) interrupt(t *rapid.T) {
	m.move(t)
	m.forgets = true
	m.coordinate(t)
	m.forgets = false
	m.check(t)
	u := Unrecorded(m.api.release, modelChannel, m.api.all())
	if u == nil {
		return
	}
	made := m.api.rollouts[u.Name]
	isSame := true
	switch rapid.IntRange(0, 6).Draw(t, "a person") {
	case 1:
		made.Spec.State = v1beta2.RolloutPaused
	case 2:
		made.Spec.State = v1beta2.RolloutAborted
	case 3:
		made.Spec.Approvals = []v1beta2.RolloutApproval{{Stage: "rest", By: "ann", Plan: PlanDigest(made)}}
	case 4:
		made.Spec.State, isSame = v1beta2.RolloutPaused, false
		m.policy.Spec.NewInstallations = map[string]string{"": "Proven"}[m.policy.Spec.NewInstallations]
	case 5:
		m.move(t)
		isSame = false
	case 6:
		made.Spec.State, isSame = v1beta2.RolloutPaused, false
		m.declare(t)
	}
	m.write()
	m.coordinate(t)
	m.check(t)
	s := m.api.release.ChannelStatus(modelChannel)
	if isSame && s.Rollout != made.Name {
		t.Fatalf("20: %s is not adopted: %+v", made.Name, s)
	}
	if is := m.api.rollouts[s.Rollout]; is != nil && is.Spec.To == made.Spec.To &&
		is.Spec.State == v1beta2.RolloutRunning && made.Spec.State != v1beta2.RolloutRunning {
		t.Fatalf("15: %s is %s, and %s runs", made.Name, made.Spec.State, is.Name)
	}
}

// clockBack sets the clock back a little, as the clock of a new leader on another machine may be. If the clock of the
// managers was ahead of the true time, it is less ahead afterwards. The true time of the test does not change.
func (m *model) clockBack(*rapid.T) {
	const back = 3 * time.Second
	m.now = m.now.Add(-back)
	if m.ahead > 0 {
		m.ahead -= back
	}
}

func (m *model) disconnect(t *rapid.T) {
	if p := m.pick(t); p.silent.IsZero() {
		p.silent, p.silenced = m.now, m.right()
	}
}

func (m *model) reconnect(t *rapid.T) { m.pick(t).silent = time.Time{} }

func (m *model) block(t *rapid.T) {
	m.pick(t).blocked = rapid.SampledFrom([]string{v1beta2.ReasonModulePaused, v1beta2.ReasonWaitingForWindow}).
		Draw(t, "blocked")
}

func (m *model) unblock(t *rapid.T) { m.pick(t).blocked = "" }

// defers defers the updates of a runtime, or ends its deferral.
func (m *model) defers(t *rapid.T) {
	p := m.pick(t)
	p.deferred = time.Time{}
	if d := rapid.SampledFrom([]time.Duration{0, 30 * time.Minute, 1000 * time.Hour}).Draw(t, "for"); d > 0 {
		p.deferred = m.now.Add(d).Truncate(time.Second)
	}
	if rapid.Bool().Draw(t, "the controller works before the coordinator") {
		m.sync(t)
		m.obeyWith(p)
	}
}

// join adds a runtime to the fleet and installs a version of the module in the new runtime at once.
func (m *model) join(t *rapid.T) {
	if len(m.parts) >= 14 {
		t.Skip("enough runtimes")
	}
	m.joined++
	p := &part{name: fmt.Sprintf("runtime-%03d", m.joined), since: m.now, changed: m.right(),
		state: v1beta2.StateReady, ordered: "1.0.0"}
	if m.cache.release != nil && len(m.cache.release.Spec.Channels) > 0 {
		turn := m.turn(&part{name: p.name})
		m.checkTurn(&part{name: p.name}, turn)
		p.ordered = cmp.Or(turn.Version, "1.0.0")
	}
	m.parts[p.name] = p
	m.drawLabels(t, p)
}

func (m *model) drawLabels(t *rapid.T, p *part) {
	p.labels = map[string]string{"stage": rapid.SampledFrom([]string{"own", "other"}).Draw(t, "label")}
}

func (m *model) leave(t *rapid.T) { delete(m.parts, m.pick(t).name) }

// relabel changes the label of a random runtime. If a runtime has been admitted and has not begun, relabel changes the
// label of such a runtime instead. In the model, the controller of the runtime may read the new label before the
// coordinator reads it.
func (m *model) relabel(t *rapid.T) {
	p := m.pick(t)
	if r := m.current(); r != nil {
		places, err := place.New(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range m.names() {
			is := m.parts[name]
			if place.IsAdmitted(r.Status.Admitted, places.Of(name, is.labels).Token) && is.ordered != r.Spec.To {
				p = is
			}
		}
	}
	m.drawLabels(t, p)
	if rapid.Bool().Draw(t, "the controller works before the coordinator") {
		m.sync(t)
		m.obeyWith(p)
	}
}

// move points the channel to a version that may be higher or lower than the present one.
func (m *model) move(t *rapid.T) {
	m.setVersion(rapid.SampledFrom([]string{"1.0.0", "1.1.0", "1.2.0", "2.0.0"}).Draw(t, "to"))
}

// setVersion points the channel to a version. If the channel was removed from the release, setVersion adds the channel
// again.
func (m *model) setVersion(version string) {
	m.api.release.Spec.Channels = []v1beta2.ChannelVersion{{Channel: modelChannel, Version: version}}
	m.takenBack = ""
	m.write()
}

// removeChannel removes the channel from the release.
func (m *model) removeChannel(*rapid.T) {
	m.api.release.Spec.Channels = nil
	m.write()
}

// declare writes the annotation that the move of the channel to a version is urgent.
func (m *model) declare(t *rapid.T) {
	u := urgency.Urgency{Is: rapid.SampledFrom([]v1beta2.RolloutUrgency{v1beta2.UrgencyHotfix,
		v1beta2.UrgencyEmergency}).
		Draw(t, "urgency"), Reason: rapid.SampledFrom([]string{"it leaks", "it fails"}).Draw(t, "reason")}
	line := u.Line(modelChannel, rapid.SampledFrom([]string{"1.1.0", "1.2.0", "2.0.0"}).Draw(t, "to"))
	if m.api.release.Annotations[v1beta2.AnnotationUrgency] == line {
		t.Skip("it is declared already")
	}
	m.api.release.Annotations = map[string]string{v1beta2.AnnotationUrgency: line}
	m.declared[line]++
	m.write()
}

// If the policy has no freeze, freeze adds a freeze that lasts for an hour. If the policy has a freeze, freeze removes
// it.
func (m *model) freeze(t *rapid.T) {
	if len(m.policy.Spec.Freezes) > 0 {
		m.policy.Spec.Freezes = nil
		return
	}
	f := v1beta2.RolloutFreeze{Name: "freeze", From: metav1.NewTime(m.now.Add(-time.Hour)),
		To: metav1.NewTime(m.now.Add(time.Hour))}
	if rapid.Bool().Draw(t, "with exceptions") {
		f.Except = []v1beta2.FreezeException{rapid.SampledFrom([]v1beta2.FreezeException{v1beta2.ExceptBack,
			v1beta2.ExceptHotfix, v1beta2.ExceptEmergency}).Draw(t, "except")}
	}
	m.policy.Spec.Freezes = []v1beta2.RolloutFreeze{f}
}

func (m *model) moveBack(t *rapid.T) {
	s := m.api.release.ChannelStatus(modelChannel)
	if s == nil || s.Version == "" {
		t.Skip("nothing is proven")
	}
	m.setVersion(s.Version)
}

func (m *model) approve(t *rapid.T) {
	r := m.active(t)
	stage := rapid.SampledFrom(r.Spec.Stages).Draw(t, "stage").Name
	r.Spec.Approvals = append(r.Spec.Approvals, v1beta2.RolloutApproval{Stage: stage, By: "ann", Plan: r.Status.Plan})
	m.write()
}

func (m *model) approveOther(t *rapid.T) {
	r := m.active(t)
	r.Spec.Approvals = append(r.Spec.Approvals, v1beta2.RolloutApproval{Stage: r.Status.Stage.Name, By: "bob",
		Plan: "sha256:other"})
	m.write()
}

// pause pauses the rollout. The controllers may see the pause before the coordinator does.
func (m *model) pause(t *rapid.T) {
	m.active(t).Spec.State = v1beta2.RolloutPaused
	m.write()
	if rapid.Bool().Draw(t, "seen") {
		m.sync(t)
	}
}

func (m *model) resume(t *rapid.T) {
	r := m.active(t)
	r.Spec.State = v1beta2.RolloutRunning
	if rapid.Bool().Draw(t, "with a resumption") {
		r.Spec.Resumptions = append(r.Spec.Resumptions, v1beta2.RolloutResumption{By: "ann", Reason: "known"})
	}
	m.write()
}

func (m *model) abort(t *rapid.T) {
	m.active(t).Spec.State = v1beta2.RolloutAborted
	m.write()
}

// begun reports whether a rollout has ordered the version that the channel points to.
func (m *model) begun() bool {
	target, _ := m.api.release.ChannelVersion(modelChannel)
	for _, p := range m.parts {
		if p.ordered == target && p.rollout != "" {
			return true
		}
	}
	return false
}

func (m *model) deleteRollout(t *rapid.T) {
	r := m.active(t)
	m.deleted = r.Name
	delete(m.api.rollouts, r.Name)
	m.write()
}

func (m *model) loseRelease(*rapid.T) {
	m.api.release.Status = v1beta2.ModuleReleaseMetaStatus{}
	m.forgetStatus()
	m.write()
}

func (m *model) forgetStatus() {
	m.revisions, m.lost, m.deleted, m.takenBack = map[int64]string{}, true, "", ""
}

func (m *model) loseRollout(t *rapid.T) {
	r := m.active(t)
	r.Status = v1beta2.ModuleRolloutStatus{}
	m.write()
}

func (m *model) preflight(*rapid.T) {
	if m.preflown == nil {
		m.preflown = &v1beta2.RolloutBlocker{Code: v1beta2.ReasonPreflightFailed, Message: "no template",
			Remedy: "publish"}
	} else {
		m.preflown = nil
	}
}

// finish sets the clock right, ends all faults, approves all stages, and lets the controllers work. finish checks that
// the fleet then comes to rest: every rollout has ended or names an action for a person (invariant 22), and all
// runtimes have the version of the channel (invariant 23).
func (m *model) finish(t *rapid.T) {
	m.preflown, m.policy.Spec.Freezes = nil, nil
	m.now, m.ahead, m.clockSet = m.right(), 0, time.Time{}
	clear(m.withdrawn)
	if len(m.api.release.Spec.Channels) == 0 {
		m.setVersion("2.0.0")
	}
	for range 400 {
		for _, name := range m.names() {
			p := m.parts[name]
			p.silent, p.blocked = time.Time{}, ""
			p.set(m, v1beta2.StateReady, "")
		}
		m.coordinate(t)
		m.check(t)
		m.sync(t)
		for _, name := range m.names() {
			p := m.parts[name]
			turn := m.turn(p)
			m.checkTurn(p, turn)
			until, _ := channel.DeferredUntil(m.deferral(p), turn.DeferUntil)
			isDeferred := !until.IsZero() && !turn.IsBack && p.ordered != turn.Version
			if turn.Version != "" && !isDeferred && (channel.IsLower(p.ordered, turn.Version) || turn.IsBack &&
				turn.Version != p.ordered) {
				p.ordered, p.rollout, p.started = turn.Version, turn.Rollout, m.now
				p.since, p.changed = m.now, m.right()
			}
		}
		m.now = m.now.Add(time.Minute)
		s := m.api.release.ChannelStatus(modelChannel)
		r := m.api.rollouts[s.Rollout]
		if r == nil || r.Status.Phase.IsOver() {
			if r == nil && s.Version == s.Target { // or a version that failed was taken back
				m.checkEveryoneHas(t, s.Version)
				m.checkStrays(t)
				return
			}
			if r != nil && r.Spec.State == v1beta2.RolloutAborted {
				return
			}
			continue
		}
		switch {
		case r.Spec.State == v1beta2.RolloutPaused && r.Status.HaltedAt.IsZero():
			m.mustName(t, r, v1beta2.ReasonRolloutPaused)
			r.Spec.State = v1beta2.RolloutRunning
		case !r.Status.HaltedAt.IsZero(), slices.ContainsFunc(r.Status.Blockers, func(b v1beta2.RolloutBlocker) bool {
			return EndsByResumption(b.Code)
		}):
			r.Spec.State = v1beta2.RolloutRunning
			r.Spec.Resumptions = append(r.Spec.Resumptions, v1beta2.RolloutResumption{By: "ann", Reason: "known"})
		case r.Status.Phase == v1beta2.RolloutWaitingForGate:
			m.mustName(t, r, v1beta2.ReasonApprovalNeeded)
			r.Spec.Approvals = append(r.Spec.Approvals, v1beta2.RolloutApproval{Stage: r.Status.Stage.Name, By: "ann",
				Plan: r.Status.Plan})
		}
		m.write()
	}
	s := m.api.release.ChannelStatus(modelChannel)
	t.Fatalf("22: the move does not end: %+v: %+v", s, m.api.rollouts[s.Rollout])
}

// mustName fails unless a rollout names the action that a person has to take.
func (m *model) mustName(t *rapid.T, r *v1beta2.ModuleRollout, code string) {
	if !slices.ContainsFunc(r.Status.Blockers, func(b v1beta2.RolloutBlocker) bool {
		return b.Code == code && b.Remedy != ""
	}) {
		t.Fatalf("22: a rollout in phase %s does not name %s with a remedy: %+v", r.Status.Phase, code,
			r.Status.Blockers)
	}
}

// checkStrays checks that no rollout is active after the rollout of the channel has ended.
func (m *model) checkStrays(t *rapid.T) {
	for name, r := range m.api.rollouts {
		if !r.Status.Phase.IsOver() {
			t.Fatalf("22: %s is still active: %+v", name, r.Status)
		}
	}
}

// checkEveryoneHas checks that after the rollout all runtimes have the version or a higher one.
func (m *model) checkEveryoneHas(t *rapid.T, version string) {
	for _, name := range m.names() {
		if p := m.parts[name]; channel.IsLower(p.ordered, version) && m.turn(p).Version != version {
			t.Fatalf("23: %s keeps %s after the rollout to %s", name, p.ordered, version)
		}
	}
}

// asText returns a value as JSON.
func asText(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}
