package page

import (
	"cmp"
	"net/url"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/releases"
)

// contentTable returns the table of the origins of the versions of a module, as far as their ModuleTemplates contain
// them. The dashboard does not read the registry, so the table does not show whether signatures are valid. The manager
// reads the registry, and blocks a version in a runtime if a signature is missing or not valid.
func (r *request) contentTable(name string) table {
	t := table{Caption: "Contents", Columns: []column{{Title: "Version"}, {Title: "Digest of the content"},
		{Title: "Signatures"}, {Title: "SBOM"}, {Title: "Links"}}}
	for _, template := range r.fleet.Catalog.TemplatesOf(name) {
		o := releases.OriginOf(template)
		links := cell{Text: "–"}
		if i := template.Spec.Info; i != nil {
			if links = linkCell("documentation", i.Documentation); i.Documentation == "" {
				links = linkCell("source", i.Repository)
			}
		}
		t.Rows = append(t.Rows, []cell{{Text: connection.VersionOf(template)}, digestCell(template),
			{Text: o.Signatures},
			linkCell(o.SBOM, o.SBOMLink), links})
	}
	return t
}

// digestCell shows the digest of the content of a version, and whether the registry now has another digest.
func digestCell(t *v1beta2.ModuleTemplate) cell {
	digest := t.Annotations[v1beta2.AnnotationContentDigest]
	c := cell{Text: cmp.Or(digest, "not read yet"), Code: digest != ""}
	if channel.CheckContent(t, t.Spec.ModuleName, connection.VersionOf(t)) != nil {
		c = cell{Text: digest + " (was replaced in the registry)", State: "withdrawn"}
	}
	return c
}

// linkCell is a link to a page of the author of a module. Only web addresses become links.
func linkCell(text, address string) cell {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return cell{Text: orDash(cmp.Or(address, text))}
	}
	return cell{Text: text, Link: u.String()}
}

// riskTable returns the known risks of all versions of a module.
func (r *request) riskTable(name string) table {
	t := table{Caption: "Known risks", Columns: []column{{Title: "Version"}, {Title: "Risk"},
		{Title: "For runtimes with"},
		{Title: "What happens"}, {Title: "More"}}, Empty: "No version declares a known risk."}
	for _, template := range r.fleet.Catalog.TemplatesOf(name) {
		if template.Spec.Upgrade == nil {
			continue
		}
		for _, risk := range template.Spec.Upgrade.Risks {
			t.Rows = append(t.Rows, []cell{{Text: connection.VersionOf(template)}, {Text: risk.Name},
				{Text: risk.When, Code: true}, {Text: risk.Message, Wide: true}, linkCell("about it", risk.URL)})
		}
	}
	return t
}
