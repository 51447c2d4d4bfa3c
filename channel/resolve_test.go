package channel

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// at is the current time in these tests, on a Wednesday.
var at = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func selecting(key, value string) *v1beta2.Selector {
	return &v1beta2.Selector{MatchLabels: map[string]string{key: value}}
}

// shopReleases are example ModuleReleaseMetas by module name.
func shopReleases() map[string]*v1beta2.ModuleReleaseMeta {
	one := []v1beta2.ChannelVersion{{Channel: "regular", Version: "1.0.0"}}
	releases := map[string]*v1beta2.ModuleReleaseMeta{
		"keda": {Spec: v1beta2.ModuleReleaseMetaSpec{Channels: []v1beta2.ChannelVersion{
			{
				Channel: "regular",
				Version: "1.0.0"}, {Channel: "fast",
				Version: "1.1.0-rc"}, {Channel: "beta",
				Version: "2.0.0",
			},
			{
				Channel: "internal",
				Version: "3.0.0"}, {Channel: "lost",
				Version: "9.9.9"}, {Channel: "must",
				Version: "4.0.0",
			},
			{Channel: "slow", Version: "5.0.0"}, {Channel: "odd", Version: "latest"}, {Channel: "empty"},
		}}},
		"warden":   {Spec: v1beta2.ModuleReleaseMetaSpec{Mandatory: &v1beta2.MandatoryVersion{Version: "1.0.0"}}},
		"nameless": {Spec: v1beta2.ModuleReleaseMetaSpec{Channels: one}},
		"hollow":   {Spec: v1beta2.ModuleReleaseMetaSpec{Channels: []v1beta2.ChannelVersion{}}},
		"vip":      {Spec: v1beta2.ModuleReleaseMetaSpec{Channels: one, KymaSelector: selecting("tier", "gold")}},
		"unlisted": {Spec: v1beta2.ModuleReleaseMetaSpec{Channels: one, KymaSelector: selecting("tier", "gold")}},
		"open":     {Spec: v1beta2.ModuleReleaseMetaSpec{Channels: one, KymaSelector: &v1beta2.Selector{}}},
		"broken":   {Spec: v1beta2.ModuleReleaseMetaSpec{Channels: one, KymaSelector: selecting("not a key!", "x")}},
	}
	for name, r := range releases {
		r.Name, r.Spec.ModuleName = name, name
		if name != "nameless" {
			r.Spec.OCMComponentName = "kyma-project.io/module/" + name
		}
	}
	return releases
}

func legacyTemplate(name, module, channel, version string) *v1beta2.ModuleTemplate {
	descriptor := fmt.Sprintf(
		`{"meta":{"schemaVersion":"v2"},"component":{"name":"kyma-project.io/early/%s","version":%q}}`, module, version)
	return &v1beta2.ModuleTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta2.ModuleTemplateSpec{ModuleName: module, Channel: channel,
			Descriptor: runtime.RawExtension{Raw: []byte(descriptor)}},
	}
}

// shopTemplates are the ModuleTemplates of shopReleases and of some modules without a ModuleReleaseMeta.
func shopTemplates() map[string]*v1beta2.ModuleTemplate {
	marked := func(label, value string) *v1beta2.ModuleTemplate {
		return &v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{label: value}}}
	}
	labelled := legacyTemplate("kyma-labelled", "", "alpha", "0.1.0")
	labelled.Labels = map[string]string{v1beta2.LabelModuleName: "labelled"}
	mute := legacyTemplate("mute-regular", "mute", "regular", "")
	mute.Spec.Version, mute.Spec.Descriptor.Raw = "1.0.0", []byte(`["no descriptor"]`)
	v3 := legacyTemplate("modern-regular", "modern", "regular", "")
	v3.Spec.Descriptor.Raw = []byte(
		`{"apiVersion":"ocm.software/v3alpha1","metadata":{"name":"kyma-project.io/early/modern","version":"3.0.0"}}`)
	spoken := legacyTemplate("spoken-regular", "spoken", "regular", "1.0.0")
	spoken.Spec.Version = "1.0.1"
	must := legacyTemplate("harsh-regular", "harsh", "regular", "1.0.0")
	must.Spec.Mandatory = true
	secret := legacyTemplate("pair-secret", "pair", "secret", "3.0.0")
	secret.Labels = map[string]string{v1beta2.LabelInternal: "true"}
	templates := map[string]*v1beta2.ModuleTemplate{
		"keda-1.0.0": {}, "keda-1.1.0": {}, "keda-1.1.0-rc": {}, "keda-10.0.0": {}, "keda-of-mine": {},
		"keda-2.0.0":     marked(v1beta2.LabelBeta, "TRUE"),
		"keda-3.0.0":     marked(v1beta2.LabelInternal, "true"),
		"keda-4.0.0":     {Spec: v1beta2.ModuleTemplateSpec{Mandatory: true}},
		"keda-5.0.0":     {Spec: v1beta2.ModuleTemplateSpec{RequiresDowntime: true}},
		"warden-1.0.0":   marked(v1beta2.LabelBeta, "true"),
		"vip-1.0.0":      {},
		"unlisted-1.0.0": {},
		"orphan-1.0.0":   {Spec: v1beta2.ModuleTemplateSpec{ModuleName: "orphan", Version: "1.0.0"}},
		"kyma-labelled":  labelled, "mute-regular": mute, "modern-regular": v3, "spoken-regular": spoken,
		"harsh-regular": must, "pair-secret": secret,
		"pair-regular":   legacyTemplate("pair-regular", "pair", "regular", "1.0.0"),
		"pair-fast":      legacyTemplate("pair-fast", "pair", "fast", "2.0.0"),
		"twin-a":         legacyTemplate("twin-a", "twin", "regular", "1.0.0"),
		"twin-b":         legacyTemplate("twin-b", "twin", "regular", "1.0.0"),
		"numb-regular":   legacyTemplate("numb-regular", "numb", "regular", ""),
		"locked-regular": legacyTemplate("locked-regular", "locked", "regular", "1.0.0"),
	}
	for name, t := range templates {
		t.Name = name
	}
	return templates
}

