package check

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
)

// CRDsByGroupKind returns the CRDs in a list of objects. The key of the returned map is the group and the
// kind of the CRD.
func CRDsByGroupKind(objects []*unstructured.Unstructured) map[string]*apiextensionsv1.CustomResourceDefinition {
	all := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, o := range objects {
		if gvk := o.GroupVersionKind(); gvk.Kind != "CustomResourceDefinition" ||
			gvk.Group != apiextensionsv1.GroupName {
			continue
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, crd) == nil {
			all[crd.Spec.Group+"/"+crd.Spec.Names.Kind] = crd
		}
	}
	return all
}

// BreakingCRDChanges returns the changes of CRDs after which existing custom resources would not work any
// more. BreakingCRDChanges does not report a removed CRD, because CompareObjects reports removed objects.
func BreakingCRDChanges(before, after map[string]*apiextensionsv1.CustomResourceDefinition) []content.Finding {
	var findings []content.Finding
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if now := after[key]; now != nil {
			findings = append(findings, breakingChanges(before[key], now)...)
		}
	}
	return findings
}

// RefusedCRDChanges returns the changes of CRDs that every API server refuses: another scope, or the removal
// of the version in which custom resources are stored.
func RefusedCRDChanges(before, after map[string]*apiextensionsv1.CustomResourceDefinition) []content.Finding {
	var findings []content.Finding
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if now := after[key]; now != nil {
			findings = append(findings, refusedChanges(before[key], now)...)
		}
	}
	return findings
}

func refusedChanges(before, after *apiextensionsv1.CustomResourceDefinition) []content.Finding {
	var findings []content.Finding
	where := "CustomResourceDefinition " + after.Name
	if before.Spec.Scope != after.Spec.Scope {
		findings = append(findings, content.NewFinding(content.Error, where,
			fmt.Sprintf("its scope changes from %s to %s, which an API server refuses", before.Spec.Scope,
				after.Spec.Scope)))
	}
	for _, old := range before.Spec.Versions {
		if _, there := versionOf(after, old.Name); !there && old.Storage {
			findings = append(findings, content.NewFinding(content.Error, where, fmt.Sprintf(
				"version %s goes, and custom resources are stored in it: an API server refuses that; serve both "+
					"versions, and drop the old one in a later release", old.Name)))
		}
	}
	return findings
}

// versionOf returns a version of a CRD.
func versionOf(crd *apiextensionsv1.CustomResourceDefinition, name string) (
	apiextensionsv1.CustomResourceDefinitionVersion, bool) {
	for _, v := range crd.Spec.Versions {
		if v.Name == name {
			return v, true
		}
	}
	return apiextensionsv1.CustomResourceDefinitionVersion{}, false
}

func breakingChanges(before, after *apiextensionsv1.CustomResourceDefinition) []content.Finding {
	findings := refusedChanges(before, after)
	where := "CustomResourceDefinition " + after.Name
	for _, old := range before.Spec.Versions {
		v, there := versionOf(after, old.Name)
		switch {
		case !there && old.Storage: // a refused change
			continue
		case old.Served && (!there || !v.Served):
			findings = append(findings, content.NewFinding(content.Error, where, fmt.Sprintf(
				"version %s is not served any more: clients that use it fail; announce it, and serve it for some "+
					"releases more", old.Name)))
			continue
		case !there || old.Schema == nil || v.Schema == nil || old.Schema.OpenAPIV3Schema == nil ||
			v.Schema.OpenAPIV3Schema == nil:
			continue
		}
		c := comparison{where: where + ", version " + v.Name}
		c.compareSchemas("", old.Schema.OpenAPIV3Schema, v.Schema.OpenAPIV3Schema)
		findings = append(findings, c.findings...)
	}
	return findings
}

// comparison contains the state of a comparison of two schemas of one CRD.
type comparison struct {
	where    string
	findings []content.Finding
}

func (c *comparison) add(l content.Level, path, format string, args ...any) {
	if path == "" {
		path = "."
	}
	c.findings = append(c.findings, content.NewFinding(l, c.where, path+": "+fmt.Sprintf(format, args...)))
}

