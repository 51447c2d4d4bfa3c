package urgency

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// TestOf checks that a line of the annotation is valid for one move of one channel to one version, and that a line that
// cannot be read is an error.
func TestOf(t *testing.T) {
	const line = "regular 2.0.1 Emergency ignoreWindows: 2.0.0 deletes volumes: all of them"
	is := Urgency{v1beta2.UrgencyEmergency, "2.0.0 deletes volumes: all of them", true}
	for name, c := range map[string]struct {
		reason  string
		value   string
		used    string
		version string
		want    Urgency
		err     string
	}{
		"None":      {reason: "a normal move", version: "2.0.1"},
		"Emergency": {reason: "it names channel and version", value: line, version: "2.0.1", want: is},
		"Hotfix": {reason: "one of two lines", value: "fast 2.0.1 Emergency: x\n\n  regular 2.0.1 Hotfix: y \n",
			version: "2.0.1", want: Urgency{Is: v1beta2.UrgencyHotfix, Reason: "y"}},
		"OtherVersion": {reason: "it was about another move", value: line, version: "2.0.2"},
		"OtherChannel": {reason: "likewise", value: strings.Replace(line, "regular", "fast", 1), version: "2.0.1"},
		"Used":         {reason: "the channel comes back to a version", value: line, used: line, version: "2.0.1"},
		"UsedBefore": {reason: "another line was used", value: line, used: "regular 2.0.1 Hotfix: y", version: "2.0.1",
			want: is},
		"OtherUnreadable": {reason: "it is not about this move", value: "regular 3.0.0 Now!", version: "2.0.1"},
		"NoUrgency": {reason: "a word is missing", value: "regular 2.0.1: x", version: "2.0.1",
			err: `urgency is ""`},
		"NoColon": {reason: "there is no reason", value: "regular 2.0.1 Emergency", version: "2.0.1",
			err: "the reason"},
		"NoReason": {reason: "it is empty", value: "regular 2.0.1 Emergency: ", version: "2.0.1",
			err: "the reason"},
		"Unknown": {reason: "no such urgency", value: "regular 2.0.1 emergency: x", version: "2.0.1",
			err: `"emergency"`},
		"Normal": {reason: "it needs no line", value: "regular 2.0.1 Normal: x", version: "2.0.1",
			err: `"Normal"`},
		"HotfixWindows": {reason: "a customer's window is not ours", value: "regular 2.0.1 Hotfix ignoreWindows: x",
			version: "2.0.1", err: "only an emergency"},
		"MoreWords": {reason: "it says something that nobody reads", value: "regular 2.0.1 Emergency please: x",
			version: "2.0.1", err: `"please" is not expected`},
		"TwoLines": {reason: "which one was used is not known", value: line + "\nregular 1.0.0 Hotfix: x",
			version: "2.0.1",
			err:     "several lines about channel regular"},
		"Long": {reason: "it has no end", value: "regular 2.0.1 Emergency: " + strings.Repeat("x", 1025),
			version: "2.0.1", err: "more than 1024"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Name: "mod",
				Annotations: map[string]string{v1beta2.AnnotationUrgency: c.value}}}
			r.Status.Channels = []v1beta2.ChannelStatus{{Channel: "regular", UsedUrgency: c.used}}
			got, err := Of(r, "regular", c.version)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("%s: error %v, want %q", c.reason, err, c.err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", c.reason, diff)
			}
		})
	}
}

// TestSetLine checks that SetLine leaves at most one line for each channel in the annotation.
func TestSetLine(t *testing.T) {
	hotfix := Urgency{Is: v1beta2.UrgencyHotfix, Reason: "y"}
	value := SetLine("fast 1.0.0 Hotfix: a\nregular 1.0.0 Hotfix: b\n", "regular", hotfix.Line("regular", "2.0.0"))
	if want := "fast 1.0.0 Hotfix: a\nregular 2.0.0 Hotfix: y"; value != want {
		t.Errorf("got %q, want %q", value, want)
	}
	if value = SetLine(SetLine(value, "regular", ""), "fast", ""); value != "" {
		t.Errorf("a normal move keeps %q", value)
	}
}
