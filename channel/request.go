package channel

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel/internal/declaration"
)

// RequestFor returns the Request of a runtime for one module. The channel is the channel of the module if set, else the
// channel of the Kyma if set, else the default channel. kyma is the Kyma in the control plane; its labels define the
// access rights. runtimeKyma is the Kyma in the runtime; it contains the spec. kyma and runtimeKyma may be the same
// object. The caller has to set the fields Installed, ManifestVersion and Now.
func RequestFor(kyma, runtimeKyma *v1beta2.Kyma, module *v1beta2.Module) Request {
	w := Request{
		Kyma: kyma.Name, Module: module.Name, Channel: module.Channel, Version: module.Version,
		Blocker: cmp.Or(PauseBlocker(kyma, module.Name), PauseBlocker(runtimeKyma, module.Name)),
		Labels:  kyma.Labels, Beta: kyma.AllowsBeta(), Internal: kyma.AllowsInternal(),
		KubernetesVersion: kyma.Status.KubernetesVersion,
		AllowDowngrade:    allowsDowngrade(kyma, module.Name) || allowsDowngrade(runtimeKyma, module.Name),
		SkipWindows:       kyma.Spec.SkipMaintenanceWindows,
		NotBefore: cmp.Or(declaration.NotBefore(runtimeKyma.Annotations, module.Name),
			declaration.NotBefore(kyma.Annotations, module.Name)),
	}
	if w.Channel == "" && w.Version == "" {
		w.Channel = cmp.Or(runtimeKyma.Spec.Channel, v1beta2.DefaultChannel)
	}
	return w
}

// LastRequest is the content of the annotation v1beta2.AnnotationLastRequest.
type LastRequest struct {
	Channel string           `json:"channel"`
	Modules []v1beta2.Module `json:"modules,omitempty"`
	// Deferrals are those annotations of the Kyma in the runtime that defer updates.
	Deferrals map[string]string `json:"deferrals,omitempty"`
	// Pauses are those annotations of the Kyma in the runtime that pause the Kyma or one of its modules.
	Pauses map[string]string `json:"pauses,omitempty"`
}

// lastRequestOf returns the content of v1beta2.AnnotationLastRequest on the Kyma in the control plane. If the Kyma does
// not have the annotation, or if the annotation cannot be decoded, found is false.
func lastRequestOf(kyma *v1beta2.Kyma) (last LastRequest, found bool) {
	text, found := kyma.Annotations[v1beta2.AnnotationLastRequest]
	if !found || json.Unmarshal([]byte(text), &last) != nil || last.Channel == "" {
		return LastRequest{}, false
	}
	return last, true
}

// LastRuntimeSpecOf returns the spec that the Kyma in the runtime had when it was last read. The Kyma in the control
// plane (parameter kyma) stores this spec: in its own spec if the two are equal, or else in
// v1beta2.AnnotationLastRequest. The result isFromAnnotation is true if the spec is in the annotation.
func LastRuntimeSpecOf(kyma *v1beta2.Kyma) (spec v1beta2.KymaSpec, isFromAnnotation bool) {
	last, found := lastRequestOf(kyma)
	return specWith(kyma, last, found), found
}

// specWith returns a copy of the spec of a Kyma, with the modules of a LastRequest if the LastRequest was found.
func specWith(kyma *v1beta2.Kyma, last LastRequest, found bool) v1beta2.KymaSpec {
	if !found {
		return *kyma.Spec.DeepCopy()
	}
	spec := kyma.Spec
	spec.Channel, spec.Modules = last.Channel, nil
	spec = *spec.DeepCopy()
	spec.Modules = last.Modules
	return spec
}

// LastRuntimeKymaOf returns the spec and the annotations about deferrals that the Kyma in the runtime had at the last
// read. The parameter kyma is the Kyma in the control plane, which stores this spec and these annotations.
func LastRuntimeKymaOf(kyma *v1beta2.Kyma) *v1beta2.Kyma {
	last, found := lastRequestOf(kyma)
	return &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Annotations: last.Deferrals}, Spec: specWith(kyma, last, found)}
}

// LastRequests decodes the last requests of many Kymas. Most runtimes of a fleet have the same modules, so LastRequests
// decodes each text of v1beta2.AnnotationLastRequest once. The zero value is ready to use. LastRequests is not safe for
// concurrent use.
type LastRequests struct {
	decoded map[string]decodedRequest // by text
}

