package author

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/check"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
)

// templateUpgrade returns the value of spec.upgrade of the ModuleTemplate, or nil if the config declares nothing.
func (u *Upgrade) templateUpgrade() *v1beta2.ModuleUpgrade {
	if u.From == "" && u.Back == "" && len(u.Risks) == 0 {
		return nil
	}
	is := &v1beta2.ModuleUpgrade{From: u.From, Back: u.Back}
	for _, r := range u.Risks {
		is.Risks = append(is.Risks, v1beta2.UpgradeRisk{Name: r.Name, When: r.When, Message: r.Message, URL: r.URL})
	}
	return is
}

// templateFields returns spec.upgrade of the ModuleTemplate, without empty keys.
func (u *Upgrade) templateFields() fields {
	var all fields
	for _, f := range (fields{{"from", u.From}, {"back", u.Back}}) {
		if f.value != "" {
			all = append(all, f)
		}
	}
	var risks []any
	for _, r := range u.Risks {
		risk := fields{{"name", r.Name}, {"when", r.When}, {"message", r.Message}}
		if r.URL != "" {
			risk = append(risk, field{"url", r.URL})
		}
		risks = append(risks, risk)
	}
	if risks != nil {
		all = append(all, field{"risks", risks})
	}
	return all
}

// lintDeclaredUpgradeAndDowngrade checks what spec.upgrade declares about the previous version: whether the module can
// be updated from the previous version, and whether a downgrade to the previous version is safe. lintDowngradeTo finds
// objects that make the downgrade unsafe. If spec.upgrade declares the downgrade as safe,
// lintDeclaredUpgradeAndDowngrade returns the findings of lintDowngradeTo. If lintDowngradeTo finds no problem, and
// spec.upgrade does not declare the downgrade as safe, a finding suggests that the author declares the downgrade as
// safe.
func (m *Module) lintDeclaredUpgradeAndDowngrade(previous *Module) []content.Finding {
	if m.Config == nil || !channel.IsLower(previous.Version, m.Version) {
		return nil
	}
	var findings []content.Finding
	u, where := m.Config.Upgrade, m.Config.Where("upgrade")
	if is, err := channel.IsInRange(previous.Version, u.From); u.From != "" && err == nil && !is {
		findings = append(findings, content.NewFinding(content.Warning, where, fmt.Sprintf(
			"upgrade.from: %q does not contain %s: runtimes with that version need another version between", u.From,
			previous.Version)))
	}
	isDeclared, _ := channel.IsInRange(previous.Version, u.Back)
	problems := m.lintDowngradeTo(previous)
	switch {
	case u.Back != "" && isDeclared:
		findings = append(findings, problems...)
	case !slices.ContainsFunc(problems, func(f content.Finding) bool { return f.Level != content.Info }):
		findings = append(findings, problems...)
		findings = append(findings, content.NewFinding(content.Info, where,
			fmt.Sprintf("nothing in the bundles prevents "+
				"going back to %s: if you have tried that %s can work with what %s has stored, declare it, so that a fleet "+
				"can be taken back: upgrade: {back: \">=%s <%s\"}", previous.Version, previous.Version, m.Version,
				previous.Version, m.Version)))
	}
	return findings
}

// lintDowngradeTo compares the objects of both versions. lintDowngradeTo returns findings about objects that make a
// downgrade to the previous version impossible or risky.
func (m *Module) lintDowngradeTo(previous *Module) []content.Finding {
	var findings []content.Finding
	add := func(level content.Level, where, format string, args ...any) {
		findings = append(findings, content.NewFinding(level, where,
			fmt.Sprintf("way back to %s: ", previous.Version)+fmt.Sprintf(format, args...)))
	}
	before, after := check.CRDsByGroupKind(previous.Objects), check.CRDsByGroupKind(m.Objects)
	for _, key := range slices.Sorted(maps.Keys(after)) {
		now, old := after[key], before[key]
		if old == nil {
			add(content.Warning, "CustomResourceDefinition "+now.Name,
				"it does not have this kind: objects of users stay, and nobody reconciles them")
			continue
		}
		known := map[string]bool{}
		for _, v := range old.Spec.Versions {
			known[v.Name] = true
		}
		for _, v := range now.Spec.Versions {
			if v.Storage && !known[v.Name] {
				add(content.Error, "CustomResourceDefinition "+now.Name,
					"objects are stored in version %s, which it does "+
						"not have: an API server refuses that; add the version to the lower version first, or do not declare it",
					v.Name)
			}
		}
	}
	for _, f := range check.BreakingCRDChanges(after, before) {
		if f.Level == content.Error {
			add(content.Warning, f.Where, "%s", f.What)
		}
	}
	lost, left := check.LostWriteRights(m.Objects, previous.Objects)
	if len(left) > 0 {
		add(content.Warning, m.Config.Where("upgrade"), "it may not delete objects that this version may create: "+
			"%s: if the operator has created some, they stay, and nobody removes them", content.JoinFirst(left, ", "))
	} else if len(lost) > 0 {
		add(content.Info, m.Config.Where("upgrade"), "it has fewer rights: %s: make sure that it does not have to "+
			"change what this version has written there", content.JoinFirst(lost, ", "))
	}
	old := map[string]int{}
	for i, o := range previous.Objects {
		old[check.ID(o)] = i
	}
	for _, o := range m.Objects {
		i, found := old[check.ID(o)]
		if !found {
			continue
		}
		for _, f := range check.CompareImmutable(o, previous.Objects[i]) {
			add(f.Level, f.Where, "%s", f.What)
		}
	}
	return findings
}
