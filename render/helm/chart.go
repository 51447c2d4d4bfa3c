// Package helm renders Helm charts. Other packages shall use package render, which has an alias for each type of
// package helm that they need.
//
// # How it works
//
// The package uses Helm's code for loading charts, merging values and executing templates. The result is that of "helm
// template": there is no release and no cluster. The left column of the table below lists features of Helm, and the
// right column states how the package handles them.
//
//	values.yaml, values.schema.json     supported; a schema that refers to another file or server is refused
//	subcharts, conditions, tags, alias  supported, packaged or not; a dependency that is not in the chart is an error
//	library charts                      supported as subcharts; a library chart alone is refused: it has no objects to install
//	crds/                               ordinary objects, first in the bundle; therefore CRDs are upgraded and removed, too
//	kubeVersion of Chart.yaml           checked; the error has reason KubernetesTooOld
//	.Capabilities                       set by the caller; a template can read only the properties that CapabilityQueries
//	                                    returns, so that clusters that differ only in other properties share a bundle
//	.Release                            IsInstall is always true, IsUpgrade false and Revision 1, because one result is used for
//	                                    the first installation and for all upgrades
//	NOTES.txt                           not rendered
//	hooks for install and upgrade       ordinary objects; a Job or Pod is refused, because it would have to run exactly once
//	hooks for test, delete, rollback    omitted and reported: these events do not occur, because objects are applied
//	                                    continuously, and deleted by means of an inventory
//	DisableHooks                        omits all hooks and reports them
//	lookup                              returns nothing, as in "helm template", and is reported: the result of one cluster
//	                                    would be wrong for the other clusters
//	now, rand…, uuidv4, gen…Cert, …     refused if a rendered object depends on the result: each rendering would differ,
//	                                    and all clusters would receive the same secret; the result can be passed as a
//	                                    value. Omitted hooks and results that a given value replaces do not matter
//	getHostByName                       refused: rendering does not use the network
//	keys, values                        sorted by key
//	documents of a template's output    split as in Helm: a line that begins with --- begins a document, whatever follows
//	order of objects                    crds/ first, then by kind as in Helm (InstallOrder), then by path of the template
//	helm.sh/resource-policy: keep       translated to the annotation that makes package apply keep the object
//
// If the package refuses a feature, it returns an Error with reason RefusedFeature that contains the template and an
// alternative. The package also refuses repeated keys in a map of a template's output, although Helm accepts repeated
// keys.
//
// # What it does not do
//
// The package does not find or unpack charts. The input of the package is the files of one chart, with unpacked
// subcharts. The package returns decoded objects; package render encodes them as JSON.
package helm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v4/pkg/chart/common"
	buffered "helm.sh/helm/v4/pkg/chart/loader/archive"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"

	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/render/input"
)

// operationChart is the first part of the text of every error about a chart.
const operationChart = "rendering the chart"

// maxMetadataValues is the maximum number of values in Chart.yaml.
const maxMetadataValues = 20_000

// maxMetadataAliasedBytes is the maximum number of bytes that the YAML aliases in Chart.yaml repeat.
const maxMetadataAliasedBytes = 1 << 20

// CapabilityQueries returns the properties of the cluster that the chart reads, sorted. A query is "kubeVersion",
// "kubeVersion in <range>", "apiVersion <group/version[/Kind]>", or "apiVersions" for all API versions. A range has the
// syntax of kubeVersion in Chart.yaml, such as ">=1.27". CapabilityQueries finds the uses of .Capabilities in the files
// of the chart. Values in Settings can contain template code, so CapabilityQueries searches the Settings, too. The
// queries include every property of the cluster that a template can read. CapabilityQueries may also return properties
// that no template reads. Render hides all other properties of the cluster from the templates.
func CapabilityQueries(files []input.File, settings Settings) []string {
	var queries []string
	for _, f := range files {
		if path.Ext(f.Path) != ".md" && path.Base(f.Path) != notesFile {
			queries = appendCapabilityQueries(queries, f.Data)
		}
		if f.Path == "Chart.yaml" {
			var metadata struct{ KubeVersion string }
			if input.CheckValueCount(f.Data, maxMetadataValues) == nil &&
				input.CheckAliases(f.Data, maxMetadataAliasedBytes) == nil &&
				yaml.Unmarshal(f.Data, &metadata) == nil && metadata.KubeVersion != "" {
				queries = append(queries, queryRange+metadata.KubeVersion)
			}
		}
	}
	queries = appendCapabilityQueries(queries, settings.Values)
	for _, expression := range settings.Set {
		queries = appendCapabilityQueries(queries, []byte(expression))
	}
	slices.Sort(queries)
	return slices.Compact(queries)
}

