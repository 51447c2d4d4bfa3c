package channeladmin

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

const newer = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/moduletemplates/sample-2.0.0"

const manifest = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/manifests/runtime-a-sample-1"

// TestUndo checks which rollouts can be undone, and that a refused command changes nothing.
func TestUndo(t *testing.T) {
	rollout := func(from, to string, direction v1beta2.RolloutDirection, begun int32) *v1beta2.ModuleRollout {
		return &v1beta2.ModuleRollout{ObjectMeta: metav1.ObjectMeta{Name: "sample-regular-r2", Namespace: "kcp-system"},
			Spec: v1beta2.ModuleRolloutSpec{Module: "sample", Channel: "regular", Revision: 2, From: from, To: to,
				Direction: direction},
			Status: v1beta2.ModuleRolloutStatus{Phase: v1beta2.RolloutHalted,
				Runtimes: v1beta2.RolloutCounts{InScope: 10, Failed: begun}}}
	}
	forward := rollout("1.0.0", "2.0.0", "", 3)
	cases := map[string]struct {
		fixture.Case
		of   *v1beta2.ModuleRollout
		back string // spec.upgrade.back of version 2.0.0
		want string // version of the channel afterwards
	}{
		"Declared": {fixture.Case{Reason: "the channel gets its former version",
			Args: "undo sample-regular-r2 --yes --no-wait",
			Want: []string{"was changed from version 2.0.0 to 1.0.0"}}, forward, ">=1.0.0 <2.0.0", "1.0.0"},
		"DryRun": {fixture.Case{Reason: "nothing is written", Args: "undo sample-regular-r2 --dry-run",
			Want: []string{"would change from version 2.0.0 to 1.0.0"}}, forward, "1.0.0", "2.0.0"},
		"Stages": {fixture.Case{Reason: "who goes back, and in which order", Args: "undo sample-regular-r2 --dry-run",
			Want: []string{"ModuleRollout sample-regular-r3 of RolloutPolicy standard would have 1 stage",
				"It takes runtimes with 2.0.0 back to 1.0.0, those whose module fails first; no other runtime is changed."}},
			forward, "1.0.0", "2.0.0"},
		"NotDeclared": {fixture.Case{Reason: "those who have begun could not go back", Code: console.ExitFailed,
			Args: "undo sample-regular-r2 --yes", Want: []string{"DowngradeUnsafe", "3 runtimes with 2.0.0 cannot go back",
				"klm rollout abort sample-regular-r2", "higher version"}}, forward, "", "2.0.0"},
		"OtherRange": {fixture.Case{Reason: "the declaration is for other versions", Code: console.ExitFailed,
			Args: "undo sample-regular-r2 --yes", Want: []string{`safe to ">=1.5.0" only`}}, forward, ">=1.5.0",
			"2.0.0"},
		"NobodyBegan": {fixture.Case{Reason: "nobody has to go back", Args: "undo sample-regular-r2 --yes --no-wait",
			Want: []string{"was changed"}}, rollout("1.0.0", "2.0.0", "", 0), "", "1.0.0"},
		"NotLast": {fixture.Case{Reason: "the channel has moved since", Args: "undo sample-regular-r2 --yes",
			Code: console.ExitFailed,
			Want: []string{"is not the last one: channel regular of module sample has version 2.0.0"}},
			rollout("0.9.0", "1.0.0", "", 3), "1.0.0", "2.0.0"},
		"WayBack": {fixture.Case{Reason: "it went back itself", Args: "undo sample-regular-r2 --yes",
			Code: console.ExitFailed, Want: []string{"klm channel set sample regular 3.0.0"}},
			rollout("3.0.0", "2.0.0", v1beta2.RolloutBack, 3), "1.0.0", "2.0.0"},
		"Unknown": {fixture.Case{Reason: "there is no such rollout", Args: "undo sample-regular-r9 --yes",
			Code: console.ExitNotFound, Want: []string{"sample-regular-r9"}}, forward, "1.0.0", "2.0.0"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newControlPlane(t)
			s.Create(t, c.of)
			put(t, s, release, []any{map[string]any{"channel": "regular", "version": "2.0.0"}}, "spec", "channels")
			if name == "Stages" {
				s.Create(t, &v1beta2.RolloutPolicy{
					ObjectMeta: metav1.ObjectMeta{Name: "standard", Namespace: "kcp-system"},
					Spec: v1beta2.RolloutPolicySpec{Modules: v1beta2.RolloutModules{Names: []string{"*"}},
						Stages: []v1beta2.RolloutStage{{Name: "rest"}}}})
				put(t, s, manifest, "2.0.0", "spec", "version")
				put(t, s, release, []any{map[string]any{"channel": "regular", "version": "1.0.0", "target": "2.0.0",
					"rollout": "sample-regular-r2", "policy": "standard", "revision": int64(2)}}, "status", "channels")
			}
			put(t, s, newer, c.back, "spec", "upgrade", "back")
			c.Check(t, func(a *console.App) []*cobra.Command { return []*cobra.Command{RolloutUndoCommand(a)} },
				s.Kubeconfig)
			channels, _, _ := unstructured.NestedSlice(s.Object(release).Object, "spec", "channels")
			want := []any{map[string]any{"channel": "regular", "version": c.want}}
			if diff := cmp.Diff(want, channels); diff != "" {
				t.Errorf("%s: spec.channels (-want +got):\n%s", c.Reason, diff)
			}
		})
	}
}

