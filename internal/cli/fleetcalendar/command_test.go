package fleetcalendar

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

func commands(a *console.App) []*cobra.Command { return []*cobra.Command{Command(a)} }

// at returns a time in August 2026. In these tests, the clock shows Saturday, 1 August.
func at(day, hour int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 8, day, hour, 0, 0, 0, time.UTC))
}

// runtimeWith returns a Kyma that has the modules sample and other.
func runtimeWith(name, region string, change func(*v1beta2.Kyma)) *v1beta2.Kyma {
	k := fixture.Kyma(v1beta2.StateReady, v1beta2.Module{Name: "sample"}, v1beta2.ModuleStatus{Name: "sample",
		Version: "1.0.0", Channel: "regular", State: v1beta2.StateReady})
	k.Name, k.UID, k.Labels = name, "", map[string]string{v1beta2.LabelRegion: region}
	if change != nil {
		change(k)
	}
	return k
}

// policies returns two RolloutPolicies: the first policy has a freeze in the past, and the second policy has a freeze
// that begins in the middle of a stage.
func policies() []client.Object {
	return []client.Object{
		&v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "standard", Namespace: "kcp-system"},
			Spec: v1beta2.RolloutPolicySpec{Modules: v1beta2.RolloutModules{Names: []string{"sample"}},
				Freezes: []v1beta2.RolloutFreeze{{Name: "past", From: at(-5, 0), To: at(1, 6)},
					{Name: "sale", From: at(10, 0), To: at(12, 0), Except: []v1beta2.FreezeException{
						v1beta2.ExceptEmergency, v1beta2.ExceptBack}}}}},
		&v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "kcp-system"},
			Spec: v1beta2.RolloutPolicySpec{Modules: v1beta2.RolloutModules{Names: []string{"warden"}}, Suspend: true}},
	}
}

// objects returns a fleet in which a rollout is under way, with a maintenance policy and a deferral.
func objects() []client.Object {
	all := append(policies(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "lifecycle-manager",
		Namespace: "kcp-system"}, Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Args: []string{"--maintenance-policy-configmap=windows"}}}}}}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "windows", Namespace: "kcp-system"},
			Data: map[string]string{"policy.json": `{"rules":[
				{"match":{"region":"europe"},"windows":[{"days":["Sat"],"begin":"02:00:00Z","end":"06:00:00Z"}]},
				{"match":{"region":"us"},"windows":[{"days":["Sun"],"begin":"22:00:00Z","end":"02:00:00Z"}]}]}`}})
	s := fixture.Catalog()
	for _, r := range s.Releases {
		r.Namespace = "kcp-system"
		all = append(all, r)
	}
	for _, t := range s.Templates {
		t.Namespace = "kcp-system"
		all = append(all, t)
	}
	for i := range 3 {
		all = append(all, runtimeWith(fmt.Sprint("eu-", i), "europe", nil))
	}
	r := &v1beta2.ModuleRollout{ObjectMeta: metav1.ObjectMeta{Name: "sample-regular-r2", Namespace: "kcp-system",
		CreationTimestamp: at(1, 10)}}
	r.Spec = v1beta2.ModuleRolloutSpec{Module: "sample", Channel: "regular", From: "1.0.0", To: "2.0.0",
		Policy: "standard", State: v1beta2.RolloutRunning, MaxDeferral: metav1.Duration{Duration: 240 * time.Hour},
		Stages: []v1beta2.ModuleRolloutStage{{RolloutStage: v1beta2.RolloutStage{Name: "canary"}},
			{RolloutStage: v1beta2.RolloutStage{Name: "rest"}}}}
	r.Status = v1beta2.ModuleRolloutStatus{Phase: v1beta2.RolloutUpdating, Stage: v1beta2.RolloutStageStatus{
		Name: "canary", StartedAt: at(1, 11)}, Stages: []v1beta2.RolloutStageResult{
		{Name: "canary", ExpectedEnd: at(8, 4), RolloutCounts: v1beta2.RolloutCounts{InScope: 2, Waiting: 1,
			Proven: 1}},
		{Name: "rest", ExpectedBegin: at(9, 4), ExpectedEnd: at(16, 1), RolloutCounts: v1beta2.RolloutCounts{
			InScope: 4, Waiting: 4}}}}
	return append(all, r,
		runtimeWith("us-0", "us", func(k *v1beta2.Kyma) {
			k.Annotations = map[string]string{v1beta2.AnnotationNotBefore: "2026-08-06"}
		}),
		runtimeWith("any-0", "us", func(k *v1beta2.Kyma) { k.Spec.SkipMaintenanceWindows = true }),
		runtimeWith("asia-0", "asia", nil),
		runtimeWith("other-0", "europe", func(k *v1beta2.Kyma) { k.Status.Modules[0].Name = "warden" }))
}

