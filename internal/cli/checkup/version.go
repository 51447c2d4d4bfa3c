package checkup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/liveness"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

func versionCommand(a *console.App) *cobra.Command {
	client := false
	c := a.Command("version [--client]", "the versions of klm, the managers, the agents and the CRDs", `
In a control plane it shows the version that each manager has written into its Lease, how many agents have which version, and whether the CRDs
are those of this klm. In a runtime it compares the CRDs only. Without a configured cluster it shows the version of klm.`, `
klm version
klm version --client
klm version -o json | jq -r .client.version`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error {
			r := &versionReport{Client: config.ReadBuild()}
			if client {
				return a.Print(r)
			}
			c, err := connection.Open(a)
			if err == nil {
				err = r.read(cmd.Context(), c, a.Config.Namespace)
			}
			if err != nil {
				r.Problem = err.Error()
			}
			if printed := a.Print(r); printed != nil || c != nil {
				return cmp.Or(printed, err)
			}
			return nil // there is no cluster, which is no problem of klm
		})
	c.Flags().BoolVar(&client, "client", false, "only the version of klm; no request is sent")
	return c
}

// versionReport is the report of klm version.
type versionReport struct {
	Client  config.Build     `json:"client"`
	Cluster string           `json:"cluster,omitempty"`
	Manager *liveness.Report `json:"manager,omitempty"`
	Agents  []agentVersion   `json:"agents,omitempty"`
	CRDs    []crdState       `json:"crds,omitempty"`
	Problem string           `json:"problem,omitempty"` // why nothing could be read
}

// agentVersion contains a version of the agent and the number of runtimes with this version.
type agentVersion struct {
	Version  string `json:"version"`
	Runtimes int    `json:"runtimes"`
}

// agentMember has those fields of a Kyma that are decoded for klm version.
type agentMember struct {
	Status struct {
		Agent *struct {
			Version string `json:"version"`
		} `json:"agent"`
	} `json:"status"`
}

// read reads the versions of the CRDs, the managers and the agents.
func (r *versionReport) read(ctx context.Context, c *connection.Cluster, namespace string) error {
	r.Cluster = c.Context
	if err := c.DetectKinds(ctx); err != nil {
		return err
	}
	if r.CRDs = compareCRDs(ctx, c, !c.IsControlPlane()); !c.IsControlPlane() {
		return nil
	}
	if c.Namespace = namespace; namespace == "" {
		c.Namespace = c.DetectKymaNamespace(ctx)
	}
	r.Manager = liveness.Read(ctx, c).Report(time.Time{})
	counts := map[string]int{}
	_, err := fleetlist.ListAs(ctx, c, "kymas", "", func(k *agentMember) {
		if agent := k.Status.Agent; agent != nil && agent.Version != "" {
			counts[strings.Clone(agent.Version)]++
		}
	})
	for version, n := range counts {
		r.Agents = append(r.Agents, agentVersion{version, n})
	}
	slices.SortFunc(r.Agents, func(a, b agentVersion) int {
		return cmp.Or(cmp.Compare(b.Runtimes, a.Runtimes), cmp.Compare(a.Version, b.Version))
	})
	return err
}

// Names returns the lines that -o name prints.
func (r *versionReport) Names() []string { return []string{r.Client.Version} }

// Show writes the report as text for people.
func (r *versionReport) Show(p *console.Page) {
	rows := [][]string{{"klm", r.Client.String()}}
	if r.Manager != nil {
		rows = append(rows, r.managerRows()...)
	}
	for _, agent := range r.Agents {
		rows = append(rows, []string{"agent", fmt.Sprintf("%s in %s", agent.Version,
			console.Count(agent.Runtimes, "runtime"))})
	}
	if len(r.CRDs) > 0 {
		rows = append(rows, []string{"CRDs", r.crdLine()})
	}
	p.Rows(rows)
	if r.Problem != "" {
		p.Wrap("", "nothing else is known: "+r.Problem)
	}
}

// managerRows returns the rows about the managers: one row for each replica that shares the work, or one row for the
// leader.
func (r *versionReport) managerRows() [][]string {
	m := r.Manager
	suffix := ""
	switch m.State {
	case liveness.NotWorking:
		suffix = ", " + m.StalenessText() + ": no manager works now"
	case liveness.Unknown:
		return [][]string{{"manager", "unknown: " + m.Message}}
	case liveness.Working:
	}
	var rows [][]string
	for _, s := range m.Replicas {
		rows = append(rows, []string{"manager", cmp.Or(s.Version, "unknown") + " (" + s.Name + ")"})
	}
	if len(rows) == 0 {
		rows = append(rows, []string{"manager",
			cmp.Or(m.Version, "unknown") + " (" + console.OrDash(m.Leader) + ")" + suffix})
	}
	return rows
}

// crdLine returns the states of all CRDs as one line.
func (r *versionReport) crdLine() string {
	by := map[string][]string{}
	for _, s := range r.CRDs {
		by[s.State] = append(by[s.State], strings.TrimSuffix(s.Name, "."+v1beta2.GroupVersion.Group))
	}
	var parts []string
	if n := len(by[crdEqual]); n > 0 {
		parts = append(parts, fmt.Sprintf("%d equal to those of this klm", n))
	}
	for _, state := range []struct{ name, text string }{
		{crdDiffers, "different from those of this klm"}, {crdMissing, "missing"}, {crdUnknown, "not readable"}} {
		if names := by[state.name]; len(names) > 0 {
			parts = append(parts, state.text+": "+strings.Join(names, ", "))
		}
	}
	return strings.Join(parts, "; ")
}
