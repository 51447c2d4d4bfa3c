package trial

import (
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// TestCreatedByCluster checks that an object that the cluster creates in each namespace does not count as a leftover of
// a module. An object that the cluster does not create by itself counts as a leftover, even if it has the kind or the
// name of one that the cluster creates.
func TestCreatedByCluster(t *testing.T) {
	cases := map[string]struct {
		group, kind, name string
		want              bool
	}{
		"Certificate":    {"", "ConfigMap", "kube-root-ca.crt", true},
		"Account":        {"", "ServiceAccount", "default", true},
		"OtherConfigMap": {"", "ConfigMap", "default", false},
		"OtherAccount":   {"", "ServiceAccount", "operator", false},
		"SameNameSecret": {"", "Secret", "kube-root-ca.crt", false},
		"OtherGroup":     {"example.com", "ConfigMap", "kube-root-ca.crt", false},
	}
	for name, c := range cases {
		ref := apply.Ref{Group: c.group, Version: "v1", Kind: c.kind, Namespace: "a", Name: c.name}
		if got := createdByCluster(ref); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
