package calendar

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
)

// now is a Friday.
var now = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// maintenance has two weekly windows, one in each region. The policy has one window for the region "over" and one for
// the region "far"; neither of these windows repeats. The window of "over" has ended, and the window of "far" is next
// year. Other regions have no window.
const maintenance = `{"rules":[
	{"match":{"region":"eu"},"windows":[{"days":["Sat"],"begin":"02:00:00","end":"06:00:00","timeZone":"Europe/Berlin"}]},
	{"match":{"region":"us"},"windows":[{"days":["Sat","Sun"],"begin":"22:30:00Z","end":"01:00:00Z"},
		{"days":["Sat"],"begin":"23:00:00Z","end":"03:00:00Z"}]},
	{"match":{"region":"over"},"windows":[{"begin":"2026-11-03T02:00:00Z","end":"2026-11-03T06:00:00Z"}]},
	{"match":{"region":"far"},"windows":[{"begin":"2027-05-03T02:00:00Z","end":"2027-05-03T06:00:00Z"}]}]}`

func policyOf(t *testing.T, text string) *channel.Policy {
	t.Helper()
	p, err := channel.ParsePolicy([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p.MinRemaining = 20 * time.Minute
	return p
}

func monthOf(t *testing.T, name, zone string) Month {
	t.Helper()
	in, err := Zone(zone)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Parse(name, in, now)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// fleet returns n runtimes in each of the regions in the parameter regions. Runtimes in the region named any need no
// maintenance window.
func fleet(n int, regions ...string) []Runtime {
	var all []Runtime
	for _, region := range regions {
		for i := range n {
			all = append(all, Runtime{Name: fmt.Sprintf("%s-%d", region, i), SkipWindows: region == "any",
				Labels: map[string]string{v1beta2.LabelRegion: region}})
		}
	}
	return all
}

// texts returns one line of text for each day of a calendar that has an open window.
func texts(c *Calendar) []string {
	var all []string
	for i := range c.Days {
		line := c.Days[i].Date
		for _, s := range c.Days[i].SpansOfEqualRuntimes() {
			line += fmt.Sprintf(" %02d-%02d:%d", s.From, s.To, s.Runtimes)
		}
		if len(c.Days[i].Hours) > 0 {
			all = append(all, line)
		}
	}
	return all
}

// TestWindows checks that a runtime is counted in each hour in which its update could start, and that no runtime is
// left out of the calendar.
func TestWindows(t *testing.T) {
	for name, c := range map[string]struct {
		reason      string
		month, zone string
		policy      string
		unknown     string
		runtimes    []Runtime
		want        []string
		counts      [4]int // windowed, any time, later, unresolved
		why         string // part of the first reason of unresolved
	}{
		"Europe": {reason: "an update may start until 20 minutes before the end", month: "2026-12",
			policy:   maintenance,
			runtimes: fleet(3, "eu"), counts: [4]int{3, 0, 0, 0},
			want: []string{"2026-12-05 01-05:3", "2026-12-12 01-05:3", "2026-12-19 01-05:3", "2026-12-26 01-05:3"}},
		"TimeZone": {reason: "in the zone of the windows", month: "2026-12", zone: "Europe/Berlin", policy: maintenance,
			runtimes: fleet(3, "eu"), counts: [4]int{3, 0, 0, 0},
			want: []string{"2026-12-05 02-06:3", "2026-12-12 02-06:3", "2026-12-19 02-06:3", "2026-12-26 02-06:3"}},
		"Overlap": {reason: "two windows of one runtime count once, and go on the next day", month: "2026-12",
			policy: maintenance, runtimes: fleet(2, "us"), counts: [4]int{2, 0, 0, 0},
			want: []string{"2026-12-05 22-24:2", "2026-12-06 00-03:2 22-24:2", "2026-12-07 00-01:2",
				"2026-12-12 22-24:2", "2026-12-13 00-03:2 22-24:2", "2026-12-14 00-01:2", "2026-12-19 22-24:2",
				"2026-12-20 00-03:2 22-24:2", "2026-12-21 00-01:2", "2026-12-26 22-24:2", "2026-12-27 00-03:2 22-24:2",
				"2026-12-28 00-01:2"}},
		"Stacked": {reason: "runtimes of several rules add up", month: "2026-12", policy: `{"rules":[
			{"match":{"region":"eu"},"windows":[{"days":["Tue"],"begin":"02:00:00Z","end":"04:00:00Z"}]},
			{"match":{"region":"us"},"windows":[{"days":["Tue"],"begin":"03:00:00Z","end":"05:00:00Z"}]}]}`,
			runtimes: fleet(2, "eu", "us"), counts: [4]int{4, 0, 0, 0},
			want: []string{"2026-12-01 02-03:2 03-04:4 04-05:2", "2026-12-08 02-03:2 03-04:4 04-05:2",
				"2026-12-15 02-03:2 03-04:4 04-05:2", "2026-12-22 02-03:2 03-04:4 04-05:2",
				"2026-12-29 02-03:2 03-04:4 04-05:2"}},
		"NoneDropped": {reason: "one that needs none, one whose window is over, one whose window is far, and one without",
			month: "2026-12", policy: maintenance, runtimes: fleet(2, "any", "over", "far", "none"),
			counts: [4]int{0, 2, 2, 4}, why: "no default"},
		"NoPolicy": {reason: "the manager would start no update that needs a downtime", month: "2026-12",
			runtimes: fleet(2, "eu", "any"), counts: [4]int{0, 2, 0, 2}, why: "there is no maintenance policy"},
		"NotReadable": {reason: "the caller may not read it", month: "2026-12", unknown: "you may not read ConfigMap x",
			runtimes: fleet(2, "eu"), counts: [4]int{0, 0, 0, 2}, why: "you may not read ConfigMap x"},
		"Nobody": {reason: "an empty fleet", month: "2026-12", policy: maintenance},
		"Forward": {reason: "clocks skip the hour from 2 to 3", month: "2026-03", zone: "Europe/Berlin",
			policy:   `{"default":{"days":["Sun"],"begin":"01:00:00","end":"04:00:00","timeZone":"Europe/Berlin"}}`,
			runtimes: fleet(1, "eu"), counts: [4]int{1, 0, 0, 0},
			want: []string{"2026-03-01 01-04:1", "2026-03-08 01-04:1", "2026-03-15 01-04:1", "2026-03-22 01-04:1",
				"2026-03-29 01-02:1 03-04:1"}},
		"Back": {reason: "the hour from 2 to 3 is there twice", month: "2026-10", zone: "Europe/Berlin",
			policy:   `{"default":{"begin":"2026-10-25T01:10:00Z","end":"2026-10-25T01:50:00Z"}}`,
			runtimes: fleet(1, "eu"), counts: [4]int{1, 0, 0, 0}, want: []string{"2026-10-25 02-03:1"}},
		"EndOfMonth": {reason: "a window over midnight is in both months", month: "2026-11",
			policy:   `{"default":{"begin":"2026-10-31T23:00:00Z","end":"2026-11-01T02:00:00Z"}}`,
			runtimes: fleet(1, "eu"), counts: [4]int{1, 0, 0, 0}, want: []string{"2026-11-01 00-02:1"}},
		"Short": {reason: "nothing can start in it", month: "2026-11",
			policy:   `{"default":{"days":["Mon"],"begin":"02:00:00Z","end":"02:20:00Z"}}`,
			runtimes: fleet(1, "eu"), counts: [4]int{0, 0, 0, 1}, why: "not longer than 20m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			in := Inputs{Now: now, Runtimes: c.runtimes, Unknown: c.unknown}
			if c.policy != "" {
				in.Maintenance = policyOf(t, c.policy)
			}
			got := Of(monthOf(t, c.month, c.zone), in)
			if diff := cmp.Diff(c.want, texts(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
			unresolved, why := 0, ""
			for i, u := range got.Unresolved {
				if unresolved += u.Runtimes; i == 0 {
					why = u.Reason
				}
			}
			if counts := [4]int{got.Windowed, got.AnyTime, got.Later, unresolved}; counts != c.counts ||
				!strings.Contains(why, c.why) {
				t.Errorf("%s: the counts are %v, want %v; unresolved because %q", c.reason, counts, c.counts, why)
			}
		})
	}
}

// TestHoursAreTheManagers checks with random policies, months and time zones that the calendar shows the same open
// windows as the manager uses. In each hour, the calendar must count the runtimes for which the manager's function
// CurrentOrNextWindow returns an open window. Each runtime is counted once.
func TestHoursAreTheManagers(t *testing.T) {
	days := []string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}
	zones := []string{"", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu",
		"America/Havana", "Pacific/Apia"}
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 7))
		clock := func() string {
			return fmt.Sprintf("%02d:%02d:00", random.IntN(24), 5*random.IntN(12))
		}
		var rules []string
		for i := range 1 + random.IntN(4) {
			var windows []string
			for range 1 + random.IntN(3) {
				windows = append(windows, fmt.Sprintf(`{"days":[%q,%q],"begin":%q,"end":%q,"timeZone":%q}`,
					days[random.IntN(7)], days[random.IntN(7)], clock(), clock(),
					[]string{"UTC", "Europe/Berlin", "America/Havana"}[random.IntN(3)]))
			}
			rules = append(rules, fmt.Sprintf(`{"match":{"region":"^r%d"},"windows":[%s]}`, i,
				strings.Join(windows, ",")))
		}
		policy := policyOf(t, `{"rules":[`+strings.Join(rules, ",")+`]}`)
		policy.MinRemaining = time.Duration(random.IntN(90)) * time.Minute
		runtimes := fleet(1+random.IntN(3), "r0", "r1", "r2", "r3", "any", "none")
		m := monthOf(t, fmt.Sprintf("2026-%02d", 1+random.IntN(12)), zones[random.IntN(len(zones))])
		c := Of(m, Inputs{Now: now, Maintenance: policy, Runtimes: runtimes})
		sum := c.Windowed + c.AnyTime + c.Later
		for _, u := range c.Unresolved {
			sum += u.Runtimes
		}
		if sum != len(runtimes) {
			t.Errorf("seed %d: %d of %d runtimes are counted", seed, sum, len(runtimes))
		}
		half := len(runtimes) / 2
		parts := Merge(m, []Part{{"a", Of(m, Inputs{Now: now, Maintenance: policy, Runtimes: runtimes[:half]})},
			{"b", Of(m, Inputs{Now: now, Maintenance: policy, Runtimes: runtimes[half:]})}})
		if d := cmp.Diff(c.Days, parts.Days); d != "" || c.Most != parts.Most || c.Windowed != parts.Windowed ||
			c.AnyTime != parts.AnyTime || c.Later != parts.Later {
			t.Errorf("seed %d: the fleet on two control planes differs: %s", seed, d)
		}
		counted := map[time.Time]int{}
		for i := range c.Days {
			for _, h := range c.Days[i].Hours {
				counted[h.Begins.UTC()] = h.Runtimes
			}
		}
		at := m.Begins
		for _, d := range daysOf(m) {
			for _, h := range d.Hours {
				if !h.Begins.Equal(at) {
					t.Fatalf("seed %d: hour %d of %s begins at %s, and the one before it ends at %s", seed, h.Hour, d.Date,
						h.Begins, at)
				}
				at = h.Ends
				want := 0
				for i := range runtimes {
					w, err := policy.CurrentOrNextWindow(runtimes[i].Labels, h.Begins)
					if err == nil && !runtimes[i].SkipWindows && w.Begin.Before(h.Ends) {
						want++
					}
				}
				if got := counted[h.Begins.UTC()]; got != want {
					t.Errorf("seed %d: %s %02d h has %d runtimes, want %d", seed, d.Date, h.Hour, got, want)
				}
			}
		}
		if !at.Equal(m.Ends) {
			t.Errorf("seed %d: the last hour of %s in %s ends at %s, want %s", seed, m.Name, m.TimeZone, at, m.Ends)
		}
	}
}

