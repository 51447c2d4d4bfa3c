package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// ConvertTo converts the Kyma k to v1beta2: components become modules, and the default channel is regular. ConvertTo
// fails if AnnotationConversion is not valid or would become too large; after an error, the content of dst is
// undefined.
func (k *Kyma) ConvertTo(dst *v1beta2.Kyma) error {
	to := toStoredKyma(k)
	if err := restoreStoredFromAnnotation(k.Annotations, contentOfStoredKyma(to)); err != nil {
		return err
	}
	for i := range to.Spec.Modules {
		if m := &to.Spec.Modules[i]; m.Channel != "" {
			m.Version = "" // a channel was added to a pinned module: channel and version exclude each other
		}
	}
	meta, err := metaWithAllLosses(k.ObjectMeta, contentOfKyma(fromStoredKyma(to)), contentOfKyma(k))
	to.TypeMeta, to.ObjectMeta = typeMeta(v1beta2.GroupVersion.String(), v1beta2.KindKyma), meta
	*dst = *to
	return err
}

// ConvertFrom converts src to v1alpha1. ConvertFrom does not fail for an object that the API server accepts. If the
// values for which v1alpha1 has no field do not fit into AnnotationConversion, ConvertFrom omits them, and ConvertTo
// later rejects the object.
func (k *Kyma) ConvertFrom(src *v1beta2.Kyma) error {
	to := fromStoredKyma(src)
	if !tryRestoreAlphaFromAnnotation(src.Annotations, contentOfKyma(to)) {
		to = fromStoredKyma(src)
	}
	meta, err := metaWithLossesIfFitting(src.ObjectMeta, contentOfStoredKyma(toStoredKyma(to)),
		contentOfStoredKyma(src))
	to.TypeMeta, to.ObjectMeta = typeMeta(GroupVersion.String(), v1beta2.KindKyma), meta
	*k = *to
	return err
}

// ConvertTo converts the Manifest m to v1beta2. ConvertTo returns the same errors as the method ConvertTo of Kyma.
func (m *Manifest) ConvertTo(dst *v1beta2.Manifest) error {
	to := toStoredManifest(m)
	if err := restoreStoredFromAnnotation(m.Annotations, contentOfStoredManifest(to)); err != nil {
		return err
	}
	meta, err := metaWithAllLosses(m.ObjectMeta, contentOfManifest(fromStoredManifest(to)), contentOfManifest(m))
	to.TypeMeta, to.ObjectMeta = typeMeta(v1beta2.GroupVersion.String(), v1beta2.KindManifest), meta
	*dst = *to
	return err
}

// ConvertFrom converts src to v1alpha1. ConvertFrom returns the same errors as the method ConvertFrom of Kyma.
func (m *Manifest) ConvertFrom(src *v1beta2.Manifest) error {
	to := fromStoredManifest(src)
	if !tryRestoreAlphaFromAnnotation(src.Annotations, contentOfManifest(to)) {
		to = fromStoredManifest(src)
	}
	meta, err := metaWithLossesIfFitting(src.ObjectMeta, contentOfStoredManifest(toStoredManifest(to)),
		contentOfStoredManifest(src))
	to.TypeMeta, to.ObjectMeta = typeMeta(GroupVersion.String(), v1beta2.KindManifest), meta
	*m = *to
	return err
}

// ConvertTo converts the ModuleTemplate t to v1beta2; the name and the version of the module are read from the label,
// the annotation and the descriptor of t. ConvertTo returns the same errors as the method ConvertTo of Kyma.
func (t *ModuleTemplate) ConvertTo(dst *v1beta2.ModuleTemplate) error {
	to := toStoredModuleTemplate(t)
	if err := restoreStoredFromAnnotation(t.Annotations, contentOfStoredModuleTemplate(to)); err != nil {
		return err
	}
	meta, err := metaWithAllLosses(t.ObjectMeta, contentOfModuleTemplate(lossyFromStoredModuleTemplate(to)),
		contentOfModuleTemplate(t))
	to.TypeMeta, to.ObjectMeta = typeMeta(v1beta2.GroupVersion.String(), v1beta2.KindModuleTemplate), meta
	*dst = *to
	return err
}

// ConvertFrom converts src to v1alpha1. ConvertFrom returns the same errors as the method ConvertFrom of Kyma.
func (t *ModuleTemplate) ConvertFrom(src *v1beta2.ModuleTemplate) error {
	to := lossyFromStoredModuleTemplate(src)
	if !tryRestoreAlphaFromAnnotation(src.Annotations, contentOfModuleTemplate(to)) {
		to = lossyFromStoredModuleTemplate(src)
	}
	to.Labels, to.Annotations = src.Labels, src.Annotations // toStoredModuleTemplate reads module and version from them
	meta, err := metaWithLossesIfFitting(src.ObjectMeta, contentOfStoredModuleTemplate(toStoredModuleTemplate(to)),
		contentOfStoredModuleTemplate(src))
	to.TypeMeta, to.ObjectMeta = typeMeta(GroupVersion.String(), v1beta2.KindModuleTemplate), meta
	*t = *to
	return err
}

