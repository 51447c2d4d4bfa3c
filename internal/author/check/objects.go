package check

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
)

// newestMinor is the minor version of the newest supported Kubernetes 1.x, which is the version of the types in
// client-go.
const newestMinor = 37

// types contains the Go type of each built-in kind in each version, including versions that are not served any more.
var types = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // the types are compiled in
		}
	}
	return s
}()

// Objects checks the objects of a module, and returns findings about those parts that the API servers of all supported
// versions would refuse. The parameter existingNamespaces lists namespaces that exist in every runtime, in addition to
// the namespaces that Kubernetes creates itself. Objects returns these findings:
//
//	1  an API version that is not served any more           error
//	2  a built-in group that does not have the kind         error
//	3  a kind of another group, without CRD in the module   warning: another module may define it
//	4  a version that the module's own CRD does not serve   error
//	5  a field that the kind does not have, or a value of another type: numbers in ConfigMaps, labels, selectors  error
//	6  a workload whose selector does not match its pods    error
//	7  a namespace that nobody creates                      error
func Objects(objects []*unstructured.Unstructured, existingNamespaces ...string) []content.Finding {
	crds := CRDsByGroupKind(objects)
	var findings []content.Finding
	for _, o := range objects {
		add := func(level content.Level, format string, args ...any) {
			findings = append(findings, content.NewFinding(level, content.KindAndNameOf(o), fmt.Sprintf(format,
				args...)))
		}
		gvk := o.GroupVersionKind()
		typed, err := types.New(gvk)
		switch crd := crds[gvk.Group+"/"+gvk.Kind]; {
		case err == nil:
			if removed := removedAPIText(typed); removed != "" {
				add(content.Error, "%s", removed)
			}
			for _, m := range compareWithType(o, typed) {
				add(content.Error, "%s", m)
			}
			if problem := selectorProblem(o); problem != "" {
				add(content.Error, "%s", problem)
			}
		case crd != nil:
			if !slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
				return v.Name == gvk.Version && v.Served
			}) {
				add(content.Error, "the module's own CustomResourceDefinition %s does not serve version %s", crd.Name,
					gvk.Version)
			}
		case isBuiltinWithoutType(gvk):
		case types.IsGroupRegistered(gvk.Group):
			add(content.Error, "Kubernetes has no kind %s in %s%s", gvk.Kind, gvk.GroupVersion(),
				otherVersionsHint(gvk))
		default:
			add(content.Warning, "neither Kubernetes nor the module defines kind %s of %s: the module is in state "+
				"Error in each runtime without it", gvk.Kind, gvk.GroupVersion())
		}
	}
	return append(findings, missingNamespaceFindings(objects, crds, existingNamespaces)...)
}

// isBuiltinWithoutType reports whether package apply knows a built-in kind although this package has no type for it.
func isBuiltinWithoutType(gvk schema.GroupVersionKind) bool {
	_, known := apply.BuiltinScope(gvk.GroupKind())
	return known && !types.IsGroupRegistered(gvk.Group)
}

// removedAPIText returns a text about an object if no supported API server serves the API version of the object, and ""
// otherwise.
func removedAPIText(typed runtime.Object) string {
	removed, ok := typed.(interface{ APILifecycleRemoved() (major, minor int) })
	if !ok {
		return ""
	}
	major, minor := removed.APILifecycleRemoved()
	if major != 1 || minor > newestMinor {
		return ""
	}
	text := fmt.Sprintf("Kubernetes does not serve its apiVersion since version 1.%d", minor)
	if r, ok := typed.(interface {
		APILifecycleReplacement() schema.GroupVersionKind
	}); ok {
		replacement := r.APILifecycleReplacement()
		text += ": use " + replacement.GroupVersion().String() + " " + replacement.Kind
	}
	return text
}

