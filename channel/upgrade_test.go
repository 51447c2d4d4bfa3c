package channel

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// versions returns a catalog in which one module has the versions in the parameter entries. The channel regular of the
// module has the last of these versions. An entry is a version, optionally followed by a bar and the range of versions
// on top of which it can be installed.
func versions(entries ...string) Catalog {
	templates := map[string]*v1beta2.ModuleTemplate{}
	last := ""
	for _, e := range entries {
		version, from, _ := strings.Cut(e, "|")
		t := &v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "sample-" + version},
			Spec: v1beta2.ModuleTemplateSpec{ModuleName: "sample", Version: version}}
		if from != "" {
			t.Spec.Upgrade = &v1beta2.ModuleUpgrade{From: from}
		}
		templates[t.Name], last = t, version
	}
	release := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Name: "sample"},
		Spec: v1beta2.ModuleReleaseMetaSpec{ModuleName: "sample", OCMComponentName: "example.com/sample",
			Channels: []v1beta2.ChannelVersion{{Channel: "regular", Version: last}}}}
	return Catalog{
		Release:  func(string) *v1beta2.ModuleReleaseMeta { return release },
		Template: func(name string) *v1beta2.ModuleTemplate { return templates[name] },
		Templates: func(string) []*v1beta2.ModuleTemplate {
			var all []*v1beta2.ModuleTemplate
			for _, t := range templates {
				all = append(all, t)
			}
			return all
		},
	}
}

// TestSteps tests rule 10: on top of which versions the version of a channel can be installed, and the upgrade path
// from other versions.
func TestSteps(t *testing.T) {
	for name, c := range map[string]struct {
		catalog  []string
		withdraw string
		at       string // the installed version, and after a bar the version that is being installed
		want     string // the versions that are installed, or the reason
	}{
		"NoRange":    {[]string{"1.0.0", "2.0.0"}, "", "1.0.0", "2.0.0"},
		"New":        {[]string{"2.0.0|>=1.5.0"}, "", "", "2.0.0"},
		"InRange":    {[]string{"1.5.0", "2.0.0|>=1.5.0"}, "", "1.5.0", "2.0.0"},
		"ThroughOne": {[]string{"1.0.0", "1.5.0", "2.0.0|>=1.5.0"}, "", "1.0.0", "1.5.0 2.0.0"},
		"ThroughTwo": {[]string{"1.0.0", "1.5.0", "2.0.0|>=1.5.0 <2.0.0", "3.0.0|2.x"}, "", "1.0.0",
			"1.5.0 2.0.0 3.0.0"},
		"Shortest": {[]string{"1.0.0", "1.2.0", "1.4.0|>=1.2.0", "1.5.0", "2.0.0|>=1.4.0"}, "", "1.0.0",
			"1.5.0 2.0.0"},
		"NoWay":         {[]string{"1.0.0", "1.5.0|>=1.2.0", "2.0.0|>=1.5.0"}, "", "1.0.0", "EdgeMissing"},
		"Alone":         {[]string{"2.0.0|>=1.5.0"}, "", "1.0.0", "EdgeMissing"},
		"NothingInside": {[]string{"1.0.0", "1.5.0", "2.0.0|>3.0.0"}, "", "1.5.0", "EdgeMissing"},
		"Itself":        {[]string{"1.0.0", "2.0.0|2.0.0"}, "", "1.0.0", "EdgeMissing"},
		"Invalid":       {[]string{"1.0.0", "2.0.0|from one"}, "", "1.0.0", "UpgradeInvalid"},
		"Withdrawn":     {[]string{"1.0.0", "1.5.0", "1.6.0", "2.0.0|>=1.5.0"}, "1.6.0", "1.0.0", "1.5.0 2.0.0"},
		"WithdrawnLast": {[]string{"1.0.0", "2.0.0"}, "2.0.0", "1.0.0", "VersionWithdrawn"},
		"WithdrawnIs":   {[]string{"1.0.0", "2.0.0"}, "2.0.0", "2.0.0", ""},
		"WithdrawnGoes": {[]string{"1.0.0", "2.0.0"}, "2.0.0", "1.0.0|2.0.0", "2.0.0"},
		"UnderWay":      {[]string{"1.0.0", "1.5.0", "1.6.0", "2.0.0|>=1.5.0"}, "", "1.0.0|1.5.0", "1.5.0 2.0.0"},
		"StepWithdrawn": {[]string{"1.0.0", "1.5.0", "2.0.0|>=1.5.0"}, "1.5.0", "1.0.0|1.5.0", "1.5.0 2.0.0"},
		"PreRelease":    {[]string{"1.0.0", "2.0.0-rc", "2.0.0|>=1.5.0"}, "", "1.0.0", "2.0.0-rc 2.0.0"},
		"Goes":          {[]string{"1.0.0", "2.0.0|>=1.5.0"}, "", "1.0.0|2.0.0", "2.0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			catalog := versions(c.catalog...)
			if withdrawn := catalog.Template("sample-" + c.withdraw); withdrawn != nil {
				withdrawn.Annotations = map[string]string{v1beta2.AnnotationWithdrawn: "it loses data"}
			}
			installed, ordered, _ := strings.Cut(c.at, "|")
			if ordered == "" {
				ordered = installed
			}
			goal := catalog.Release("").Spec.Channels[0].Version
			var way []string
			for range len(c.catalog) + 1 {
				d := Resolve(catalog, Request{Module: "sample", Channel: "regular", Installed: installed,
					ManifestVersion: ordered})
				if d.Blocker != nil {
					way = append(way, d.Blocker.Code)
					if !d.Blocker.KeepInstalled || d.Blocker.Message == "" ||
						d.Blocker.Object != "ModuleTemplate sample-"+goal {
						t.Errorf("blocker %+v", d.Blocker)
					}
					break
				}
				if d.Next == "" {
					break
				}
				if (d.Goal != "") != (d.Next != goal) || d.Template.Spec.Version != d.Next {
					t.Errorf("step %s with goal %q and template %s", d.Next, d.Goal, d.Template.Name)
				}
				way = append(way, d.Next)
				installed, ordered = d.Next, d.Next
			}
			if is := strings.Join(way, " "); is != c.want {
				t.Errorf("way %q, want %q", is, c.want)
			}
		})
	}
}