// content has pointers to the parts of an object that are converted: its spec and its status.
type content struct {
	Spec   any `json:"spec,omitempty"`
	Status any `json:"status,omitempty"`

	// The functions fold and unfold are nil if the kind has no lists that are folded, that is, merged for the
	// comparison (see mergeComponentsIntoModules).
	fold, unfold func(map[string]any)
}

func contentOfKyma(k *Kyma) content {
	return content{&k.Spec, &k.Status, mergeComponentsIntoModules, splitComponentsFromModules}
}
func contentOfStoredKyma(k *v1beta2.Kyma) content       { return content{Spec: &k.Spec, Status: &k.Status} }
func contentOfManifest(m *Manifest) content             { return content{Spec: &m.Spec, Status: &m.Status} }
func contentOfModuleTemplate(t *ModuleTemplate) content { return content{Spec: &t.Spec} }
func contentOfStoredManifest(m *v1beta2.Manifest) content {
	return content{&m.Spec, &m.Status, mergeStoredInstallIntoInstalls, splitStoredInstallFromInstalls}
}
func contentOfStoredModuleTemplate(t *v1beta2.ModuleTemplate) content { return content{Spec: &t.Spec} }

// foldedTree returns the spec and the status as JSON values in which lists are folded (see mergeComponentsIntoModules).
func (v content) foldedTree() (map[string]any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding spec and status: %w", err)
	}
	tree := map[string]any{}
	if err := utiljson.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("reading spec and status: %w", err)
	}
	if v.fold != nil {
		v.fold(tree)
	}
	return tree, nil
}

// setFoldedTree sets the spec and the status from JSON values in which lists are folded, that is, merged for the
// comparison (see mergeComponentsIntoModules). If setFoldedTree returns an error, the content of the spec and the
// status is undefined.
func (v content) setFoldedTree(tree map[string]any) error {
	if v.unfold != nil {
		v.unfold(tree)
	}
	data, err := json.Marshal(tree)
	if err != nil {
		return fmt.Errorf("encoding spec and status: %w", err)
	}
	for _, part := range []any{v.Spec, v.Status} {
		if part != nil {
			reflect.ValueOf(part).Elem().SetZero() // no field that is missing in the tree may keep its value
		}
	}
	return json.Unmarshal(data, &v)
}

// restoreUneditedLosses puts values that were lost in a conversion back into an object. A value that was edited since
// the conversion is kept.
func (v content) restoreUneditedLosses(all []loss) error {
	if len(all) == 0 {
		return nil
	}
	tree, err := v.foldedTree()
	if err != nil {
		return err
	}
	if err := restoreUnedited(tree, all); err != nil {
		return err
	}
	return v.setFoldedTree(tree)
}

// restoreStoredFromAnnotation restores the losses that are recorded in the annotation of a v1alpha1 object that is
// being written.
func restoreStoredFromAnnotation(annotations map[string]string, to content) error {
	b, err := decodeLosses(v1beta2.Version, annotations[AnnotationConversion])
	if b.TooLarge {
		return errors.New("the object has values that do not fit into v1alpha1: read and write it in v1beta2")
	}
	if err == nil {
		err = to.restoreUneditedLosses(b.Losses)
	}
	if err != nil {
		return fmt.Errorf("annotation %s is not valid: %w; remove it", AnnotationConversion, err)
	}
	return nil
}

// tryRestoreAlphaFromAnnotation restores the values for which v1beta2 has no field, from the AnnotationConversion of a
// v1beta2 object that is read as v1alpha1. Every stored object must be readable, so tryRestoreAlphaFromAnnotation
// ignores an invalid annotation: in this case, tryRestoreAlphaFromAnnotation returns false, and may have set some of
// the values in the v1alpha1 object.
func tryRestoreAlphaFromAnnotation(annotations map[string]string, to content) (isAnnotationValid bool) {
	b, err := decodeLosses(Version, annotations[AnnotationConversion])
	return err == nil && to.restoreUneditedLosses(b.Losses) == nil
}

// metaWithAllLosses returns the metadata of a v1beta2 object, with an annotation that contains the values of the
// v1alpha1 original for which v1beta2 has no field. metaWithAllLosses fails if these values do not fit into the
// annotation. The parameter "original" is the original object; the parameter "roundTripped" is the object after a
// conversion to v1beta2 and back to v1alpha1.
func metaWithAllLosses(meta metav1.ObjectMeta, roundTripped, original content) (metav1.ObjectMeta, error) {
	lost, err := findLosses(roundTripped, original)
	if err != nil {
		return meta, err
	}
	annotation, fits, err := encodeLosses(Version, lost)
	if err != nil {
		return meta, fmt.Errorf("writing annotation %s: %w", AnnotationConversion, err)
	}
	if !fits {
		return meta, fmt.Errorf(
			"values without a field in v1beta2, mainly %s, exceed %d bytes: make them smaller, or write the object "+
				"in v1beta2", pathOfLargest(lost), MaxConversionBytes)
	}
	return withConversionAnnotation(meta, annotation), nil
}

