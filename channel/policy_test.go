package channel

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// referencePolicy is a policy in the form that the reference implementation reads.
const referencePolicy = `{
  "rules": [
    {"match": {"globalAccountID": "ga-1|ga-2"}, "windows": [{"days": ["Sat"], "begin": "06:00:00+00:00", "end": "10:00:00+00:00"}]},
    {"match": {"plan": "trial|free"}, "windows": [{"days": ["Mon","Tue","Wed","Thu","Fri","Sat","Sun"], "begin": "01:00:00+00:00", "end": "01:00:00+00:00"}]},
    {"match": {"region": "europe|eu-|uksouth", "platformRegion": "^cf-eu"}, "windows": [
      {"days": ["Sat"], "begin": "20:00:00+00:00", "end": "00:00:00+00:00"},
      {"days": [], "begin": "2026-07-02T00:00:00Z", "end": "2026-07-02T04:00:00Z"}
    ]}
  ],
  "default": {"days": ["Sat"], "begin": "21:00:00+00:00", "end": "00:00:00+00:00"}
}`

func mustPolicy(t testing.TB, text string) *Policy {
	t.Helper()
	p, err := ParsePolicy([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestParsePolicyErrors(t *testing.T) {
	window := func(w string) string { return `{"default": ` + w + `}` }
	match := func(m string) string {
		return `{"rules": [{"match": {"plan": "a"}, "windows": [` + ok + `]}, {"match": ` + m +
			`, "windows": [` + ok + `]}]}`
	}
	var labels []string
	for i := range maxLabels + 1 {
		labels = append(labels, fmt.Sprintf(`"l%d": "x"`, i))
	}
	many := func(n int, of string) string { return strings.TrimSuffix(strings.Repeat(of+",", n), ",") }
	cases := map[string]struct {
		reason, text, path, says string
	}{
		"Empty":     {"nothing", ``, "", "unexpected end"},
		"NoJSON":    {"YAML is not read", `default: x`, "", "invalid character"},
		"Null":      {"nothing at all", `null`, "", "neither rules nor a default"},
		"NoWindow":  {"an empty policy is a mistake", `{"rules": []}`, "", "neither rules nor a default"},
		"WrongType": {"a list is a list", `{"rules": {}}`, "", "cannot unmarshal object"},
		"Case":      {"keys are written as they are", `{"Default": ` + ok + `}`, "", `key "Default" is unknown`},
		"TwoSpellings": {"one of them", match(`{"globalAccountID": "a", "globalAccountId": "b"}`),
			"rules[1].match.globalAccountId", "matched twice"},
		"Twice": {"which of two counts is not to be guessed",
			`{"default": ` + ok + `, "default": ` + ok + `}`, "", `duplicate field "default"`},
		"Trailing": {"one document", window(ok) + `{}`, "", "after top-level value"},
		"TooLarge": {"bounded", strings.Repeat(" ", maxPolicyBytes) + "{}", "",
			"1048578 bytes, 1048576 are allowed"},
		"TooManyRules": {"bounded", `{"rules": [` + many(maxRules+1, `{}`) + `]}`, "rules",
			"there are 1001, 1000 are allowed"},
		"TooManyWindows": {"bounded", `{"rules": [{"match": {"plan": "x"}, "windows": [` + many(maxWindows+1, ok) +
			`]}]}`, "rules[0]", "0 labels and 101 windows"},
		"TooManyLabels": {"bounded", match(`{"labels": {` + strings.Join(labels, ",") + `}}`), "rules[1]",
			"21 labels and 1 windows"},
		"LongPattern": {"bounded", match(`{"plan": "` + strings.Repeat("x", maxPattern+1) + `"}`),
			"rules[1].match.plan", "1001 characters"},
		"HugePattern": {"bounded", match(`{"plan": "((x{1000}){1000}){1000}"}`), "rules[1].match.plan",
			"not a regular expression"},
		"NoPattern": {"a pattern is checked", match(`{"region": "("}`), "rules[1].match.region",
			"not a regular expression"},
		"NoLabelPattern": {"in any field", match(`{"labels": {"team": "["}}`), "rules[1].match.labels[team]",
			"not a regular expression"},
		"SameLabel": {"two words for one label",
			match(`{"plan": "a", "labels": {"kyma-project.io/broker-plan-name": "b"}}`),
			"rules[1].match.labels[kyma-project.io/broker-plan-name]", "matched twice"},
		"Day": {"days are reported", window(
			`{"days": ["Sat", "Sunday"], "begin": "01:00:00Z", "end": "02:00:00Z"}`), "default.days[1]",
			`"Sunday" is not a day: use one of Sun, Mon`},
		"Zone": {"zones are looked up",
			window(`{"days": ["Sat"], "begin": "01:00", "end": "02:00", "timeZone": "Europe/Atlantis"}`),
			"default.timeZone", `"Europe/Atlantis" is not a time zone`},
		"LocalZone": {"a zone is the same everywhere",
			window(`{"days": ["Sat"], "begin": "01:00", "end": "02:00", "timeZone": "Local"}`),
			"default.timeZone", `not a time zone`},
		"ZonePath": {"a zone is no path", window(
			`{"days": ["Sat"], "begin": "01:00", "end": "02:00", "timeZone": "../../etc/passwd"}`),
			"default.timeZone", `not a time zone`},
		"NoOffset": {"a time is somewhere", window(`{"days": ["Sat"], "begin": "01:00:00", "end": "02:00:00Z"}`),
			"default.begin", `"01:00:00" should be a time with offset`},
		"TwoOffsets": {"and not in two places",
			window(`{"days": ["Sat"], "begin": "01:00", "end": "02:00:00Z", "timeZone": "Europe/Berlin"}`),
			"default.end", "without offset because there is a timeZone"},
		"DateAndDays": {"on days, or once", window(
			`{"days": ["Sat"], "begin": "2026-01-01T01:00:00Z", "end": "2026-01-01T02:00:00Z"}`),
			"default.begin", "a time with offset"},
		"NoDays": {"a time needs days", window(`{"begin": "01:00:00Z", "end": "02:00:00Z"}`),
			"default.begin", "or set days"},
		"NoDaysZone": {"in a time zone too", window(`{"begin": "01:00", "end": "02:00", "timeZone": "UTC"}`),
			"default.begin", "or set days"},
		"Backwards": {"once means forwards",
			window(`{"begin": "2026-01-01T03:00:00Z", "end": "2026-01-01T03:00:00+01:00"}`),
			"default.end", "is not after begin"},
		"WindowOfARule": {"the place is named", `{"rules": [{"match": {"plan": "a"}, "windows": [` + ok +
			`, {"days": ["Sat"], "begin": "25:00:00Z", "end": ""}]}]}`,
			"rules[0].windows[1].begin", `"25:00:00Z" should be`},
		"NothingOfWindow": {"an empty window", `{"rules": [{"match": {"plan": "a"}, "windows": [{}]}]}`,
			"rules[0].windows[0].begin", `"" should be a date and time`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p, err := ParsePolicy([]byte(c.text))
			e, isTyped := errors.AsType[*MaintenancePolicyError](err)
			if p != nil || !isTyped || e.Path != c.path || !strings.Contains(e.Problem, c.says) ||
				e.Reason() != v1beta2.ReasonInvalidPolicy {
				t.Fatalf("%s: got %v, %v", c.reason, p, err)
			}
			if !strings.HasPrefix(err.Error(), "reading the maintenance policy: "+c.path) {
				t.Errorf("message %q does not begin with what was done and where", err)
			}
		})
	}
}

// TestIgnoredInPolicy checks policies that are in force although parts of them have no effect.
func TestIgnoredInPolicy(t *testing.T) {
	cases := map[string]struct {
		reason, text string
		labels       map[string]string
		matches      bool // whether a rule matches the labels
		warnings     []string
	}{
		"Nothing": {
			reason:  "a policy without mistakes",
			text:    `{"rules": [{"match": {"plan": "x"}, "windows": [` + ok + `]}]}`,
			labels:  map[string]string{v1beta2.LabelBrokerPlanName: "x"},
			matches: true,
		},
		"Spelling": {
			reason:  "the reference reads both spellings",
			text:    `{"rules": [{"match": {"globalAccountId": "ga"}, "windows": [` + ok + `]}]}`,
			labels:  map[string]string{v1beta2.LabelGlobalAccountID: "ga"},
			matches: true,
		},
		"EmptyDefault": {
			reason:  "an empty default is no default",
			text:    `{"rules": [{"match": {"plan": "x"}, "windows": [` + ok + `]}], "default": {}}`,
			labels:  map[string]string{v1beta2.LabelBrokerPlanName: "x"},
			matches: true,
		},
		"OnlyEmptyDefault": {
			reason: "also without rules",
			text:   `{"rules": [], "default": {}}`,
		},
		"UnknownKey": {
			reason: "an unknown key next to known ones",
			text: `{"owner": "me", "rules": [{"match": {"plan": "x", "plann": "y"}, "windows": [` +
				ok + `]}]}`,
			labels:  map[string]string{v1beta2.LabelBrokerPlanName: "x"},
			matches: true,
			warnings: []string{`key "owner" is unknown and was ignored: correct or remove it`,
				`key "rules[0].match.plann" is unknown and was ignored: correct or remove it`},
		},
		"OnlyUnknownKey": {
			reason: "a rule without a known key must not match everything",
			text:   `{"rules": [{"match": {"plann": "x"}, "windows": [` + ok + `]}], "default": {}}`,
			labels: map[string]string{v1beta2.LabelBrokerPlanName: "x"},
			warnings: []string{`key "rules[0].match.plann" is unknown and was ignored: correct or remove it`,
				"rules[0].match has no known key, so the rule matches no runtime: add a key, or use default for all runtimes"},
		},
		"NoWindows": {
			reason:   "a rule without windows needs the default",
			text:     `{"rules": [{"match": {"plan": "x"}}]}`,
			labels:   map[string]string{v1beta2.LabelBrokerPlanName: "x"},
			warnings: []string{"rules[0].windows is empty, and there is no default: add a window"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := mustPolicy(t, c.text)
			if diff := cmp.Diff(c.warnings, p.Warnings()); diff != "" {
				t.Errorf("%s: warnings differ (-want +got):\n%s", c.reason, diff)
			}
			if _, err := p.CurrentOrNextWindow(c.labels, at); err == nil != c.matches {
				t.Errorf("%s: got %v", c.reason, err)
			}
		})
	}
}

// TestManyWarnings checks that the number of warnings of a policy is limited.
func TestManyWarnings(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, `"key%d": 1, `, i)
	}
	p := mustPolicy(t, `{`+text.String()+`"default": `+ok+`}`)
	if n := len(p.Warnings()); n != maxWarnings {
		t.Errorf("%d warnings, want %d", n, maxWarnings)
	}
}

