package inventory

import (
	"fmt"
	"slices"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// Combined returns the objects of all sets without duplicates. The parameter refs has the references to the objects of
// each set. The function in the parameter name returns the name of the source (layer, chart or directory) that a set
// was rendered from; error messages contain this name. Two sources may contain the same object only if its content is
// equal in both.
func Combined(sets []apply.Set, refs [][]apply.Ref, name func(set int) string) ([]apply.Ref, error) {
	var all []apply.Ref
	first := map[identity]int{} // the first set that contains an object
	for i, set := range sets {
		if i == 0 {
			all = slices.Clone(refs[i])
			continue
		}
		if i == 1 { // most Manifests have one set
			for _, ref := range refs[0] {
				first[identityOf(ref)] = 0
			}
		}
		for _, ref := range refs[i] {
			at, isKnown := first[identityOf(ref)]
			switch {
			case !isKnown:
				first[identityOf(ref)] = i
				all = append(all, ref)
			case contentDigest(sets[at], ref) != contentDigest(set, ref):
				return nil, duplicateError{ref, name(at), name(i)}
			}
		}
	}
	return all, nil
}

// contentDigest returns the digest of an object's content in a set, or "" if the set does not contain the object.
func contentDigest(set apply.Set, ref apply.Ref) string {
	for _, o := range set.Bundle.Objects {
		if o.GVK.Group == ref.Group && o.GVK.Kind == ref.Kind && o.Name == ref.Name &&
			(o.Namespace == ref.Namespace || o.Namespace == "" || ref.Namespace == "") {
			return o.Digest()
		}
	}
	return ""
}

// duplicateError is the error that two sources contain the same object with different content.
type duplicateError struct {
	ref           apply.Ref
	first, second string
}

func (d duplicateError) Error() string {
	return fmt.Sprintf("%s is in %s and in %s: remove it from one of them", d.ref, d.first, d.second)
}

// Reason returns the reason code of the error, ReasonDuplicateObject.
func (duplicateError) Reason() string { return v1beta2.ReasonDuplicateObject }