// TestUndoMandatory checks that klm rollout undo also sets back a mandatory module, which has one version for all
// runtimes.
func TestUndoMandatory(t *testing.T) {
	cases := map[string]struct {
		fixture.Case
		back string // spec.upgrade.back of version 2.0.0
		want string // the version afterwards
	}{
		"Declared": {fixture.Case{Reason: "it gets its former version", Args: "undo sample-mandatory-r2 --yes",
			Want: []string{"mandatory module sample is set back from version 2.0.0 to 1.0.0: 3 runtimes with 2.0.0 go back"}},
			">=1.0.0 <2.0.0", "1.0.0"},
		"DryRun": {fixture.Case{Reason: "nothing is written", Args: "undo sample-mandatory-r2 --dry-run",
			Want: []string{"would do: mandatory module sample"}}, "1.0.0", "2.0.0"},
		"Urgent": {fixture.Case{Reason: "the way back may be urgent, too",
			Args: "undo sample-mandatory-r2 --yes --urgency=emergency --reason=fire",
			Want: []string{"is set back"}}, "1.0.0", "1.0.0"},
		"NotDeclared": {fixture.Case{Reason: "those who have begun could not go back", Code: console.ExitFailed,
			Args: "undo sample-mandatory-r2 --yes", Want: []string{"DowngradeUnsafe", "3 runtimes with 2.0.0 cannot go back",
				"higher version"}}, "", "2.0.0"},
		"NoAnswer": {fixture.Case{Reason: "nobody has confirmed it", Code: console.ExitUsage,
			Args: "undo sample-mandatory-r2", Want: []string{"It affects 3 runtimes", "--yes"}}, "1.0.0", "2.0.0"},
		"Gone": {fixture.Case{Reason: "the former version does not exist any more", Code: console.ExitNotFound,
			Args: "undo sample-mandatory-r2 --yes",
			Want: []string{"module sample has no version 0.9.0", "publish it first"}}, ">=0.9.0 <2.0.0", "2.0.0"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, from := newControlPlane(t), "1.0.0"
			if name == "Gone" {
				from = "0.9.0"
			}
			s.Create(t, &v1beta2.ModuleRollout{
				ObjectMeta: metav1.ObjectMeta{Name: "sample-mandatory-r2", Namespace: "kcp-system"},
				Spec: v1beta2.ModuleRolloutSpec{Module: "sample", Channel: v1beta2.MandatoryChannel, Revision: 2,
					From: from, To: "2.0.0"},
				Status: v1beta2.ModuleRolloutStatus{Phase: v1beta2.RolloutHalted,
					Runtimes: v1beta2.RolloutCounts{InScope: 10, Failed: 3}}})
			o := s.Object(release).DeepCopy()
			unstructured.RemoveNestedField(o.Object, "spec", "channels")
			s.Put(o)
			put(t, s, release, "2.0.0", "spec", "mandatory", "version")
			put(t, s, newer, c.back, "spec", "upgrade", "back")
			c.Check(t, func(a *console.App) []*cobra.Command { return []*cobra.Command{RolloutUndoCommand(a)} },
				s.Kubeconfig)
			after := s.Object(release)
			if is, _, _ := unstructured.NestedString(after.Object, "spec", "mandatory", "version"); is != c.want {
				t.Errorf("%s: the version is %s, want %s", c.Reason, is, c.want)
			}
			urgent := after.GetAnnotations()[v1beta2.AnnotationUrgency]
			if want := map[string]string{"Urgent": "mandatory 1.0.0 Emergency: fire"}[name]; urgent != want {
				t.Errorf("%s: the annotation is %q, want %q", c.Reason, urgent, want)
			}
		})
	}
}