// metaWithLossesIfFitting returns the metadata of a v1alpha1 object with an annotation, which contains the values of
// the v1beta2 original for which v1alpha1 has no field. If these values are too large, the annotation only states that
// they were left out.
func metaWithLossesIfFitting(meta metav1.ObjectMeta, roundTripped, original content) (metav1.ObjectMeta, error) {
	lost, err := findLosses(roundTripped, original)
	if err != nil {
		return meta, err
	}
	annotation, _, err := encodeLosses(v1beta2.Version, lost)
	if err != nil {
		return meta, fmt.Errorf("writing annotation %s: %w", AnnotationConversion, err)
	}
	return withConversionAnnotation(meta, annotation), nil
}

// findLosses returns the values that a conversion loses. The parameter "original" is the original object, and the
// parameter "roundTripped" is the object after a conversion to the other API version and back.
func findLosses(roundTripped, original content) ([]loss, error) {
	was, err := roundTripped.foldedTree()
	if err != nil {
		return nil, err
	}
	is, err := original.foldedTree()
	if err != nil {
		return nil, err
	}
	return lossesBetween(was, is)
}

func typeMeta(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

// withConversionAnnotation returns a copy of the metadata in which AnnotationConversion has another value, or is
// missing if the value is "".
func withConversionAnnotation(meta metav1.ObjectMeta, value string) metav1.ObjectMeta {
	out := *meta.DeepCopy()
	if _, ok := out.Annotations[AnnotationConversion]; !ok && value == "" {
		return out
	}
	annotations := maps.Clone(out.Annotations)
	delete(annotations, AnnotationConversion)
	if value != "" {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[AnnotationConversion] = value
	}
	if len(annotations) == 0 {
		annotations = nil
	}
	out.Annotations = annotations
	return out
}

// If two fields in one API version correspond to one list in the other version, the two fields are compared as one
// list, so that an edit of the list applies to both fields. Folding merges the two fields of an object into one list;
// unfolding restores the two fields.

// mergeComponentsIntoModules moves the elements of spec.components to the beginning of spec.modules, and marks them
// with the key component.
func mergeComponentsIntoModules(tree map[string]any) {
	spec, _ := tree["spec"].(map[string]any)
	components, ok := spec["components"].([]any)
	if !ok {
		return
	}
	var all []any
	for _, c := range components {
		fields, _ := c.(map[string]any)
		rest := maps.Clone(fields)
		delete(rest, "name")
		all = append(all, map[string]any{"name": fields["name"], "component": rest})
	}
	modules, _ := spec["modules"].([]any)
	spec["modules"] = append(all, modules...)
	delete(spec, "components")
}

func splitComponentsFromModules(tree map[string]any) {
	spec, _ := tree["spec"].(map[string]any)
	all, _ := spec["modules"].([]any)
	var modules, components []any
	for _, m := range all {
		fields, _ := m.(map[string]any)
		component, ok := fields["component"].(map[string]any)
		if !ok || len(fields) > 2 { // a component has no further fields
			delete(fields, "component")
			modules = append(modules, m)
			continue
		}
		component["name"] = fields["name"]
		components = append(components, component)
	}
	if all != nil {
		spec["modules"], spec["components"] = modules, components
	}
}

// mergeStoredInstallIntoInstalls moves spec.install to the beginning of spec.installs, and adds the key "single" to the
// moved element, so that splitStoredInstallFromInstalls finds the element.
func mergeStoredInstallIntoInstalls(tree map[string]any) {
	spec, _ := tree["spec"].(map[string]any)
	install, ok := spec["install"].(map[string]any)
	if !ok {
		return
	}
	install["single"] = true
	installs, _ := spec["installs"].([]any)
	spec["installs"] = append([]any{install}, installs...)
	delete(spec, "install")
}

// splitStoredInstallFromInstalls moves an element of spec.installs with the key "single" to spec.install if the list
// has no other element. If spec.installs has other elements, too, the element with the key "single" stays in the list.
func splitStoredInstallFromInstalls(tree map[string]any) {
	spec, _ := tree["spec"].(map[string]any)
	installs, _ := spec["installs"].([]any)
	for _, e := range installs {
		fields, _ := e.(map[string]any)
		if fields["single"] != true {
			continue
		}
		delete(fields, "single")
		if len(installs) == 1 {
			spec["install"] = fields
			delete(spec, "installs")
		}
	}
}
