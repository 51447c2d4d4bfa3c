package cli

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

func (a *app) runtimeShowCommand() *cobra.Command {
	c := a.command("show RUNTIME", "one runtime: labels, access, conditions, modules", "What is in the way, and what to do, is told by klm why.", `
klm runtime show runtime-a`,
		arguments("RUNTIME"), func(cmd *cobra.Command, args []string) error {
			c, err := a.controlPlane(cmd.Context())
			if err != nil {
				return err
			}
			f, err := c.factsOf(cmd.Context(), args[0], "")
			if err != nil {
				return err
			}
			f.now = a.now()
			return a.print(f.describe())
		})
	c.ValidArgsFunction = completing(a.runtimeNames)
	return c
}

// runtimeReport is what klm runtime show shows.
type runtimeReport struct {
	Name        string             `json:"name"`
	State       v1beta2.State      `json:"state"`
	Since       time.Time          `json:"since,omitzero"`
	Channel     string             `json:"channel"`
	Created     time.Time          `json:"created,omitzero"`
	Deleting    *metav1.Time       `json:"deleting,omitempty"`
	SkipWindows bool               `json:"skipMaintenanceWindows"`
	Access      string             `json:"access,omitempty"`
	Agent       string             `json:"agent,omitempty"`
	Labels      map[string]string  `json:"labels,omitempty"`
	Conditions  []metav1.Condition `json:"conditions,omitempty"`
	Modules     moduleList         `json:"modules"`
	Mandatory   []moduleWhy        `json:"mandatoryModules,omitempty"`
	Objects     int                `json:"objects"`
}

func (f *facts) describe() *runtimeReport {
	k := f.kyma
	r := &runtimeReport{
		Name: k.Name, State: v1beta2.State(or(string(k.Status.State))), Since: k.Status.LastOperation.LastUpdateTime.Time, Channel: wishFrom(k).Spec.Channel,
		Created: k.CreationTimestamp.Time, Deleting: k.DeletionTimestamp, SkipWindows: k.Spec.SkipMaintenanceWindows, Access: f.access(), Agent: f.agent(),
		Labels: k.Labels, Conditions: k.Status.Conditions, Modules: moduleRows(wishFrom(k)),
	}
	for _, m := range f.modules() {
		if m.Sort == "mandatory" {
			r.Mandatory = append(r.Mandatory, m)
		}
	}
	for i := range f.manifests {
		r.Objects += len(f.manifests[i].Status.Synced)
	}
	return r
}

func (r *runtimeReport) names() []string { return []string{"kyma/" + r.Name} }

func (r *runtimeReport) show(p *page) {
	about := [][]string{
		{"Name:", r.Name},
		{"State:", string(r.State)},
		{"For:", p.ago(r.Since)},
		{"Channel:", r.Channel},
		{"Access:", or(r.Access)},
		{"Agent:", or(r.Agent)},
		{"Age:", p.ago(r.Created)},
		{"Objects:", fmt.Sprint(r.Objects)},
	}
	title := "Labels:"
	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		about = append(about, []string{title, key + "=" + r.Labels[key]})
		title = ""
	}
	p.rows(about)
	if r.Deleting != nil {
		p.line("Being deleted for %s.", p.ago(r.Deleting.Time))
	}
	p.line("")
	var rows [][]string
	for _, c := range r.Conditions {
		rows = append(rows, []string{c.Type, string(c.Status), c.Reason, p.ago(c.LastTransitionTime.Time), p.clip(c.Message, 80)})
	}
	p.table([]string{"CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"}, rows)
	p.line("")
	rows = nil
	for _, m := range r.Modules {
		from := or(m.Channel)
		if m.Pinned != "" {
			from = "pinned to " + m.Pinned
		}
		rows = append(rows, []string{m.Name, from, or(m.Version), string(m.State), or(m.Reason)})
	}
	for _, m := range r.Mandatory {
		rows = append(rows, []string{m.Name, "mandatory", or(m.Installed), string(m.State), "-"})
	}
	if len(rows) == 0 {
		p.line("no modules")
		return
	}
	p.table([]string{"MODULE", "CHANNEL", "VERSION", "STATE", "REASON"}, rows)
}