// TestParse checks names of months and of time zones.
func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		month, zone string
		hours       float64 // 0: refused
	}{
		"Empty": {"", "", 30 * 24}, "February": {"2028-02", "", 29 * 24},
		"Longer":  {"2026-10", "Europe/Berlin", 31*24 + 1},
		"Shorter": {"2026-03", "Europe/Berlin", 31*24 - 1}, "NoMonth": {"2026-13", "", 0},
		"Date":  {"2026-12-01", "", 0},
		"Words": {"december", "", 0}, "Year0": {"0000-01", "", 0}, "Zone": {"2026-12", "Europe/Nowhere", 0},
		"Local": {"2026-12", "Local", 0}, "Path": {"2026-12", "../../etc/passwd", 0},
		"SkippedMidnight": {"2011-12", "Pacific/Apia", 30 * 24},
	} {
		zone, err := Zone(c.zone)
		m := Month{}
		if err == nil {
			m, err = Parse(c.month, zone, now)
		}
		if got := m.Ends.Sub(m.Begins).Hours(); got != c.hours || (err != nil) != (c.hours == 0) {
			t.Errorf("%s: %v hours, %v, want %v", name, got, err, c.hours)
		}
	}
	if m := monthOf(t, "2026-12", ""); m.Next() != "2027-01" || m.Previous() != "2026-11" {
		t.Errorf("beside 2026-12 are %s and %s", m.Previous(), m.Next())
	}
}

