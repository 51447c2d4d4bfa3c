package channel

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Policy defines when updates that need a downtime may start, for all runtimes. ParsePolicy creates a Policy. After a
// Policy is parsed, only the field MinRemaining may be changed. A nil Policy has no maintenance windows.
type Policy struct {
	// MinRemaining is the time that must be left in a window when an update starts. Windows that are not longer than
	// MinRemaining are ignored. The default is 0.
	MinRemaining time.Duration

	rules         []rule
	defaultWindow []window // at most one
	warnings      []string
	problem       error // why no policy is in force; nil for a policy that was parsed
}

// UnusablePolicy returns a Policy without windows, for use while the only configured maintenance policy cannot be
// parsed. With an unusable policy, updates that need a window are blocked, and the message of the Blocker contains the
// problem.
func UnusablePolicy(problem error) *Policy { return &Policy{problem: problem} }

// IsUsable reports whether p is a policy that was parsed without an error. A nil Policy and an UnusablePolicy are not
// usable.
func (p *Policy) IsUsable() bool { return p != nil && p.problem == nil }

// Warnings returns what ParsePolicy has ignored: unknown keys, and rules that match no runtime. Each warning is one
// sentence; there are at most 10 warnings. A nil Policy has no warnings.
func (p *Policy) Warnings() []string {
	if p == nil {
		return nil
	}
	return p.warnings
}

type rule struct {
	match   map[string]*regexp.Regexp // regular expressions by label; never empty
	windows []window
}

// PolicyKey is the key of the policy in a ConfigMap, and the file name of the policy.
const PolicyKey = "policy.json"

// policyObject is the name of the policy in a Blocker.
const policyObject = "maintenance policy"

// The following constants limit the size of a policy. The limits prevent an oversized policy from overloading the
// manager.
const (
	maxPolicyBytes = 1 << 20
	maxRules       = 1000
	maxWindows     = 100
	maxLabels      = 20
	maxPattern     = 1000
	maxWarnings    = 10
)

// MaintenancePolicyError states where and why a maintenance policy is invalid.
type MaintenancePolicyError struct {
	// Path is the position of the error in the document, for example rules[0].windows[1].begin. An empty Path means the
	// whole document.
	Path string
	// Problem states what is invalid at Path and which values are valid.
	Problem string
}

// Error returns a text with Path and Problem.
func (e *MaintenancePolicyError) Error() string {
	if e.Path == "" {
		return "reading the maintenance policy: " + e.Problem
	}
	return "reading the maintenance policy: " + e.Path + ": " + e.Problem
}

// Reason returns the reason code v1beta2.ReasonInvalidPolicy.
func (e *MaintenancePolicyError) Reason() string { return v1beta2.ReasonInvalidPolicy }

// PolicyFromConfigMap parses the policy in the data of a ConfigMap. All errors are of type *MaintenancePolicyError.
func PolicyFromConfigMap(data map[string]string) (*Policy, error) {
	text, ok := data[PolicyKey]
	if !ok {
		return nil, &MaintenancePolicyError{"", fmt.Sprintf(
			"the ConfigMap has no key %s: put the policy there", PolicyKey)}
	}
	return ParsePolicy([]byte(text))
}

// Types of the JSON document.
type (
	policyFile struct {
		Rules   []ruleFile  `json:"rules"`
		Default *windowFile `json:"default"`
	}
	ruleFile struct {
		Match   matchFile    `json:"match"`
		Windows []windowFile `json:"windows"`
	}
	matchFile struct {
		GlobalAccountID *string           `json:"globalAccountID"`
		GlobalAccountId *string           `json:"globalAccountId"` // the other spelling of the key
		Plan            *string           `json:"plan"`
		Region          *string           `json:"region"`
		PlatformRegion  *string           `json:"platformRegion"`
		Labels          map[string]string `json:"labels"`
	}
	windowFile struct {
		Days     []string `json:"days"`
		Begin    string   `json:"begin"`
		End      string   `json:"end"`
		TimeZone string   `json:"timeZone"`
	}
)

