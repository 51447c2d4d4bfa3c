package kyma

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/access"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

func TestState(t *testing.T) {
	down := &runtimes.Error{Code: "RuntimeUnreachable", Runtime: "a", Message: "does not answer"}
	entry := func(state v1beta2.State) v1beta2.ModuleStatus {
		return v1beta2.ModuleStatus{Name: strings.ToLower(string(state)), State: state}
	}
	now := time.Now()
	reduced := &access.Finding{Had: rightsTo(t, `"*"`), Has: rightsTo(t, `"get"`),
		Resources: []schema.GroupResource{{Resource: "configmaps"}}}
	cases := map[string]struct {
		reason   string
		modules  []v1beta2.ModuleStatus
		unknown  bool // the reconcile ended before the modules were resolved
		deleting bool
		finding  *access.Finding
		out      loop.Outcome
		want     v1beta2.State
		ready    string // the reason of condition Ready
	}{
		"NoModules": {
			reason: "nothing wanted, nothing missing",
			out:    loop.Outcome{},
			want:   "Ready",
			ready:  "Ready",
		},
		"AllReady": {
			reason:  "as it says",
			modules: []v1beta2.ModuleStatus{entry("Ready"), entry("Unmanaged")},
			out:     loop.Outcome{},
			want:    "Ready",
			ready:   "Ready",
		},
		"OneBusy": {
			reason:  "one module on its way",
			modules: []v1beta2.ModuleStatus{entry("Ready"), entry("Processing")},
			out:     loop.Outcome{},
			want:    "Processing",
			ready:   "ModulesNotReady",
		},
		"OneLeaving": {
			reason:  "one module on its way out",
			modules: []v1beta2.ModuleStatus{entry("Deleting")},
			out:     loop.Outcome{},
			want:    "Processing",
			ready:   "ModulesNotReady",
		},
		"WarningOverBusy": {
			reason:  "people first",
			modules: []v1beta2.ModuleStatus{entry("Processing"), entry("Warning")},
			out:     loop.Outcome{},
			want:    "Warning",
			ready:   "ModulesNotReady",
		},
		"ErrorOverAll": {
			reason:  "the worst decides",
			modules: []v1beta2.ModuleStatus{entry("Warning"), entry("Error"), entry("Ready")},
			out:     loop.Outcome{},
			want:    "Error",
			ready:   "ModulesNotReady",
		},
		"Unreachable": {
			reason:  "nothing is known",
			modules: []v1beta2.ModuleStatus{entry("Ready")},
			unknown: true,
			out:     loop.Outcome{Step: "connect", Err: down},
			want:    "Error",
			ready:   "RuntimeUnreachable",
		},
		"Waiting": {
			reason:  "a step waits",
			unknown: true,
			out:     loop.Outcome{Step: "sync", Waiting: "a kind"},
			want:    "Processing",
			ready:   "Applying",
		},
		"WaitingWithWarning": {
			reason:  "the Warning is older, and the Kyma in the runtime is not read yet",
			modules: []v1beta2.ModuleStatus{entry("Warning")},
			unknown: true,
			finding: reduced,
			out:     loop.Outcome{Step: "sync", Waiting: "a kind"},
			want:    "Processing",
			ready:   "Applying",
		},
		"RightsReduced": {
			reason:  "the modules run, but nothing can be restored",
			modules: []v1beta2.ModuleStatus{entry("Ready")},
			finding: reduced,
			want:    "Warning",
			ready:   "RightsReduced",
		},
		"RightsReducedAndError": {
			reason:  "the worst decides",
			modules: []v1beta2.ModuleStatus{entry("Error")},
			finding: reduced,
			want:    "Error",
			ready:   "ModulesNotReady",
		},
		"CredentialExpires": {
			reason:  "it works until then",
			modules: []v1beta2.ModuleStatus{entry("Ready")},
			finding: &access.Finding{Lifetime: access.Lifetime{Begins: now.Add(-99 * time.Hour),
				Ends: now.Add(time.Hour)}},
			want:  "Ready",
			ready: "Ready",
		},
		"Deleting": {
			reason:   "deletion outweighs all",
			modules:  []v1beta2.ModuleStatus{entry("Error")},
			deleting: true,
			out:      loop.Outcome{Err: down},
			want:     "Deleting",
			ready:    "RuntimeUnreachable",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a", Generation: 1}}
			if c.deleting {
				k.DeletionTimestamp = new(metav1.Now())
			}
			k.Status.Modules = c.modules
			n := &run{Reconciler: testReconciler(t, Options{}), kyma: k, now: now,
				found: findings{resolved: !c.unknown, credential: c.finding}}
			if !c.unknown {
				n.remote = &v1beta2.Kyma{}
			}
			for _, e := range c.modules {
				n.modules = append(n.modules, plan.Module{Spec: v1beta2.Module{Name: e.Name}, Former: &e,
					IsRequested: true, Manifest: func() *v1beta2.Manifest {
						m := manifestIn(e.State, "")
						m.Status.Conditions = nil
						return m
					}()})
			}
			n.report(c.out)
			if k.Status.State != c.want {
				t.Errorf("%s: state is %s (%s), want %s", c.reason, k.Status.State,
					k.Status.LastOperation.Operation, c.want)
			}
			if r := meta.FindStatusCondition(k.Status.Conditions, v1beta2.ConditionReady); r.Reason != c.ready {
				t.Errorf("%s: reason of Ready is %s (%s), want %s", c.reason, r.Reason, r.Message, c.ready)
			}
			credential := meta.FindStatusCondition(k.Status.Conditions, v1beta2.ConditionCredentialHealthy)
			if (credential != nil) != (c.finding != nil) {
				t.Errorf("%s: condition %v", c.reason, credential)
			}
			before := k.Status.DeepCopy()
			n.report(c.out)
			if diff := cmp.Diff(*before, k.Status); diff != "" {
				t.Errorf("a second report changes the status:\n%s", diff)
			}
		})
	}
}