type decodedRequest struct {
	LastRequest
	found bool
}

// RuntimeKymaOf returns the same as LastRuntimeKymaOf. The result shares memory with the parameter kyma and with
// earlier results, so the caller must not change it.
func (l *LastRequests) RuntimeKymaOf(kyma *v1beta2.Kyma) *v1beta2.Kyma {
	text := kyma.Annotations[v1beta2.AnnotationLastRequest]
	is, known := l.decoded[text]
	if !known {
		is.LastRequest, is.found = lastRequestOf(kyma)
		if l.decoded == nil {
			l.decoded = map[string]decodedRequest{}
		}
		l.decoded[text] = is
	}
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Annotations: is.Deferrals}, Spec: kyma.Spec}
	if is.found {
		k.Spec.Channel, k.Spec.Modules = is.Channel, is.Modules
	}
	return k
}

// LastRuntimeAnnotationsOf returns the annotations about deferrals and pauses that the Kyma in the runtime had at the
// last read. The manager creates a deleted Kyma in the runtime again with these annotations, so that what the admin has
// deferred or paused does not happen. Annotations that permit something, such as v1beta2.AnnotationAllowDowngrade, are
// not stored: a person has to permit it again.
func LastRuntimeAnnotationsOf(kyma *v1beta2.Kyma) map[string]string {
	last, _ := lastRequestOf(kyma)
	all := make(map[string]string, len(last.Deferrals)+len(last.Pauses))
	maps.Copy(all, last.Deferrals)
	maps.Copy(all, last.Pauses)
	return all
}

