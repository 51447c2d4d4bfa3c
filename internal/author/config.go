package author

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"go.yaml.in/yaml/v3"

	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
)

// Problems are the findings that prevent a build. As an error, Problems lists all findings, one per line.
type Problems []content.Finding

// Error returns a text with all findings, one per line.
func (p Problems) Error() string {
	var lines []string
	for _, f := range p {
		lines = append(lines, f.String())
	}
	return strings.Join(lines, "\n")
}

// problemsOf returns the findings that have level Error as Problems, or nil if there are none.
func problemsOf(findings []content.Finding) error {
	var p Problems
	for _, f := range findings {
		if f.Level == content.Error {
			p = append(p, f)
		}
	}
	if len(p) == 0 {
		return nil
	}
	return p
}

// Config is the content of a module-config file. The reference and the JSON schema of the module-config file are
// generated from the comments and the tags of its types. "required" in the tag doc marks keys that must not be missing.
type Config struct {
	// Name is the name of the component. The name consists of a domain and a path, for example
	// kyma-project.io/module/sample. The last part of the path is the name of the module, for example sample or
	// api-gateway. The name consists of words of at least three lower-case letters, separated by dashes.
	Name string `yaml:"name" doc:"required"`
	// Version is the version of the module. The version consists of three numbers and at most one pre-release
	// identifier, for example 1.2.0 or 1.2.0-rc1.
	Version string `yaml:"version" doc:"required"`
	// Manifest is the location of the manifest: the path of a file, a chart or a Kustomize directory, relative to the
	// module-config, or the https URL of a file.
	Manifest string `yaml:"manifest" doc:"required"`
	// DefaultCR is the path or https URL of a file with the default custom resource, which switches the module on. If
	// defaultCR is empty, the module has no default custom resource.
	DefaultCR string `yaml:"defaultCR"`
	// Repository is the https URL of the source code.
	Repository string `yaml:"repository" doc:"required"`
	// Documentation is the https URL of the documentation.
	Documentation string `yaml:"documentation" doc:"required"`
	// Team is the team that is responsible for findings of security scanners. Team is required unless
	// securityScanEnabled is false.
	Team string `yaml:"team"`
	// Scan enables security scans of the module. Default true.
	Scan bool `yaml:"securityScanEnabled"`
	// Icons are images for dashboards. Each icon has a name and an https link. At least one icon is required. The value
	// is either a list of entries with name and link, or a map from names to links.
	Icons []Link `yaml:"icons" doc:"required"`
	// Resources are https links for users, for example to an API reference. Each link has a name. The value is either a
	// list of entries with name and link, or a map from names to links. The order of the file is kept. If the manifest
	// is a URL, the link rawManifest is added.
	Resources []Link `yaml:"resources"`
	// Labels are the labels of the ModuleTemplate.
	Labels map[string]string `yaml:"labels"`
	// Annotations are the annotations of the ModuleTemplate.
	Annotations map[string]string `yaml:"annotations"`
	// Manager is the workload that runs the operator. The module is ready when this workload is ready. The version of
	// the manager workload is shown to users. If manager is empty, the module is ready when all its workloads are
	// ready.
	Manager *Manager `yaml:"manager"`
	// AssociatedResources are the kinds of custom resources that belong to the module.
	AssociatedResources []Kind `yaml:"associatedResources"`
	// RequiresDowntime makes updates to this version wait for a maintenance window. Default false.
	RequiresDowntime bool `yaml:"requiresDowntime"`
	// Internal offers the module only to runtimes with the label operator.kyma-project.io/internal. Default false.
	Internal bool `yaml:"internal"`
	// Beta offers the module only to runtimes with the label operator.kyma-project.io/beta. Default false.
	Beta bool `yaml:"beta"`
	// Upgrade declares which versions can be updated to this version, and to which versions a downgrade is safe. Tools
	// other than klm do not support the key "upgrade".
	Upgrade Upgrade `yaml:"upgrade"`
	// Chart contains the settings for rendering a chart. Tools other than klm do not support the key "chart".
	Chart ChartSettings `yaml:"chart"`

	file  string         // path of the config, used in messages
	lines map[string]int // line number of each key
}

