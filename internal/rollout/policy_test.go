package rollout

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// TestJudgePolicy checks the findings of JudgePolicy about a policy. The catalog has two modules, and the fleet has two
// runtimes.
func TestJudgePolicy(t *testing.T) {
	stage := func(name string, labels map[string]string) v1beta2.RolloutStage {
		return v1beta2.RolloutStage{Name: name, Selector: &v1beta2.StageSelector{MatchLabels: labels}}
	}
	policy := func(name string, modules []string, stages ...v1beta2.RolloutStage) v1beta2.RolloutPolicy {
		p := v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Spec.Modules.Names = modules
		p.Spec.Stages = append(stages, v1beta2.RolloutStage{Name: "rest"})
		return p
	}
	own := map[string]string{"stage": "own"}
	everything := []string{v1beta2.AllNames}
	cases := map[string]struct {
		reason            string
		policy            v1beta2.RolloutPolicy
		others            []v1beta2.RolloutPolicy
		modules, channels int
		code, problem     string
		notes             []string
	}{
		"All": {reason: "two channels and a mandatory module", policy: policy("p", everything), modules: 2, channels: 3},
		"Exact": {reason: "another policy is more exact for keda", policy: policy("p", everything),
			others: []v1beta2.RolloutPolicy{policy("q", []string{"keda"})}, modules: 1, channels: 1},
		"Nothing": {reason: "the module does not exist", policy: policy("p", []string{"other"})},
		"Conflict": {reason: "nobody can say which one counts", policy: policy("p", []string{"keda"}),
			others: []v1beta2.RolloutPolicy{policy("q", []string{"keda"})}, code: v1beta2.ReasonPolicyConflict,
			problem: "p and q are equally exact for module keda"},
		"OtherConflict": {reason: "it is not one of those that are equally exact", policy: policy("p", everything),
			others: []v1beta2.RolloutPolicy{policy("q", []string{"keda"}), policy("r", []string{"keda"})}, modules: 1,
			channels: 1},
		"Selected": {reason: "one runtime has the label", policy: policy("p", everything, stage("own", own)), modules: 2,
			channels: 3},
		"Invalid": {reason: "no label has such a key", modules: 2, channels: 3,
			policy: policy("p", everything, stage("own", map[string]string{"not a key": "x"})),
			code:   v1beta2.ReasonPolicyInvalid, problem: "spec.stages[own].selector"},
		"Nobody": {reason: "the stage would prove nothing", modules: 2, channels: 3,
			policy: policy("p", everything, stage("test", map[string]string{"stage": "test"})),
			notes:  []string{"no runtime has the labels of stage test"}},
		"Overlap": {reason: "the first stage that matches counts", modules: 2, channels: 3,
			policy: policy("p", everything, stage("own", own), stage("again", own)),
			notes:  []string{"all 1 runtimes with the labels of stage again are in earlier stages"}},
	}
	releases := make([]v1beta2.ModuleReleaseMeta, 2)
	releases[0].Name = "keda"
	releases[0].Spec.Channels = []v1beta2.ChannelVersion{{Channel: "fast", Version: "2.0.0"},
		{Channel: "regular", Version: "1.0.0"}}
	releases[1].Name = "warden"
	releases[1].Spec.Mandatory = &v1beta2.MandatoryVersion{Version: "1.0.0"}
	kymas := make([]v1beta2.Kyma, 2)
	kymas[0].Labels = own
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			all := append([]v1beta2.RolloutPolicy{c.policy}, c.others...)
			got := JudgePolicy(&all[0], all, releases, kymas)
			if got.Modules != c.modules || got.Channels != c.channels || got.Reason != c.code ||
				strings.Join(got.Notes, "; ") != strings.Join(c.notes, "; ") ||
				!strings.Contains(strings.Join(got.Problems, "; "), c.problem) ||
				(len(got.Problems) > 0) != (c.code != "") {
				t.Errorf("%s: %+v", c.reason, got)
			}
		})
	}
}