// TestRestrictedSteps tests that an upgrade path contains no version that the runtime must not have, and that such a
// version on the path never removes the module.
func TestRestrictedSteps(t *testing.T) {
	three := []string{"1.0.0", "1.5.0", "1.6.0", "2.0.0|>=1.5.0"}
	for name, c := range map[string]struct {
		catalog []string
		label   string // of version 1.6.0, or "mandatory"
		request Request
		want    string // the next version, or the reason
	}{
		"Beta":          {three, v1beta2.LabelBeta, Request{}, "1.5.0"},
		"Internal":      {three, v1beta2.LabelInternal, Request{Beta: true}, "1.5.0"},
		"Mandatory":     {three, "mandatory", Request{Beta: true, Internal: true}, "1.5.0"},
		"TakesPart":     {three, v1beta2.LabelBeta, Request{Beta: true}, "1.6.0"},
		"ForMandatory":  {three, v1beta2.LabelBeta, Request{Mandatory: true}, "1.6.0"},
		"OnlyBeta":      {[]string{"1.0.0", "1.6.0", "2.0.0|>=1.5.0"}, v1beta2.LabelBeta, Request{}, "EdgeMissing"},
		"LabelIsMissed": {three, v1beta2.LabelBeta, Request{ManifestVersion: "1.6.0"}, "ModuleNotAllowed"},
	} {
		t.Run(name, func(t *testing.T) {
			catalog := versions(c.catalog...)
			step := catalog.Template("sample-1.6.0")
			if step.Spec.Mandatory = c.label == "mandatory"; !step.Spec.Mandatory {
				step.Labels = map[string]string{c.label: "true"}
			}
			if c.request.Mandatory {
				r := catalog.Release("")
				r.Spec.Channels, r.Spec.Mandatory = nil, &v1beta2.MandatoryVersion{Version: "2.0.0"}
			}
			c.request.Module, c.request.Channel, c.request.Installed = "sample", "regular", "1.0.0"
			c.request.ManifestVersion = cmp.Or(c.request.ManifestVersion, "1.0.0")
			d := Resolve(catalog, c.request)
			is := d.Next
			if d.Blocker != nil {
				is = d.Blocker.Code
				if !d.Blocker.KeepInstalled {
					t.Errorf("%s removes the module: %s", is, d.Blocker.Message)
				}
			}
			if is != c.want {
				t.Errorf("got %q, want %q", is, c.want)
			}
		})
	}
}

