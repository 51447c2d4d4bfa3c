package author

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/check"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// readManifest reads the manifest that the config names. If the manifest is a chart or a Kustomize directory,
// readManifest renders the chart or the directory. A Kustomize directory may refer to other folders in the directory
// "root".
func (m *Module) readManifest(ctx context.Context, root string) error {
	c := m.Config
	problem := func(err error) error {
		return Problems{content.NewFinding(content.Error, c.Where("manifest"), "manifest: "+textWithoutSyscall(err))}
	}
	if c.Manifest == "" || isOtherURL(c.Manifest) {
		return nil // ParseConfig has reported it
	}
	m.fromURL = strings.Contains(c.Manifest, "://")
	m.manifestFile = filepath.Base(c.Manifest)
	info, err := os.Stat(c.resolvePath(c.Manifest))
	if m.fromURL || err == nil && !info.IsDir() {
		if m.Manifest, err = readFileOrURL(ctx, c, c.Manifest); err != nil {
			return problem(err)
		}
		m.Objects, err = render.Parse(m.Manifest)
	} else if err == nil {
		m.Objects, m.Manifest, err = m.render(ctx, root)
		m.manifestFile = c.ShortName() + ".yaml"
	}
	if err != nil {
		return problem(err)
	}
	if len(m.Objects) == 0 {
		return problem(errors.New("it contains no object: a module without objects installs nothing"))
	}
	return nil
}

// ChartTemplateOutputs returns the output of each template of the module's chart, by path of the template, before the
// output is decoded. If the manifest is not a chart, the result is empty.
func ChartTemplateOutputs(ctx context.Context, s Source) (textByPath map[string]string, _ error) {
	c, _, err := readConfig(s.File)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(c.resolvePath(c.Manifest)); err != nil || !info.IsDir() {
		return nil, nil //nolint:nilerr // a manifest that does not exist is not a chart
	}
	a, settings, err := c.loadArtefact(s.Root)
	if err != nil {
		return nil, err
	}
	return a.TemplateOutputs(ctx, settings)
}

// render returns the objects of a chart or a Kustomize directory, and one YAML file with these objects.
func (m *Module) render(ctx context.Context, root string) ([]*unstructured.Unstructured, []byte, error) {
	c := m.Config
	a, settings, err := c.loadArtefact(root)
	if err != nil {
		return nil, nil, err
	}
	objects, leftOut, err := a.RenderObjects(ctx, settings)
	if err != nil {
		return nil, nil, withRenderCommandHint(a, err)
	}
	if a.Kind() == render.Chart {
		setMissingNamespaces(objects, settings.Namespace)
	}
	for _, l := range leftOut {
		m.Findings = append(m.Findings, content.NewFinding(content.Warning, c.Where("manifest"), l))
	}
	if asks := a.CapabilityQueries(settings); len(asks) > 0 {
		m.Findings = append(m.Findings, content.NewFinding(content.Warning, c.Where("manifest"),
			fmt.Sprintf("the chart depends on properties of the cluster (%s), which are not known when the module is "+
				"built: it is rendered once, for Kubernetes %s and its built-in API versions", strings.Join(asks, ", "),
				render.DefaultKubeVersion)))
	}
	var text bytes.Buffer
	for _, o := range objects {
		data, err := yamlOf(o)
		if err != nil {
			return nil, nil, err
		}
		text.WriteString("---\n")
		text.Write(data)
	}
	return objects, text.Bytes(), nil
}

// withRenderCommandHint adds, to an error about the output of a chart template, the klm command that prints this
// output.
func withRenderCommandHint(a *render.Artefact, err error) error {
	e, ok := errors.AsType[*render.Error](err)
	if !ok || a.Kind() != render.Chart || e.Document == 0 ||
		e.Code != render.InvalidYAML && e.Code != render.InvalidObject {
		return err
	}
	return fmt.Errorf("%w: klm module render --template %s prints that output", err, e.File)
}

