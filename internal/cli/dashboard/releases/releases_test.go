package releases

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
)

// TestOriginOf checks that signatures and the bill of materials are read from the links and from the descriptor of a
// ModuleTemplate.
func TestOriginOf(t *testing.T) {
	descriptor := func(rest string) string {
		return `{"meta":{"schemaVersion":"v2"},"component":{"name":"a.b/c","version":"1.0.0","resources":[` + rest
	}
	for name, c := range map[string]struct {
		reason     string
		descriptor string
		links      []v1beta2.ResourceLink
		want       Origin
	}{
		"None":  {"the default", "{}", nil, Origin{Signatures: "in the registry only"}},
		"Empty": {"an object of an old client", "", nil, Origin{Signatures: "in the registry only"}},
		"Bad": {"not a descriptor", `{"meta":{"schemaVersion":"v1"}}`, nil,
			Origin{Signatures: "the descriptor cannot be read"}},
		"Unsigned": {"no signature", descriptor(`]}}`), nil, Origin{Signatures: "not signed"}},
		"Signed": {"two signatures", descriptor(`]},"signatures":[{"name":"team","signature":{"algorithm":"RSASSA-PSS"}},` +
			`{"name":"release","signature":{"algorithm":"ECDSA"}}]}`), nil,
			Origin{Signatures: "team (RSASSA-PSS), release (ECDSA)"}},
		"Resource": {"a resource of the component version", descriptor(`{"name":"bom","type":"sbom",` +
			`"access":{"type":"localBlob"}}]}}`), nil,
			Origin{Signatures: "not signed", SBOM: "bom, in the component version"}},
		"Link": {"a link is better than a resource", descriptor(`{"name":"sbom","type":"x"}]}}`),
			[]v1beta2.ResourceLink{{Name: "SBOM", Link: "https://example.com/sbom"}},
			Origin{Signatures: "not signed", SBOM: "SBOM", SBOMLink: "https://example.com/sbom"}},
	} {
		t.Run(name, func(t *testing.T) {
			template := &v1beta2.ModuleTemplate{Spec: v1beta2.ModuleTemplateSpec{Resources: c.links,
				Descriptor: runtime.RawExtension{Raw: []byte(c.descriptor)}}}
			if diff := cmp.Diff(c.want, SignaturesAndSBOMOf(template)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

// TestWayBackOf checks the text about a downgrade. The text states what the manager has found out and recorded in the
// status of the rollout. If the status contains nothing about a downgrade yet, the text states what the ModuleTemplate
// of the new version declares.
func TestWayBackOf(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		change func(*v1beta2.ModuleRollout)
		want   string
	}{
		"Verified": {"declared, and the former version can be installed", func(o *v1beta2.ModuleRollout) {
			o.Status.WayBack = &v1beta2.RolloutWayBack{Declared: true, Verified: true, To: "1.0.0",
				Message: "it is there"}
		}, "verified | Back to 1.0.0: it is there | klm rollout undo istio fast"},
		"Declared": {"declared, and not sure", func(o *v1beta2.ModuleRollout) {
			o.Status.WayBack = &v1beta2.RolloutWayBack{Declared: true, To: "1.0.0", Message: "it is withdrawn"}
		}, "declared | Back to 1.0.0: declared, but it is withdrawn | klm rollout undo istio fast"},
		"None": {"not declared", func(o *v1beta2.ModuleRollout) {
			o.Status.WayBack = &v1beta2.RolloutWayBack{To: "1.0.0", Message: "2.0.0 does not declare it"}
		}, "none | Back to 1.0.0: none, because 2.0.0 does not declare it. If 2.0.0 fails, move the channel to a higher " +
			"version that corrects it. | "},
		"NotComputed": {"the catalog has no declaration", func(*v1beta2.ModuleRollout) {},
			"none | There is no declared way back to 1.0.0"},
		"Back": {"it goes back itself", func(o *v1beta2.ModuleRollout) {
			o.Spec.Direction = v1beta2.RolloutBack
		}, " |  | "},
		"First": {"there is no former version", func(o *v1beta2.ModuleRollout) { o.Spec.From = "" }, " |  | "},
	} {
		t.Run(name, func(t *testing.T) {
			o := &v1beta2.ModuleRollout{Spec: v1beta2.ModuleRolloutSpec{Module: "istio", Channel: "fast", From: "1.0.0",
				To: "2.0.0"}}
			c.change(o)
			w := DowngradeSafetyOf(connection.NewCatalog(nil, nil), o, "klm")
			if got := strings.Join([]string{w.State, w.Text, w.Command}, " | "); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s: %q, want %q", c.reason, got, c.want)
			}
		})
	}
}

// TestUrgencyOf checks the text about an urgent rollout: the steps that the rollout leaves out, and the reason for the
// urgency.
func TestUrgencyOf(t *testing.T) {
	o := &v1beta2.ModuleRollout{}
	if got := UrgencyText(o); got != "" {
		t.Errorf("a normal rollout is %q", got)
	}
	o.Spec.Urgency, o.Spec.UrgencyReason, o.Spec.IgnoreWindows = v1beta2.UrgencyEmergency, "CVE-1", true
	if got, want := UrgencyText(o), "Emergency: no soak and no gate is waited for, and no maintenance window. "+
		"Reason: CVE-1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestCSV checks that a spreadsheet does not treat a text from an untrusted source as a formula.
func TestCSV(t *testing.T) {
	data, err := CSV([]Move{{Module: "istio", By: "=HYPERLINK(1)"}, {Module: "-1", By: "klm"}})
	if err != nil || !strings.Contains(string(data), ",'=HYPERLINK(1),") ||
		!strings.Contains(string(data), ",'-1,") {
		t.Errorf("%v\n%s", err, data)
	}
}
