// Package channel decides which version of a module a runtime should have now, or why it should have none.
//
// # Use
//
//	request := channel.RequestFor(kyma, runtimeKyma, &module) // or one of channel.MandatoryRequests(catalog, kyma)
//	request.Installed, request.ManifestVersion, request.Now = "1.2.0", "1.2.0", now
//	decision := channel.Resolve(catalog, request)
//	if decision.Blocker != nil { … decision.Blocker.Reason() … }
//
// # How it works
//
// A Request names a module and either a channel or a version. The ModuleReleaseMeta of the module maps a channel to a
// version. The ModuleTemplate named <module>-<version> describes that version. A module without a ModuleReleaseMeta is
// a legacy module: its ModuleTemplates contain their channel, see legacy.go. Resolve checks the following rules in
// their order. The first rule that is not met determines the Blocker of the request:
//
//	 1  neither the Kyma nor the module is paused,     KymaPaused, ModulePaused
//	    and a mandatory module is defined only once    ModuleConflict
//	 2  channel and version are valid, not both set    InvalidModuleRequest
//	 3  a ModuleReleaseMeta or a template exists       ModuleNotFound
//	 4  the module is not mandatory                    ModuleNotAllowed
//	 5  a restricted module selects this Kyma          ModuleNotAllowed
//	 6  the channel or the pinned version exists, and  ChannelNotFound, VersionNotFound, TemplateAmbiguous
//	    it is known which version the channel has for
//	    this runtime                                   WaitingForRollout
//	 7  the release has an OCM component and a version InvalidRelease
//	 8  the ModuleTemplate exists                      TemplateNotFound, VersionNotFound
//	 9  the version is not withdrawn                   VersionWithdrawn
//	10  the version can be installed on top of the
//	    installed one, or through other versions       EdgeMissing, UpgradeInvalid
//	11  the template is not for mandatory modules, and
//	    the runtime may have beta or internal modules  ModuleNotAllowed
//	12  the registry has the recorded content of the
//	    version, or a person has accepted the new one  VersionReplaced
//	13  the target of the template may be used,        ControlPlaneNotAllowed
//	    and is where the module is installed           TargetChanged
//	14  the version is not lower than the installed,
//	    or a rollout takes the runtime back            DowngradeRefused, RestoredOlder
//	15  the version has no known risk in this runtime  KnownRisk
//	16  the admin of the runtime has not deferred the  UpdateDeferred, DeferralInvalid
//	    update, or not as long as the rollout allows
//	17  the window of an update with downtime is open  WaitingForWindow, WindowUnknown
//
// If the version can be reached only through intermediate versions (rule 10), the first intermediate version becomes
// the version of the Decision, and the later rules apply to the intermediate version. A version that the runtime
// already has is not blocked by a withdrawal (rule 9) or a known risk (rule 15).
//
// While a rollout moves a channel, the channel has different versions for different runtimes (Catalog.Turn). A runtime
// that the rollout has not admitted yet is not blocked: it gets the former version, and Decision.Turn states what the
// runtime waits for.
//
// The control plane, not a user, requests mandatory modules. For such a request, rule 4 requires that the module is
// mandatory, and the rules about access rights, deferrals and maintenance windows (5, 11, 16 and 17) are skipped.
//
// If a request has a Blocker, the installed version stays, and the manager still corrects drift of its objects. Only a
// module that the runtime may not have any more is removed in spite of a Blocker. A runtime loses the right to have a
// module if the labels of its Kyma are not selected any more (rule 5), or if it may not have beta or internal modules
// any more (rule 11).
//
// A downgrade is a change to a version of lower precedence by semantic versioning. For example, 2.0.0-rc.1 precedes
// 2.0.0; build metadata is ignored. The annotation v1beta2.AnnotationAllowDowngrade allows a downgrade. Pinning a
// version does not allow a downgrade, because a person may pin a lower version than the installed one by accident.
//
// Two further decisions are made in package channel, because they must be consistent with Resolve. Policy decides when
// the maintenance window is. CatalogCopyFor decides which part of the catalog is copied to a runtime.
//
// # What it does not do
//
// The package is pure: it has no client, no clock and no goroutine. The package resolves one module at a time and
// ignores dependencies between modules. Package time looks up the names of time zones, so a program must import
// time/tzdata if it runs without a time zone database.
package channel

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Catalog looks up releases and templates, and contains the settings for all runtimes. A lookup function returns nil if
// it finds nothing. The returned objects must not be changed.
type Catalog struct {
	// Release returns the ModuleReleaseMeta of a module by the name of the module. Release must be set.
	Release func(module string) *v1beta2.ModuleReleaseMeta
	// Template returns a ModuleTemplate by its object name, <module>-<version>. Template must be set.
	Template func(name string) *v1beta2.ModuleTemplate
	// Templates returns the ModuleTemplates of a module in any order. A ModuleTemplate belongs to the module whose name
	// ModuleOf returns. Templates is called only in two cases: for modules without a ModuleReleaseMeta, and to list
	// versions in a message. If Templates is nil, legacy modules are not found.
	Templates func(module string) []*v1beta2.ModuleTemplate
	// Mandatory returns the ModuleReleaseMetas of mandatory modules in any order. The package ignores
	// ModuleReleaseMetas that are not mandatory if Mandatory returns them, too. If Mandatory is nil, there are no
	// mandatory modules.
	Mandatory func() []*v1beta2.ModuleReleaseMeta
	// Restricted lists the names of restricted modules. The ModuleReleaseMeta of a restricted module selects the Kymas
	// that may have the module by spec.kymaSelector.
	Restricted []string
	// Policy defines when updates that need a downtime may start. Nil means that there is no policy. Without a policy,
	// an update that needs a window starts only with spec.skipMaintenanceWindows.
	Policy *Policy
	// ControlPlane defines whether templates with target control-plane are accepted. With the zero value of
	// ControlPlane, Resolve refuses templates with target control-plane.
	ControlPlane ControlPlane
	// Turn returns which version a channel has for one runtime while a rollout moves the channel. Turn is called with
	// the release of the module and with a request that pins no version. If Turn is nil, a channel has the same version
	// for every runtime.
	Turn func(release *v1beta2.ModuleReleaseMeta, r Request) Turn
}

