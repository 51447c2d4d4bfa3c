package helm

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/render/input"
)

// Config has the settings for one installation of a chart. The config layer of a module contains a list of Configs.
type Config struct {
	// Name is the name of the installation.
	Name string
	// Values is a YAML document with a map of overrides; nil means none.
	Values []byte
	// Set contains overrides in the syntax of --set; "" means none.
	Set string
	// Client contains the options of Helm's install action from the key clientConfig of a config.
	Client ClientConfig
}

// ApplyTo returns a copy of settings with the overrides of the config.
func (c Config) ApplyTo(settings Settings) Settings {
	if c.Values != nil {
		settings.Values = c.Values
	}
	if c.Set != "" {
		settings.Set = append(slices.Clone(settings.Set), c.Set)
	}
	return c.Client.ApplyTo(settings)
}

// ClientConfig contains the supported options of Helm's install action. Each option has the name of the field of Helm's
// install action.
type ClientConfig struct {
	// Namespace and ReleaseName are copied to Settings.
	Namespace, ReleaseName string
	// CreateNamespace, DisableHooks and SkipCRDs are copied to Settings.
	CreateNamespace, DisableHooks, SkipCRDs bool
	// Wait means that the caller waits until the objects are ready. WaitForJobs means that the caller waits for Jobs,
	// too. Timeout is the maximum waiting time. Package helm does not wait for objects or Jobs: the caller has to wait.
	Wait, WaitForJobs bool
	Timeout           time.Duration
	// Version is the version of the chart, exact or a range. Devel allows pre-releases. The caller uses Version and
	// Devel to find the chart.
	Version string
	Devel   bool
	// Ignored lists the names of the options that are not in the fields above, sorted. Helm accepts the ignored
	// options, but they have no effect in this package.
	Ignored []string
}

// ApplyTo returns a copy of settings in which the options of c override the fields Namespace, Release, CreateNamespace,
// DisableHooks and SkipCRDs.
func (c ClientConfig) ApplyTo(settings Settings) Settings {
	if c.Namespace != "" {
		settings.Namespace = c.Namespace
	}
	if c.ReleaseName != "" {
		settings.Release = c.ReleaseName
	}
	settings.CreateNamespace = settings.CreateNamespace || c.CreateNamespace
	settings.DisableHooks = settings.DisableHooks || c.DisableHooks
	settings.SkipCRDs = settings.SkipCRDs || c.SkipCRDs
	return settings
}

// ParseInstallConfigs parses a config layer. The following example shows the form of a config layer.
//
//	configs:
//	- name: redis                                       # name of the installation
//	  overrides: replica.count=2,auth.enabled=false     # --set syntax, a map of values, or a text with a YAML document
//	  clientConfig: CreateNamespace=true,Timeout=10s    # --set syntax or a map
//
// In each element of the list "configs", the keys "overrides" and "clientConfig" are optional. A config layer may
// contain other keys, which are ignored. An empty layer contains no configs. The layer may be compressed. If several
// configs have the same name, FindConfig returns the first one.
//
// Errors have reason InvalidConfig, InvalidValues, InvalidArchive or ArchiveTooLarge.
func ParseInstallConfigs(layer []byte) ([]Config, error) {
	data, err := input.Decompress(layer, maxConfigBytes)
	if err != nil {
		return nil, err
	}
	refuse := func(format string, args ...any) error {
		return &input.Error{Operation: operationConfig, Code: input.InvalidConfig,
			Problem: fmt.Sprintf(format, args...)}
	}
	tree, err := input.Decode(data)
	if err != nil {
		return nil, asConfigError(err)
	}
	if tree == nil {
		return nil, nil
	}
	top, ok := tree.(map[string]any)
	if !ok {
		return nil, refuse("the layer is not a map: it needs the key configs with a list")
	}
	list, ok := top["configs"].([]any)
	if !ok && top["configs"] != nil {
		return nil, refuse("configs is not a list: correct it")
	}
	var configs []Config
	for i, item := range list {
		element, ok := item.(map[string]any)
		if !ok {
			return nil, refuse("configs[%d] is not a map: it needs name, overrides and clientConfig", i)
		}
		name, ok := element["name"].(string)
		if !ok || name == "" {
			return nil, refuse("configs[%d] has no name: set it to that of the installation", i)
		}
		config := Config{Name: name}
		if config.Values, config.Set, err = overridesIn(element["overrides"]); err == nil {
			config.Client, err = decodeClientConfig(element["clientConfig"])
		}
		if err != nil {
			return nil, fmt.Errorf("configs[%d], of %q: %w", i, name, err)
		}
		configs = append(configs, config)
	}
	return configs, nil
}

// maxConfigBytes is the maximum size of an unpacked config layer. Values that do not fit into maxConfigBytes should be
// in the values.yaml of the chart.
const maxConfigBytes = 1 << 20

// operationConfig is the first part of the text of every error about a config layer.
const operationConfig = "reading the config layer"

// asConfigError sets the operation and the reason code of an [input.Error] to those of the config layer.
func asConfigError(err error) error {
	if e, ok := errors.AsType[*input.Error](err); ok {
		e.Operation, e.Code = operationConfig, input.InvalidConfig
	}
	return err
}

