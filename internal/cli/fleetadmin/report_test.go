package fleetadmin

import (
	"fmt"
	"testing"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

func TestShowAndRemove(t *testing.T) {
	for name, f := range fixture.Facts() {
		t.Run(name, func(t *testing.T) {
			f.Catalog, f.Now = fixture.Catalog(), fixture.Noon
			p := &console.Page{Now: fixture.Noon}
			showRemoval(f, p, &removeOptions{}, "", nil)
			gone := &console.Page{Now: fixture.Noon}
			showRemoval(f, gone, &removeOptions{gone: true}, "", nil)
			fixture.Golden(t, "runtime_"+name+".txt", fixture.Text(t, describeRuntime(f), config.FormatTable)+
				"\n--- remove\n"+p.String()+"\n--- remove --cluster-is-gone\n"+gone.String())
		})
	}
}

// fleet is five runtimes, of which each is different.
func fleet() []*fleetlist.Member {
	var all []*fleetlist.Member
	for n, state := range []v1beta2.State{v1beta2.StateReady, v1beta2.StateError, v1beta2.StateWarning,
		v1beta2.StateUnknown, v1beta2.StateReady} {
		m := &fleetlist.Member{}
		m.Metadata.Name, m.Metadata.CreationTimestamp = fmt.Sprintf("runtime-%d", n),
			fixture.Ago(24*time.Hour).Format(time.RFC3339)
		m.Spec.Channel = "regular"
		m.Status.State, m.Status.LastOperation.Operation, m.Status.LastOperation.LastUpdateTime = state, "an operation",
			fixture.Ago(time.Duration(n)*time.Minute).Format(time.RFC3339)
		if state != v1beta2.StateUnknown {
			m.Status.ModulesReady = "1/2"
			m.Status.Modules = []fleetlist.MemberModule{{Name: "sample", Version: "1.0.0", Channel: "regular",
				State: state}, {Name: "keda", Version: fmt.Sprintf("1.%d.0", n), State: v1beta2.StateReady}}
		}
		all = append(all, m)
	}
	all[1].Status.Modules[0].Reason, all[1].Status.Modules[0].Message = v1beta2.ReasonWorkloadFailed,
		"Deployment kyma-system/sample cannot become ready: look at its pods, of which there are three that crash "+
			"again and again"
	all[2].Status.Conditions = []fleetlist.MemberCondition{{Type: v1beta2.ConditionReady, Status: "False",
		Reason: v1beta2.ReasonRuntimeUnreachable, Message: "not ready: no answer"}}
	all[4].Status.Modules[0].Maintenance = true
	all[4].Metadata.Annotations.Paused = new("ask Kim")
	all[0].Status.Agent = &struct {
		Heard  bool   `json:"heard"`
		Reason string `json:"reason"`
	}{Heard: true}
	return all
}

// TestFleetReports: the worst comes first, and only columns that are used are shown.
func TestFleetReports(t *testing.T) {
	var count tally
	list := runtimeList{}
	for _, m := range fleet() {
		count.add(m)
		list = append(list, rowOf(m))
	}
	empty := tally{}
	fixture.GoldenFormats(t, "status.txt", count.report(fixture.ControlPlane, 10))
	fixture.GoldenFormats(t, "status_none.txt", empty.report(fixture.ControlPlane, 10))
	fixture.GoldenFormats(t, "runtime_list.txt", list)
}