// Turn is the version that a channel has for one runtime.
type Turn struct {
	// Version is the version for this runtime. "" means that the version is not known yet; in this case Waiting is set.
	Version string
	// Waiting states why Version differs from the version that the channel has in the ModuleReleaseMeta. Waiting is nil
	// if Version is the version in the ModuleReleaseMeta.
	Waiting *Blocker
	// Rollout has the form "ROLLOUT/STAGE": the names of the ModuleRollout and the stage that order Version; see
	// v1beta2.AnnotationRollout. Rollout is "" if the runtime does not get Version by a rollout with stages.
	Rollout string
	// RuntimeDeadline is the time within which a runtime has to become Ready with Version. RuntimeDeadline is set if
	// Rollout is set.
	RuntimeDeadline time.Duration
	// IsBack means that Version may be lower than the installed version: the installed version declares that going back
	// is safe, and the rollout takes the runtime back.
	IsBack bool
	// DeferUntil is the latest time until which the admin of the runtime may defer the version. If DeferUntil is the
	// zero time, the admin may not defer the version.
	DeferUntil time.Time
	// IgnoreWindows means that the rollout is an emergency, so it does not wait for maintenance windows.
	IgnoreWindows bool
	// IsCorrection means that this rollout corrects an earlier one: the runtime has a version whose rollout was not
	// completed. A module that already fails before this rollout is excused (its failure does not count against the
	// rollout). If the earlier rollout was superseded by this rollout (has the same lineage), a failing module is
	// excused only if the earlier rollout had excused the module, too.
	IsCorrection bool
}

// ControlPlane defines how modules for the control plane itself are handled.
type ControlPlane string

const (
	// ControlPlaneRefused means that the manager installs no module on the control plane.
	ControlPlaneRefused ControlPlane = ""
	// ControlPlaneAllowed means that modules with target control-plane are installed on the control plane.
	ControlPlaneAllowed ControlPlane = "allowed"
	// ControlPlaneIsRuntime means that the control plane is the only runtime (in-cluster mode), so the targets remote
	// and control-plane are the same cluster.
	ControlPlaneIsRuntime ControlPlane = "runtime"
)

