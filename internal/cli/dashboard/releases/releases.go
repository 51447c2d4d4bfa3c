// Package releases turns data of the catalog, of rollouts and of Manifests into text for people: which user moved which
// channel, the origin of a version, whether a downgrade from a version is possible, and the states of objects.
//
// # Use
//
//	for _, m := range releases.Changes(catalog, "klm") { … }
//	origin := releases.SignaturesAndSBOMOf(template)
//	state := releases.StateOf(manifest, &manifest.Status.Synced[0])
//
// # How it works
//
// Everything is read from objects that the dashboard has. If a fact is only in the registry, the text says this.
//
// # What it does not do
//
// The package verifies no signature and decides nothing. The manager verifies signatures and blocks versions.
package releases

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
)

// Move is one change of a channel or of a rollout.
type Move struct {
	At      time.Time `json:"at"`
	Module  string    `json:"module"`
	Channel string    `json:"channel"`
	What    string    `json:"what"`
	From    string    `json:"from,omitempty"`
	To      string    `json:"to,omitempty"`
	By      string    `json:"by,omitempty"`
	Outcome string    `json:"outcome,omitempty"`
	Rollout string    `json:"rollout,omitempty"`
	Undo    string    `json:"undo,omitempty"`
}

// Changes returns the last moves of all channels with the approvals and resumptions of their rollouts, the newest
// first. The parameter program is the name of klm.
func Changes(catalog *connection.Catalog, program string) []Move {
	var all []Move
	for name, release := range catalog.Releases {
		for i := range release.Status.Channels {
			s := &release.Status.Channels[i]
			for j := range s.History {
				m := &s.History[j]
				is := Move{At: m.At.Time, Module: name, Channel: s.Channel, What: "moved", To: m.Version, By: m.By,
					Outcome: cmp.Or(string(m.Outcome), "under way"), Rollout: rollout.Name(name, s.Channel, m.Revision)}
				if j > 0 {
					is.From = s.History[j-1].Version
				}
				if m.Direction == v1beta2.RolloutBack {
					is.What = "taken back"
				}
				if j == len(s.History)-1 && is.From != "" && s.Channel != v1beta2.MandatoryChannel {
					is.Undo = program + " rollout undo " + name + " " + s.Channel
				}
				all = append(all, is)
			}
		}
	}
	for name, o := range catalog.Rollouts {
		of := Move{Module: o.Spec.Module, Channel: o.Spec.Channel, Rollout: name}
		for _, a := range o.Spec.Approvals {
			of.At, of.What, of.By = a.At.Time, "stage "+a.Stage+" approved", a.By
			all = append(all, of)
		}
		for _, a := range o.Spec.Resumptions {
			of.At, of.What, of.By, of.Outcome = a.At.Time, "resumed", a.By, a.Reason
			all = append(all, of)
		}
	}
	slices.SortFunc(all, func(a, b Move) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(a.Rollout, b.Rollout), strings.Compare(a.What, b.What))
	})
	return all
}

// CSV returns a list of moves of channels as a table for spreadsheets.
func CSV(all []Move) ([]byte, error) {
	var out bytes.Buffer
	c := csv.NewWriter(&out)
	rows := [][]string{{"at", "module", "channel", "what", "from", "to", "by", "outcome", "rollout"}}
	for _, m := range all {
		rows = append(rows, []string{m.At.UTC().Format(time.RFC3339), m.Module, m.Channel, m.What, m.From, m.To, m.By,
			m.Outcome, m.Rollout})
	}
	for i := range rows {
		for j := range rows[i] {
			rows[i][j] = escapeFormula(rows[i][j])
		}
	}
	err := c.WriteAll(rows)
	return out.Bytes(), err
}

