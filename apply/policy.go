package apply

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// The annotations AnnotationApplyPolicy, AnnotationIgnorePaths, AnnotationPrune, AnnotationOnImmutable and
// AnnotationAdoption change how an object in a bundle is applied and deleted. The package reads the annotations only
// from the object in the bundle and from the Overlay; the Overlay overrides the bundle. If somebody sets such an
// annotation on the live object, the annotation has no effect, because only the author of the module decides what the
// module may do to a cluster. If an annotation for applying or deleting an object has an unknown value or an invalid
// field path, the object fails with reason ObjectRefused. An object with an invalid annotation stays in the inventory
// and is not changed.
const (
	// AnnotationApplyPolicy is "enforce" or "create-only". With "enforce", the default, the object in the cluster is
	// kept equal to the object in the bundle. With "create-only", the object is created if it does not exist and is
	// never changed afterwards; only a missing object is drift. A create-only object is in the inventory like any other
	// object. A create-only object is deleted with the module unless AnnotationPrune keeps it.
	AnnotationApplyPolicy = "operator.kyma-project.io/apply-policy"
	// AnnotationIgnorePaths is a list of field paths, separated by commas. The ignored fields are written when the
	// object is created and are not changed afterwards; a difference in an ignored field is never drift. A path is a
	// sequence of keys, separated by dots. Brackets in a path enclose one of three things: the keys that identify a
	// list item (containers[name=manager]), a key that contains dots (data[app.yaml]), or an item of a list of plain
	// values. Examples:
	//
	//	spec.replicas,spec.template.spec.containers[name=manager].image,data[app.yaml],metadata.annotations[example.com/a]
	//
	// The keys of a list item are the keys by which Kubernetes merges the list. At most 32 paths are allowed.
	// AnnotationIgnorePaths cannot contain fields that identify the object (such as metadata.name), and fields of the
	// status.
	AnnotationIgnorePaths = "operator.kyma-project.io/ignore-paths"
	// AnnotationPrune is "delete" (default) or "keep". With "keep", the object is not deleted by an upgrade to a
	// version without the object, and not deleted with the module. With "keep", the namespace of the object and the
	// CustomResourceDefinition of a custom resource are not deleted, either. See Ref.Keep.
	AnnotationPrune = "operator.kyma-project.io/prune"
	// AnnotationOnImmutable is "report" (default) or "recreate". AnnotationOnImmutable applies when the API server
	// rejects a change because a field is immutable. With "recreate", the object is deleted, and the next Apply creates
	// it again. Four kinds of objects are never deleted because of an immutable field: objects that belong to others,
	// objects that existed before the installation, namespaces, and CustomResourceDefinitions.
	AnnotationOnImmutable = "operator.kyma-project.io/on-immutable"
	// AnnotationAdoption is "adopt", "refuse" or "take". AnnotationAdoption applies if the object exists already and
	// somebody else made it. The default is Ownership.Adoption. AnnotationAdoption has no effect without Ownership.
	AnnotationAdoption = "operator.kyma-project.io/adoption"
)

// recreate is the value of AnnotationOnImmutable that permits to delete an object and to create it again.
const recreate = "recreate"

// policy contains the values that the annotations above have on one object. The zero value is the default.
type policy struct {
	createOnly bool
	keep       bool
	recreate   bool
	adoption   Adoption // "" means the default of the installation
	ignore     []fieldPath
}

// policyOf reads the policy of an object. If an annotation is invalid, the result problem states why. For an invalid
// annotation, the result p has the value with the least effect; for example, an invalid AnnotationPrune means that the
// object is kept.
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
	p.recreate = choose(AnnotationOnImmutable, "report", recreate)
	if text := value(AnnotationIgnorePaths); text != "" {
		paths, wrong := parseIgnorePaths(text)
		if wrong != "" {
			problem = "annotation " + AnnotationIgnorePaths + ": " + wrong
		}
		p.ignore = paths
	}
	switch v := Adoption(value(AnnotationAdoption)); v {
	case "", Adopt, Refuse, Take:
		p.adoption = v
	default:
		problem = "annotation " + AnnotationAdoption + " is " + strconv.Quote(clipMessage(string(v))) +
			`, want "adopt", "refuse" or "take"`
	}
	before := problem
	p.keep = choose(AnnotationPrune, "delete", "keep") || problem != before
	return p, problem
}

// maxPaths is the maximum number of paths of an object. maxSteps is the maximum number of steps of a path.
const (
	maxPaths = 32
	maxSteps = 24
)

// parseIgnorePaths parses the value of AnnotationIgnorePaths. problem contains the first invalid path.
func parseIgnorePaths(text string) (paths []fieldPath, problem string) {
	for part := range splitOutsideBrackets(text, ',') {
		part = strings.TrimSpace(part)
		path, wrong := parsePath(part)
		if wrong == "" {
			wrong = path.whyNotIgnorable()
		}
		switch {
		case wrong != "":
			return nil, "path " + strconv.Quote(clipMessage(part)) + ": " + wrong
		case len(paths) == maxPaths:
			return nil, "there are more than " + strconv.Itoa(maxPaths) + " paths"
		}
		paths = append(paths, path)
	}
	return paths, ""
}

// whyNotIgnorable returns why a path must not be ignored. whyNotIgnorable returns "" if the path may be ignored.
func (p fieldPath) whyNotIgnorable() string {
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
