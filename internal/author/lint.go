package author

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/crds"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/check"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

// The following constants are the size limits, in bytes, of programs that read modules.
const (
	managerDescriptor = 100 << 10 // component descriptor, in the manager and in Kyma's lifecycle-manager
	managerLayer      = 32 << 20  // layer, in the manager
	maxObject         = 1 << 20   // object in etcd, with a reserve for fields that the API server adds
)

// Lint returns the problems of the module. If previous is not nil, Lint also returns the problems of an upgrade from
// previous. Lint does not connect to a cluster. The findings are sorted by level. Among findings of the same level,
// each check keeps the order in which the objects are in the manifest.
func (m *Module) Lint(previous *Module) []content.Finding {
	all := slices.Clone(m.Findings)
	for _, find := range []func() []content.Finding{m.lintTemplate, m.lintDefaultCR, m.lintManager, m.lintObjects,
		m.lintObjectsRefusedByAPIServer, m.lintSizes} {
		all = append(all, find()...)
	}
	all = append(all, check.RequestedAndDangerousRights(m.Objects)...)
	if previous != nil {
		all = append(all, m.lintUpgradeFrom(previous)...)
	}
	rank := map[content.Level]int{content.Error: 0, content.Warning: 1, content.Info: 2}
	slices.SortStableFunc(all, func(a, b content.Finding) int { return cmp.Compare(rank[a.Level], rank[b.Level]) })
	return all
}

// lintTemplate validates the ModuleTemplate against its CRD.
func (m *Module) lintTemplate() []content.Finding {
	if m.Template == nil {
		return nil
	}
	where := "ModuleTemplate " + m.Name + ":" + m.Version
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(m.Template, &o.Object); err != nil {
		return []content.Finding{content.NewFinding(content.Error, where, "it is not YAML: "+err.Error())}
	}
	for _, crd := range crds.All() {
		if crd.Spec.Names.Kind == v1beta2.KindModuleTemplate {
			return schemaFindings(crd, o, where, content.Error)
		}
	}
	return nil
}

// schemaFindings validates an object against its CRD. The parameter unknown is the level of findings about fields that
// are not in the schema, which the API server would drop.
func schemaFindings(crd *apiextensionsv1.CustomResourceDefinition, o *unstructured.Unstructured, where string,
	unknown content.Level) []content.Finding {
	var schema *apiextensionsv1.JSONSchemaProps
	for _, v := range crd.Spec.Versions {
		if v.Name == o.GroupVersionKind().Version && v.Schema != nil {
			schema = v.Schema.OpenAPIV3Schema
		}
	}
	if schema == nil {
		return []content.Finding{content.NewFinding(content.Error, where,
			fmt.Sprintf("its definition has no version %q", o.GroupVersionKind().Version))}
	}
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		schema, internal, nil); err != nil {
		return []content.Finding{content.NewFinding(content.Error, "CustomResourceDefinition "+crd.Name,
			"its schema cannot be understood: "+err.Error())}
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return []content.Finding{content.NewFinding(content.Error, "CustomResourceDefinition "+crd.Name,
			"its schema cannot be understood: "+err.Error())}
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		return []content.Finding{content.NewFinding(content.Error, "CustomResourceDefinition "+crd.Name,
			"its schema is not structural, so that no API server takes it: "+err.Error())}
	}
	copied := o.DeepCopy().Object
	defaulting.Default(copied, structural)
	var findings []content.Finding
	for _, problem := range validation.ValidateCustomResource(nil, copied, validator) {
		findings = append(findings, content.NewFinding(content.Error, where, problem.Error()))
	}
	for _, path := range pruning.PruneWithOptions(copied, structural, true,
		structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		findings = append(findings, content.NewFinding(
			unknown, where, fmt.Sprintf("field %s is not in the schema of %s: the API server drops it without a word",
				path, crd.Name)))
	}
	return findings
}

