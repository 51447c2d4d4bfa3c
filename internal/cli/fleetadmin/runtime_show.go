package fleetadmin

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
)

func runtimeShowCommand(a *console.App) *cobra.Command {
	c := a.Command("show RUNTIME", "one runtime: labels, access, conditions, modules",
		"klm why shows what blocks it, and what to do.", `
klm runtime show runtime-a`,
		console.Arguments("RUNTIME"), func(cmd *cobra.Command, args []string) error {
			c, err := connection.ControlPlane(cmd.Context(), a)
			if err != nil {
				return err
			}
			f, err := diagnosis.Read(cmd.Context(), c, args[0], diagnosis.Options{})
			if err != nil {
				return err
			}
			f.Now = a.Now()
			return a.Print(describeRuntime(f))
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.RuntimeNames(a))
	return c
}

// runtimeReport is the report of klm runtime show.
type runtimeReport struct {
	Name        string               `json:"name"`
	State       v1beta2.State        `json:"state"`
	Since       time.Time            `json:"since,omitzero"`
	Channel     string               `json:"channel"`
	Created     time.Time            `json:"created,omitzero"`
	Deleting    *metav1.Time         `json:"deleting,omitempty"`
	SkipWindows bool                 `json:"skipMaintenanceWindows"`
	Access      string               `json:"access,omitempty"`
	Agent       string               `json:"agent,omitempty"`
	Kubernetes  string               `json:"kubernetesVersion,omitempty"`
	Labels      map[string]string    `json:"labels,omitempty"`
	Conditions  []metav1.Condition   `json:"conditions,omitempty"`
	Modules     diagnosis.ModuleList `json:"modules"`
	Mandatory   []diagnosis.Module   `json:"mandatoryModules,omitempty"`
	Objects     int                  `json:"objects"`
}

// describeRuntime returns the report about a runtime.
func describeRuntime(f *diagnosis.Facts) *runtimeReport {
	k := f.Kyma
	r := &runtimeReport{
		Name: k.Name, State: v1beta2.State(console.OrDash(string(k.Status.State))),
		Since: k.Status.LastOperation.LastUpdateTime.Time, Channel: connection.WithLastRequest(k).Spec.Channel,
		Created: k.CreationTimestamp.Time, Deleting: k.DeletionTimestamp, SkipWindows: k.Spec.SkipMaintenanceWindows,
		Access: f.AccessSecretsText(), Agent: f.AgentText(), Kubernetes: k.Status.KubernetesVersion,
		Labels: k.Labels, Conditions: k.Status.Conditions, Modules: diagnosis.ListModules(connection.WithLastRequest(
			k)),
	}
	for _, m := range f.Modules() {
		if m.Kind == "mandatory" {
			r.Mandatory = append(r.Mandatory, m)
		}
	}
	for i := range f.Manifests {
		r.Objects += len(f.Manifests[i].Status.Synced)
	}
	return r
}

func (r *runtimeReport) Names() []string { return []string{"kyma/" + r.Name} }

func (r *runtimeReport) Show(p *console.Page) {
	about := [][]string{
		{"Name:", r.Name},
		{"State:", string(r.State)},
		{"For:", p.Age(r.Since)},
		{"Channel:", r.Channel},
		{"Access:", console.OrDash(r.Access)},
		{"Agent:", console.OrDash(r.Agent)},
		{"Age:", p.Age(r.Created)},
		{"Objects:", fmt.Sprint(r.Objects)},
	}
	if r.Kubernetes != "" {
		about = append(about, []string{"Kubernetes:", r.Kubernetes})
	}
	title := "Labels:"
	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		about = append(about, []string{title, key + "=" + r.Labels[key]})
		title = ""
	}
	p.Rows(about)
	if r.Deleting != nil {
		p.Line("Being deleted for %s.", p.Age(r.Deleting.Time))
	}
	p.Line("")
	var rows [][]string
	for _, c := range r.Conditions {
		rows = append(rows, []string{c.Type, string(c.Status), c.Reason,
			p.Age(c.LastTransitionTime.Time), p.Clip(c.Message, 80)})
	}
	p.Table([]string{"CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"}, rows)
	p.Line("")
	rows = nil
	for _, m := range r.Modules {
		from := console.OrDash(m.Channel)
		if m.Pinned != "" {
			from = "pinned to " + m.Pinned
		}
		rows = append(rows, []string{m.Name, from, console.OrDash(m.Version),
			string(m.State), console.OrDash(m.Reason)})
	}
	for _, m := range r.Mandatory {
		rows = append(rows, []string{m.Name, "mandatory", console.OrDash(m.Installed), string(m.State), "-"})
	}
	if len(rows) == 0 {
		p.Line("no modules")
		return
	}
	p.Table([]string{"MODULE", "CHANNEL", "VERSION", "STATE", "REASON"}, rows)
}