// ok is a valid window.
const ok = `{"days": ["Sat"], "begin": "01:00:00Z", "end": "02:00:00Z"}`

func TestPolicyFromConfigMap(t *testing.T) {
	if p, err := PolicyFromConfigMap(map[string]string{PolicyKey: referencePolicy, "README": "x"}); err != nil ||
		len(p.rules) != 3 {
		t.Errorf("got %v, %v", p, err)
	}
	if _, err := PolicyFromConfigMap(map[string]string{"policy.yaml": referencePolicy}); err == nil ||
		!strings.Contains(err.Error(), "no key policy.json") {
		t.Errorf("a ConfigMap without the key: %v", err)
	}
}

func TestCurrentOrNextWindow(t *testing.T) {
	// 1 is a Wednesday, 4 a Saturday
	day := func(d, h, m int) time.Time { return time.Date(2026, 7, d, h, m, 0, 0, time.UTC) }
	labels := func(kv ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	europe := labels(v1beta2.LabelRegion, "eu-central-1", v1beta2.LabelPlatformRegion, "cf-eu10")
	zoned := `{"default": {"days": ["Sun", "Mon"], "begin": "%s", "end": "%s", "timeZone": "Europe/Berlin"}}`
	several := `{"rules": [{"match": {"labels": {"team": "^blue$"}}, "windows": [
		{"days": ["Fri"], "begin": "00:00:00Z", "end": "02:00:00Z"},
		{"days": ["Wed"], "begin": "20:00:00Z", "end": "21:00:00Z"},
		{"days": ["Wed"], "begin": "11:00:00Z", "end": "12:30:00Z"},
		{"days": ["Wed"], "begin": "11:30:00Z", "end": "13:00:00Z"}]}]}`
	blue := labels("team", "blue")
	cases := map[string]struct {
		reason     string
		policy     string
		least      time.Duration
		labels     map[string]string
		now        time.Time
		begin, end time.Time
	}{
		"Default": {
			reason: "no rule matches",
			policy: referencePolicy,
			now:    day(1, 12, 0),
			begin:  day(4, 21, 0),
			end:    day(5, 0, 0),
		},
		"Account": {
			reason: "the rule that matches",
			policy: referencePolicy,
			labels: labels(v1beta2.LabelGlobalAccountID, "ga-2"),
			now:    day(1, 12, 0),
			begin:  day(4, 6, 0),
			end:    day(4, 10, 0),
		},
		"FirstRule": {
			reason: "the first rule that matches",
			policy: referencePolicy,
			labels: labels(v1beta2.LabelGlobalAccountID, "ga-2", v1beta2.LabelBrokerPlanName, "trial"),
			now:    day(1, 12, 0),
			begin:  day(4, 6, 0),
			end:    day(4, 10, 0),
		},
		"WholeDay": {
			reason: "a window of a day, which began yesterday",
			policy: referencePolicy,
			labels: labels(v1beta2.LabelBrokerPlanName, "free"),
			now:    day(2, 0, 30),
			begin:  day(1, 1, 0),
			end:    day(2, 1, 0),
		},
		"OneOfTwo": {
			reason: "fields are AND-ed",
			policy: referencePolicy,
			labels: labels(v1beta2.LabelRegion, "eu-central-1"),
			now:    day(1, 12, 0),
			begin:  day(4, 21, 0),
			end:    day(5, 0, 0),
		},
		"Both": {
			reason: "the one that comes first, not the one that is named first",
			policy: referencePolicy,
			labels: europe,
			now:    day(1, 12, 0),
			begin:  day(2, 0, 0),
			end:    day(2, 4, 0),
		},
		"OnceIsOver": {
			reason: "a window in the past does not count",
			policy: referencePolicy,
			labels: europe,
			now:    day(2, 4, 0),
			begin:  day(4, 20, 0),
			end:    day(5, 0, 0),
		},
		"Beginning": {
			reason: "begin is in it",
			policy: referencePolicy,
			labels: europe,
			now:    day(4, 20, 0),
			begin:  day(4, 20, 0),
			end:    day(5, 0, 0),
		},
		"Ending": {
			reason: "end is not",
			policy: referencePolicy,
			labels: europe,
			now:    day(5, 0, 0),
			begin:  day(11, 20, 0),
			end:    day(12, 0, 0),
		},
		"LittleLeft": {
			reason: "with too little left it is the next one",
			policy: referencePolicy,
			least:  20 * time.Minute,
			labels: europe,
			now:    day(4, 23, 40),
			begin:  day(11, 20, 0),
			end:    day(12, 0, 0),
		},
		"EnoughLeft": {
			reason: "with enough left it is this one",
			policy: referencePolicy,
			least:  20 * time.Minute,
			labels: europe,
			now:    day(4, 23, 39),
			begin:  day(4, 20, 0),
			end:    day(5, 0, 0),
		},
		"LongestOpen": {
			reason: "of two that are open the longer one",
			policy: several,
			labels: blue,
			now:    day(1, 12, 0),
			begin:  day(1, 11, 30),
			end:    day(1, 13, 0),
		},
		"OpenBeforeComes": {
			reason: "an open window precedes a later one",
			policy: several,
			labels: blue,
			now:    day(1, 11, 15),
			begin:  day(1, 11, 0),
			end:    day(1, 12, 30),
		},
		"ComesFirst": {
			reason: "of those to come the first",
			policy: several,
			labels: blue,
			now:    day(1, 13, 0),
			begin:  day(1, 20, 0),
			end:    day(1, 21, 0),
		},
		"ThenNext": {
			reason: "then the next",
			policy: several,
			labels: blue,
			now:    day(1, 21, 0),
			begin:  day(3, 0, 0),
			end:    day(3, 2, 0),
		},
		"Fallback": {
			reason: "the windows of the rule are over",
			policy: `{"rules": [{"match": {"plan": "x"}, "windows": [{"begin": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z"}]}], "default": ` + ok + `}`,
			labels: labels(v1beta2.LabelBrokerPlanName, "x"),
			now:    day(1, 12, 0),
			begin:  day(4, 1, 0),
			end:    day(4, 2, 0),
		},
		"NoWindows": {
			reason: "the rule has none",
			policy: `{"rules": [{"match": {"plan": "x"}, "windows": []}], "default": ` + ok + `}`,
			labels: labels(v1beta2.LabelBrokerPlanName, "x"),
			now:    day(1, 12, 0),
			begin:  day(4, 1, 0),
			end:    day(4, 2, 0),
		},
		"Escapes": {
			reason: "escapes of JSON are decoded",
			policy: `{"rules": [{"match": {"plan": "^a\\.b$"}, "windows": [` + ok + `]}]}`,
			labels: labels(v1beta2.LabelBrokerPlanName, "a.b"),
			now:    day(1, 12, 0),
			begin:  day(4, 1, 0),
			end:    day(4, 2, 0),
		},

		"Offset": {
			reason: "the day is that of the offset: Saturday 01:00 in it is Friday in UTC",
			policy: `{"default": {"days": ["Sat"], "begin": "01:00:00+05:30", "end": "02:00:00+05:30"}}`,
			now:    day(1, 12, 0),
			begin:  day(3, 19, 30),
			end:    day(3, 20, 30),
		},
		"TwoOffsets": {
			reason: "begin and end may have different offsets",
			policy: `{"default": {"days": ["Sat"], "begin": "23:00:00+02:00", "end": "00:00:00Z"}}`,
			now:    day(1, 12, 0),
			begin:  day(4, 21, 0),
			end:    day(5, 0, 0),
		},
		"Yesterday": {
			reason: "yesterday in the offset is still today in UTC",
			policy: `{"default": {"days": ["Sat"], "begin": "13:00-11:00", "end": "14:00-11:00"}}`,
			now:    day(5, 0, 30),
			begin:  day(5, 0, 0),
			end:    day(5, 1, 0),
		},
		"Midnight": {
			reason: "open after midnight",
			policy: `{"default": {"days": ["Tue"], "begin": "22:00:00Z", "end": "13:00:00Z"}}`,
			now:    day(1, 12, 0),
			begin:  time.Date(2026, 6, 30, 22, 0, 0, 0, time.UTC),
			end:    day(1, 13, 0),
		},
		"ZoneSummer": {
			reason: "summer time",
			policy: fmt.Sprintf(zoned, "22:00", "02:00"),
			now:    day(1, 12, 0),
			begin:  day(5, 20, 0),
			end:    day(6, 0, 0),
		},
		"ZoneWinter": {
			reason: "winter time",
			policy: fmt.Sprintf(zoned, "22:00", "02:00"),
			now:    time.Date(2026, 1, 9, 0, 0, 0, 0, time.UTC),
			begin:  time.Date(2026, 1, 11, 21, 0, 0, 0, time.UTC),
			end:    time.Date(2026, 1, 12, 1, 0, 0, 0, time.UTC),
		},
		"OnceInZone": {
			reason: "a date in a zone",
			policy: `{"default": {"begin": "2026-07-01T22:00", "end": "2026-07-02T02:00:30", "timeZone": "America/New_York"}}`,
			now:    day(1, 12, 0),
			begin:  day(2, 2, 0),
			end:    time.Date(2026, 7, 2, 6, 0, 30, 0, time.UTC),
		},
		"Seconds": {
			reason: "to the second",
			policy: `{"default": {"days": ["Wed"], "begin": "12:00:01Z", "end": "12:00:02Z"}}`,
			now:    day(1, 12, 0),
			begin:  day(1, 12, 0).Add(time.Second),
			end:    day(1, 12, 0).Add(2 * time.Second),
		},
		"GapBegin": {
			reason: "29 March 2026: 02:30 is skipped, so it begins at the change",
			policy: fmt.Sprintf(zoned, "02:30", "05:00"),
			now:    time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC),
			begin:  time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC),
			end:    time.Date(2026, 3, 29, 3, 0, 0, 0, time.UTC),
		},
		"GapEnd": {
			reason: "and ends there",
			policy: fmt.Sprintf(zoned, "01:00", "02:30"),
			now:    time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC),
			begin:  time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC),
			end:    time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC),
		},
		"GapWhole": {
			reason: "a window that is skipped as a whole does not last a day: the next one is on Monday",
			policy: fmt.Sprintf(zoned, "02:15", "02:45"),
			now:    time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC),
			begin:  time.Date(2026, 3, 30, 0, 15, 0, 0, time.UTC),
			end:    time.Date(2026, 3, 30, 0, 45, 0, 0, time.UTC),
		},
		"GapOver": {
			reason: "over the change it is an hour shorter",
			policy: fmt.Sprintf(zoned, "01:00", "04:00"),
			now:    time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC),
			begin:  time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC),
			end:    time.Date(2026, 3, 29, 2, 0, 0, 0, time.UTC),
		},
		"TwiceBegin": {
			reason: "25 October 2026: the clocks show 02:30 twice, and it begins with the first",
			policy: fmt.Sprintf(zoned, "02:30", "04:00"),
			now:    time.Date(2026, 10, 24, 12, 0, 0, 0, time.UTC),
			begin:  time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC),
			end:    time.Date(2026, 10, 25, 3, 0, 0, 0, time.UTC),
		},
		"TwiceEnd": {
			reason: "and ends with the first",
			policy: fmt.Sprintf(zoned, "01:00", "02:30"),
			now:    time.Date(2026, 10, 24, 12, 0, 0, 0, time.UTC),
			begin:  time.Date(2026, 10, 24, 23, 0, 0, 0, time.UTC),
			end:    time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC),
		},
		"TwiceIsOver": {
			reason: "so that it is once only",
			policy: fmt.Sprintf(zoned, "02:15", "02:45"),
			now:    time.Date(2026, 10, 25, 1, 20, 0, 0, time.UTC),
			begin:  time.Date(2026, 10, 26, 1, 15, 0, 0, time.UTC),
			end:    time.Date(2026, 10, 26, 1, 45, 0, 0, time.UTC),
		},
		"SkippedDay": {
			reason: "30 December 2011 was none in Samoa: the next Friday is a week later",
			policy: `{"default": {"days": ["Fri"], "begin": "10:00", "end": "12:00", "timeZone": "Pacific/Apia"}}`,
			now:    time.Date(2011, 12, 29, 0, 0, 0, 0, time.UTC),
			begin:  time.Date(2012, 1, 5, 20, 0, 0, 0, time.UTC),
			end:    time.Date(2012, 1, 5, 22, 0, 0, 0, time.UTC),
		},
		"HalfHourGap": {
			reason: "Lord Howe puts the clock forward by half an hour, from 02:00 to 02:30",
			policy: `{"default": {"days": ["Sun"], "begin": "02:10", "end": "03:00", "timeZone": "Australia/Lord_Howe"}}`,
			now:    time.Date(2026, 10, 3, 0, 0, 0, 0, time.UTC),
			begin:  time.Date(2026, 10, 3, 15, 30, 0, 0, time.UTC),
			end:    time.Date(2026, 10, 3, 16, 0, 0, 0, time.UTC),
		},
		"NextFortnight": {
			reason: "a weekly window that is skipped this week",
			policy: `{"default": {"days": ["Sun"], "begin": "02:15", "end": "02:45", "timeZone": "Europe/Berlin"}}`,
			now:    time.Date(2026, 3, 22, 12, 0, 0, 0, time.UTC),
			begin:  time.Date(2026, 4, 5, 0, 15, 0, 0, time.UTC),
			end:    time.Date(2026, 4, 5, 0, 45, 0, 0, time.UTC),
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := mustPolicy(t, c.policy)
			p.MinRemaining = c.least
			o, err := p.CurrentOrNextWindow(c.labels, c.now)
			if err != nil || !o.Begin.Equal(c.begin) || !o.End.Equal(c.end) {
				t.Errorf("%s: got %s to %s, %v, want %s to %s", c.reason, o.Begin.UTC(),
					o.End.UTC(), err, c.begin, c.end)
			}
			if o.IsOpen(c.now) != !c.now.Before(c.begin) {
				t.Errorf("%s: open is %t at %s", c.reason, o.IsOpen(c.now), c.now)
			}
		})
	}
}

