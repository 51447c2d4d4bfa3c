package manifest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// release has the inputs and the state of one operation on one installation.
type release struct {
	InstallInfo
	name, namespace string
	flags           render.ClientConfig
	cluster         *apply.Cluster

	objects []*unstructured.Unstructured // render and addNamespaceIfOwned set this field
	leftOut []string                     // set by render
	set     apply.Set                    // set by encodeAndResolveRefs
	refs    []apply.Ref                  // the Refs of the objects in set; set by encodeAndResolveRefs
	custom  []apply.Ref                  // the Refs of CustomResources, in the same order; set by encodeAndResolveRefs
	done    apply.Progress
}

// newRelease validates the fields of an InstallInfo that every operation needs. newRelease sends no request.
func newRelease(info InstallInfo) (*release, error) {
	if info.Config == nil {
		return nil, invalidInfo("no cluster is given: set ClusterInfo.Config")
	}
	flags, err := render.ParseClientConfig(info.ConfigFlags)
	if err != nil {
		return nil, fmt.Errorf("reading ChartInfo.ConfigFlags: %w", err)
	}
	r := &release{InstallInfo: info, flags: flags, namespace: flags.Namespace}
	for _, name := range []string{info.ReleaseName, flags.ReleaseName, path.Base("/" + info.Name),
		strings.TrimSuffix(filepath.Base(info.Path), ".tgz")} {
		if name != "" && name != "/" {
			r.name = name
			break
		}
	}
	if r.namespace == "" {
		r.namespace = "default"
	}
	if problems := validation.IsDNS1123Subdomain(r.name); len(problems) > 0 || len(r.name) > 53 {
		return nil, invalidInfo(
			"%q cannot be the name of a release: set ChartInfo.ReleaseName to at most 53 lower case letters, digits "+
				"and hyphens", r.name)
	}
	if problems := validation.IsDNS1123Label(r.namespace); len(problems) > 0 {
		return nil, invalidInfo("%q cannot be a namespace: correct the flag Namespace", r.namespace)
	}
	r.cluster, err = apply.New(info.Config, nil, apply.ClusterOptions{KeepNamespaces: []string{}})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster of release %q: %w", r.name, err)
	}
	return r, nil
}

// render renders the objects of the installation and applies the transforms to them.
func (r *release) render(ctx context.Context, transforms []ObjectTransform) error {
	artefact, err := r.loadArtefact(ctx)
	if err != nil {
		return err
	}
	settings := r.flags.ApplyTo(render.Settings{})
	// The function addNamespaceIfOwned creates the namespace, so Render must not add it.
	settings.Release, settings.Namespace, settings.CreateNamespace = r.name, r.namespace, false
	if settings.Values, err = encodeValues(r.SetFlags); err != nil {
		return err
	}
	if settings.Capabilities, err = r.cluster.Capabilities(ctx, artefact.CapabilityQueries(settings)); err != nil {
		return r.wrapError("reading the capabilities of the cluster for the chart", err)
	}
	objects, leftOut, err := artefact.RenderObjects(ctx, settings)
	if err != nil {
		return r.wrapError("rendering the chart", err)
	}
	resources := &Resources{}
	for _, crd := range r.CRDs {
		resources.Items = append(resources.Items, crd.DeepCopy())
	}
	resources.Items = append(resources.Items, objects...)
	for _, transform := range transforms {
		if err := transform(ctx, r.BaseResource, resources); err != nil {
			return r.wrapError("transforming the objects", err)
		}
	}
	r.objects, r.leftOut = resources.Items, leftOut
	return nil
}

