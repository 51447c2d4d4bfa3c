package fleetlist

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// listing returns a Listing whose filters are set by the given command-line flags.
func listing(t *testing.T, flags []string) *console.Listing {
	t.Helper()
	var l console.Listing
	cmd := &cobra.Command{}
	l.Register(cmd, append(slices.Clone(Filters), console.FilterKubernetes)...)
	if err := cmd.ParseFlags(flags); err != nil {
		t.Fatal(err)
	}
	return &l
}

func TestMatches(t *testing.T) {
	m := &Member{}
	m.Spec.Channel, m.Status.State = "regular", v1beta2.StateError
	m.Status.Modules = []MemberModule{
		{Name: "sample", Version: "1.0.0", Channel: "fast", State: v1beta2.StateError, Reason: "WorkloadFailed"},
		{Name: "keda", Version: "2.0.0", Channel: "regular", State: v1beta2.StateReady}}
	m.Status.KubernetesVersion = "v1.34.2+k3s1"
	m.Status.Conditions = []MemberCondition{{Type: "Ready", Status: "False", Reason: "WorkloadFailed"},
		{Type: "ModuleCatalog", Status: "False", Reason: "RuntimeForbidden"}}
	cases := map[string]struct {
		reason string
		args   []string
		want   bool
	}{
		"None":             {"no filter", nil, true},
		"State":            {"of the runtime", []string{"--state=error"}, true},
		"OtherState":       {"of the runtime", []string{"--state=Ready,Warning"}, false},
		"Channel":          {"of the runtime", []string{"--channel=fast"}, false},
		"Version":          {"of any module", []string{"--version=2.0.0"}, true},
		"NoVersion":        {"no module has it", []string{"--version=3.0.0"}, false},
		"Reason":           {"of a module", []string{"--reason=WorkloadFailed"}, true},
		"Condition":        {"of a condition", []string{"--reason=RuntimeForbidden"}, true},
		"Module":           {"it has the module", []string{"--module=keda"}, true},
		"NoModule":         {"it has no such module", []string{"--module=istio"}, false},
		"ModuleState":      {"with a module, the state is that of the module", []string{"--module=keda", "--state=Ready"}, true},
		"ModuleVersion":    {"all filters are about one module", []string{"--module=keda", "--version=1.0.0"}, false},
		"ModuleChannel":    {"the channel, too", []string{"--module=sample", "--channel=fast"}, true},
		"Kubernetes":       {"the minor version", []string{"--kubernetes-version=1.34"}, true},
		"KubernetesPatch":  {"the patch version", []string{"--kubernetes-version=1.33,v1.34.2"}, true},
		"KubernetesWhole":  {"all of it", []string{"--kubernetes-version=v1.34.2+k3s1"}, true},
		"OtherKubernetes":  {"1.3 is another minor version than 1.34", []string{"--kubernetes-version=1.3"}, false},
		"KubernetesModule": {"both filters", []string{"--kubernetes-version=1.35", "--module=keda"}, false},
		"ModuleReason":     {"and the reason", []string{"--module=keda", "--reason=WorkloadFailed"}, false},
	}
	for name, c := range cases {
		if got := m.Matches(listing(t, c.args)); got != c.want {
			t.Errorf("%s: %s: %v, want %v", name, c.reason, got, c.want)
		}
	}
}