func TestCurrentOrNextWindowUnknown(t *testing.T) {
	past := `{"begin": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z"}`
	short := `{"days": ["Sat"], "begin": "01:00:00Z", "end": "01:10:00Z"}`
	rule := `{"rules": [{"match": {"plan": "x"}, "windows": [` + past + `]}]`
	cases := map[string]struct {
		reason string
		policy *Policy
		plan   string
		says   string
	}{
		"None": {"none is configured", nil, "", "there is no maintenance policy: configure one"},
		"Unusable": {"the configured policy cannot be parsed", UnusablePolicy(errors.New("broken")), "",
			"no maintenance policy is in force, because the configured one cannot be used: broken"},
		"NoRule": {"no rule and no default", mustPolicy(t, rule+`}`), "y",
			"no rule of the maintenance policy matches this Kyma, and there is no default: add a window"},
		"NoLabel": {"a missing label matches nothing",
			mustPolicy(t, `{"rules": [{"match": {"plan": ""}, "windows": [`+ok+`]}]}`), "",
			"no rule of the maintenance policy matches"},
		"RuleIsOver": {"the rule is over and no default", mustPolicy(t, rule+`}`), "x",
			"the windows of rules[0] of the maintenance policy are over or not longer than 20m0s, and there is no " +
				"default"},
		"DefaultOver": {"and the default is over, too", mustPolicy(t, rule+`, "default": `+past+`}`), "x",
			"the default window of the maintenance policy is over"},
		"TooShort": {"a window that is never long enough", mustPolicy(t, `{"default": `+short+`}`), "",
			"or not longer than 20m0s"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.policy != nil {
				c.policy.MinRemaining = 20 * time.Minute
			}
			o, err := c.policy.CurrentOrNextWindow(map[string]string{v1beta2.LabelBrokerPlanName: c.plan}, at)
			b, isTyped := errors.AsType[*Blocker](err)
			if !isTyped || b.Reason() != v1beta2.ReasonWindowUnknown || !strings.Contains(b.Message, c.says) ||
				o != (MaintenanceWindow{}) {
				t.Errorf("%s: got %v, %v", c.reason, o, err)
			}
		})
	}
}

