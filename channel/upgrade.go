package channel

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel/internal/declaration"
)

// maxSteps is the maximum number of versions between the first and the last version of an upgrade path.
const maxSteps = 16

// IsWithdrawn reports whether the version of a template was withdrawn, and returns the reason.
func IsWithdrawn(t *v1beta2.ModuleTemplate) (is bool, reason string) {
	reason, is = t.Annotations[v1beta2.AnnotationWithdrawn]
	return is, reason
}

// CheckGoingBack returns nil if the ModuleTemplate of a version (parameter "from") declares that a downgrade from this
// version to another one (parameter "to") is safe. If going back is not safe, CheckGoingBack returns an error that
// explains the reason to users.
func (c *Catalog) CheckGoingBack(module, from, to string) error {
	newer := c.Template(TemplateName(module, from))
	object := "ModuleTemplate " + TemplateName(module, from)
	if newer == nil {
		return fmt.Errorf("%s does not exist, so it is not known whether going back is safe", object)
	}
	if newer.Spec.Upgrade == nil || newer.Spec.Upgrade.Back == "" {
		return fmt.Errorf("%s does not declare that going back is safe (spec.upgrade.back)", object)
	}
	if !isLower(to, from) {
		return fmt.Errorf("%s is not lower than %s", to, from)
	}
	isIn, err := declaration.InRange(to, newer.Spec.Upgrade.Back)
	switch {
	case err != nil:
		return fmt.Errorf("spec.upgrade.back of %s is not valid: %w", object, err)
	case !isIn:
		return fmt.Errorf("%s declares that going back is safe to %q only, and %s is not in this range", object,
			newer.Spec.Upgrade.Back, to)
	}
	return nil
}

// ValidateUpgradeRangesAndRisks checks the ranges and expressions in spec.upgrade of the template of a version.
func ValidateUpgradeRangesAndRisks(u *v1beta2.ModuleUpgrade) error {
	if u == nil {
		return nil
	}
	for _, f := range []struct{ name, text string }{{"from", u.From}, {"back", u.Back}} {
		if _, err := declaration.InRange("1.0.0", f.text); err != nil && f.text != "" {
			return fmt.Errorf("spec.upgrade.%s: %w", f.name, err)
		}
	}
	for i := range u.Risks {
		if err := declaration.ValidateRisk(u.Risks[i].When); err != nil {
			return fmt.Errorf("spec.upgrade.risks, %s: %w", u.Risks[i].Name, err)
		}
	}
	return nil
}

// IsInRange reports whether a version is in a range of semantic versions. IsInRange returns an error if the version or
// the range is not valid.
func IsInRange(version, versionRange string) (bool, error) {
	return declaration.InRange(version, versionRange)
}

// checkWithdrawn blocks a withdrawn version, unless the runtime already has this version.
func (s *search) checkWithdrawn() *Blocker {
	w := s.request
	is, why := IsWithdrawn(s.Template)
	if !is || s.Version == s.Installed || s.Version == w.ManifestVersion {
		return nil
	}
	if why != "" {
		why = fmt.Sprintf(" (%.256s)", why)
	}
	return newBlocker(v1beta2.ReasonVersionWithdrawn, "ModuleTemplate "+s.Template.Name,
		"version %s of module %s was withdrawn%s: choose another version, or make it available again: klm version withdraw "+
			"%s %s --undo", s.Version, s.Module, why, s.Module, s.Version)
}

// takeUpgradePath checks that the requested version can be installed on top of the installed version. If the version
// cannot be reached directly, the first version of the shortest upgrade path becomes the version of the Decision, and
// Goal becomes the requested version. While one version of the upgrade path is being installed, the next version of the
// path has to wait.
func (s *search) takeUpgradePath() *Blocker {
	installed, ordered := s.Installed, s.request.ManifestVersion
	if installed == "" || s.meta == nil || !isLower(installed, s.Version) || s.Version == ordered {
		return nil
	}
	isOpen, err := s.installsOnTopOf(s.Template, installed, ordered)
	switch {
	case err != nil:
		return newBlocker(v1beta2.ReasonUpgradeInvalid, "ModuleTemplate "+s.Template.Name,
			"spec.upgrade.from of version %s of module %s is not valid: %s", s.Version, s.Module, err.Error())
	case isOpen:
		return nil
	}
	step := s.firstStepOfUpgradePath(installed, ordered)
	if step == nil {
		return newBlocker(v1beta2.ReasonEdgeMissing, "ModuleTemplate "+s.Template.Name,
			"version %s of module %s can be installed on top of %q only, version %s is installed, and no versions that this "+
				"runtime may have make a way: publish a version in this range that can be installed on top of %s, or "+
				"extend spec.upgrade.from of %s",
			s.Version, s.Module, s.Template.Spec.Upgrade.From, installed, installed, s.Template.Name)
	}
	s.Goal, s.Version, s.Template = s.Version, step.Spec.Version, step
	return nil
}

