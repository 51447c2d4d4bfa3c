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

// Config is what a config layer says about one installation.
type Config struct {
	// Name of the installation that it is for.
	Name string
	// Values are overrides that were given as a YAML map or document; nil means none.
	Values []byte
	// Set are overrides in the syntax of --set; "" means none.
	Set string
	// Client is what clientConfig says.
	Client ClientConfig
}

// ApplyTo returns settings with what the config says in their place.
func (c Config) ApplyTo(settings Settings) Settings {
	if c.Values != nil {
		settings.Values = c.Values
	}
	if c.Set != "" {
		settings.Set = append(slices.Clone(settings.Set), c.Set)
	}
	return c.Client.ApplyTo(settings)
}

// ClientConfig are the options of Helm's install action that mean something here, under the names of its fields.
type ClientConfig struct {
	// Namespace and ReleaseName go into Settings.
	Namespace, ReleaseName string
	// CreateNamespace, DisableHooks and SkipCRDs go into Settings.
	CreateNamespace, DisableHooks, SkipCRDs bool
	// Wait asks to wait for readiness, WaitForJobs for Jobs too, at most for Timeout. It is for the caller to do.
	Wait, WaitForJobs bool
	Timeout           time.Duration
	// Version is the version of the chart, exact or a range, and Devel admits pre-releases. They are for whoever finds the chart.
	Version string
	Devel   bool
	// Ignored are the names of other options, sorted. They are accepted and do nothing.
	Ignored []string
}

// ApplyTo returns settings with what the options say in their place.
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

// ParseConfig reads a config layer:
//
//	configs:
//	- name: redis                                       # of the installation
//	  overrides: replica.count=2,auth.enabled=false     # --set syntax, a map of values, or a text with a YAML document
//	  clientConfig: CreateNamespace=true,Timeout=10s    # --set syntax or a map
//
// Both overrides and clientConfig may be missing, and other keys are passed over. An empty layer holds no configs. The layer
// may be compressed. Where a name is there twice, the first counts, as [FindConfig] does it.
//
// Errors have reason InvalidConfig, InvalidValues, InvalidArchive or ArchiveTooLarge.
func ParseConfig(layer []byte) ([]Config, error) {
	data, err := input.Decompress(layer, maxConfigBytes)
	if err != nil {
		return nil, err
	}
	refuse := func(format string, args ...any) error {
		return &input.Error{Operation: operationConfig, Code: input.InvalidConfig, Problem: fmt.Sprintf(format, args...)}
	}
	tree, err := input.Decode(data)
	if err != nil {
		return nil, withConfig(err)
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
		return nil, refuse("configs is not a list: make it one")
	}
	var configs []Config
	for i, item := range list {
		element, ok := item.(map[string]any)
		if !ok {
			return nil, refuse("configs[%d] is not a map: it needs name, overrides and clientConfig", i)
		}
		name, ok := element["name"].(string)
		if !ok || name == "" {
			return nil, refuse("configs[%d] has no name: give it that of the installation it is for", i)
		}
		config := Config{Name: name}
		if config.Values, config.Set, err = overrides(element["overrides"]); err == nil {
			config.Client, err = clientConfig(element["clientConfig"])
		}
		if err != nil {
			return nil, fmt.Errorf("configs[%d], of %q: %w", i, name, err)
		}
		configs = append(configs, config)
	}
	return configs, nil
}

// maxConfig bounds an unpacked config layer. What is larger belongs into the chart.
const maxConfigBytes = 1 << 20

// doingConfig begins the text of every error about a config layer.
const operationConfig = "reading the config layer"

func withConfig(err error) error {
	if e, ok := errors.AsType[*input.Error](err); ok {
		e.Operation, e.Code = operationConfig, input.InvalidConfig
	}
	return err
}

// FindConfig returns the first config with this name; its zero value if there is none.
func FindConfig(configs []Config, name string) Config {
	for _, c := range configs {
		if c.Name == name {
			return c
		}
	}
	return Config{}
}

// overrides reads the overrides of one config and checks that they can be used.
func overrides(value any) (document []byte, set string, err error) {
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
		return nil, "", &input.Error{Operation: operationConfig, Code: input.InvalidConfig, Problem: "overrides is neither a text nor a map: write it as path=value,path=value or as a map of values"}
	}
	settings := Settings{Values: document}
	if set != "" {
		settings.Set = []string{set}
	}
	_, err = settings.values()
	return document, set, err
}

// clientConfig reads the clientConfig of one config.
func clientConfig(value any) (ClientConfig, error) {
	switch value := value.(type) {
	case nil:
		return ClientConfig{}, nil
	case map[string]any:
		return ParseClientConfig(value)
	case string:
		flags := map[string]any{}
		if err := parseSet(value, flags); err != nil {
			return ClientConfig{}, &input.Error{Operation: operationConfig, Code: input.InvalidConfig, Problem: "clientConfig is not of the form Name=value,Name=value: correct it", Cause: err}
		}
		return ParseClientConfig(flags)
	}
	return ClientConfig{}, &input.Error{Operation: operationConfig, Code: input.InvalidConfig, Problem: "clientConfig is neither a text nor a map: write it as Name=value,Name=value"}
}

// ParseClientConfig reads options by the names of the fields of Helm's install action, such as "CreateNamespace": true.
// A time is a [time.Duration], a text such as 10s, or a number of nanoseconds. Names that mean nothing here are in
// Ignored. The error has reason InvalidConfig and names the option.
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
		case "IncludeCRDs": // of helm template; CRDs are always included
			_, ok = value.(bool)
		case "Wait":
			c.Wait, ok = value.(bool)
		case "WaitForJobs":
			c.WaitForJobs, ok = value.(bool)
		case "Timeout":
			c.Timeout, ok = duration(value)
		case "Version":
			c.Version, ok = textOf(value)
		case "Devel":
			c.Devel, ok = value.(bool)
		default:
			c.Ignored = append(c.Ignored, name)
		}
		if !ok {
			return ClientConfig{}, &input.Error{Operation: operationConfig, Code: input.InvalidConfig, Problem: fmt.Sprintf("unsupported flag value: %s cannot be %q: correct it", name, fmt.Sprint(value))}
		}
	}
	return c, nil
}

// text reads a text that may look like a number, such as the version 1.2.
func textOf(value any) (string, bool) {
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

// Bounds of an expression in the syntax of --set. Its parser makes room for every index before it knows of a value.
const (
	maxExpressionBytes = 64 << 10
	maxIndexDigits     = 3 // digits
)

var largeIndex = regexp.MustCompile(fmt.Sprintf(`\[\s*[+-]?[0-9]{%d,}`, maxIndexDigits+1))