// TestWindowByTheClock checks around the changes to and from daylight saving time that a window is open exactly when
// the local clock shows a time in the window.
func TestWindowByTheClock(t *testing.T) {
	windows := []struct{ begin, end string }{{"22:00", "02:00"}, {"01:30", "03:30"}, {"00:00", "00:00"},
		{"12:00", "11:59"}, {"02:10", "02:50"}}
	changes := map[string]time.Time{
		"Europe/Berlin":       time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC),
		"America/New_York":    time.Date(2026, 11, 1, 6, 0, 0, 0, time.UTC),
		"America/Sao_Paulo":   time.Date(2018, 11, 4, 3, 0, 0, 0, time.UTC), // at midnight
		"Australia/Lord_Howe": time.Date(2026, 4, 4, 15, 0, 0, 0, time.UTC), // half an hour
		"Asia/Kathmandu":      time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),  // never
	}
	for zone, change := range changes {
		for _, w := range windows {
			p := mustPolicy(t,
				fmt.Sprintf(`{"default": {"days": ["Sat", "Sun"], "begin": %q, "end": %q, "timeZone": %q}}`, w.begin,
					w.end, zone))
			location := p.defaultWindow[0].zone
			for now := change.Add(-48 * time.Hour); now.Before(change.Add(48 * time.Hour)); now = now.Add(
				7 * time.Minute) {
				o, err := p.CurrentOrNextWindow(nil, now)
				if err != nil || !o.End.After(now) || !o.Begin.Before(o.End) {
					t.Fatalf("%s %v at %s: %s to %s, %v", zone, w, now, o.Begin, o.End, err)
				}
				if now.Sub(change).Abs() < 4*time.Hour || o.Begin.Sub(change).Abs() < 4*time.Hour ||
					o.End.Sub(change).Abs() < 4*time.Hour {
					continue // the table above defines what is right where clocks change
				}
				wall := now.In(location)
				shown, day := wall.Format("15:04"), wall.Weekday()
				open := w.begin < w.end && isWeekend(day) && w.begin <= shown && shown < w.end ||
					w.begin >= w.end && (isWeekend(day) && w.begin <= shown || isWeekend((day+6)%7) && shown < w.end)
				if o.IsOpen(now) != open {
					t.Fatalf("%s %v at %s: open is %t", zone, w, wall, o.IsOpen(now))
				}
			}
		}
	}
}