// rolloutOf returns a rollout with two stages, the second of which is expected to begin on 5 December.
func rolloutOf(change func(*v1beta2.ModuleRollout)) *v1beta2.ModuleRollout {
	at := func(day, hour int) metav1.Time {
		return metav1.NewTime(time.Date(2026, 12, day, hour, 0, 0, 0, time.UTC))
	}
	r := &v1beta2.ModuleRollout{ObjectMeta: metav1.ObjectMeta{Name: "mod-regular-r2",
		CreationTimestamp: metav1.NewTime(now.Add(-48 * time.Hour))}}
	r.Spec = v1beta2.ModuleRolloutSpec{Module: "mod", Channel: "regular", From: "1.0.0", To: "2.0.0",
		Policy: "standard",
		State:  v1beta2.RolloutRunning, MaxDeferral: metav1.Duration{Duration: 14 * 24 * time.Hour},
		Stages: []v1beta2.ModuleRolloutStage{{RolloutStage: v1beta2.RolloutStage{Name: "canary"}},
			{RolloutStage: v1beta2.RolloutStage{Name: "rest"}}}}
	r.Status = v1beta2.ModuleRolloutStatus{Phase: v1beta2.RolloutSoaking,
		Stage: v1beta2.RolloutStageStatus{Name: "canary", StartedAt: metav1.NewTime(now.Add(-time.Hour))},
		Stages: []v1beta2.RolloutStageResult{{Name: "canary",
			RolloutCounts: v1beta2.RolloutCounts{InScope: 20, Proven: 20}},
			{Name: "rest", RolloutCounts: v1beta2.RolloutCounts{InScope: 180, Waiting: 180}, ExpectedBegin: at(5, 2),
				ExpectedEnd: at(12, 4)}}}
	if change != nil {
		change(r)
	}
	return r
}

