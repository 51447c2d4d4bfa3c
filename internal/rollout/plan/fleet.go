package plan

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/evidence"
)

// Fleet has the data that determines which runtimes belong to the rollouts of one channel, and which blockers these
// runtimes have for the version of the channel. The coordinator and plans both use Fleet, so that their results never
// differ.
type Fleet struct {
	// Release is the release of the module, and Channel the name of the channel or v1beta2.MandatoryChannel.
	Release *v1beta2.ModuleReleaseMeta
	Channel string
	// Catalog is the catalog in which requests are resolved. Catalog contains Release.
	Catalog channel.Catalog
	// Now is the current time.
	Now time.Time
	// DeferUntil is the time until which admins of runtimes may defer the version, see [rollout.DeferrableUntil].
	DeferUntil time.Time

	template *v1beta2.ModuleTemplate // of the version in the release; set at its first use
	isSafe   map[string]bool         // whether a downgrade to the target is safe, by ordered version
	requests channel.LastRequests
}

// Runtime returns the facts about a runtime that a Kyma and its Manifest of the module contain. takesPart is false if
// the runtime does not follow the channel, or if its module is removed or not managed. The result refers to the Kyma
// and the Manifest, so the caller must not change them after the call.
func (f *Fleet) Runtime(k *v1beta2.Kyma, m *v1beta2.Manifest) (r rollout.Runtime, takesPart bool) {
	if k == nil || !f.followsChannel(k, m) || !m.DeletionTimestamp.IsZero() || !k.DeletionTimestamp.IsZero() ||
		m.IsUnmanaged() {
		return rollout.Runtime{}, false
	}
	r = rollout.RuntimeOf(k, m)
	r.Blocked = func() *channel.Blocker { return f.blocked(k, m) }
	if f.needsWindow(k, m) {
		r.Window = func(at time.Time) (channel.MaintenanceWindow, error) {
			return f.Catalog.Policy.CurrentOrNextWindow(k.Labels, at)
		}
	}
	return r, true
}

// followsChannel reports whether a runtime follows the channel. The result depends on the channel label of the
// Manifest, which contains the channel of the installed version. If the last request for the module was refused, the
// request in the Kyma decides, because it may be for a pinned version or for another channel.
//
// If a module becomes mandatory, or is no longer mandatory, the labels of its Manifests still describe the former state
// until the Kyma controller has reconciled each Kyma, and the Manifests follow the channel without the label. Otherwise
// the first status of the channel would find no runtime with a lower version, and the whole fleet would be updated at
// once.
func (f *Fleet) followsChannel(k *v1beta2.Kyma, m *v1beta2.Manifest) bool {
	if f.Channel == v1beta2.MandatoryChannel {
		return m.IsMandatory() || m.Channel() != "" ||
			m.Labels[v1beta2.LabelManagedBy] == v1beta2.ManagedByLifecycleManager
	}
	s := k.ModuleStatus(f.Release.Name)
	if !m.IsMandatory() && (m.Channel() != f.Channel || s == nil || s.Reason == "") {
		return m.Channel() == f.Channel
	}
	requested := f.requests.RuntimeKymaOf(k)
	module := requested.Module(f.Release.Name)
	if module == nil {
		return !m.IsMandatory() // a module that was mandatory is removed
	}
	return module.Version == "" && requested.ModuleChannelOrDefault(f.Release.Name) == f.Channel
}

// needsWindow reports whether the update has to wait for a maintenance window in a runtime. needsWindow follows the
// same rules as package channel.
func (f *Fleet) needsWindow(k *v1beta2.Kyma, m *v1beta2.Manifest) bool {
	if f.Channel == v1beta2.MandatoryChannel || k.Spec.SkipMaintenanceWindows {
		return false
	}
	target, _ := f.Release.SpecVersion(f.Channel)
	if name := channel.TemplateName(f.Release.Name, target); f.template == nil || f.template.Name != name {
		if f.template = f.Catalog.Template(name); f.template == nil {
			return false
		}
	}
	if !f.template.Spec.RequiresDowntime {
		return false
	}
	ordered := cmp.Or(m.Annotations[v1beta2.AnnotationRequestedVersion], m.Spec.Version)
	isRescue := channel.IsLower(target, ordered) && evidence.IsNeitherReadyNorWarning(m)
	return !isRescue
}

