package restored

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
)

// at returns a time that is the given number of minutes after the beginning of the tests.
func at(minutes int) metav1.Time {
	return metav1.NewTime(time.Date(2026, time.November, 23, 9, minutes, 0, 0, time.UTC))
}

// change returns a change of a module that began at the given time. The change ended one minute after its start. If the
// parameter open is given, the change has not ended yet.
func change(version string, started int, open ...bool) v1beta2.ModuleChange {
	c := v1beta2.ModuleChange{Version: version, Started: at(started), Outcome: v1beta2.StateReady}
	if len(open) == 0 {
		c.Ended = at(started + 1)
	}
	return c
}

// entry returns the status entry of the module in these tests.
func entry(version string, state v1beta2.State, history ...v1beta2.ModuleChange) *v1beta2.ModuleStatus {
	return &v1beta2.ModuleStatus{Name: "m", Version: version, State: state, History: history}
}

// kymaWith returns a Kyma whose status has the given entry and the given time of its last operation. If the parameter e
// is nil and the parameter updated is 0, the Kyma has no status.
func kymaWith(e *v1beta2.ModuleStatus, updated int) *v1beta2.Kyma {
	k := &v1beta2.Kyma{}
	if e != nil {
		k.Status.Modules = []v1beta2.ModuleStatus{*e}
	}
	if updated > 0 {
		k.Status.State, k.Status.LastOperation.LastUpdateTime = v1beta2.StateReady, at(updated)
	}
	return k
}

// manifestWith returns a Manifest that requests one version while another version is installed. If no version is
// installed, the Manifest has no status.
func manifestWith(requested, installed string) *v1beta2.Manifest {
	m := &v1beta2.Manifest{}
	m.Name, m.Labels = "manifest", map[string]string{v1beta2.LabelModuleName: "m"}
	m.Spec.Version = requested
	if installed != "" {
		m.Status.Version, m.Status.State = installed, v1beta2.StateReady
		m.Status.Synced = []v1beta2.Resource{{Kind: "ConfigMap", Name: "x"}}
	}
	return m
}

