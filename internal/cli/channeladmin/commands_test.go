package channeladmin

import (
	"errors"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/storage"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

const (
	release     = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/modulereleasemetas/sample"
	rolloutPath = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/modulerollouts/sample-regular-r2"
)

// newControlPlane starts a control plane with the catalog of package fixture and two runtimes: the first runtime
// follows channel regular of module sample, and the second runtime has pinned a version. The control plane has a third
// runtime, which is being deleted.
func newControlPlane(t *testing.T) *fixture.Server {
	t.Helper()
	follows := fixture.Kyma(v1beta2.StateReady, v1beta2.Module{Name: "sample"},
		v1beta2.ModuleStatus{Name: "sample", Version: "1.0.0", Channel: "regular"})
	follows.Spec.SkipMaintenanceWindows = true
	pinned := fixture.Kyma(v1beta2.StateReady, v1beta2.Module{Name: "sample", Version: "2.0.0"},
		v1beta2.ModuleStatus{Name: "sample", Version: "2.0.0"})
	pinned.Name = "runtime-b"
	leaves := follows.DeepCopy()
	leaves.Name, leaves.DeletionTimestamp = "runtime-c", new(fixture.BeforeNoon(time.Minute))
	manifest := fixture.Manifest("1.0.0", "1.0.0")
	manifest.Namespace, manifest.Labels[v1beta2.LabelChannel] = "kcp-system", "regular"
	manifest.Status.State, manifest.Status.Conditions = v1beta2.StateReady, nil
	policy := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "broken-policy", Namespace: "kcp-system"},
		Data: map[string]string{"policy.json": "{"}}
	objects := []client.Object{follows, pinned, leaves, &manifest, policy}
	c := fixture.Catalog()
	for _, name := range slices.Sorted(maps.Keys(c.Releases)) {
		c.Releases[name].Namespace = "kcp-system"
		objects = append(objects, c.Releases[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.Templates)) {
		c.Templates[name].Namespace = "kcp-system"
		objects = append(objects, c.Templates[name])
	}
	return fixture.NewServer(t, objects...)
}

