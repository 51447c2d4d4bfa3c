package channel

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// unmetRestriction returns the right that a template requires and the runtime does not have: mandatory, internal or
// beta. unmetRestriction returns "" if no right is missing.
func unmetRestriction(t *v1beta2.ModuleTemplate, beta, internal bool) string {
	switch {
	case t.Spec.Mandatory:
		return "mandatory"
	case t.IsInternal() && !internal:
		return "internal"
	case t.IsBeta() && !beta:
		return "beta"
	}
	return ""
}

// isAllowedForKyma reports whether a Kyma with the given labels may have a module. The comment of the method
// checkModuleAllowedForKyma has a table of the rules. The error is the one of allowedKymas.
func isAllowedForKyma(restricted []string, module string, meta *v1beta2.ModuleReleaseMeta, kyma map[string]string) (
	bool, error) {
	allowed, err := allowedKymas(restricted, module, meta)
	if err != nil {
		return false, err
	}
	return allowed.Matches(labels.Set(kyma)), nil
}

// allowedKymas returns the selector of the Kymas that may have a module. allowedKymas returns an error if the
// ModuleReleaseMeta contradicts itself. After an error of allowedKymas, no further runtime may have the module until
// the ModuleReleaseMeta is corrected. meta is nil for a legacy module.
func allowedKymas(restricted []string, module string, meta *v1beta2.ModuleReleaseMeta) (labels.Selector, error) {
	var selector *v1beta2.Selector
	if meta != nil {
		selector = meta.Spec.KymaSelector
	}
	switch listed := slices.Contains(restricted, module); {
	case !listed && selector == nil:
		return labels.Everything(), nil
	case !listed:
		return nil, fmt.Errorf(
			"the ModuleReleaseMeta of module %s has a spec.kymaSelector, but the module is not restricted: "+
				"add it to --restricted-default-modules, or remove the selector", module)
	case selector.IsEmpty():
		return nil, fmt.Errorf("module %s is restricted, but its ModuleReleaseMeta selects no Kymas: "+
			"set spec.kymaSelector, or remove the module from --restricted-default-modules", module)
	}
	compiled, err := selector.Compile()
	if err != nil {
		return nil, fmt.Errorf("spec.kymaSelector of ModuleReleaseMeta %s is invalid, correct it: %w", module, err)
	}
	return compiled, nil
}
