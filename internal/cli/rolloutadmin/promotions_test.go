package rolloutadmin

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// withoutRegular removes the channel regular from a ModuleReleaseMeta.
func withoutRegular(r *v1beta2.ModuleReleaseMeta) *v1beta2.ModuleReleaseMeta {
	r.Spec.Channels, r.Status.Channels = r.Spec.Channels[:1], r.Status.Channels[:1]
	return r
}

// TestPromotions checks the list of promotions with the reasons why these promotions wait, and the commands that
// approve, hold or resume promotions.
func TestPromotions(t *testing.T) {
	release := func(hold bool, annotation string) *v1beta2.ModuleReleaseMeta {
		r := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "sample"},
			Spec: v1beta2.ModuleReleaseMetaSpec{ModuleName: "sample", Channels: []v1beta2.ChannelVersion{
				{Channel: "fast", Version: "2.0.0"}, {Channel: "regular", Version: "1.0.0"}}}}
		r.Status.Channels = []v1beta2.ChannelStatus{
			{Channel: "fast", Version: "2.0.0", Target: "2.0.0", ProvenAt: fixture.BeforeNoon(200 * time.Hour)},
			{Channel: "regular", Version: "1.0.0", Target: "1.0.0", Revision: 7, Promotion: &v1beta2.ChannelPromotion{
				From: "fast", Version: "2.0.0", State: v1beta2.PromotionProposed, Since: fixture.BeforeNoon(time.Hour),
				Revision: 7,
				Evidence: &v1beta2.PromotionEvidence{Version: "2.0.0", Ready: 3}}}}
		if hold {
			r.Status.Channels[1].Promotion.Hold = &v1beta2.PromotionHold{Revision: 7, Version: "1.0.0"}
		}
		if annotation != "" {
			r.Annotations = map[string]string{v1beta2.AnnotationPromotion: annotation}
		}
		return r
	}
	template := &v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "sample-2.0.0"},
		Spec: v1beta2.ModuleTemplateSpec{ModuleName: "sample", Version: "2.0.0"}}
	policy := &v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "standard"},
		Spec: v1beta2.RolloutPolicySpec{Modules: v1beta2.RolloutModules{Names: []string{"*"}},
			Stages:    []v1beta2.RolloutStage{{Name: "all"}},
			Promotion: &v1beta2.RolloutPromotion{From: "fast", To: "regular", Mode: v1beta2.PromotionPropose}}}
	for name, c := range map[string]struct {
		fixture.Case
		release *v1beta2.ModuleReleaseMeta
		written string
	}{
		"Proposed": {fixture.Case{Reason: "the command is there", Args: "promotions list", Want: []string{
			"sample   fast → regular   1.0.0     2.0.0      Proposed   60m",
			"What to do: klm channel set sample regular 2.0.0"}}, release(false, ""), ""},
		"Names": {fixture.Case{Reason: "for pipelines", Args: "promotions list --state Proposed -o name",
			Want: []string{"sample/regular\n"}}, release(false, ""), ""},
		"Held": {fixture.Case{Reason: "why not yet, and what to do", Args: "promotions list", Want: []string{
			"sample 2.0.0 is not promoted to channel regular, because:", "PromotionHeld: the channel was moved to " +
				"1.0.0",
			"promotions release sample regular"}}, release(true, ""), ""},
		"ToMissing": {fixture.Case{Reason: "nothing would ever be promoted", Args: "promotions list", Want: []string{
			"sample   fast → regular   -         2.0.0      Waiting",
			"ChannelNotFound: module sample has no channel regular to promote to; what to do: add the channel: klm channel",
		}}, withoutRegular(release(false, "")), ""},
		"Hold": {fixture.Case{Reason: "a person wants no change", Args: "promotions hold sample regular --reason=audit",
			Want: []string{"nothing is promoted to it any more"}}, release(false, "fast Hold: x"),
			"fast Hold: x\nregular Hold: audit"},
		"NoReason": {fixture.Case{Reason: "others have to know", Args: "promotions hold sample regular",
			Code: console.ExitUsage, Want: []string{"give --reason"}}, release(false, ""), ""},
		"Release": {fixture.Case{Reason: "it names the move", Args: "promotions release sample regular",
			Want: []string{"versions are promoted to it again"}}, release(true, ""), "regular Release 7"},
		"ReleaseHold": {fixture.Case{Reason: "a hold without a move", Args: "promotions release sample regular",
			Want: []string{"versions are promoted to it again"}}, release(false, "regular Hold: audit"),
			"regular Release 7"},
		"ReleaseNothing": {fixture.Case{Reason: "nobody holds it", Args: "promotions release sample regular",
			Code: console.ExitFailed, Want: []string{"nobody holds the promotion"}}, release(false, ""), ""},
		"DryRun": {fixture.Case{Reason: "nothing is written", Args: "promotions release sample regular --dry-run",
			Want: []string{"would do: channel regular"}}, release(true, ""), ""},
		"NoChannel": {fixture.Case{Reason: "it suggests channels", Args: "promotions release sample regula",
			Code: console.ExitNotFound, Want: []string{`no channel "regula"`, "regular"}}, release(true, ""), ""},
		"NoModule": {fixture.Case{Reason: "it suggests modules", Args: "promotions hold sampel regular --reason=x",
			Code: console.ExitNotFound, Want: []string{"sampel", "sample"}}, release(true, ""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture.NewServer(t, c.release, template.DeepCopy(), policy.DeepCopy())
			c.Check(t, commands, s.Kubeconfig)
			before := c.release.Annotations[v1beta2.AnnotationPromotion]
			if c.written == "" && len(s.Writes()) > 0 {
				t.Errorf("%s: it writes %v", c.Reason, s.Writes())
			}
			if writes := strings.Join(s.Writes(), "\n"); c.written != "" && len(s.Writes()) != 1 {
				t.Errorf("%s: %q is written, before %q", c.Reason, writes, before)
			}
			got := s.Object("/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/modulereleasemetas/sample")
			if is := got.GetAnnotations()[v1beta2.AnnotationPromotion]; c.written != "" && is != c.written {
				t.Errorf("%s: the annotation is %q, want %q", c.Reason, is, c.written)
			}
		})
	}
}
