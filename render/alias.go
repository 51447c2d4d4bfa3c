package render

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/render/helm"
	"github.com/kyma-fleet/lifecycle-manager/render/input"
)

// Types of the packages below that are a part of the API of this one.
type (
	// Settings is what a chart is rendered with.
	Settings = helm.Settings
	// Capabilities are the properties of a cluster that a chart can read.
	Capabilities = helm.Capabilities
	// Config is the part of a config layer that is about one installation.
	Config = helm.Config
	// ClientConfig are options of Helm's install action.
	ClientConfig = helm.ClientConfig
	// Limits bound what is unpacked and rendered.
	Limits = input.Limits
	// Error states what is wrong with an artefact, where, and what to do.
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
)

// Defaults of Limits and Capabilities.
const (
	DefaultMaxBytes    = input.DefaultMaxBytes
	DefaultMaxFiles    = input.DefaultMaxFiles
	DefaultKubeVersion = helm.DefaultKubeVersion
)

// Parse decodes a stream of YAML or JSON documents into objects, see [input.Parse].
func Parse(data []byte) ([]*unstructured.Unstructured, error) { return input.Parse(data) }

// ParseConfig parses a config layer, see [helm.ParseConfig].
func ParseConfig(layer []byte) ([]Config, error) { return helm.ParseConfig(layer) }

// FindConfig returns the first config with this name; its zero value if there is none.
func FindConfig(configs []Config, name string) Config { return helm.FindConfig(configs, name) }

// ParseClientConfig parses options of Helm's install action, see [helm.ParseClientConfig].
func ParseClientConfig(flags map[string]any) (ClientConfig, error) {
	return helm.ParseClientConfig(flags)
}