// TestChannelSet checks which runtimes klm channel set reports, which objects the command writes, and which input it
// refuses before the first write.
func TestChannelSet(t *testing.T) {
	channels := func(regular string, more ...any) []any {
		return append([]any{map[string]any{"channel": "regular", "version": regular},
			map[string]any{"channel": "fast", "version": "2.0.0"}}, more...)
	}
	cases := map[string]struct {
		fixture.Case
		want []any // spec.channels afterwards; nil for unchanged
	}{
		"DryRun": {fixture.Case{Reason: "nothing is written", Args: "channel set sample regular 2.0.0 --dry-run",
			Want: []string{"would change from version 1.0.0 to 2.0.0.", "1 runtime of that channel: 1 to move"}}, nil},
		"Set": {fixture.Case{Reason: "one field is written", Args: "channel set sample regular 2.0.0 --yes --no-wait",
			Want: []string{"Channel regular of module sample was changed from version 1.0.0 to 2.0.0.",
				"runtime-a   moves"}}, channels("2.0.0")},
		"Asked": {fixture.Case{Reason: "it asks, and does not show the effects twice", Input: "y\n",
			Args: "channel set sample regular 2.0.0 --no-wait", Want: []string{"would change from version 1.0.0",
				"Release version 2.0.0 to 1 runtime? [y/N]",
				"Channel regular of module sample was changed from version 1.0.0 to 2.0.0.\n"}}, channels("2.0.0")},
		"AskedNo": {fixture.Case{Reason: "the user does not want it", Args: "channel set sample regular 2.0.0",
			Input: "n\n", Code: console.ExitFailed, Want: []string{"nothing was changed"}}, nil},
		"NoAnswer": {fixture.Case{Reason: "a script has to confirm", Args: "channel set sample regular 2.0.0",
			Code: console.ExitUsage, Want: []string{"add --yes to confirm"}}, nil},
		"Timeout": {fixture.Case{Reason: "it waits for the runtimes",
			Args: "channel set sample regular 2.0.0 --yes --timeout=300ms", Code: console.ExitNotReady,
			Want: []string{"the channel is set, but not done after 300ms: "}},
			channels("2.0.0")},
		"RemoveDryRun": {fixture.Case{Reason: "who follows it", Args: "channel remove sample regular --dry-run",
			Want: []string{"Channel regular of module sample, with version 1.0.0, would be removed.",
				"runtime-a   blocked", "ChannelNotFound"}}, nil},
		"RemoveNo": {fixture.Case{Reason: "it asks", Args: "channel remove sample regular", Input: "n\n",
			Code: console.ExitFailed, Want: []string{"Remove the channel of 1 runtime?"}}, nil},
		"Remove": {fixture.Case{Reason: "nobody follows it, so it does not ask", Args: "channel remove sample fast",
			Want: []string{"Channel fast of module sample, with version 2.0.0, was removed."}},
			[]any{map[string]any{"channel": "regular", "version": "1.0.0"}}},
		"RemoveUnknown": {fixture.Case{Reason: "no such channel", Args: "channel remove sample fats",
			Code: console.ExitNotFound, Want: []string{"did you mean fast?"}}, nil},
		"Same": {fixture.Case{Reason: "nothing to change", Args: "channel set sample regular 1.0.0",
			Want: []string{"has version 1.0.0 already."}}, nil},
		"Add": {fixture.Case{Reason: "a new channel", Args: "channel set sample beta 3.0.0 --create",
			Want: []string{"Channel beta of module sample was added with version 3.0.0.",
				"0 runtimes of that channel"}}, channels(
			"1.0.0", map[string]any{"channel": "beta", "version": "3.0.0"})},
		"AddDryRun": {fixture.Case{Reason: "a new channel, later",
			Args: "channel set sample beta 3.0.0 --create --dry-run",
			Want: []string{"would be added with version 3.0.0."}}, nil},
		"NoCreate": {fixture.Case{Reason: "a typing error adds no channel", Args: "channel set sample fats 2.0.0",
			Code: console.ExitNotFound,
			Want: []string{`module sample has no channel "fats": did you mean fast?; --create adds it`}}, nil},
		"NoVersion": {fixture.Case{Reason: "a version that is not published", Args: "channel set sample fast 2.0.1",
			Code: console.ExitNotFound, Want: []string{"module sample has no version 2.0.1: did you mean 2.0.0",
				"publish it first"}}, nil},
		"NoModule": {fixture.Case{Reason: "a module that does not exist", Args: "channel set smaple fast 2.0.0",
			Code: console.ExitNotFound, Want: []string{"did you mean sample?"}}, nil},
		"Mandatory": {fixture.Case{Reason: "mandatory modules have no channels", Args: "channel set warden fast 0.9.0",
			Code: console.ExitFailed, Want: []string{"module warden is mandatory"}}, nil},
		"BadChannel": {fixture.Case{Reason: "names of channels", Args: "channel set sample Fast 2.0.0",
			Code: console.ExitUsage, Want: []string{`CHANNEL: "Fast" is not a channel`}}, nil},
		"NoPolicy": {fixture.Case{Reason: "a ConfigMap that does not exist",
			Args: "channel set sample fast 2.0.0 --maintenance-policy-configmap=none", Code: console.ExitNotFound,
			Want: []string{"reading ConfigMap none"}}, nil},
		"BadPolicy": {fixture.Case{Reason: "a policy that cannot be decoded",
			Args: "channel set sample fast 2.0.0 --maintenance-policy-configmap=broken-policy",
			Code: console.ExitFailed, Want: []string{"ConfigMap broken-policy: "}}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newControlPlane(t)
			c.Check(t, Commands, s.Kubeconfig)
			if c.want == nil {
				if c.want = channels("1.0.0"); len(s.Writes()) > 0 {
					t.Errorf("%s: writes %q", c.Reason, s.Writes())
				}
			}
			got, _, _ := unstructured.NestedSlice(s.Object(release).Object, "spec", "channels")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: spec.channels (-want +got):\n%s", c.Reason, diff)
			}
		})
	}
}