// addNamespaceIfOwned adds the namespace of the release to the objects that InstallOrUpgradeChart manages, if
// InstallOrUpgradeChart has created or creates the namespace. A namespace that existed before the installation is not
// added. The namespace contains the inventory, so the namespace must exist before the inventory is written.
// addNamespaceIfOwned creates a missing namespace if the parameter createInCluster is true and if either the flag
// CreateNamespace is set or the chart contains the namespace. If the chart contains the namespace, addNamespaceIfOwned
// adds the label of the release to it, so that UninstallChart recognises the namespace when the inventory in it is
// already deleted.
func (r *release) addNamespaceIfOwned(ctx context.Context, createInCluster bool) error {
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{
			"name": r.namespace, "labels": map[string]any{"name": r.namespace, labelRelease: r.name}}}}
	inChart := slices.IndexFunc(r.objects, func(o *unstructured.Unstructured) bool {
		return o.GetAPIVersion() == "v1" && o.GetKind() == "Namespace" && o.GetName() == r.namespace
	})
	ofChart := inChart >= 0
	if !ofChart && (!r.flags.CreateNamespace || r.namespace == "default") {
		return nil
	}
	existing, err := r.cluster.Get(ctx, r.namespaceRef())
	switch {
	case isApplyErrorWithReason(err, apply.ObjectNotFound):
		if createInCluster {
			empty := namespace.DeepCopy()
			empty.SetAnnotations(map[string]string{annotationNamespaceOnly: "true"})
			if _, err := r.cluster.Create(ctx, empty, FieldManager); err != nil &&
				!isApplyErrorWithReason(err, apply.ObjectExists) {
				return r.wrapError("creating the namespace", err)
			}
		}
	case err != nil:
		return r.wrapError("reading the namespace", err)
	case existing.GetLabels()[labelRelease] == r.name:
	case existing.GetLabels()[labelRelease] != "" || !ofChart:
		return nil
	}
	if !ofChart {
		r.objects = append([]*unstructured.Unstructured{namespace}, r.objects...)
		return nil
	}
	labels := r.objects[inChart].GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[labelRelease] = r.name
	r.objects[inChart].SetLabels(labels)
	return nil
}

// namespaceRef returns the Ref of the namespace of the release.
func (r *release) namespaceRef() apply.Ref {
	return apply.Ref{Version: "v1", Kind: "Namespace", Name: r.namespace}
}

// encodeAndResolveRefs encodes the objects and custom resources, and determines their Refs. The Refs depend on the
// cluster, because discovery shows which kinds are namespaced.
func (r *release) encodeAndResolveRefs(ctx context.Context) error {
	bundle, err := render.Build(r.objects, render.Options{})
	if err != nil {
		return r.wrapError("encoding the objects", err)
	}
	r.set = apply.Set{Bundle: bundle, Namespace: r.namespace, Owner: FieldManager}
	if r.refs, err = r.cluster.DesiredInventory(ctx, r.set); err != nil {
		return r.wrapError("resolving the objects", err)
	}
	if len(r.CustomResources) == 0 {
		return nil
	}
	if bundle, err = render.Build(r.CustomResources, render.Options{}); err != nil {
		return r.wrapError("encoding the custom resources", err)
	}
	if len(bundle.Objects) < len(r.CustomResources) {
		return invalidInfo("one of the CustomResources is repeated: remove it")
	}
	// The apply.Set that is made for the custom resources also contains the CRDs of the chart. The CRDs state the
	// resource names and scopes of the custom resources, even if the cluster does not serve their kinds yet.
	both := slices.Clone(r.CustomResources)
	for _, o := range r.objects {
		if o.GetKind() == "CustomResourceDefinition" {
			both = append(both, o)
		}
	}
	if bundle, err = render.Build(both, render.Options{}); err != nil {
		return r.wrapError("encoding the custom resources", err)
	}
	refs, err := r.cluster.DesiredInventory(ctx, apply.Set{Bundle: bundle, Namespace: r.namespace, Owner: FieldManager})
	if err != nil {
		return r.wrapError("resolving the custom resources", err)
	}
	r.custom = refs[:len(r.CustomResources)]
	return nil
}

