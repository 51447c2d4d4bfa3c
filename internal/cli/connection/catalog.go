package connection

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/admission"
)

// ChannelName matches valid names of channels.
var ChannelName = regexp.MustCompile(`^[a-z]{3,32}$`)

// Catalog has the modules of the catalog in a control plane, or of the catalog copy in a runtime.
type Catalog struct {
	Releases  map[string]*v1beta2.ModuleReleaseMeta
	Templates map[string]*v1beta2.ModuleTemplate
	// Rollouts has the ModuleRollouts of all channels that are being moved to another version, by name. Policies has
	// all RolloutPolicies. Only the method ForResolveWithRollouts uses Rollouts and Policies. If no channel is being
	// moved, Rollouts and Policies are empty.
	Rollouts map[string]*v1beta2.ModuleRollout
	Policies []v1beta2.RolloutPolicy
}

// Catalog reads the whole catalog of the cluster.
func (c *Cluster) Catalog(ctx context.Context) (*Catalog, error) {
	var releases v1beta2.ModuleReleaseMetaList
	var templates v1beta2.ModuleTemplateList
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error {
		return c.Explain(c.List(ctx, &releases, c.InNamespace()), "reading the ModuleReleaseMetas")
	})
	both.Go(func() error {
		return c.Explain(c.List(ctx, &templates, c.InNamespace()), "reading the ModuleTemplates")
	})
	if err := both.Wait(); err != nil {
		return nil, err
	}
	return NewCatalog(releases.Items, templates.Items), nil
}

// NewCatalog returns a catalog of the given objects.
func NewCatalog(releases []v1beta2.ModuleReleaseMeta, templates []v1beta2.ModuleTemplate) *Catalog {
	s := &Catalog{Releases: map[string]*v1beta2.ModuleReleaseMeta{}, Templates: map[string]*v1beta2.ModuleTemplate{}}
	for i := range releases {
		s.Releases[releases[i].Name] = &releases[i]
	}
	for i := range templates {
		s.Templates[templates[i].Name] = &templates[i]
	}
	return s
}

// ForResolve returns the catalog in the form that [channel.Resolve] needs. A flag of the manager lists the restricted
// modules, which only selected Kymas may have. Because klm cannot read this flag, ForResolve assumes that a module is
// restricted if its ModuleReleaseMeta has a selector for Kymas.
func (s *Catalog) ForResolve() channel.Catalog {
	c := channel.Catalog{
		Release:   func(module string) *v1beta2.ModuleReleaseMeta { return s.Releases[module] },
		Template:  func(name string) *v1beta2.ModuleTemplate { return s.Templates[name] },
		Templates: s.TemplatesOf,
		// klm cannot read the manager's flag for modules on the control plane, and assumes that they are allowed
		ControlPlane: channel.ControlPlaneAllowed,
	}
	for name, r := range s.Releases {
		if r.Spec.KymaSelector != nil {
			c.Restricted = append(c.Restricted, name)
		}
	}
	return c
}

// ForResolveWithRollouts returns the catalog in the form that [channel.Resolve] needs for a runtime that takes part in
// rollouts. In the returned catalog, a channel with a RolloutPolicy resolves to the version for which the rollout has
// admitted the runtime.
func (s *Catalog) ForResolveWithRollouts() channel.Catalog {
	c := s.ForResolve()
	c.Turn = admission.NewTurnFunc(admission.Lookups{
		Rollout: func(name string) *v1beta2.ModuleRollout { return s.Rollouts[name] },
		HasPolicy: func(module, of string) bool {
			policy, err := rollout.PolicyFor(s.Policies, module, of)
			return policy != nil || err != nil
		},
	})
	return c
}

// Modules returns the names of all modules, sorted.
func (s *Catalog) Modules() []string {
	var all []string
	for name := range s.Releases {
		all = append(all, name)
	}
	for _, t := range s.Templates {
		if t.Spec.Channel != "" {
			all = append(all, channel.ModuleOf(t))
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(name string) bool { return name == "" })
}

// TemplatesOf returns the ModuleTemplates of a module. The highest version is first.
func (s *Catalog) TemplatesOf(module string) []*v1beta2.ModuleTemplate {
	var all []*v1beta2.ModuleTemplate
	for _, t := range s.Templates {
		if channel.ModuleOf(t) == module {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *v1beta2.ModuleTemplate) int {
		return cmp.Or(CompareVersions(VersionOf(b), VersionOf(a)), strings.Compare(a.Name, b.Name))
	})
	return all
}

// ChannelsOf returns the names of the channels of a module.
func (s *Catalog) ChannelsOf(module string) []string {
	var all []string
	for _, c := range s.AssignmentsOf(module) {
		all = append(all, c.Channel)
	}
	return all
}

// AssignmentsOf returns the version of each channel of a module, sorted by channel.
func (s *Catalog) AssignmentsOf(module string) []v1beta2.ChannelVersion {
	var all []v1beta2.ChannelVersion
	if r := s.Releases[module]; r != nil {
		all = slices.Clone(r.Spec.Channels)
	} else {
		for _, t := range s.TemplatesOf(module) {
			if t.Spec.Channel != "" {
				all = append(all, v1beta2.ChannelVersion{Channel: t.Spec.Channel, Version: VersionOf(t)})
			}
		}
	}
	slices.SortFunc(all, func(a, b v1beta2.ChannelVersion) int { return strings.Compare(a.Channel, b.Channel) })
	return all
}

// RequireModule returns an error if the catalog does not have the module. The error suggests similar names.
func (s *Catalog) RequireModule(module string, c *Cluster) error {
	if all := s.Modules(); !slices.Contains(all, module) {
		return console.Fail(console.ExitNotFound, "module %q does not exist in the catalog of %s: %s", module, c,
			console.SuggestionText(module, all))
	}
	return nil
}

// VersionOf returns the version of the module in a ModuleTemplate.
func VersionOf(t *v1beta2.ModuleTemplate) string {
	return cmp.Or(t.Spec.Version, strings.TrimPrefix(t.Name, channel.ModuleOf(t)+"-"))
}

// VersionsOf returns the versions of a module. The highest version is first.
func (s *Catalog) VersionsOf(module string) []string {
	var all []string
	for _, t := range s.TemplatesOf(module) {
		all = append(all, VersionOf(t))
	}
	return all
}

// CompareVersions returns -1, 0 or +1 if version a is lower than, equal to or higher than version b. CompareVersions
// also returns 0 if a or b is not a semantic version.
func CompareVersions(a, b string) int {
	va, errA := semver.StrictNewVersion(a)
	vb, errB := semver.StrictNewVersion(b)
	if errA != nil || errB != nil {
		return 0
	}
	return va.Compare(vb)
}

// ReleaseMatches reports whether the ModuleReleaseMeta of a module matches a label selector.
func (s *Catalog) ReleaseMatches(selector labels.Selector, module string) bool {
	of := labels.Set{}
	if r := s.Releases[module]; r != nil {
		of = r.Labels
	}
	return selector.Matches(of)
}

// Selector returns the label selector of a listing. klm applies the selector after klm has read the objects.
func Selector(l *console.Listing) (labels.Selector, error) {
	selector, err := labels.Parse(l.Value(console.FilterLabels))
	if err != nil {
		return nil, console.Fail(console.ExitUsage, "--selector: %v", err)
	}
	return selector, nil
}
