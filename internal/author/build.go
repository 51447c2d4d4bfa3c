package author

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Source is the input of Build.
type Source struct {
	// File is the path of the module-config. Paths in the module-config are relative to File.
	File string
	// Commit is the Git commit of the source code. Empty means the checked-out commit of the Git repository that
	// contains File.
	Commit string
	// Home is the base URL of the repository context in the descriptor. Home is the registry to which the module is
	// pushed first. If Home is empty, the first push sets the repository context.
	Home string
}

// Module is one version of a module. Module is either built or loaded.
type Module struct {
	// Config is the module-config; nil if the module was loaded.
	Config *Config
	// Name is the name of the component. Version is the version of the module.
	Name, Version string
	// Manifest is the YAML text that installs the module. Objects are the objects in Manifest.
	Manifest []byte
	Objects  []*unstructured.Unstructured
	// DefaultCR is the default custom resource, or nil if the module has no default custom resource.
	DefaultCR *unstructured.Unstructured
	// ClusterScoped is true if the manifest contains the CRD of the default custom resource and the CRD is
	// cluster-scoped.
	ClusterScoped bool
	// Images are the images of all workloads, sorted.
	Images []string
	// Template is the ModuleTemplate as YAML.
	Template []byte
	// Findings are the findings of the build that are not errors.
	Findings []content.Finding

	fromURL       bool
	manifestFile  string // file name of the manifest
	defaultCR     []byte // original text of the default custom resource
	defaultCRFile string
	source        *ocm.Source
	home          string
}

// Build builds the module that a config describes. If the config or its files have errors, the returned error is a
// Problems that lists all of them.
func Build(ctx context.Context, s Source) (*Module, error) {
	text, err := os.ReadFile(s.File)
	if err != nil {
		return nil, Problems{content.NewFinding(content.Error, s.File,
			fmt.Sprintf("the module-config cannot be read: %s: klm module init writes one", causeOf(err)))}
	}
	c, findings, err := ParseConfig(s.File, text)
	if err != nil {
		return nil, err
	}
	m := &Module{Config: c, Name: c.Name, Version: c.Version, Findings: findings, home: s.Home}
	if err := m.readManifest(ctx); err != nil {
		return nil, err
	}
	if err := m.readDefaultCR(ctx); err != nil {
		return nil, err
	}
	images, more := content.ImagesOf(m.Objects)
	m.Images, m.Findings = images, append(m.Findings, more...)
	if err := problemsOf(m.Findings); err != nil {
		return nil, err
	}
	m.ClusterScoped = m.isClusterScoped()
	m.findSource(s.Commit)
	m.Template, err = m.template()
	return m, err
}

// Archive returns the content of the component version, which is the input of ocm.Pack.
func (m *Module) Archive() ocm.Archive {
	c := m.Config
	labels := []ocm.Label{
		{
			Name:  v1beta2.LabelBeta,
			Value: strconv.FormatBool(c.Beta)}, {Name: v1beta2.LabelInternal,
			Value: strconv.FormatBool(c.Internal),
		},
		{Name: "operator.kyma-project.io/requiresDowntime", Value: strconv.FormatBool(c.RequiresDowntime)},
		{Name: v1beta2.AnnotationIsClusterScoped, Value: strconv.FormatBool(m.ClusterScoped)},
	}
	if c.Scan {
		labels = append(labels, ocm.Label{Name: "security.kyma-project.io/scan", Value: "enabled"},
			ocm.Label{Name: "cloud.gardener.cnudie/responsibles", Value: []any{
				map[string]any{"github_hostname": "github.tools.sap", "teamname": c.Team, "type": "githubTeam"}}})
	}
	return ocm.Archive{
		Name: m.Name, Version: m.Version, Provider: "kyma-project.io", Labels: labels, Images: m.Images, Tar: true,
		RawManifest: m.Manifest, ManifestFile: m.manifestFile, DefaultCR: m.defaultCR, DefaultCRFile: m.defaultCRFile,
		Template: m.Template, Source: m.source, RepositoryContext: m.home,
	}
}