// shop is a catalog with shopReleases and shopTemplates. The maintenance window of shop is on Sundays from 03:00 to
// 05:00.
func shop() Catalog {
	releases, templates := shopReleases(), shopTemplates()
	policy, err := ParsePolicy([]byte(`{"default": {"days": ["Sun"], "begin": "03:00:00Z", "end": "05:00:00Z"}}`))
	if err != nil {
		panic(err)
	}
	return Catalog{
		Release:  func(module string) *v1beta2.ModuleReleaseMeta { return releases[module] },
		Template: func(name string) *v1beta2.ModuleTemplate { return templates[name] },
		Templates: func(module string) (all []*v1beta2.ModuleTemplate) {
			for _, t := range templates {
				if ModuleOf(t) == module || strings.HasPrefix(t.Name, module+"-") {
					all = append(all, t)
				}
			}
			return all
		},
		Mandatory: func() (all []*v1beta2.ModuleReleaseMeta) {
			for _, r := range releases {
				all = append(all, r)
			}
			return all
		},
		Restricted: []string{"vip", "open", "broken", "locked", "missing"},
		Policy:     policy,
	}
}

// answer is a Decision without its messages, for comparisons.
type answer struct {
	Channel, Version, Next, Component, Template string
	Blocker, Object                             string
	Keep                                        bool
}

func withoutMessages(d Decision) answer {
	a := answer{Channel: d.Channel, Version: d.Version, Next: d.Next, Component: d.Component}
	if d.Template != nil {
		a.Template = d.Template.Name
	}
	if b := d.Blocker; b != nil {
		a.Blocker, a.Object, a.Keep = b.Reason(), b.Object, b.KeepInstalled
	}
	return a
}

// checkBlocker checks what must be true for every Blocker.
func checkBlocker(t *testing.T, w Request, d Decision) {
	t.Helper()
	if d.Module != w.Module || d.Installed != w.Installed {
		t.Errorf("the answer is about %s %s, asked was %s %s", d.Module, d.Installed, w.Module, w.Installed)
	}
	if (d.Template == nil) == (d.Blocker == nil) {
		t.Errorf("an answer is either a template or a blocker, got %v and %v", d.Template, d.Blocker)
	}
	if d.Next != "" && (d.Blocker != nil || d.Next != d.Version || d.Next == d.Installed) {
		t.Errorf("next is %s, desired %s, installed %s, blocked by %v", d.Next, d.Version, d.Installed, d.Blocker)
	}
	if b := d.Blocker; b != nil {
		if !strings.Contains(b.Error(), w.Module) && b.Code != v1beta2.ReasonKymaPaused || b.Code == "" ||
			b.Object == "" || !b.Since.IsZero() {
			t.Errorf("message %q does not name the module, or there is no code, no object, or a time", b.Error())
		}
		if b.Until.IsZero() != (b.Code != v1beta2.ReasonWaitingForWindow) {
			t.Errorf("%s ends at %s", b.Code, b.Until)
		}
	}
}

