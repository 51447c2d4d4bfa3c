package reclaim

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
)

// TestMerge checks that objects in the inventory that are found in the runtime keep their flags, such as adopted. An
// object that is in the inventory but not in the runtime gets the flag pending: if the object appears later, it is not
// known whether the Manifest or another client has created it.
func TestMerge(t *testing.T) {
	object := func(name string) apply.Ref { return apply.Ref{Version: "v1", Kind: "ConfigMap", Name: name} }
	adopted, gone := object("adopted"), object("gone")
	adopted.Adopted = true
	got := appendNotFoundAsPending([]apply.Ref{object("new"), adopted}, []apply.Ref{object("adopted"), gone})
	gone.Pending = true
	if diff := cmp.Diff([]apply.Ref{object("new"), adopted, gone}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestTakenOver checks that a Manifest gets the objects of the module in a runtime that was taken over from a Kyma with
// another name: the objects name the Manifest of that Kyma.
func TestTakenOver(t *testing.T) {
	const former = "kcp-system/runtime-a-plain"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api":
			_, _ = io.WriteString(w, `{"kind":"APIGroupDiscoveryList","items":[{"metadata":{},"versions":[{
				"version":"v1","resources":[{"resource":"configmaps","scope":"Namespaced",
				"verbs":["list","patch","delete"],"responseKind":{"kind":"ConfigMap"}}]}]}]}`)
		case "/apis":
			_, _ = io.WriteString(w, `{"kind":"APIGroupDiscoveryList","items":[]}`)
		default:
			object := func(name, owner string) string {
				return `{"metadata":{"name":"` + name + `","namespace":"default","annotations":{"` +
					apply.AnnotationOwnedBy + `":"` + owner + `"},"managedFields":[{"manager":"` +
					v1beta2.FieldOwnerApplier + `","operation":"Apply"}]}}`
			}
			_, _ = io.WriteString(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",
				"metadata":{"resourceVersion":"1"},"items":[`+object("of-former", former)+`,`+
				object("of-own", "kcp-system/runtime-z-plain")+`,`+
				object("of-others", "kcp-system/runtime-a-other")+`]}`)
		}
	}))
	t.Cleanup(server.Close)
	c, err := apply.New(&rest.Config{Host: server.URL}, nil, apply.ClusterOptions{RequestTimeout: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason, former string
		target         v1beta2.Target
		want           []string
	}{
		"OwnName":      {"the usual case", "", v1beta2.TargetRemote, []string{"of-own"}},
		"OtherName":    {"another Kyma", former, v1beta2.TargetRemote, []string{"of-own", "of-former"}},
		"ControlPlane": {"both Kymas may work there", former, v1beta2.TargetControlPlane, []string{"of-own"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "runtime-z-plain",
				Annotations: map[string]string{v1beta2.AnnotationRuntimeVersion: "2.0.0"}}}
			if tc.former != "" {
				m.Annotations[ownership.AnnotationFormerInstallation] = tc.former
			}
			m.Spec.Target = tc.target
			found, unlisted, err := RestoreInventoryAndVersion(t.Context(), c, m)
			var got []string
			for _, r := range m.Status.Synced {
				got = append(got, r.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil || found != len(tc.want) ||
				len(unlisted) > 0 || m.Status.Version != "2.0.0" {
				t.Errorf("%s: found %d, version %q, unlisted %v, %v, -want +got:\n%s", tc.reason, found,
					m.Status.Version, unlisted, err, diff)
			}
		})
	}
}

// TestKindsThatMayNotBeListed checks that an inventory does not count as restored if the credential may not list a kind
// that the recorded inventory has. Other kinds that the credential may not list are reported.
func TestKindsThatMayNotBeListed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api":
			_, _ = io.WriteString(w, `{"kind":"APIGroupDiscoveryList","items":[]}`)
		case "/apis":
			_, _ = io.WriteString(w, `{"kind":"APIGroupDiscoveryList","items":[{"metadata":{
				"name":"rbac.authorization.k8s.io"},"versions":[{"version":"v1","resources":[{"resource":"clusterroles",
				"scope":"Cluster","verbs":["list","patch","delete"],"responseKind":{"kind":"ClusterRole"}}]}]}]}`)
		default:
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden",
				"code":403,"message":"clusterroles.rbac.authorization.k8s.io is forbidden: User \"klm\" cannot list `+
				`resource \"clusterroles\" in API group \"rbac.authorization.k8s.io\" at the cluster scope",
				"details":{"group":"rbac.authorization.k8s.io","kind":"clusterroles"}}`)
		}
	}))
	t.Cleanup(server.Close)
	c, err := apply.New(&rest.Config{Host: server.URL}, nil, apply.ClusterOptions{RequestTimeout: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "m",
		Annotations: map[string]string{v1beta2.AnnotationRuntimeVersion: "2.0.0"}}}
	role := v1beta2.Resource{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole", Name: "operator"}
	m.Status.Synced = []v1beta2.Resource{role}
	_, _, err = RestoreInventoryAndVersion(t.Context(), c, m)
	if loop.Reason(err) != v1beta2.ReasonRuntimeForbidden || !strings.Contains(err.Error(), "clusterroles") ||
		m.IsInventoryReadFromRuntime() {
		t.Errorf("the module has a ClusterRole: %v, status %+v", err, m.Status)
	}

	m.Status.Synced = []v1beta2.Resource{{Version: "v1", Kind: "ConfigMap", Namespace: "default", Name: "a"}}
	_, unlisted, err := RestoreInventoryAndVersion(t.Context(), c, m)
	want := []schema.GroupKind{{Group: role.Group, Kind: role.Kind}}
	if diff := cmp.Diff(want, unlisted); diff != "" || err != nil || !m.IsInventoryReadFromRuntime() ||
		!strings.Contains(UnlistedNote(unlisted), "may not list ClusterRole.rbac.authorization.k8s.io:") {
		t.Errorf("the module has no ClusterRole: %v, -want +got:\n%s", err, diff)
	}
}