// otherVersionsHint returns an instruction that lists the other API versions of a kind.
func otherVersionsHint(gvk schema.GroupVersionKind) string {
	var versions []string
	for _, group := range append([]string{gvk.Group}, groupsWithKind(gvk.Kind)...) {
		for _, version := range types.PrioritizedVersionsForGroup(group) {
			typed, err := types.New(version.WithKind(gvk.Kind))
			if err == nil && removedAPIText(typed) == "" {
				versions = append(versions, version.String())
			}
		}
	}
	slices.Sort(versions)
	if versions = slices.Compact(versions); len(versions) == 0 {
		return ""
	}
	return ": use " + strings.Join(versions, " or ")
}

// groupsWithKind returns the other API groups that have a kind.
func groupsWithKind(kind string) []string {
	var groups []string
	for gvk := range types.AllKnownTypes() {
		if gvk.Kind == kind && gvk.Version != runtime.APIVersionInternal {
			groups = append(groups, gvk.Group)
		}
	}
	return groups
}

// podTemplates are the kinds whose selector has to match the labels of their pods.
var podTemplates = []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"}

// selectorProblem returns what is wrong with the selector of a workload, or "".
func selectorProblem(o *unstructured.Unstructured) string {
	if o.GroupVersionKind().Group != "apps" || !slices.Contains(podTemplates, o.GetKind()) {
		return ""
	}
	selector, found, err := unstructured.NestedMap(o.Object, "spec", "selector")
	labels, _, errLabels := unstructured.NestedMap(o.Object, "spec", "template", "metadata", "labels")
	if err != nil || errLabels != nil {
		return "" // of another type, which is reported
	}
	if !found {
		return "spec.selector is missing: an API server requires it"
	}
	match, _ := selector["matchLabels"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(match)) {
		if labels[key] != match[key] {
			return fmt.Sprintf("spec.selector requires label %s=%v, which its pods do not have (spec.template.metadata."+
				"labels): an API server refuses that", key, match[key])
		}
	}
	return ""
}

// missingNamespaceFindings reports every namespace that objects of the module use, but that is neither created by the
// module nor present in each cluster. The parameter existingNamespaces lists the namespaces that each cluster has.
func missingNamespaceFindings(objects []*unstructured.Unstructured,
	crds map[string]*apiextensionsv1.CustomResourceDefinition,
	existingNamespaces []string) []content.Finding {
	existingNamespaces = append([]string{corev1.NamespaceDefault, corev1.NamespaceNodeLease, metav1.NamespacePublic,
		metav1.NamespaceSystem}, existingNamespaces...)
	users, homeless := map[string][]string{}, []string{}
	for _, o := range objects {
		gvk := o.GroupVersionKind()
		namespaced, builtin := apply.BuiltinScope(gvk.GroupKind())
		crd := crds[gvk.Group+"/"+gvk.Kind]
		switch {
		case gvk.Group == "" && gvk.Kind == "Namespace":
			existingNamespaces = append(existingNamespaces, o.GetName())
		case builtin && !namespaced || crd != nil && crd.Spec.Scope == apiextensionsv1.ClusterScoped:
		case o.GetNamespace() != "":
			users[o.GetNamespace()] = append(users[o.GetNamespace()], content.KindAndNameOf(o))
		case builtin || crd != nil:
			homeless = append(homeless, content.KindAndNameOf(o))
		}
	}
	var findings []content.Finding
	for _, namespace := range slices.Sorted(maps.Keys(users)) {
		if !slices.Contains(existingNamespaces, namespace) {
			findings = append(findings, content.NewFinding(content.Error, "Namespace "+namespace, fmt.Sprintf(
				"neither the module nor each runtime has it, and the module has objects in it: %s: add the Namespace "+
					"to the manifest (chart.createNamespace: true for a chart)",
				content.JoinFirst(users[namespace], ", "))))
		}
	}
	if len(homeless) > 0 {
		findings = append(findings, content.NewFinding(content.Info, strconv.Itoa(len(homeless))+" objects",
			"they name no namespace, so they are installed in namespace default: "+content.JoinFirst(homeless, ", ")))
	}
	return findings
}
