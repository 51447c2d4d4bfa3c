package author

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8syaml "sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
)

// encodeTemplate returns the ModuleTemplate as YAML. The keys of the YAML have an order that is easy to read.
func (m *Module) encodeTemplate() ([]byte, error) {
	c := m.Config
	labels := maps.Clone(c.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1beta2.LabelModuleName] = c.ShortName()
	for label, on := range map[string]bool{v1beta2.LabelBeta: c.Beta, v1beta2.LabelInternal: c.Internal} {
		if on {
			labels[label] = v1beta2.ValueTrue
		}
	}
	annotations := maps.Clone(c.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1beta2.AnnotationIsClusterScoped] = fmt.Sprint(m.ClusterScoped)

	spec := fields{
		{"moduleName", c.ShortName()}, {"version", c.Version}, {"requiresDowntime", c.RequiresDowntime},
		{"info", fields{{"repository", c.Repository}, {"documentation", c.Documentation}, {"icons",
			linkFields(c.Icons)}}},
	}
	if len(c.AssociatedResources) > 0 {
		var all []any
		for _, k := range c.AssociatedResources {
			all = append(all, fields{{"group", k.Group}, {"version", k.Version}, {"kind", k.Kind}})
		}
		spec = append(spec, field{"associatedResources", all})
	}
	if m.DefaultCR != nil {
		node, err := nodeOf(m.DefaultCR)
		if err != nil {
			return nil, err
		}
		spec = append(spec, field{"data", node})
	}
	if w := c.Manager; w != nil {
		manager := fields{{"name", w.Name}}
		if w.Namespace != "" {
			manager = append(manager, field{"namespace", w.Namespace})
		}
		spec = append(spec, field{"manager", append(manager, field{"group", w.Group}, field{"version", w.Version},
			field{"kind", w.Kind.Kind})})
	}
	if c.Upgrade.templateUpgrade() != nil {
		spec = append(spec, field{"upgrade", c.Upgrade.templateFields()})
	}
	spec = append(spec, field{"descriptor", fields{}})
	if resources := m.resourceLinks(); len(resources) > 0 {
		spec = append(spec, field{"resources", linkFields(resources)})
	}
	return encodeYAML(fields{
		{"apiVersion", v1beta2.GroupVersion.String()}, {"kind", v1beta2.KindModuleTemplate},
		{"metadata", fields{
			{"name", v1beta2.ModuleTemplateName(c.ShortName(), c.Version)},
			{"namespace", v1beta2.ControlPlaneNamespace},
			{"labels", labels}, {"annotations", annotations},
		}},
		{"spec", spec},
	})
}

// resourceLinks returns the links for spec.resources of the ModuleTemplate. If the config names the manifest by a URL,
// and has no link named rawManifest, a link with this name to the URL is added.
func (m *Module) resourceLinks() []Link {
	all := slices.Clone(m.Config.Resources)
	named := slices.ContainsFunc(all, func(l Link) bool { return l.Name == "rawManifest" })
	if m.fromURL && !named {
		all = append([]Link{{"rawManifest", m.Config.Manifest}}, all...)
	}
	return all
}

func linkFields(all []Link) []any {
	var list []any
	for _, l := range all {
		list = append(list, fields{{"name", l.Name}, {"link", l.Link}})
	}
	return list
}

// fields is a map whose keys have a fixed order.
type fields []field

type field struct {
	key   string
	value any
}

// MarshalYAML implements [yaml.Marshaler].
func (f fields) MarshalYAML() (any, error) {
	node := &yaml.Node{Kind: yaml.MappingNode}
	if len(f) == 0 {
		node.Style = yaml.FlowStyle
	}
	for _, e := range f {
		key, value := &yaml.Node{}, &yaml.Node{}
		if err := key.Encode(e.key); err != nil {
			return nil, err
		}
		if n, ok := e.value.(*yaml.Node); ok {
			value = n
		} else if err := value.Encode(e.value); err != nil {
			return nil, err
		}
		node.Content = append(node.Content, key, value)
	}
	return node, nil
}

// nodeOf converts an object to a YAML node with sorted keys. nodeOf does not change how numbers are written.
func nodeOf(o *unstructured.Unstructured) (*yaml.Node, error) {
	text, err := yamlOf(o)
	if err != nil {
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("encoding %s: %w", content.KindAndNameOf(o), err)
	}
	return document.Content[0], nil
}

func yamlOf(o *unstructured.Unstructured) ([]byte, error) {
	data, err := json.Marshal(o.Object)
	if err == nil {
		data, err = k8syaml.JSONToYAML(data)
	}
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", content.KindAndNameOf(o), err)
	}
	return data, nil
}

func encodeYAML(f fields) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(f); err != nil {
		return nil, fmt.Errorf("encoding the ModuleTemplate: %w", err)
	}
	return b.Bytes(), e.Close()
}