// blocked resolves the module as if the runtime were admitted, and returns the blocker. A runtime keeps its slot until
// its update begins, so blocked must return a blocker for each runtime in which the Kyma controller would not write the
// new version into the Manifest.
func (f *Fleet) blocked(k *v1beta2.Kyma, m *v1beta2.Manifest) *channel.Blocker {
	target, _ := f.Release.Current(f.Channel)
	ordered := cmp.Or(m.Annotations[v1beta2.AnnotationRequestedVersion], m.Spec.Version)
	turn := channel.Turn{Version: target, DeferUntil: f.DeferUntil, IsBack: f.isDowngradeSafe(ordered, target)}
	asked := f.Catalog
	asked.Turn = func(*v1beta2.ModuleReleaseMeta, channel.Request) channel.Turn { return turn }
	var request channel.Request
	if f.Channel == v1beta2.MandatoryChannel {
		request = channel.MandatoryRequest(k, f.Release)
	} else {
		module := v1beta2.Module{Name: f.Release.Name, Channel: f.Channel}
		request = channel.RequestFor(k, f.requests.RuntimeKymaOf(k), &module)
	}
	if why := m.Annotations[v1beta2.AnnotationPaused]; why != "" && request.Blocker == nil {
		request.Blocker = &channel.Blocker{Code: v1beta2.ReasonModulePaused, Object: "Kyma " + k.Name, Message: why}
	}
	if k.SkipsReconciliation() && request.Blocker == nil {
		request.Blocker = &channel.Blocker{Code: v1beta2.ReasonSkipReconciliation, Object: "Kyma " + k.Name,
			Message: fmt.Sprintf("Kyma %s has the label %s: to go on, remove the label", k.Name,
				v1beta2.LabelSkipReconciliation)}
	}
	request.Now = f.Now
	if m.Status.Version != "" { // a module that is not installed can be installed in either cluster
		request.Target = cmp.Or(m.Spec.Target, v1beta2.TargetRemote)
	}
	request.ManifestVersion, request.IsFailing = ordered, evidence.IsNeitherReadyNorWarning(m)
	request.Installed = cmp.Or(m.Status.Version, ordered)
	if v := m.Annotations[v1beta2.AnnotationRuntimeVersion]; v != "" && v != v1beta2.VersionUnknown {
		request.Installed, request.ManifestVersion, request.IsRestored = v, v, true
	}
	return cmp.Or(channel.Resolve(asked, request).Blocker, baseBlocker(k, m))
}

// baseBlocker returns the blocker of a runtime in which the Kyma controller cannot write the base objects, and
// therefore writes no Manifest. The status of the Kyma shows this: the controller writes the reason of a step that
// fails before the modules are resolved into the condition Ready and into the entry of each module. The blocker ends
// with the reason. A reason that the Manifest has, too, is about the module, so it is no blocker: the new version may
// correct it. A mandatory module has no entry, and most reasons in the condition Ready may be about another module.
func baseBlocker(k *v1beta2.Kyma, m *v1beta2.Manifest) *channel.Blocker {
	ready := meta.FindStatusCondition(k.Status.Conditions, v1beta2.ConditionReady)
	if ready == nil || ready.Status == metav1.ConditionTrue || evidence.IsNeitherReadyNorWarning(m) {
		return nil
	}
	switch ready.Reason {
	case v1beta2.ReasonPullSecretNotFound: // no module has this reason
	case v1beta2.ReasonAdmissionRefused, v1beta2.ReasonObjectRefused, v1beta2.ReasonFieldImmutable:
		s, own := k.ModuleStatus(m.ModuleName()), meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionReady)
		if s == nil || s.Reason != ready.Reason || own != nil && own.Reason == ready.Reason {
			return nil
		}
	default:
		return nil
	}
	return &channel.Blocker{Code: ready.Reason, Object: "Kyma " + k.Name, Message: ready.Message}
}

// isDowngradeSafe reports whether a downgrade is declared as safe, or is allowed in all runtimes, from the version in
// the parameter ordered, which is requested in some runtimes, to the target version. isDowngradeSafe stores its result
// for each requested version, because the result is the same for all runtimes with this version.
func (f *Fleet) isDowngradeSafe(ordered, target string) bool {
	is, found := f.isSafe[ordered]
	if !found {
		if f.isSafe == nil {
			f.isSafe = map[string]bool{}
		}
		is = f.Catalog.CheckGoingBack(f.Release.Name, ordered, target) == nil ||
			channel.AllowsMandatoryDowngrade(f.Release) && channel.IsLower(target, ordered)
		f.isSafe[ordered] = is
	}
	return is
}