// ControlPlaneModulesMode returns how modules for the control plane are handled. isRuntime is true in in-cluster mode.
// isAllowed is true if an administrator allows modules on the control plane.
func ControlPlaneModulesMode(isInClusterMode, isAllowed bool) ControlPlane {
	switch {
	case isInClusterMode:
		return ControlPlaneIsRuntime
	case isAllowed:
		return ControlPlaneAllowed
	}
	return ControlPlaneRefused
}

// Request describes a module that one runtime requests, and which version of it is installed.
type Request struct {
	// Kyma is the name of the Kyma in the control plane. A rollout lists the runtimes that it admits by the names of
	// their Kymas.
	Kyma string
	// Module is the name of the module.
	Module string
	// Channel is the release channel. Channel is the channel of the module if set, else the channel of the Kyma if set,
	// else the default channel.
	Channel string
	// Version is the pinned version. If Version is set, Channel is empty.
	Version string
	// Mandatory means that the control plane requests the module for every runtime. For a mandatory module, Channel and
	// Version are empty.
	Mandatory bool
	// Blocker blocks the module whatever the catalog contains, for example because of a pause or a conflict. If Blocker
	// is nil, only the catalog decides about the module.
	Blocker *Blocker
	// Labels are the labels of the Kyma in the control plane. The selectors of modules and the rules of the maintenance
	// policy match the Labels.
	Labels map[string]string
	// KubernetesVersion is the version of Kubernetes in the runtime, such as v1.34.2, or "" if it is not known. The CEL
	// expressions for the known risks of a version can use KubernetesVersion.
	KubernetesVersion string
	// Beta and Internal report whether the runtime may have beta and internal modules.
	Beta, Internal bool
	// Installed is the version that the runtime has now, or "" if it has none.
	Installed string
	// ManifestVersion is the version in the spec of the Manifest. ManifestVersion equals Installed, or, during an
	// update, it is the new version. ManifestVersion is "" if the version is unknown or no Manifest exists. An update
	// in progress needs no maintenance window any more. Such an update may have changed objects already, so Resolve
	// treats a return to the version in the field Installed as a downgrade.
	ManifestVersion string
	// IsRestored means that Installed was found in the runtime after the control plane was restored from an older
	// state.
	IsRestored bool
	// Target is the cluster on which the module is installed, or "" if the module is not installed.
	Target v1beta2.Target
	// AllowDowngrade allows a version that is lower than Installed or ManifestVersion.
	AllowDowngrade bool
	// NotBefore is the value of v1beta2.AnnotationNotBefore for this module, or "" if there is none.
	NotBefore string
	// IsFailing means that the installed module does not work. If a rollout takes a failing module back, this needs no
	// maintenance window.
	IsFailing bool
	// SkipWindows allows an update that needs a downtime to start outside of maintenance windows.
	SkipWindows bool
	// Now is the current time. Now is required if Catalog.Policy is set.
	Now time.Time
}

// Decision is the result of Resolve for a Request.
type Decision struct {
	// Module is the name of the module.
	Module string
	// Channel is the channel that contains the version. Channel is "" for pinned versions and mandatory modules.
	Channel string
	// Version is the desired version. Version is "" if the desired version could not be determined.
	Version string
	// Goal is the requested version if Version is only a step on the upgrade path to the requested version. In all
	// other cases, Goal is "".
	Goal string
	// Installed is the version that the runtime has now, or "" if it has none.
	Installed string
	// Next is the version to install now, or "" if nothing has to be installed. If Blocker is nil and Version is not
	// installed yet, Next equals Version.
	Next string
	// Component is the name of the OCM component.
	Component string
	// Target is TargetControlPlane if Version is to be installed on the control plane, and "" otherwise.
	Target v1beta2.Target
	// Template is the ModuleTemplate that describes Version. Template is nil if Blocker is set.
	Template *v1beta2.ModuleTemplate
	// Turn is the version that the channel has for this runtime while a rollout moves the channel. If the version is
	// pinned, or the module is a legacy module, rollouts do not apply, and Turn has its zero value.
	Turn Turn
	// Blocker is the reason why the request is not fulfilled. Blocker is nil if the request is fulfilled.
	Blocker *Blocker
}

