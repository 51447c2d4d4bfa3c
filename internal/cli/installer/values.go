package installer

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/deploy"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/text"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// The values of an installation are stored in its inventory. The next installation starts with the stored values. If
// the user sets a value for the next installation, it replaces the stored value with the same key. Values that equal
// the defaults of the chart are not stored, so that a new version of the chart can change its defaults. Values with
// credentials are refused, because a ConfigMap is not a place for credentials.

// flavourKey is the key of the chart's value that selects what is installed: a control plane for a fleet, or a manager
// that manages only its own cluster. The flavour is stored together with all other values.
const flavourKey = "flavour"

// values are values of the chart, as in its file values.yaml.
type values map[string]any

// decodeValues decodes stored values. The function encode is the inverse of decodeValues.
func decodeValues(document string) (values, error) {
	v := values{}
	return v, yaml.Unmarshal([]byte(document), &v)
}

func (v values) encode() ([]byte, error) { return yaml.Marshal(v) }

// values returns the values with which the chart is rendered. The default flavour is control-plane.
func (o installOptions) values(before *inventory) (values, error) {
	v, err := o.valuesWithoutDefault(before)
	if err == nil && v[flavourKey] == nil {
		v[flavourKey] = deploy.ControlPlaneFlavour
	}
	return v, err
}

// valuesWithoutDefault returns the values that somebody has set. The base is the values of the previous installation,
// unless --reset-values is given. Values in the file of --values override the base. The values for the image of --image
// override the file, and the values of --set override all others.
func (o installOptions) valuesWithoutDefault(before *inventory) (values, error) {
	base := values{}
	if before != nil && !o.resetValues {
		base = merge(values{}, before.values)
	}
	if o.file != "" {
		data, err := os.ReadFile(o.file)
		if err != nil {
			return nil, console.Fail(console.ExitUsage, "--values: %v", err)
		}
		file, err := (render.Settings{Values: data}).Overrides()
		if err != nil {
			return nil, console.Fail(console.ExitUsage, "--values: %v", err)
		}
		base = merge(base, file)
	}
	document, err := base.encode()
	if err != nil {
		return nil, fmt.Errorf("encoding the values: %w", err)
	}
	all, err := render.Settings{Values: document, Set: append(imageValues(o.image), o.set...)}.Overrides()
	if err != nil {
		return nil, console.Fail(console.ExitUsage, "--set: %v", err)
	}
	v := values(all)
	if o.flavour != "" {
		v[flavourKey] = o.flavour
	}
	return v, v.refuseCredentials()
}

// flavour returns the value of the chart that selects what is installed, or "" if the values do not contain it.
func (v values) flavour() string {
	f, _ := v[flavourKey].(string)
	return f
}

// merge returns values in which the values of the parameter over override the values of the parameter base. Maps are
// merged; lists are replaced. merge changes neither base nor over.
func merge(base, over values) values {
	all := maps.Clone(base)
	for key, value := range over {
		child, isMap := value.(map[string]any)
		old, _ := all[key].(map[string]any)
		if isMap {
			value = map[string]any(merge(values(old), child))
		}
		if all == nil {
			all = values{}
		}
		all[key] = value
	}
	if all == nil {
		all = values{}
	}
	return all
}

// refuseCredentials returns an error if a value is a credential instead of a reference to a Secret.
func (v values) refuseCredentials() error {
	found := credentialProblems("", map[string]any(v))
	if len(found) == 0 {
		return nil
	}
	return console.Fail(console.ExitUsage, "%s: klm stores the values in a ConfigMap, and many may read the "+
		"Deployment: put the credential into a Secret, and use extraEnv with valueFrom.secretKeyRef; extraArgs can "+
		"refer to the variable as $(NAME)", strings.Join(found, ", "))
}

// credentialProblems returns the paths of the values that are credentials, with the reason for each.
func credentialProblems(path string, value any) (messages []string) {
	var all []string
	switch v := value.(type) {
	case map[string]any:
		name, _ := v["name"].(string) // a variable of a container: {name: TOKEN, value: …}
		literal, _ := v["value"].(string)
		if literal != "" && isCredential(name, literal) {
			return []string{fmt.Sprintf("value %s has a credential (%s)", path, name)}
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			all = append(all, credentialProblems(strings.TrimPrefix(path+"."+key, "."), v[key])...)
		}
	case []any:
		for i := range v {
			all = append(all, credentialProblems(fmt.Sprintf("%s[%d]", path, i), v[i])...)
		}
	case string:
		flag, literal, isFlag := strings.Cut(v, "=")
		if !isFlag || !strings.HasPrefix(flag, "--") {
			flag, literal = "", v
		}
		if isCredential(flag, literal) {
			all = append(all, fmt.Sprintf("value %s has a credential", path))
		}
	}
	return all
}

// isCredential reports whether the value of a variable or flag is a credential. The path of a file, or a reference to
// another variable, is not a credential.
func isCredential(name, value string) bool {
	if value == "" || strings.HasPrefix(value, "/") || strings.HasPrefix(value, "$(") {
		return false
	}
	return text.IsSensitiveKey(name) || text.IsSensitiveValue(value) || text.WithoutURLLogins(value) != value
}

// Actions of a valueChange.
const (
	valueKept    = "keep"   // from the previous installation
	valueAdded   = "set"    // had the default of the chart before
	valueChanged = "change" // had another value before
	valueDropped = "drop"   // gets the default of the chart
)

// valueChange is the change of one chart value by an installation. Before and After are the value in JSON before and
// after the installation. Before or After is "" if the chart's default applies.
type valueChange struct {
	Action string `json:"action"`
	Path   string `json:"path"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// compareValues compares the values of two installations, and returns one change for each value, sorted by the path of
// the value.
func compareValues(before, after values) []valueChange {
	old, now := before.flatten(), after.flatten()
	paths := maps.Clone(old)
	maps.Copy(paths, now)
	all := []valueChange{}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		c := valueChange{Path: path, Before: old[path], After: now[path]}
		switch {
		case c.Before == c.After:
			c.Action = valueKept
		case c.Before == "":
			c.Action = valueAdded
		case c.After == "":
			c.Action = valueDropped
		default:
			c.Action = valueChanged
		}
		all = append(all, c)
	}
	return all
}

// flatten returns a map from the path of each value, such as image.tag, to the value encoded as JSON. A list counts as
// one value.
func (v values) flatten() (jsonByPath map[string]string) {
	all := map[string]string{}
	for key, value := range v {
		if child, isMap := value.(map[string]any); isMap && len(child) > 0 {
			for path, text := range values(child).flatten() {
				all[key+"."+path] = text
			}
			continue
		}
		data, err := json.Marshal(value)
		if err != nil {
			data = []byte(fmt.Sprint(value))
		}
		all[key] = string(data)
	}
	return all
}
