package render

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/render/helm"
	"github.com/kyma-fleet/lifecycle-manager/render/input"
)

// With the following aliases, callers can use some types of the packages helm and input without importing these
// packages.
type (
	// Settings are the inputs for rendering a chart.
	Settings = helm.Settings
	// Capabilities are the properties of a cluster that a chart can read.
	Capabilities = helm.Capabilities
	// Config has the settings of one installation. A config layer has the settings of several installations.
	Config = helm.Config
	// ClientConfig are options of Helm's install action.
	ClientConfig = helm.ClientConfig
	// Limits limits the size of an unpacked artefact.
	Limits = input.Limits
	// Error describes a problem of an artefact, the location of the problem, and the correction.
	Error = input.Error
)

// Reasons of an Error, see package input.
const (
	InvalidYAML          = input.InvalidYAML
	InvalidObject        = input.InvalidObject
	DuplicateObject      = input.DuplicateObject
	InvalidImage         = input.InvalidImage
	InvalidArchive       = input.InvalidArchive
	ArchiveTooLarge      = input.ArchiveTooLarge
	UnsafeArchive        = input.UnsafeArchive
	InvalidChart         = input.InvalidChart
	InvalidKustomization = input.InvalidKustomization
	TemplateFailed       = input.TemplateFailed
	InvalidValues        = input.InvalidValues
	InvalidConfig        = input.InvalidConfig
	KubernetesTooOld     = input.KubernetesTooOld
	RefusedFeature       = input.RefusedFeature
	RenderTimeout        = input.RenderTimeout
	RenderMemory         = input.RenderMemory
	RenderCrashed        = input.RenderCrashed
)

// The constants are the default values of Limits and Capabilities.
const (
	DefaultMaxBytes    = input.DefaultMaxBytes
	DefaultMaxFiles    = input.DefaultMaxFiles
	DefaultKubeVersion = helm.DefaultKubeVersion
)

// Parse decodes a stream of YAML or JSON documents into objects, see [input.Parse].
func Parse(data []byte) ([]*unstructured.Unstructured, error) { return input.Parse(data) }

// CheckValueCount returns an error if a YAML or JSON document has too many values to be decoded, see
// [input.CheckValueCount].
func CheckValueCount(data []byte, limit int) error { return input.CheckValueCount(data, limit) }

// CheckAliases returns an error if the aliases of a YAML document repeat too much, see [input.CheckAliases].
func CheckAliases(data []byte, maxBytes int) error { return input.CheckAliases(data, maxBytes) }

// ParseInstallConfigs parses a config layer, see [helm.ParseInstallConfigs].
func ParseInstallConfigs(layer []byte) ([]Config, error) { return helm.ParseInstallConfigs(layer) }

// FindConfig returns the first config with the given name. If there is no such config, the result is the zero value.
func FindConfig(configs []Config, name string) Config { return helm.FindConfig(configs, name) }

// ParseClientConfig parses options of Helm's install action, see [helm.ParseClientConfig].
func ParseClientConfig(flags map[string]any) (ClientConfig, error) {
	return helm.ParseClientConfig(flags)
}