func TestFind(t *testing.T) {
	ready, first, second := v1beta2.StateReady, change("1.0.0", 1), change("2.0.0", 3)
	older, newer := entry("1.0.0", ready, first), entry("2.0.0", ready, first, second)
	unmanaged := manifestWith("1.0.0", "1.0.0")
	unmanaged.Annotations = map[string]string{v1beta2.AnnotationIsUnmanaged: v1beta2.ValueTrue}
	type kyma = *v1beta2.Kyma
	cases := map[string]struct {
		reason       string
		kyma, remote kyma
		manifest     *v1beta2.Manifest
		want         string // the version; "" if nothing was lost
	}{
		"Unchanged":  {"the normal case", kymaWith(older, 2), kymaWith(older, 2), manifestWith("1.0.0", "1.0.0"), ""},
		"NewRuntime": {"a new Kyma in a new runtime", kymaWith(nil, 0), nil, nil, ""},
		"NotPublished": {"the control plane is ahead after a crash before the copy", kymaWith(newer, 4), kymaWith(older, 2),
			manifestWith("2.0.0", "2.0.0"), ""},
		"Installing": {"a Manifest that was created a moment ago has no status", kymaWith(entry("1.0.0",
			v1beta2.StateProcessing, change("1.0.0", 1, true)), 1), kymaWith(nil, 1), manifestWith("1.0.0", ""), ""},
		"Downgraded": {"by permission, and the copy was not written yet",
			kymaWith(entry("1.0.0", ready, first, second, change("1.0.0", 5)), 6), kymaWith(newer, 4),
			manifestWith("1.0.0", "1.0.0"), ""},
		"Disabled": {"the Manifest was deleted, its entry is next", kymaWith(entry("1.0.0", v1beta2.StateDeleting,
			first), 2), kymaWith(older, 2), nil, ""},
		"HandedOver": {"the objects belong to the user", kymaWith(older, 2),
			kymaWith(entry("2.0.0", v1beta2.StateUnmanaged, first, second), 4), unmanaged, ""},
		"NeverInstalled": {"the module was not found", kymaWith(nil, 1), kymaWith(entry("", v1beta2.StateWarning), 4),
			nil, ""},

		"Older": {"a backup with statuses", kymaWith(older, 2), kymaWith(newer, 4), manifestWith("1.0.0", "1.0.0"),
			"2.0.0"},
		"OlderAfterError": {"the first reconcile after the restore has failed, so the time is of no use",
			kymaWith(older, 9), kymaWith(newer, 4), manifestWith("1.0.0", "1.0.0"), "2.0.0"},
		"OlderSameSecond": {"times have no fractions", kymaWith(entry("1.0.0", ready, change("1.0.0", 3)), 3),
			kymaWith(entry("2.0.0", ready, change("1.0.0", 3), second), 3), manifestWith("1.0.0", "1.0.0"), "2.0.0"},
		"OlderKyma": {"the Manifest was saved after the Kyma, and is complete", kymaWith(older, 2), kymaWith(newer, 4),
			manifestWith("2.0.0", "2.0.0"), ""},
		"OlderLower": {"the runtime was downgraded after the backup", kymaWith(entry("2.0.0", ready, second), 4),
			kymaWith(entry("1.0.0", ready, second, change("1.0.0", 6)), 7), manifestWith("2.0.0", "2.0.0"), "1.0.0"},
		"OlderPartial": {"an upgrade that was not complete may have changed objects", kymaWith(older, 2),
			kymaWith(entry("1.0.0", v1beta2.StateProcessing, first, change("2.0.0", 3, true)), 3),
			manifestWith("1.0.0", "1.0.0"), "2.0.0"},
		"OlderPartialDown": {"likewise a downgrade", kymaWith(newer, 4), kymaWith(entry("2.0.0",
			v1beta2.StateProcessing, second, change("1.0.0", 6, true)), 6), manifestWith("2.0.0", "2.0.0"), "2.0.0"},
		"SpecsOnly": {"a backup without statuses", kymaWith(nil, 0), kymaWith(newer, 4), manifestWith("1.0.0", ""),
			"2.0.0"},
		"SpecsOnlySame": {"of the same version: the inventory is lost", kymaWith(nil, 0), kymaWith(newer, 4),
			manifestWith("2.0.0", ""), "2.0.0"},
		"KymaOnly":        {"the module was enabled after the backup", kymaWith(nil, 1), kymaWith(newer, 4), nil, "2.0.0"},
		"ManifestMissing": {"the rest is up to date", kymaWith(newer, 4), kymaWith(newer, 4), nil, "2.0.0"},
		"ManifestWithoutStatus": {"the rest is up to date", kymaWith(newer, 4), kymaWith(newer, 4),
			manifestWith("2.0.0", ""), "2.0.0"},
		"ManifestMissingRemote": {"the Kyma in the runtime was deleted, too", kymaWith(newer, 4), nil, nil, "2.0.0"},
		"MandatoryUnknown": {"a manager of before has recorded no entry", kymaWith(nil, 0), kymaWith(nil, 4), manifestWith("1.0.0", ""),
			v1beta2.VersionUnknown},
		"MandatoryNew": {"it was created a moment ago", kymaWith(nil, 4), kymaWith(nil, 4), manifestWith("1.0.0", ""), ""},
		"MandatorySame": {"the usual case", mandatoryWith("2.0.0", second, 4), mandatoryWith("2.0.0", second, 4),
			manifestWith("2.0.0", "2.0.0"), ""},
		"MandatoryOlder": {"a backup with statuses", mandatoryWith("1.0.0", first, 2),
			mandatoryWith("2.0.0", second, 4), manifestWith("1.0.0", "1.0.0"), "2.0.0"},
		"MandatorySpecsOnly": {"a backup without statuses", kymaWith(nil, 0), mandatoryWith("2.0.0", second, 4),
			manifestWith("1.0.0", ""), "2.0.0"},
		"MandatoryMissing": {"its Manifest was lost", mandatoryWith("1.0.0", first, 2),
			mandatoryWith("2.0.0", second, 4), nil, "2.0.0"},
		"MandatoryAhead": {"the status was saved, but not copied", mandatoryWith("2.0.0", second, 4),
			mandatoryWith("1.0.0", first, 2), manifestWith("2.0.0", "2.0.0"), ""},

		"EarlierManager": {"the entries have no history, the times decide", kymaWith(entry("1.0.0", ready), 2),
			kymaWith(entry("2.0.0", ready), 4), manifestWith("1.0.0", "1.0.0"), "2.0.0"},
		"EarlierManagerAhead": {"the copy is older", kymaWith(entry("1.0.0", ready), 5),
			kymaWith(entry("2.0.0", ready), 4), manifestWith("1.0.0", "1.0.0"), ""},
		"Tampered": {"the admin of the runtime can write anything there", kymaWith(older, 2),
			kymaWith(entry("x", ready, change("<b>", 8)), 9), manifestWith("1.0.0", "1.0.0"), ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			manifests := map[string]*v1beta2.Manifest{}
			if c.manifest != nil {
				manifests["manifest"] = c.manifest
			}
			got := ""
			for _, lost := range FindLost(c.kyma, c.remote, manifests, false) {
				got += lost.Version
				if lost.Manifest != c.manifest {
					t.Errorf("%s: found another Manifest: %v", c.reason, lost.Manifest)
				}
			}
			if got != c.want {
				t.Errorf("%s: got %q, want %q", c.reason, got, c.want)
			}
		})
	}
}

