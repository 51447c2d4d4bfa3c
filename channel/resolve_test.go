package channel

import (
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// shop is a catalog with one module in several shapes.
func shop() Catalog {
	releases := map[string]*v1beta2.ModuleReleaseMeta{
		"keda": {Spec: v1beta2.ModuleReleaseMetaSpec{ModuleName: "keda", OCMComponentName: "kyma-project.io/module/keda", Channels: []v1beta2.ChannelVersion{
			{Channel: "regular", Version: "1.0.0"}, {Channel: "fast", Version: "1.1.0-rc"}, {Channel: "beta", Version: "2.0.0"},
			{Channel: "internal", Version: "3.0.0"}, {Channel: "lost", Version: "9.9.9"},
		}}},
		"warden":   {Spec: v1beta2.ModuleReleaseMetaSpec{ModuleName: "warden", Mandatory: &v1beta2.MandatoryVersion{Version: "1.0.0"}}},
		"nameless": {Spec: v1beta2.ModuleReleaseMetaSpec{ModuleName: "nameless", Channels: []v1beta2.ChannelVersion{{Channel: "regular", Version: "1.0.0"}}}},
	}
	templates := map[string]*v1beta2.ModuleTemplate{
		"keda-1.0.0":    {},
		"keda-1.1.0":    {},
		"keda-1.1.0-rc": {},
		"keda-2.0.0":    {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1beta2.LabelBeta: "TRUE"}}},
		"keda-3.0.0":    {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1beta2.LabelInternal: "true"}}},
	}
	for name, r := range releases {
		r.Name = name
	}
	for name, t := range templates {
		t.Name = name
	}
	return Catalog{
		Release:  func(module string) *v1beta2.ModuleReleaseMeta { return releases[module] },
		Template: func(name string) *v1beta2.ModuleTemplate { return templates[name] },
	}
}

func TestResolve(t *testing.T) {
	type want struct {
		Version, Template, Blocker, Object string
		Keep                               bool
	}
	cases := map[string]struct {
		reason string
		wish   Wish
		want   want
	}{
		"Channel":          {"a channel names a version", Wish{Module: "keda", Channel: "regular"}, want{Version: "1.0.0", Template: "keda-1.0.0"}},
		"Pinned":           {"a pinned version needs no channel", Wish{Module: "keda", Version: "1.1.0"}, want{Version: "1.1.0", Template: "keda-1.1.0"}},
		"Both":             {"channel and version contradict each other", Wish{Module: "keda", Channel: "fast", Version: "1.1.0"}, want{Blocker: "InvalidWish", Object: "module keda", Keep: true}},
		"UnknownModule":    {"a typo is told", Wish{Module: "kedo", Channel: "regular"}, want{Blocker: "ModuleNotFound", Object: "ModuleReleaseMeta kedo", Keep: true}},
		"UnknownChannel":   {"a channel that was withdrawn keeps what runs", Wish{Module: "keda", Channel: "slow"}, want{Blocker: "ChannelNotFound", Object: "ModuleReleaseMeta keda", Keep: true}},
		"Mandatory":        {"mandatory modules are not for choosing", Wish{Module: "warden", Channel: "regular"}, want{Blocker: "ModuleNotAllowed", Object: "ModuleReleaseMeta warden", Keep: true}},
		"NoComponent":      {"a release without component cannot be pulled", Wish{Module: "nameless", Channel: "regular"}, want{Version: "1.0.0", Blocker: "InvalidRelease", Object: "ModuleReleaseMeta nameless", Keep: true}},
		"NoTemplate":       {"a version without template is told", Wish{Module: "keda", Channel: "lost"}, want{Version: "9.9.9", Blocker: "TemplateNotFound", Object: "ModuleTemplate keda-9.9.9", Keep: true}},
		"BetaRefused":      {"beta needs the label on the Kyma, and what runs goes", Wish{Module: "keda", Channel: "beta"}, want{Version: "2.0.0", Blocker: "ModuleNotAllowed", Object: "ModuleTemplate keda-2.0.0"}},
		"BetaAllowed":      {"with the label it is like any other", Wish{Module: "keda", Channel: "beta", Beta: true}, want{Version: "2.0.0", Template: "keda-2.0.0"}},
		"InternalRefused":  {"internal needs its own label", Wish{Module: "keda", Channel: "internal", Beta: true}, want{Version: "3.0.0", Blocker: "ModuleNotAllowed", Object: "ModuleTemplate keda-3.0.0"}},
		"InternalAllowed":  {"with the label it is like any other", Wish{Module: "keda", Channel: "internal", Internal: true}, want{Version: "3.0.0", Template: "keda-3.0.0"}},
		"Upgrade":          {"a higher version is taken", Wish{Module: "keda", Channel: "fast", Installed: "1.0.0"}, want{Version: "1.1.0-rc", Template: "keda-1.1.0-rc"}},
		"Downgrade":        {"a lower version is refused and what runs stays", Wish{Module: "keda", Channel: "regular", Installed: "1.1.0"}, want{Version: "1.0.0", Blocker: "DowngradeRefused", Object: "module keda", Keep: true}},
		"PreRelease":       {"a pre-release is lower than its release", Wish{Module: "keda", Channel: "fast", Installed: "1.1.0"}, want{Version: "1.1.0-rc", Blocker: "DowngradeRefused", Object: "module keda", Keep: true}},
		"DowngradeAllowed": {"unless it is asked for", Wish{Module: "keda", Channel: "regular", Installed: "1.1.0", Downgrade: true}, want{Version: "1.0.0", Template: "keda-1.0.0"}},
		"OddInstalled":     {"what is no version cannot be compared", Wish{Module: "keda", Channel: "regular", Installed: "latest"}, want{Version: "1.0.0", Template: "keda-1.0.0"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := Resolve(shop(), c.wish)
			got := want{Version: d.Version}
			if d.Template != nil {
				got.Template = d.Template.Name
			}
			if b := d.Blocker; b != nil {
				got.Blocker, got.Object, got.Keep = b.Reason(), b.Object, b.Keep
				if !strings.Contains(b.Error(), c.wish.Module) {
					t.Errorf("message %q does not name the module", b.Error())
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
			if (d.Template == nil) == (d.Blocker == nil) {
				t.Errorf("an answer is either a template or a blocker, got %v and %v", d.Template, d.Blocker)
			}
		})
	}
}

func TestChannelsAreNamedInOrder(t *testing.T) {
	d := Resolve(shop(), Wish{Module: "keda", Channel: "slow"})
	if want := `choose one of beta, fast, internal, lost, regular`; !strings.Contains(d.Blocker.Message, want) {
		t.Errorf("message %q does not say %q", d.Blocker.Message, want)
	}
}

// FuzzLower checks that being lower is a strict order wherever both are versions, and never true elsewhere.
func FuzzLower(f *testing.F) {
	f.Add("1.0.0", "1.0.1")
	f.Add("1.0.0-rc", "1.0.0")
	f.Add("", "x")
	f.Fuzz(func(t *testing.T, a, b string) {
		if lower(a, b) && lower(b, a) {
			t.Errorf("%q and %q are both lower than the other", a, b)
		}
		if lower(a, a) {
			t.Errorf("%q is lower than itself", a)
		}
		_, errA := semver.StrictNewVersion(a)
		_, errB := semver.StrictNewVersion(b)
		if (errA != nil || errB != nil) && lower(a, b) {
			t.Errorf("%q or %q is no version and yet lower", a, b)
		}
	})
}
