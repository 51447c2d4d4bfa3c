package apply

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Annotations by which an object of a bundle says how it wants to be treated. What counts is the bundle (and the Overlay, which
// goes over it), not the live object: what a module may do to a cluster is decided by who makes the module. An unknown value,
// or a path that cannot be read, makes the object fail with reason ObjectRefused; it stays in the inventory and untouched.
const (
	// AnnotationApplyPolicy is "enforce" (default: the object is kept as the bundle has it) or "create-only": it is created
	// if it is missing, never changed after, and nothing but its absence is drift. It is in the inventory like any other
	// object, and goes with the module unless AnnotationPrune keeps it.
	AnnotationApplyPolicy = "operator.kyma-project.io/apply-policy"
	// AnnotationIgnorePaths names fields, with commas between them, that are written when the object is created and left
	// alone from then on; they are no drift. A path is made of keys with dots between them; brackets hold what cannot
	// be written so: the keys of a list item, a key with dots, an item of a list of plain values:
	//
	//	spec.replicas,spec.template.spec.containers[name=manager].image,data[app.yaml],metadata.annotations[example.com/a]
	//
	// The keys of a list item are those by which Kubernetes merges the list. At most 32 paths; identity and status cannot be named.
	AnnotationIgnorePaths = "operator.kyma-project.io/ignore-paths"
	// AnnotationPrune is "delete" (default) or "keep": neither an upgrade that no longer has the object nor the end of the module
	// deletes it. Its namespace and, for a custom resource, the CustomResourceDefinition are kept with it. See Ref.Keep.
	AnnotationPrune = "operator.kyma-project.io/prune"
	// AnnotationOnImmutable is "report" (default) or "recreate": if the API server refuses a change because a field cannot be
	// changed, the object is deleted, and created again by the next Apply. Objects of others, namespaces and
	// CustomResourceDefinitions are never deleted for that.
	AnnotationOnImmutable = "operator.kyma-project.io/on-immutable"
)

// policy is what the annotations of one object say. The zero value is the default.
type policy struct {
	createOnly bool
	keep       bool
	recreate   bool
	ignore     []fieldPath
}

// policyOf reads the policy of an object. If it cannot be read, problem says why, and the policy is as careful as it can be.
func policyOf(o *render.Object, over render.Overlay) (p policy, problem string) {
	value := func(key string) string { return cmp.Or(over.Annotations[key], o.Annotation(key)) }
	choose := func(key, off, on string) bool {
		switch v := value(key); v {
		case "", off:
			return false
		case on:
			return true
		default:
			problem = "annotation " + key + " is " + strconv.Quote(v) + ", want " + strconv.Quote(off) + " or " + strconv.Quote(on)
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

// maxPaths is how many paths an object may have; maxSteps how deep one may go.
const (
	maxPaths = 32
	maxSteps = 24
)

// parsePaths reads the value of AnnotationIgnorePaths. problem names the first path that is wrong.
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

// forbidden says why a path cannot be left to others.
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
