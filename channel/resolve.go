// Package channel answers, for one module of one runtime, which version it should have now, or why none.
//
// # Use
//
//	d := channel.Resolve(catalog, channel.Wish{Module: "keda", Channel: "fast", Installed: "1.2.0"})
//	if d.Blocker != nil { … d.Blocker.Reason() … }
//
// # How it works
//
// A wish names a module and a channel or a version. The ModuleReleaseMeta of the module turns a channel into a version; the
// ModuleTemplate named <module>-<version> describes that version. Rules, in this order; the first that fails is the blocker:
//
//	1  channel and version are not both given       InvalidWish
//	2  a ModuleReleaseMeta exists                   ModuleNotFound
//	3  the module is not mandatory                  ModuleNotAllowed
//	4  the channel exists in it                     ChannelNotFound
//	5  it names an OCM component                    InvalidRelease
//	6  the ModuleTemplate exists                    TemplateNotFound
//	7  template and runtime agree on beta, internal ModuleNotAllowed
//	8  the version is not lower than the installed  DowngradeRefused
//
// # What it does not do
//
// It is pure: no client, no clock, no goroutine. It knows one module at a time and never looks at dependencies between modules.
package channel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Catalog is where releases and templates are looked up. A lookup that finds nothing returns nil.
type Catalog struct {
	// Release returns the ModuleReleaseMeta of a module by its name.
	Release func(module string) *v1beta2.ModuleReleaseMeta
	// Template returns a ModuleTemplate by its object name, <module>-<version>.
	Template func(name string) *v1beta2.ModuleTemplate
}

// Wish is what one runtime asks for.
type Wish struct {
	// Module is the name of the module.
	Module string
	// Channel is the release channel: that of the module, else that of the Kyma, else the default.
	Channel string
	// Version pins a version instead; then Channel is not asked.
	Version string
	// Beta and Internal say what the runtime takes part in.
	Beta, Internal bool
	// Installed is the version that the runtime has now, "" if none.
	Installed string
	// Downgrade allows a version lower than Installed.
	Downgrade bool
}

// Decision is the answer to a Wish.
type Decision struct {
	// Channel is where the version comes from; "" for a pinned one.
	Channel string
	// Version is the desired version; "" if it could not be found out.
	Version string
	// Component is the name of the OCM component.
	Component string
	// Template describes the version; nil with a Blocker.
	Template *v1beta2.ModuleTemplate
	// Blocker says why the wish is not fulfilled; nil if it is.
	Blocker *Blocker
}

// Blocker is a typed reason why something does not move on.
type Blocker struct {
	// Code is one of the reasons in the package comment.
	Code string
	// Object names what has to change, as kind and name.
	Object string
	// Message says what is wrong and what to do.
	Message string
	// Keep says that what is installed stays and stays served; otherwise nothing may be installed.
	Keep bool
}

// Error returns Message, so that a Blocker is an error.
func (b *Blocker) Error() string { return b.Message }

// Reason returns Code.
func (b *Blocker) Reason() string { return b.Code }

// TemplateName returns the name of the ModuleTemplate that describes a version of a module.
func TemplateName(module, version string) string { return module + "-" + version }

// Resolve answers a wish. See the package comment for the rules.
func Resolve(c Catalog, w Wish) Decision {
	d := Decision{Channel: w.Channel}
	block := func(code, object, format string, args ...any) Decision {
		d.Template = nil
		d.Blocker = &Blocker{Code: code, Object: object, Message: fmt.Sprintf(format, args...), Keep: true}
		return d
	}
	if w.Channel != "" && w.Version != "" {
		return block(v1beta2.ReasonInvalidWish, "module "+w.Module,
			"module %s asks for channel %q and version %q: ask for one of them", w.Module, w.Channel, w.Version)
	}
	release := c.Release(w.Module)
	if release == nil {
		return block(v1beta2.ReasonModuleNotFound, "ModuleReleaseMeta "+w.Module,
			"there is no module %q: check the name, or create its ModuleReleaseMeta", w.Module)
	}
	object := "ModuleReleaseMeta " + release.Name
	if release.Spec.Mandatory != nil {
		return block(v1beta2.ReasonModuleNotAllowed, object,
			"module %s is mandatory: it is installed everywhere and cannot be enabled here; remove it from spec.modules", w.Module)
	}
	d.Version = w.Version
	if d.Version == "" {
		d.Version = versionIn(release, w.Channel)
	}
	if d.Version == "" {
		return block(v1beta2.ReasonChannelNotFound, object,
			"module %s has no channel %q: choose one of %s", w.Module, w.Channel, channelsOf(release))
	}
	d.Component = release.Spec.OCMComponentName
	if d.Component == "" {
		return block(v1beta2.ReasonInvalidRelease, object,
			"the ModuleReleaseMeta of module %s names no OCM component: set spec.ocmComponentName", w.Module)
	}
	name := TemplateName(w.Module, d.Version)
	d.Template = c.Template(name)
	if d.Template == nil {
		return block(v1beta2.ReasonTemplateNotFound, "ModuleTemplate "+name,
			"there is no ModuleTemplate %s for version %s of module %s: publish it, or let the channel point elsewhere", name, d.Version, w.Module)
	}
	if b := allowed(w, d.Template); b != "" {
		d := block(v1beta2.ReasonModuleNotAllowed, "ModuleTemplate "+name,
			"version %s of module %s is %s, and this runtime does not take part: label the Kyma, or choose another channel", d.Version, w.Module, b)
		d.Blocker.Keep = false
		return d
	}
	if lower(d.Version, w.Installed) && !w.Downgrade {
		return block(v1beta2.ReasonDowngradeRefused, "module "+w.Module,
			"version %s of module %s is installed and %s would be a downgrade: choose a channel with a higher version, or remove the module first", w.Installed, w.Module, d.Version)
	}
	return d
}

func versionIn(release *v1beta2.ModuleReleaseMeta, channel string) string {
	for _, c := range release.Spec.Channels {
		if c.Channel == channel {
			return c.Version
		}
	}
	return ""
}

func channelsOf(release *v1beta2.ModuleReleaseMeta) string {
	var names []string
	for _, c := range release.Spec.Channels {
		names = append(names, c.Channel)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// allowed returns what keeps the runtime from a template, "" if nothing does.
func allowed(w Wish, t *v1beta2.ModuleTemplate) string {
	switch {
	case t.Spec.Mandatory:
		return "mandatory"
	case t.IsInternal() && !w.Internal:
		return "internal"
	case t.IsBeta() && !w.Beta:
		return "beta"
	}
	return ""
}

// lower tells whether version a comes before b by semantic versioning. What is not a version cannot be compared and is not lower.
func lower(a, b string) bool {
	if b == "" {
		return false
	}
	va, errA := semver.StrictNewVersion(a)
	vb, errB := semver.StrictNewVersion(b)
	return errA == nil && errB == nil && va.LessThan(vb)
}