func isWeekend(d time.Weekday) bool { return d == time.Saturday || d == time.Sunday }

// zones are time zones with unusual changes of the clock.
var zones = []string{
	"Europe/Berlin", "Europe/London", "Europe/Moscow", "America/New_York", "America/Sao_Paulo", "America/Caracas",
	"Africa/Casablanca", "Asia/Gaza",
	"Asia/Kolkata", "Asia/Pyongyang", "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Kwajalein",
	"Pacific/Kiritimati", "Antarctica/Troll", "UTC",
}

// isFirst checks that an instant is the first instant at which the clocks show the requested time. If the clocks skip
// the requested time, the right instant is the one at which the clocks are set forward. The parameter "shown" has the
// date and the clock time that are requested; its own time zone, UTC, has no meaning.
func isFirst(t *testing.T, shown time.Time, zone *time.Location) {
	t.Helper()
	wall := func(t time.Time) time.Time {
		_, offset := t.In(zone).Zone()
		return t.UTC().Add(time.Duration(offset) * time.Second)
	}
	got := timeOnDate(shown.Year(), shown.Month(), shown.Day(), timeOfDay(shown), zone)
	for i := range 5 { // no clock change goes back by more than two hours
		if before := got.Add(-time.Duration(i)*30*time.Minute - time.Second); !wall(before).Before(shown) {
			t.Errorf("%s in %s: got %s, but at %s the clock shows %s", shown, zone, got, before.UTC(), wall(before))
		}
	}
	if wall(got).Before(shown) {
		t.Errorf("%s in %s: got %s, when the clock shows %s", shown, zone, got, wall(got))
	}
}

