package channel

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// RequestFor returns what a runtime wishes of one module: the channel is that of the module, else that of the Kyma, else the default.
// kyma is the one in the control plane, whose labels are the rights; wished is the one in the runtime, which has the spec. Both may be
// the same. What is installed, and the time, are left to the caller.
func RequestFor(kyma, wished *v1beta2.Kyma, module *v1beta2.Module) Request {
	w := Request{
		Module: module.Name, Channel: module.Channel, Version: module.Version,
		Blocker: cmp.Or(PauseBlocker(kyma, module.Name), PauseBlocker(wished, module.Name)),
		Labels:  kyma.Labels, Beta: kyma.IsBeta(), Internal: kyma.IsInternal(),
		AllowDowngrade: allowsDowngrade(kyma, module.Name) || allowsDowngrade(wished, module.Name),
		SkipWindows:    kyma.Spec.SkipMaintenanceWindows,
	}
	if w.Channel == "" && w.Version == "" {
		w.Channel = cmp.Or(wished.Spec.Channel, v1beta2.DefaultChannel)
	}
	return w
}

// MandatoryRequests returns what the control plane wishes for a runtime, by name of the module: every module that a ModuleReleaseMeta
// calls mandatory, whatever the rights of the runtime are. Where two of them name the same module or OCM component, the one that is
// older, or has the smaller name, counts; the other has a Blocker. A ModuleReleaseMeta that is being deleted is no wish any more.
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
	wishes := make([]Request, 0, len(releases))
	modules, components := map[string]string{}, map[string]string{}
	for _, r := range releases {
		w := Request{
			Module: r.Name, Mandatory: true, Labels: kyma.Labels, Blocker: PauseBlocker(kyma, r.Name),
			AllowDowngrade: r.Annotations[v1beta2.AnnotationAllowDowngrade] == v1beta2.ValueTrue || allowsDowngrade(kyma, r.Name),
		}
		module, component := cmp.Or(r.Spec.ModuleName, r.Name), r.Spec.OCMComponentName
		switch first := cmp.Or(modules[module], components[component]); {
		case first != "":
			w.Blocker = newBlocker(v1beta2.ReasonModuleConflict, "ModuleReleaseMeta "+r.Name,
				"ModuleReleaseMeta %s defines mandatory module %s, as the older %s does already: delete one of them", r.Name, module, first)
		case component != "":
			components[component] = r.Name
			fallthrough
		default:
			modules[module] = r.Name
		}
		wishes = append(wishes, w)
	}
	slices.SortFunc(wishes, func(a, b Request) int { return strings.Compare(a.Module, b.Module) })
	return wishes
}

// PauseBlocker returns what pauses a module of a Kyma by annotation, nil if nothing does. With module "" it asks about the Kyma alone. While
// something is paused, nothing but its deletion proceeds.
func PauseBlocker(k *v1beta2.Kyma, module string) *Blocker {
	if k == nil {
		return nil
	}
	if why, ok := pauseReason(k, v1beta2.AnnotationPaused); ok {
		return newBlocker(v1beta2.ReasonKymaPaused, "Kyma "+k.Name,
			"Kyma %s is paused (%s): remove the annotation %s from it to go on", k.Name, why, v1beta2.AnnotationPaused)
	}
	if module == "" {
		return nil
	}
	key := v1beta2.AnnotationPausedModulePrefix + module
	if why, ok := pauseReason(k, key); ok {
		return newBlocker(v1beta2.ReasonModulePaused, "module "+module,
			"module %s is paused (%s): remove the annotation %s from Kyma %s to go on", module, why, key, k.Name)
	}
	return nil
}

// pause returns the reason that an annotation gives, and whether it pauses.
func pauseReason(k *v1beta2.Kyma, key string) (why string, paused bool) {
	value, there := k.Annotations[key]
	value = strings.TrimSpace(value)
	switch {
	case !there || strings.EqualFold(value, "false"):
		return "", false
	case value == "" || strings.EqualFold(value, v1beta2.ValueTrue):
		return "no reason given", true
	}
	const most = 256 // it is repeated in a condition and an event
	if runes := []rune(value); len(runes) > most {
		value = string(runes[:most]) + "…"
	}
	return value, true
}

// allowsDowngrade tells whether the Kyma names the module in the annotation v1beta2.AnnotationAllowDowngrade.
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