// TestConcurrentChange checks that klm does not write a ModuleReleaseMeta that was changed after klm has read it,
// because the report is about the former content.
func TestConcurrentChange(t *testing.T) {
	s := newControlPlane(t)
	s.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == release && r.Method == http.MethodGet { // the read before the write
			s.Put(s.Object(release))
		}
		return false
	}
	fixture.Case{Reason: "another client writes", Args: "channel set sample regular 2.0.0 --yes",
		Code: console.ExitFailed,
		Want: []string{"another client changed it in the meantime"}}.Check(t, Commands, s.Kubeconfig)
	if len(s.Writes()) > 0 {
		t.Errorf("writes %q", s.Writes())
	}
}

func TestLists(t *testing.T) {
	s := newControlPlane(t)
	for _, c := range []fixture.Case{
		{Reason: "the catalog", Args: "catalog -o name", Want: []string{"sample\nwarden\n"}},
		{Reason: "all channels", Args: "channel list -o name", Want: []string{"sample/fast\nsample/regular\n"}},
		{Reason: "one module", Args: "catalog --module warden -o jsonpath=<{[*].module}>", Want: []string{"<warden>"}},
		{Reason: "labels of ModuleReleaseMetas", Args: "catalog -l team=blue", Want: []string{"no modules\n"}},
		{Reason: "no selector", Args: "catalog -l team=", Want: []string{"no modules\n"}},
		{Reason: "another order", Args: "channel list --sort-by .version -o custom-columns=C:.channel,V:.version",
			Want: []string{"C         V\nregular   1.0.0\nfast      2.0.0\n"}},
		{Reason: "one channel", Args: "channel list --channel fast -o jsonpath={[*].channel}", Want: []string{"fast"}},
		{Reason: "runtimes with labels", Args: "channel show sample -l team=green --channel regular",
			Want: []string{"regular   sample   1.0.0     0 "}},
		{
			Reason: "who follows a channel",
			Args:   "channel show sample",
			Want: []string{"regular    sample   1.0.0     2          2 × 1.0.0",
				"(pinned)   sample   -         1          1 × 2.0.0"},
		},
		{
			Reason: "a module that does not exist",
			Args:   "channel show smaple",
			Code:   console.ExitNotFound,
			Want:   []string{"did you mean sample?"},
		},
	} {
		c.Check(t, Commands, s.Kubeconfig)
	}
	empty := fixture.NewServer(t)
	fixture.Case{Reason: "an empty catalog", Args: "catalog", Want: []string{"no modules\n"}}.Check(
		t, Commands, empty.Kubeconfig)
	fixture.Case{Reason: "no channels", Args: "channel list", Want: []string{"no channels\n"}}.Check(
		t, Commands, empty.Kubeconfig)
}

// TestChannelWait checks that klm waits until the upgraded runtimes have the version.
func TestChannelWait(t *testing.T) {
	s := newControlPlane(t)
	s.Reconcile = func(o *unstructured.Unstructured) *unstructured.Unstructured {
		if o.GetKind() == v1beta2.KindModuleReleaseMeta {
			go s.Patch(t, "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas/runtime-a",
				`{"status":{"modules":[{"name":"sample","version":"2.0.0","channel":"regular","state":"Ready"}]}}`)
		}
		return o
	}
	fixture.Case{Reason: "the runtime is upgraded", Args: "channel set sample regular 2.0.0 --yes",
		Want: []string{"1 of 1 runtime Ready with version 2.0.0\n", "\n1 runtime Ready with version 2.0.0.\n"}}.Check(
		t, Commands, s.Kubeconfig)
}

