package trial

import (
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// TestCreatedByCluster: an object that the cluster creates in each namespace is not a leftover of a module, and every
// other object of its kind or name is.
func TestCreatedByCluster(t *testing.T) {
	const certificate = "kube-root-ca.crt"
	cases := map[string]struct {
		ref  apply.Ref
		want bool
	}{
		"Certificate":    {apply.Ref{Version: "v1", Kind: "ConfigMap", Namespace: "a", Name: certificate}, true},
		"Account":        {apply.Ref{Version: "v1", Kind: "ServiceAccount", Namespace: "a", Name: "default"}, true},
		"OtherConfigMap": {apply.Ref{Version: "v1", Kind: "ConfigMap", Namespace: "a", Name: "default"}, false},
		"OtherAccount":   {apply.Ref{Version: "v1", Kind: "ServiceAccount", Namespace: "a", Name: "operator"}, false},
		"SameNameSecret": {apply.Ref{Version: "v1", Kind: "Secret", Namespace: "a", Name: certificate}, false},
		"SameKindElsewhere": {apply.Ref{Group: "example.com", Version: "v1", Kind: "ConfigMap", Name: certificate},
			false},
	}
	for name, c := range cases {
		if got := createdByCluster(c.ref); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
