package recovery

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// kinds are the kinds in a backup, in the order in which they are read and created. Kymas are read before the objects
// that belong to them, so that these are never older than their Kyma: a backup with a Kyma also has its access Secret,
// the inventories of its modules, and the tombstone of its deletion if the deletion was given up.
var kinds = []schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithKind("Namespace"),
	v1beta2.GroupVersion.WithKind(v1beta2.KindModuleTemplate),
	v1beta2.GroupVersion.WithKind(v1beta2.KindRolloutPolicy),
	v1beta2.GroupVersion.WithKind(v1beta2.KindModuleReleaseMeta),
	v1beta2.GroupVersion.WithKind(v1beta2.KindModuleRollout),
	v1beta2.GroupVersion.WithKind(v1beta2.KindWatcher),
	v1beta2.GroupVersion.WithKind(v1beta2.KindKyma),
	v1beta2.GroupVersion.WithKind(v1beta2.KindManifest),
	corev1.SchemeGroupVersion.WithKind("Secret"),
	corev1.SchemeGroupVersion.WithKind("ConfigMap"),
}

const (
	// lastLine is the beginning of the last line of every backup. A backup file without this last line is not complete.
	lastLine = "# end of the backup: "
	// deletingLine is the beginning of a comment line in the backup file, before an object that was being deleted
	// during the backup.
	deletingLine = "# was being deleted since "
	// controlPlaneLine is the beginning of a comment line in the head of the backup file: the UID that identifies the
	// control plane follows.
	controlPlaneLine = "# UID of the control plane: "
	// documentLimit is the maximum size of one object. API servers accept at most 3 MiB in a request.
	documentLimit = 8 << 20
)

// belongsInBackup reports whether an object is saved in a backup. Objects that the cluster or another tool creates
// again are not saved.
func belongsInBackup(o *unstructured.Unstructured) bool {
	switch o.GetKind() {
	case "Secret":
		kind, _, _ := unstructured.NestedString(o.Object, "type")
		return !slices.Contains([]string{string(corev1.SecretTypeServiceAccountToken),
			string(corev1.SecretTypeBootstrapToken), "helm.sh/release.v1"}, kind)
	case "ConfigMap":
		return !slices.Contains([]string{"kube-root-ca.crt", "istio-ca-root-cert", "openshift-service-ca.crt",
			"lifecycle-manager-inventory"}, o.GetName())
	}
	return true
}

// restorableCopy returns a copy of an object that can be created in another cluster. The metadata of the copy has only
// the fields that users and controllers set. restorableCopy sets the field observedGeneration in the status to 1,
// because a new object has the generation 1.
//
// If a deletion was given up, restorableCopy removes the mark of that from the Kyma and its Manifests. The tombstone of
// the deletion names the UID of the Kyma, and a restored Kyma has another UID: the manager drops the tombstone, and
// with the mark, the restored Kyma would leave its runtime untouched, too.
func restorableCopy(o *unstructured.Unstructured) *unstructured.Unstructured {
	fields := maps.Clone(o.Object)
	all, _ := o.Object["metadata"].(map[string]any)
	meta := map[string]any{}
	for _, key := range []string{"name", "namespace", "labels", "annotations"} {
		if value, set := all[key]; set {
			meta[key] = value
		}
	}
	if kept := restorableFinalizers(o); len(kept) > 0 {
		meta["finalizers"] = kept
	}
	fields["metadata"] = meta
	out := (&unstructured.Unstructured{Object: fields}).DeepCopy()
	switch o.GetKind() {
	case "Namespace":
		delete(out.Object, "spec")
		delete(out.Object, "status")
	case v1beta2.KindManifest:
		// a label names the Kyma, too, so the owner reference is not needed
		if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == v1beta2.KindKyma {
			labels := out.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			labels[v1beta2.LabelManagedBy] = v1beta2.ManagedByLifecycleManager
			out.SetLabels(labels)
		}
	}
	if o.GetKind() == v1beta2.KindKyma || o.GetKind() == v1beta2.KindManifest {
		annotations := out.GetAnnotations()
		delete(annotations, v1beta2.AnnotationDeletionGivenUp)
		if len(annotations) == 0 {
			annotations = nil // so that the copy has no empty field
		}
		out.SetAnnotations(annotations)
	}
	if status, ok := out.Object["status"].(map[string]any); ok {
		adjustObservedGeneration(status, o.GetGeneration())
		conditions, _ := status["conditions"].([]any)
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok {
				adjustObservedGeneration(c, o.GetGeneration())
			}
		}
	}
	return out
}

// restorableFinalizers returns the finalizers of an object. restorableFinalizers leaves out the finalizers that a
// request for the deletion has set.
func restorableFinalizers(o *unstructured.Unstructured) []any {
	var kept []any
	for _, f := range o.GetFinalizers() {
		if f != metav1.FinalizerDeleteDependents && f != metav1.FinalizerOrphanDependents {
			kept = append(kept, f)
		}
	}
	return kept
}