// inRange reports whether a Kubernetes version is in a range of versions. As in Helm, a suffix such as "-gke.100" in
// the Kubernetes version is ignored.
func (c Capabilities) inRange(constraint string) bool {
	version, err := common.ParseKubeVersion(c.version())
	return err == nil && chartutil.IsCompatibleRange(constraint, version.String())
}

// visible returns the capabilities that the templates of a chart can read. Of the API versions of the cluster, visible
// returns only those that the parameter queries asks for.
func (c Capabilities) visible(queries []string) (*common.Capabilities, error) {
	version := DefaultKubeVersion
	apis := common.VersionSet{}
	for _, q := range queries {
		api, ok := strings.CutPrefix(q, queryAPI)
		switch {
		case q == queryVersion:
			version = c.version()
		case q == queryAPIs:
			apis = c.apisOrDefault()
		case ok && slices.Contains(c.apisOrDefault(), api) && !slices.Contains(queries, queryAPIs):
			apis = append(apis, api)
		}
	}
	parsed, err := common.ParseKubeVersion(version)
	if err != nil {
		return nil, &input.Error{Operation: operationChart, Code: input.InvalidValues,
			Problem: fmt.Sprintf("%q is not a version of Kubernetes", version), Cause: err}
	}
	return &common.Capabilities{KubeVersion: *parsed, APIVersions: apis,
		HelmVersion: common.DefaultCapabilities.HelmVersion}, nil
}

