package channel

import (
	"strings"
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

func TestCheckContent(t *testing.T) {
	cases := map[string]struct {
		reason                   string
		recorded, found, accepts string
		want                     bool
	}{
		"New":           {"nothing is recorded before the first installation", "", "", "", false},
		"Recorded":      {"no other content was found", "a", "", "", false},
		"Replaced":      {"other content was found", "a", "b", "", true},
		"Accepted":      {"a person has accepted it", "a", "b", "b", false},
		"AcceptedOther": {"a person has accepted other content", "a", "c", "b", true},
		"Former":        {"the recorded content was found again", "a", "a", "", false},
		"NoRecord":      {"a mark without a record is not known to differ from nothing", "", "b", "", true},
		"Early":         {"content may be accepted before it is found", "a", "", "b", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			template := &v1beta2.ModuleTemplate{}
			template.Name = "keda-1.0.0"
			template.Annotations = map[string]string{}
			for key, value := range map[string]string{v1beta2.AnnotationContentDigest: c.recorded,
				v1beta2.AnnotationReplacedBy: c.found, v1beta2.AnnotationAcceptContent: c.accepts} {
				if value != "" {
					template.Annotations[key] = value
				}
			}
			b := ReplacedContentBlocker(template, "keda", "1.0.0")
			if (b != nil) != c.want {
				t.Fatalf("%s: got %+v", c.reason, b)
			}
			if b != nil && (b.Code != v1beta2.ReasonVersionReplaced || !b.KeepInstalled ||
				b.Object != "ModuleTemplate keda-1.0.0" || !strings.Contains(b.Message, c.found)) {
				t.Errorf("%s: got %+v", c.reason, b)
			}
		})
	}
}

// TestReplacedVersion checks that Resolve blocks a replaced version, whether or not it is installed, and that other
// versions of the module are not blocked.
func TestReplacedVersion(t *testing.T) {
	catalog := shop()
	templates := catalog.Template
	catalog.Template = func(name string) *v1beta2.ModuleTemplate {
		found := templates(name)
		if name != "keda-1.0.0" || found == nil {
			return found
		}
		found = found.DeepCopy()
		found.Annotations = map[string]string{v1beta2.AnnotationContentDigest: "sha256:a",
			v1beta2.AnnotationReplacedBy: "sha256:b"}
		return found
	}
	for _, installed := range []string{"", "0.9.0", "1.0.0"} {
		d := Resolve(catalog, Request{Module: "keda", Channel: "regular", Installed: installed})
		if d.Blocker == nil || d.Blocker.Code != v1beta2.ReasonVersionReplaced || d.Version != "1.0.0" ||
			d.Next != "" || d.Template != nil {
			t.Errorf("installed %q: got %+v", installed, d)
		}
	}
	if d := Resolve(catalog, Request{Module: "keda", Channel: "fast", Installed: "1.0.0"}); d.Blocker != nil {
		t.Errorf("another version: got %+v", d.Blocker)
	}
}
