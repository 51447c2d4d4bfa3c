package kyma

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

func TestLastRequest(t *testing.T) {
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
		"Same": {"the spec in the control plane need not be stored", kyma("regular"),
			v1beta2.KymaSpec{Channel: "regular"}, false},
		"Module": {"a module that the admin has added is restored", kyma("regular", keda),
			v1beta2.KymaSpec{Channel: "regular", Modules: []v1beta2.Module{keda}}, true},
		"Channel":   {"so is another channel", kyma("fast"), v1beta2.KymaSpec{Channel: "fast"}, true},
		"StartOver": {"unless the admin wants to start over", over, v1beta2.KymaSpec{Channel: "regular"}, false},
		"TooMuch": {"the annotation is too large", kyma("fast", many...),
			v1beta2.KymaSpec{Channel: "regular"}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			here := kyma("regular")
			c.want.SkipMaintenanceWindows, here.Spec.SkipMaintenanceWindows = true, true
			if text := encodeLastRequestIfNeeded(here, c.remote); text != "" {
				here.Annotations = map[string]string{v1beta2.AnnotationLastRequest: text}
			}
			got, restored := channel.LastRuntimeSpecOf(here)
			if diff := cmp.Diff(c.want, got); diff != "" || restored != c.restored {
				t.Errorf("%s: restored is %v, want %v (-want +got):\n%s", c.reason, restored, c.restored, diff)
			}
		})
	}
	broken := kyma("regular")
	broken.Annotations = map[string]string{v1beta2.AnnotationLastRequest: "{"}
	if spec, restored := channel.LastRuntimeSpecOf(broken); restored || spec.Channel != "regular" {
		t.Errorf("an annotation that cannot be decoded gives %+v, %v", spec, restored)
	}
}

func TestRequeueWhenTheWindowOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opens := func(in time.Duration) *run {
			pool, err := runtimes.New(t.Context(), runtimes.Options{Self: &rest.Config{},
				PollIntervals: runtimes.PollIntervals{Unwatched: time.Hour}})
			if err != nil {
				t.Fatal(err)
			}
			n := &run{Reconciler: &Reconciler{Options: Options{Runtimes: pool}},
				kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, now: time.Now()}
			n.modules = []plan.Module{
				{Decision: channel.Decision{Blocker: &channel.Blocker{Code: v1beta2.ReasonWaitingForWindow,
					Until: time.Now().Add(in)}}}}
			return n
		}
		for _, in := range []time.Duration{10 * time.Minute, -time.Second} {
			result, err := loop.Run(t.Context(), loop.Options{Object: &v1beta2.Kyma{}},
				loop.Step{Name: "requeue", Do: opens(in).requeue})
			if got, want := result.RequeueAfter, max(in, time.Millisecond); err != nil || got != want {
				t.Errorf("for a window that opens in %s, the Kyma is requeued after %s, %v, want %s", in, got, err,
					want)
			}
		}
	})
}

func TestSettle(t *testing.T) {
	failed := errors.New("registry is down")
	n := &run{Reconciler: &Reconciler{}, kyma: &v1beta2.Kyma{}, now: time.Now()}
	n.modules = []plan.Module{{IsMandatory: true, Err: failed}}
	if err := n.reportBlockersAndErrors(t.Context()); err == nil || errors.Is(err, failed) {
		t.Errorf("a mandatory module that failed ends with %v, want a recheck", err)
	}
	n.modules = append(n.modules, plan.Module{Err: failed})
	if err := n.reportBlockersAndErrors(t.Context()); !errors.Is(err, failed) {
		t.Errorf("a module that failed ends with %v, want its error", err)
	}
}
