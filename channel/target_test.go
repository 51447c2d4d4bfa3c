package channel

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// TestTarget tests rule 13 in the package comment, which decides on which cluster a version may be installed.
func TestTarget(t *testing.T) {
	const (
		none, remote, here = v1beta2.Target(""), v1beta2.TargetRemote, v1beta2.TargetControlPlane
		refused            = v1beta2.ReasonControlPlaneNotAllowed
		changed            = v1beta2.ReasonTargetChanged
	)
	tests := map[string]struct {
		reason              string
		rule                ControlPlane
		template, installed v1beta2.Target
		blocker             string
		want                v1beta2.Target
	}{
		"Usual":         {"nothing is said", ControlPlaneRefused, none, none, "", none},
		"Remote":        {"the default is said", ControlPlaneAllowed, remote, none, "", none},
		"RemoteStays":   {"the default, for an installed module", ControlPlaneAllowed, none, remote, "", none},
		"Refused":       {"nobody has allowed it", ControlPlaneRefused, here, none, refused, none},
		"RefusedLater":  {"the permission was withdrawn", ControlPlaneRefused, here, here, refused, none},
		"Allowed":       {"a new module", ControlPlaneAllowed, here, none, "", here},
		"AllowedStays":  {"an installed module", ControlPlaneAllowed, here, here, "", here},
		"MovesHere":     {"it is in the runtime", ControlPlaneAllowed, here, remote, changed, none},
		"MovesAway":     {"it is on the control plane", ControlPlaneAllowed, none, here, changed, none},
		"MovesRefused":  {"it may not be here at all", ControlPlaneRefused, remote, here, changed, none},
		"SameCluster":   {"the control plane is the runtime", ControlPlaneIsRuntime, here, remote, "", none},
		"SameClusterTo": {"the control plane is the runtime", ControlPlaneIsRuntime, remote, here, "", none},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := shop()
			c.ControlPlane = tc.rule
			find := c.Template
			c.Template = func(name string) *v1beta2.ModuleTemplate {
				template := find(name)
				if template != nil {
					template = template.DeepCopy()
					template.Spec.Target = tc.template
				}
				return template
			}
			w := Request{Module: "keda", Channel: "regular", Target: tc.installed}
			d := Resolve(c, w)
			checkBlocker(t, w, d)
			is, kept := "", true
			if d.Blocker != nil {
				is, kept = d.Blocker.Code, d.Blocker.KeepInstalled
			}
			if diff := cmp.Diff(tc.blocker, is); diff != "" {
				t.Errorf("%s: blocker -want +got:\n%s", tc.reason, diff)
			}
			if d.Target != tc.want || !kept {
				t.Errorf("%s: target %q, installed version stays: %t; want %q, true", tc.reason, d.Target, kept, tc.want)
			}
		})
	}
}
