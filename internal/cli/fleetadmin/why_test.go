package fleetadmin

import (
	"context"
	"testing"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/author/trial"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// TestWhyCode checks that the exit code is 3 if there is a blocker, and that the message names the blocker.
func TestWhyCode(t *testing.T) {
	s := fixture.NewServer(t, runtimeA()...)
	fixture.Case{Reason: "nothing is in the way", Args: "why runtime-a", Code: console.ExitOK,
		Want: []string{"Nothing is in the way."}}.Check(t, Commands, s.Kubeconfig)
	s.Patch(t, kymas+"/runtime-a", `{"status":{"state":"Error","conditions":[{"type":"Ready","status":"False",
		"reason":"RuntimeUnreachable","message":"not ready: runtime-a does not answer"}]}}`)
	for _, args := range []string{"why runtime-a", "why runtime-a -o json"} {
		fixture.Case{Reason: "a blocker without an instruction", Args: args, Code: console.ExitNotReady,
			Want: []string{"Check the address and the network of the API server", "runtime-a: in the way: RuntimeUnreachable"}}.Check(
			t, Commands, s.Kubeconfig)
	}
}

// TestWatchWhy checks that klm why --watch shows the report again after a change, and ends without an error when the
// command is interrupted.
func TestWatchWhy(t *testing.T) {
	s := fixture.NewServer(t, runtimeA()...)
	out := fixture.NewBuffer()
	a := fixture.App(s.Kubeconfig)
	a.Streams = console.Streams{Out: out, Err: out}
	c, err := connection.ControlPlane(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- diagnosis.Why(ctx, a, c, "runtime-a", "", true) }()
	out.Wait(ctx, "runtime-a is Ready")
	s.Patch(t, kymas+"/runtime-a", `{"status":{"state":"Warning"}}`)
	out.Wait(ctx, "runtime-a is Warning")
	if ctx.Err() != nil {
		t.Fatalf("the change was not shown:\n%s", out)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("it ends with %v", err)
	}
}

// TestDiffCode checks that klm diff --exit-code ends with code 3 if an object would change.
func TestDiffCode(t *testing.T) {
	change := []trial.Change{{Action: "change", Object: "ConfigMap a"}}
	cases := map[string]struct {
		reason string
		asked  bool
		is     differences
		code   int
	}{
		"Changes":   {"something would change", true, differences{Changes: change}, console.ExitNotReady},
		"Same":      {"nothing would change", true, differences{Unchanged: 1}, console.ExitOK},
		"Not asked": {"without the flag it is no error", false, differences{Changes: change}, console.ExitOK},
	}
	for name, c := range cases {
		if code := console.ExitCode(c.is.err(c.asked)); code != c.code {
			t.Errorf("%s: %s: exit code %d, want %d", name, c.reason, code, c.code)
		}
	}
}
