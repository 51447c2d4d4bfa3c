package page

import (
	"cmp"
	"net/url"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/releases"
)

// originTable returns a table of the versions of a module. For each version, the table shows the origin of its content,
// as far as the ModuleTemplate describes the origin. The dashboard does not read the registry. The column about the
// validity of signatures shows what the manager found when it verified the version for one of the runtimes that have
// it. The manager blocks a version in a runtime if a signature is missing or not valid.
func (r *request) originTable(module string) table {
	t := table{Caption: "Contents", Columns: []column{{Title: "Version"}, {Title: "Digest of the content"},
		{Title: "Signatures"}, {Title: "Verified"}, {Title: "Finding of the manager"},
		{Title: "SBOM"}, {Title: "Links"}}}
	for _, template := range r.fleet.Catalog.TemplatesOf(module) {
		o := releases.SignaturesAndSBOMOf(template)
		links := cell{Text: "–"}
		if i := template.Spec.Info; i != nil {
			if links = webLinkCell("documentation", i.Documentation); i.Documentation == "" {
				links = webLinkCell("source", i.Repository)
			}
		}
		version := connection.VersionOf(template)
		cells := append([]cell{{Text: version}, contentDigestCell(template), {Text: o.Signatures}},
			r.signatureFindingCells(module, version)...)
		t.Rows = append(t.Rows, append(cells, webLinkCell(o.SBOM, o.SBOMLink), links))
	}
	return t
}

// signatureFindingCells show the finding of the manager about the signatures of a version, and its message.
func (r *request) signatureFindingCells(module, version string) []cell {
	v := fleetindex.Version{Module: module, Version: version}
	is, found := r.fleet.Signatures[v]
	at := "/runtimes/" + is.Runtime + "/" + module
	switch {
	case !found && r.fleet.IsUsed(v):
		return []cell{{Text: "not known"}, {Text: "it was not read yet", Wide: true}}
	case !found:
		return []cell{{Text: "not known"}, {Text: "no runtime has this version", Wide: true}}
	case is.Message == "":
		return []cell{{Text: "no", Path: at}, {Text: "the manager requires no signature", Wide: true}}
	case !is.Verified:
		return []cell{{Text: "not valid", State: string(v1beta2.StateError), Path: at}, {Text: is.Message, Wide: true}}
	}
	return []cell{{Text: "verified", State: string(v1beta2.StateReady), Path: at}, {Text: is.Message, Wide: true}}
}

// contentDigestCell shows the digest of the content of a version, and whether the registry now has another digest.
func contentDigestCell(t *v1beta2.ModuleTemplate) cell {
	digest := t.Annotations[v1beta2.AnnotationContentDigest]
	c := cell{Text: cmp.Or(digest, "not read yet"), Code: digest != ""}
	if channel.ReplacedContentBlocker(t, t.Spec.ModuleName, connection.VersionOf(t)) != nil {
		c = cell{Text: digest + " (was replaced in the registry)", State: "withdrawn"}
	}
	return c
}

// webLinkCell is a link to a page of the author of a module. Only web addresses become links.
func webLinkCell(text, address string) cell {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return cell{Text: orDash(cmp.Or(address, text))}
	}
	return cell{Text: text, Link: u.String()}
}

// knownRiskTable returns the known risks of all versions of a module.
func (r *request) knownRiskTable(module string) table {
	t := table{Caption: "Known risks", Columns: []column{{Title: "Version"}, {Title: "Risk"},
		{Title: "For runtimes with"},
		{Title: "What happens"}, {Title: "More"}}, Empty: "No version declares a known risk."}
	for _, template := range r.fleet.Catalog.TemplatesOf(module) {
		if template.Spec.Upgrade == nil {
			continue
		}
		for _, risk := range template.Spec.Upgrade.Risks {
			t.Rows = append(t.Rows, []cell{{Text: connection.VersionOf(template)}, {Text: risk.Name},
				{Text: risk.When, Code: true}, {Text: risk.Message, Wide: true}, webLinkCell("about it", risk.URL)})
		}
	}
	return t
}
