package channel

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// A legacy module is a module without a ModuleReleaseMeta; the first releases of this project had no ModuleReleaseMeta.
// The ModuleTemplates of a legacy module contain the channel in spec.channel, and the name of the module in
// spec.moduleName or a label. The object names of the ModuleTemplates of legacy modules have no meaning. The first
// template of this table that exists is the result of a request:
//
//	1  the template in the channel or with the pinned version    if more than one matches: TemplateAmbiguous
//	2  the only template of the module, in any channel           with a pinned version: VersionNotFound
//	3  none                                                      ChannelNotFound
//
// Templates without spec.channel are ignored, because they need a ModuleReleaseMeta, which does not exist or does not
// exist yet.

// ModuleOf returns the name of the module of a template. The name is spec.moduleName if set, else the label
// v1beta2.LabelModuleName if set, else the part of the object name before the version. If the template does not name
// its module in any of these three places, ModuleOf returns "".
func ModuleOf(t *v1beta2.ModuleTemplate) string {
	before, isNamed := strings.CutSuffix(t.Name, "-"+t.Spec.Version)
	if !isNamed || t.Spec.Version == "" {
		before = ""
	}
	return cmp.Or(t.Spec.ModuleName, t.Labels[v1beta2.LabelModuleName], before)
}

// legacyTemplates returns the templates of a module that have spec.channel, sorted by name.
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

// findLegacyTemplate finds the template, the version and the component of a module that has no ModuleReleaseMeta.
func (s *search) findLegacyTemplate() *Blocker {
	pin := s.request.Version
	var fitting []*v1beta2.ModuleTemplate
	var names, channels, versions []string
	for _, t := range s.legacy {
		version, _ := versionAndComponent(t)
		if pin != "" && version == pin || pin == "" && t.Spec.Channel == s.Channel {
			fitting, names = append(fitting, t), append(names, t.Name)
		}
		if unmetRestriction(t, s.request.Beta, s.request.Internal) == "" {
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

// versionAndComponent returns the version and the OCM component of a legacy template. The version is the field
// spec.version or, if spec.version is empty, the version in the component descriptor. If spec.version is empty and the
// component descriptor contains no version, the returned version is "".
func versionAndComponent(t *v1beta2.ModuleTemplate) (version, component string) {
	var descriptor struct {
		Component struct{ Name, Version string } // schema v2
		Metadata  struct{ Name, Version string } // schema v3
	}
	if len(t.Spec.Descriptor.Raw) > 0 {
		_ = json.Unmarshal(t.Spec.Descriptor.Raw, &descriptor) // invalid fields are treated as missing
	}
	return cmp.Or(t.Spec.Version, descriptor.Component.Version, descriptor.Metadata.Version),
		cmp.Or(descriptor.Component.Name, descriptor.Metadata.Name)
}
