package page

import (
	"net/http"
	"strings"
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/pageserver"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// TestVerified checks what the catalog shows about the signature of a version: the key that has signed it, a signature
// that is not valid, or a signature that was not verified.
func TestVerified(t *testing.T) {
	x := indexOf(200, fixture.Noon)
	if body := send(serverOf(t, x, &pageserver.Viewer{}), http.MethodGet, "/catalog/istio", "").Body.String(); !strings.
		Contains(body, "it was not read yet") {
		t.Errorf("before the finding was read:\n%s", body)
	}
	in := func(version string) fleetindex.Version { return fleetindex.Version{Module: "istio", Version: version} }
	x.AddSignatures(map[fleetindex.Version]fleetindex.Signature{
		in("1.3.0"): {Runtime: "runtime-00001", Verified: true, Message: "raw is signed with key release (cosign)"},
		in("1.4.0"): {Runtime: "runtime-00002", Message: "raw: no key of the policy has signed it"},
	})
	x.Publish()
	show := func() string {
		return send(serverOf(t, x, &pageserver.Viewer{}), http.MethodGet, "/catalog/istio", "").Body.String()
	}
	for _, want := range []string{
		`<a href="/runtimes/runtime-00001/istio"><span class="state state-Ready">verified</span></a></td><td class="wide">raw is signed with key release (cosign)<`,
		`<span class="state state-Error">not valid</span></a></td><td class="wide">raw: no key of the policy has signed it<`,
		"no runtime has this version",
	} {
		if body := show(); !strings.Contains(body, want) {
			t.Errorf("the page does not have %q:\n%s", want, body)
		}
	}
	x.AddSignatures(map[fleetindex.Version]fleetindex.Signature{in("1.3.0"): {Runtime: "runtime-00001"}})
	x.Publish()
	if body := show(); !strings.Contains(body, "the manager requires no signature") {
		t.Errorf("without a trust policy:\n%s", body)
	}
}