// TestFindInOtherCluster checks a Kyma that takes another cluster over than the one that it has used until then. The
// version in that cluster counts, although the Kyma was changed later. Without a take-over, nothing is lost.
func TestFindInOtherCluster(t *testing.T) {
	ready := v1beta2.StateReady
	cases := map[string]struct {
		reason   string
		remote   *v1beta2.Kyma
		manifest string // the version of the Manifest
		want     string // the version; "" if nothing was lost
	}{
		"Higher": {"it must not be downgraded", kymaWith(entry("2.0.0", ready, change("2.0.0", 3)), 4), "1.9.0",
			"2.0.0"},
		"Same": {"the inventory is that of the former cluster", kymaWith(entry("1.9.0", ready, change("1.9.0", 3)), 4),
			"1.9.0", "1.9.0"},
		"Mandatory": {"a mandatory module of the other owner", mandatoryWith("2.0.0", change("2.0.0", 3), 4), "1.9.0",
			"2.0.0"},
		"Missing": {"the other cluster does not have it", kymaWith(nil, 4), "1.9.0", ""},
		"New":     {"the other cluster was never used", nil, "1.9.0", ""},
		"HandedOver": {"it belongs to the user", kymaWith(entry("2.0.0", v1beta2.StateUnmanaged, change("2.0.0", 3)),
			4), "1.9.0", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			kyma := kymaWith(entry("1.9.0", ready, change("1.9.0", 6)), 7)
			manifests := map[string]*v1beta2.Manifest{"manifest": manifestWith(c.manifest, c.manifest)}
			got := ""
			for _, lost := range FindLost(kyma, c.remote, manifests, true) {
				got += lost.Version
			}
			if got != c.want {
				t.Errorf("%s: got %q, want %q", c.reason, got, c.want)
			}
			if lost := FindLost(kyma, c.remote, manifests, false); len(lost) > 0 {
				t.Errorf("in the same cluster: %+v is lost, want nothing", lost)
			}
		})
	}
}

// TestFindMandatory checks that FindLost returns a mandatory module whose Manifest is lost, whether or not its
// ModuleReleaseMeta is lost, too. With the Manifest, the objects of the module in the runtime do not count as orphans.
func TestFindMandatory(t *testing.T) {
	remote := mandatoryWith("2.0.0", change("2.0.0", 3), 4)
	lost := FindLost(kymaWith(nil, 1), remote, nil, false)
	if len(lost) != 1 || !lost[0].IsMandatory {
		t.Fatalf("got %v, want the mandatory module", lost)
	}
	if m := newManifestWithoutSources(kymaWith(nil, 1), lost[0]); !m.IsMandatory() {
		t.Errorf("got labels %v, want those of a mandatory module", m.Labels)
	}
	k := kymaWith(nil, 1)
	setMandatoryEntry(k, lost[0].Entry)
	if diff := cmp.Diff(remote.Status.MandatoryModules, k.Status.MandatoryModules); diff != "" {
		t.Errorf("entry -runtime +control plane:\n%s", diff)
	}
}

// mandatoryWith returns a Kyma whose status has a mandatory module. The parameter at sets the time at which the status
// was updated.
func mandatoryWith(version string, last v1beta2.ModuleChange, at int) *v1beta2.Kyma {
	k := kymaWith(nil, at)
	k.Status.MandatoryModules = []v1beta2.MandatoryModuleStatus{{Name: "m", Version: version,
		OCMComponentName: "example.com/module/m", LastChange: &last}}
	return k
}