// Render renders a chart to objects. The second result lists the content that is left out, one sentence for each item.
// A chart that calls random template functions is rendered twice, with different results of the random template
// functions. If the objects of the first rendering differ from those of the second one, Render returns an error,
// because the objects depend on random values.
func Render(ctx context.Context, files []input.File, settings Settings) (
	[]*unstructured.Unstructured, []string, error) {
	first, err := renderWithDraw(ctx, files, settings, firstDraw)
	if err != nil {
		return nil, nil, err
	}
	if len(first.drawn) > 0 {
		second, err := renderWithDraw(ctx, files, settings, secondDraw)
		if err == nil {
			err = first.compare(second)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	objects := make([]*unstructured.Unstructured, 0, len(first.objects))
	for _, o := range first.objects {
		objects = append(objects, o.Unstructured)
	}
	return settings.PrependNamespaceObject(objects), first.leftOut, nil
}

// renderedObject is a rendered object and the path of the template or file that contains it.
type renderedObject struct {
	*unstructured.Unstructured
	file string
}

// rendering is the result of rendering a chart with one draw, which is a fixed set of results for the random template
// functions.
type rendering struct {
	objects []renderedObject
	leftOut []string
	drawn   []string // names of the called functions whose result differs each time
}

// renderWithDraw renders a chart with one of two sets of fixed random values. The parameter d selects the set.
// Functions such as randAlphaNum return values from the selected set, in place of random values.
func renderWithDraw(ctx context.Context, files []input.File, settings Settings, d draw) (*rendering, error) {
	chart, texts, f, err := runTemplates(ctx, files, settings, d)
	if err != nil {
		return nil, err
	}
	r := &rendering{drawn: f.drawn}
	if !settings.SkipCRDs {
		if r.objects, err = crdObjects(chart); err != nil {
			return nil, err
		}
	}
	rendered, leftOut, err := collectRendered(texts, settings.DisableHooks)
	if err != nil {
		return nil, err
	}
	r.objects = append(r.objects, rendered...)
	r.leftOut = append(leftOut, f.lookups...)
	return r, nil
}

// TemplateOutputs returns the output of each template of a chart, by path of the template, before the output is
// decoded. Line numbers in errors about the output of a template refer to the text that TemplateOutputs returns for
// this template.
func TemplateOutputs(ctx context.Context, files []input.File, settings Settings) (map[string]string, error) {
	_, texts, _, err := runTemplates(ctx, files, settings, firstDraw)
	if err == nil {
		size := int64(0)
		for _, text := range texts {
			size += int64(len(text))
		}
		err = input.CheckSize(size, input.DefaultMaxBytes)
	}
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(texts, func(name, text string) bool { return strings.TrimSpace(text) == "" })
	return texts, nil
}

// runTemplates runs the templates of a chart. runTemplates returns the output of each template, by the path of the
// template.
func runTemplates(ctx context.Context, files []input.File, settings Settings, d draw) (
	*helmchart.Chart, map[string]string, *functions, error) {
	chart, err := loadChart(files)
	if err != nil {
		return nil, nil, nil, err
	}
	if supported := chart.Metadata.KubeVersion; supported != "" && !settings.Capabilities.inRange(supported) {
		return nil, nil, nil, &input.Error{Operation: operationChart, Code: input.KubernetesTooOld,
			Problem: fmt.Sprintf(
				"chart %s %s supports Kubernetes %s, but the cluster has %s: upgrade the cluster or use another "+
					"version of the chart",
				chart.Name(), chart.Metadata.Version, supported, settings.Capabilities.version())}
	}
	values, err := prepareTemplateData(files, chart, settings)
	if err != nil {
		return nil, nil, nil, err
	}
	dropNotesAndMakeInterruptible(chart)
	f := &functions{ctx: ctx, draw: d}
	texts, err := input.RunRecoveringPanic(ctx, operationChart, func() (map[string]string, error) {
		return engine.Engine{CustomTemplateFuncs: f.templateFunctions()}.RenderWithContext(ctx, chart, values)
	})
	if err != nil {
		return nil, nil, nil, f.templateError(err)
	}
	return chart, texts, f, nil
}

// loadChart converts the files of a chart to a Chart of the Helm library. Each rendering needs a new Chart, because
// Helm modifies the Chart when it processes values and conditions.
func loadChart(files []input.File) (*helmchart.Chart, error) {
	bufferedFiles := make([]*buffered.BufferedFile, 0, len(files))
	for _, f := range files {
		limit := input.MaxDocumentValues
		if path.Base(f.Path) == "Chart.yaml" {
			limit = maxMetadataValues
		}
		if folder, _, _ := strings.Cut(f.Path, "/"); folder != "templates" && input.IsManifest(f.Path) {
			err := input.CheckValueCount(f.Data, limit)
			if err == nil && f.Path == "Chart.yaml" {
				err = input.CheckAliases(f.Data, maxMetadataAliasedBytes)
			}
			if err != nil {
				return nil, withTemplate(f.Path, "", err)
			}
		}
		bufferedFiles = append(bufferedFiles, &buffered.BufferedFile{Name: f.Path,
			Data: bytes.TrimPrefix(f.Data, []byte("\ufeff"))})
	}
	chart, err := loader.LoadFiles(bufferedFiles)
	if err != nil {
		return nil, &input.Error{Operation: operationChart, Code: input.InvalidChart,
			Problem: "it is not a valid chart: correct it and package it again", Cause: err}
	}
	if chart.Metadata.Type == "library" {
		return nil, &input.Error{Operation: operationChart, Code: input.InvalidChart, Problem: fmt.Sprintf(
			"chart %s is a library, which holds nothing to install: install a chart that uses it", chart.Name())}
	}
	return chart, checkAndSortDependencies(chart)
}

// checkAndSortDependencies returns an error for a missing or repeated dependency. checkAndSortDependencies also sorts
// the subcharts, because the loader returns them in random order.
func checkAndSortDependencies(chart *helmchart.Chart) error {
	subcharts := slices.Clone(chart.Dependencies())
	id := func(c *helmchart.Chart) string { return c.Name() + " " + c.Metadata.Version }
	slices.SortFunc(subcharts, func(a, b *helmchart.Chart) int { return strings.Compare(id(a), id(b)) })
	for i := 1; i < len(subcharts); i++ {
		if id(subcharts[i]) == id(subcharts[i-1]) {
			return &input.Error{Operation: operationChart, Code: input.InvalidChart,
				Problem: fmt.Sprintf("chart %s has subchart %s twice: remove one", chart.Name(), id(subcharts[i]))}
		}
	}
	chart.SetDependencies(subcharts...)
	for _, wanted := range chart.Metadata.Dependencies {
		if wanted != nil && !slices.ContainsFunc(subcharts,
			func(c *helmchart.Chart) bool { return c.Name() == wanted.Name }) {
			return &input.Error{Operation: operationChart, Code: input.InvalidChart, Problem: fmt.Sprintf(
				"chart %s needs chart %s %s, which is not in its folder charts: run helm dependency build and "+
					"package it again", chart.Name(), wanted.Name, wanted.Version)}
		}
	}
	for _, subchart := range subcharts {
		if err := checkAndSortDependencies(subchart); err != nil {
			return err
		}
	}
	return nil
}

// prepareTemplateData returns the data that templates can read: values, release and capabilities.
func prepareTemplateData(files []input.File, chart *helmchart.Chart, settings Settings) (common.Values, error) {
	release := common.ReleaseOptions{Name: settings.Release, Namespace: settings.Namespace,
		Revision: 1, IsInstall: true}
	if release.Name == "" {
		release.Name = chart.Name()
	}
	if release.Namespace == "" {
		release.Namespace = "default"
	}
	if err := chartutil.ValidateReleaseName(release.Name); err != nil {
		return nil, &input.Error{Operation: operationChart, Code: input.InvalidValues,
			Problem: fmt.Sprintf("%q cannot be the name of a release", release.Name), Cause: err}
	}
	values, err := settings.Overrides()
	if err != nil {
		return nil, err
	}
	capabilities, err := settings.Capabilities.visible(CapabilityQueries(files, settings))
	if err != nil {
		return nil, err
	}
	if err := chartutil.ProcessDependencies(chart, values); err != nil {
		return nil, &input.Error{Operation: operationChart, Code: input.InvalidChart,
			Problem: "its dependencies cannot be resolved: correct them", Cause: err}
	}
	out, err := commonutil.ToRenderValuesWithSchemaValidation(chart, values, release, capabilities, true)
	if err != nil {
		return nil, &input.Error{Operation: operationChart, Code: input.InvalidValues,
			Problem: "the values do not fit the chart: correct them", Cause: err}
	}
	all, _ := out["Values"].(common.Values)
	return out, validateValues(chart, all)
}

// validateValues checks the values against the schemas of the chart and its subcharts. Helm's own validation is not
// used, because it would load the references of a schema from any server and from the local disk.
func validateValues(chart *helmchart.Chart, values map[string]any) error {
	if err := validateOwnValues(chart, values); err != nil {
		return err
	}
	for _, subchart := range chart.Dependencies() {
		if own, ok := asMap(values[subchart.Name()]); ok {
			if err := validateValues(subchart, own); err != nil {
				return err
			}
		}
	}
	return nil
}

func validateOwnValues(chart *helmchart.Chart, values map[string]any) error {
	if chart.Schema == nil {
		return nil
	}
	refuse := func(reason, problem string, err error) error {
		return &input.Error{Operation: operationChart, Code: reason,
			File: chart.ChartFullPath() + "/values.schema.json", Problem: problem, Cause: err}
	}
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(chart.Schema))
	if err != nil {
		return refuse(input.InvalidChart, "it is not JSON: correct it", err)
	}
	const location = "chart:///values.schema.json"
	var nothing refusingLoader
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(&nothing)
	var compiled *jsonschema.Schema
	if err = compiler.AddResource(location, schema); err == nil {
		compiled, err = compiler.Compile(location)
	}
	switch {
	case nothing.refused != "":
		return refuse(input.RefusedFeature, fmt.Sprintf(
			"the schema refers to %q, and nothing is fetched while rendering: put it into the file", nothing.refused),
			nil)
	case err != nil:
		return refuse(input.InvalidChart, "it is not a valid schema: correct it", err)
	}
	plain, err := plainJSON(values)
	if err == nil {
		err = compiled.Validate(plain)
	}
	if err != nil {
		text := strings.TrimPrefix(err.Error(), "jsonschema validation failed with '"+location+"#'\n")
		return &input.Error{Operation: operationChart, Code: input.InvalidValues,
			Problem: fmt.Sprintf("the values of chart %s do not fit its schema, correct them: %s", chart.Name(), text)}
	}
	return nil
}

// plainJSON converts values to the types that a JSON decoder returns, because the schema validation needs these types.
func plainJSON(values map[string]any) (any, error) {
	data, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(data))
}