// FindConfig returns the first config with the given name. If no config has this name, FindConfig returns an empty
// Config.
func FindConfig(configs []Config, name string) Config {
	for _, c := range configs {
		if c.Name == name {
			return c
		}
	}
	return Config{}
}

// overridesIn parses the overrides of one config, and returns an error if they are not valid.
func overridesIn(value any) (document []byte, set string, err error) {
	switch value := value.(type) {
	case nil:
		return nil, "", nil
	case map[string]any:
		if document, err = json.Marshal(value); err != nil {
			return nil, "", err
		}
	case string:
		if text := strings.TrimSpace(value); strings.Contains(text, "\n") {
			if tree, err := input.Decode([]byte(text)); err == nil {
				if _, ok := tree.(map[string]any); ok {
					document = []byte(text)
				}
			}
		}
		if document == nil {
			set = value
		}
	default:
		return nil, "", &input.Error{Operation: operationConfig, Code: input.InvalidConfig,
			Problem: "overrides is neither a text nor a map: write it as path=value,path=value or as a map of values"}
	}
	settings := Settings{Values: document}
	if set != "" {
		settings.Set = []string{set}
	}
	_, err = settings.Overrides()
	return document, set, err
}

// decodeClientConfig parses the value of the key clientConfig in one entry of a config layer.
func decodeClientConfig(value any) (ClientConfig, error) {
	switch value := value.(type) {
	case nil:
		return ClientConfig{}, nil
	case map[string]any:
		return ParseClientConfig(value)
	case string:
		flags := map[string]any{}
		if err := parseSet(value, flags); err != nil {
			return ClientConfig{}, &input.Error{Operation: operationConfig, Code: input.InvalidConfig,
				Problem: "clientConfig is not of the form Name=value,Name=value: correct it", Cause: err}
		}
		return ParseClientConfig(flags)
	}
	return ClientConfig{}, &input.Error{Operation: operationConfig, Code: input.InvalidConfig,
		Problem: "clientConfig is neither a text nor a map: write it as Name=value,Name=value"}
}

// ParseClientConfig parses options of Helm's install action. The keys of the map are the names of the install action's
// fields, for example "CreateNamespace": true. A duration is a [time.Duration], a text such as 10s, or a number of
// nanoseconds. The names of options that are not supported are added to Ignored. The error has reason InvalidConfig and
// contains the name of the option.
func ParseClientConfig(flags map[string]any) (ClientConfig, error) {
	var c ClientConfig
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		value, ok := flags[name], true
		if value == nil {
			continue
		}
		switch name {
		case "Namespace":
			c.Namespace, ok = value.(string)
		case "ReleaseName":
			c.ReleaseName, ok = value.(string)
		case "CreateNamespace":
			c.CreateNamespace, ok = value.(bool)
		case "DisableHooks":
			c.DisableHooks, ok = value.(bool)
		case "SkipCRDs":
			c.SkipCRDs, ok = value.(bool)
		case "IncludeCRDs": // an option of "helm template"; CRDs are always included
			_, ok = value.(bool)
		case "Wait":
			c.Wait, ok = value.(bool)
		case "WaitForJobs":
			c.WaitForJobs, ok = value.(bool)
		case "Timeout":
			c.Timeout, ok = duration(value)
		case "Version":
			c.Version, ok = stringOrNumber(value)
		case "Devel":
			c.Devel, ok = value.(bool)
		default:
			c.Ignored = append(c.Ignored, name)
		}
		if !ok {
			return ClientConfig{}, &input.Error{Operation: operationConfig, Code: input.InvalidConfig,
				Problem: fmt.Sprintf("unsupported flag value: %s cannot be %q: correct it", name, fmt.Sprint(value))}
		}
	}
	return c, nil
}

// stringOrNumber returns the value of an option as a text. An option whose text looks like a number, for example the
// version 1.2, was decoded as a number, and stringOrNumber converts the number back to text.
func stringOrNumber(value any) (text string, ok bool) {
	switch value := value.(type) {
	case string:
		return value, true
	case int64:
		return strconv.FormatInt(value, 10), true
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64), true
	}
	return "", false
}

func duration(value any) (d time.Duration, ok bool) {
	switch value := value.(type) {
	case time.Duration:
		d, ok = value, true
	case int:
		d, ok = time.Duration(value), true
	case int64:
		d, ok = time.Duration(value), true
	case string:
		var err error
		d, err = time.ParseDuration(value)
		ok = err == nil
	}
	return d, ok && d >= 0
}

// maxExpressionBytes and maxIndexDigits limit an expression in the syntax of --set. The index of a list item must be
// limited because Helm's parser allocates all items up to the index: for "a[999999999]=x" it would allocate a billion
// items.
const (
	maxExpressionBytes = 64 << 10
	maxIndexDigits     = 3 // maximum number of digits of an index
)

var largeIndex = regexp.MustCompile(fmt.Sprintf(`\[\s*[+-]?[0-9]{%d,}`, maxIndexDigits+1))