func freeze(name string, from, to time.Time, except ...v1beta2.FreezeException) v1beta2.RolloutFreeze {
	return v1beta2.RolloutFreeze{Name: name, From: metav1.NewTime(from), To: metav1.NewTime(to), Except: except}
}

func policyWith(name string, freezes ...v1beta2.RolloutFreeze) v1beta2.RolloutPolicy {
	return v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta2.RolloutPolicySpec{Freezes: freezes}}
}

// TestStages checks that the calendar shows a stage in every month in which the stage begins, continues or ends, with
// the times in the status of its rollout.
func TestStages(t *testing.T) {
	december := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		reason   string
		month    string
		rollout  func(*v1beta2.ModuleRollout)
		policies []v1beta2.RolloutPolicy
		want     []string // stage state begins–ends runtimes, and why
	}{
		"Now": {reason: "the current stage has begun", month: "2026-11",
			want: []string{"canary Soaking 11-27 11h – 20"}},
		"Expected": {reason: "the next one is expected", month: "2026-12",
			want: []string{"rest later 12-05 02h 12-12 04h 180 expected"}},
		"NotThen": {reason: "it is over by then", month: "2027-01"},
		"Before":  {reason: "it was not made then", month: "2026-10"},
		"Unknown": {reason: "an approval has no time", month: "2026-12", rollout: func(r *v1beta2.ModuleRollout) {
			r.Status.Phase, r.Status.Message = v1beta2.RolloutWaitingForGate, "an approval is missing"
			r.Status.Stages[1].ExpectedBegin, r.Status.Stages[1].ExpectedEnd = metav1.Time{}, metav1.Time{}
		}, want: []string{"rest later – – 180: an approval is missing"}},
		"UnknownInThePast": {reason: "a month that is over", month: "2026-10", rollout: func(r *v1beta2.ModuleRollout) {
			r.Status.Stages[1].ExpectedBegin, r.Status.Stages[1].ExpectedEnd = metav1.Time{}, metav1.Time{}
		}},
		"Frozen": {reason: "the freeze holds it", month: "2026-12", policies: []v1beta2.RolloutPolicy{
			policyWith("standard", freeze("f", now.Add(-time.Hour), december.AddDate(0, 0, 3)))},
			want: []string{"rest later 12-05 02h 12-12 04h 180 expected: RolloutPolicy standard has the freeze f until " +
				"2026-12-04T00:00:00Z: nobody begins before"}},
		"Paused": {reason: "a person holds it", month: "2026-11", rollout: func(r *v1beta2.ModuleRollout) {
			r.Spec.State = v1beta2.RolloutPaused
		}, want: []string{"canary Soaking 11-27 11h – 20: a person has set its state to Paused"}},
		"Outstanding": {reason: "a stage has passed, and three runtimes wait for their windows", month: "2026-12",
			rollout: func(r *v1beta2.ModuleRollout) {
				r.Status.Stage.Index, r.Status.Stage.Name = 1, "rest"
				r.Status.Stages[0].Waiting = 3
				r.Status.Stages[0].ExpectedEnd = metav1.NewTime(december.AddDate(0, 0, 4))
			}, want: []string{"canary outstanding – 12-05 00h 20", "rest Soaking 11-27 11h 12-12 04h 180"}},
		"Ended": {reason: "the whole rollout", month: "2026-11", rollout: func(r *v1beta2.ModuleRollout) {
			r.Status.Phase, r.Status.EndedAt = v1beta2.RolloutCompleted, metav1.NewTime(now.Add(-time.Hour))
		}, want: []string{" Completed 11-25 12h 11-27 11h 0"}},
		"NoStages": {reason: "no policy is for it", month: "2026-11", rollout: func(r *v1beta2.ModuleRollout) {
			r.Spec.Stages, r.Status.Phase = nil, v1beta2.RolloutUpdating
		}, want: []string{" Running 11-25 12h – 0"}},
		"New": {reason: "the manager has not counted yet", month: "2026-11", rollout: func(r *v1beta2.ModuleRollout) {
			r.Status = v1beta2.ModuleRolloutStatus{}
		}, want: []string{"canary Pending – – 0", "rest later – – 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Of(monthOf(t, c.month, ""), Inputs{Now: now, Policies: c.policies,
				Rollouts: []*v1beta2.ModuleRollout{rolloutOf(c.rollout)}})
			var lines []string
			at := func(t time.Time) string {
				if t.IsZero() {
					return "–"
				}
				return t.UTC().Format("01-02 15h")
			}
			for _, s := range got.Stages {
				line := fmt.Sprintf("%s %s %s %s %d", s.Stage, s.State, at(s.Begins), at(s.Ends), s.Runtimes)
				if s.IsExpected {
					line += " expected"
				}
				if s.Why != "" {
					line += ": " + s.Why
				}
				lines = append(lines, line)
			}
			if diff := cmp.Diff(c.want, lines); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

// TestFreezes checks the freezes of the month, and the rollouts that they stop.
func TestFreezes(t *testing.T) {
	november := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	emergency := rolloutOf(func(r *v1beta2.ModuleRollout) {
		r.Name, r.Spec.Urgency = "mod-fast-r3", v1beta2.UrgencyEmergency
	})
	other := rolloutOf(func(r *v1beta2.ModuleRollout) { r.Name, r.Spec.Policy = "other-regular-r1", "other" })
	suspended := policyWith("zeta")
	suspended.Spec.Suspend = true
	in := Inputs{Now: now, Rollouts: []*v1beta2.ModuleRollout{rolloutOf(nil), emergency, other},
		Policies: []v1beta2.RolloutPolicy{policyWith("standard",
			freeze("year-end", now.AddDate(0, 0, 2), now.AddDate(0, 2, 0), v1beta2.ExceptEmergency),
			freeze("october", november.AddDate(0, 0, -20), november),
			freeze("past", november.AddDate(0, 0, -2), november.AddDate(0, 0, 2)),
			freeze("january", november.AddDate(0, 2, 0), november.AddDate(0, 3, 0))),
			policyWith("other", freeze("sale", now.Add(-time.Hour), now.Add(time.Hour))), suspended}}
	c := Of(monthOf(t, "2026-11", ""), in)
	want := []Freeze{
		{Policy: "standard", Name: "past", From: november.AddDate(0, 0, -2), To: november.AddDate(0, 0, 2),
			State: Past},
		{Policy: "other", Name: "sale", From: now.Add(-time.Hour), To: now.Add(time.Hour), State: Now,
			Stops: []string{"other-regular-r1"}},
		{Policy: "standard", Name: "year-end", From: now.AddDate(0, 0, 2), To: now.AddDate(0, 2, 0), State: Later,
			Except: []v1beta2.FreezeException{v1beta2.ExceptEmergency}, Stops: []string{"mod-regular-r2"},
			Spares: []string{"mod-fast-r3"}},
	}
	if diff := cmp.Diff(want, c.Freezes); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"zeta"}, c.Suspended); diff != "" {
		t.Errorf("suspended: %s", diff)
	}
	var frozen []string
	for i := range c.Days {
		if f := c.Days[i].Freezes; len(f) > 0 {
			frozen = append(frozen, c.Days[i].Date[8:]+" "+strings.Join(f, " "))
		}
	}
	if diff := cmp.Diff([]string{"01 standard/past", "02 standard/past", "27 other/sale", "29 standard/year-end",
		"30 standard/year-end"}, frozen); diff != "" {
		t.Errorf("days (-want +got):\n%s", diff)
	}
}