// adjustObservedGeneration prepares the field observedGeneration for a new object, whose generation is 1. If
// observedGeneration equals the generation of the saved object, adjustObservedGeneration sets observedGeneration to 1.
// If they differ, the saved status is outdated, and adjustObservedGeneration removes observedGeneration.
func adjustObservedGeneration(fields map[string]any, savedGeneration int64) {
	switch observed, ok := fields["observedGeneration"].(int64); {
	case !ok:
	case observed == savedGeneration:
		fields["observedGeneration"] = int64(1)
	default:
		delete(fields, "observedGeneration")
	}
}

// encode returns the YAML document of an object, with the separator before the document.
func encode(o *unstructured.Unstructured) ([]byte, error) {
	data, err := yaml.Marshal(restorableCopy(o).Object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", nameOf(o), err)
	}
	head := "---\n"
	if since := o.GetDeletionTimestamp(); since != nil {
		head += deletingLine + since.UTC().Format("2006-01-02T15:04:05Z") + "\n"
	}
	return append([]byte(head), data...), nil
}

// nameOf returns kind, namespace and name of an object.
func nameOf(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// document is one object of a backup.
type document struct {
	*unstructured.Unstructured
	deleting bool // it was being deleted
	// isDeletionLeft is true if the object was being deleted, and a restore leaves it to the user to delete it again,
	// see survey.leaveDeletionElsewhere.
	isDeletionLeft bool
}

// controlPlaneOf returns the UID of the control plane in the head of a backup. controlPlaneOf returns "" if the head
// has no UID, because an earlier version of klm wrote the backup or because the user could not read the UID.
func controlPlaneOf(f io.ReadSeeker) string {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return ""
	}
	in := bufio.NewReader(f)
	for {
		line, err := in.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "#") {
			return ""
		}
		if uid, found := strings.CutPrefix(line, controlPlaneLine); found {
			return strings.TrimSpace(uid)
		}
	}
}

// visitObjects calls the function visit once for each object of a backup. visitObjects stops at the first error that
// the function visit returns.
func visitObjects(f io.ReadSeeker, visit func(document) error) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("reading the backup: %w", err)
	}
	in := bufio.NewReader(f)
	var text bytes.Buffer
	for number := 1; ; number++ {
		line, err := in.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) {
			text.Write(line)
			if text.Len() > documentLimit {
				break
			}
			line, err = in.ReadSlice('\n')
		}
		isEnd := errors.Is(err, io.EOF)
		if err != nil && !isEnd && !errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("reading the backup: %w", err)
		}
		isSeparator := string(bytes.TrimRight(line, " \r\n")) == "---"
		if !isSeparator {
			text.Write(line)
		}
		if text.Len() > documentLimit {
			return console.Fail(console.ExitFailed, "line %d: the object is larger than %d MiB", number,
				documentLimit>>20)
		}
		if !isSeparator && !isEnd {
			continue
		}
		d, err := decode(text.Bytes())
		if err != nil {
			return console.Fail(console.ExitFailed, "the object before line %d: %v", number, err)
		}
		text.Reset()
		if d.Unstructured != nil {
			if err := visit(d); err != nil {
				return err
			}
		}
		if isEnd {
			return nil
		}
	}
}

// decode decodes one document. If the document is empty, the result has no object.
func decode(text []byte) (document, error) {
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		return document{}, err
	}
	o := &unstructured.Unstructured{}
	if string(data) == "null" {
		return document{}, nil
	}
	if err := o.UnmarshalJSON(data); err != nil {
		return document{}, err
	}
	if !slices.Contains(kinds, o.GroupVersionKind()) {
		return document{}, fmt.Errorf("a backup of klm has no objects of kind %s", o.GroupVersionKind())
	}
	if o.GetName() == "" {
		return document{}, fmt.Errorf("an object of kind %s has no name", o.GetKind())
	}
	isDeleting := bytes.Contains(append([]byte("\n"), text...), []byte("\n"+deletingLine))
	return document{Unstructured: o, deleting: isDeleting}, nil
}

// checkLastLine returns an error unless the file ends with the last line that klm backup writes.
func checkLastLine(f *os.File) error {
	const tail = 200
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("reading the backup: %w", err)
	}
	end := make([]byte, min(tail, info.Size()))
	if _, err := f.ReadAt(end, info.Size()-int64(len(end))); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the backup: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(end)), "\n")
	if !strings.HasPrefix(lines[len(lines)-1], lastLine) {
		return console.Fail(console.ExitFailed, "%s is not a complete backup of klm: its last line, %q…, is missing: "+
			"use another backup", f.Name(), lastLine)
	}
	return nil
}