// escapeFormula returns the text in a form that a spreadsheet does not treat as a formula.
func escapeFormula(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

// WayBack states whether a downgrade from the version of a rollout to the former version is possible. State is
// "verified" if the manager has checked that the downgrade is possible, "declared" if only the new version declares
// that, and "none" if no downgrade is possible. State is "" if the package does not know.
type WayBack struct{ State, Text, Command string }

// UrgencyText returns a text with the reason for the urgency of a rollout, and the steps that the rollout leaves out.
func UrgencyText(o *v1beta2.ModuleRollout) string {
	var leaves string
	switch o.Spec.Urgency {
	case v1beta2.UrgencyHotfix:
		leaves = "the stages and soaks are those that the policy has for hotfixes"
	case v1beta2.UrgencyEmergency:
		leaves = "no soak and no gate is waited for"
	default:
		return ""
	}
	if o.Spec.IgnoreWindows {
		leaves += ", and no maintenance window"
	}
	return fmt.Sprintf("%s: %s. Reason: %s", o.Spec.Urgency, leaves, o.Spec.UrgencyReason)
}

// DowngradeSafetyOf returns whether runtimes can be downgraded from the version of a rollout to the former version.
// DowngradeSafetyOf uses what the manager has found out and recorded in the status of the rollout. If the status of the
// rollout contains nothing about a downgrade, DowngradeSafetyOf uses what the ModuleTemplate of the new version
// declares.
func DowngradeSafetyOf(catalog *connection.Catalog, o *v1beta2.ModuleRollout, program string) WayBack {
	if o.Spec.From == "" || o.Spec.IsRollback() {
		return WayBack{}
	}
	undo := fmt.Sprintf("%s rollout undo %s %s", program, o.Spec.Module, o.Spec.Channel)
	switch w := o.Status.WayBack; {
	case w == nil:
		declared := catalog.ForResolve()
		if err := declared.CheckGoingBack(o.Spec.Module, o.Spec.To, o.Spec.From); err != nil {
			return WayBack{"none", "There is no declared way back to " + o.Spec.From + ": " + err.Error() + ".", ""}
		}
		return WayBack{"declared", fmt.Sprintf("Version %s declares that going back to %s is safe.", o.Spec.To,
			o.Spec.From), undo}
	case w.Verified:
		return WayBack{"verified", "Back to " + w.To + ": " + w.Message, undo}
	case w.Declared:
		return WayBack{"declared", "Back to " + w.To + ": declared, but " + w.Message, undo}
	default:
		return WayBack{"none", fmt.Sprintf("Back to %s: none, because %s. If %s fails, move the channel to a higher "+
			"version that corrects it.", w.To, w.Message, o.Spec.To), ""}
	}
}

// Origin describes where a version of a module comes from. A field of Origin is empty if the ModuleTemplate of the
// version does not contain the value.
type Origin struct {
	// Signatures has the names of the signatures of the component descriptor, or the reason why the names are not
	// known.
	Signatures string
	// SBOM is the name of the software bill of materials, or "" if there is none. SBOMLink is the address of the bill
	// of materials.
	SBOM, SBOMLink string
}

// SignaturesAndSBOMOf returns the origin of a version, such as its signatures and its SBOM, from its ModuleTemplate.
func SignaturesAndSBOMOf(t *v1beta2.ModuleTemplate) (o Origin) {
	for _, l := range t.Spec.Resources {
		if isSBOM(l.Name) {
			o.SBOM, o.SBOMLink = l.Name, l.Link
		}
	}
	const minDescriptor = 3 // {} is the descriptor of a template without one
	if len(t.Spec.Descriptor.Raw) < minDescriptor {
		o.Signatures = "in the registry only"
		return o
	}
	d, err := ocm.ParseDescriptor(t.Spec.Descriptor.Raw, t.Name)
	if err != nil {
		o.Signatures = "the descriptor cannot be read"
		return o
	}
	for i := range d.Component.Resources {
		if e := &d.Component.Resources[i]; o.SBOM == "" && (isSBOM(e.Type) || isSBOM(e.Name)) {
			o.SBOM = e.Name + ", " + cmp.Or(e.Access.ImageReference, "in the component version")
		}
	}
	var names []string
	for _, s := range d.Signatures {
		names = append(names, s.Name+" ("+s.Signature.Algorithm+")")
	}
	o.Signatures = cmp.Or(strings.Join(names, ", "), "not signed")
	return o
}

func isSBOM(name string) bool { return strings.Contains(strings.ToLower(name), "sbom") }