// ParsePolicy parses a policy in its JSON format. Unknown keys are ignored and reported in [Policy.Warnings]; repeated
// keys are errors. An empty default means that there is no default window. All errors are of type
// *MaintenancePolicyError.
func ParsePolicy(data []byte) (*Policy, error) {
	if len(data) > maxPolicyBytes {
		return nil, &MaintenancePolicyError{"", fmt.Sprintf("it has %d bytes, %d are allowed: make it smaller",
			len(data), maxPolicyBytes)}
	}
	var file policyFile
	strict, err := kjson.UnmarshalStrict(data, &file)
	p := &Policy{}
	for _, problem := range strict {
		if key, isUnknown := strings.CutPrefix(problem.Error(), "unknown field "); isUnknown {
			p.warn("key %s is unknown and was ignored: correct or remove it", key)
			continue
		}
		err = cmp.Or(err, problem)
	}
	if err != nil {
		return nil, &MaintenancePolicyError{"", err.Error()}
	}
	if file.Default != nil && !file.Default.isEmpty() {
		w, err := parseWindow("default", *file.Default)
		if err != nil {
			return nil, err
		}
		p.defaultWindow = []window{w}
	}
	switch {
	case len(file.Rules) > maxRules:
		return nil, &MaintenancePolicyError{"rules",
			fmt.Sprintf("there are %d, %d are allowed", len(file.Rules), maxRules)}
	case len(file.Rules) == 0 && file.Default == nil:
		return nil, &MaintenancePolicyError{"", strings.Join(append(
			[]string{"it has neither rules nor a default: add one of them"}, p.warnings...), "; ")}
	}
	for i, r := range file.Rules {
		parsed, err := parseRule(fmt.Sprintf("rules[%d]", i), r)
		if err != nil {
			return nil, err
		}
		if len(parsed.windows) == 0 && p.defaultWindow == nil {
			p.warn("rules[%d].windows is empty, and there is no default: add a window", i)
		}
		if len(parsed.match) == 0 {
			p.warn("rules[%d].match has no known key, so the rule matches no runtime: add a key, or use default for all "+
				"runtimes", i)
			continue
		}
		p.rules = append(p.rules, parsed)
	}
	return p, nil
}

func (p *Policy) warn(format string, args ...any) {
	if len(p.warnings) < maxWarnings {
		p.warnings = append(p.warnings, fmt.Sprintf(format, args...))
	}
}

// isEmpty reports whether all keys of the window are missing.
func (f windowFile) isEmpty() bool {
	return len(f.Days) == 0 && f.Begin == "" && f.End == "" && f.TimeZone == ""
}

func parseRule(path string, file ruleFile) (rule, error) {
	if labels, windows := len(file.Match.Labels), len(file.Windows); labels > maxLabels || windows > maxWindows {
		return rule{}, &MaintenancePolicyError{path,
			fmt.Sprintf("it has %d labels and %d windows, %d and %d are allowed", labels,
				windows, maxLabels, maxWindows)}
	}
	r := rule{match: map[string]*regexp.Regexp{}}
	add := func(field, label, pattern string) error {
		if len(pattern) > maxPattern {
			return &MaintenancePolicyError{path + ".match." + field,
				fmt.Sprintf("it has %d characters, %d are allowed", len(pattern), maxPattern)}
		}
		re, err := regexp.Compile(pattern)
		switch {
		case err != nil:
			return &MaintenancePolicyError{path + ".match." + field, "it is not a regular expression: " + err.Error()}
		case r.match[label] != nil:
			return &MaintenancePolicyError{path + ".match." + field, "label " + label + " is matched twice: keep one"}
		}
		r.match[label] = re
		return nil
	}
	m := file.Match
	for _, f := range []struct {
		field, label string
		pattern      *string
	}{
		{"globalAccountID", v1beta2.LabelGlobalAccountID, m.GlobalAccountID},
		{"globalAccountId", v1beta2.LabelGlobalAccountID, m.GlobalAccountId},
		{"plan", v1beta2.LabelBrokerPlanName, m.Plan},
		{"region", v1beta2.LabelRegion, m.Region},
		{"platformRegion", v1beta2.LabelPlatformRegion, m.PlatformRegion},
	} {
		if f.pattern == nil {
			continue
		}
		if err := add(f.field, f.label, *f.pattern); err != nil {
			return rule{}, err
		}
	}
	for _, label := range slices.Sorted(maps.Keys(m.Labels)) {
		if err := add(fmt.Sprintf("labels[%s]", label), label, m.Labels[label]); err != nil {
			return rule{}, err
		}
	}
	for i, w := range file.Windows {
		parsed, err := parseWindow(fmt.Sprintf("%s.windows[%d]", path, i), w)
		if err != nil {
			return rule{}, err
		}
		r.windows = append(r.windows, parsed)
	}
	return r, nil
}

