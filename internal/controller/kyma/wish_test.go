package kyma

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

func TestLastWish(t *testing.T) {
	kyma := func(channel string, modules ...v1beta2.Module) *v1beta2.Kyma {
		return &v1beta2.Kyma{Spec: v1beta2.KymaSpec{Channel: channel, Modules: modules}}
	}
	keda := v1beta2.Module{Name: "keda", Channel: "fast"}
	over := kyma("fast", keda)
	over.Annotations = map[string]string{v1beta2.AnnotationStartOver: "true"}
	var many []v1beta2.Module
	for range 10000 {
		many = append(many, keda)
	}
	cases := map[string]struct {
		reason   string
		remote   *v1beta2.Kyma
		want     v1beta2.KymaSpec
		restored bool
	}{
		"Same":      {"what the control plane wishes needs no memory", kyma("regular"), v1beta2.KymaSpec{Channel: "regular"}, false},
		"Module":    {"what the admin has added comes back", kyma("regular", keda), v1beta2.KymaSpec{Channel: "regular", Modules: []v1beta2.Module{keda}}, true},
		"Channel":   {"so does another channel", kyma("fast"), v1beta2.KymaSpec{Channel: "fast"}, true},
		"StartOver": {"unless the admin says so", over, v1beta2.KymaSpec{Channel: "regular"}, false},
		"TooMuch":   {"an annotation is bounded", kyma("fast", many...), v1beta2.KymaSpec{Channel: "regular"}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			here := kyma("regular")
			c.want.SkipMaintenanceWindows, here.Spec.SkipMaintenanceWindows = true, true
			if text := wishToRemember(here, c.remote); text != "" {
				here.Annotations = map[string]string{v1beta2.AnnotationLastRequest: text}
			}
			got, restored := firstWish(here)
			if diff := cmp.Diff(c.want, got); diff != "" || restored != c.restored {
				t.Errorf("%s: restored is %v, want %v (-want +got):\n%s", c.reason, restored, c.restored, diff)
			}
		})
	}
	broken := kyma("regular")
	broken.Annotations = map[string]string{v1beta2.AnnotationLastRequest: "{"}
	if spec, restored := firstWish(broken); restored || spec.Channel != "regular" {
		t.Errorf("a memory that cannot be read gives %+v, %v", spec, restored)
	}
}

func TestEntryOfBlocker(t *testing.T) {
	blocked := func(code string) channel.Decision {
		return channel.Decision{Channel: "fast", Version: "2.0.0", Installed: "1.0.0", Blocker: &channel.Blocker{Code: code, Message: "because", KeepInstalled: true}}
	}
	same := blocked(v1beta2.ReasonModulePaused)
	same.Version = "1.0.0"
	left := false
	cases := map[string]struct {
		reason string
		module module
		want   v1beta2.ModuleStatus
	}{
		"Window":        {"what runs is Ready, and an update waits", module{decision: blocked("WaitingForWindow"), manifest: manifestIn("Ready", "")}, v1beta2.ModuleStatus{State: "Ready", Reason: "WaitingForWindow", Message: "because", Channel: "regular", Maintenance: true}},
		"WindowBroken":  {"and if it is not Ready, that is said too", module{decision: blocked("WaitingForWindow"), manifest: manifestIn("Error", "crashes")}, v1beta2.ModuleStatus{State: "Error", Reason: "WaitingForWindow", Message: "because; crashes", Channel: "regular", Maintenance: true}},
		"NoWindow":      {"somebody has to mend the policy", module{decision: blocked("WindowUnknown"), manifest: manifestIn("Ready", "")}, v1beta2.ModuleStatus{State: "Error", Reason: "WindowUnknown", Message: "because", Channel: "regular"}},
		"Downgrade":     {"the channel is that of what runs", module{decision: blocked("DowngradeRefused"), manifest: manifestIn("Ready", "")}, v1beta2.ModuleStatus{State: "Warning", Reason: "DowngradeRefused", Message: "because", Channel: "regular"}},
		"Paused":        {"all is as wished, and stays so", module{decision: same, manifest: manifestIn("Ready", "")}, v1beta2.ModuleStatus{State: "Ready", Reason: "ModulePaused", Message: "because", Channel: "fast"}},
		"PausedPending": {"a wish is not fulfilled", module{decision: blocked("KymaPaused"), manifest: manifestIn("Ready", "")}, v1beta2.ModuleStatus{State: "Warning", Reason: "KymaPaused", Message: "because", Channel: "fast"}},
		"PausedNew":     {"nor is this one", module{decision: same}, v1beta2.ModuleStatus{State: "Warning", Reason: "ModulePaused", Message: "because", Channel: "fast"}},
		"Unmanaged":     {"the user looks after it", module{decision: decided(), wanted: true, wish: v1beta2.Module{Managed: &left}, manifest: manifestIn("Ready", "")}, v1beta2.ModuleStatus{State: "Unmanaged", Channel: "fast"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.module.former = &v1beta2.ModuleStatus{Channel: "regular", Version: "1.0.0"}
			e := (&run{now: time.Now()}).entry(&c.module)
			got := v1beta2.ModuleStatus{State: e.State, Reason: e.Reason, Message: e.Message, Channel: e.Channel, Maintenance: e.Maintenance}
			if diff := cmp.Diff(c.want, got); diff != "" || e.Version != "1.0.0" {
				t.Errorf("%s: version %s (-want +got):\n%s", c.reason, e.Version, diff)
			}
			if e.State == v1beta2.StateUnmanaged && (e.Manifest != nil || e.Template != nil || e.Resource != nil) {
				t.Error("an unmanaged module refers to what is not there")
			}
		})
	}
}

func TestLookAgainWhenTheWindowOpens(t *testing.T) {
	opens := func(in time.Duration) *run {
		pool, err := runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{}, PollIntervals: runtimes.PollIntervals{Unwatched: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		n := &run{Reconciler: &Reconciler{Options: Options{Runtimes: pool}}, kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, now: time.Now()}
		n.modules = []module{{decision: channel.Decision{Blocker: &channel.Blocker{Code: v1beta2.ReasonWaitingForWindow, Until: time.Now().Add(in)}}}}
		return n
	}
	for _, in := range []time.Duration{10 * time.Minute, -time.Second} {
		result, err := loop.Run(t.Context(), loop.Options{Object: &v1beta2.Kyma{}}, loop.Step{Name: "watch", Do: opens(in).requeue})
		if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > max(in, time.Second) || result.RequeueAfter < in-time.Second {
			t.Errorf("a window that opens in %s is looked at in %s, %v", in, result.RequeueAfter, err)
		}
	}
}

func TestSettle(t *testing.T) {
	failed := errors.New("registry is down")
	n := &run{Reconciler: &Reconciler{}, kyma: &v1beta2.Kyma{}, now: time.Now()}
	n.modules = []module{{mandatory: true, err: failed}}
	if err := n.settle(t.Context()); err == nil || errors.Is(err, failed) {
		t.Errorf("a mandatory module that failed ends with %v, want another look", err)
	}
	n.modules = append(n.modules, module{err: failed})
	if err := n.settle(t.Context()); !errors.Is(err, failed) {
		t.Errorf("a module that failed ends with %v, want its error", err)
	}
}