// MandatoryRequests returns a Request for each mandatory module of a runtime, sorted by name. A module is mandatory if
// its ModuleReleaseMeta is mandatory; the access rights of the runtime are ignored. A ModuleReleaseMeta that is being
// deleted is left out. If two ModuleReleaseMetas have the same module or the same OCM component, the older one is used.
// If two such ModuleReleaseMetas have the same age, the ModuleReleaseMeta with the smaller name is used. The
// ModuleReleaseMeta that is not used also gets a Request; the Blocker of this Request states the conflict.
func MandatoryRequests(c Catalog, kyma *v1beta2.Kyma) []Request {
	if c.Mandatory == nil {
		return nil
	}
	releases := slices.DeleteFunc(slices.Clone(c.Mandatory()), func(r *v1beta2.ModuleReleaseMeta) bool {
		return !r.IsMandatory() || !r.DeletionTimestamp.IsZero()
	})
	slices.SortFunc(releases, func(a, b *v1beta2.ModuleReleaseMeta) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	requests := make([]Request, 0, len(releases))
	modules, components := map[string]string{}, map[string]string{}
	for _, r := range releases {
		w := MandatoryRequest(kyma, r)
		module, component := cmp.Or(r.Spec.ModuleName, r.Name), r.Spec.OCMComponentName
		switch first := cmp.Or(modules[module], components[component]); {
		case first != "":
			w.Blocker = newBlocker(v1beta2.ReasonModuleConflict, "ModuleReleaseMeta "+r.Name,
				"ModuleReleaseMeta %s defines mandatory module %s, but the older %s does already: delete one of them",
				r.Name, module, first)
		case component != "":
			components[component] = r.Name
			fallthrough
		default:
			modules[module] = r.Name
		}
		requests = append(requests, w)
	}
	slices.SortFunc(requests, func(a, b Request) int { return strings.Compare(a.Module, b.Module) })
	return requests
}

// MandatoryRequest returns the Request of a runtime for one mandatory module. kyma is the Kyma in the control plane.
// The caller has to set the fields Installed, ManifestVersion and Now.
func MandatoryRequest(kyma *v1beta2.Kyma, release *v1beta2.ModuleReleaseMeta) Request {
	return Request{
		Kyma: kyma.Name, Module: release.Name, Mandatory: true, Labels: kyma.Labels,
		KubernetesVersion: kyma.Status.KubernetesVersion,
		Blocker:           PauseBlocker(kyma, release.Name),
		AllowDowngrade:    AllowsMandatoryDowngrade(release) || allowsDowngrade(kyma, release.Name),
	}
}

// AllowsMandatoryDowngrade reports whether the annotation v1beta2.AnnotationAllowDowngrade of a ModuleReleaseMeta
// allows downgrades of a mandatory module in all runtimes. Rollouts treat an allowed downgrade like a declared one,
// because without a rollout the whole fleet would be downgraded at once.
func AllowsMandatoryDowngrade(release *v1beta2.ModuleReleaseMeta) bool {
	return release.IsMandatory() && release.Annotations[v1beta2.AnnotationAllowDowngrade] == v1beta2.ValueTrue
}

// PauseBlocker returns the Blocker of a module that is paused by an annotation of the Kyma. PauseBlocker returns nil if
// the module is not paused. If module is "", PauseBlocker checks only whether the whole Kyma is paused. A paused Kyma
// or module can be deleted, but is not changed in any other way.
func PauseBlocker(k *v1beta2.Kyma, module string) *Blocker {
	if k == nil {
		return nil
	}
	if why, ok := pauseReason(k, v1beta2.AnnotationPaused); ok {
		return newBlocker(v1beta2.ReasonKymaPaused, "Kyma "+k.Name,
			"Kyma %s is paused (%s): to go on, run %s", k.Name, why, annotateKymaInstruction(k,
				v1beta2.AnnotationPaused+"-"))
	}
	if module == "" {
		return nil
	}
	key := v1beta2.AnnotationPausedModulePrefix + module
	if why, ok := pauseReason(k, key); ok {
		return newBlocker(v1beta2.ReasonModulePaused, "module "+module,
			"module %s is paused (%s): to go on, run %s", module, why, annotateKymaInstruction(k, key+"-"))
	}
	return nil
}

// maxPauses is the maximum number of annotations that PauseAnnotations returns.
const maxPauses = 128

// PauseAnnotations returns those annotations of a Kyma that pause the Kyma or one of its modules, or nil if there are
// none. Long reasons are shortened, because the annotations are stored in another annotation.
func PauseAnnotations(k *v1beta2.Kyma) map[string]string {
	const most = 128
	var all map[string]string
	for _, key := range slices.Sorted(maps.Keys(k.Annotations)) {
		isAboutPause := key == v1beta2.AnnotationPaused || strings.HasPrefix(key, v1beta2.AnnotationPausedModulePrefix)
		if _, isPaused := pauseReason(k, key); !isAboutPause || !isPaused || len(all) == maxPauses {
			continue
		}
		value := strings.TrimSpace(k.Annotations[key])
		if len(value) > most {
			value = strings.ToValidUTF8(value[:most], "")
		}
		if all == nil {
			all = map[string]string{}
		}
		all[key] = value
	}
	return all
}

// annotateKymaInstruction returns an instruction for users: the kubectl command that changes an annotation of the Kyma,
// and the cluster (control plane or runtime) in which the user has to run the command.
func annotateKymaInstruction(k *v1beta2.Kyma, annotation string) string {
	where := "the control plane"
	if k.Namespace == v1beta2.RuntimeNamespace && k.Name == v1beta2.RuntimeKymaName {
		where = "the runtime"
	}
	return "in " + where + ": " + annotateCommand("kyma", k.Namespace, k.Name, annotation)
}

// annotateCommand returns the command that changes an annotation of an object. The annotation has the form KEY=VALUE,
// or the form KEY- to remove the annotation.
func annotateCommand(resource, namespace, name, annotation string) string {
	if namespace != "" {
		resource = "-n " + namespace + " " + resource
	}
	return "kubectl annotate " + resource + " " + name + " " + annotation
}

// pauseReason returns the reason in an annotation, and whether the annotation requests a pause.
func pauseReason(k *v1beta2.Kyma, key string) (why string, paused bool) {
	value, exists := k.Annotations[key]
	value = strings.TrimSpace(value)
	switch {
	case !exists || strings.EqualFold(value, "false"):
		return "", false
	case value == "" || strings.EqualFold(value, v1beta2.ValueTrue):
		return "no reason given", true
	}
	const most = 256 // the reason is part of a condition and an event
	if runes := []rune(value); len(runes) > most {
		value = string(runes[:most]) + "…"
	}
	return value, true
}

// allowsDowngrade reports whether the annotation v1beta2.AnnotationAllowDowngrade of the Kyma contains the module.
func allowsDowngrade(k *v1beta2.Kyma, module string) bool {
	if k == nil {
		return false
	}
	for name := range strings.SplitSeq(k.Annotations[v1beta2.AnnotationAllowDowngrade], ",") {
		if name = strings.TrimSpace(name); name == module || name == v1beta2.DowngradeAll {
			return true
		}
	}
	return false
}