// Blocker is the reason why a module, an update or a policy is blocked.
type Blocker struct {
	// Code is one of the reason codes in the package comment.
	Code string
	// Object is the kind and name of the object that a user has to change to remove the Blocker.
	Object string
	// Since is the time when the Blocker was first found. The caller sets Since; this package leaves it empty.
	Since time.Time
	// Until is the time when the Blocker ends without a change by a user, because a maintenance window opens. The zero
	// time means that the Blocker does not end by itself.
	Until time.Time
	// Message states what is wrong and how to fix it.
	Message string
	// KeepInstalled means that the installed version stays in the runtime, and that the manager still corrects drift of
	// its objects. If KeepInstalled is false, the module must not be installed in the runtime.
	KeepInstalled bool
}

// Error returns Message, so a Blocker is an error.
func (b *Blocker) Error() string { return b.Message }

// Reason returns Code.
func (b *Blocker) Reason() string { return b.Code }

// TemplateName returns the name of the ModuleTemplate that describes a version of a module.
func TemplateName(module, version string) string { return v1beta2.ModuleTemplateName(module, version) }

// rules are the rules 2 to 17 of the table in the package comment.
var rules = [...]func(*search) *Blocker{
	(*search).checkRequest, (*search).findReleaseOrLegacy, (*search).checkMandatoryMatches,
	(*search).checkModuleAllowedForKyma, (*search).findVersion,
	(*search).checkRelease, (*search).findTemplate, (*search).checkWithdrawn, (*search).takeUpgradePath,
	(*search).checkBetaAndInternal, (*search).checkReplacedContent, (*search).checkTemplateTarget,
	(*search).checkDowngrade,
	(*search).checkKnownRisks, (*search).checkDeferral, (*search).checkWindow,
}

// Resolve decides on a request by the rules in the package comment, and returns the Decision. If the module is paused,
// the Decision also has the desired version.
func Resolve(c Catalog, w Request) Decision {
	s := search{catalog: c, request: w, Decision: Decision{Module: w.Module,
		Channel: w.Channel, Installed: w.Installed}}
	for _, rule := range rules {
		if s.Blocker = rule(&s); s.Blocker != nil {
			break
		}
	}
	if w.Blocker != nil {
		s.Blocker = w.Blocker
	}
	switch {
	case s.Blocker != nil:
		s.Template = nil
	case s.Version != s.Installed:
		s.Next = s.Version
	}
	return s.Decision
}

// search is the state of one call of Resolve.
type search struct {
	Decision
	catalog Catalog
	request Request
	meta    *v1beta2.ModuleReleaseMeta // findReleaseOrLegacy sets meta; nil for a legacy module
	legacy  []*v1beta2.ModuleTemplate  // findReleaseOrLegacy sets legacy if meta is nil
}

func (s *search) checkRequest() *Blocker {
	w := s.request
	switch {
	case w.Channel != "" && w.Version != "":
		return newBlocker(v1beta2.ReasonInvalidModuleRequest, "module "+w.Module,
			"module %s asks for channel %q and version %q: ask for one of them", w.Module, w.Channel, w.Version)
	case strings.EqualFold(w.Channel, v1beta2.NoChannel):
		return newBlocker(v1beta2.ReasonInvalidModuleRequest, "module "+w.Module,
			"module %s asks for channel %q, which is a reserved word: name a release channel", w.Module, w.Channel)
	case w.Version != "" && !isVersion(w.Version):
		return newBlocker(v1beta2.ReasonInvalidModuleRequest, "module "+w.Module,
			"module %s asks for version %q, which is not a semantic version: write it as 1.2.3, without a leading v",
			w.Module, w.Version)
	}
	return nil
}

func (s *search) findReleaseOrLegacy() *Blocker {
	if s.meta = s.catalog.Release(s.Module); s.meta != nil {
		return nil
	}
	if !s.request.Mandatory {
		s.legacy = s.catalog.legacyTemplates(s.Module)
	}
	if len(s.legacy) == 0 {
		return newBlocker(v1beta2.ReasonModuleNotFound, "ModuleReleaseMeta "+s.Module,
			"there is no module %q: check the name, or create its ModuleReleaseMeta", s.Module)
	}
	return nil
}