func TestGoesBack(t *testing.T) {
	for name, c := range map[string]struct{ back, to, want string }{
		"Declared":   {">=1.4.0 <1.5.0", "1.4.2", ""},
		"Exactly":    {"1.4.2", "1.4.2", ""},
		"Outside":    {">=1.4.0 <1.5.0", "1.3.0", "is not in this range"},
		"Undeclared": {"", "1.4.2", "does not declare"},
		"Itself":     {">=1.0.0", "1.5.0", "is not lower"},
		"Upwards":    {">=1.0.0", "2.0.0", "is not lower"},
		"Invalid":    {"some", "1.4.2", "is not a range"},
		"BadVersion": {">=1.0.0", "v1", "is not lower"},
	} {
		t.Run(name, func(t *testing.T) {
			catalog := versions("1.5.0")
			catalog.Template("sample-1.5.0").Spec.Upgrade = &v1beta2.ModuleUpgrade{Back: c.back}
			err := catalog.CheckGoingBack("sample", "1.5.0", c.to)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestGoesBackWithoutTemplate(t *testing.T) {
	catalog := versions("1.5.0")
	if err := catalog.CheckGoingBack("sample", "1.6.0", "1.5.0"); err == nil {
		t.Error("a version without a template goes back")
	}
}

// TestBack checks that the version of a module becomes lower only by a rollout that moves the runtime back. A rollout
// back ignores maintenance windows only for a module that does not work.
func TestBack(t *testing.T) {
	catalog := versions("2.0.0", "1.0.0")
	catalog.Template("sample-1.0.0").Spec.RequiresDowntime = true
	w := Request{Module: "sample", Channel: "regular", Installed: "2.0.0", ManifestVersion: "2.0.0"}
	code := func(isBack bool, w Request) string {
		catalog.Turn = func(*v1beta2.ModuleReleaseMeta, Request) Turn { return Turn{Version: "1.0.0", IsBack: isBack} }
		if d := Resolve(catalog, w); d.Blocker != nil {
			return d.Blocker.Code
		}
		return ""
	}
	failing := w
	failing.IsFailing = true
	restored := failing
	restored.IsRestored = true
	for name, c := range map[string]struct{ is, want string }{
		"by a move":          {code(false, w), v1beta2.ReasonDowngradeRefused},
		"by a move, failing": {code(false, failing), v1beta2.ReasonDowngradeRefused},
		"taken back":         {code(true, w), v1beta2.ReasonWindowUnknown},
		"rescued":            {code(true, failing), ""},
		"by an old backup":   {code(true, restored), v1beta2.ReasonRestoredOlder},
	} {
		if c.is != c.want {
			t.Errorf("%s: %q, want %q", name, c.is, c.want)
		}
	}
}

// TestRisks covers rule 15.
func TestRisks(t *testing.T) {
	for name, c := range map[string]struct {
		when    string
		w       Request
		blocked bool
		text    string
	}{
		"Hit": {`labels["region"] == "eu"`, Request{Labels: map[string]string{"region": "eu"}}, true,
			"it is slow (https://"},
		"NotHit": {`labels["region"] == "eu"`, Request{Labels: map[string]string{"region": "us"}}, false, ""},
		"Unknown": {`labels["region"] == "eu"`, Request{}, true,
			"cannot be evaluated for this runtime: no such key"},
		"Asked": {`"region" in labels && labels["region"] == "eu"`, Request{}, false, ""},
		"Region": {`region == "eu-1" && plan != "free"`, Request{Labels: map[string]string{v1beta2.LabelRegion: "eu-1",
			v1beta2.LabelBrokerPlanName: "aws"}}, true, "it is slow"},
		"OtherRegion": {`region == "eu-1"`, Request{Labels: map[string]string{v1beta2.LabelRegion: "us-1"}}, false, ""},
		"NoRegion": {`platformRegion == "cf-eu10"`, Request{Labels: map[string]string{v1beta2.LabelRegion: "eu-1"}}, true,
			"cannot be evaluated for this runtime: no such attribute(s): platformRegion"},
		"Version":    {`installed.startsWith("1.")`, Request{Installed: "1.0.0"}, true, "it is slow"},
		"Present":    {`true`, Request{Installed: "2.0.0"}, false, ""},
		"UnderWay":   {`true`, Request{Installed: "1.0.0", ManifestVersion: "2.0.0"}, false, ""},
		"NotCEL":     {`labels.region is eu`, Request{}, true, "is not a valid CEL expression"},
		"NotABool":   {`kyma`, Request{}, true, "is not true or false"},
		"OtherFacts": {`k8s.minr < 31`, Request{}, true, "undeclared reference"},
		"OldKubernetes": {`k8s.minor < 31 && provider == "AWS"`, Request{KubernetesVersion: "v1.30.4+k3s1",
			Labels: map[string]string{v1beta2.LabelProvider: "AWS"}}, true, "it is slow"},
		"NewKubernetes": {`k8s.major == 1 && k8s.minor < 31`, Request{KubernetesVersion: "v1.31.0"}, false, ""},
		"NoKubernetes": {`k8s.minor < 31`, Request{}, true,
			"cannot be evaluated for this runtime: no such attribute(s): k8s.minor"},
		"StrangeKubernetes": {`k8s.minor < 31`, Request{KubernetesVersion: "v1.99999999999"}, true, "no such attribute"},
		"NotANumber":        {`k8s.minor < "31"`, Request{KubernetesVersion: "v1.31.0"}, true, "no matching overload"},
		"Endless": {`[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, ` +
			`[1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, a+b+c+d+e > 0)))))`, Request{}, true, "cost limit"},
	} {
		t.Run(name, func(t *testing.T) {
			catalog := versions("1.0.0", "2.0.0")
			u := &v1beta2.ModuleUpgrade{Risks: []v1beta2.UpgradeRisk{{Name: "Slow", When: c.when, Message: "it is slow",
				URL: "https://example.com/slow"}}}
			catalog.Template("sample-2.0.0").Spec.Upgrade = u
			c.w.Module, c.w.Channel, c.w.Kyma = "sample", "regular", "runtime-a"
			d := Resolve(catalog, c.w)
			if d.Blocker == nil {
				if c.blocked {
					t.Error("it is not blocked")
				}
				return
			}
			if !c.blocked || d.Blocker.Code != v1beta2.ReasonKnownRisk || !strings.Contains(d.Blocker.Message,
				c.text) ||
				len(d.Blocker.Message) > 2000 {
				t.Errorf("blocker %+v", d.Blocker)
			}
			if isValid := ValidateUpgradeRangesAndRisks(u) == nil; isValid != (name != "NotCEL" && name != "NotABool" &&
				name != "OtherFacts" && name != "NotANumber") {
				t.Errorf("valid: %v", isValid)
			}
		})
	}
}

func FuzzRange(f *testing.F) {
	f.Add("1.0.0", ">=1.0.0 <2.0.0 || ~3.1")
	f.Add("1.0.0-rc", "^1.x")
	f.Fuzz(func(t *testing.T, version, text string) {
		is, err := IsInRange(version, text[:min(len(text), 256)])
		if is && err != nil {
			t.Error("in the range, and an error")
		}
	})
}

// BenchmarkSteps resolves a version that can be reached through any of 100 other versions. The manager spends the
// measured time once for each runtime that follows the channel.
func BenchmarkSteps(b *testing.B) {
	entries := []string{"1.0.0"}
	for i := range 100 {
		entries = append(entries, fmt.Sprintf("1.%d.0|>=1.%d.0", i+1, max(0, i-9)))
	}
	catalog := versions(entries...)
	for b.Loop() {
		d := Resolve(catalog, Request{Kyma: "runtime", Module: "sample", Channel: "regular", Installed: "1.0.0",
			ManifestVersion: "1.0.0"})
		if d.Version == "" {
			b.Fatal(d)
		}
	}
}
