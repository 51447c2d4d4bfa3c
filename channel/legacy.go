package channel

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Modules of the first releases have no ModuleReleaseMeta. Their ModuleTemplates name the channel in spec.channel, and the module in
// spec.moduleName or a label; object names do not matter. Which template a wish gets:
//
//	1  the one in the channel, or with the pinned version    more than one: TemplateAmbiguous
//	2  the only one that the module has, in its channel      a pin: VersionNotFound
//	3  none                                                  ChannelNotFound
//
// Templates without spec.channel do not count: they are described by a ModuleReleaseMeta that is missing or not there yet.

// ModuleOf returns the name of the module that a template is a version of: spec.moduleName, else the label
// v1beta2.LabelModuleName, else what its name has before the version. "" if nothing says it.
func ModuleOf(t *v1beta2.ModuleTemplate) string {
	before, isNamed := strings.CutSuffix(t.Name, "-"+t.Spec.Version)
	if !isNamed || t.Spec.Version == "" {
		before = ""
	}
	return cmp.Or(t.Spec.ModuleName, t.Labels[v1beta2.LabelModuleName], before)
}

// early returns the templates of a module that name their channel, by name.
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

// earlyVersion finds template, version and component of a module that has no release.
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
			"module %s has more than one ModuleTemplate for %s: remove all but one of %s, or create a ModuleReleaseMeta",
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

// coordinates returns version and OCM component of an early template: the version is that of spec, else that of the descriptor. ""
// for what neither says.
func versionAndComponent(t *v1beta2.ModuleTemplate) (version, component string) {
	var descriptor struct {
		Component struct{ Name, Version string } // schema v2
		Metadata  struct{ Name, Version string } // schema v3
	}
	if len(t.Spec.Descriptor.Raw) > 0 {
		_ = json.Unmarshal(t.Spec.Descriptor.Raw, &descriptor) // any object may be there: what is not said is missing
	}
	return cmp.Or(t.Spec.Version, descriptor.Component.Version, descriptor.Metadata.Version),
		cmp.Or(descriptor.Component.Name, descriptor.Metadata.Name)
}