// TestStages checks that klm shows the stages of a channel with a RolloutPolicy, and waits until the manager has
// created the ModuleRollout.
func TestStages(t *testing.T) {
	policy := &v1beta2.RolloutPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "standard", Namespace: "kcp-system"},
		Spec: v1beta2.RolloutPolicySpec{Modules: v1beta2.RolloutModules{Names: []string{"*"}},
			Stages: []v1beta2.RolloutStage{
				{Name: "own", Selector: &v1beta2.StageSelector{MatchLabels: map[string]string{"team": "blue"}},
					Soak: metav1.Duration{Duration: time.Hour}, Gates: []v1beta2.RolloutGate{{Name: "go",
						Approval: &v1beta2.ApprovalGate{Count: 2}}}},
				{Name: "rest"},
			}},
	}
	second := policy.DeepCopy()
	second.Name = "other"
	made := func(phase v1beta2.RolloutPhase) *v1beta2.ModuleRollout {
		return &v1beta2.ModuleRollout{ObjectMeta: metav1.ObjectMeta{Name: "sample-regular-r2", Namespace: "kcp-system"},
			Spec: v1beta2.ModuleRolloutSpec{Module: "sample", Channel: "regular", Revision: 2, From: "1.0.0",
				To: "2.0.0"},
			Status: v1beta2.ModuleRolloutStatus{Phase: phase, Message: "3 of 20 have failed"}}
	}
	const set = "channel set sample regular 2.0.0 "
	running := made(v1beta2.RolloutUpdating)
	cases := map[string]struct {
		fixture.Case
		policies []client.Object
		// makes is the ModuleRollout that the manager makes after the change. If makes is nil, the manager makes none.
		makes *v1beta2.ModuleRollout
	}{
		"Plan": {fixture.Case{Reason: "each stage with what it is for", Args: "plan sample regular 2.0.0 --names",
			Want: []string{"ModuleRollout sample-regular-r2 of RolloutPolicy standard would have 2 stages; plan sha256:",
				"own     team=blue    1          0       1           -         1           0          now",
				"Runtimes that have pinned a version, and take no part: 1.",
				"observed for 60m, go: approval by 2",
				"rest    all others   0          0       0", "All runtimes have the version by ",
				"an update takes", "own: runtime-a",
				"runtime-a   own     moves"}},
			[]client.Object{policy}, nil},
		"DryRun": {fixture.Case{Reason: "the same, and nothing is written", Args: set + "--dry-run",
			Want: []string{"of RolloutPolicy standard would have 2 stages"}}, []client.Object{policy}, nil},
		"JSON": {fixture.Case{Reason: "for pipelines", Args: set + "--dry-run -o jsonpath={.stages[0].name}/{.rollout}",
			Want: []string{"own/sample-regular-r2"}}, []client.Object{policy}, nil},
		"Forbidden": {fixture.Case{Reason: "who may only release can release", Args: set + "--yes --no-wait",
			Want: []string{"was changed from version 1.0.0 to 2.0.0", "Note: whether the version reaches the runtimes in"}},
			[]client.Object{policy}, nil},
		"PlanEmergency": {fixture.Case{Reason: "no soaks and no gates", Args: "plan sample regular 2.0.0 " +
			`--urgency=emergency --reason=leak --ignore-windows`,
			Want: []string{"It is an emergency: it has no soaks and no gates, and does not wait for maintenance windows. " +
				"Reason: leak", "rest    all others   0          0       0           -         1           0          Sat 1 Aug 12:02"}},
			[]client.Object{policy}, nil},
		"PlanHotfix": {fixture.Case{Reason: "the policy has nothing to shorten", Args: "plan sample regular 2.0.0 " +
			"--urgency=hotfix --reason=leak", Want: []string{"It is a hotfix", "observed for 60m, go: approval by 2"}},
			[]client.Object{policy}, nil},
		"Emergency": {fixture.Case{Reason: "the question says what is left out", Args: set + "--urgency=Emergency " +
			"--reason=leak", Input: "n\n", Code: console.ExitFailed,
			Want: []string{"Release version 2.0.0 to 1 runtime as an emergency, without soaks and gates, in the stages"}},
			[]client.Object{policy}, nil},
		"EmergencyMade": {fixture.Case{Reason: "version and urgency are one write", Args: set + "--urgency=emergency " +
			"--reason=leak --yes", Want: []string{"See klm rollout watch sample-regular-r2."}},
			[]client.Object{policy}, running},
		"NoReason": {fixture.Case{Reason: "others have to know", Args: set + "--urgency=emergency --yes",
			Code: console.ExitUsage, Want: []string{"give --reason"}}, []client.Object{policy}, nil},
		"Unknown": {fixture.Case{Reason: "no such urgency", Args: set + "--urgency=now --reason=leak --yes",
			Code: console.ExitUsage, Want: []string{`"now" is not known: use hotfix or emergency`}},
			[]client.Object{policy}, nil},
		"HotfixWindows": {fixture.Case{Reason: "only an emergency may", Args: set + "--urgency=hotfix --reason=leak " +
			"--ignore-windows --yes", Code: console.ExitUsage, Want: []string{"only an emergency may ignore"}},
			[]client.Object{policy}, nil},
		"OnlyReason": {fixture.Case{Reason: "of what?", Args: set + "--reason=leak --yes", Code: console.ExitUsage,
			Want: []string{"are for an urgent move"}}, []client.Object{policy}, nil},
		"NoPolicy": {fixture.Case{Reason: "there is nothing to leave out", Args: set + "--urgency=hotfix --reason=leak " +
			"--yes", Code: console.ExitFailed, Want: []string{"no RolloutPolicy is for channel regular of module sample"}},
			nil, nil},
		"Conflict": {fixture.Case{Reason: "nothing would move", Args: set + "--yes", Code: console.ExitFailed,
			Want: []string{"RolloutPolicies other and standard are equally exact"}}, []client.Object{policy, second},
			nil},
		"Asks": {fixture.Case{Reason: "the question names the policy", Args: set, Input: "n\n",
			Code: console.ExitFailed,
			Want: []string{"Release version 2.0.0 to 1 runtime, in the stages of RolloutPolicy standard?"}},
			[]client.Object{policy}, nil},
		"Made": {fixture.Case{Reason: "it does not wait for the fleet", Args: set + "--yes",
			Want: []string{"ModuleRollout sample-regular-r2 is not made yet",
				"See klm rollout watch sample-regular-r2."}},
			[]client.Object{policy}, running},
		"NoWait": {fixture.Case{Reason: "it does not wait at all", Args: set + "--yes --no-wait",
			Want: []string{"See klm rollout watch sample-regular-r2."}}, []client.Object{policy}, nil},
		"NotMade": {fixture.Case{Reason: "the manager does not work", Args: set + "--yes --timeout=200ms",
			Code: console.ExitNotReady, Want: []string{"ModuleRollout sample-regular-r2 is not made yet"}},
			[]client.Object{policy}, nil},
		"Wait": {fixture.Case{Reason: "it waits for the fleet", Args: set + "--yes --wait",
			Want: []string{"See klm rollout watch"}}, []client.Object{policy}, made(v1beta2.RolloutCompleted)},
		"Running": {fixture.Case{Reason: "the fleet needs longer", Args: set + "--yes --wait --timeout=400ms",
			Code: console.ExitNotReady, Want: []string{"sample-regular-r2 is Running: 3 of 20"}},
			[]client.Object{policy}, running},
		"NotBegun": {fixture.Case{Reason: "the rollout has no status", Args: set + "--yes --wait --timeout=400ms",
			Code: console.ExitNotReady, Want: []string{"ModuleRollout sample-regular-r2 has not begun yet"}},
			[]client.Object{policy}, made("")},
		"Halted": {fixture.Case{Reason: "a person has to decide", Args: set + "--yes --wait",
			Code: console.ExitNotReady,
			Want: []string{"rollout sample-regular-r2 is Halted: 3 of 20 have failed; see klm " +
				"rollout show sample-regular-r2"}}, []client.Object{policy}, made(v1beta2.RolloutHalted)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newControlPlane(t)
			r := s.Object(release).DeepCopy()
			if err := unstructured.SetNestedSlice(r.Object, []any{map[string]any{"channel": "regular",
				"version": "1.0.0",
				"target":  "1.0.0", "revision": int64(1)}}, "status", "channels"); err != nil {
				t.Fatal(err)
			}
			s.Put(r)
			for _, o := range c.policies {
				s.Create(t, o)
			}
			switch {
			case name == "Forbidden":
				s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.HasSuffix(r.URL.Path, "/rolloutpolicies") {
						return false
					}
					fixture.Fail(w, apierrors.NewForbidden(v1beta2.GroupVersion.WithResource("rolloutpolicies").
						GroupResource(), "", errors.New("not you")))
					return true
				}
			case c.makes != nil:
				var first sync.Once
				s.Intercept = func(w http.ResponseWriter, r *http.Request) (hasResponded bool) {
					if r.URL.Path != rolloutPath || len(s.Writes()) == 0 {
						return false
					}
					first.Do(func() { // the first read after the change of the channel
						if hasResponded = name == "Made"; hasResponded {
							fixture.Fail(w, apierrors.NewNotFound(v1beta2.GroupVersion.WithResource("modulerollouts").
								GroupResource(), c.makes.Name))
						}
						s.Create(t, c.makes)
					})
					return hasResponded
				}
			}
			all := func(a *console.App) []*cobra.Command { return append(Commands(a), RolloutPlanCommand(a)) }
			c.Check(t, all, s.Kubeconfig)
			written := s.Object(release).GetAnnotations()[v1beta2.AnnotationUrgency]
			want := map[string]string{"EmergencyMade": "regular 2.0.0 Emergency: leak"}[name]
			if written != want {
				t.Errorf("the annotation is %q, want %q", written, want)
			}
			if strings.HasPrefix(name, "Plan") || strings.HasPrefix(name, "DryRun") {
				if len(s.Writes()) > 0 {
					t.Errorf("writes %q", s.Writes())
				}
			}
		})
	}
}

