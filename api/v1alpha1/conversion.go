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

// ConvertTo makes dst the same Kyma in v1beta2: components are modules, and without a channel it is regular. It fails if
// AnnotationConversion cannot be used, or would become too large; dst is then of no use.
func (k *Kyma) ConvertTo(dst *v1beta2.Kyma) error {
	to := upKyma(k)
	if err := unload(k.Annotations, viewOfStoredKyma(to)); err != nil {
		return err
	}
	for i := range to.Spec.Modules {
		if m := &to.Spec.Modules[i]; m.Channel != "" {
			m.Version = "" // a channel was added where a version was pinned: they exclude each other
		}
	}
	meta, err := loadForWriting(k.ObjectMeta, viewOfKyma(downKyma(to)), viewOfKyma(k))
	to.TypeMeta, to.ObjectMeta = typeMeta(v1beta2.GroupVersion.String(), v1beta2.KindKyma), meta
	*dst = *to
	return err
}

// ConvertFrom makes k the same Kyma as src. It does not fail on what the API server accepts: what does not fit is left out,
// and ConvertTo then refuses the result.
func (k *Kyma) ConvertFrom(src *v1beta2.Kyma) error {
	to := downKyma(src)
	if !unloadForReading(src.Annotations, viewOfKyma(to)) {
		to = downKyma(src)
	}
	meta, err := loadForReading(src.ObjectMeta, viewOfStoredKyma(upKyma(to)), viewOfStoredKyma(src))
	to.TypeMeta, to.ObjectMeta = typeMeta(GroupVersion.String(), v1beta2.KindKyma), meta
	*k = *to
	return err
}

// ConvertTo makes dst the same Manifest in v1beta2. It fails like ConvertTo of Kyma.
func (m *Manifest) ConvertTo(dst *v1beta2.Manifest) error {
	to := upManifest(m)
	if err := unload(m.Annotations, viewOfStoredManifest(to)); err != nil {
		return err
	}
	meta, err := loadForWriting(m.ObjectMeta, viewOfManifest(downManifest(to)), viewOfManifest(m))
	to.TypeMeta, to.ObjectMeta = typeMeta(v1beta2.GroupVersion.String(), v1beta2.KindManifest), meta
	*dst = *to
	return err
}

// ConvertFrom makes m the same Manifest as src. It fails like ConvertFrom of Kyma.
func (m *Manifest) ConvertFrom(src *v1beta2.Manifest) error {
	to := downManifest(src)
	if !unloadForReading(src.Annotations, viewOfManifest(to)) {
		to = downManifest(src)
	}
	meta, err := loadForReading(src.ObjectMeta, viewOfStoredManifest(upManifest(to)), viewOfStoredManifest(src))
	to.TypeMeta, to.ObjectMeta = typeMeta(GroupVersion.String(), v1beta2.KindManifest), meta
	*m = *to
	return err
}

// ConvertTo makes dst the same ModuleTemplate in v1beta2; module and version are those of label, annotation and descriptor.
// It fails like ConvertTo of Kyma.
func (t *ModuleTemplate) ConvertTo(dst *v1beta2.ModuleTemplate) error {
	to := upModuleTemplate(t)
	if err := unload(t.Annotations, viewOfStoredModuleTemplate(to)); err != nil {
		return err
	}
	meta, err := loadForWriting(t.ObjectMeta, viewOfModuleTemplate(downModuleTemplate(to)), viewOfModuleTemplate(t))
	to.TypeMeta, to.ObjectMeta = typeMeta(v1beta2.GroupVersion.String(), v1beta2.KindModuleTemplate), meta
	*dst = *to
	return err
}

// ConvertFrom makes t the same ModuleTemplate as src. It fails like ConvertFrom of Kyma.
func (t *ModuleTemplate) ConvertFrom(src *v1beta2.ModuleTemplate) error {
	to := downModuleTemplate(src)
	if !unloadForReading(src.Annotations, viewOfModuleTemplate(to)) {
		to = downModuleTemplate(src)
	}
	to.Labels, to.Annotations = src.Labels, src.Annotations // module and version come from there
	meta, err := loadForReading(src.ObjectMeta, viewOfStoredModuleTemplate(upModuleTemplate(to)), viewOfStoredModuleTemplate(src))
	to.TypeMeta, to.ObjectMeta = typeMeta(GroupVersion.String(), v1beta2.KindModuleTemplate), meta
	*t = *to
	return err
}

// view is what is converted of an object: pointers into it.
type view struct {
	Spec   any `json:"spec,omitempty"`
	Status any `json:"status,omitempty"`

	// fold and unfold are nil if the object has nothing to fold, see foldComponents.
	fold, unfold func(map[string]any)
}

func viewOfKyma(k *Kyma) view {
	return view{&k.Spec, &k.Status, foldComponents, unfoldComponents}
}
func viewOfStoredKyma(k *v1beta2.Kyma) view       { return view{Spec: &k.Spec, Status: &k.Status} }
func viewOfManifest(m *Manifest) view             { return view{Spec: &m.Spec, Status: &m.Status} }
func viewOfModuleTemplate(t *ModuleTemplate) view { return view{Spec: &t.Spec} }
func viewOfStoredManifest(m *v1beta2.Manifest) view {
	return view{&m.Spec, &m.Status, foldInstall, unfoldInstall}
}
func viewOfStoredModuleTemplate(t *v1beta2.ModuleTemplate) view { return view{Spec: &t.Spec} }