// TestCalendar checks the output of klm calendar for a fleet with two policies, two freezes and a deferral.
func TestCalendar(t *testing.T) {
	for name, c := range map[string]struct {
		fixture.Case
		change  func(*fixture.Server)
		objects []client.Object // nil: those of objects
		without string          // what the output must not have
	}{
		"Month": {Case: fixture.Case{Reason: "all of it", Args: "calendar", Want: []string{
			"August 2026, UTC: 7 runtimes of ",
			"5 with a maintenance window in this month, 0 with a later one, 1 that need none (any time), 1 without one.",
			"→ Sat  1   · · ▇▇▇▇▇▇▇▇· ", "4 at 02:00   standard/past",
			"▂▂▂▂   1 at 22:00   -", "1 at 00:00   standard/sale",
			"A pair of signs is an hour: · no runtime, ▁ few, █ all 5 with windows.",
			"1 runtime: no rule of the maintenance policy matches this Kyma, and there is no default",
			"standard   past     Sun 26 Jul 00:00 ", "Sat 1 Aug 06:00    past    -",
			"later   Emergency, Back   sample-regular-r2",
			"RolloutPolicy other suspends all its rollouts",
			"sample-regular-r2   1.0.0 → 2.0.0   canary   Running   2, 1 wait   Sat 1 Aug 11:00    ~Sat 8 Aug 04:00",
			"sample-regular-r2   1.0.0 → 2.0.0   rest     later     4           ~Sun 9 Aug 04:00   ~Sun 16 Aug 01:00",
			"~ is a forecast of the manager", "Thu 6 Aug 00:00   sample-regular-r2   2.0.0     1"}},
			without: "eu-0"},
		"Wide": {Case: fixture.Case{Reason: "with names", Args: "calendar -o wide", Want: []string{
			"rules[0]          4          Sat 1 Aug 02:00 – Sat 1 Aug 06:00   20      eu-0 eu-1 eu-2 other-0",
			"    asia-0", "us-0"}}},
		"OtherMonth": {Case: fixture.Case{Reason: "the next month", Args: "calendar --month 2026-09", Want: []string{
			"September 2026, UTC", "4 at 02:00", "No RolloutPolicy has a freeze", "No rollout begins"}},
			without: "~"},
		"Zone": {Case: fixture.Case{Reason: "in another zone", Args: "calendar --time-zone America/New_York",
			Want: []string{"August 2026, America/New_York", "Fri  7     · · · · · · · · · · · · · · · · · · · · · · ▇▇▇▇",
				"Sat 1 Aug 07:00    ~Sat 8 Aug 00:00"}}},
		"Module": {Case: fixture.Case{Reason: "one module", Args: "calendar --module warden", Want: []string{
			"1 runtime of ", ", only module warden", "1 with a maintenance window", "No RolloutPolicy has a freeze",
			"RolloutPolicy other suspends"}}, without: "sample"},
		"Modules": {Case: fixture.Case{Reason: "two modules", Args: "calendar --module sample,warden", Want: []string{
			"7 runtimes of ", "standard/sale", "RolloutPolicy other suspends"}}},
		"Labels": {Case: fixture.Case{Reason: "one region", Args: "calendar -l " + v1beta2.LabelRegion + "=us",
			Want: []string{"2 runtimes of ", "1 with a maintenance window", "1 at 22:00"}}},
		"Names": {Case: fixture.Case{Reason: "the rollouts", Args: "calendar -o name",
			Want: []string{"sample-regular-r2\n"}}},
		"JSONPath": {Case: fixture.Case{Reason: "for scripts",
			Args: "calendar -o jsonpath={.windowed}/{.freezes[1].stops[0]}/{.deferrals[0].names[0]}/" +
				"{.days[0].hours[0].runtimes}",
			Want: []string{"5/sample-regular-r2/us-0/4"}}},
		"YAML": {Case: fixture.Case{Reason: "for people", Args: "calendar -o yaml", Want: []string{"month: 2026-08\n",
			"expected: true", "no rule of the maintenance policy"}}},
		"Empty": {Case: fixture.Case{Reason: "nothing is there", Args: "calendar", Want: []string{"0 runtimes",
			"Sat  1   · · ", "No RolloutPolicy has a freeze in this month.", "No rollout begins"}},
			objects: []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}}},
		"NoPolicy": {Case: fixture.Case{Reason: "klm does not find the maintenance policy", Args: "calendar",
			Want: []string{"0 with a maintenance window", "1 without one", "namespace kcp-system has no Deployment"}},
			objects: []client.Object{runtimeWith("eu-0", "europe", nil)}},
		"NoRights": {Case: fixture.Case{Reason: "Kymas may not be read", Args: "calendar", Code: console.ExitForbidden,
			Want: []string{"kymas"}}, change: forbid("kymas")},
		"NoRollouts": {Case: fixture.Case{Reason: "rollouts and policies may not be read", Args: "calendar",
			Want: []string{"Note: what is planned is unknown: ", "Note: freezes are unknown: ", "4 at 02:00"}},
			change: forbid("modulerollouts", "rolloutpolicies")},
		"NoConfigMap": {Case: fixture.Case{Reason: "the maintenance policy may not be read", Args: "calendar",
			Want: []string{"0 with a maintenance window", "6 without one", "6 runtimes: ", "reading ConfigMap windows"}},
			change: forbid("configmaps")},
		"WrongMonth": {Case: fixture.Case{Reason: "no month", Args: "calendar --month 2026-13", Code: console.ExitUsage,
			Want: []string{`--month: "2026-13" is not a month such as 2026-12`}}},
		"WrongZone": {Case: fixture.Case{Reason: "no zone", Args: "calendar --time-zone Mars", Code: console.ExitUsage,
			Want: []string{`--time-zone: "Mars": it is not a time zone`}}},
		"WrongLabels": {Case: fixture.Case{Reason: "no selector", Args: "calendar -l a=b=c", Code: console.ExitUsage,
			Want: []string{"--selector"}}},
		"WrongModule": {Case: fixture.Case{Reason: "it suggests modules", Args: "calendar --module sampel",
			Code: console.ExitNotFound, Want: []string{`module "sampel" does not exist`, "sample"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.objects == nil {
				c.objects = objects()
			}
			s := fixture.NewServer(t, c.objects...)
			if c.change != nil {
				c.change(s)
			}
			c.Check(t, commands, s.Kubeconfig)
			r := fixture.Run(t, commands, s.Kubeconfig, "", strings.Fields(c.Args)...)
			if c.without != "" && strings.Contains(r.Out, c.without) {
				t.Errorf("%s: output with %q:\n%s", c.Reason, c.without, r.Out)
			}
			if writes := s.Writes(); len(writes) > 0 {
				t.Errorf("%s: it writes %v", c.Reason, writes)
			}
		})
	}
}