// TestTimeOnDate checks all changes of the clock in 60 years.
func TestTimeOnDate(t *testing.T) {
	for _, name := range zones {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for change := time.Unix(0, 0); ; {
			_, change = change.In(zone).ZoneBounds()
			if change.IsZero() || change.Year() > 2030 {
				break
			}
			_, offset := change.Zone()
			for minutes := -26 * 60; minutes <= 26*60; minutes += 10 {
				isFirst(t, change.UTC().Add(time.Duration(offset)*time.Second+time.Duration(minutes)*time.Minute), zone)
			}
		}
	}
}

func FuzzInstant(f *testing.F) {
	f.Add(uint8(0), uint32(1774751400)) // 2026-03-29T02:30
	f.Fuzz(func(t *testing.T, at uint8, since uint32) {
		zone, err := time.LoadLocation(zones[int(at)%len(zones)])
		if err != nil {
			t.Fatal(err)
		}
		isFirst(t, time.Unix(int64(since), 0).UTC(), zone) // from 1970 to 2106
	})
}

// FuzzParsePolicy tests that every window that is parsed without an error is open at its begin.
func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte(referencePolicy), int64(1782907200), "ga-1")
	f.Add([]byte(`{"default": {"days": ["Sun"], "begin": "02:15", "end": "02:45", "timeZone": "Europe/Berlin"}}`),
		int64(1774180800), "")
	f.Fuzz(func(t *testing.T, data []byte, unix int64, label string) {
		p, err := ParsePolicy(data)
		if (p == nil) == (err == nil) {
			t.Fatalf("got %v and %v", p, err)
		}
		if err != nil {
			if _, isTyped := errors.AsType[*MaintenancePolicyError](err); !isTyped {
				t.Fatalf("error %v has no type", err)
			}
			return
		}
		now := time.Unix(unix%1e11, 0)
		labels := map[string]string{v1beta2.LabelGlobalAccountID: label, v1beta2.LabelRegion: label}
		o, err := p.CurrentOrNextWindow(labels, now)
		if err != nil {
			return
		}
		if !o.Begin.Before(o.End) || !now.Before(o.End) {
			t.Fatalf("at %s the window is %s to %s", now, o.Begin, o.End)
		}
		if then, err := p.CurrentOrNextWindow(labels, o.Begin); err != nil || !then.IsOpen(o.Begin) {
			t.Fatalf("at its begin the window %s to %s is %s to %s, %v", o.Begin, o.End, then.Begin, then.End, err)
		}
	})
}

// BenchmarkCurrentOrNextWindow measures the cost of finding a window.
func BenchmarkCurrentOrNextWindow(b *testing.B) {
	p := mustPolicy(b, referencePolicy)
	labels := map[string]string{v1beta2.LabelRegion: "eu-central-1", v1beta2.LabelPlatformRegion: "cf-eu10",
		v1beta2.LabelGlobalAccountID: "x", v1beta2.LabelBrokerPlanName: "aws"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.CurrentOrNextWindow(labels, at); err != nil {
			b.Fatal(err)
		}
	}
}
