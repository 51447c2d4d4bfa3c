package check

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// TestLostRights checks which permissions the first version has and the second version lacks, whatever the names of
// their roles are.
func TestLostRights(t *testing.T) {
	rule := func(kind, name, groups, resources, verbs string) string {
		return "apiVersion: rbac.authorization.k8s.io/v1\nkind: " + kind + "\nmetadata: {name: " + name +
			"}\nrules:\n- {apiGroups: [" + groups + "], resources: [" + resources + "], verbs: [" + verbs + "]}\n---\n"
	}
	const group = `example.com`
	for name, c := range map[string]struct {
		reason, from, to, lost, created string
	}{
		"Same": {"nothing changes", rule("ClusterRole", "a", group, "things", "create, delete"),
			rule("ClusterRole", "a", group, "things", "create, delete"), "", ""},
		"OtherRole": {"the name of the role does not matter", rule("ClusterRole", "a", group, "things", "update, delete"),
			rule("ClusterRole", "b", group, "things", "update, delete"), "", ""},
		"Wildcards": {"they cover all", rule("ClusterRole", "a", group, "things, others", "create, update"),
			rule("ClusterRole", "a", "'*'", "'*'", "'*'"), "", ""},
		"Core": {"the core group is not another one", rule("ClusterRole", "a", `""`, "secrets", "patch"),
			rule("ClusterRole", "a", group, "secrets", "patch"), "patch secrets", ""},
		"Reads": {"reading leaves nothing", rule("ClusterRole", "a", group, "things", "get, list"), "", "", ""},
		"Lost": {"it cannot change what is there", rule("ClusterRole", "a", group, "things", "update, patch, delete"),
			rule("ClusterRole", "a", group, "things", "delete"), "patch things.example.com, update things.example.com", ""},
		"Stays": {"nobody removes it", rule("ClusterRole", "a", group, "things", "create, delete"), "",
			"create things.example.com", "things.example.com"},
		"Narrower": {"a Role is for one namespace", rule("ClusterRole", "a", group, "things", "create"),
			rule("Role", "a", group, "things", "create, delete"), "create things.example.com", "things.example.com"},
		"Wider": {"a ClusterRole is for all", rule("Role", "a", group, "things", "create"),
			rule("ClusterRole", "a", group, "things", "create, delete"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			lost, created := LostWriteRights(parse(t, c.from), parse(t, c.to))
			if l, n := strings.Join(lost, ", "), strings.Join(created, ", "); l != c.lost || n != c.created {
				t.Errorf("%s: lost %q, want %q; created %q, want %q", c.reason, l, c.lost, n, c.created)
			}
		})
	}
}

func parse(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := render.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}