// lintDefaultCR validates the default custom resource against its CRD in the manifest.
func (m *Module) lintDefaultCR() []content.Finding {
	if m.DefaultCR == nil {
		return []content.Finding{content.NewFinding(content.Info, m.Name,
			"there is no default custom resource: the module is ready when its objects are, and users switch it on "+
				"themselves")}
	}
	gvk := m.DefaultCR.GroupVersionKind()
	where := "default custom resource " + content.KindAndNameOf(m.DefaultCR)
	crd := check.CRDsByGroupKind(m.Objects)[gvk.Group+"/"+gvk.Kind]
	if crd == nil {
		return []content.Finding{content.NewFinding(content.Warning, where,
			fmt.Sprintf("the manifest does not define its kind, %s.%s: who does?", gvk.Kind, gvk.Group))}
	}
	findings := schemaFindings(crd, m.DefaultCR, where, content.Warning)
	for _, v := range crd.Spec.Versions {
		if v.Name != gvk.Version {
			continue
		}
		if !v.Served {
			findings = append(findings, content.NewFinding(content.Error, where,
				fmt.Sprintf("%s does not serve version %s", crd.Name, v.Name)))
		}
		if v.Subresources == nil || v.Subresources.Status == nil {
			findings = append(findings, content.NewFinding(content.Warning, "CustomResourceDefinition "+crd.Name,
				"it has no subresource status: users could write the state that the operator reports"))
		}
		if v.Schema != nil && v.Schema.OpenAPIV3Schema != nil && !allowsStatusState(v.Schema.OpenAPIV3Schema) {
			findings = append(findings, content.NewFinding(content.Warning, "CustomResourceDefinition "+crd.Name,
				"its status has no field state: without one of Ready, Processing, Warning, Error and Deleting there "+
					"the module is never Ready, unless the ModuleTemplate has a stateExpression"))
		}
	}
	return findings
}

func allowsStatusState(schema *apiextensionsv1.JSONSchemaProps) bool {
	status, ok := schema.Properties["status"]
	_, has := status.Properties["state"]
	return ok && (has || status.XPreserveUnknownFields != nil && *status.XPreserveUnknownFields)
}

// lintManager checks that the workload that the config names as manager exists in the manifest and states its version.
func (m *Module) lintManager() []content.Finding {
	if m.Config == nil {
		return nil
	}
	w := m.Config.Manager
	if w == nil {
		return []content.Finding{content.NewFinding(content.Warning, m.Config.Where("manager"),
			"no manager is named: clients cannot tell which version runs")}
	}
	where := m.Config.Where("manager")
	for _, o := range m.Objects {
		gvk := o.GroupVersionKind()
		if gvk.Group != w.Group || gvk.Kind != w.Kind.Kind || o.GetName() != w.Name || w.Namespace != "" &&
			o.GetNamespace() != "" && o.GetNamespace() != w.Namespace {
			continue
		}
		return m.lintWorkloadVersion(o)
	}
	return []content.Finding{content.NewFinding(content.Error, where,
		fmt.Sprintf("manager: the manifest has no %s.%s %s: clients would look for it in vain", w.Kind.Kind, w.Group,
			strings.TrimPrefix(w.Namespace+"/"+w.Name, "/")))}
}

// lintWorkloadVersion checks that a workload states the version of the module in an image tag or a label.
func (m *Module) lintWorkloadVersion(o *unstructured.Unstructured) []content.Finding {
	if o.GetLabels()["app.kubernetes.io/version"] == m.Version {
		return nil
	}
	var tags []string
	for _, c := range content.ContainersOf(o) {
		image, _ := c["image"].(string)
		image, _, _ = strings.Cut(image, "@")
		_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
		if strings.TrimPrefix(tag, "v") == m.Version {
			return nil
		}
		tags = append(tags, tag)
	}
	return []content.Finding{content.NewFinding(content.Warning, content.KindAndNameOf(o),
		fmt.Sprintf("it does not say that it is version %s: its images have %s, and it has no label "+
			"app.kubernetes.io/version", m.Version, strings.Join(tags, ", ")))}
}