// Link is a link with a name.
type Link struct {
	// Name is the name of the link.
	Name string `yaml:"name" doc:"required"`
	// Link is an https URL.
	Link string `yaml:"link" doc:"required"`
}

// Kind consists of a group, a version and a kind.
type Kind struct {
	// Group is the API group.
	Group string `yaml:"group" doc:"required"`
	// Version is the version in the apiVersion of the kind, such as v1beta1.
	Version string `yaml:"version" doc:"required"`
	// Kind is the kind.
	Kind string `yaml:"kind" doc:"required"`
}

// Manager identifies the workload that runs the operator.
type Manager struct {
	Kind `yaml:",inline"`
	// Namespace is the namespace of the workload. If namespace is empty, the workload may be in any namespace.
	Namespace string `yaml:"namespace"`
	// Name is the name of the workload.
	Name string `yaml:"name" doc:"required"`
}

// ChartSettings are the settings for rendering a chart. Tools other than klm do not support the key "chart" of the
// module-config.
type ChartSettings struct {
	// Release is the name of the Helm release. If release is empty, the release has the name of the module.
	Release string `yaml:"release"`
	// Namespace is the namespace of the Helm release, and of namespaced objects without a namespace. If namespace is
	// empty, the namespace is kyma-system.
	Namespace string `yaml:"namespace"`
	// CreateNamespace adds the namespace to the manifest, unless the namespace is kyma-system or the chart contains the
	// namespace. Default false.
	CreateNamespace bool `yaml:"createNamespace"`
	// Values is the path of a file with values for the chart, relative to the module-config. If values is empty, the
	// chart is rendered with its own default values.
	Values string `yaml:"values"`
	// DisableHooks omits all hooks of the chart. If disableHooks is false, a chart is refused if it has a Job or Pod
	// that is a hook for installation or upgrade, because such a hook would have to run exactly once. Default false.
	DisableHooks bool `yaml:"disableHooks"`
}

// Upgrade declares which versions can be updated to this version, and to which versions a downgrade is safe. The keys
// from and back are ranges of semantic versions, for example ">=1.3.0 <2.0.0".
type Upgrade struct {
	// From is the range of those lower versions that can be updated to this version directly. A runtime with a lower
	// version that is outside the range is updated through intermediate versions. If from is empty, every lower version
	// can be updated directly.
	From string `yaml:"from"`
	// Back is the range of the lower versions to which a runtime can safely go back. If back is empty, no downgrade is
	// safe.
	Back string `yaml:"back"`
	// Risks are known problems of this version, normally added after the release. A runtime for which the expression of
	// a risk is true does not get the version.
	Risks []Risk `yaml:"risks"`
}

// Risk is a known problem that a version has in some runtimes.
type Risk struct {
	// Name identifies the risk.
	Name string `yaml:"name" doc:"required"`
	// When is a CEL expression that is true for the runtimes with the risk. The variables of the expression are labels,
	// region, platformRegion, plan, provider, k8s.major, k8s.minor, kyma, channel and installed.
	When string `yaml:"when" doc:"required"`
	// Message describes the effects of the risk to users.
	Message string `yaml:"message" doc:"required"`
	// URL is the address of a page about the risk. If url is empty, there is no page that describes the risk.
	URL string `yaml:"url"`
}

// ShortName returns the name of the module: the last path segment of the component name.
func (c *Config) ShortName() string { return c.Name[strings.LastIndex(c.Name, "/")+1:] }

// Where returns the path of the config and the line of a key, for use in messages.
func (c *Config) Where(key string) string {
	if line := c.lines[key]; line > 0 {
		return fmt.Sprintf("%s:%d", c.file, line)
	}
	return c.file
}

// resolvePath returns the path of a file that the config refers to. A relative path in the config is relative to the
// folder of the config.
func (c *Config) resolvePath(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(c.file), filepath.FromSlash(name))
}

