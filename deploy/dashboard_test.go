package deploy

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// dashboardValues are values of the chart that enable the dashboard.
var dashboardValues = []string{"dashboard.enabled=true", "dashboard.url=https://fleet.example.com",
	"dashboard.oidc.issuer=https://idp.example.com", "dashboard.oidc.clientID=klm"}

// TestDashboardRights checks that the service account of the dashboard may not read Secrets, may not write, and may
// impersonate users only if actions are enabled.
func TestDashboardRights(t *testing.T) {
	for _, actions := range []bool{false, true} {
		set := slices.Clone(dashboardValues)
		if actions {
			set = append(set, "dashboard.actions=true")
		}
		objects, err := Objects(t.Context(), Options{Set: set})
		if err != nil {
			t.Fatal(err)
		}
		impersonates, roles := false, 0
		for _, o := range objects {
			if !strings.HasSuffix(o.GetKind(), "Role") || o.GetName() != "lifecycle-manager-dashboard" {
				continue
			}
			roles++
			var role rbacv1.ClusterRole
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
				t.Fatal(err)
			}
			for _, rule := range role.Rules {
				for _, verb := range rule.Verbs {
					switch {
					case verb == "impersonate" && o.GetKind() == "ClusterRole":
						impersonates = true
					case verb == "create" && slices.Equal(rule.Resources, []string{"subjectaccessreviews"}):
					case verb == "get" || verb == "list" || verb == "watch":
						if slices.Contains(rule.Resources, "secrets") || slices.Contains(rule.Resources, "*") {
							t.Errorf("the dashboard reads %v", rule.Resources)
						}
					default:
						t.Errorf("the dashboard may %s %v", verb, rule.Resources)
					}
				}
			}
		}
		if roles != 2 || impersonates != actions {
			t.Errorf("actions %v: %d roles, impersonates: %v", actions, roles, impersonates)
		}
	}
}

// TestDashboardDeployment checks that the pod of the dashboard has no more privileges than it needs.
func TestDashboardDeployment(t *testing.T) {
	objects, err := Objects(t.Context(), Options{Set: dashboardValues,
		Values: []byte(`image: {repository: registry.example.com/team/lifecycle-manager, tag: 1.2.3}`)})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.GetKind() != "Deployment" || o.GetName() != "lifecycle-manager-dashboard" {
			continue
		}
		text, err := json.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{`"image":"registry.example.com/team/klm:1.2.3"`, `"runAsNonRoot":true`,
			`"readOnlyRootFilesystem":true`, `"--url=https://fleet.example.com"`} {
			if !strings.Contains(string(text), part) {
				t.Errorf("the Deployment has no %s:\n%s", part, text)
			}
		}
		if strings.Contains(string(text), `"--actions"`) {
			t.Error("actions are enabled by default")
		}
		return
	}
	t.Error("there is no Deployment")
}

// TestDashboardValues checks that the chart refuses values with which the sign-in of the dashboard would not be safe.
func TestDashboardValues(t *testing.T) {
	for name, c := range map[string]struct{ drop, set, want string }{
		"NoAddress":      {drop: "dashboard.url", want: "dashboard.url"},
		"NoIssuer":       {drop: "dashboard.oidc.issuer", want: "dashboard.oidc.issuer"},
		"NoClient":       {drop: "dashboard.oidc.clientID", want: "dashboard.oidc.clientID"},
		"AddressInClear": {set: "dashboard.url=http://fleet.example.com", want: "url"},
		"AddressPath":    {set: "dashboard.url=https://fleet.example.com/x", want: "url"},
		"IssuerInClear":  {set: "dashboard.oidc.issuer=http://idp.example.com", want: "issuer"},
		"Typo":           {set: "dashboard.action=true", want: "action"},
	} {
		t.Run(name, func(t *testing.T) {
			set := slices.DeleteFunc(slices.Clone(dashboardValues), func(v string) bool {
				return c.drop != "" && strings.HasPrefix(v, c.drop+"=")
			})
			if c.set != "" {
				set = append(set, c.set)
			}
			if _, err := Objects(t.Context(), Options{Set: set}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}
