package scenario

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kyma-fleet/lifecycle-manager/deploy"
	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// In every landscape the manager uses the service account and the roles of folder deploy. This file collects the
// requests of the manager to its control plane in all scenarios. No request may be forbidden, and no role may grant a
// right that no request needs.

// unasked lists rights that the manager has although no scenario needs them, or although only chance decides whether a
// scenario needs them. The key of unasked is "VERB RESOURCE", and the value is the reason.
var unasked = map[string]string{
	"update kymas.operator.kyma-project.io/finalizers": "is never a request: an owner reference that blocks deletion " +
		"needs it where OwnerReferencesPermissionEnforcement is on",
	"delete modulerollouts.operator.kyma-project.io": "only the oldest of more than ten rollouts of a channel are deleted",
	"impersonate serviceaccounts":                    "is never a request: requests for modules on the control plane need it",
	"update configmaps":                              "a tombstone may be there already, from a try that was interrupted",
	"patch leases.coordination.k8s.io": "is no request of this version: the leader of the former version needs it during " +
		"an upgrade or a rollback, because both use the same role",
}

// rights holds the rights that the manager has used in all scripts.
var rights struct {
	sync.Mutex
	scripts int
	used    []cluster.Request
}

// recordRights records the rights that the manager has used in its control plane. If the API server has refused
// requests of the manager, recordRights returns an error that lists them.
func (s *scenario) recordRights() error {
	rights.Lock()
	defer rights.Unlock()
	rights.scripts++
	if s.land == nil || s.land.InCluster { // in-cluster the manager has all rights, since modules may need any
		return nil
	}
	user := "system:serviceaccount:" + s.land.Namespace() + ":lifecycle-manager"
	var refused []string
	altered := false
	for _, r := range s.land.Clusters[landscape.ControlPlane].Requests(0) {
		switch {
		case r.User != user:
			// If a script changes the manager's roles to test a manager with fewer rights, refused requests are no
			// error.
			altered = altered || r.Resource == "roles" && isWrite(r) &&
				!strings.Contains(r.Path, "fieldManager=landscape") ||
				r.Resource == "validatingadmissionpolicies" && strings.HasPrefix(r.Name, refusing(""))
		case r.Code == http.StatusForbidden:
			refused = append(refused, line(r))
		case !slices.ContainsFunc(rights.used, func(
			u cluster.Request) bool {
			return right(u) == right(r) && u.Name == r.Name
		}):
			rights.used = append(rights.used, r)
		}
	}
	if len(refused) > 0 && !altered {
		slices.Sort(refused)
		return fmt.Errorf("the roles of folder deploy do not let the manager do this:\n%s",
			strings.Join(slices.Compact(refused), "\n"))
	}
	return nil
}

// right returns the right that a request needs, as "VERB RESOURCE[/SUBRESOURCE]".
func right(r cluster.Request) string { return rightOf(r.Verb, r.Group, r.Resource, r.Subresource) }

func rightOf(verb, group, resource, subresource string) string {
	if group != "" {
		resource += "." + group
	}
	if subresource != "" {
		resource += "/" + subresource
	}
	return verb + " " + resource
}

// checkRights runs after all scripts. checkRights reports the rights in the manager's roles that the manager has used
// in no script.
func checkRights(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	rights.Lock()
	defer rights.Unlock()
	if rights.scripts < len(scripts) || t.Failed() {
		return // only some scripts ran
	}
	granted := map[string]bool{}
	for _, rule := range managerRules(t) {
		for _, have := range rightsIn(rule) {
			used := slices.ContainsFunc(rights.used, func(r cluster.Request) bool {
				return right(r) == have && (len(rule.ResourceNames) == 0 || r.Name == "" ||
					slices.Contains(rule.ResourceNames, r.Name))
			})
			// Since Kubernetes 1.34, a client can receive the first list as part of a watch, so it may not use its
			// right to list.
			if verb, of, _ := strings.Cut(have, " "); !used && verb == "list" && slices.Contains(rule.Verbs, "watch") {
				used = slices.ContainsFunc(rights.used, func(r cluster.Request) bool { return right(r) == "watch "+of })
			}
			granted[have] = true
			if _, excused := unasked[have]; !used && !excused {
				t.Errorf("folder deploy gives the manager the right to %s %v, which no scenario needs: take it back, "+
					"or say in unasked what it is for", have, rule.ResourceNames)
			}
		}
	}
	for have := range unasked {
		if !granted[have] {
			t.Errorf("unasked has %q, which is no right of the manager: take it out", have)
		}
	}
}

// rightsIn lists the rights that a rule grants.
func rightsIn(rule rbacv1.PolicyRule) []string {
	var all []string
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			resource, sub, _ := strings.Cut(resource, "/")
			for _, verb := range rule.Verbs {
				all = append(all, rightOf(verb, group, resource, sub))
			}
		}
	}
	return all
}

// managerRules returns the rules of all roles that are bound to the manager's service account in the control-plane
// flavour.
func managerRules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	objects, err := deploy.Objects(context.Background(),
		deploy.Options{Set: []string{"webhooks.enabled=true", "agents.address=listener.example.com:8445",
			"controlPlaneModules.enabled=true"}})
	if err != nil {
		t.Fatal(err)
	}
	bound := map[string]bool{}
	for _, o := range objects {
		if strings.HasSuffix(o.GetKind(), "RoleBinding") {
			kind, _, _ := unstructured.NestedString(o.Object, "roleRef", "kind")
			name, _, _ := unstructured.NestedString(o.Object, "roleRef", "name")
			bound[kind+"/"+name] = true
		}
	}
	var rules []rbacv1.PolicyRule
	for _, o := range objects {
		if !bound[o.GetKind()+"/"+o.GetName()] {
			continue
		}
		role := &rbacv1.ClusterRole{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role); err != nil {
			t.Fatal(err)
		}
		rules = append(rules, role.Rules...)
	}
	if len(rules) == 0 {
		t.Fatal("no role is bound to the manager")
	}
	return rules
}