// installsOnTopOf reports whether the version of a template can be installed on top of each of the given versions.
func (s *search) installsOnTopOf(t *v1beta2.ModuleTemplate, versions ...string) (bool, error) {
	if t.Spec.Upgrade == nil || t.Spec.Upgrade.From == "" {
		return true, nil
	}
	for _, v := range versions {
		if v == "" {
			continue
		}
		if isIn, err := declaration.InRange(v, t.Spec.Upgrade.From); err != nil || !isIn {
			return false, err
		}
	}
	return true, nil
}

// firstStepOfUpgradePath returns the template of the first version on the shortest upgrade path from the installed
// version to the requested version, or nil if there is no path. If two paths have the same length,
// firstStepOfUpgradePath takes the path with the higher version. A path contains no version that this runtime must not
// have: rule 11 would remove the module because of a version that nobody requested.
func (s *search) firstStepOfUpgradePath(installed, manifestVersion string) *v1beta2.ModuleTemplate {
	if s.catalog.Templates == nil {
		return nil
	}
	var between []*v1beta2.ModuleTemplate
	for _, t := range s.catalog.Templates(s.Module) {
		withdrawn, _ := IsWithdrawn(t)
		isAllowed := s.request.Mandatory || unmetRestriction(t, s.request.Beta, s.request.Internal) == ""
		usable := !withdrawn && isAllowed || t.Spec.Version == manifestVersion
		if usable && t.Name == TemplateName(s.Module, t.Spec.Version) && isLower(installed, t.Spec.Version) &&
			isLower(t.Spec.Version, s.Version) {
			between = append(between, t)
		}
	}
	slices.SortFunc(between, func(a, b *v1beta2.ModuleTemplate) int {
		return cmp.Or(compareVersions(b.Spec.Version, a.Spec.Version), strings.Compare(a.Name, b.Name))
	})
	// reached has the versions from which the requested version can be reached, the nearest one first.
	reached, seen := []*v1beta2.ModuleTemplate{s.Template}, map[string]bool{}
	for range maxSteps {
		var next []*v1beta2.ModuleTemplate
		for _, t := range between {
			leads := !seen[t.Name] && slices.ContainsFunc(reached, func(after *v1beta2.ModuleTemplate) bool {
				isOpen, err := s.installsOnTopOf(after, t.Spec.Version)
				return isOpen && err == nil && isLower(t.Spec.Version, after.Spec.Version)
			})
			if !leads {
				continue
			}
			seen[t.Name] = true
			next = append(next, t)
		}
		for _, t := range next {
			if t.Spec.Version == manifestVersion {
				return t // it is under way
			}
		}
		for _, t := range next {
			if isOpen, err := s.installsOnTopOf(t, installed, manifestVersion); isOpen && err == nil {
				return t
			}
		}
		if len(next) == 0 {
			return nil
		}
		reached = next
	}
	return nil
}

// factLabels are the labels of a Kyma that expressions know by short names. A maintenance policy uses the same short
// names, except provider, which it does not know.
var factLabels = map[string]string{"region": v1beta2.LabelRegion, "platformRegion": v1beta2.LabelPlatformRegion,
	"plan": v1beta2.LabelBrokerPlanName, "provider": v1beta2.LabelProvider}

// riskFactsOf returns what an expression can use about a runtime. A fact that is not known is omitted, so that the
// evaluation of an expression that needs it fails.
func (s *search) riskFactsOf(w *Request) map[string]any {
	facts := map[string]any{"labels": nonNilLabels(w.Labels), "kyma": w.Kyma, "channel": s.Channel,
		"installed": s.Installed}
	for name, label := range factLabels {
		if value, found := w.Labels[label]; found {
			facts[name] = value
		}
	}
	if v, err := semver.NewVersion(w.KubernetesVersion); err == nil && v.Major() <= math.MaxInt32 &&
		v.Minor() <= math.MaxInt32 {
		facts["k8s.major"], facts["k8s.minor"] = int64(v.Major()), int64(v.Minor()) //nolint:gosec // they are limited
	}
	return facts
}

// checkKnownRisks blocks a version that has a known problem in runtimes like this one. If the expression of a risk
// cannot be evaluated for the runtime, the version is blocked as if the risk applied.
func (s *search) checkKnownRisks() *Blocker {
	w, u := s.request, s.Template.Spec.Upgrade
	if u == nil || s.Version == s.Installed || s.Version == w.ManifestVersion {
		return nil
	}
	facts := s.riskFactsOf(&w)
	for i := range u.Risks {
		r := &u.Risks[i]
		is, err := declaration.EvaluateRisk(r.When, facts)
		if !is && err == nil {
			continue
		}
		has, about := "has", fmt.Sprintf("%.512s", r.Message)
		if r.URL != "" {
			about += fmt.Sprintf(" (%.512s)", r.URL)
		}
		if err != nil {
			has = "may have"
			about = fmt.Sprintf("its condition cannot be evaluated for this runtime: %.256s: %s", err.Error(), about)
		}
		return newBlocker(v1beta2.ReasonKnownRisk, "ModuleTemplate "+s.Template.Name,
			"version %s of module %s %s the known risk %s in this runtime: %s", s.Version, s.Module, has, r.Name, about)
	}
	return nil
}

func nonNilLabels(set map[string]string) map[string]string {
	if set == nil {
		return map[string]string{}
	}
	return set
}