// ObsoleteKeys explains the keys of other tools that have no effect in this project. The explanation of a key names the
// replacement of the key.
var ObsoleteKeys = map[string]string{
	"channel":   "a channel is a matter of the ModuleReleaseMeta",
	"mandatory": "mandatory is a matter of the ModuleReleaseMeta",
	"namespace": "the ModuleTemplate is created where the control plane looks for it",
	"security":  "only scanners of images read the file that it names",
}

// configParser parses a module-config and collects all errors.
type configParser struct {
	*Config
	findings []content.Finding
}

func (r *configParser) addError(line int, format string, args ...any) {
	where := r.file
	if line > 0 {
		where = fmt.Sprintf("%s:%d", r.file, line)
	}
	r.findings = append(r.findings, content.NewFinding(content.Error, where, fmt.Sprintf(format, args...)))
}

// ParseConfig parses the text of a module-config. The parameter "file" is the path of the config, which is used only in
// messages. The returned error is of type Problems and lists all errors.
func ParseConfig(file string, text []byte) (*Config, []content.Finding, error) {
	r := &configParser{Config: &Config{file: file, lines: map[string]int{}, Scan: true}}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		r.addError(0, "not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		return nil, r.findings, problemsOf(r.findings)
	}
	if len(document.Content) == 0 || document.Content[0].Kind != yaml.MappingNode {
		r.addError(0, "not a module-config: it has to be a map with name, version, manifest and others; klm module "+
			"init writes one")
		return nil, r.findings, problemsOf(r.findings)
	}
	fields := r.fieldPointers()
	r.visitEntries(document.Content[0], func(key string, line int, value *yaml.Node) {
		into, known := fields[key]
		switch why, old := ObsoleteKeys[key]; {
		case known:
			r.decode(key, value, into)
		case old && value.Value == "" && len(value.Content) == 0: // generated files have all keys
		case old:
			r.findings = append(r.findings, content.NewFinding(content.Warning, fmt.Sprintf("%s:%d", file, line),
				fmt.Sprintf("%s has no effect: %s", key, why)))
		default:
			r.addUnknownKeyFinding(line, key, fields)
		}
	})
	r.validate()
	return r.Config, r.findings, problemsOf(r.findings)
}

// fieldPointers returns a map from each key of a config to a pointer to the variable that the key sets.
func (r *configParser) fieldPointers() map[string]any {
	fields := map[string]any{}
	config := reflect.ValueOf(r.Config).Elem()
	for i := range config.NumField() {
		if key := config.Type().Field(i).Tag.Get("yaml"); key != "" {
			fields[key] = config.Field(i).Addr().Interface()
		}
	}
	return fields
}

// keysOf returns, sorted, the YAML keys of a struct type and of the structs embedded in it.
func keysOf(t reflect.Type) []string {
	var keys []string
	for f := range t.Fields() {
		if f.Anonymous {
			keys = append(keys, keysOf(f.Type)...)
		} else {
			keys = append(keys, f.Tag.Get("yaml"))
		}
	}
	slices.Sort(keys)
	return keys
}

// visitEntries calls the function visit for every entry of a YAML map. If the YAML map has a key twice, the method
// visitEntries reports an error.
func (r *configParser) visitEntries(node *yaml.Node, visit func(key string, line int, value *yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if first := seen[key.Value]; first > 0 {
			r.addError(key.Line, "%s is duplicated, first in line %d: keep one", key.Value, first)
			continue
		}
		seen[key.Value], r.lines[key.Value] = key.Line, key.Line
		visit(key.Value, key.Line, value)
	}
}

