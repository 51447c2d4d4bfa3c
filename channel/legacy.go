package channel

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Modules of the first releases have no ModuleReleaseMeta; they are called legacy modules here. Their ModuleTemplates
// have the channel in spec.channel, and the name of the module in spec.moduleName or a label. Names of the objects do
// not matter. A request is resolved to this template:
//
//	1  the one in the channel, or with the pinned version    more than one: TemplateAmbiguous
//	2  the only one of the module, in its channel            with a pinned version: VersionNotFound
//	3  none                                                  ChannelNotFound
//
// Templates without spec.channel do not count: they need a ModuleReleaseMeta, which does not exist, or not yet.

// ModuleOf returns the name of the module of a template: spec.moduleName, else the label v1beta2.LabelModuleName, else
// the part of the object's name before the version. "" if it has none of these.
func ModuleOf(t *v1beta2.ModuleTemplate) string {
	before, isNamed := strings.CutSuffix(t.Name, "-"+t.Spec.Version)
	if !isNamed || t.Spec.Version == "" {
		before = ""
	}
	return cmp.Or(t.Spec.ModuleName, t.Labels[v1beta2.LabelModuleName], before)
}

// legacyTemplates returns the templates of a module that name their channel themselves, sorted by name.
func (c *Catalog) legacyTemplates(module string) []*v1beta2.ModuleTemplate {
	if c.Templates == nil {
		return nil
	}
	var found []*v1beta2.ModuleTemplate
	for _, t := range c.Templates(module) {
		if isLegacy(t) && ModuleOf(t) == module {
			found = append(found, t)
		}
	}
	slices.SortFunc(found, byName)
	return found
}

func isLegacy(t *v1beta2.ModuleTemplate) bool { return t.Spec.Channel != "" }

func byName(a, b *v1beta2.ModuleTemplate) int { return strings.Compare(a.Name, b.Name) }

// findLegacyVersion finds template, version and component of a module that has no ModuleReleaseMeta.
func (s *search) findLegacyVersion() *Blocker {
	pin := s.request.Version
	var fitting []*v1beta2.ModuleTemplate
	var names, channels, versions []string
	for _, t := range s.legacy {
		version, _ := versionAndComponent(t)
		if pin != "" && version == pin || pin == "" && t.Spec.Channel == s.Channel {
			fitting, names = append(fitting, t), append(names, t.Name)
		}
		if missingRight(t, s.request.Beta, s.request.Internal) == "" {
			channels, versions = append(channels, t.Spec.Channel), append(versions, version)
		}
	}
	switch {
	case len(fitting) > 1:
		return newBlocker(v1beta2.ReasonTemplateAmbiguous, "ModuleTemplate "+names[0],
			"module %s has more than one ModuleTemplate for %s: remove all but one of %s, or create a "+
				"ModuleReleaseMeta",
			s.Module, cmp.Or(pin, "channel "+s.Channel), joinChoices(names))
	case len(fitting) == 0 && pin != "":
		return newBlocker(v1beta2.ReasonVersionNotFound, "ModuleTemplate "+TemplateName(s.Module, pin),
			"module %s has no version %s: choose one of %s", s.Module, pin, joinChoices(versions))
	case len(fitting) == 0 && len(s.legacy) > 1:
		slices.Sort(channels)
		return newBlocker(v1beta2.ReasonChannelNotFound, "ModuleTemplate "+s.legacy[0].Name,
			"module %s has no channel %q: choose one of %s", s.Module, s.Channel, joinChoices(slices.Compact(channels)))
	case len(fitting) == 0:
		fitting = s.legacy
	}
	s.Template = fitting[0]
	if pin == "" {
		s.Channel = s.Template.Spec.Channel
	}
	s.Version, s.Component = versionAndComponent(s.Template)
	return nil
}

// versionAndComponent returns version and OCM component of a legacy template: the version of spec, else that of the
// component descriptor; "" for what neither contains.
func versionAndComponent(t *v1beta2.ModuleTemplate) (version, component string) {
	var descriptor struct {
		Component struct{ Name, Version string } // schema v2
		Metadata  struct{ Name, Version string } // schema v3
	}
	if len(t.Spec.Descriptor.Raw) > 0 {
		_ = json.Unmarshal(t.Spec.Descriptor.Raw, &descriptor) // invalid fields count as missing
	}
	return cmp.Or(t.Spec.Version, descriptor.Component.Version, descriptor.Metadata.Version),
		cmp.Or(descriptor.Component.Name, descriptor.Metadata.Name)
}
