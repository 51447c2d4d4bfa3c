package channeladmin

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/urgency"
)

// urgencyFlags are the flags that state how urgent a move is.
type urgencyFlags struct {
	urgencyName string
	urgency     urgency.Urgency // parseUrgency sets Is
}

func (f *urgencyFlags) registerUrgency(c *cobra.Command) {
	c.Flags().StringVar(&f.urgencyName, "urgency", "", "hotfix: shorten what the RolloutPolicy allows; emergency: no "+
		"soaks and no gates; needs --reason")
	c.Flags().StringVar(&f.urgency.Reason, "reason", "", "why the move is urgent, for others")
	c.Flags().BoolVar(&f.urgency.IgnoreWindows, "ignore-windows", false,
		"in an emergency, do not wait for maintenance windows")
	console.CompleteFlag(c, "urgency", console.FixedNames("hotfix", "emergency"))
}

// parseUrgency reads from the flags how urgent the move of the channel is.
func (f *urgencyFlags) parseUrgency() error {
	u := &f.urgency
	switch strings.ToLower(f.urgencyName) {
	case "", "normal":
		if u.Reason != "" || u.IgnoreWindows {
			return console.Fail(console.ExitUsage, "--reason and --ignore-windows are for an urgent move: give "+
				"--urgency=hotfix or --urgency=emergency")
		}
		return nil
	case "hotfix":
		u.Is = v1beta2.UrgencyHotfix
	case "emergency":
		u.Is = v1beta2.UrgencyEmergency
	default:
		return console.Fail(console.ExitUsage, "--urgency: %q is not known: use hotfix or emergency", f.urgencyName)
	}
	if strings.TrimSpace(u.Reason) == "" {
		return console.Fail(console.ExitUsage, "others will read why the move is urgent: give --reason")
	}
	if err := u.Check(); err != nil {
		return console.Fail(console.ExitUsage, "%v", err)
	}
	return nil
}

// checkUrgencyIsNew returns an error if an earlier move of the channel to this version had the same urgency and reason.
func (o *setOptions) checkUrgencyIsNew(release *v1beta2.ModuleReleaseMeta) error {
	if o.urgency.Is == "" {
		return nil
	}
	after := release.DeepCopy()
	o.setUrgencyLine(after)
	if is, err := urgency.Of(after, o.channel, o.version); err != nil || is != o.urgency {
		return console.Fail(console.ExitFailed, "an earlier move of channel %s to version %s had the same urgency and "+
			"reason: give another --reason", o.channel, o.version)
	}
	return nil
}

// setUrgencyLine sets the line of a channel in the annotation [v1beta2.AnnotationUrgency], which declares moves of
// channels as urgent. If the move is not urgent, setUrgencyLine removes the line of the channel, so that an old line
// has no effect on the move.
func (o *setOptions) setUrgencyLine(release *v1beta2.ModuleReleaseMeta) {
	line := ""
	if o.urgency.Is != "" {
		line = o.urgency.Line(o.channel, o.version)
	}
	value := urgency.SetLine(release.Annotations[v1beta2.AnnotationUrgency], o.channel, line)
	if value == "" {
		delete(release.Annotations, v1beta2.AnnotationUrgency)
		return
	}
	if release.Annotations == nil {
		release.Annotations = map[string]string{}
	}
	release.Annotations[v1beta2.AnnotationUrgency] = value
}

// urgencyPatchOrNil returns the merge patch of the annotations, or nil if the annotations do not change.
func (o *setOptions) urgencyPatchOrNil(annotations map[string]string) map[string]any {
	after := &v1beta2.ModuleReleaseMeta{}
	before, found := annotations[v1beta2.AnnotationUrgency]
	if found {
		after.Annotations = map[string]string{v1beta2.AnnotationUrgency: before}
	}
	o.setUrgencyLine(after)
	value, remains := after.Annotations[v1beta2.AnnotationUrgency]
	switch {
	case remains && value != before:
		return map[string]any{v1beta2.AnnotationUrgency: value}
	case !remains && found:
		return map[string]any{v1beta2.AnnotationUrgency: nil}
	}
	return nil
}

// urgencySuffix returns a text about how urgent the move is, for the question to the user.
func (r *Effects) urgencySuffix() string {
	switch r.Urgency {
	case v1beta2.UrgencyHotfix:
		return " as a hotfix"
	case v1beta2.UrgencyEmergency:
		return " as an emergency, without soaks and gates"
	}
	return ""
}

// urgencyText returns a text with the steps that an urgent rollout leaves out, and the reason for the urgency.
func urgencyText(spec *v1beta2.ModuleRolloutSpec) string {
	text := "It is a hotfix: it has the stages and soaks that spec.hotfix of the RolloutPolicy allows"
	if spec.Urgency == v1beta2.UrgencyEmergency {
		text = "It is an emergency: it has no soaks and no gates"
		if spec.IgnoreWindows {
			text += ", and does not wait for maintenance windows"
		}
	}
	return fmt.Sprintf("%s. Reason: %s", text, spec.UrgencyReason)
}
