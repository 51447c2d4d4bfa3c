package check

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
)

// role is a Role or a ClusterRole in a manifest.
type role struct {
	where string
	wide  bool // true for a ClusterRole
	rules []rbacv1.PolicyRule
}

func rolesOf(objects []*unstructured.Unstructured) []role {
	var roles []role
	for _, o := range objects {
		if gvk := o.GroupVersionKind(); gvk.Group != rbacv1.GroupName || gvk.Kind != "Role" &&
			gvk.Kind != "ClusterRole" {
			continue
		}
		var r rbacv1.ClusterRole
		if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &r) == nil {
			roles = append(roles, role{content.KindAndNameOf(o), o.GetKind() == "ClusterRole", r.Rules})
		}
	}
	return roles
}

// grant is the permission to use one verb on one resource.
type grant struct {
	verb, resource string // the resource is resource.group or a URL path
	named          bool   // true if resourceNames restrict the permission
	wide           bool
}

func (r role) grants() []grant {
	var all []grant
	for _, rule := range r.rules {
		for _, verb := range rule.Verbs {
			for _, path := range rule.NonResourceURLs {
				all = append(all, grant{verb, path, false, true})
			}
			for _, resource := range rule.Resources {
				for _, group := range rule.APIGroups {
					all = append(all, grant{verb, strings.TrimSuffix(resource+"."+group, "."),
						len(rule.ResourceNames) > 0, r.wide})
				}
			}
		}
	}
	return all
}

// RequestedAndDangerousRights returns findings that list the permissions of each role of a module. For permissions that
// are close to full access, RequestedAndDangerousRights returns a warning.
func RequestedAndDangerousRights(objects []*unstructured.Unstructured) []content.Finding {
	var findings []content.Finding
	for _, r := range rolesOf(objects) {
		var all, hot []string
		for _, rule := range r.rules {
			all = append(all, ruleText(rule))
		}
		for _, g := range r.grants() {
			if why := dangerOf(g); why != "" {
				hot = append(hot, fmt.Sprintf("%s %s (%s)", g.verb, g.resource, why))
			}
		}
		findings = append(findings, content.NewFinding(content.Info, r.where, "requests "+content.JoinFirst(all, "; ")))
		if len(hot) > 0 {
			findings = append(findings, content.NewFinding(content.Warning, r.where,
				"requests wide permissions: "+content.JoinFirst(
					hot, ", ")+": name the resources that the operator needs"))
		}
	}
	for _, o := range objects {
		if gvk := o.GroupVersionKind(); gvk.Group != rbacv1.GroupName || !strings.HasSuffix(gvk.Kind, "RoleBinding") {
			continue
		}
		if name, _, _ := unstructured.NestedString(o.Object, "roleRef", "name"); name == "cluster-admin" {
			findings = append(findings, content.NewFinding(content.Warning, content.KindAndNameOf(o),
				"gives all rights there are: name what the operator needs in a role of its own"))
		}
	}
	return findings
}

// ruleText returns a rule of a role as text.
func ruleText(rule rbacv1.PolicyRule) string {
	what := append([]string(nil), rule.NonResourceURLs...)
	for _, resource := range rule.Resources {
		for _, group := range rule.APIGroups {
			what = append(what, strings.TrimSuffix(resource+"."+group, "."))
		}
	}
	text := strings.Join(rule.Verbs, " ") + ": " + content.JoinFirst(what, ", ")
	if len(rule.ResourceNames) > 0 {
		text += " named " + content.JoinFirst(rule.ResourceNames, ", ")
	}
	return text
}

// dangerOf returns the reason why a permission is close to full access, or "" if the permission is harmless.
func dangerOf(g grant) string {
	resource, _, _ := strings.Cut(g.resource, ".")
	reads := slices.Contains([]string{"get", "list", "watch", "*"}, g.verb)
	switch {
	case strings.HasPrefix(g.resource, "*"):
		return "all resources"
	case strings.HasSuffix(g.resource, ".*"):
		return "of all groups"
	case slices.Contains([]string{"escalate", "bind", "impersonate"}, g.verb):
		return "leads to all rights"
	case g.wide && !g.named && resource == "secrets" && reads:
		return "all secrets of the cluster"
	case g.verb == "*" && g.wide:
		return "all verbs"
	case strings.HasPrefix(resource, "pods/exec"), strings.HasPrefix(resource, "nodes/proxy"):
		return "commands in any pod"
	}
	return ""
}

// covers reports whether the permission g includes the permission o.
func (g grant) covers(o grant) bool {
	resource, group, _ := strings.Cut(g.resource, ".")
	otherResource, otherGroup, _ := strings.Cut(o.resource, ".")
	return (g.verb == "*" || g.verb == o.verb) && (resource == "*" || resource == otherResource) &&
		(group == "*" || group == otherGroup) && (!g.named || o.named) && (g.wide || !o.wide)
}

// writes is a list of the verbs that create or change objects in a cluster.
var writes = []string{"create", "update", "patch", "*"}

// LostWriteRights compares the roles of two versions of a module: it returns the permissions to change objects that the
// roles in the parameter before grant and the roles in the parameter after do not grant. The result undeletable lists
// the resources that the first version may create and the second version may not delete: the operator of the second
// version could not remove such objects. The results lost and undeletable are sorted.
func LostWriteRights(before, after []*unstructured.Unstructured) (lost, undeletable []string) {
	var left []grant
	for _, r := range rolesOf(after) {
		left = append(left, r.grants()...)
	}
	has := func(g grant) bool { return slices.ContainsFunc(left, func(l grant) bool { return l.covers(g) }) }
	for _, r := range rolesOf(before) {
		for _, g := range r.grants() {
			if !slices.Contains(writes, g.verb) || strings.HasPrefix(g.resource, "/") {
				continue
			}
			if !has(g) {
				lost = append(lost, g.verb+" "+g.resource)
			}
			if g.verb == "create" || g.verb == "*" {
				if g.verb = "delete"; !has(g) {
					undeletable = append(undeletable, g.resource)
				}
			}
		}
	}
	slices.Sort(lost)
	slices.Sort(undeletable)
	return slices.Compact(lost), slices.Compact(undeletable)
}

// AddedRights reports the permissions that the new version has and the old version does not have.
func AddedRights(before, after []*unstructured.Unstructured) []content.Finding {
	had := map[grant]bool{}
	for _, r := range rolesOf(before) {
		for _, g := range r.grants() {
			had[g] = true
		}
	}
	var findings []content.Finding
	for _, r := range rolesOf(after) {
		var more []string
		for _, g := range r.grants() {
			if !had[g] {
				more = append(more, g.verb+" "+g.resource)
			}
		}
		if len(more) > 0 && len(before) > 0 {
			findings = append(findings, content.NewFinding(content.Warning, r.where,
				"the new version requests more permissions: "+content.JoinFirst(more, ", ")))
		}
	}
	return findings
}