func asMap(value any) (map[string]any, bool) {
	switch value := value.(type) {
	case map[string]any:
		return value, true
	case common.Values:
		return value, true
	}
	return nil, false
}

// refusingLoader is a loader that refuses to load the references of a schema, and records the last refused reference.
type refusingLoader struct{ refused string }

// Load always returns an error.
func (l *refusingLoader) Load(url string) (any, error) {
	l.refused = url
	return nil, errors.New("nothing is fetched")
}

// notesFile is the name of the template whose output Helm shows to its user.
const notesFile = "NOTES.txt"

// dropNotesAndMakeInterruptible removes NOTES.txt, and changes all other templates so that their execution can be
// cancelled.
func dropNotesAndMakeInterruptible(chart *helmchart.Chart) {
	chart.Templates = slices.DeleteFunc(chart.Templates,
		func(f *common.File) bool { return path.Base(f.Name) == notesFile })
	for _, f := range chart.Templates {
		f.Data = []byte(interruptible(string(f.Data)))
	}
	for _, subchart := range chart.Dependencies() {
		dropNotesAndMakeInterruptible(subchart)
	}
}

// crdObjects returns the objects in the crds folders of the chart and its enabled subcharts. The files in the crds
// folders are not templates.
func crdObjects(chart *helmchart.Chart) ([]renderedObject, error) {
	crds := chart.CRDObjects()
	slices.SortStableFunc(crds, func(a, b helmchart.CRD) int { return strings.Compare(a.Filename, b.Filename) })
	var objects []renderedObject
	quota := input.NewQuota()
	for _, crd := range crds {
		more, err := quota.Parse(crd.File.Data)
		if err != nil {
			return nil, withTemplate(crd.Filename, "", err)
		}
		for _, o := range more {
			objects = append(objects, renderedObject{o, crd.Filename})
		}
	}
	return objects, nil
}

