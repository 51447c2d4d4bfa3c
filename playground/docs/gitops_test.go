package docs

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// health is the health that Argo CD and Flux show for an object with the checks of gitops.md.
type health struct {
	argo    string // Healthy, Degraded or Progressing
	message string // of Argo CD
	flux    kstatus.Status
}

// healthChecks are the checks of the page.
type healthChecks struct {
	lua  string
	flux []struct {
		kstatus.Status
		cel.Program
	}
}

// readHealthChecks reads the checks from the page.
func readHealthChecks(t *testing.T) healthChecks {
	t.Helper()
	page, err := Read(guides + "gitops.md")
	if err != nil {
		t.Fatal(err)
	}
	var all healthChecks
	for _, b := range page.Blocks {
		if b.Kind != "yaml" {
			continue
		}
		var content struct {
			Lua  string `json:"resource.customizations.health.operator.kyma-project.io_Kyma"`
			Spec struct {
				HealthCheckExprs []struct{ APIVersion, Kind, InProgress, Failed, Current string }
			} `json:"spec"`
		}
		if err := yaml.Unmarshal([]byte(b.Text), &content); err != nil {
			t.Fatalf("%s:%d: %v", page.File, b.Line, err)
		}
		all.lua += content.Lua
		for _, e := range content.Spec.HealthCheckExprs {
			if e.APIVersion != "operator.kyma-project.io/v1beta2" || e.Kind != "Kyma" {
				t.Errorf("Flux has an expression for %s %s", e.APIVersion, e.Kind)
			}
			// The expressions are in the order in which Flux evaluates them.
			for _, one := range []struct {
				status kstatus.Status
				text   string
			}{{kstatus.InProgressStatus, e.InProgress}, {kstatus.FailedStatus, e.Failed},
				{kstatus.CurrentStatus, e.Current}} {
				if one.text == "" {
					continue
				}
				env, err := cel.NewEnv(cel.CrossTypeNumericComparisons(true), cel.OptionalTypes())
				if err != nil {
					t.Fatal(err)
				}
				parsed, issues := env.Parse(one.text) // Flux does not compile it, because it knows no types
				if issues.Err() != nil {
					t.Fatal(issues.Err())
				}
				program, err := env.Program(parsed)
				if err != nil {
					t.Fatal(err)
				}
				all.flux = append(all.flux, struct {
					kstatus.Status
					cel.Program
				}{one.status, program})
			}
		}
	}
	if all.lua == "" || len(all.flux) == 0 {
		t.Fatal("the page has no checks: is it still written as before?")
	}
	return all
}

// judge evaluates the health checks as Flux and Argo CD do. If an expression uses a field that does not exist, Flux
// treats the object as Unknown and checks it again.
func (c healthChecks) judge(t *testing.T, o *unstructured.Unstructured) (h health) {
	t.Helper()
	state := lua.NewState()
	defer state.Close()
	state.SetGlobal("obj", luaValue(state, o.Object))
	if err := state.DoString(c.lua); err != nil {
		t.Fatal(err)
	}
	result, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the check of Argo CD returns %v", state.Get(-1))
	}
	h.argo, h.message = result.RawGetString("status").String(), result.RawGetString("message").String()

	observed, found, err := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	if err != nil {
		t.Fatal(err)
	}
	if h.flux = kstatus.InProgressStatus; found && observed != o.GetGeneration() {
		return h
	}
	for _, e := range c.flux {
		switch value, _, err := e.Eval(o.Object); {
		case err != nil:
			h.flux = kstatus.UnknownStatus
			return h
		case value == types.True:
			h.flux = e.Status
			return h
		}
	}
	return h
}

// luaValue is a value of JSON in Lua.
func luaValue(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for k, v := range value {
			table.RawSetString(k, luaValue(state, v))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, v := range value {
			table.Append(luaValue(state, v))
		}
		return table
	case string:
		return lua.LString(value)
	case bool:
		return lua.LBool(value)
	case int64:
		return lua.LNumber(value)
	case float64:
		return lua.LNumber(value)
	}
	return lua.LNil
}

// TestHealthChecks evaluates the checks for each state of a Kyma.
func TestHealthChecks(t *testing.T) {
	checks := readHealthChecks(t)
	cases := map[string]struct {
		reason string
		status string
		want   health
	}{
		"New": {"nobody has reconciled it", `null`, health{"Progressing", "waiting for the first reconcile",
			kstatus.UnknownStatus}},
		"Edited": {"the state is that of the former generation",
			`{"state": "Ready", "observedGeneration": 1, "lastOperation": {"operation": "ready"}}`,
			health{"Progressing", "waiting for the first reconcile", kstatus.InProgressStatus}},
		"Processing": {"it goes on", `{"state": "Processing", "observedGeneration": 2,
			"lastOperation": {"operation": "installing"}}`,
			health{"Progressing", "installing", kstatus.InProgressStatus}},
		"Ready": {"all modules are Ready", `{"state": "Ready", "observedGeneration": 2,
			"lastOperation": {"operation": "ready"}}`, health{"Healthy", "ready", kstatus.CurrentStatus}},
		"Warning": {"a person has to act", `{"state": "Warning", "observedGeneration": 2,
			"lastOperation": {"operation": "paused"}}`, health{"Degraded", "paused", kstatus.InProgressStatus}},
		"Error": {"it has failed", `{"state": "Error", "observedGeneration": 2,
			"lastOperation": {"operation": "the disk is full"}}`,
			health{"Degraded", "the disk is full", kstatus.FailedStatus}},
		"Deleting": {"a deletion is under way", `{"state": "Deleting", "observedGeneration": 2}`,
			health{"Progressing", "", kstatus.InProgressStatus}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{}
			text := `{"apiVersion": "v1", "kind": "K", "metadata": {"generation": 2}, "status": ` + c.status + `}`
			if err := o.UnmarshalJSON([]byte(text)); err != nil {
				t.Fatal(err)
			}
			if o.Object["status"] == nil {
				delete(o.Object, "status")
			}
			if got := checks.judge(t, o); got != c.want {
				t.Errorf("%s: %+v, want %+v", c.reason, got, c.want)
			}
		})
	}
}

// checkHealth evaluates the checks for a Kyma of the landscape in both clusters, and also the default check of Flux
// without expressions.
func checkHealth(t *testing.T, want health, without kstatus.Status) {
	t.Helper()
	checks := readHealthChecks(t)
	for cluster, name := range map[string]string{"control-plane": "kcp-system/runtime-a",
		"runtime-a": "kyma-system/default"} {
		namespace, name, _ := strings.Cut(name, "/")
		get := exec.Command("bin/kubectl", "--kubeconfig", fmt.Sprintf(".landscape/%s.kubeconfig", cluster), "get",
			"kyma", "-n", namespace, name, "-o", "json")
		get.Dir = folder
		data, err := get.Output()
		if err != nil {
			t.Fatal(err)
		}
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal(data, o); err != nil {
			t.Fatal(err)
		}
		got := checks.judge(t, o)
		if got.argo != want.argo || got.flux != want.flux || !strings.Contains(got.message, want.message) {
			t.Errorf("in %s: %+v, want %+v", cluster, got, want)
		}
		if result, err := kstatus.Compute(o); err != nil || result.Status != without {
			t.Errorf("in %s Flux takes it for %v, %v without an expression, want %s", cluster, result, err, without)
		}
	}
}