// loadArtefact loads the chart, the Kustomize directory or the folder of manifests that the config names as its
// manifest. For a chart, loadArtefact also returns the settings with which the chart is rendered.
func (c *Config) loadArtefact(root string) (artefact *render.Artefact, chartSettings render.Settings, _ error) {
	var settings render.Settings
	root, folder, err := c.resolveRoot(root)
	if err != nil {
		return nil, settings, err
	}
	reachable, err := os.OpenRoot(root)
	if err != nil {
		return nil, settings, err
	}
	defer reachable.Close() //nolint:errcheck // opened for reading only
	a, err := render.LoadFolderIn(reachable.FS(), folder, render.Limits{})
	if err == nil && a.Kind() == render.Chart {
		settings, err = c.chartSettings()
	}
	return a, settings, err
}

// resolveRoot returns two paths for a module whose manifest is a Kustomize directory. The first path is the root: the
// absolute path of the folder that contains all files to which the directory may refer. The second path is the
// directory's path in the root. The root is the folder in the parameter "givenRoot" or, if that parameter is empty, the
// Git repository that contains the config, or else the folder of the config. If the Kustomize directory is not inside
// this folder, the directory itself is the root.
func (c *Config) resolveRoot(givenRoot string) (root, manifestInRoot string, err error) {
	manifest, err := filepath.Abs(c.resolvePath(c.Manifest))
	if err == nil {
		root, err = filepath.Abs(cmp.Or(givenRoot, filepath.Dir(c.file)))
	}
	if err != nil {
		return "", "", fmt.Errorf("finding the folder: %w", err)
	}
	if givenRoot == "" {
		for at := root; at != filepath.Dir(at); at = filepath.Dir(at) {
			if _, err := os.Stat(filepath.Join(at, ".git")); err == nil {
				root = at
				break
			}
		}
	}
	manifestInRoot, err = filepath.Rel(root, manifest)
	switch {
	case err == nil && filepath.IsLocal(manifestInRoot):
		return root, filepath.ToSlash(manifestInRoot), nil
	case givenRoot != "":
		return "", "", fmt.Errorf("it is not in the folder %s of --root: name a folder that contains it", givenRoot)
	}
	return manifest, ".", nil
}

// chartSettings returns the chart settings of the config. The settings include the content of the values file.
func (c *Config) chartSettings() (s render.Settings, err error) {
	s.Release, s.Namespace = cmp.Or(c.Chart.Release, c.ShortName()), cmp.Or(c.Chart.Namespace, v1beta2.RuntimeNamespace)
	s.CreateNamespace = c.Chart.CreateNamespace && s.Namespace != v1beta2.RuntimeNamespace
	s.DisableHooks = c.Chart.DisableHooks
	if c.Chart.Values != "" {
		if s.Values, err = os.ReadFile(c.resolvePath(c.Chart.Values)); err != nil {
			return s, fmt.Errorf("reading the values of the chart: %w", err)
		}
	}
	return s, nil
}

// setMissingNamespaces sets the namespace of the release in all objects without a namespace, except objects of
// cluster-scoped kinds, as Helm does when it installs a chart. If the scope of a kind is not known, the kind counts as
// namespaced. If a kind that counts as namespaced is cluster-scoped in the cluster, the manager later removes
// metadata.namespace from its objects.
func setMissingNamespaces(objects []*unstructured.Unstructured, namespace string) {
	crds := check.CRDsByGroupKind(objects)
	for _, o := range objects {
		kind := o.GroupVersionKind().GroupKind()
		namespaced, known := apply.BuiltinScope(kind)
		if crd := crds[kind.Group+"/"+kind.Kind]; crd != nil && !known {
			namespaced, known = crd.Spec.Scope == apiextensionsv1.NamespaceScoped, true
		}
		if o.GetNamespace() == "" && (namespaced || !known) {
			o.SetNamespace(namespace)
		}
	}
}