// collectRendered decodes the objects in the output of the templates. The objects are in the order in which Helm
// installs them: by kind, and objects of the same kind by the path of their template.
func collectRendered(texts map[string]string, disableHooks bool) (objects []renderedObject, leftOut []string,
	err error) {
	size, quota := int64(0), input.NewQuota()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if size += int64(len(texts[name])); size > input.DefaultMaxBytes {
			return nil, nil, input.CheckSize(size, input.DefaultMaxBytes)
		}
		if strings.HasPrefix(path.Base(name), "_") || strings.TrimSpace(texts[name]) == "" {
			continue // as in Helm
		}
		more, err := parseOutput(quota, texts[name])
		if err != nil {
			return nil, nil, withTemplate(name, "in the output of the template: ", err)
		}
		for _, o := range more {
			why, err := decideHook(o, disableHooks)
			if err != nil {
				err.File = name
				return nil, nil, err
			}
			if why != "" {
				leftOut = append(leftOut, fmt.Sprintf("%s of %s is left out: %s", input.Describe(o.Object), name, why))
				continue
			}
			translateKeepPolicy(o)
			objects = append(objects, renderedObject{o, name})
		}
	}
	slices.SortStableFunc(objects, func(a, b renderedObject) int {
		return compareInstallOrder(a.GetKind(), b.GetKind())
	})
	return objects, leftOut, nil
}

// compareInstallOrder compares two kinds by the order in which Helm installs kinds. Kinds that Helm does not know are
// last, in alphabetical order.
func compareInstallOrder(a, b string) int {
	place := func(kind string) int {
		if i := slices.Index(releaseutil.InstallOrder, kind); i >= 0 {
			return i
		}
		return len(releaseutil.InstallOrder)
	}
	known := cmp.Compare(place(a), place(b))
	if known == 0 && place(a) == len(releaseutil.InstallOrder) {
		return strings.Compare(a, b)
	}
	return known
}

// parseOutput decodes the output of one template. parseOutput splits the text into documents in the same way as Helm.
// Helm splits the text by a regular expression, so a document also begins at "---# comment" and at "---apiVersion: v1",
// which other parsers refuse. Line numbers in errors refer to the whole output of the template.
func parseOutput(quota *input.Quota, text string) ([]*unstructured.Unstructured, error) {
	if strings.Count(text, "\n---") > input.MaxDocuments { // before the documents are copied
		return nil, &input.Error{Code: input.ArchiveTooLarge,
			Problem: fmt.Sprintf("it has more than %d documents: split the chart", input.MaxDocuments)}
	}
	documents := releaseutil.SplitManifests(text)
	names := slices.Collect(maps.Keys(documents))
	sort.Sort(releaseutil.BySplitManifestsOrder(names))
	var objects []*unstructured.Unstructured
	end := 0 // of the document before, in text
	for i, name := range names {
		document := documents[name]
		begin := end + max(0, strings.Index(text[end:], document))
		end = begin + len(document)
		more, err := quota.Parse([]byte(document))
		if err == nil {
			objects = append(objects, more...)
			continue
		}
		lines := strings.Count(text[:begin], "\n")
		if _, located := input.NewQuota().Parse([]byte(strings.Repeat("\n", lines) + document)); located != nil {
			err = located
		}
		if e, ok := errors.AsType[*input.Error](err); ok && e.Document > 0 {
			e.Document = i + 1
		}
		return nil, err
	}
	return objects, nil
}