// TestNewManifest checks that a lost Manifest is created with its former name and with the custom resource of the
// module.
func TestNewManifest(t *testing.T) {
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "a", UID: "u"}}
	e := entry("2.0.0", v1beta2.StateReady)
	e.FQDN = "example.com/module/m"
	e.Resource = &v1beta2.ObjectReference{APIVersion: "example.com/v1", Kind: "Sample",
		Metadata: v1beta2.ObjectReferenceMeta{Name: "sample", Namespace: "kyma-system"}}
	m := newManifestWithoutSources(k, Module{Name: "m", Version: "2.0.0", Entry: e})
	if want := v1beta2.ManifestName("a", "example.com/module/m", "m"); m.Name != want || m.Spec.Version != "" ||
		m.Annotations[v1beta2.AnnotationRuntimeVersion] != "2.0.0" {
		t.Errorf("got %s with version %q and %v, want %s", m.Name, m.Spec.Version, m.Annotations, want)
	}
	want := map[string]any{"apiVersion": "example.com/v1", "kind": "Sample",
		"metadata": map[string]any{"name": "sample", "namespace": "kyma-system"}}
	if diff := cmp.Diff(want, m.Spec.Resource.Object); diff != "" {
		t.Errorf("custom resource -want +got:\n%s", diff)
	}
	if former, set := m.Annotations[ownership.AnnotationFormerInstallation]; set {
		t.Errorf("the runtime was not taken over, and the former installation is %q", former)
	}
	taken := newManifestWithoutSources(k, Module{Name: "m", Version: "2.0.0", Entry: e, FormerKyma: "other/z"})
	former := "other/" + v1beta2.ManifestName("z", "example.com/module/m", "m")
	if got := taken.Annotations[ownership.AnnotationFormerInstallation]; got != former || taken.Name != m.Name {
		t.Errorf("taken over from a Kyma with another name: got %s of %q, want %s of %q", taken.Name, got, m.Name,
			former)
	}
	setEntryWithManifestRef(k, e, m)
	e = k.ModuleStatus("m")
	e.FQDN = "example.com/renamed/m"
	if again := newManifestWithoutSources(k, Module{Name: "m", Version: "2.0.0", Entry: e}); again.Name != m.Name {
		t.Errorf("got %s, want the recorded name %s", again.Name, m.Name)
	}
}

// TestUnreported checks that WithoutReportedRemovals leaves out exactly the modules that have left the status while the
// inventory of their new Manifest was still empty.
func TestUnreported(t *testing.T) {
	manifest := func(objects int) map[string]*v1beta2.Manifest {
		m := &v1beta2.Manifest{}
		m.Name, m.Labels = "m", map[string]string{v1beta2.LabelModuleName: "keda"}
		m.Status.Synced = make([]v1beta2.Resource, objects)
		return map[string]*v1beta2.Manifest{"m": m}
	}
	with := func(names ...string) *v1beta2.Kyma {
		k := &v1beta2.Kyma{}
		for _, name := range names {
			k.Status.Modules = append(k.Status.Modules, v1beta2.ModuleStatus{Name: name})
		}
		return k
	}
	cases := map[string]struct {
		reason          string
		saved           *v1beta2.Kyma
		manifests       map[string]*v1beta2.Manifest
		previous, names []string
	}{
		"Lost":     {"the runtime has its objects", with("keda", "other"), manifest(1), []string{"keda", "other"}, nil},
		"NotYet":   {"the inventory is not known yet", with("keda"), manifest(0), []string{"keda", "other"}, []string{"keda"}},
		"Removed":  {"its removal was reported before", with("other"), nil, []string{"other"}, nil},
		"LostGone": {"the last reconcile with its Manifest", with(), manifest(2), []string{"keda", "other"}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := with("keda", "other").Status
			previous, names := WithoutReportedRemovals(&before, c.saved, c.manifests, []string{"keda"})
			var got []string
			for _, e := range previous.Modules {
				got = append(got, e.Name)
			}
			if !slices.Equal(got, c.previous) || !slices.Equal(names, c.names) || len(before.Modules) != 2 {
				t.Errorf("%s: got %v and %v, want %v and %v", c.reason, got, names, c.previous, c.names)
			}
		})
	}
}