// readManifest reads the manifest. If the manifest is a chart or a Kustomize directory, readManifest renders it.
func (m *Module) readManifest(ctx context.Context) error {
	c := m.Config
	problem := func(err error) error {
		return Problems{content.NewFinding(content.Error, c.Where("manifest"), "manifest: "+causeOf(err))}
	}
	m.fromURL = strings.Contains(c.Manifest, "://")
	m.manifestFile = filepath.Base(c.Manifest)
	info, err := os.Stat(c.path(c.Manifest))
	if m.fromURL || err == nil && !info.IsDir() {
		if m.Manifest, err = readFileOrURL(ctx, c, c.Manifest); err != nil {
			return problem(err)
		}
		m.Objects, err = render.Parse(m.Manifest)
	} else if err == nil {
		m.Objects, m.Manifest, err = m.render(ctx)
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

// render returns the objects of a chart or a Kustomize directory, and one YAML file with these objects.
func (m *Module) render(ctx context.Context) ([]*unstructured.Unstructured, []byte, error) {
	c := m.Config
	folder, err := os.OpenRoot(c.path(c.Manifest))
	if err != nil {
		return nil, nil, err
	}
	defer folder.Close() //nolint:errcheck // opened for reading only
	a, err := render.LoadFolder(folder.FS(), render.Limits{})
	if err != nil {
		return nil, nil, err
	}
	settings := render.Settings{}
	if a.Kind() == render.Chart {
		if settings, err = c.chartSettings(); err != nil {
			return nil, nil, err
		}
	}
	objects, leftOut, err := a.RenderObjects(ctx, settings)
	if err != nil {
		return nil, nil, err
	}
	for _, l := range leftOut {
		m.Findings = append(m.Findings, content.NewFinding(content.Warning, c.Where("manifest"), l))
	}
	if asks := a.CapabilityQueries(settings); len(asks) > 0 {
		m.Findings = append(m.Findings, content.NewFinding(content.Warning, c.Where("manifest"),
			fmt.Sprintf("the chart reads facts about the cluster (%s), which are not known yet: it is rendered for "+
				"Kubernetes %s", strings.Join(asks, ", "), render.DefaultKubeVersion)))
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

// chartSettings returns the chart settings of the config. The settings include the content of the values file.
func (c *Config) chartSettings() (s render.Settings, err error) {
	s.Release, s.Namespace = cmp.Or(c.Chart.Release, c.ShortName()), cmp.Or(c.Chart.Namespace, v1beta2.RuntimeNamespace)
	if c.Chart.Values != "" {
		if s.Values, err = os.ReadFile(c.path(c.Chart.Values)); err != nil {
			return s, fmt.Errorf("reading the values of the chart: %w", err)
		}
	}
	return s, nil
}

// readDefaultCR reads the default custom resource if the config has one.
func (m *Module) readDefaultCR(ctx context.Context) error {
	c := m.Config
	if c.DefaultCR == "" {
		return nil
	}
	problem := func(err error) error {
		return Problems{content.NewFinding(content.Error, c.Where("defaultCR"), "defaultCR: "+causeOf(err))}
	}
	text, err := readFileOrURL(ctx, c, c.DefaultCR)
	if err != nil {
		return problem(err)
	}
	objects, err := render.Parse(text)
	if err == nil && len(objects) != 1 {
		err = fmt.Errorf("it holds %d objects, and has to hold one: the custom resource that switches the module on",
			len(objects))
	}
	if err != nil {
		return problem(err)
	}
	m.defaultCR, m.defaultCRFile, m.DefaultCR = text, filepath.Base(c.DefaultCR), objects[0]
	return nil
}

// readFileOrURL returns the content of a file or a URL.
func readFileOrURL(ctx context.Context, c *Config, name string) ([]byte, error) {
	const timeout = 20 * time.Second
	if !strings.Contains(name, "://") {
		return os.ReadFile(c.path(name)) // the path is from the user's config
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, name, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", name, response.Status)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, render.DefaultMaxBytes+1))
	if err == nil && len(data) > render.DefaultMaxBytes {
		err = fmt.Errorf("it is larger than %d bytes", render.DefaultMaxBytes)
	}
	return data, err
}

// causeOf returns the text of an error without the name of the failed system call.
func causeOf(err error) string {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Path + ": " + p.Err.Error()
	}
	return err.Error()
}

// crdsOf returns the CRDs in a list of objects. The key of a CRD consists of its group and kind.
func crdsOf(objects []*unstructured.Unstructured) map[string]*apiextensionsv1.CustomResourceDefinition {
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

func (m *Module) isClusterScoped() bool {
	if m.DefaultCR == nil {
		return false
	}
	gvk := m.DefaultCR.GroupVersionKind()
	crd := crdsOf(m.Objects)[gvk.Group+"/"+gvk.Kind]
	return crd != nil && crd.Spec.Scope == apiextensionsv1.ClusterScoped
}

// findSource sets the commit of the source code in the module.
func (m *Module) findSource(commit string) {
	if commit == "" {
		found, err := commitOf(filepath.Dir(m.Config.file))
		if err != nil {
			m.Findings = append(m.Findings, content.NewFinding(content.Warning, m.Config.file,
				"the module will not say from which commit it is built: "+err.Error()+
					"; build it in its Git repository, or give --commit"))
			return
		}
		commit = found
	}
	m.source = &ocm.Source{Repository: m.Config.Repository, Commit: commit}
}

// commitOf returns the checked-out commit of the Git repository that contains a folder.
func commitOf(folder string) (string, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return "", fmt.Errorf("finding the folder: %w", err)
	}
	for at := folder; ; at = filepath.Dir(at) {
		git := filepath.Join(at, ".git")
		info, err := os.Stat(git)
		if err != nil {
			if at == filepath.Dir(at) {
				return "", fmt.Errorf("%s is not in a Git repository", folder)
			}
			continue
		}
		if !info.IsDir() { // the folder is a Git worktree
			data, err := os.ReadFile(git) //nolint:gosec // beside the user's config
			if err != nil {
				return "", fmt.Errorf("reading %s: %w", git, err)
			}
			git = strings.TrimSpace(strings.TrimPrefix(string(data), "gitdir:"))
			if !filepath.IsAbs(git) {
				git = filepath.Join(at, git)
			}
		}
		return headOf(git)
	}
}

// headOf returns the commit of HEAD in a Git directory.
func headOf(git string) (string, error) {
	head, err := os.ReadFile(filepath.Join(git, "HEAD")) //nolint:gosec // beside the user's config
	if err != nil {
		return "", fmt.Errorf("%s is not a Git repository", git)
	}
	ref, symbolic := strings.CutPrefix(strings.TrimSpace(string(head)), "ref: ")
	if !symbolic {
		return ref, nil
	}
	homes := []string{git}
	if common, err := os.ReadFile(filepath.Join(git, "commondir")); err == nil { //nolint:gosec // as above
		homes = append(homes, filepath.Join(git, strings.TrimSpace(string(common))))
	}
	for _, home := range homes {
		//nolint:gosec // as above
		if data, err := os.ReadFile(filepath.Join(home, filepath.FromSlash(ref))); err == nil {
			return strings.TrimSpace(string(data)), nil
		}
		packed, _ := os.ReadFile(filepath.Join(home, "packed-refs")) //nolint:gosec // as above
		for line := range strings.Lines(string(packed)) {
			if commit, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == ref {
				return commit, nil
			}
		}
	}
	return "", fmt.Errorf("%s has no commit yet", filepath.Dir(git))
}
