package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"golang.org/x/sync/errgroup"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
)

// stock is a catalog: that of a control plane, or what a runtime sees of it.
type stock struct {
	releases  map[string]*v1beta2.ModuleReleaseMeta
	templates map[string]*v1beta2.ModuleTemplate
}

// stock reads the whole catalog.
func (c *cluster) stock(ctx context.Context) (*stock, error) {
	var releases v1beta2.ModuleReleaseMetaList
	var templates v1beta2.ModuleTemplateList
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error {
		return c.explain(c.List(ctx, &releases, c.here()), "reading the ModuleReleaseMetas")
	})
	both.Go(func() error { return c.explain(c.List(ctx, &templates, c.here()), "reading the ModuleTemplates") })
	if err := both.Wait(); err != nil {
		return nil, err
	}
	return stockOf(releases.Items, templates.Items), nil
}

func stockOf(releases []v1beta2.ModuleReleaseMeta, templates []v1beta2.ModuleTemplate) *stock {
	s := &stock{releases: map[string]*v1beta2.ModuleReleaseMeta{}, templates: map[string]*v1beta2.ModuleTemplate{}}
	for i := range releases {
		s.releases[releases[i].Name] = &releases[i]
	}
	for i := range templates {
		s.templates[templates[i].Name] = &templates[i]
	}
	return s
}

// catalog returns the stock as package channel asks it. Which modules are restricted is a flag of the manager; here it is taken from the selectors,
// which are for restricted modules only.
func (s *stock) catalog() channel.Catalog {
	c := channel.Catalog{
		Release:   func(module string) *v1beta2.ModuleReleaseMeta { return s.releases[module] },
		Template:  func(name string) *v1beta2.ModuleTemplate { return s.templates[name] },
		Templates: s.templatesOf,
	}
	for name, r := range s.releases {
		if r.Spec.KymaSelector != nil {
			c.Restricted = append(c.Restricted, name)
		}
	}
	return c
}

// modules returns the names of all modules.
func (s *stock) modules() []string {
	var all []string
	for name := range s.releases {
		all = append(all, name)
	}
	for _, t := range s.templates {
		if t.Spec.Channel != "" {
			all = append(all, channel.ModuleOf(t))
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(name string) bool { return name == "" })
}

// templatesOf returns the versions of a module, the highest first.
func (s *stock) templatesOf(module string) []*v1beta2.ModuleTemplate {
	var all []*v1beta2.ModuleTemplate
	for _, t := range s.templates {
		if channel.ModuleOf(t) == module {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *v1beta2.ModuleTemplate) int {
		return cmp.Or(compareVersions(versionOf(b), versionOf(a)), strings.Compare(a.Name, b.Name))
	})
	return all
}

// channels returns the channels of a module.
func (s *stock) channels(module string) []string {
	var all []string
	for _, c := range s.assignments(module) {
		all = append(all, c.Channel)
	}
	return all
}

// assignments returns which version each channel of a module has, by channel.
func (s *stock) assignments(module string) []v1beta2.ChannelVersion {
	var all []v1beta2.ChannelVersion
	if r := s.releases[module]; r != nil {
		all = slices.Clone(r.Spec.Channels)
	} else {
		for _, t := range s.templatesOf(module) {
			if t.Spec.Channel != "" {
				all = append(all, v1beta2.ChannelVersion{Channel: t.Spec.Channel, Version: versionOf(t)})
			}
		}
	}
	slices.SortFunc(all, func(a, b v1beta2.ChannelVersion) int { return strings.Compare(a.Channel, b.Channel) })
	return all
}

// known fails if there is no such module, and says which one may be meant.
func (s *stock) known(module string, c *cluster) error {
	if all := s.modules(); !slices.Contains(all, module) {
		return fail(exitNotFound, "there is no module %q in the catalog of %s: %s", module, c, instead(module, all))
	}
	return nil
}

// versionOf returns the version that a template describes.
func versionOf(t *v1beta2.ModuleTemplate) string {
	return cmp.Or(t.Spec.Version, strings.TrimPrefix(t.Name, channel.ModuleOf(t)+"-"))
}

// compareVersions returns -1, 0 or +1 if version a comes before, with or after b. What is not a version comes with everything.
func compareVersions(a, b string) int {
	va, errA := semver.StrictNewVersion(a)
	vb, errB := semver.StrictNewVersion(b)
	if errA != nil || errB != nil {
		return 0
	}
	return va.Compare(vb)
}