// TestManifestRefFromRuntime checks that the status in the runtime does not choose the name of a new Manifest: its name
// could be that of the Manifest of another runtime.
func TestManifestRefFromRuntime(t *testing.T) {
	refTo := func(name string, e *v1beta2.ModuleStatus) *v1beta2.ModuleStatus {
		e.OCMComponentName = "example.com/module/m"
		e.Manifest = &v1beta2.ObjectReference{Metadata: v1beta2.ObjectReferenceMeta{Name: name}}
		return e
	}
	remote := kymaWith(refTo("runtime-b-keda-1", entry("2.0.0", v1beta2.StateReady, change("1.0.0", 1),
		change("2.0.0", 3))), 4)
	for name, c := range map[string]struct {
		reason string
		known  *v1beta2.ModuleStatus // in the control plane
		want   string
	}{
		"Unknown": {"the name follows from the component", nil,
			v1beta2.ManifestName("runtime-a", "example.com/module/m", "m")},
		"Older": {"the control plane has recorded the name", refTo("recorded", entry("1.0.0", v1beta2.StateReady,
			change("1.0.0", 1))), "recorded"},
	} {
		t.Run(name, func(t *testing.T) {
			k := kymaWith(c.known, 2)
			k.Name = "runtime-a"
			lost := FindLost(k, remote, nil, false)
			if len(lost) != 1 || lost[0].Version != "2.0.0" {
				t.Fatalf("got %+v, want the module with version 2.0.0", lost)
			}
			if got := newManifestWithoutSources(k, lost[0]).Name; got != c.want {
				t.Errorf("%s: got %s, want %s", c.reason, got, c.want)
			}
			if got := remote.Status.Modules[0].Manifest.Metadata.Name; got != "runtime-b-keda-1" {
				t.Errorf("the status that was read from the runtime is changed: %s", got)
			}
		})
	}
}

// TestWithoutUnknown checks that the status in the runtime makes only a few Manifests of modules that the control plane
// does not know, over any number of connections, and that no module that the control plane knows is left out.
func TestWithoutUnknown(t *testing.T) {
	invented := func(n int, prefix string) *v1beta2.Kyma {
		k := kymaWith(nil, 4)
		for i := range n {
			k.Status.MandatoryModules = append(k.Status.MandatoryModules, v1beta2.MandatoryModuleStatus{
				Name: fmt.Sprintf("%s-%03d", prefix, i), Version: "2.0.0", OCMComponentName: "example.com/module/m",
				LastChange: new(change("2.0.0", 3))})
		}
		return k
	}
	recreated := map[string]*v1beta2.Manifest{}
	for i := range maxUnknown {
		m := manifestWith("", "")
		m.Name, m.Labels = fmt.Sprint(i), map[string]string{v1beta2.LabelModuleName: fmt.Sprintf("a-%03d", i)}
		m.Annotations = map[string]string{v1beta2.AnnotationRuntimeVersion: "2.0.0"}
		recreated[m.Name] = m
	}
	none := func(string) bool { return false }
	cases := map[string]struct {
		reason            string
		kyma, remote      *v1beta2.Kyma
		manifests         map[string]*v1beta2.Manifest
		isKnown           func(string) bool
		allowed, exceeded int
	}{
		"Most":     {"the limit itself", kymaWith(nil, 1), invented(50, "a"), nil, none, 50, 0},
		"Invented": {"the admin of the runtime can write anything", kymaWith(nil, 1), invented(500, "a"), nil, none, 50, 450},
		"Next": {"a later connection, with other modules", kymaWith(nil, 1), invented(500, "b"), recreated, none, 0,
			500},
		"Same": {"the Manifests exist already, without a status", invented(50, "a"), invented(50, "a"), recreated, none,
			50, 0},
		"Catalog": {"without their Manifests, these modules could be downgraded", kymaWith(nil, 1), invented(500, "a"),
			recreated, func(string) bool { return true }, 500, 0},
		"Recorded": {"the control plane has their entries", invented(500, "a"), invented(500, "a"), nil, none, 500, 0},
		"Some": {"known modules do not count", kymaWith(nil, 1), invented(60, "a"), nil,
			func(module string) bool { return module < "a-010" }, 60, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			allowed, err := WithoutUnknown(FindLost(c.kyma, c.remote, c.manifests, false), c.manifests, c.isKnown)
			exceeded := 0
			if e, is := errors.AsType[*TooManyUnknownError](err); is {
				exceeded = len(e.Modules)
			}
			if len(allowed) != c.allowed || exceeded != c.exceeded || (err != nil) != (c.exceeded > 0) {
				t.Errorf("%s: %d are allowed and %d exceed the limit, want %d and %d; %v", c.reason, len(allowed),
					exceeded, c.allowed, c.exceeded, err)
			}
		})
	}
	err := &TooManyUnknownError{Modules: []string{"a\x1b[31m\n", strings.Repeat("b", 1<<20), "c", "d", "e", "f", "g"}}
	if got := err.Error(); len(got) > 1024 || strings.ContainsAny(got, "\x1b\n") ||
		!strings.Contains(got, "d, e, 2 more: nothing is") || err.Reason() != v1beta2.ReasonRuntimeKymaInvalid {
		t.Errorf("reason %s, %d bytes: %.600q", err.Reason(), len(got), got)
	}
}