// TestUnusableSince checks that a rollout gets the time since which a runtime cannot be used, even if the Kyma was not
// Ready for another reason before. The time stays while the runtime cannot be used.
func TestUnusableSince(t *testing.T) {
	begin := time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)
	k := &v1beta2.Kyma{}
	k.Status.Modules = []v1beta2.ModuleStatus{{Name: "keda", State: v1beta2.StateProcessing}}
	k.Status.Conditions = []metav1.Condition{{Type: v1beta2.ConditionReady, Status: metav1.ConditionFalse,
		Reason: v1beta2.ReasonModulesNotReady, LastTransitionTime: metav1.NewTime(begin.Add(-24 * time.Hour))}}
	r := testReconciler(t, Options{})
	for _, step := range []struct {
		after     time.Duration
		code      string // of the error that ends the reconcile
		isSkipped bool
		want      time.Duration // the begin of the time without a usable runtime, after begin; negative: it can be used
	}{
		{after: 0, code: v1beta2.ReasonRuntimeUnreachable, want: 0},
		{after: time.Minute, code: v1beta2.ReasonRuntimeUnreachable, want: 0},
		{after: 2 * time.Minute, code: v1beta2.ReasonThrottled, want: 0},
		{after: time.Hour, code: v1beta2.ReasonInternalError, want: -1},
		{after: 2 * time.Hour, code: v1beta2.ReasonRuntimeUnreachable, want: 2 * time.Hour},
		{after: 3 * time.Hour, isSkipped: true, want: -1},
		{after: 4 * time.Hour, code: v1beta2.ReasonRuntimeUnreachable, want: 4 * time.Hour},
	} {
		n := &run{Reconciler: r, kyma: k, remote: &v1beta2.Kyma{}, now: begin.Add(step.after)}
		if step.isSkipped {
			n.reportSkippedByLabel(loop.Outcome{})
		} else {
			n.report(loop.Outcome{Err: &runtimes.Error{Code: step.code, Runtime: "a", Message: "a test"}})
		}
		var want time.Time
		if step.want >= 0 {
			want = begin.Add(step.want)
		}
		if is := rollout.RuntimeOf(k, &v1beta2.Manifest{}).UnreachableSince; !is.Equal(want) {
			t.Errorf("after %s with %s: it cannot be used since %s, want %s", step.after, step.code, is, want)
		}
	}
}

// rightsTo returns the rights to some verbs for all objects. The parameter verbs has the items of a JSON list, without
// the brackets.
func rightsTo(t *testing.T, verbs string) access.Rights {
	t.Helper()
	r, err := access.ParseRights([]byte(`{"kind":"SelfSubjectRulesReview","status":{"resourceRules":[{"verbs":[` + verbs +
		`],"apiGroups":["*"],"resources":["*"]}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// manifestIn returns a Manifest as the controller of Manifests leaves it: its status covers its last change.
func manifestIn(state v1beta2.State, operation string) *v1beta2.Manifest {
	return &v1beta2.Manifest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "a-keda-1", Generation: 3},
		Spec:       v1beta2.ManifestSpec{Version: "2.0.0"},
		Status: v1beta2.ManifestStatus{
			State: state, Version: "1.0.0", ObservedGeneration: 3,
			LastOperation: v1beta2.LastOperation{Operation: operation},
			Conditions: []metav1.Condition{{Type: v1beta2.ConditionReady, Status: metav1.ConditionFalse,
				Reason: "WorkloadFailed"}},
		},
	}
}