// TestWithdraw checks that klm version withdraw writes the reason into an annotation of the ModuleTemplate, and which
// input the command refuses.
func TestWithdraw(t *testing.T) {
	cases := map[string]struct {
		fixture.Case
		before, want string // the annotation; "" for none
	}{
		"Withdraw": {fixture.Case{Reason: "others read why", Args: "withdraw sample 2.0.0 --reason=loses",
			Want: []string{"version 2.0.0 of module sample is withdrawn; channels that still have it: fast: klm channel " +
				"set sample fast VERSION"}}, "", "loses"},
		"Name": {fixture.Case{Reason: "for scripts", Args: "withdraw sample 2.0.0 --reason=loses -o name",
			Want: []string{"moduletemplate/sample-2.0.0\n"}}, "", "loses"},
		"DryRun": {fixture.Case{Reason: "nothing is written", Args: "withdraw sample 2.0.0 --reason=loses --dry-run",
			Want: []string{"would do: version 2.0.0"}}, "", ""},
		"Holders": {fixture.Case{Reason: "who has it keeps it", Args: "withdraw sample 1.0.0 --reason=loses --dry-run",
			Want: []string{"It stays in 1 runtime: runtime-a\n", "klm rollout undo"}}, "", ""},
		"HoldersJSON": {fixture.Case{Reason: "for pipelines",
			Args: "withdraw sample 1.0.0 --reason=loses --dry-run -o jsonpath={.holders}",
			Want: []string{"runtime-a"}}, "", ""},
		"Forbidden": {fixture.Case{Reason: "it must not depend on a list", Args: "withdraw sample 2.0.0 --reason=loses",
			Want: []string{"is withdrawn", "Note: which runtimes have it is not known: "}}, "", "loses"},
		"NoReason": {fixture.Case{Reason: "others could not know why", Args: "withdraw sample 2.0.0",
			Code: console.ExitUsage, Want: []string{"give --reason"}}, "", ""},
		"Undo": {fixture.Case{Reason: "it was a mistake", Args: "withdraw sample 2.0.0 --undo",
			Want: []string{"is available again"}}, "loses", ""},
		"UndoNothing": {fixture.Case{Reason: "there is nothing to undo", Args: "withdraw sample 2.0.0 --undo",
			Code: console.ExitFailed, Want: []string{"is not withdrawn"}}, "", ""},
		"UnknownVersion": {fixture.Case{Reason: "a typing error", Args: "withdraw sample 2.0.1 --reason=x",
			Code: console.ExitNotFound, Want: []string{"did you mean 2.0.0"}}, "", ""},
		"UnknownModule": {fixture.Case{Reason: "a typing error", Args: "withdraw smaple 2.0.0 --reason=x",
			Code: console.ExitNotFound, Want: []string{"did you mean sample?"}}, "", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newControlPlane(t)
			if c.before != "" {
				put(t, s, newer, c.before, "metadata", "annotations", v1beta2.AnnotationWithdrawn)
			}
			if name == "Forbidden" {
				s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.HasSuffix(r.URL.Path, "/manifests") {
						return false
					}
					fixture.Fail(w, apierrors.NewForbidden(v1beta2.GroupVersion.WithResource("manifests").
						GroupResource(), "", errors.New("not you")))
					return true
				}
			}
			c.Check(t, func(a *console.App) []*cobra.Command { return []*cobra.Command{VersionWithdrawCommand(a)} },
				s.Kubeconfig)
			if got := s.Object(newer).GetAnnotations()[v1beta2.AnnotationWithdrawn]; got != c.want {
				t.Errorf("%s: the annotation is %q, want %q", c.Reason, got, c.want)
			}
		})
	}
}

// put changes a field of an object, as another client would do.
func put(t *testing.T, s *fixture.Server, path string, value any, fields ...string) {
	t.Helper()
	o := s.Object(path).DeepCopy()
	if err := unstructured.SetNestedField(o.Object, value, fields...); err != nil {
		t.Fatal(err)
	}
	s.Put(o)
}