// TestPlan checks the plan of a rollout in progress: the plan names the runtimes that cannot begin, with the reasons.
func TestPlan(t *testing.T) {
	active := &v1beta2.ModuleRollout{ObjectMeta: metav1.ObjectMeta{Name: "sample-regular-r2", Namespace: "kcp-system"},
		Spec: v1beta2.ModuleRolloutSpec{Module: "sample", Channel: "regular", Revision: 2, From: "1.0.0", To: "2.0.0",
			Policy: "standard", State: v1beta2.RolloutPaused, Lineage: "x", Stages: []v1beta2.ModuleRolloutStage{
				{RolloutStage: v1beta2.RolloutStage{Name: "canary", Percent: 1}, Ranks: 1},
				{RolloutStage: v1beta2.RolloutStage{Name: "rest"}, Ranks: 1 << 16}}},
		Status: v1beta2.ModuleRolloutStatus{Phase: v1beta2.RolloutHeld}}
	ended, atOnce := active.DeepCopy(), active.DeepCopy()
	ended.Name, ended.Status.Phase = "sample-regular-r1", v1beta2.RolloutSuperseded
	atOnce.Name, atOnce.Spec.Stages = "sample-regular-r3", nil
	former := active.DeepCopy()
	former.Name, former.Spec.To = "sample-regular-r4", "1.5.0"
	for name, c := range map[string]fixture.Case{
		"Rollout": {Reason: "what is left of it", Args: "plan sample-regular-r2", Want: []string{
			"moves from version 1.0.0 to 2.0.0.\nModuleRollout sample-regular-r2 of RolloutPolicy standard has 2 stages",
			"rest     all others   4          1       1           1 RuntimeUnreachable, 1 WaitingForWindow",
			"runtime-silent   rest    blocked   1.0.0   2.0.0   RuntimeUnreachable",
			"runtime-window   rest    waits     1.0.0   2.0.0   WaitingForWindow     it needs a downtime",
			"runtime-new      -       moves     -       2.0.0   -                    the module is new there",
			"RuntimeUnreachable: "}},
		"JSON": {Reason: "for pipelines",
			Args: "plan sample-regular-r2 -o jsonpath={.stages[1].begun}/{.runtimes[0].reason}",
			Want: []string{"1/RuntimeUnreachable"}},
		"Ended": {Reason: "it has ended", Args: "plan sample-regular-r1", Code: console.ExitFailed,
			Want: []string{"rollout sample-regular-r1 has ended: it is Superseded"}},
		"AtOnce": {Reason: "it has no stages", Args: "plan sample-regular-r3", Code: console.ExitFailed,
			Want: []string{"has no stages"}},
		"Moved": {Reason: "the channel was moved on", Args: "plan sample-regular-r4", Code: console.ExitFailed,
			Want: []string{"channel regular of module sample has version 2.0.0 now: klm rollout plan sample regular 2.0.0"}},
		"Unknown": {Reason: "it suggests names", Args: "plan sample-regular-r5", Code: console.ExitNotFound,
			Want: []string{"did you mean sample-regular-r1"}},
		"NoVersion": {Reason: "two arguments are neither", Args: "plan sample regular", Code: console.ExitUsage,
			Want: []string{"VERSION is missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newControlPlane(t)
			s.Patch(t, release, `{"spec":{"channels":[{"channel":"regular","version":"2.0.0"}]}}`)
			for _, r := range []*v1beta2.ModuleRollout{active, ended, atOnce, former} {
				s.Create(t, r)
			}
			for _, runtime := range []string{"begun", "silent", "window", "new"} {
				k := fixture.Kyma(v1beta2.StateReady, v1beta2.Module{Name: "sample"}, v1beta2.ModuleStatus{
					Name: "sample"})
				k.Name, k.Spec.SkipMaintenanceWindows = "runtime-"+runtime, runtime != "window"
				m := fixture.Manifest("1.0.0", "1.0.0")
				m.Namespace, m.Name, m.Labels[v1beta2.LabelKymaName] = "kcp-system", k.Name+"-sample", k.Name
				m.Labels[v1beta2.LabelChannel], m.Status.State, m.Status.Conditions = "regular", v1beta2.StateReady, nil
				switch runtime {
				case "begun":
					m.Spec.Version = "2.0.0"
				case "silent":
					k.Status.Conditions = []metav1.Condition{fixture.Condition(v1beta2.ConditionReady, "False",
						v1beta2.ReasonRuntimeUnreachable, "it does not answer")}
				}
				if s.Create(t, k); runtime != "new" {
					s.Create(t, &m)
				}
			}
			c.Check(t, func(a *console.App) []*cobra.Command { return []*cobra.Command{RolloutPlanCommand(a)} },
				s.Kubeconfig)
			if len(s.Writes()) > 0 {
				t.Errorf("writes %q", s.Writes())
			}
		})
	}
}

