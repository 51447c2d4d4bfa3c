package access

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unique"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// MaxReviewBytes is the maximum size of the answer to a review, and maxRightsBytes is the maximum size of the
	// rights in the answer.
	MaxReviewBytes = 1 << 20
	maxRightsBytes = 64 << 10
	// maxLostTexts is the maximum number of resources that a message names.
	maxLostTexts = 5
)

// neededVerbs are the verbs that the manager needs for each resource of a module.
var neededVerbs = []string{"create", "delete", "get", "list", "patch"}

// watchVerbs are the verbs that the manager itself needs for a resource before it can grant an agent the right to watch
// the resource.
var watchVerbs = []string{"list", "watch"}

// Rights are the rights of a credential in one cluster. The zero value means that the rights are not known. Two values
// of Rights are equal (==) if they have the same rules.
type Rights struct {
	// Each line of rules has verbs, API groups and resources, separated by spaces; the elements of each are separated
	// by commas.
	rules unique.Handle[string]
}

// ParseRights returns the rights in the answer to a SelfSubjectRulesReview. The answer comes from a runtime, so the
// caller has to limit its size.
func ParseRights(answer []byte) (Rights, error) {
	var review authorizationv1.SelfSubjectRulesReview
	if err := json.Unmarshal(answer, &review); err != nil {
		return Rights{}, fmt.Errorf("decoding a review of rights: %w", err)
	}
	if review.Kind != "SelfSubjectRulesReview" {
		return Rights{}, errors.New("the answer is no review of rights")
	}
	var lines []string
	for _, r := range review.Status.ResourceRules {
		if len(r.ResourceNames) > 0 {
			continue // the rights are for single objects
		}
		verbs := slices.DeleteFunc(slices.Clone(r.Verbs), func(v string) bool {
			return v != "*" && !slices.Contains(neededVerbs, v) && !slices.Contains(watchVerbs, v)
		})
		line := joinSorted(verbs) + " " + joinSorted(r.APIGroups) + " " + joinSorted(r.Resources)
		if len(verbs) > 0 && strings.Count(line, " ") == 2 && !strings.Contains(line, "\n") {
			lines = append(lines, line)
		}
	}
	if len(strings.Join(lines, "\n")) > maxRightsBytes {
		return Rights{}, fmt.Errorf("the rights have more than %d KiB", maxRightsBytes>>10)
	}
	return rightsOf(lines), nil
}

// joinSorted joins the elements of a rule in a stable order.
func joinSorted(elements []string) string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(elements))), ",")
}

func rightsOf(lines []string) Rights {
	slices.Sort(lines)
	return Rights{unique.Make(strings.Join(slices.Compact(lines), "\n"))}
}

// IsKnown reports whether the rights are known.
func (r Rights) IsKnown() bool { return r != Rights{} }

// lines returns the rules of known rights, one per line.
func (r Rights) lines() []string { return strings.Split(r.rules.Value(), "\n") }

// Union returns the rights in the parameter former together with the rights in the parameter latter. Rights that are
// not known count as no rights. If there are too many rights to store, Union returns the parameter latter unchanged.
func Union(former, latter Rights) Rights {
	switch {
	case former == latter || !latter.IsKnown():
		return former
	case !former.IsKnown():
		return latter
	}
	both := append(former.lines(), latter.lines()...)
	if len(strings.Join(both, "\n")) > maxRightsBytes {
		return latter
	}
	return rightsOf(both)
}

// allows reports whether the rights include a verb for all objects of a resource. The rights must be known.
func (r Rights) allows(verb string, of schema.GroupResource) bool {
	return slices.ContainsFunc(r.lines(), func(line string) bool {
		parts := strings.Split(line, " ")
		return len(parts) == 3 && includes(parts[0], verb) && includes(parts[1], of.Group) &&
			includes(parts[2], of.Resource)
	})
}

// includes reports whether a part of a rule, which is a list with commas, contains an element or "*".
func includes(part, element string) bool {
	all := strings.Split(part, ",")
	return slices.Contains(all, element) || slices.Contains(all, "*")
}

// IsUnlimited reports whether the rights include everything, as those of cluster-admin do.
func (r Rights) IsUnlimited() bool {
	return r.IsKnown() && r.allows("*", schema.GroupResource{Group: "*", Resource: "*"})
}

// MayWatch reports whether the rights include listing and watching a resource. If the rights are not known, MayWatch
// returns false.
func (r Rights) MayWatch(of schema.GroupResource) bool {
	return r.IsKnown() && !slices.ContainsFunc(watchVerbs, func(verb string) bool { return !r.allows(verb, of) })
}

// DescribeLostRights returns messages about the lost rights for the given resources: the rights that are in the
// parameter "before" and not in the parameter "now". If the rights in one of these two parameters are not known,
// DescribeLostRights returns nothing. The messages are sorted, and their number is limited.
func DescribeLostRights(before, now Rights, resources []schema.GroupResource) []string {
	if before == now || !before.IsKnown() || !now.IsKnown() {
		return nil
	}
	var all []string
	for _, of := range slices.Compact(slices.SortedFunc(slices.Values(resources), compareResources)) {
		var verbs []string
		for _, verb := range neededVerbs {
			if before.allows(verb, of) && !now.allows(verb, of) {
				verbs = append(verbs, verb)
			}
		}
		if len(verbs) > 0 {
			all = append(all, strings.Join(verbs, ",")+" "+of.String())
		}
	}
	if more := len(all) - maxLostTexts; more > 0 {
		all = append(all[:maxLostTexts], fmt.Sprintf("and %d more", more))
	}
	return all
}

func compareResources(a, b schema.GroupResource) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
}
