// Package urgency reads and writes the urgency of moves of channels, and decides which steps an urgent rollout leaves
// out.
//
// # Use
//
//	is, err := urgency.Of(release, "regular", "2.0.1")  // of the move of a channel to a version
//	value := urgency.SetLine(value, "regular", is.Line("regular", "2.0.1"))
//
// # How it works
//
// The annotation v1beta2.AnnotationUrgency of a ModuleReleaseMeta has one line of text for each channel. A line
// declares one move of its channel to one version urgent. The coordinator records each line that it has used, so that
// the line is not valid for a second move.
//
// # What it does not do
//
// The API server decides which users may declare an emergency. Package rollout decides which rollouts a policy freezes.
package urgency

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// maxUrgencyReason is the maximum number of characters of a reason.
const maxUrgencyReason = 1024

// ignoreWindows is the word in a line of the annotation that lets updates ignore maintenance windows.
const ignoreWindows = "ignoreWindows"

// Urgency is the urgency of one move of a channel. The zero value is a normal move.
type Urgency struct {
	// The urgency of a move is UrgencyHotfix or UrgencyEmergency, or "" for a normal move.
	Is v1beta2.RolloutUrgency
	// Reason is the reason why a person has declared the move urgent. Status and events show Reason to users.
	Reason string
	// IgnoreWindows means that updates do not wait for maintenance windows.
	IgnoreWindows bool
}

// Line returns the line of v1beta2.AnnotationUrgency for a move of a channel to a version.
func (u Urgency) Line(channel, version string) string {
	words := []string{channel, version, string(u.Is)}
	if u.IgnoreWindows {
		words = append(words, ignoreWindows)
	}
	return strings.Join(words, " ") + ": " + u.Reason
}

// Check returns the reason why an urgency is not valid, or nil.
func (u Urgency) Check() error {
	switch {
	case u.Is != v1beta2.UrgencyHotfix && u.Is != v1beta2.UrgencyEmergency:
		return fmt.Errorf("the urgency is %q, and %s or %s is expected", u.Is, v1beta2.UrgencyHotfix,
			v1beta2.UrgencyEmergency)
	case strings.TrimSpace(u.Reason) == "" || strings.ContainsAny(u.Reason, "\r\n"):
		return fmt.Errorf("the reason after the colon must be one line of text")
	case len(u.Reason) > maxUrgencyReason:
		return fmt.Errorf("the reason has more than %d characters", maxUrgencyReason)
	case u.IgnoreWindows && u.Is != v1beta2.UrgencyEmergency:
		return fmt.Errorf("only an emergency may ignore maintenance windows")
	}
	return nil
}

// SetLine replaces the line of one channel in the value of an annotation that has one line per channel, and returns the
// new value. If the parameter line is "", the line of the channel is removed. If no line is left, SetLine returns "".
func SetLine(value, channel, line string) string {
	var kept []string
	for l := range strings.Lines(value) {
		if l = strings.TrimSpace(l); l != "" && strings.Fields(l)[0] != channel {
			kept = append(kept, l)
		}
	}
	if line != "" {
		kept = append(kept, line)
	}
	return strings.Join(kept, "\n")
}

// Lines returns the lines about a channel in the annotation urgency of a release.
func Lines(release *v1beta2.ModuleReleaseMeta, channel string) []string {
	var all []string
	for line := range strings.Lines(release.Annotations[v1beta2.AnnotationUrgency]) {
		about, _, _ := strings.Cut(line, ":")
		if words := strings.Fields(about); len(words) > 0 && words[0] == channel {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

// LineOf returns the line of the annotation that declares a move of a channel to a version urgent, or "" if there is no
// such line.
func LineOf(release *v1beta2.ModuleReleaseMeta, channel, version string) string {
	for _, line := range Lines(release, channel) {
		about, _, _ := strings.Cut(line, ":")
		if words := strings.Fields(about); len(words) > 1 && words[1] == version {
			return line
		}
	}
	return ""
}

// Of returns the urgency that a release declares for the move of a channel to a version. A line of the annotation is
// valid for one move, so a line that was used before does not apply to another move to the same version. If a line of
// the annotation cannot be read, Of returns an error, and the caller must not admit a runtime.
func Of(release *v1beta2.ModuleReleaseMeta, channel, version string) (Urgency, error) {
	line := LineOf(release, channel, version)
	if s := release.ChannelStatus(channel); line == "" || s != nil && s.UsedUrgency == line {
		return Urgency{}, nil
	}
	if len(Lines(release, channel)) > 1 {
		return Urgency{}, fmt.Errorf("the annotation %s of ModuleReleaseMeta %s has several lines about channel %s: keep one",
			v1beta2.AnnotationUrgency, release.Name, channel)
	}
	about, reason, _ := strings.Cut(line, ":")
	u, words := Urgency{Reason: strings.TrimSpace(reason)}, strings.Fields(about)[2:]
	if len(words) > 0 {
		u.Is, words = v1beta2.RolloutUrgency(words[0]), words[1:]
	}
	if len(words) > 0 && words[0] == ignoreWindows {
		u.IgnoreWindows, words = true, words[1:]
	}
	err := u.Check()
	if err == nil && len(words) > 0 {
		err = fmt.Errorf("%q is not expected before the colon", strings.Join(words, " "))
	}
	if err != nil {
		return Urgency{}, fmt.Errorf("the annotation %s of ModuleReleaseMeta %s has the line %.128q: %w",
			v1beta2.AnnotationUrgency, release.Name, line, err)
	}
	return u, nil
}

// ShortenOrSkipStage changes a stage of an urgent rollout: an emergency has no soak and no gates, and a hotfix has the
// shorter soak of the policy. A policy may list the stages that a hotfix has. If the stage s is not in this list,
// ShortenOrSkipStage returns false, and the caller leaves out the whole stage. ShortenOrSkipStage does not change the
// limits and the required evidence of the stage.
func ShortenOrSkipStage(s *v1beta2.RolloutStage, is v1beta2.RolloutUrgency, hotfix *v1beta2.RolloutHotfix) (
	isKept bool) {
	switch {
	case is == v1beta2.UrgencyEmergency:
		s.Soak, s.Gates = metav1.Duration{}, nil
	case is == v1beta2.UrgencyHotfix && hotfix != nil:
		if hotfix.Soak != nil {
			s.Soak.Duration = min(s.Soak.Duration, max(0, hotfix.Soak.Duration))
		}
		return len(hotfix.Stages) == 0 || slices.Contains(hotfix.Stages, s.Name)
	}
	return true
}