// compareSchemas adds a finding for each value that the old schema accepts and the new schema rejects or drops. A
// finding about a field of the status is at most a warning: only the module's operator writes the status, and the new
// version of the operator can write a status that fits the new schema.
func (c *comparison) compareSchemas(path string, before, after *apiextensionsv1.JSONSchemaProps) {
	grave := content.Error
	if path == ".status" || strings.HasPrefix(path, ".status.") {
		grave = content.Warning
	}
	if before.Type != after.Type || before.XIntOrString != after.XIntOrString {
		c.add(grave, path, "its type changes from %s to %s: stored values do not fit any more",
			typeOf(before), typeOf(after))
		return
	}
	c.compareLimits(path, grave, before, after)
	open := after.XPreserveUnknownFields != nil && *after.XPreserveUnknownFields || after.AdditionalProperties != nil &&
		after.AdditionalProperties.Allows
	if !open && before.XPreserveUnknownFields != nil && *before.XPreserveUnknownFields {
		c.add(grave, path, "unknown fields are not kept any more: what users wrote there is dropped")
	}
	for _, name := range slices.Sorted(maps.Keys(before.Properties)) {
		old := before.Properties[name]
		now, there := after.Properties[name]
		switch {
		case there:
			c.compareSchemas(path+"."+name, &old, &now)
		case !open:
			c.add(grave, path+"."+name, "the field is removed: the API server drops the values of users silently")
		}
	}
	for _, name := range after.Required {
		if property := after.Properties[name]; !slices.Contains(before.Required, name) && property.Default == nil {
			c.add(grave, path+"."+name,
				"it is required now, and has no default: custom resources without it cannot be changed any more")
		}
	}
	if b, a := before.Items, after.Items; b != nil && a != nil && b.Schema != nil && a.Schema != nil {
		c.compareSchemas(path+"[]", b.Schema, a.Schema)
	}
	if b, a := before.AdditionalProperties, after.AdditionalProperties; b != nil && a != nil &&
		b.Schema != nil && a.Schema != nil {
		c.compareSchemas(path+"[*]", b.Schema, a.Schema)
	}
}

func typeOf(s *apiextensionsv1.JSONSchemaProps) string {
	if s.XIntOrString {
		return "integer or string"
	}
	if s.Type == "" {
		return "any"
	}
	return s.Type
}

// compareLimits adds findings about values that the limits of the old schema allowed and the limits of the new schema
// do not allow.
func (c *comparison) compareLimits(path string, grave content.Level, before, after *apiextensionsv1.JSONSchemaProps) {
	if len(after.Enum) > 0 {
		var gone []string
		for _, old := range before.Enum {
			if !slices.ContainsFunc(after.Enum, func(
				e apiextensionsv1.JSON) bool {
				return string(e.Raw) == string(old.Raw)
			}) {
				gone = append(gone, string(old.Raw))
			}
		}
		switch {
		case len(before.Enum) == 0:
			c.add(grave, path, "it had any value, and now has to be one of %d", len(after.Enum))
		case len(gone) > 0:
			c.add(grave, path, "%s is not allowed any more", strings.Join(gone, ", "))
		}
	}
	if after.Pattern != before.Pattern && after.Pattern != "" {
		c.add(content.Warning, path, "the pattern changes from %q to %q: do all values fit that were allowed?",
			before.Pattern, after.Pattern)
	}
	if before.Nullable && !after.Nullable {
		c.add(grave, path, "it cannot be null any more")
	}
	for _, l := range []struct {
		name          string
		before, after *int64
		least         bool
	}{
		{"minLength", before.MinLength, after.MinLength, true}, {"maxLength", before.MaxLength, after.MaxLength, false},
		{"minItems", before.MinItems, after.MinItems, true}, {"maxItems", before.MaxItems, after.MaxItems, false},
		{"minProperties", before.MinProperties, after.MinProperties, true},
		{"maxProperties", before.MaxProperties, after.MaxProperties, false},
	} {
		narrower := l.after != nil && (l.before == nil || l.least && *l.after > *l.before ||
			!l.least && *l.after < *l.before)
		if narrower && (!l.least || *l.after > 0) {
			c.add(grave, path, "%s is %d now: values that were allowed are not any more", l.name, *l.after)
		}
	}
	for _, l := range []struct {
		name          string
		before, after *float64
		least         bool
	}{{"minimum", before.Minimum, after.Minimum, true}, {"maximum", before.Maximum, after.Maximum, false}} {
		if l.after != nil && (l.before == nil || l.least && *l.after > *l.before || !l.least && *l.after < *l.before) {
			c.add(grave, path, "%s is %v now: values that were allowed are not any more", l.name, *l.after)
		}
	}
	for _, rule := range after.XValidations {
		if !slices.ContainsFunc(before.XValidations,
			func(r apiextensionsv1.ValidationRule) bool { return r.Rule == rule.Rule }) {
			c.add(content.Warning, path, "there is a new rule, %q: do all custom resources keep it?", rule.Rule)
		}
	}
}