// loadArtefact reads the chart from a local path or from its repository.
func (r *release) loadArtefact(ctx context.Context) (*render.Artefact, error) {
	if r.Path == "" {
		return r.downloadChart(ctx)
	}
	refuse := func(err error) error {
		return &Error{reason: ChartNotFound, doing: "reading the chart",
			problem: fmt.Sprintf("%q cannot be read: correct the path", r.Path), err: err}
	}
	info, err := os.Stat(r.Path)
	if err != nil {
		return nil, refuse(err)
	}
	if info.IsDir() {
		root, err := os.OpenRoot(r.Path)
		if err != nil {
			return nil, refuse(err)
		}
		defer func() { _ = root.Close() }()
		return render.LoadFolder(root.FS(), render.Limits{})
	}
	if info.Size() > defaultMaxBytes {
		return nil, &Error{reason: ChartTooLarge, doing: "reading the chart",
			problem: fmt.Sprintf("%q has more than %d bytes: make it smaller", r.Path, defaultMaxBytes)}
	}
	data, err := os.ReadFile(r.Path)
	if err != nil {
		return nil, refuse(err)
	}
	return render.Load(data, render.Limits{})
}

// downloadChart downloads the chart from its repository.
func (r *release) downloadChart(ctx context.Context) (*render.Artefact, error) {
	if r.Repository == nil {
		return nil, invalidInfo("no chart is given: set ChartInfo.Path, or Repository and Name")
	}
	version := r.Version
	if version == "" {
		version = r.flags.Version
	}
	if version == "" && r.flags.Devel {
		version = ">0.0.0-0"
	}
	found, err := r.Repository.Find(ctx, r.Name, version)
	if err != nil {
		return nil, err
	}
	data, err := r.Repository.Fetch(ctx, found)
	if err != nil {
		return nil, err
	}
	return render.Load(data, render.Limits{})
}

// encodeValues returns a YAML document with the values in the parameter byDottedKey. A key may contain dots, which
// separate nested keys.
func encodeValues(byDottedKey map[string]any) ([]byte, error) {
	if len(byDottedKey) == 0 {
		return nil, nil
	}
	values := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(byDottedKey)) {
		tree := byDottedKey[key]
		path := splitKey(strings.TrimPrefix(key, "."))
		for _, name := range slices.Backward(path) {
			if name == "" {
				return nil, invalidInfo("the key %q of SetFlags has an empty part: correct it", key)
			}
			tree = map[string]any{name: tree}
		}
		if duplicate := mergeValues(values, tree.(map[string]any)); duplicate != "" {
			return nil, invalidInfo("the key %q of SetFlags gives %q a second value: remove one", key, duplicate)
		}
	}
	document, err := json.Marshal(values)
	if err != nil {
		return nil, invalidInfo("SetFlags cannot be written as JSON: %v", err)
	}
	return bytes.ToValidUTF8(document, []byte(string(utf8.RuneError))), nil
}

// splitKey splits a key at its dots. A dot after a backslash does not split the key.
func splitKey(key string) []string {
	const dot = "\x00"
	parts := strings.Split(strings.ReplaceAll(key, `\.`, dot), ".")
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], dot, ".")
	}
	return parts
}

// mergeValues copies the values of the second map to the first map, also in nested maps. If both maps have a value with
// the same key, mergeValues returns that key, and otherwise "".
func mergeValues(into, from map[string]any) (duplicateKey string) {
	for key, value := range from {
		old, exists := into[key]
		oldMap, oldIsMap := old.(map[string]any)
		newMap, newIsMap := value.(map[string]any)
		switch {
		case !exists:
			into[key] = value
		case oldIsMap && newIsMap:
			merged := maps.Clone(oldMap) // the caller may own oldMap
			if duplicateKey = mergeValues(merged, newMap); duplicateKey != "" {
				return duplicateKey
			}
			into[key] = merged
		default:
			return key
		}
	}
	return ""
}