func TestResolve(t *testing.T) {
	const keda = "kyma-project.io/module/keda"
	gold := map[string]string{"tier": "gold"}
	blockedBefore := Request{Module: "keda", Channel: "beta", Installed: "1.0.0",
		Blocker: newBlocker(v1beta2.ReasonModulePaused, "module keda", "module keda is paused")}
	cases := map[string]struct {
		reason  string
		request Request
		want    answer
	}{
		"Channel": {"a channel names a version", Request{Module: "keda", Channel: "regular"},
			answer{Channel: "regular", Version: "1.0.0", Next: "1.0.0", Component: keda, Template: "keda-1.0.0"}},
		"Installed": {"an installed version has no next one",
			Request{Module: "keda", Channel: "regular", Installed: "1.0.0"},
			answer{Channel: "regular", Version: "1.0.0", Component: keda, Template: "keda-1.0.0"}},
		"Pinned": {"a pinned version needs no channel", Request{Module: "keda", Version: "1.1.0"},
			answer{Version: "1.1.0", Next: "1.1.0", Component: keda, Template: "keda-1.1.0"}},
		"PinnedUnknown": {"a pinned version that does not exist is an error of the request",
			Request{Module: "keda", Version: "1.2.0"},
			answer{Version: "1.2.0", Component: keda, Blocker: "VersionNotFound",
				Object: "ModuleTemplate keda-1.2.0", Keep: true}},
		"PinnedOdd": {"an invalid version is reported before it is looked up",
			Request{Module: "keda", Version: "v1"},
			answer{Blocker: "InvalidModuleRequest", Object: "module keda", Keep: true}},
		"PinnedOutside": {"a pin is not a way around beta", Request{Module: "keda", Version: "2.0.0"},
			answer{Version: "2.0.0", Component: keda, Blocker: "ModuleNotAllowed",
				Object: "ModuleTemplate keda-2.0.0"}},
		"Both": {"channel and version contradict each other",
			Request{Module: "keda", Channel: "fast", Version: "1.1.0"},
			answer{Channel: "fast", Blocker: "InvalidModuleRequest", Object: "module keda", Keep: true}},
		"NoChannel": {"a reserved word is no channel", Request{Module: "keda", Channel: "None"},
			answer{Channel: "None", Blocker: "InvalidModuleRequest", Object: "module keda", Keep: true}},

		"UnknownModule": {"a typo is reported", Request{Module: "kedo", Channel: "regular"},
			answer{Channel: "regular", Blocker: "ModuleNotFound", Object: "ModuleReleaseMeta kedo", Keep: true}},
		"UnknownChannel": {"the installed version stays if its channel is removed",
			Request{Module: "keda", Channel: "gone"}, answer{Channel: "gone", Blocker: "ChannelNotFound",
				Object: "ModuleReleaseMeta keda", Keep: true}},
		"NoChannels": {"a module without channels has none to choose", Request{Module: "hollow", Channel: "regular"},
			answer{Channel: "regular", Blocker: "ChannelNotFound", Object: "ModuleReleaseMeta hollow", Keep: true}},
		"Mandatory": {"mandatory modules are not for choosing", Request{Module: "warden", Channel: "regular"},
			answer{Channel: "regular", Blocker: "ModuleNotAllowed", Object: "ModuleReleaseMeta warden", Keep: true}},
		"MandatoryPin": {"not with a version either", Request{Module: "warden", Version: "1.0.0"},
			answer{Blocker: "ModuleNotAllowed", Object: "ModuleReleaseMeta warden", Keep: true}},
		"NoComponent": {"a release without component cannot be pulled",
			Request{Module: "nameless", Channel: "regular"},
			answer{Channel: "regular", Version: "1.0.0", Blocker: "InvalidRelease",
				Object: "ModuleReleaseMeta nameless", Keep: true}},
		"OddVersion": {"a release names a version", Request{Module: "keda", Channel: "odd"},
			answer{Channel: "odd", Version: "latest", Component: keda, Blocker: "InvalidRelease",
				Object: "ModuleReleaseMeta keda", Keep: true}},
		"EmptyVersion": {"a release names a version", Request{Module: "keda", Channel: "empty"},
			answer{Channel: "empty", Component: keda, Blocker: "InvalidRelease",
				Object: "ModuleReleaseMeta keda", Keep: true}},
		"NoTemplate": {"a version without template is reported", Request{Module: "keda", Channel: "lost"},
			answer{Channel: "lost", Version: "9.9.9", Component: keda, Blocker: "TemplateNotFound",
				Object: "ModuleTemplate keda-9.9.9", Keep: true}},

		"BetaRefused": {"beta needs the label on the Kyma; without it the module is removed",
			Request{Module: "keda", Channel: "beta"}, answer{Channel: "beta", Version: "2.0.0", Component: keda,
				Blocker: "ModuleNotAllowed", Object: "ModuleTemplate keda-2.0.0"}},
		"BetaAllowed": {"with the label it is like any other",
			Request{Module: "keda", Channel: "beta", Beta: true},
			answer{Channel: "beta", Version: "2.0.0", Next: "2.0.0", Component: keda, Template: "keda-2.0.0"}},
		"InternalRefused": {"internal needs its own label", Request{Module: "keda", Channel: "internal", Beta: true},
			answer{Channel: "internal", Version: "3.0.0", Component: keda, Blocker: "ModuleNotAllowed",
				Object: "ModuleTemplate keda-3.0.0"}},
		"InternalAllowed": {"with the label it is like any other",
			Request{Module: "keda", Channel: "internal", Internal: true}, answer{Channel: "internal", Version: "3.0.0",
				Next: "3.0.0", Component: keda, Template: "keda-3.0.0"}},
		"MandatoryTemplate": {"a mandatory version cannot be chosen; the installed one stays",
			Request{Module: "keda", Channel: "must", Beta: true, Internal: true},
			answer{Channel: "must", Version: "4.0.0", Component: keda, Blocker: "ModuleNotAllowed",
				Object: "ModuleTemplate keda-4.0.0", Keep: true}},
		"Selected": {"a restricted module is for those that are selected",
			Request{Module: "vip", Channel: "regular", Labels: gold},
			answer{Channel: "regular", Version: "1.0.0", Next: "1.0.0", Component: "kyma-project.io/module/vip",
				Template: "vip-1.0.0"}},
		"NotSelected": {"others lose it", Request{Module: "vip", Channel: "regular"},
			answer{Channel: "regular", Blocker: "ModuleNotAllowed", Object: "ModuleReleaseMeta vip"}},
		"SelectorUnlisted": {"a selector of a module that is not restricted is an error: nothing is removed",
			Request{Module: "unlisted", Channel: "regular", Labels: gold},
			answer{Channel: "regular", Blocker: "InvalidRelease", Object: "ModuleReleaseMeta unlisted", Keep: true}},
		"RestrictedToNobody": {"so is a restriction without selector",
			Request{Module: "open", Channel: "regular", Labels: gold},
			answer{Channel: "regular", Blocker: "InvalidRelease", Object: "ModuleReleaseMeta open", Keep: true}},
		"SelectorInvalid": {"and one that cannot be matched", Request{Module: "broken", Channel: "regular",
			Labels: gold}, answer{Channel: "regular", Blocker: "InvalidRelease",
			Object: "ModuleReleaseMeta broken", Keep: true}},

		"Upgrade": {"a higher version is taken", Request{Module: "keda", Channel: "fast", Installed: "1.0.0"},
			answer{Channel: "fast", Version: "1.1.0-rc", Next: "1.1.0-rc", Component: keda, Template: "keda-1.1.0-rc"}},
		"Downgrade": {"a lower version is refused and the installed one stays",
			Request{Module: "keda", Channel: "regular", Installed: "1.1.0"},
			answer{Channel: "regular", Version: "1.0.0", Component: keda, Blocker: "DowngradeRefused",
				Object: "module keda", Keep: true}},
		"PinnedDowngrade": {"a pin is not a way around it",
			Request{Module: "keda", Version: "1.0.0", Installed: "1.1.0"},
			answer{Version: "1.0.0", Component: keda, Blocker: "DowngradeRefused", Object: "module keda", Keep: true}},
		"PreRelease": {"a pre-release is lower than its release",
			Request{Module: "keda", Channel: "fast", Installed: "1.1.0"},
			answer{Channel: "fast", Version: "1.1.0-rc", Component: keda, Blocker: "DowngradeRefused",
				Object: "module keda", Keep: true}},
		"OutOfPreRelease": {"a release is higher than its pre-release",
			Request{Module: "keda", Version: "1.1.0", Installed: "1.1.0-rc"},
			answer{Version: "1.1.0", Next: "1.1.0", Component: keda, Template: "keda-1.1.0"}},
		"DowngradeOfUpdate": {"an update under way may have changed things already",
			Request{Module: "keda", Channel: "fast", Installed: "1.0.0", ManifestVersion: "1.1.0"},
			answer{Channel: "fast", Version: "1.1.0-rc", Component: keda, Blocker: "DowngradeRefused",
				Object: "module keda", Keep: true}},
		"OrderedLower": {"an allowed downgrade under way does not hide what is installed",
			Request{Module: "keda", Channel: "fast", Installed: "1.1.0", ManifestVersion: "1.0.0"},
			answer{Channel: "fast", Version: "1.1.0-rc", Component: keda, Blocker: "DowngradeRefused",
				Object: "module keda", Keep: true}},
		"DowngradeAllowed": {"unless it is asked for", Request{Module: "keda", Channel: "regular", Installed: "1.1.0",
			AllowDowngrade: true}, answer{Channel: "regular", Version: "1.0.0", Next: "1.0.0",
			Component: keda, Template: "keda-1.0.0"}},
		"RestoredOlder": {"a backup never takes a module back",
			Request{Module: "keda", Channel: "regular", Installed: "1.1.0", ManifestVersion: "1.1.0", IsRestored: true},
			answer{Channel: "regular", Version: "1.0.0", Component: keda, Blocker: "RestoredOlder",
				Object: "module keda", Keep: true}},
		"RestoredPinned": {"not even to a pinned version",
			Request{Module: "keda", Version: "1.0.0", Installed: "1.1.0", IsRestored: true},
			answer{Version: "1.0.0", Component: keda, Blocker: "RestoredOlder", Object: "module keda", Keep: true}},
		"RestoredMandatory": {"nor a mandatory module",
			Request{Module: "warden", Mandatory: true, Installed: "1.0.1", IsRestored: true},
			answer{Version: "1.0.0", Component: "kyma-project.io/module/warden", Blocker: "RestoredOlder",
				Object: "module warden", Keep: true}},
		"RestoredBack": {"unless a person wants it", Request{Module: "keda", Channel: "regular", Installed: "1.1.0",
			IsRestored: true, AllowDowngrade: true}, answer{Channel: "regular", Version: "1.0.0", Next: "1.0.0",
			Component: keda, Template: "keda-1.0.0"}},
		"RestoredForward": {"the channel has the version of the runtime again",
			Request{Module: "keda", Channel: "regular", Installed: "1.0.0", IsRestored: true},
			answer{Channel: "regular", Version: "1.0.0", Component: keda, Template: "keda-1.0.0"}},
		"OddInstalled": {"an invalid version cannot be compared",
			Request{Module: "keda", Channel: "regular", Installed: "latest"},
			answer{Channel: "regular", Version: "1.0.0", Next: "1.0.0", Component: keda, Template: "keda-1.0.0"}},
		"BuildMetadata": {"a build is neither higher nor lower",
			Request{Module: "keda", Channel: "regular", Installed: "1.0.0+b2"},
			answer{Channel: "regular", Version: "1.0.0", Next: "1.0.0", Component: keda, Template: "keda-1.0.0"}},

		"WindowClosed": {"a downtime waits", Request{Module: "keda", Channel: "slow", Installed: "1.0.0", Now: at},
			answer{Channel: "slow", Version: "5.0.0", Component: keda, Blocker: "WaitingForWindow",
				Object: "module keda", Keep: true}},
		"WindowOpen": {"until the window is open", Request{Module: "keda", Channel: "slow", Installed: "1.0.0",
			Now: time.Date(2026, 7, 5, 3, 0, 0, 0, time.UTC)}, answer{Channel: "slow", Version: "5.0.0", Next: "5.0.0",
			Component: keda, Template: "keda-5.0.0"}},
		"WindowSkipped": {"or does not, if requested", Request{Module: "keda", Channel: "slow", Installed: "1.0.0",
			Now: at, SkipWindows: true}, answer{Channel: "slow", Version: "5.0.0", Next: "5.0.0",
			Component: keda, Template: "keda-5.0.0"}},
		"FirstInstall": {"a first installation has no downtime", Request{Module: "keda", Channel: "slow", Now: at},
			answer{Channel: "slow", Version: "5.0.0", Next: "5.0.0", Component: keda, Template: "keda-5.0.0"}},
		"WindowPassed": {"an update in progress continues after its window",
			Request{Module: "keda", Channel: "slow", Installed: "1.0.0", ManifestVersion: "5.0.0", Now: at},
			answer{Channel: "slow", Version: "5.0.0", Next: "5.0.0", Component: keda, Template: "keda-5.0.0"}},
		"WindowUnused": {"an installed version needs no window",
			Request{Module: "keda", Channel: "slow", Installed: "5.0.0", Now: at},
			answer{Channel: "slow", Version: "5.0.0", Component: keda, Template: "keda-5.0.0"}},

		"Paused": {"a pause precedes all other rules, and nothing is removed meanwhile", blockedBefore,
			answer{Channel: "beta", Version: "2.0.0", Component: keda, Blocker: "ModulePaused",
				Object: "module keda", Keep: true}},
		"MandatoryWish": {"the control plane may: beta is no matter", Request{Module: "warden", Mandatory: true},
			answer{Version: "1.0.0", Next: "1.0.0", Component: "kyma-project.io/module/warden",
				Template: "warden-1.0.0"}},
		"MandatoryDown": {"its downgrade is refused too",
			Request{Module: "warden", Mandatory: true, Installed: "1.0.1"},
			answer{Version: "1.0.0", Component: "kyma-project.io/module/warden", Blocker: "DowngradeRefused",
				Object: "ModuleReleaseMeta warden", Keep: true}},
		"MandatoryGone": {"a module that was mandatory before is reported", Request{Module: "keda", Mandatory: true},
			answer{Blocker: "InvalidRelease", Object: "ModuleReleaseMeta keda", Keep: true}},
		"MandatoryLegacy": {"there are no mandatory modules among legacy modules",
			Request{Module: "harsh", Mandatory: true},
			answer{Blocker: "ModuleNotFound", Object: "ModuleReleaseMeta harsh", Keep: true}},

		"Legacy": {"a template names its channel itself", Request{Module: "pair", Channel: "fast"},
			answer{Channel: "fast", Version: "2.0.0", Next: "2.0.0", Component: "kyma-project.io/early/pair",
				Template: "pair-fast"}},
		"LegacyLabel": {"the module may be in a label, and its only template is taken",
			Request{Module: "labelled", Channel: "regular"}, answer{Channel: "alpha", Version: "0.1.0", Next: "0.1.0",
				Component: "kyma-project.io/early/", Template: "kyma-labelled"}},
		"LegacyVersion": {"spec.version precedes the descriptor", Request{Module: "spoken", Channel: "regular"},
			answer{Channel: "regular", Version: "1.0.1", Next: "1.0.1", Component: "kyma-project.io/early/spoken",
				Template: "spoken-regular"}},
		"LegacyV3": {"a descriptor may be of schema v3", Request{Module: "modern", Channel: "regular"},
			answer{Channel: "regular", Version: "3.0.0", Next: "3.0.0", Component: "kyma-project.io/early/modern",
				Template: "modern-regular"}},
		"LegacyTwins": {"two templates fit", Request{Module: "twin", Channel: "regular"},
			answer{Channel: "regular", Blocker: "TemplateAmbiguous", Object: "ModuleTemplate twin-a", Keep: true}},
		"LegacyTwinPins": {"not by version either", Request{Module: "twin", Version: "1.0.0"},
			answer{Blocker: "TemplateAmbiguous", Object: "ModuleTemplate twin-a", Keep: true}},
		"LegacyChannel": {"several templates and none in the channel", Request{Module: "pair", Channel: "slow"},
			answer{Channel: "slow", Blocker: "ChannelNotFound", Object: "ModuleTemplate pair-fast", Keep: true}},
		"LegacyPin": {"a version may be pinned", Request{Module: "pair", Version: "1.0.0"},
			answer{Version: "1.0.0", Next: "1.0.0", Component: "kyma-project.io/early/pair", Template: "pair-regular"}},
		"LegacyPinGone": {"one that is there", Request{Module: "pair", Version: "1.5.0"},
			answer{Blocker: "VersionNotFound", Object: "ModuleTemplate pair-1.5.0", Keep: true}},
		"LegacyNoParts": {"without component there is nothing to pull", Request{Module: "mute", Channel: "regular"},
			answer{Channel: "regular", Version: "1.0.0", Blocker: "InvalidRelease",
				Object: "ModuleTemplate mute-regular", Keep: true}},
		"LegacyNoVersion": {"without version there is nothing to compare", Request{Module: "numb", Channel: "regular"},
			answer{Channel: "regular", Component: "kyma-project.io/early/numb", Blocker: "InvalidRelease",
				Object: "ModuleTemplate numb-regular", Keep: true}},
		"LegacyMandatory": {"not for choosing", Request{Module: "harsh", Channel: "regular"},
			answer{Channel: "regular", Version: "1.0.0", Component: "kyma-project.io/early/harsh",
				Blocker: "ModuleNotAllowed", Object: "ModuleTemplate harsh-regular", Keep: true}},
		"LegacyRestricted": {"a restriction needs a selector, which only a release has",
			Request{Module: "locked", Channel: "regular"}, answer{Channel: "regular", Blocker: "InvalidRelease",
				Object: "ModuleReleaseMeta locked", Keep: true}},
		"LegacyNot": {"a template without channel waits for its release", Request{Module: "orphan", Channel: "regular"},
			answer{Channel: "regular", Blocker: "ModuleNotFound", Object: "ModuleReleaseMeta orphan", Keep: true}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := Resolve(shop(), c.request)
			if diff := cmp.Diff(c.want, withoutMessages(d)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
			checkBlocker(t, c.request, d)
		})
	}
}

