package channel

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// TestDeferral checks that an admin can defer an update as long as the rollout allows that.
func TestDeferral(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	limit := now.Add(72 * time.Hour)
	template := func(v string) *v1beta2.ModuleTemplate {
		return &v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "sample-" + v},
			Spec: v1beta2.ModuleTemplateSpec{ModuleName: "sample", Version: v}}
	}
	release := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Name: "sample"},
		Spec: v1beta2.ModuleReleaseMetaSpec{ModuleName: "sample", OCMComponentName: "example.com/sample",
			Channels: []v1beta2.ChannelVersion{{Channel: "regular", Version: "2.0.0"}}}}
	for name, c := range map[string]struct {
		reason  string
		value   string
		request func(*Request)
		turn    func(*Turn)
		code    string
		until   time.Time
		text    string
	}{
		"None": {reason: "nothing is deferred"},
		"Date": {reason: "a day in UTC", value: "2026-12-03", code: "UpdateDeferred",
			until: time.Date(2026, 12, 3, 0, 0, 0, 0, time.UTC), text: "klm module defer sample --clear"},
		"Time": {reason: "a time", value: "2026-12-01T15:00:00+02:00", code: "UpdateDeferred",
			until: now.Add(time.Hour)},
		"Past": {reason: "it is over", value: "2026-12-01"},
		"Now":  {reason: "it ends now", value: "2026-12-01T12:00:00Z"},
		"TooLate": {reason: "no longer than allowed", value: "2027-01-01", code: "UpdateDeferred", until: limit,
			text: "the RolloutPolicy allows that until 2026-12-04T12:00:00Z only"},
		"Unreadable": {reason: "until when is not known", value: "after christmas", code: "DeferralInvalid",
			until: limit, text: `"after christmas" is neither a date`},
		"Expired": {reason: "the time of the policy is over", value: "2027-01-01", turn: func(t *Turn) {
			t.DeferUntil = now
		}},
		"ExpiredUnreadable": {reason: "the time of the policy is over", value: "?", turn: func(t *Turn) {
			t.DeferUntil = now.Add(-time.Hour)
		}},
		"NotAllowed": {reason: "the policy has no maxDeferral", value: "2027-01-01", turn: func(t *Turn) {
			t.DeferUntil = time.Time{}
		}},
		"Emergency": {reason: "an emergency keeps the promise, even if it ignores windows", value: "2027-01-01",
			code: "UpdateDeferred", until: limit, turn: func(t *Turn) { t.IgnoreWindows = true }},
		"Begun": {reason: "what has begun finishes", value: "2027-01-01", request: func(r *Request) {
			r.ManifestVersion = "2.0.0"
		}},
		"New": {reason: "a new module has no version", value: "2027-01-01", request: func(r *Request) {
			r.Installed, r.ManifestVersion = "", ""
		}},
		"Same": {reason: "there is no update", value: "2027-01-01", turn: func(t *Turn) { t.Version = "1.0.0" }},
		"Back": {reason: "a bad version is taken back", value: "2027-01-01", request: func(r *Request) {
			r.Installed, r.ManifestVersion = "3.0.0", "3.0.0"
		}, turn: func(t *Turn) { t.IsBack = true }},
	} {
		t.Run(name, func(t *testing.T) {
			turn := Turn{Version: "2.0.0", DeferUntil: limit}
			if c.turn != nil {
				c.turn(&turn)
			}
			catalog := Catalog{Release: func(string) *v1beta2.ModuleReleaseMeta { return release },
				Template: func(name string) *v1beta2.ModuleTemplate {
					return template(strings.TrimPrefix(name, "sample-"))
				}, Turn: func(*v1beta2.ModuleReleaseMeta, Request) Turn { return turn }}
			k := &v1beta2.Kyma{}
			if c.value != "" {
				k.Annotations = map[string]string{v1beta2.AnnotationNotBeforeModulePrefix + "sample": c.value}
			}
			r := RequestFor(&v1beta2.Kyma{}, k, &v1beta2.Module{Name: "sample"})
			r.Installed, r.ManifestVersion, r.Now = "1.0.0", "1.0.0", now
			if c.request != nil {
				c.request(&r)
			}
			b := Resolve(catalog, r).Blocker
			if c.code == "" {
				if b != nil {
					t.Errorf("%s: %s: %v", c.reason, b.Code, b)
				}
				return
			}
			if b == nil || b.Code != c.code || !b.Until.Equal(c.until) || !strings.Contains(b.Message, c.text) ||
				!b.KeepInstalled {
				t.Errorf("%s: %+v, want %s until %s with %q", c.reason, b, c.code, c.until, c.text)
			}
		})
	}
}

// TestDeferrals checks two things: which of several annotations defers a module, and which annotations of a runtime's
// Kyma the control plane stores.
func TestDeferrals(t *testing.T) {
	const all, one = v1beta2.AnnotationNotBefore, v1beta2.AnnotationNotBeforeModulePrefix + "sample"
	set := func(pairs ...string) *v1beta2.Kyma {
		k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"other": "x"}}}
		for i := 0; i < len(pairs); i += 2 {
			k.Annotations[pairs[i]] = pairs[i+1]
		}
		return k
	}
	sample := &v1beta2.Module{Name: "sample"}
	for name, c := range map[string]struct {
		here, remote *v1beta2.Kyma
		want         string
	}{
		"All":    {set(), set(all, "2026-12-01"), "2026-12-01"},
		"Module": {set(), set(all, "2026-12-01", one, " 2026-12-02 "), "2026-12-02"},
		"Ended":  {set(), set(all, "2026-12-01", one, ""), ""},
		"Here":   {set(all, "2026-12-03"), set(), "2026-12-03"},
		"Long":   {set(), set(all, strings.Repeat("2", 1000)), strings.Repeat("2", 64)},
	} {
		if got := RequestFor(c.here, c.remote, sample).NotBefore; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := DeferralAnnotations(set()); got != nil {
		t.Errorf("without deferrals: %v", got)
	}
	want := map[string]string{all: "a", one: "b"}
	if diff := cmp.Diff(want, DeferralAnnotations(set(all, "a", one, "b"))); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	stored := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		v1beta2.AnnotationLastRequest: `{"channel":"fast","deferrals":{"` + all + `":"a"}}`}}}
	if k := LastRuntimeKymaOf(stored); k.Spec.Channel != "fast" || k.Annotations[all] != "a" {
		t.Errorf("the last Kyma is %+v", k)
	}
}
