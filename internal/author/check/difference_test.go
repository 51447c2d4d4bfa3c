package check

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// TestCompare checks the difference between the objects of two versions, and the findings about this difference.
func TestCompare(t *testing.T) {
	version := func(verbs string, configs ...string) []*unstructured.Unstructured {
		text := "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: operator}\n" +
			"rules:\n- {apiGroups: [\"\"], resources: [configmaps], verbs: [" + verbs + "]}\n"
		for _, c := range configs {
			name, value, _ := strings.Cut(c, "=")
			text += "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {key: " + value + "}\n"
		}
		objects, err := render.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return objects
	}
	before := version("get", "same=a", "changed=a", "removed=a")
	after := version("get, update", "added=a", "changed=b", "same=a")
	got := Compare("1.0.0", "2.0.0", before, after)
	findings := got.Findings
	got.Findings = nil
	want := Difference{Added: []string{"ConfigMap added"}, Removed: []string{"ConfigMap removed"}, Unchanged: 1,
		Changed: []string{"ClusterRole operator", "ConfigMap changed"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the difference (-want +got):\n%s", diff)
	}
	has := func(level content.Level, text string) bool {
		for _, f := range findings {
			if f.Level == level && strings.Contains(f.String(), text) {
				return true
			}
		}
		return false
	}
	if !has(content.Warning, "ClusterRole operator: the new version requests more permissions: update configmaps") ||
		!has(content.Info, "ConfigMap removed: the upgrade deletes it") || len(findings) != 2 {
		t.Errorf("the findings: %v", findings)
	}
}