// withTemplate adds the path of the template to an error.
func withTemplate(name, problemPrefix string, err error) error {
	if e, ok := errors.AsType[*input.Error](err); ok {
		e.Operation, e.File, e.Problem = operationChart, name, problemPrefix+e.Problem
	}
	return err
}

// hookAnnotation is the annotation that makes an object a hook. Helm applies a hook at certain events and ignores it
// afterwards.
const hookAnnotation = "helm.sh/hook"

// decideHook decides how a hook is treated. decideHook uses the first row that matches in the table below. The result
// leftOut is the reason why the object is left out, or "". The result refused is an error if the chart needs an
// unsupported feature.
//
//	1  no hook                                                     ordinary object
//	2  hooks are disabled                                          omitted
//	3  only for events that do not occur: test, delete, rollback   omitted
//	4  a Job or Pod for install or upgrade                         refused
//	5  any other object for install or upgrade                     ordinary object
func decideHook(o *unstructured.Unstructured, disabled bool) (leftOut string, refused *input.Error) {
	moments, isHook := o.GetAnnotations()[hookAnnotation]
	if !isHook {
		return "", nil
	}
	if disabled {
		return "hooks are disabled", nil
	}
	comes := false
	for moment := range strings.SplitSeq(moments, ",") {
		switch strings.ToLower(strings.TrimSpace(moment)) {
		case "pre-install", "post-install", "pre-upgrade", "post-upgrade", "crd-install":
			comes = true
		}
	}
	kind := o.GroupVersionKind().GroupKind()
	switch {
	case !comes:
		return fmt.Sprintf("it is a hook for %q, which does not occur here", moments), nil
	case kind.Group == "batch" && kind.Kind == "Job" || kind.Group == "" && kind.Kind == "Pod":
		return "", &input.Error{Operation: operationChart, Code: input.RefusedFeature,
			Object: input.Describe(o.Object), Problem: fmt.Sprintf(
				"it is a hook for %q, which would have to run once at that moment, but objects are applied "+
					"continuously: switch it off in the values, or leave out all hooks (chart.disableHooks: true in a "+
					"module-config, DisableHooks=true in clientConfig of a config layer)", moments)}
	}
	return "", nil
}

// translateKeepPolicy translates Helm's resource policy keep: it sets the annotation that makes package apply keep the
// object.
func translateKeepPolicy(o *unstructured.Unstructured) {
	const prune = "operator.kyma-project.io/prune"
	annotations := o.GetAnnotations()
	if _, decided := annotations[prune]; !decided &&
		strings.EqualFold(strings.TrimSpace(annotations["helm.sh/resource-policy"]), "keep") {
		annotations[prune] = "keep"
		o.SetAnnotations(annotations)
	}
}

// templateLocation matches the file and the line in an error of Helm's template engine.
var templateLocation = regexp.MustCompile(`([^\s():"]+):(\d+)(?::\d+)?`)

// templateError converts an error of the template engine to an error with the file, the line and an instruction.
func (f *functions) templateError(err error) error {
	if e, ok := errors.AsType[*input.Error](err); ok {
		return e
	}
	out := &input.Error{Operation: operationChart, Code: input.TemplateFailed}
	text := strings.TrimSpace(err.Error())
	for _, m := range templateLocation.FindAllStringSubmatch(text, -1) {
		if strings.Contains(m[1], "/templates/") { // the last location is the failed template, after its includers
			out.File = m[1]
			out.Line, _ = strconv.Atoi(m[2])
		}
	}
	if rest, ok := strings.CutPrefix(text, "execution error at ("); ok {
		_, text, _ = strings.Cut(rest, "): ")
	} else if rest, ok := strings.CutPrefix(text, "parse error at ("); ok {
		_, text, _ = strings.Cut(rest, "): ")
		text = "it cannot be parsed: " + text
	} else if i := strings.LastIndexByte(text, '\n'); i >= 0 {
		text = strings.TrimSpace(text[i:])
	} else if i := strings.LastIndex(text, "error calling "); i >= 0 {
		text = text[i:]
	}
	out.Problem = "the template fails, correct the chart or its values: " + text
	if f.refusal != "" {
		out.Code, out.Problem = input.RefusedFeature, f.refusal
	}
	return out
}