// TestDeferrals checks that the calendar lists the updates that admins have deferred to a time in its month. No
// deferral is longer than the policy allows.
func TestDeferrals(t *testing.T) {
	for name, c := range map[string]struct {
		reason      string
		annotations map[string]string
		version     string // default 1.0.0
		channel     string // default regular
		month       string
		until       string // "": none
	}{
		"Date": {reason: "by the date", month: "2026-12", until: "2026-12-03T00:00:00Z",
			annotations: map[string]string{v1beta2.AnnotationNotBefore: "2026-12-03"}},
		"ByModule": {reason: "the module wins", month: "2026-12", until: "2026-12-04T08:00:00Z",
			annotations: map[string]string{v1beta2.AnnotationNotBefore: "2026-12-03",
				v1beta2.AnnotationNotBeforeModulePrefix + "mod": "2026-12-04T08:00:00Z"}},
		"InRuntime": {reason: "the admin of the runtime has set it", month: "2026-12", until: "2026-12-05T00:00:00Z",
			annotations: map[string]string{v1beta2.AnnotationLastRequest: `{"channel":"regular","deferrals":{"` +
				v1beta2.AnnotationNotBefore + `":"2026-12-05"}}`}},
		"Limit": {reason: "the policy allows 14 days", month: "2026-12", until: "2026-12-09T12:00:00Z",
			annotations: map[string]string{v1beta2.AnnotationNotBefore: "2027-06-01"}},
		"Invalid": {reason: "as long as the policy allows", month: "2026-12", until: "2026-12-09T12:00:00Z",
			annotations: map[string]string{v1beta2.AnnotationNotBefore: "soon"}},
		"Over": {reason: "it has ended", month: "2026-11",
			annotations: map[string]string{v1beta2.AnnotationNotBefore: "2026-11-20"}},
		"OtherMonth": {reason: "it ends later", month: "2026-11",
			annotations: map[string]string{v1beta2.AnnotationNotBefore: "2026-12-03"}},
		"Updated": {reason: "it has the version", month: "2026-12", version: "2.0.0",
			annotations: map[string]string{v1beta2.AnnotationNotBefore: "2026-12-03"}},
		"OtherChannel": {reason: "it follows another channel", month: "2026-12", channel: "fast",
			annotations: map[string]string{v1beta2.AnnotationNotBefore: "2026-12-03"}},
		"OtherModule": {reason: "another module is deferred", month: "2026-12",
			annotations: map[string]string{v1beta2.AnnotationNotBeforeModulePrefix + "x": "2026-12-03"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := Runtime{Name: "runtime-a", Deferring: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "runtime-a",
				Annotations: c.annotations}}, Module: func(module string) (string, string) {
				if module != "mod" {
					return "", ""
				}
				version, of := "1.0.0", "regular"
				if c.version != "" {
					version = c.version
				}
				if c.channel != "" {
					of = c.channel
				}
				return version, of
			}}
			got := Of(monthOf(t, c.month, ""), Inputs{Now: now, Runtimes: []Runtime{k},
				Rollouts: []*v1beta2.ModuleRollout{rolloutOf(nil), rolloutOf(func(r *v1beta2.ModuleRollout) {
					r.Spec.MaxDeferral = metav1.Duration{}
				}), rolloutOf(func(r *v1beta2.ModuleRollout) { r.Status.Phase = v1beta2.RolloutCompleted })}})
			until := ""
			for _, d := range got.Deferrals {
				until += d.Until.UTC().Format(time.RFC3339)
				if d.Runtimes != 1 || d.Names[0] != "runtime-a" {
					t.Errorf("%+v", d)
				}
			}
			if until != c.until {
				t.Errorf("%s: %q, want %q", c.reason, until, c.until)
			}
		})
	}
}

