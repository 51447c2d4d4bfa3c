package apply

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Annotations of an object in a bundle that change how it is treated. The annotations of the bundle count (and of the
// Overlay, which overrides them), not those of the live object: the author of the module decides what it may do to a
// cluster. With an unknown value or an invalid path the object fails with reason ObjectRefused; it stays in the
// inventory and is not changed.
const (
	// AnnotationApplyPolicy is "enforce" (default: the object is kept as in the bundle) or "create-only": it is created
	// if it does not exist and never changed afterwards; only its absence is drift. It is in the inventory like any
	// other object, and deleted with the module unless AnnotationPrune keeps it.
	AnnotationApplyPolicy = "operator.kyma-project.io/apply-policy"
	// AnnotationIgnorePaths lists fields, separated by commas, that are written when the object is created and not
	// changed after that; they are never drift. A path is a sequence of keys with dots between them. Brackets contain
	// what cannot be written so: the keys of a list item, a key with dots, an item of a list of plain values:
	//
	//	spec.replicas,spec.template.spec.containers[name=manager].image,data[app.yaml],metadata.annotations[example.com/a]
	//
	// The keys of a list item are those by which Kubernetes merges the list. At most 32 paths; identity and status
	// cannot be ignored.
	AnnotationIgnorePaths = "operator.kyma-project.io/ignore-paths"
	// AnnotationPrune is "delete" (default) or "keep": neither an upgrade to a version without the object nor the
	// removal of the module deletes it. Its namespace and, for a custom resource, the CustomResourceDefinition are kept
	// with it. See Ref.Keep.
	AnnotationPrune = "operator.kyma-project.io/prune"
	// AnnotationOnImmutable is "report" (default) or "recreate": if the API server refuses a change because a field is
	// immutable, the object is deleted, and created again by the next Apply. Objects of others, namespaces and
	// CustomResourceDefinitions are never deleted for that.
	AnnotationOnImmutable = "operator.kyma-project.io/on-immutable"
)

// policy contains the values of these annotations of one object. The zero value is the default.
type policy struct {
	createOnly bool
	keep       bool
	recreate   bool
	ignore     []fieldPath
}

// policyOf reads the policy of an object. If an annotation is invalid, problem states why, and the policy is the one
// that changes least.
func policyOf(o *render.Object, over render.Overlay) (p policy, problem string) {
	value := func(key string) string { return cmp.Or(over.Annotations[key], o.Annotation(key)) }
	choose := func(key, off, on string) bool {
		switch v := value(key); v {
		case "", off:
			return false
		case on:
			return true
		default:
			problem = "annotation " + key + " is " + strconv.Quote(v) + ", want " + strconv.Quote(
				off) + " or " + strconv.Quote(on)
			return false
		}
	}
	p.createOnly = choose(AnnotationApplyPolicy, "enforce", "create-only")
	p.recreate = choose(AnnotationOnImmutable, "report", "recreate")
	if text := value(AnnotationIgnorePaths); text != "" {
		paths, wrong := parsePaths(text)
		if wrong != "" {
			problem = "annotation " + AnnotationIgnorePaths + ": " + wrong
		}
		p.ignore = paths
	}
	before := problem
	p.keep = choose(AnnotationPrune, "delete", "keep") || problem != before
	return p, problem
}

// maxPaths limits the paths of an object, maxSteps the depth of one.
const (
	maxPaths = 32
	maxSteps = 24
)

// parsePaths parses the value of AnnotationIgnorePaths. problem names the first invalid path.
func parsePaths(text string) (paths []fieldPath, problem string) {
	for part := range splitOutsideBrackets(text, ',') {
		part = strings.TrimSpace(part)
		path, wrong := parsePath(part)
		if wrong == "" {
			wrong = path.whyForbidden()
		}
		switch {
		case wrong != "":
			return nil, "path " + strconv.Quote(bounded(part)) + ": " + wrong
		case len(paths) == maxPaths:
			return nil, "there are more than " + strconv.Itoa(maxPaths) + " paths"
		}
		paths = append(paths, path)
	}
	return paths, ""
}

// whyForbidden returns why a path cannot be ignored; "" if it can.
func (p fieldPath) whyForbidden() string {
	first, second := p[0].key, ""
	if len(p) > 1 {
		second = p[1].key
	}
	switch {
	case first == "apiVersion", first == "kind", first == "status":
		return first + " cannot be ignored"
	case first == "metadata" && !slices.Contains([]string{"annotations", "labels", "finalizers"}, second):
		return "of metadata only annotations, labels and finalizers can be ignored"
	}
	return ""
}
