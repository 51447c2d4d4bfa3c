package author

import (
	"strings"
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
)

// role returns a ClusterRole that allows the given verbs for ConfigMaps.
func role(verbs string) string {
	return `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: operator}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [` + verbs + `]}
`
}

// TestLintDowngrade checks the findings about a downgrade to the previous version, and the findings about the
// declaration that the downgrade is safe.
func TestLintDowngrade(t *testing.T) {
	second := strings.Replace(definition, "storage: true", "storage: false", 1) + `    - name: v9
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object}}
`
	field := strings.Replace(definition, "size: {type: integer",
		"shape: {type: string}\n                size: {type: integer", 1)
	for name, c := range map[string]struct {
		reason        string
		before, after string
		declared      Upgrade
		level         content.Level
		want, not     string
	}{
		"Proposed": {"nothing speaks against it", definition, definition, Upgrade{}, content.Info,
			`upgrade: {back: ">=1.0.0 <1.1.0"}`, ""},
		"NotProposed": {"what is stored could not be read", definition, second, Upgrade{}, content.Info, "",
			"declare it"},
		"Declared": {"there is nothing to say", definition, definition, Upgrade{Back: "1.0.x"}, content.Info, "",
			"way back"},
		"OtherRange": {"it is declared for others", definition, definition, Upgrade{Back: "0.9.x"}, content.Info,
			"if you have tried", ""},
		"StorageVersion": {"an API server refuses it", definition, second, Upgrade{Back: "1.0.0"}, content.Error,
			"way back to 1.0.0: objects are stored in version v9, which it does not have", ""},
		"Field": {"values of users get lost", definition, field, Upgrade{Back: "1.0.0"}, content.Warning,
			"way back to 1.0.0: .spec.shape: the field is removed", ""},
		"NewKind": {"nobody reconciles what users have created", others, definition + others, Upgrade{Back: "1.0.0"},
			content.Warning, "objects of users stay, and nobody reconciles them", ""},
		"FewerRights": {"it cannot change what this version has written", role("get, list"), role("get, list, update"),
			Upgrade{Back: "1.0.0"}, content.Info, "it has fewer rights: update configmaps:", ""},
		"FewerRightsProposed": {"that alone prevents nothing", role("get, list"), role("get, list, update"), Upgrade{},
			content.Info, `upgrade: {back: ">=1.0.0 <1.1.0"}`, ""},
		"CannotDelete": {"what this version has created stays", role("get"), role("get, create, delete"),
			Upgrade{Back: "1.0.0"}, content.Warning, "may not delete objects that this version may create: configmaps:", ""},
		"CannotDeleteNotProposed": {"somebody has to think about it", role("get"), role("get, create, delete"), Upgrade{},
			content.Info, "", "declare it"},
		"SameRights": {"another verb covers it", role("'*'"), role("get, create, delete"), Upgrade{Back: "1.0.0"},
			content.Info, "", "rights"},
		"NoStep": {"runtimes cannot be updated directly", definition, definition, Upgrade{From: ">=1.0.5 <1.1.0"},
			content.Warning, "does not contain 1.0.0: runtimes with that version need another version between", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := moduleOf(t, "1.1.0", c.after)
			m.Config = &Config{Name: m.Name, Version: m.Version, Upgrade: c.declared}
			found := false
			for _, f := range m.lintDeclaredUpgradeAndDowngrade(moduleOf(t, "1.0.0", c.before)) {
				found = found || f.Level == c.level && strings.Contains(f.String(), c.want)
				if c.not != "" && strings.Contains(f.String(), c.not) {
					t.Errorf("%s: got %q", c.reason, f)
				}
			}
			if c.want != "" && !found {
				t.Errorf("%s: got %v, want %s %q", c.reason, m.lintDeclaredUpgradeAndDowngrade(moduleOf(t, "1.0.0",
					c.before)),
					c.level, c.want)
			}
		})
	}
	m := moduleOf(t, "1.0.0", definition)
	m.Config = &Config{Name: m.Name, Version: m.Version, Upgrade: Upgrade{From: ">=0.9.0 <1.0.0", Back: "0.9.x",
		Risks: []Risk{{Name: "old", When: "true", Message: "it stops", URL: "https://example.com"}}}}
	text, err := m.encodeTemplate()
	const want = "  upgrade:\n    from: '>=0.9.0 <1.0.0'\n    back: 0.9.x\n    risks:\n      - name: old\n"
	if err != nil || !strings.Contains(string(text), want) {
		t.Errorf("the ModuleTemplate is\n%s\n%v, want it to contain\n%s", text, err, want)
	}
}