// TestClockIsSet resolves a request twice, and sets the clock between the two calls. Resolve may use only the current
// time, not an earlier time of the clock. An update that has begun must continue after the clock was set, even if the
// maintenance window is closed at the new time.
func TestClockIsSet(t *testing.T) {
	open := time.Date(2026, 7, 5, 3, 0, 0, 0, time.UTC) // every Sunday from 3:00 to 5:00
	cases := map[string]struct {
		reason   string
		from, to time.Time
		next     string    // the answer then
		until    time.Time // if it waits: until when
	}{
		"OnIntoIt": {
			reason: "put forwards into the window",
			from:   at,
			to:     open.Add(time.Hour),
			next:   "5.0.0",
			until:  time.Time{},
		},
		"OnOver": {
			reason: "put forwards over the window: the next one",
			from:   at,
			to:     open.Add(24 * time.Hour),
			until:  open.AddDate(0, 0, 7),
		},
		"OnYears": {
			reason: "put forwards by years",
			from:   at,
			to:     at.AddDate(10, 0, 0),
			until:  time.Date(2036, 7, 6, 3, 0, 0, 0, time.UTC),
		},
		"OnToTheEnd": {
			reason: "put forwards to where too little of it is left",
			from:   at,
			to:     open.Add(2*time.Hour - time.Minute),
			until:  open.AddDate(0, 0, 7),
		},
		"BackNotBegun": {
			reason: "put back while it waits: it does not begin early",
			from:   at,
			to:     at.AddDate(0, 0, -1),
			until:  open,
		},
		"BackByAWeek": {
			reason: "put back before another window",
			from:   at,
			to:     at.AddDate(0, 0, -7),
			until:  open.AddDate(0, 0, -7),
		},
		"BackToTheTime": {
			reason: "put back into a window",
			from:   open.Add(24 * time.Hour),
			to:     open.Add(time.Hour),
			next:   "5.0.0",
			until:  time.Time{},
		},
		"BackUnderWay": {
			reason: "set back before the window while the update is in progress: it continues",
			from:   open,
			to:     open.Add(-time.Hour),
			next:   "5.0.0",
			until:  time.Time{},
		},
		"OnUnderWay": {
			reason: "set forward past its end: it continues too",
			from:   open,
			to:     open.Add(24 * time.Hour),
			next:   "5.0.0",
			until:  time.Time{},
		},
		"BackToZero": {
			reason: "a clock that was never set",
			from:   at,
			to:     time.Unix(0, 0),
			until:  time.Date(1970, 1, 4, 3, 0, 0, 0, time.UTC),
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := Request{Module: "keda", Channel: "slow", Installed: "1.0.0", Now: c.from}
			shop := shop()
			shop.Policy.MinRemaining = 20 * time.Minute
			w.ManifestVersion = Resolve(shop, w).Next
			w.Now = c.to
			d := Resolve(shop, w)
			var until time.Time
			if d.Blocker != nil {
				until = d.Blocker.Until
			}
			if d.Next != c.next || !until.Equal(c.until) {
				t.Errorf("%s: got version %q, %v, want %q, until %s", c.reason, d.Next, d.Blocker, c.next, c.until)
			}
		})
	}
}