// TestContexts checks the calendar of several control planes: numbers are added up, rows name their control plane, and
// a control plane that cannot be read does not hide the other control planes.
func TestContexts(t *testing.T) {
	eu := fixture.NewServer(t, objects()...)
	us := fixture.NewServer(t, objects()...)
	empty := fixture.NewServer(t)
	down := fixture.NewServer(t, objects()...)
	down.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/kymas") {
			fixture.Fail(w, apierrors.NewInternalError(errors.New("etcd is down")))
			return true
		}
		return false
	}
	forbid("rolloutpolicies")(us)
	kubeconfig := fixture.JoinKubeconfigs(t, map[string]string{"eu": eu.Kubeconfig, "us": us.Kubeconfig,
		"new": empty.Kubeconfig, "down": down.Kubeconfig})
	for name, c := range map[string]fixture.Case{
		"Sum": {Reason: "two control planes are one fleet", Args: "calendar --contexts eu,us", Want: []string{
			"August 2026, UTC: 14 runtimes of eu,us",
			"10 with a maintenance window in this month, 0 with a later one, 2 that need none (any time), 2 without one.",
			"eu        7          5", "us        7          5", "8 at 02:00   eu/standard/past",
			"Note: us: freezes are unknown", "1 runtime of eu: no rule", "1 runtime of us: no rule",
			"eu        standard   past ", "RolloutPolicy eu/other suspends",
			"eu        sample-regular-r2   1.0.0 → 2.0.0   canary", "us        sample-regular-r2   1.0.0 → 2.0.0   canary",
			"eu        Thu 6 Aug 00:00   sample-regular-r2", "us        Thu 6 Aug 00:00   sample-regular-r2"}},
		"JSON": {Reason: "for scripts", Args: "calendar --contexts eu,us -o jsonpath={.stages[*].context}/" +
			"{.controlPlanes[1].runtimes}/{.days[0].hours[0].runtimes}", Want: []string{"eu eu us us/7/8"}},
		"Down": {Reason: "the error names it, and the others are shown", Args: "calendar --contexts eu,down",
			Code: console.ExitFailed, Want: []string{"7 runtimes of eu,down",
				"1 of 2 control planes were not read: down: ", "etcd is down"}},
		"AllDown": {Reason: "nothing is shown", Args: "calendar --contexts down", Code: console.ExitFailed,
			Want: []string{"1 of 1 control planes were not read"}},
		"Module": {Reason: "one control plane does not have the module", Args: "calendar --contexts eu,new --module warden",
			Want: []string{"1 runtime of eu,new", `Note: new: module "warden" does not exist`}},
		"WrongModule": {Reason: "no control plane has the module", Args: "calendar --contexts eu,us --module sampel",
			Code: console.ExitNotFound, Want: []string{`module "sampel" does not exist`}},
		"Twice": {Reason: "both name a control plane", Args: "calendar --contexts eu --context us",
			Code: console.ExitUsage, Want: []string{"exclude each other"}},
	} {
		t.Run(name, func(t *testing.T) { c.Check(t, commands, kubeconfig) })
	}
}

// TestFormats checks the text with and without names, and the JSON that scripts read.
func TestFormats(t *testing.T) {
	server := fixture.NewServer(t, objects()...)
	r, err := read(t.Context(), fixture.App(server.Kubeconfig), options{})
	if err != nil {
		t.Fatal(err)
	}
	r.Cluster = "prod"
	fixture.GoldenFormats(t, "calendar", r)
}

// forbid makes the server refuse to read the given resources.
func forbid(resources ...string) func(*fixture.Server) {
	return func(s *fixture.Server) {
		s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			for _, resource := range resources {
				if strings.Contains(r.URL.Path, "/"+resource) {
					fixture.Fail(w, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil))
					return true
				}
			}
			return false
		}
	}
}