func (s *search) checkMandatoryMatches() *Blocker {
	switch is := s.meta.IsMandatory(); {
	case is && !s.request.Mandatory:
		return newBlocker(v1beta2.ReasonModuleNotAllowed, s.releaseObject(),
			"module %s is mandatory: it is installed everywhere and cannot be enabled here; remove it from "+
				"spec.modules", s.Module)
	case !is && s.request.Mandatory:
		return newBlocker(v1beta2.ReasonInvalidRelease, s.releaseObject(),
			"module %s is not mandatory any more: it will be removed, no action is needed", s.Module)
	}
	return nil
}

// checkModuleAllowedForKyma checks whether the Kyma may have a module that is restricted to some Kymas, by this table:
//
//	restricted  selector       Kymas that may have the module
//	no          none           all Kymas
//	no          exists         none; installed versions stay until the ModuleReleaseMeta is corrected
//	yes         none, empty    none; installed versions stay until the ModuleReleaseMeta is corrected
//	yes         exists         the selected Kymas; the module is removed from all other Kymas
func (s *search) checkModuleAllowedForKyma() *Blocker {
	if s.request.Mandatory {
		return nil
	}
	matches, err := isAllowedForKyma(s.catalog.Restricted, s.Module, s.meta, s.request.Labels)
	switch {
	case err != nil:
		return newBlocker(v1beta2.ReasonInvalidRelease, s.releaseObject(), "%s", err.Error())
	case !matches:
		b := newBlocker(v1beta2.ReasonModuleNotAllowed, s.releaseObject(),
			"module %s is only for selected Kymas, and this Kyma is not selected: change its labels or "+
				"spec.kymaSelector of %s, or remove the module",
			s.Module, s.releaseObject())
		b.KeepInstalled = false
		return b
	}
	return nil
}

func (s *search) findVersion() *Blocker {
	switch {
	case s.meta == nil:
		return s.findLegacyTemplate()
	case s.request.Mandatory:
		s.Version = s.meta.Spec.Mandatory.Version
		return s.useRolloutVersion()
	case s.request.Version != "":
		s.Version = s.request.Version
	default:
		found := false
		if s.Version, found = s.meta.ChannelVersion(s.Channel); !found {
			return newBlocker(v1beta2.ReasonChannelNotFound, s.releaseObject(),
				"module %s has no channel %q: choose one of %s", s.Module, s.Channel,
				joinChoices(s.allowedChannels()))
		}
		return s.useRolloutVersion()
	}
	return nil
}

// useRolloutVersion replaces the version of the channel by the version that the rollout has for this runtime. If it is
// not known yet which version the rollout has for this runtime, useRolloutVersion returns Turn.Waiting as the Blocker
// of the request. A runtime that the rollout has not admitted yet is not blocked: the runtime gets the proven version.
func (s *search) useRolloutVersion() *Blocker {
	if s.catalog.Turn == nil {
		return nil
	}
	s.Turn = s.catalog.Turn(s.meta, s.request)
	s.Version = s.Turn.Version
	if s.Version == "" {
		return s.Turn.Waiting
	}
	return nil
}

func (s *search) checkRelease() *Blocker {
	if s.meta != nil {
		s.Component = s.meta.Spec.OCMComponentName
	}
	switch {
	case s.Component == "" && s.meta == nil:
		return newBlocker(v1beta2.ReasonInvalidRelease, s.releaseObject(),
			"%s of module %s names no OCM component: put the component descriptor into spec.descriptor",
			s.releaseObject(), s.Module)
	case s.Component == "":
		return newBlocker(v1beta2.ReasonInvalidRelease, s.releaseObject(),
			"the ModuleReleaseMeta of module %s names no OCM component: set spec.ocmComponentName", s.Module)
	case !isVersion(s.Version):
		return newBlocker(v1beta2.ReasonInvalidRelease, s.releaseObject(),
			"%s gives module %s version %q, which is not a semantic version: write it as 1.2.3",
			s.releaseObject(), s.Module, s.Version)
	}
	return nil
}

func (s *search) findTemplate() *Blocker {
	if s.meta == nil {
		return nil // findVersion has already set Template
	}
	name := TemplateName(s.Module, s.Version)
	s.Template = s.catalog.Template(name)
	switch {
	case s.Template != nil:
		return nil
	case s.request.Version != "":
		return newBlocker(v1beta2.ReasonVersionNotFound, "ModuleTemplate "+name,
			"module %s has no version %s: choose one of %s", s.Module, s.Version, joinChoices(s.allowedVersions()))
	}
	return newBlocker(v1beta2.ReasonTemplateNotFound, "ModuleTemplate "+name,
		"there is no ModuleTemplate %s for version %s of module %s: publish it, or assign another version to the "+
			"channel", name, s.Version, s.Module)
}