// TestMessages tests that a message states how to fix the problem, and offers only choices that the runtime may have.
func TestMessages(t *testing.T) {
	many := Catalog{Release: func(string) *v1beta2.ModuleReleaseMeta {
		r := &v1beta2.ModuleReleaseMeta{}
		for i := range 12 {
			r.Spec.Channels = append(r.Spec.Channels,
				v1beta2.ChannelVersion{Channel: fmt.Sprintf("c%02d", i), Version: "1.0.0"})
		}
		return r
	}, Template: func(string) *v1beta2.ModuleTemplate { return &v1beta2.ModuleTemplate{} }}
	short := shop()
	short.Templates, short.Policy = nil, nil
	cases := map[string]struct {
		catalog Catalog
		request Request
		want    string
	}{
		"Channels": {shop(), Request{Module: "keda", Channel: "gone"},
			`module keda has no channel "gone": choose one of fast, regular, slow`},
		"ChannelsOfBeta": {shop(), Request{Module: "keda", Channel: "gone", Beta: true},
			`choose one of beta, fast, regular, slow`},
		"NoChannels": {shop(), Request{Module: "hollow", Channel: "gone"},
			`choose one of (none is available to this runtime)`},
		"ManyChannels": {many, Request{Module: "keda", Channel: "gone"},
			`choose one of c00, c01, c02, c03, c04, c05, c06, c07, c08, c09 and 2 more`},
		"Versions": {shop(), Request{Module: "keda", Version: "7.0.0"},
			`module keda has no version 7.0.0: choose one of 10.0.0, 5.0.0, 1.1.0, 1.1.0-rc, 1.0.0`},
		"VersionsOfShort": {short, Request{Module: "keda", Version: "7.0.0"}, `choose one of 5.0.0, 1.1.0-rc, 1.0.0`},
		"NoEarly":         {short, Request{Module: "pair", Channel: "fast"}, `there is no module "pair"`},
		"LegacyChannels":  {shop(), Request{Module: "pair", Channel: "slow"}, `choose one of fast, regular`},
		"LegacyVersions":  {shop(), Request{Module: "pair", Version: "7.0.0"}, `choose one of 2.0.0, 1.0.0`},
		"Twins": {shop(), Request{Module: "twin", Channel: "regular"},
			`module twin has more than one ModuleTemplate for channel regular: remove all but one of twin-a, twin-b, or create a ModuleReleaseMeta`},
		"Downgrade": {shop(), Request{Module: "keda", Channel: "regular", Installed: "1.1.0"},
			`version 1.1.0 of module keda is installed and 1.0.0 would be a downgrade (ModuleTemplate keda-1.1.0 does not declare that going back is safe (spec.upgrade.back)): choose a channel with a higher version, or allow it in the runtime: kubectl annotate -n kyma-system kyma default operator.kyma-project.io/allow-downgrade=keda`},
		"DowngradeMeant": {shop(), Request{Module: "keda", Channel: "regular", Installed: "1.0.0",
			ManifestVersion: "1.1.0"},
			`version 1.1.0 of module keda is being installed and 1.0.0 would be a downgrade`},
		"MandatoryDown": {shop(), Request{Module: "warden", Mandatory: true, Installed: "2.0.0"},
			`allow it in the control plane: kubectl annotate modulereleasemeta warden operator.kyma-project.io/allow-downgrade=true`},
		"Window": {shop(), Request{Module: "keda", Channel: "slow", Installed: "1.0.0", Now: at},
			`waits for the maintenance window from 2026-07-05T03:00:00Z to 2026-07-05T05:00:00Z: wait, or set spec.skipMaintenanceWindows`},
		"NoPolicy": {short, Request{Module: "keda", Channel: "slow", Installed: "1.0.0", Now: at},
			`version 5.0.0 of module keda needs a downtime, and it is not known when: there is no maintenance policy: configure one`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := Resolve(c.catalog, c.request)
			if d.Blocker == nil || !strings.Contains(d.Blocker.Message, c.want) {
				t.Errorf("blocker is %v, want it to say %q", d.Blocker, c.want)
			}
			checkBlocker(t, c.request, d)
		})
	}
}

