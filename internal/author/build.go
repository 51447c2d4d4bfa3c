package author

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/check"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/internal/egress"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// Source is the input of Build.
type Source struct {
	// File is the path of the module-config. Paths in the module-config are relative to File.
	File string
	// Commit is the Git commit of the source code. If Commit is empty, the commit is used that is checked out in the
	// Git repository that contains File.
	Commit string
	// Root is a folder. If the manifest is a Kustomize directory, the directory may refer to files anywhere in Root,
	// and to no files outside it. If Root is empty, the directory may refer to files in the Git repository that
	// contains File, or in the folder of File if there is no repository.
	Root string
	// Home is the base URL of the registry to which the module is pushed first. The component descriptor gets Home as
	// its repository context. If Home is empty, the descriptor has no repository context until the first push adds it.
	Home string
}

// Module is one version of a module. A Module is either built from a config or loaded from a registry or an archive.
type Module struct {
	// Config is the module-config, or nil if the module was loaded from a registry or an archive.
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
	// Findings are the warnings and the information that the build has returned about the module, but no errors.
	Findings []content.Finding

	fromURL       bool
	manifestFile  string // file name of the manifest
	defaultCR     []byte // original text of the default custom resource
	defaultCRFile string
	source        *ocm.Source
	home          string
}

// Build builds the module that a config describes. If the config or its files have errors, the returned error is of
// type Problems and lists all these errors.
func Build(ctx context.Context, s Source) (*Module, error) {
	m, err := Inspect(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := problemsOf(m.Findings); err != nil {
		return nil, err
	}
	return m, nil
}

// Inspect reads the module that a config describes. The module is incomplete if its Findings contain an error: Inspect
// reads all parts that can be read, so that Lint reports as many errors as possible. The returned error is of type
// Problems.
func Inspect(ctx context.Context, s Source) (*Module, error) {
	c, findings, err := readConfig(s.File)
	if c == nil {
		return nil, err
	}
	m := &Module{Config: c, Name: c.Name, Version: c.Version, Findings: findings, home: s.Home}
	for _, read := range []func() error{
		func() error { return m.readManifest(ctx, s.Root) },
		func() error { return m.readDefaultCR(ctx) },
	} {
		if err := read(); err != nil {
			problems, _ := errors.AsType[Problems](err)
			m.Findings = append(m.Findings, problems...)
		}
	}
	images, more := content.ImagesOf(m.Objects)
	m.Images, m.Findings = images, append(m.Findings, more...)
	m.ClusterScoped = m.hasClusterScopedDefaultCR()
	m.setSourceCommit(s.Commit)
	m.Template, err = m.encodeTemplate()
	return m, err
}

// readConfig reads a module-config. The returned config is nil if the text of the file cannot be decoded. If the config
// has errors, the returned error is of type Problems. The returned findings contain both the errors and the warnings.
func readConfig(file string) (*Config, []content.Finding, error) {
	text, err := os.ReadFile(file) //nolint:gosec // the user has named it
	if err != nil {
		return nil, nil, Problems{content.NewFinding(content.Error, file,
			fmt.Sprintf("the module-config cannot be read: %s: klm module init writes one", textWithoutSyscall(err)))}
	}
	return ParseConfig(file, text)
}

// Archive returns the content of the component version of the module. Callers pass the returned archive to ocm.Pack.
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

// readDefaultCR reads the default custom resource if the config names one.
func (m *Module) readDefaultCR(ctx context.Context) error {
	c := m.Config
	if c.DefaultCR == "" || isOtherURL(c.DefaultCR) {
		return nil
	}
	problem := func(err error) error {
		return Problems{content.NewFinding(content.Error, c.Where("defaultCR"), "defaultCR: "+textWithoutSyscall(err))}
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

// isOtherURL reports whether a location is a URL that does not begin with https://. ParseConfig reports such locations,
// and they are never read.
func isOtherURL(location string) bool {
	u, err := url.Parse(location)
	return strings.Contains(location, "://") && (err != nil || u.Scheme != "https")
}

// readFileOrURL returns the content of a file or a URL. A config may come from another person, for example in a pull
// request, so requests to loopback and other special addresses are refused, and nothing is sent without TLS.
func readFileOrURL(ctx context.Context, c *Config, name string) ([]byte, error) {
	const timeout = 20 * time.Second
	if !strings.Contains(name, "://") {
		return os.ReadFile(c.resolvePath(name)) // the path is from the user's config
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, name, nil)
	if err != nil {
		return nil, err
	}
	transport := egress.New(egress.Options{Hint: "the module-config names this address: correct it there"})
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
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

// textWithoutSyscall returns the text of an error without the name of the failed system call.
func textWithoutSyscall(err error) string {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Path + ": " + p.Err.Error()
	}
	return err.Error()
}

func (m *Module) hasClusterScopedDefaultCR() bool {
	if m.DefaultCR == nil {
		return false
	}
	gvk := m.DefaultCR.GroupVersionKind()
	crd := check.CRDsByGroupKind(m.Objects)[gvk.Group+"/"+gvk.Kind]
	return crd != nil && crd.Spec.Scope == apiextensionsv1.ClusterScoped
}

// setSourceCommit stores in the module from which commit of the source code it is built.
func (m *Module) setSourceCommit(commit string) {
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

// headOf returns the commit to which HEAD of a Git directory points.
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
