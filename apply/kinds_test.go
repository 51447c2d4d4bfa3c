package apply

import (
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// TestBuiltins compares the table of built-in kinds with the kinds that client-go knows.
func TestBuiltins(t *testing.T) {
	// The variable named left lists the kinds that may be missing in the table of built-in kinds, because bundles
	// contain no objects of these kinds: subresources, reviews, kinds that only the control plane writes, and kinds
	// that Kubernetes has removed.
	left := map[string][]string{
		"":                          {"Binding", "ComponentStatus", "RangeAllocation"},
		"apps":                      {"Scale"},
		"autoscaling":               {"Scale"},
		"authentication.k8s.io":     {"*"},
		"authorization.k8s.io":      {"*"},
		"certificates.k8s.io":       {"PodCertificateRequest"},
		"coordination.k8s.io":       {"LeaseCandidate"},
		"events.k8s.io":             {"*"},
		"extensions":                {"*"},
		"internal.apiserver.k8s.io": {"*"},
		"lifecycle.k8s.io":          {"*"},
		"policy":                    {"Eviction"},
		"resource.k8s.io":           {"DeviceTaintRule", "ResourcePoolStatusRequest", "ResourceSlice"},
		"scheduling.k8s.io":         {"CompositePodGroup", "PodGroup", "Workload"},
		"storage.k8s.io":            {"CSINode", "CSIStorageCapacity", "VolumeAttachment"},
		"storagemigration.k8s.io":   {"*"},
	}
	known := map[schema.GroupKind]bool{}
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		if _, ok := reflect.TypeAssert[metav1.Object](reflect.New(typ)); !ok {
			continue
		}
		if skip := left[gvk.Group]; slices.Contains(skip, gvk.Kind) || slices.Contains(skip, "*") {
			continue
		}
		known[gvk.GroupKind()] = true
		b, ok := builtins[gvk.GroupKind()]
		if !ok {
			t.Errorf("%s is not in the table: add it, or say here why not", gvk.GroupKind())
			continue
		}
		if plural, _ := meta.UnsafeGuessKindToResource(gvk); plural.Resource != b.plural {
			t.Errorf("%s: got plural %q, want %q", gvk.GroupKind(), b.plural, plural.Resource)
		}
	}
	for gk := range builtins {
		if outside := gk.Group == "apiextensions.k8s.io" || gk.Group == "apiregistration.k8s.io"; !known[gk] &&
			!outside {
			t.Errorf("%s is in the table and not in client-go", gk)
		}
	}
}

// TestRoles tests that every role has one phase of Apply and one phase of Delete.
func TestRoles(t *testing.T) {
	for r := roleCustom; r <= roleAdmission; r++ {
		count := 0
		for _, phase := range deletePhases {
			if slices.Contains(phase.roles, r) {
				count++
			}
		}
		if count != 1 || r.phase() >= phaseCount {
			t.Errorf("role %d: in %d phases of teardown, phase %d of apply", r, count, r.phase())
		}
	}
}