func TestModuleOf(t *testing.T) {
	cases := map[string]struct {
		reason   string
		template v1beta2.ModuleTemplate
		want     string
	}{
		"Spec": {"its spec takes precedence", v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a-1.0.0",
			Labels: map[string]string{v1beta2.LabelModuleName: "b"}},
			Spec: v1beta2.ModuleTemplateSpec{ModuleName: "c", Version: "1.0.0"}}, "c"},
		"Label": {"then the label", v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a-1.0.0",
			Labels: map[string]string{v1beta2.LabelModuleName: "b"}},
			Spec: v1beta2.ModuleTemplateSpec{Version: "1.0.0"}}, "b"},
		"Name": {"then the name, which it is found by",
			v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a-b-1.0.0-rc"},
				Spec: v1beta2.ModuleTemplateSpec{Version: "1.0.0-rc"}}, "a-b"},
		"Other": {"if the version is in it", v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a-1.0.0"},
			Spec: v1beta2.ModuleTemplateSpec{Version: "2.0.0"}}, ""},
		"Nothing": {"a name alone is not enough", v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a-"}},
			""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := ModuleOf(&c.template); got != c.want {
				t.Errorf("%s: got %q, want %q", c.reason, got, c.want)
			}
		})
	}
}

// FuzzResolve tests that every Decision is well-formed, and that a version becomes lower only if a downgrade is
// allowed.
func FuzzResolve(f *testing.F) {
	f.Add("keda", "fast", "", "1.0.0", "", uint8(0), int64(0))
	f.Add("pair", "", "1.0.0", "", "2.0.0", uint8(3), int64(1e9))
	f.Add("warden", "", "", "1.0.0", "", uint8(16), int64(1e9))
	catalog := shop()
	f.Fuzz(func(t *testing.T, module, channel, version, installed, ordered string, flags uint8, now int64) {
		w := Request{
			Module: module, Channel: channel, Version: version, Installed: installed, ManifestVersion: ordered,
			Now:  time.Unix(now%1e11, 0),
			Beta: flags&1 != 0, Internal: flags&2 != 0, AllowDowngrade: flags&4 != 0,
			SkipWindows: flags&8 != 0, Mandatory: flags&16 != 0,
		}
		if w.Mandatory {
			w.Channel, w.Version = "", ""
		}
		d := Resolve(catalog, w)
		if d.Blocker == nil && !isVersion(d.Version) {
			t.Errorf("version %q is none", d.Version)
		}
		if isLower(d.Next, installed) && !w.AllowDowngrade {
			t.Errorf("%s would go from %s to %s", module, installed, d.Next)
		}
		if diff := cmp.Diff(withoutMessages(d), withoutMessages(Resolve(catalog, w))); diff != "" {
			t.Errorf("asked twice, answered differently:\n%s", diff)
		}
		if (d.Template == nil) == (d.Blocker == nil) {
			t.Errorf("an answer is either a template or a blocker, got %v and %v", d.Template, d.Blocker)
		}
	})
}

// BenchmarkResolve measures the time to resolve one module of one runtime.
func BenchmarkResolve(b *testing.B) {
	catalog, w := shop(), Request{Module: "keda", Channel: "fast", Installed: "1.0.0",
		ManifestVersion: "1.0.0", Now: at}
	b.ReportAllocs()
	for b.Loop() {
		if d := Resolve(catalog, w); d.Blocker != nil {
			b.Fatal(d.Blocker)
		}
	}
}