// TestPlanDiff checks that klm rollout plan --diff shows what the new version changes in a runtime.
func TestPlanDiff(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "modules.ctf")
	p, err := storage.Open(archive, storage.Access{}, true)
	if err != nil {
		t.Fatal(err)
	}
	role := func(verbs string) string {
		return "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: operator}\nrules:\n" +
			"- {apiGroups: [\"\"], resources: [secrets], verbs: [" + verbs + "]}\n---\n"
	}
	config := func(name string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: kyma-system}\n"
	}
	for version, text := range map[string]string{"1.0.0": role("get") + config("old"),
		"2.0.0": role("get, delete") + config("new")} {
		a, err := ocm.Pack(ocm.Archive{Name: "kyma-project.io/module/sample", Version: version,
			RawManifest: []byte(text)})
		if err == nil {
			_, err = p.Write(t.Context(), false, a)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const plan = "plan sample regular 2.0.0 "
	for name, c := range map[string]fixture.Case{
		"Diff": {Reason: "objects and rights", Args: plan + "--diff --registry " + archive, Want: []string{
			"From 1.0.0 to 2.0.0, in each runtime: 1 object added, 1 changed, 1 removed, 0 unchanged.",
			"add      ConfigMap kyma-system/new", "change   ClusterRole operator", "remove   ConfigMap kyma-system/old",
			"warning: ClusterRole operator: the new version requests more permissions: delete secrets"}},
		"JSON": {Reason: "for pipelines", Args: plan + "--diff -o jsonpath={.diff.removed[0]} --registry " + archive,
			Want: []string{"ConfigMap kyma-system/old"}},
		"None": {Reason: "it was not requested", Args: plan + "-o jsonpath={.diff}"},
		"Elsewhere": {Reason: "the archive does not have the versions", Code: console.ExitNotFound,
			Args: plan + "--diff --registry " + filepath.Join(t.TempDir(), "none.ctf"), Want: []string{"none.ctf"}},
		"OnlyRegistry": {Reason: "of what?", Args: plan + "--registry x", Code: console.ExitUsage,
			Want: []string{"--registry is for --diff"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newControlPlane(t)
			c.Check(t, func(a *console.App) []*cobra.Command { return []*cobra.Command{RolloutPlanCommand(a)} },
				s.Kubeconfig)
		})
	}
}