// weekdays are the names of the days of the week in a policy. As in package time, Sunday is first.
var weekdays = [...]string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}

// parseWindow parses one window. If the window has a timeZone, its times must have no offset. If the window has no
// timeZone, its times must have an offset.
func parseWindow(path string, file windowFile) (window, error) {
	w := window{}
	for i, day := range file.Days {
		at := slices.Index(weekdays[:], day)
		if at < 0 {
			return w, &MaintenancePolicyError{fmt.Sprintf("%s.days[%d]", path, i),
				fmt.Sprintf("%q is not a day: use one of %s", day, strings.Join(weekdays[:], ", "))}
		}
		w.days |= 1 << at
	}
	if file.TimeZone != "" {
		zone, err := time.LoadLocation(file.TimeZone)
		if err != nil || file.TimeZone == "Local" { // the zone Local differs between machines
			return w, &MaintenancePolicyError{path + ".timeZone",
				fmt.Sprintf("%q is not a time zone: use a name such as Europe/Berlin", file.TimeZone)}
		}
		w.zone = zone
	}
	begin, err := parseTime(path+".begin", file.Begin, w)
	if err != nil {
		return w, err
	}
	end, err := parseTime(path+".end", file.End, w)
	switch {
	case err != nil:
		return w, err
	case w.days == 0 && !end.After(begin):
		return w, &MaintenancePolicyError{path + ".end", fmt.Sprintf("%s is not after begin", file.End)}
	case w.days == 0:
		w.once = MaintenanceWindow{begin, end}
		return w, nil
	case w.zone == nil:
		w.zone = begin.Location() // days are days in the offset of begin
		end = end.In(w.zone)
	}
	w.begin, w.end = timeOfDay(begin), timeOfDay(end)
	return w, nil
}

// parseTime parses the begin or the end of a window. In a window with days of the week, the begin and the end are times
// of day. In a window without days, they are dates with a time of day.
func parseTime(path, text string, w window) (time.Time, error) {
	var layouts []string
	hint := ""
	switch {
	case w.days != 0 && w.zone != nil:
		layouts, hint = []string{"15:04:05", "15:04"},
			"a time such as 21:00, without offset because there is a timeZone"
	case w.days != 0:
		layouts, hint = []string{"15:04:05Z07:00", "15:04Z07:00"},
			"a time with offset such as 21:00:00+00:00, or set timeZone"
	case w.zone != nil:
		layouts, hint = []string{"2006-01-02T15:04:05", "2006-01-02T15:04"},
			"a date and time such as 2026-01-31T21:00:00, without offset because there is a timeZone, or set days"
	default:
		layouts, hint = []string{time.RFC3339}, "a date and time with offset such as 2026-01-31T21:00:00Z, or set days"
	}
	for _, layout := range layouts {
		t, err := time.Parse(layout, text)
		switch {
		case err != nil:
			continue
		case w.days == 0 && w.zone != nil:
			t = timeOnDate(t.Year(), t.Month(), t.Day(), timeOfDay(t), w.zone)
		}
		return t, nil
	}
	return time.Time{}, &MaintenancePolicyError{path, fmt.Sprintf("%q should be %s", text, hint)}
}
