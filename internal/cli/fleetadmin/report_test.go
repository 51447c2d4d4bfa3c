package fleetadmin

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

func TestShowAndRemove(t *testing.T) {
	for name, f := range fixture.FactsBySituation() {
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

// TestRuntimeList checks that columns without values are not shown.
func TestRuntimeList(t *testing.T) {
	members := []string{
		`{"metadata":{"name":"runtime-0"},"spec":{"channel":"regular"},"status":{"state":"Ready","modulesReady":"1/2",
			"agent":{"heard":true},"kubernetesVersion":"v1.34.2"}}`,
		`{"metadata":{"name":"runtime-1"},"spec":{"channel":"regular"},"status":{"state":"Error","modulesReady":"1/2",
			"modules":[{"name":"sample","state":"Error","reason":"WorkloadFailed","message":"Deployment sample crashes"}]}}`,
		`{"metadata":{"name":"runtime-2"},"spec":{"channel":"regular"},"status":{"state":"Warning","conditions":[
			{"type":"Ready","status":"False","reason":"RuntimeUnreachable","message":"not ready: no answer"}]}}`,
		`{"metadata":{"name":"runtime-3"},"spec":{"channel":"fast"}}`,
		`{"metadata":{"name":"runtime-4","annotations":{"operator.kyma-project.io/paused":"ask Kim"}},
			"spec":{"channel":"regular"},"status":{"state":"Ready","modulesReady":"2/2"}}`,
	}
	list := runtimeList{}
	for _, text := range members {
		m := &fleetlist.Member{}
		if err := json.Unmarshal([]byte(text), m); err != nil {
			t.Fatal(err)
		}
		m.Metadata.CreationTimestamp = fixture.BeforeNoon(24 * time.Hour).Format(time.RFC3339)
		list = append(list, rowOf(m))
	}
	fixture.GoldenFormats(t, "runtime_list.txt", list)
	for i := range list {
		list[i].Context = "eu"
	}
	fixture.GoldenFormats(t, "runtime_list_contexts.txt", list)
}