// TestBounds checks that the lists of names and of rows in a calendar have a maximum length, and that the counts
// include what the lists leave out.
func TestBounds(t *testing.T) {
	var rollouts []*v1beta2.ModuleRollout
	for i := range MaxRows {
		rollouts = append(rollouts, rolloutOf(func(r *v1beta2.ModuleRollout) { r.Name = fmt.Sprint("r", i) }),
			rolloutOf(func(r *v1beta2.ModuleRollout) {
				r.Name, r.Status.Phase = fmt.Sprint("e", i), v1beta2.RolloutCompleted
				r.Status.EndedAt = metav1.NewTime(now)
			}))
	}
	c := Of(monthOf(t, "2026-11", ""), Inputs{Now: now, Runtimes: fleet(10_000, "eu"), Rollouts: rollouts,
		Maintenance: policyOf(t, maintenance),
		Policies:    []v1beta2.RolloutPolicy{policyWith("standard", freeze("f", now, now.Add(time.Hour)))}})
	if c.Windowed != 10_000 || len(c.Windows) != 1 || len(c.Windows[0].Names) != MaxNames || len(c.Stages) != MaxRows ||
		c.MoreStages != MaxRows || len(c.Freezes[0].Stops) != MaxNames || c.Stages[0].Rollout != "r0" {
		t.Errorf("%d windowed, %d stages and %d more, first %s", c.Windowed, len(c.Stages), c.MoreStages,
			c.Stages[0].Rollout)
	}
	if sum := Merge(c.Month, []Part{{"a", c}, {"b", c}}); len(sum.Stages) != MaxRows ||
		sum.MoreStages != 3*MaxRows || sum.Stages[0].Context != "a" || sum.Windowed != 20_000 {
		t.Errorf("two control planes: %d stages and %d more", len(sum.Stages), sum.MoreStages)
	}
	if c.Level(0) != 0 || c.Level(1) != 1 || c.Level(10_000) != Levels || c.Level(5_000) != Levels/2 {
		t.Errorf("levels %d %d %d %d", c.Level(0), c.Level(1), c.Level(5_000), c.Level(10_000))
	}
}

// BenchmarkOf measures a month of 10,000 runtimes with 30 rules.
func BenchmarkOf(b *testing.B) {
	var rules []string
	var regions []string
	for i := range 30 {
		rules = append(rules, fmt.Sprintf(`{"match":{"plan":"trial|free","region":"^r%d$"},"windows":[{"days":["Sat"],`+
			`"begin":"%02d:00:00Z","end":"%02d:30:00Z"}]}`, i, i%24, (i+3)%24))
		regions = append(regions, fmt.Sprintf("r%d", i))
	}
	policy, err := channel.ParsePolicy([]byte(`{"rules":[` + strings.Join(rules, ",") + `]}`))
	if err != nil {
		b.Fatal(err)
	}
	runtimes := fleet(10_000/30, regions...)
	for i := range runtimes {
		runtimes[i].Labels[v1beta2.LabelBrokerPlanName] = "free"
	}
	m, err := Parse("2026-12", time.UTC, now)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		Of(m, Inputs{Now: now, Maintenance: policy, Runtimes: runtimes})
	}
}