// immutable maps a kind to the fields that the API server does not allow to change.
var immutable = map[string][]string{
	"apps/Deployment": {"spec.selector"},
	"apps/DaemonSet":  {"spec.selector"},
	"apps/ReplicaSet": {"spec.selector"},
	"apps/StatefulSet": {"spec.selector", "spec.serviceName", "spec.podManagementPolicy",
		"spec.volumeClaimTemplates"},
	"batch/Job":                                    {"spec.template", "spec.selector", "spec.completionMode"},
	"rbac.authorization.k8s.io/RoleBinding":        {"roleRef"},
	"rbac.authorization.k8s.io/ClusterRoleBinding": {"roleRef"},
	"/Secret":  {"type"},
	"/Service": {"spec.clusterIP"},
	"/PersistentVolumeClaim": {"spec.accessModes", "spec.storageClassName", "spec.volumeMode",
		"spec.volumeName", "spec.selector"},
	"/Pod":                                   {"spec"},
	"storage.k8s.io/StorageClass":            {"provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"},
	"scheduling.k8s.io/PriorityClass":        {"value", "preemptionPolicy"},
	"networking.k8s.io/IngressClass":         {"spec.controller"},
	"node.k8s.io/RuntimeClass":               {"handler"},
	"storage.k8s.io/CSIDriver":               {"spec.attachRequired", "spec.fsGroupPolicy"},
	"storage.k8s.io/VolumeAttachment":        {"spec"},
	"certificates.k8s.io/ClusterTrustBundle": {"spec.signerName"},
}

// CompareImmutable returns findings about changes of immutable fields.
func CompareImmutable(before, after *unstructured.Unstructured) []content.Finding {
	gvk := after.GroupVersionKind()
	fields := slices.Clone(immutable[gvk.Group+"/"+gvk.Kind])
	if sealed, _, _ := unstructured.NestedBool(before.Object, "immutable"); sealed && gvk.Group == "" {
		fields = append(fields, "data", "binaryData", "stringData")
	}
	var findings []content.Finding
	for _, f := range fields {
		was, _, _ := unstructured.NestedFieldNoCopy(before.Object, strings.Split(f, ".")...)
		is, _, _ := unstructured.NestedFieldNoCopy(after.Object, strings.Split(f, ".")...)
		if reflect.DeepEqual(was, is) {
			continue
		}
		if after.GetAnnotations()[apply.AnnotationOnImmutable] == "recreate" {
			findings = append(findings, content.NewFinding(content.Warning, content.KindAndNameOf(after),
				fmt.Sprintf("%s changes, so the upgrade deletes it and creates it again, as its annotation allows", f)))
			continue
		}
		findings = append(findings, content.NewFinding(content.Error, content.KindAndNameOf(after),
			fmt.Sprintf("%s changes, which an API server refuses: give the new one another name, or let it be "+
				"created again (annotation %s: recreate)", f, apply.AnnotationOnImmutable)))
	}
	return findings
}
