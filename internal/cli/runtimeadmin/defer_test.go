package runtimeadmin

import (
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// TestDefer checks which annotation klm module defer writes, and which input this command refuses.
func TestDefer(t *testing.T) {
	const all, one = v1beta2.AnnotationNotBefore, v1beta2.AnnotationNotBeforeModulePrefix + "sample"
	for name, c := range map[string]struct {
		fixture.Case
		key, want string // the annotation afterwards; "": nothing is written
		before    string // its value before
	}{
		"Date": {fixture.Case{Reason: "a date", Args: "defer sample --until=2999-12-24",
			Want: []string{"updates of module sample are deferred until 2999-12-24T00:00:00Z, or as long as"}}, one,
			"2999-12-24", ""},
		"All": {fixture.Case{Reason: "all modules", Args: "defer --all --until=2999-12-24T08:00:00Z",
			Want: []string{"updates of all modules are deferred until 2999-12-24T08:00:00Z"}}, all,
			"2999-12-24T08:00:00Z", ""},
		"DryRun": {fixture.Case{Reason: "only shown", Args: "defer sample --until=2999-12-24 --dry-run",
			Want: []string{"would do: updates"}}, one, "", ""},
		"Clear": {fixture.Case{Reason: "it is over", Args: "defer sample --clear",
			Want: []string{"updates of module sample are not deferred any more"}}, one, "", "2999-12-24"},
		"ClearNothing": {fixture.Case{Reason: "there is none", Args: "defer sample --clear", Code: console.ExitFailed,
			Want: []string{"updates of module sample are not deferred"}}, one, "", ""},
		"Past": {fixture.Case{Reason: "it has passed", Args: "defer sample --until=2020-01-01", Code: console.ExitUsage,
			Want: []string{"has passed"}}, one, "", ""},
		"NoTime": {fixture.Case{Reason: "no time", Args: "defer sample --until=christmas", Code: console.ExitUsage,
			Want: []string{"neither a date"}}, one, "", ""},
		"Nothing": {fixture.Case{Reason: "what to do is not said", Args: "defer sample", Code: console.ExitUsage,
			Want: []string{"either --until=DATE or --clear"}}, one, "", ""},
		"NoModule": {fixture.Case{Reason: "of which module", Args: "defer --until=2999-12-24", Code: console.ExitUsage,
			Want: []string{"name one module, or give --all"}}, one, "", ""},
		"Unknown": {fixture.Case{Reason: "it is not enabled", Args: "defer smaple --until=2999-12-24",
			Code: console.ExitNotFound, Want: []string{"did you mean sample?"}}, one, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRuntime(t, v1beta2.Module{Name: "sample"})
			if c.before != "" {
				s.Patch(t, kyma, `{"metadata":{"annotations":{"`+c.key+`":"`+c.before+`"}}}`)
			}
			c.Check(t, Commands, s.Kubeconfig)
			if got := s.Object(kyma).GetAnnotations()[c.key]; got != c.want {
				t.Errorf("%s: %s is %q, want %q", c.Reason, c.key, got, c.want)
			}
		})
	}
}
