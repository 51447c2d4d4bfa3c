package runtimes

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestOwnerGate checks three things: only the verifier gets a connection before the owner of the runtime is verified,
// the verifier is asked once, and the right subscribers are notified of its decision.
func TestOwnerGate(t *testing.T) {
	s := newServer(t)
	access := secret("x", s.kubeconfig("first"))
	pool, kcp := newPool(t, access)
	var asked []string
	pool.opts.VerifyOwner = func(kyma string) { asked = append(asked, kyma) }
	var notified []string
	for _, key := range []string{"verifier", "module"} {
		pool.Subscribe("a", Subscriber{Key: key, Notify: func(Event) { notified = append(notified, key) }})
	}
	taken := &Error{Code: "RuntimeTaken", Runtime: "a", Message: "it belongs to b"}
	moved := &Error{Code: "RuntimeTaken", Runtime: "a", Message: "it belongs to c"}
	var rt *Runtime
	verify := func(decide func()) func() {
		return func() {
			var err error
			if rt, err = pool.GetBeforeOwnerVerified(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			decide()
		}
	}
	owned := verify(func() { pool.MarkOwned("a", rt, "verifier") })
	refuse := func(why *Error) func() { return verify(func() { pool.Refuse("a", rt, "verifier", why) }) }
	steps := []struct {
		reason   string
		do       func()
		code     string   // of the error of the next Get; "" if it returns the connection
		asked    int      // how often the verifier is asked, including the next Get
		notified []string // by the step
	}{
		{"nothing is known", func() {}, "OwnerNotVerified", 1, nil},
		{"the verifier is at work", verify(func() {}), "OwnerNotVerified", 0, nil},
		{"the runtime is ours: the one that waits is notified", owned, "", 0, []string{"module"}},
		{"the same decision", owned, "", 0, nil},
		{"another owner has taken it", refuse(taken), "RuntimeTaken", 0, []string{"module"}},
		{"the same decision", refuse(taken), "RuntimeTaken", 0, nil},
		{"yet another owner", refuse(moved), "RuntimeTaken", 0, []string{"module"}},
		{"it is ours again", owned, "", 0, []string{"module"}},
		{"a new credential may lead anywhere", func() {
			access.Data[kubeconfigKey] = append(s.kubeconfig("first"), '\n')
			if err := kcp.Update(t.Context(), access); err != nil {
				t.Fatal(err)
			}
		}, "OwnerNotVerified", 1, nil},
		{"it leads to the same cluster", owned, "", 0, []string{"module"}},
	}
	for i, step := range steps {
		asked, notified = nil, nil
		step.do()
		if !slices.Equal(notified, step.notified) {
			t.Errorf("step %d, %s: notified %q, want %q", i, step.reason, notified, step.notified)
		}
		got, err := pool.Get(t.Context(), "a")
		if codeOf(err) != step.code || (err == nil) != (got != nil) || len(asked) != step.asked {
			t.Errorf("step %d, %s: %v, asked %q; want %q, %d", i, step.reason, err, asked, step.code, step.asked)
		}
		if fmt.Sprint(IsOwnerNotVerified(err), IsRuntimeRefused(err), pool.IsOwned("a")) !=
			fmt.Sprint(step.code == "OwnerNotVerified", step.code == "RuntimeTaken", step.code == "") {
			t.Errorf("step %d, %s: predicates do not agree with %v", i, step.reason, err)
		}
	}
	const period = 5 * time.Second
	rt.owner.verifiedAt = time.Now().Add(-period / 2)
	if !pool.IsOwnerVerifiedWithin(rt, period) || pool.IsOwnerVerifiedWithin(rt, period/2) {
		t.Error("the age of the verification is wrong")
	}
	if refuse(taken)(); pool.IsOwnerVerifiedWithin(rt, time.Hour) {
		t.Error("a runtime of another owner counts as verified")
	}
	if n := s.requests.Load() + s.probes.Load(); n != 0 {
		t.Errorf("%d requests to the runtime, want none", n)
	}
}

// TestOwnerWithoutConnection checks that GetIfOpenOrNoAgents does not ask the verifier if there is no connection.
func TestOwnerWithoutConnection(t *testing.T) {
	s := newServer(t)
	pool, _ := newPool(t, secret("x", s.kubeconfig("first")))
	pool.opts.Agents, pool.opts.VerifyOwner = true, func(string) { t.Error("the verifier was asked") }
	if rt, err := pool.GetIfOpenOrNoAgents(t.Context(), "a"); rt != nil || err != nil ||
		pool.IsVerificationRequested("a") {
		t.Errorf("got %v, %v", rt, err)
	}
}
