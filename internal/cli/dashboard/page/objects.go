package page

import (
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/releases"
)

// objectTable returns the objects of a module that are in the runtime, as the Manifest of the module has recorded these
// objects.
func (r *request) objectTable(m *v1beta2.Manifest) (table, error) {
	t := table{Caption: "Objects", Columns: []column{{Title: "Kind", Key: "kind"}, {Title: "Namespace",
		Key: "namespace"}, {Title: "Name", Key: "object"}, {Title: "API", Key: "api"}, {Title: "State", Key: "state"},
		{Title: "Remark"}},
		Empty: "The module has no objects in the runtime."}
	if m == nil {
		return t, nil
	}
	t.Note = "Unchanged since " + formatUTC(m.Status.LastOperation.LastUpdateTime.Time) + ": the manager writes the " +
		"state of the objects only when it changes. The conditions name the first objects that are not ready; the " +
		"others are shown as applied."
	var rows []row
	for _, o := range m.Status.Synced {
		api := strings.TrimPrefix(o.Group+"/"+o.Version, "/")
		keys := []string{o.Kind, o.Namespace, o.Name, api, releases.StateOf(m, &o), ""}
		rows = append(rows, row{Keys: keys, Cells: func() []cell {
			return []cell{{Text: o.Kind}, {Text: orDash(o.Namespace)}, {Text: o.Name}, {Text: api},
				{Text: releases.StateOf(m, &o)}, {Text: orDash(releases.OwnershipRemarkOf(&o))}}
		}})
	}
	return r.arrange(t, rows)
}