func (s *search) checkBetaAndInternal() *Blocker {
	t := s.Template
	refused := unmetRestriction(t, s.request.Beta, s.request.Internal)
	switch {
	case s.request.Mandatory || refused == "":
		return nil
	case t.Spec.Mandatory:
		return newBlocker(v1beta2.ReasonModuleNotAllowed, "ModuleTemplate "+t.Name,
			"version %s of module %s is mandatory and cannot be enabled: choose another channel, or remove the module",
			s.Version, s.Module)
	}
	b := newBlocker(v1beta2.ReasonModuleNotAllowed, "ModuleTemplate "+t.Name,
		"version %s of module %s is %s, and this runtime does not take part: label the Kyma, or choose another channel",
		s.Version, s.Module, refused)
	// The runtime may have the requested version. It loses a step of the upgrade path, for example with the label beta,
	// while this step is being installed.
	b.KeepInstalled = s.Goal != ""
	return b
}

func (s *search) checkReplacedContent() *Blocker {
	return ReplacedContentBlocker(s.Template, s.Module, s.Version)
}

func (s *search) checkTemplateTarget() *Blocker {
	t := s.Template
	if s.catalog.ControlPlane == ControlPlaneIsRuntime {
		return nil
	}
	wanted := cmp.Or(t.Spec.Target, v1beta2.TargetRemote)
	switch is := s.request.Target; {
	case wanted == v1beta2.TargetControlPlane && s.catalog.ControlPlane == ControlPlaneRefused:
		return newBlocker(v1beta2.ReasonControlPlaneNotAllowed, "ModuleTemplate "+t.Name,
			"version %s of module %s is for the control plane (spec.target), where this manager installs no modules: "+
				"set the chart value controlPlaneModules.enabled, or publish a version with target remote",
			s.Version, s.Module)
	case is != "" && is != wanted:
		return newBlocker(v1beta2.ReasonTargetChanged, "ModuleTemplate "+t.Name,
			"module %s is installed with target %s, and version %s has target %s: remove the module, wait until it is "+
				"deleted, and add it again; or publish a version with target %s",
			s.Module, is, s.Version, wanted, is)
	case wanted == v1beta2.TargetControlPlane:
		s.Target = wanted
	}
	return nil
}

func (s *search) checkDowngrade() *Blocker {
	highest := s.Installed
	if isLower(highest, s.request.ManifestVersion) {
		highest = s.request.ManifestVersion
	}
	// isOrdered means that the Manifest already requests this version.
	isOrdered := s.Turn.Waiting != nil && s.Version == s.request.ManifestVersion
	// In a restored control plane, a rollout that takes the runtime back may have ended long ago, so it does not allow
	// a downgrade.
	isBack := s.Turn.IsBack && !s.request.IsRestored
	if s.request.AllowDowngrade || isBack || isOrdered || !isLower(s.Version, highest) {
		return nil
	}
	if s.request.IsRestored {
		return s.newRestoredOlderBlocker()
	}
	state := "installed"
	if highest != s.Installed {
		state = "being installed"
	}
	why := ""
	if err := s.catalog.CheckGoingBack(s.Module, highest, s.Version); err != nil {
		why = " (" + err.Error() + ")"
	}
	if s.request.Mandatory {
		return newBlocker(v1beta2.ReasonDowngradeRefused, s.releaseObject(),
			"version %s of module %s is %s and %s would be a downgrade%s: raise the version, or allow it %s",
			highest, s.Module, state, s.Version, why, s.allowDowngradeInstruction())
	}
	return newBlocker(v1beta2.ReasonDowngradeRefused, "module "+s.Module,
		"version %s of module %s is %s and %s would be a downgrade%s: choose a channel with a higher version, or allow it %s",
		highest, s.Module, state, s.Version, why, s.allowDowngradeInstruction())
}