// addUnknownKeyFinding reports an unknown key. An unknown key that is similar to a known key is an error. Any other
// unknown key causes a warning, because it may belong to another tool.
func (r *configParser) addUnknownKeyFinding(line int, key string, fields map[string]any) {
	known := slices.Sorted(maps.Keys(fields))
	for _, k := range known {
		if isSimilar(k, strings.TrimSuffix(key, ",omitempty")) {
			r.addError(line, "unknown key %q: did you mean %s? known are %s", key, k, strings.Join(known, ", "))
			return
		}
	}
	r.findings = append(r.findings, content.NewFinding(content.Warning, fmt.Sprintf("%s:%d", r.file, line),
		fmt.Sprintf("unknown key %q has no effect: known are %s", key, strings.Join(known, ", "))))
}

// isSimilar reports whether a key may be a misspelling of a known key: it differs in case, is a part of the known key,
// or differs in one or two letters.
func isSimilar(known, key string) bool {
	one, two := strings.ToLower(known), strings.ToLower(key)
	if strings.HasPrefix(one, two) || strings.HasPrefix(two, one) {
		return true
	}
	const most = 2
	row := make([]int, len(two)+1) // number of changes that turn a part of one into each part of two
	for j := range row {
		row[j] = j
	}
	for i := range len(one) {
		before := row[0]
		row[0] = i + 1
		for j := range len(two) {
			change := before
			if one[i] != two[j] {
				change++
			}
			before, row[j+1] = row[j+1], min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(two)] <= most
}

// decode decodes the value of a key strictly into the variable into.
func (r *configParser) decode(key string, value *yaml.Node, into any) {
	if links, ok := into.(*[]Link); ok {
		*links = r.decodeLinks(key, value)
		return
	}
	r.checkUnknownKeys(key, value, into)
	if _, isChart := into.(*ChartSettings); isChart {
		for i := 0; i+1 < len(value.Content); i += 2 {
			if k, v := value.Content[i].Value, value.Content[i+1]; k == "values" && v.Kind == yaml.MappingNode {
				r.addError(v.Line, "chart: values has to be the path of a file: write the values into a file beside this one")
				return
			}
		}
	}
	if err := value.Decode(into); err != nil {
		text := strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n", " "), "yaml: unmarshal errors:")
		r.addError(value.Line, "%s: %s", key, strings.TrimSpace(
			regexp.MustCompile(`line \d+: `).ReplaceAllString(text, "")))
	}
}

// checkUnknownKeys reports unknown keys inside a value.
func (r *configParser) checkUnknownKeys(key string, value *yaml.Node, into any) {
	var known []string
	nodes := []*yaml.Node{value}
	switch into.(type) {
	case **Manager:
		known = keysOf(reflect.TypeFor[Manager]())
	case *ChartSettings:
		known = keysOf(reflect.TypeFor[ChartSettings]())
	case *Upgrade:
		known = keysOf(reflect.TypeFor[Upgrade]())
	case *[]Kind:
		known, nodes = keysOf(reflect.TypeFor[Kind]()), value.Content
	default:
		return
	}
	for _, node := range nodes {
		if node.Kind != yaml.MappingNode {
			continue
		}
		for i := 0; i+1 < len(node.Content); i += 2 {
			if k := node.Content[i]; !slices.Contains(known, k.Value) {
				r.addError(k.Line, "unknown key %q in %s: known are %s", k.Value, key, strings.Join(known, ", "))
			}
		}
	}
}

// decodeLinks decodes the value of a key that holds named links. The YAML node is either a list of entries with a name
// and a link, or a map.
func (r *configParser) decodeLinks(key string, node *yaml.Node) []Link {
	var links []Link
	add := func(line int, name, link string) {
		switch {
		case name == "":
			r.addError(line, "%s: a name is missing", key)
		case slices.ContainsFunc(links, func(l Link) bool { return l.Name == name }):
			r.addError(line, "%s: %q is duplicated: keep one", key, name)
		default:
			r.checkHTTPSURL(line, fmt.Sprintf("%s: the link of %q", key, name), link)
			links = append(links, Link{name, link})
		}
	}
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			add(node.Content[i].Line, node.Content[i].Value, node.Content[i+1].Value)
		}
	case yaml.SequenceNode:
		for _, item := range node.Content {
			var l Link
			if err := item.Decode(&l); err != nil || item.Kind != yaml.MappingNode {
				r.addError(item.Line, "%s: an entry is a map of name and link", key)
				continue
			}
			for i := 0; i+1 < len(item.Content); i += 2 {
				if k := item.Content[i]; k.Value != "name" && k.Value != "link" {
					r.addError(k.Line, "unknown key %q in %s: known are link, name", k.Value, key)
				}
			}
			add(item.Line, l.Name, l.Link)
		}
	default:
		if node.Tag != "!!null" {
			r.addError(node.Line, "%s: give a list of name and link, or a map", key)
		}
	}
	return links
}