// tree returns spec and status as JSON values, folded.
func (v view) tree() (map[string]any, error) {
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

// set changes spec and status to what a tree says. When it fails they are of no use.
func (v view) set(tree map[string]any) error {
	if v.unfold != nil {
		v.unfold(tree)
	}
	data, err := json.Marshal(tree)
	if err != nil {
		return fmt.Errorf("encoding spec and status: %w", err)
	}
	for _, part := range []any{v.Spec, v.Status} {
		if part != nil {
			reflect.ValueOf(part).Elem().SetZero() // nothing may stay of what the tree does not have
		}
	}
	return json.Unmarshal(data, &v)
}

// makeGood puts losses back.
func (v view) makeGood(all []loss) error {
	if len(all) == 0 {
		return nil
	}
	tree, err := v.tree()
	if err != nil {
		return err
	}
	if err := restore(tree, all); err != nil {
		return err
	}
	return v.set(tree)
}

// unload puts back what the annotation of an object in v1alpha1 has, which somebody is about to store.
func unload(annotations map[string]string, to view) error {
	b, err := unpack(v1beta2.Version, annotations[AnnotationConversion])
	if b.TooLarge {
		return errors.New("the object has more than v1alpha1 can carry: read and write it in v1beta2")
	}
	if err == nil {
		err = to.makeGood(b.Losses)
	}
	if err != nil {
		return fmt.Errorf("annotation %s cannot be used: %w; remove it", AnnotationConversion, err)
	}
	return nil
}

// unloadForReading puts back what the annotation of an object in v1beta2 has. Reading must be possible whatever is there, so
// an annotation that cannot be used says nothing: then it returns false, and to is of no use.
func unloadForReading(annotations map[string]string, to view) bool {
	b, err := unpack(Version, annotations[AnnotationConversion])
	return err == nil && to.makeGood(b.Losses) == nil
}

// loadForWriting returns the metadata of an object in v1beta2, with what is there in v1alpha1 and does not come back. It
// refuses if that is too much.
func loadForWriting(meta metav1.ObjectMeta, back, there view) (metav1.ObjectMeta, error) {
	lost, err := whatIsLost(back, there)
	if err != nil {
		return meta, err
	}
	annotation, fits, err := pack(Version, lost)
	if err != nil {
		return meta, fmt.Errorf("writing annotation %s: %w", AnnotationConversion, err)
	}
	if !fits {
		return meta, fmt.Errorf("what v1beta2 has no field for, above all %s, takes more than %d bytes: make it smaller, or write the object in v1beta2", largest(lost), MaxConversionBytes)
	}
	return withAnnotation(meta, annotation), nil
}

// loadForReading returns the metadata of an object in v1alpha1, with what is there in v1beta2 and does not come back, or
// with a note that this is too much.
func loadForReading(meta metav1.ObjectMeta, back, there view) (metav1.ObjectMeta, error) {
	lost, err := whatIsLost(back, there)
	if err != nil {
		return meta, err
	}
	annotation, _, err := pack(v1beta2.Version, lost)
	if err != nil {
		return meta, fmt.Errorf("writing annotation %s: %w", AnnotationConversion, err)
	}
	return withAnnotation(meta, annotation), nil
}

// whatIsLost compares what comes back with what is there.
func whatIsLost(back, there view) ([]loss, error) {
	was, err := back.tree()
	if err != nil {
		return nil, err
	}
	is, err := there.tree()
	if err != nil {
		return nil, err
	}
	return losses(was, is)
}

func typeMeta(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

// withAnnotation returns a copy of the metadata with another AnnotationConversion, "" for none.
func withAnnotation(meta metav1.ObjectMeta, annotation string) metav1.ObjectMeta {
	out := *meta.DeepCopy()
	if _, ok := out.Annotations[AnnotationConversion]; !ok && annotation == "" {
		return out
	}
	annotations := maps.Clone(out.Annotations)
	delete(annotations, AnnotationConversion)
	if annotation != "" {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[AnnotationConversion] = annotation
	}
	if len(annotations) == 0 {
		annotations = nil
	}
	out.Annotations = annotations
	return out
}

// What is one list in one version and two fields in the other is compared in one form, so that an edit of the list concerns
// both fields. Folding makes that form, in place; unfolding takes it back.

// foldComponents moves spec.components before spec.modules; an element that was a component has the key component.
func foldComponents(tree map[string]any) {
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

func unfoldComponents(tree map[string]any) {
	spec, _ := tree["spec"].(map[string]any)
	all, _ := spec["modules"].([]any)
	var modules, components []any
	for _, m := range all {
		fields, _ := m.(map[string]any)
		component, ok := fields["component"].(map[string]any)
		if !ok || len(fields) > 2 { // what more a module says, a component cannot say
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

// foldInstall moves spec.install before spec.installs; the element has the key single.
func foldInstall(tree map[string]any) {
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

// unfoldInstall makes spec.install of an only element that was one. Next to others it stays in the list.
func unfoldInstall(tree map[string]any) {
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