// newRestoredOlderBlocker returns the blocker of a module that has a higher version in the runtime than this control
// plane has recorded.
func (s *search) newRestoredOlderBlocker() *Blocker {
	forward := "let the channel have version " + s.Installed + " or a higher one again"
	switch {
	case s.request.Mandatory:
		forward = "let " + s.releaseObject() + " have version " + s.Installed + " or a higher one again"
	case s.request.Version != "":
		forward = "ask for version " + s.Installed + " or a higher one"
	}
	return newBlocker(v1beta2.ReasonRestoredOlder, "module "+s.Module,
		"the runtime has version %s of module %s, but this control plane was restored from an older state with version "+
			"%s, so nothing is changed: %s, or go back to %s %s",
		s.Installed, s.Module, s.Version, forward, s.Version, s.allowDowngradeInstruction())
}

// allowDowngradeInstruction returns a text with the kubectl command that allows the downgrade, and with the cluster in
// which a user has to run the command: the runtime or the control plane. The admin of a runtime can allow downgrades of
// the modules that the runtime requests.
func (s *search) allowDowngradeInstruction() string {
	if !s.request.Mandatory {
		return "in the runtime: " + annotateCommand("kyma", v1beta2.RuntimeNamespace, v1beta2.RuntimeKymaName,
			v1beta2.AnnotationAllowDowngrade+"="+s.Module)
	}
	namespace, resource, name := "", "modulereleasemeta", s.Module
	switch {
	case s.meta != nil:
		namespace = s.meta.Namespace
	case s.Template != nil:
		namespace, resource, name = s.Template.Namespace, "moduletemplate", s.Template.Name
	}
	return "in the control plane: " + annotateCommand(resource, namespace, name,
		v1beta2.AnnotationAllowDowngrade+"="+v1beta2.ValueTrue)
}

func (s *search) checkWindow() *Blocker {
	w := s.request
	isUpdate := s.Installed != "" && s.Version != s.Installed && s.Version != w.ManifestVersion
	isRescue := s.Turn.IsBack && w.IsFailing
	if !isUpdate || !s.Template.Spec.RequiresDowntime || w.SkipWindows || s.Turn.IgnoreWindows || w.Mandatory ||
		isRescue {
		return nil
	}
	opening, err := s.catalog.Policy.CurrentOrNextWindow(w.Labels, w.Now)
	switch {
	case err != nil:
		return newBlocker(v1beta2.ReasonWindowUnknown, policyObject,
			"version %s of module %s needs a downtime, and it is not known when: %s", s.Version, s.Module, err.Error())
	case !opening.IsOpen(w.Now):
		b := newBlocker(v1beta2.ReasonWaitingForWindow, "module "+s.Module,
			"version %s of module %s needs a downtime and waits for the maintenance window from %s to %s: wait, or "+
				"set spec.skipMaintenanceWindows in the control plane",
			s.Version, s.Module, opening.Begin.UTC().Format(time.RFC3339), opening.End.UTC().Format(time.RFC3339))
		b.Until = opening.Begin
		return b
	}
	return nil
}

// releaseObject returns the object that defines the version of the module.
func (s *search) releaseObject() string {
	if s.meta == nil && s.Template != nil {
		return "ModuleTemplate " + s.Template.Name
	}
	return "ModuleReleaseMeta " + s.Module
}

// allowedVersions returns the versions of the module that this runtime may have, the highest version first.
func (s *search) allowedVersions() []string {
	var all []string
	add := func(v string) {
		if t := s.catalog.Template(TemplateName(s.Module, v)); t != nil &&
			unmetRestriction(t, s.request.Beta, s.request.Internal) == "" {
			all = append(all, v)
		}
	}
	if s.catalog.Templates != nil {
		for _, t := range s.catalog.Templates(s.Module) {
			if v, isNamed := strings.CutPrefix(t.Name, s.Module+"-"); isNamed && isVersion(v) {
				add(v)
			}
		}
	}
	for _, c := range s.meta.Spec.Channels {
		add(c.Version)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(compareVersions(b, a), strings.Compare(a, b)) })
	return slices.Compact(all)
}

// allowedChannels returns the channels of the module that this runtime may use.
func (s *search) allowedChannels() []string {
	var names []string
	for _, c := range s.meta.Spec.Channels {
		if t := s.catalog.Template(TemplateName(s.Module, c.Version)); t != nil &&
			unmetRestriction(t, s.request.Beta, s.request.Internal) == "" {
			names = append(names, c.Channel)
		}
	}
	slices.Sort(names)
	return names
}