// These patterns define the syntax of names and versions in a module-config. For names and versions, the CRD of
// ModuleTemplates is stricter than the schema of component descriptors. A name or version in a module-config must be
// valid in the ModuleTemplate and in the component descriptor.
var (
	componentForm = regexp.MustCompile(
		`^[a-z][-a-z0-9]*([.][a-z][-a-z0-9]*)*[.][a-z]{2,}(/[a-z][-a-z0-9_]*([.][a-z][-a-z0-9_]*)*)+$`)
	moduleForm    = regexp.MustCompile(`^[a-z]{3,}(-[a-z]{3,})*$`)
	versionForm   = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[a-zA-Z-][0-9a-zA-Z-]*)?$`)
	namespaceForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
)

// validate checks whether the values of a config are valid.
func (r *configParser) validate() {
	r.validateName()
	r.validateVersion()
	r.checkLocationSyntax("manifest", r.Manifest, true)
	r.checkLocationSyntax("defaultCR", r.DefaultCR, false)
	r.checkHTTPSURL(r.lines["repository"], "repository", r.Repository)
	r.checkHTTPSURL(r.lines["documentation"], "documentation", r.Documentation)
	if r.Scan && r.Team == "" {
		r.addError(r.lines["team"],
			"team is missing: say who answers for findings of security scanners, or switch these off "+
				"(securityScanEnabled: false)")
	}
	if len(r.Icons) == 0 {
		r.addError(r.lines["icons"], "icons is missing: name at least one, for the dashboard")
	}
	if m := r.Manager; m != nil {
		line := r.lines["manager"]
		r.checkKind(line, "manager", m.Kind)
		if m.Name == "" {
			r.addError(line, "manager: name is missing")
		}
		if m.Namespace != "" && (!namespaceForm.MatchString(m.Namespace) || len(m.Namespace) > 253) {
			r.addError(line, "manager: namespace %q is none: lower-case letters, digits and dashes", m.Namespace)
		}
	}
	for i, k := range r.AssociatedResources {
		r.checkKind(r.lines["associatedResources"], fmt.Sprintf("associatedResources[%d]", i), k)
	}
	r.validateUpgrade()
	if v := r.Chart.Values; v != "" && (filepath.IsAbs(v) || strings.Contains(v, "://")) {
		r.addError(r.lines["chart"], "chart: values: %q has to be a path relative to this file", v)
	}
}

func (r *configParser) validateUpgrade() {
	line := r.lines["upgrade"]
	declared := r.Upgrade.templateUpgrade()
	if err := channel.ValidateUpgradeRangesAndRisks(declared); err != nil {
		r.addError(line, "upgrade: %s", strings.TrimPrefix(err.Error(), "spec.upgrade."))
		return
	}
	for _, risk := range r.Upgrade.Risks {
		if risk.Name == "" || risk.When == "" || risk.Message == "" {
			r.addError(line, "upgrade: a risk needs name, when and message")
		}
	}
	for _, f := range (fields{{"from", r.Upgrade.From}, {"back", r.Upgrade.Back}}) {
		key, text := f.key, fmt.Sprint(f.value)
		if is, err := channel.IsInRange(r.Version, text); text != "" && err == nil && is {
			r.addError(line, "upgrade: %s: %q contains version %s itself: it is a range of lower versions, for example "+
				"\">=1.0.0 <%s\"", key, text, r.Version, r.Version)
		}
	}
}

func (r *configParser) validateName() {
	line, short := r.lines["name"], r.ShortName()
	switch {
	case r.Name == "":
		r.addError(line, "name is missing: give the one of the component, for example kyma-project.io/module/sample")
	case len(r.Name) > 255:
		r.addError(line, "name is %d characters long: at most 255 are allowed", len(r.Name))
	case strings.ToLower(r.Name) != r.Name:
		r.addError(line, "name %q has capital letters: repositories of registries cannot; write %q",
			r.Name, strings.ToLower(r.Name))
	case !componentForm.MatchString(r.Name):
		r.addError(line, "name %q is not that of a component: a domain and a path, for example "+
			"kyma-project.io/module/sample", r.Name)
	case !moduleForm.MatchString(short) || len(short) > 64:
		r.addError(line, "name %q: the last part, %q, becomes the name of the module, which is made of at least "+
			"three lower-case letters, with dashes between such parts, 64 characters at most",
			r.Name, short)
	}
}

func (r *configParser) validateVersion() {
	line := r.lines["version"]
	switch _, err := semver.StrictNewVersion(r.Version); {
	case r.Version == "":
		r.addError(line, "version is missing")
	case strings.HasPrefix(r.Version, "v"):
		r.addError(line, "version %q: leave out the v", r.Version)
	case err != nil:
		r.addError(line, "version %q is no semantic version: three numbers, for example 1.0.0", r.Version)
	case strings.Contains(r.Version, "+"):
		r.addError(line, "version %q: a ModuleTemplate cannot have build metadata: leave out what follows the +",
			r.Version)
	case !versionForm.MatchString(r.Version):
		r.addError(line, "version %q: a ModuleTemplate can have one pre-release identifier only, without dots: "+
			"write %q", r.Version, suggestedVersion(r.Version))
	case len(r.Version) > 32:
		r.addError(line, "version %q is %d characters long: a ModuleTemplate can have 32", r.Version, len(r.Version))
	}
}

// suggestedVersion changes a version so that it becomes valid in a ModuleTemplate. The message about an invalid version
// suggests the version that suggestedVersion returns.
func suggestedVersion(version string) string {
	numbers, pre, _ := strings.Cut(version, "-")
	pre = strings.ReplaceAll(pre, ".", "-")
	if pre != "" && pre[0] >= '0' && pre[0] <= '9' {
		pre = "rc-" + pre
	}
	return numbers + "-" + pre
}

// checkLocationSyntax validates the location of a file, which is a URL or a path relative to the config.
func (r *configParser) checkLocationSyntax(key, pathOrURL string, isRequired bool) {
	line := r.lines[key]
	switch {
	case pathOrURL == "" && isRequired:
		r.addError(line, "%s is missing: the path of a file, a chart or a Kustomize directory, or an https URL", key)
	case pathOrURL == "":
	case strings.Contains(pathOrURL, "://"):
		r.checkHTTPSURL(line, key, pathOrURL)
	case filepath.IsAbs(pathOrURL) || strings.HasPrefix(pathOrURL, "/"):
		r.findings = append(r.findings, content.NewFinding(content.Warning, r.Where(key), fmt.Sprintf(
			"%s: %q is an absolute path, which others do not have: write one relative to this file", key, pathOrURL)))
	}
}

func (r *configParser) checkHTTPSURL(line int, what, value string) {
	u, err := url.Parse(value)
	switch {
	case value == "":
		r.addError(line, "%s is missing: give an https URL", what)
	case err != nil:
		r.addError(line, "%s: %q is no URL", what, value)
	case u.Scheme != "https":
		r.addError(line, "%s: %q does not begin with https://", what, value)
	case u.Host == "":
		r.addError(line, "%s: %q has no host", what, value)
	}
}

func (r *configParser) checkKind(line int, what string, k Kind) {
	for _, f := range []struct{ name, value string }{{"group", k.Group}, {"version", k.Version}, {"kind", k.Kind}} {
		if f.value == "" {
			r.addError(line, "%s: %s is missing", what, f.name)
		}
	}
}
