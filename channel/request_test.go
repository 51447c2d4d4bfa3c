package channel

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

func kymaWith(labels, annotations map[string]string) *v1beta2.Kyma {
	return &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "runtime-a", Labels: labels, Annotations: annotations}}
}

func TestRequestFor(t *testing.T) {
	labels := map[string]string{v1beta2.LabelBeta: "true", v1beta2.LabelInternal: "True"}
	rights := kymaWith(labels, nil)
	rights.Spec.SkipMaintenanceWindows = true
	fast := &v1beta2.Kyma{Spec: v1beta2.KymaSpec{Channel: "fast"}}
	cases := map[string]struct {
		reason          string
		kyma, inRuntime *v1beta2.Kyma
		module          v1beta2.Module
		want            Request
	}{
		"Default": {
			reason:    "no channel is given",
			kyma:      kymaWith(nil, nil),
			inRuntime: &v1beta2.Kyma{},
			module:    v1beta2.Module{Name: "keda"},
			want:      Request{Module: "keda", Channel: "regular"},
		},
		"OfKyma": {
			reason:    "the Kyma names one",
			kyma:      kymaWith(nil, nil),
			inRuntime: fast,
			module:    v1beta2.Module{Name: "keda"},
			want:      Request{Module: "keda", Channel: "fast"},
		},
		"OfModule": {
			reason:    "the module names one",
			kyma:      kymaWith(nil, nil),
			inRuntime: fast,
			module:    v1beta2.Module{Name: "keda", Channel: "slow"},
			want:      Request{Module: "keda", Channel: "slow"},
		},
		"Pinned": {
			reason:    "a version needs none",
			kyma:      kymaWith(nil, nil),
			inRuntime: fast,
			module:    v1beta2.Module{Name: "keda", Version: "1.0.0"},
			want:      Request{Module: "keda", Version: "1.0.0"},
		},
		"Both": {
			reason:    "a contradiction is kept, to be reported",
			kyma:      kymaWith(nil, nil),
			inRuntime: fast,
			module:    v1beta2.Module{Name: "keda", Version: "1.0.0", Channel: "slow"},
			want:      Request{Module: "keda", Version: "1.0.0", Channel: "slow"},
		},
		"Rights": {
			reason:    "rights are those of the control plane",
			kyma:      rights,
			inRuntime: fast,
			module:    v1beta2.Module{Name: "keda"},
			want: Request{
				Module:      "keda",
				Channel:     "fast",
				Beta:        true,
				Internal:    true,
				SkipWindows: true,
				Labels:      labels,
			},
		},
		"NotOfRuntime": {
			reason:    "and not of the runtime",
			kyma:      kymaWith(nil, nil),
			inRuntime: rights,
			module:    v1beta2.Module{Name: "keda"},
			want:      Request{Module: "keda", Channel: "regular"},
		},
		"Downgrade": {
			reason:    "a downgrade may be allowed in the control plane",
			kyma:      kymaWith(nil, map[string]string{v1beta2.AnnotationAllowDowngrade: "istio, keda"}),
			inRuntime: fast,
			module:    v1beta2.Module{Name: "keda"},
			want:      Request{Module: "keda", Channel: "fast", AllowDowngrade: true},
		},
		"DowngradeHere": {
			reason:    "and in the runtime",
			kyma:      kymaWith(nil, nil),
			inRuntime: kymaWith(nil, map[string]string{v1beta2.AnnotationAllowDowngrade: "*"}),
			module:    v1beta2.Module{Name: "keda"},
			want:      Request{Module: "keda", Channel: "regular", AllowDowngrade: true},
		},
		"DowngradeElse": {
			reason:    "of the modules that are named",
			kyma:      kymaWith(nil, map[string]string{v1beta2.AnnotationAllowDowngrade: "kedas,"}),
			inRuntime: fast,
			module:    v1beta2.Module{Name: "keda"},
			want:      Request{Module: "keda", Channel: "fast"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.want.Kyma = "runtime-a"
			if diff := cmp.Diff(c.want, RequestFor(c.kyma, c.inRuntime, &c.module)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
	if w := RequestFor(kymaWith(nil, nil), kymaWith(nil, map[string]string{v1beta2.AnnotationPaused: "x"}),
		&v1beta2.Module{Name: "keda"}); w.Blocker == nil {
		t.Error("a pause in the runtime is not in the request")
	}
}

func TestPaused(t *testing.T) {
	const ofKeda = v1beta2.AnnotationPausedModulePrefix + "keda"
	cases := map[string]struct {
		reason      string
		annotations map[string]string
		module      string
		code, says  string
	}{
		"No": {reason: "without annotation", module: "keda"},
		"Kyma": {
			reason:      "with a reason",
			annotations: map[string]string{v1beta2.AnnotationPaused: "moving house"},
			module:      "keda",
			code:        "KymaPaused",
			says: "Kyma runtime-a is paused (moving house): to go on, run in the control plane: " +
				"kubectl annotate kyma runtime-a operator.kyma-project.io/paused-",
		},
		"Module": {
			reason:      "a module alone",
			annotations: map[string]string{ofKeda: " INC-1 "},
			module:      "keda",
			code:        "ModulePaused",
			says: "module keda is paused (INC-1): to go on, run in the control plane: " +
				"kubectl annotate kyma runtime-a paused.operator.kyma-project.io/keda-",
		},
		"Both": {
			reason:      "the larger one is reported",
			annotations: map[string]string{ofKeda: "INC-1", v1beta2.AnnotationPaused: "all"},
			module:      "keda",
			code:        "KymaPaused",
			says:        "(all)",
		},
		"Other": {reason: "another module", annotations: map[string]string{ofKeda: "INC-1"}, module: "istio"},
		"KymaOnly": {
			reason:      "asked about the Kyma alone",
			annotations: map[string]string{ofKeda: "INC-1", v1beta2.AnnotationPausedModulePrefix: "x"},
		},
		"Silent": {
			reason:      "without a reason it is a pause, too",
			annotations: map[string]string{v1beta2.AnnotationPaused: ""},
			code:        "KymaPaused",
			says:        "(no reason given)",
		},
		"True": {
			reason:      "yes is not a reason",
			annotations: map[string]string{ofKeda: "True"},
			module:      "keda",
			code:        "ModulePaused",
			says:        "(no reason given)",
		},
		"False": {
			reason:      "false does not pause",
			annotations: map[string]string{v1beta2.AnnotationPaused: "False", ofKeda: "false"},
			module:      "keda",
		},
		"Long": {
			reason:      "a long reason is cut",
			annotations: map[string]string{ofKeda: strings.Repeat("ü", 257)},
			module:      "keda",
			code:        "ModulePaused",
			says:        "(" + strings.Repeat("ü", 256) + "…)",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := PauseBlocker(kymaWith(nil, c.annotations), c.module)
			switch {
			case (b == nil) != (c.code == ""):
				t.Errorf("%s: got %v", c.reason, b)
			case b != nil && (b.Code != c.code || !strings.Contains(b.Message, c.says) || !b.KeepInstalled):
				t.Errorf("%s: got %s, keep %t: %s", c.reason, b.Code, b.KeepInstalled, b.Message)
			}
		})
	}
	if b := PauseBlocker(nil, "keda"); b != nil {
		t.Errorf("no Kyma is paused: %v", b)
	}
	if allowsDowngrade(nil, "keda") {
		t.Error("no Kyma allows a downgrade")
	}
}

func TestMandatoryRequests(t *testing.T) {
	must := func(name, module, component string, age time.Duration) *v1beta2.ModuleReleaseMeta {
		r := &v1beta2.ModuleReleaseMeta{Spec: v1beta2.ModuleReleaseMetaSpec{ModuleName: module,
			OCMComponentName: component, Mandatory: &v1beta2.MandatoryVersion{Version: "1.0.0"}}}
		r.Name, r.CreationTimestamp = name, metav1.NewTime(at.Add(-age))
		return r
	}
	leaving := must("leaving", "leaving", "x/leaving", 9)
	leaving.DeletionTimestamp = new(metav1.NewTime(at))
	back := must("back", "back", "x/back", 0)
	back.Annotations = map[string]string{v1beta2.AnnotationAllowDowngrade: "true"}
	yes := must("yes", "yes", "x/yes", 0)
	yes.Annotations = map[string]string{v1beta2.AnnotationAllowDowngrade: "*"}
	optional := &v1beta2.ModuleReleaseMeta{}
	optional.Name = "optional"
	releases := []*v1beta2.ModuleReleaseMeta{
		must("warden-two", "warden", "x/warden-two", 0), must("warden", "warden", "x/warden", 5),
		optional, leaving, back, yes,
		must("shield-b", "shield-b", "x/shield", 0), must("shield-a", "shield-a", "x/shield", 0),
		must("bare", "", "", 0), must("plain", "", "", 0),
	}
	catalog := Catalog{Mandatory: func() []*v1beta2.ModuleReleaseMeta { return releases }}
	kyma := kymaWith(nil, map[string]string{v1beta2.AnnotationAllowDowngrade: "shield-a",
		v1beta2.AnnotationPausedModulePrefix + "plain": "INC-2"})
	got := map[string]string{}
	last := ""
	for _, w := range MandatoryRequests(catalog, kyma) {
		if w.Module <= last || !w.Mandatory {
			t.Errorf("%s after %s, mandatory %t", w.Module, last, w.Mandatory)
		}
		last = w.Module
		got[w.Module] = ""
		if w.Blocker != nil {
			got[w.Module] = w.Blocker.Code + " " + w.Blocker.Object
		}
		if w.AllowDowngrade {
			got[w.Module] += "down"
		}
	}
	want := map[string]string{
		"back": "down", "bare": "", "plain": "ModulePaused module plain", "shield-a": "down",
		"shield-b": "ModuleConflict ModuleReleaseMeta shield-b",
		"warden":   "", "warden-two": "ModuleConflict ModuleReleaseMeta warden-two", "yes": "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if releases[0].Name != "warden-two" {
		t.Error("the list of the catalog was changed")
	}
	if requests := MandatoryRequests(Catalog{}, kyma); requests != nil {
		t.Errorf("a catalog without mandatory modules has %v", requests)
	}
	for _, w := range MandatoryRequests(shop(), kyma) {
		if d := Resolve(shop(), w); w.Module != "warden" || d.Next != "1.0.0" {
			t.Errorf("%s: %+v", w.Module, d)
		}
	}
}