// lintObjects reports duplicate objects, objects that must not be in a manifest, and objects that stay when the module
// is removed.
func (m *Module) lintObjects() []content.Finding {
	var findings []content.Finding
	seen := map[string]*unstructured.Unstructured{}
	for _, o := range m.Objects {
		key := check.ID(o)
		if first := seen[key]; first != nil && !reflect.DeepEqual(first.Object, o.Object) {
			findings = append(findings, content.NewFinding(content.Error, content.KindAndNameOf(o),
				"it is in the manifest twice, with different content: keep one"))
		}
		seen[key] = o
		if o.GetKind() == "Namespace" && (o.GetName() == "default" || strings.HasPrefix(o.GetName(), "kube-")) {
			findings = append(findings, content.NewFinding(content.Warning, content.KindAndNameOf(o),
				"this namespace belongs to Kubernetes: leave it out"))
		}
		if o.GetAnnotations()[apply.AnnotationPrune] == "keep" {
			findings = append(findings, content.NewFinding(content.Info, content.KindAndNameOf(o),
				fmt.Sprintf("it stays in the runtime when the module is removed (annotation %s: keep; in a chart, "+
					"helm.sh/resource-policy: keep)", apply.AnnotationPrune)))
		}
		gvk := o.GroupVersionKind()
		if m.DefaultCR != nil && key == check.ID(m.DefaultCR) {
			findings = append(findings, content.NewFinding(content.Warning, content.KindAndNameOf(o),
				fmt.Sprintf("the default custom resource is in the manifest too, which undoes what users change in "+
					"their %s: take it out", gvk.Kind)))
		}
	}
	return findings
}

// lintObjectsRefusedByAPIServer reports the objects and fields that every runtime would refuse.
func (m *Module) lintObjectsRefusedByAPIServer() []content.Finding {
	findings := check.Objects(m.Objects, v1beta2.RuntimeNamespace)
	crds := check.CRDsByGroupKind(m.Objects)
	for _, o := range m.Objects {
		gvk := o.GroupVersionKind()
		crd := crds[gvk.Group+"/"+gvk.Kind]
		if crd != nil && slices.ContainsFunc(crd.Spec.Versions,
			func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == gvk.Version }) {
			findings = append(findings, schemaFindings(crd, o, content.KindAndNameOf(o), content.Error)...)
		}
	}
	return findings
}

// lintSizes compares the sizes of the artefacts with the size limits.
func (m *Module) lintSizes() []content.Finding {
	var findings []content.Finding
	where := m.Name + ":" + m.Version
	if len(m.Manifest) > managerLayer-10<<10 {
		findings = append(findings, content.NewFinding(content.Error, where,
			fmt.Sprintf("the manifest has %d bytes: the manager reads %d", len(m.Manifest), managerLayer)))
	}
	if len(m.Template) > maxObject {
		findings = append(findings, content.NewFinding(content.Error, where,
			fmt.Sprintf("the ModuleTemplate has %d bytes: an API server takes about %d", len(m.Template), maxObject)))
	}
	if m.Config != nil && problemsOf(m.Findings) == nil { // otherwise it cannot be packed
		made, err := ocm.Pack(m.Archive())
		if err != nil {
			return append(findings, content.NewFinding(content.Error, where, err.Error()))
		}
		if text, err := made.ComponentDescriptor(); err == nil && len(text) > managerDescriptor {
			findings = append(findings, content.NewFinding(content.Error, where,
				fmt.Sprintf("the component descriptor has %d bytes: the manager reads %d; it names %d images",
					len(text), managerDescriptor, len(m.Images))))
		}
	}
	for _, o := range m.Objects {
		if text, err := o.MarshalJSON(); err == nil && len(text) > maxObject { // YAML can have twice as many bytes
			findings = append(findings, content.NewFinding(content.Warning, content.KindAndNameOf(o),
				fmt.Sprintf("it has %d bytes as JSON: an API server takes about %d", len(text), maxObject)))
		}
	}
	return findings
}

// lintUpgradeFrom compares the module with the previous version.
func (m *Module) lintUpgradeFrom(previous *Module) []content.Finding {
	var findings []content.Finding
	upgrade := fmt.Sprintf("%s to %s", previous.Version, m.Version)
	if m.Name != previous.Name {
		findings = append(findings, content.NewFinding(content.Error, m.Name,
			fmt.Sprintf("the version before is of another component, %s", previous.Name)))
	}
	before, errB := semver.NewVersion(previous.Version)
	after, errA := semver.NewVersion(m.Version)
	if errA == nil && errB == nil && !after.GreaterThan(before) {
		findings = append(findings, content.NewFinding(content.Error, upgrade,
			"that is no upgrade: a lower version is never installed over a higher one"))
	}
	findings = append(findings, check.CompareObjects(previous.Version, m.Version, previous.Objects, m.Objects)...)
	return append(findings, m.lintDeclaredUpgradeAndDowngrade(previous)...)
}
