package ownership

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// me is the owner in all tests.
var me = Owner{ControlPlane: "cp", Kyma: "kcp-system/a", UID: "new"}

// annotations returns the annotations of the Kyma in a runtime.
func annotations(owner, ownedBy string) map[string]string {
	return map[string]string{v1beta2.AnnotationOwner: owner, v1beta2.AnnotationOwnedBy: ownedBy}
}

// recordAnnotations returns the annotations in which an owner is recorded.
func recordAnnotations(o Owner) map[string]string { return annotations(o.Encode(), o.Kyma) }

func TestDecide(t *testing.T) {
	ours := Owner{ControlPlane: "cp", Kyma: "kcp-system/a", UID: "old", Cluster: "c1"}
	sameUID := Owner{ControlPlane: "cp", Kyma: "kcp-system/a", UID: "new", Cluster: "c1"}
	lostPlane := sameUID
	lostPlane.ControlPlane = "lost"
	otherUID := lostPlane
	otherUID.UID = "later"
	cases := map[string]struct {
		reason  string
		seen    Seen
		known   string // the cluster that the Kyma used last
		take    bool
		byUID   bool
		needs   bool
		code    string   // of the refusal; "" if the claim is accepted
		message []string // parts of the message
		want    Found
	}{
		"OtherControlPlane": {
			reason: "two control planes have the same runtime",
			seen:   Seen{recordAnnotations(Owner{ControlPlane: "cp2", Kyma: "kcp-system/a"}), ""},
			code:   v1beta2.ReasonRuntimeTaken,
			message: []string{"https://c", "Kyma kcp-system/a of another control plane (UID cp2)",
				"klm runtime take a"},
		},
		"OtherKyma": {
			reason:  "two Kymas have the same cluster",
			seen:    Seen{recordAnnotations(Owner{ControlPlane: "cp", Kyma: "kcp-system/b"}), ""},
			code:    v1beta2.ReasonRuntimeTaken,
			message: []string{"Kyma kcp-system/b of this control plane"},
		},
		"Unreadable": {
			reason:  "a record that somebody has edited, or of a later version",
			seen:    Seen{annotations("{", "kcp-system/a"), ""},
			code:    v1beta2.ReasonRuntimeTaken,
			message: []string{"cannot be read", v1beta2.AnnotationOwner},
		},
		"OtherEarlier": {
			reason:  "an earlier version wrote only owned-by",
			seen:    Seen{annotations("", "kcp-system/b"), "c1"},
			code:    v1beta2.ReasonRuntimeTaken,
			message: []string{"belongs to Kyma kcp-system/b (annotation"},
		},
		"Moved": {
			reason: "the Secret leads to a cluster that the Kyma had before the present one",
			seen:   Seen{recordAnnotations(ours), ""}, known: "c2",
			code:    v1beta2.ReasonRuntimeReplaced,
			message: []string{"UID c1, before: UID c2"},
		},
		"Ours": {
			reason: "the normal case: no request, and a Kyma that was created again is the same owner",
			seen:   Seen{recordAnnotations(ours), ""}, known: "c1",
			want: Found{Owner: Owner{"cp", "kcp-system/a", "new", "c1"}, IsRecorded: true},
		},
		"OursRestored": {
			reason: "the status was not restored: the record has the cluster",
			seen:   Seen{recordAnnotations(ours), ""},
			want:   Found{Owner: Owner{"cp", "kcp-system/a", "new", "c1"}, IsRecorded: true},
		},
		"OursWithoutCluster": {
			reason: "the cluster of an incomplete record is read",
			seen:   Seen{recordAnnotations(me), ""}, needs: true,
		},
		"Fresh": {reason: "a new runtime: is it the control plane?", seen: Seen{nil, ""}, needs: true},
		"FreshNew": {
			reason: "a new runtime", seen: Seen{nil, "c1"},
			want: Found{Owner: Owner{"cp", "kcp-system/a", "new", "c1"}},
		},
		"Itself": {
			reason: "the control plane is no runtime", seen: Seen{nil, "cp"},
			code: v1beta2.ReasonRuntimeIsControlPlane, message: []string{"control plane itself (https://c)"},
		},
		"ItselfTaken": {
			reason: "not even if somebody wants it", seen: Seen{nil, "cp"}, take: true,
			code: v1beta2.ReasonRuntimeIsControlPlane,
		},
		"Replaced": {
			reason: "the Secret leads to a new cluster", seen: Seen{nil, "c2"}, known: "c1",
			code: v1beta2.ReasonRuntimeReplaced, message: []string{"https://c with UID c2, before: UID c1"},
		},
		"ReplacedTaken": {
			reason: "the new cluster is wanted", seen: Seen{nil, "c2"}, known: "c1", take: true,
			want: Found{Owner: Owner{"cp", "kcp-system/a", "new", "c2"},
				TakenFrom: "this Kyma had the cluster with UID c1"},
		},
		"Restored": {
			reason: "the admin has deleted the Kyma in the runtime", seen: Seen{nil, "c1"}, known: "c1",
			want: Found{Owner: Owner{"cp", "kcp-system/a", "new", "c1"}},
		},
		"Earlier": {
			reason: "an earlier version wrote only owned-by", seen: Seen{annotations("", "kcp-system/a"), "c1"},
			want: Found{Owner: Owner{"cp", "kcp-system/a", "new", "c1"}},
		},
		"Taken": {
			reason: "handed over by another control plane",
			seen:   Seen{recordAnnotations(Owner{ControlPlane: "cp2", Kyma: "kcp-system/a", Cluster: "c1"}), "c1"},
			take:   true,
			want: Found{Owner: Owner{"cp", "kcp-system/a", "new", "c1"},
				TakenFrom: "it belonged to Kyma kcp-system/a of another control plane (UID cp2)"},
		},
		"OtherTaken": {
			reason: "handed over by a Kyma with another name",
			seen:   Seen{recordAnnotations(Owner{ControlPlane: "cp2", Kyma: "kcp-system/b", Cluster: "c1"}), "c1"},
			take:   true,
			want: Found{Owner: Owner{"cp", "kcp-system/a", "new", "c1"}, FormerKyma: "kcp-system/b",
				TakenFrom: "it belonged to Kyma kcp-system/b of another control plane (UID cp2)"},
		},
		"OtherEarlierTaken": {
			reason: "the former owner was an earlier version", seen: Seen{annotations("", "kcp-system/b"), "c1"},
			take: true,
			want: Found{Owner: Owner{"cp", "kcp-system/a", "new", "c1"}, FormerKyma: "kcp-system/b",
				TakenFrom: "it belonged to Kyma kcp-system/b (annotation " + v1beta2.AnnotationOwnedBy + ")"},
		},
		"MovedTaken": {
			reason: "back to a former cluster", seen: Seen{recordAnnotations(ours), "c1"}, known: "c2", take: true,
			want: Found{Owner: Owner{"cp", "kcp-system/a", "new", "c1"}, IsRecorded: true,
				TakenFrom: "this Kyma had the cluster with UID c2"},
		},
		"ByUID": {
			reason: "the usual tombstone", seen: Seen{recordAnnotations(sameUID), ""}, byUID: true, known: "c1",
			want: Found{Owner: sameUID, IsRecorded: true},
		},
		"ByUIDLater": {
			reason: "a Kyma of the same name has used the runtime later", byUID: true,
			seen: Seen{recordAnnotations(ours), ""}, code: v1beta2.ReasonRuntimeTaken,
			message: []string{"another Kyma kcp-system/a of this control plane (UID old)"},
		},
		"ByUIDLost": {
			reason: "the control plane was restored into another cluster: is the runtime this cluster?", byUID: true,
			seen: Seen{recordAnnotations(lostPlane), ""}, needs: true,
		},
		"ByUIDLostRead": {
			reason: "the control plane was restored into another cluster", byUID: true, known: "c1",
			seen: Seen{recordAnnotations(lostPlane), "c1"}, want: Found{Owner: sameUID, IsRecorded: true},
		},
		"ByUIDLostItself": {
			reason: "the control plane was restored into a cluster that was a runtime", byUID: true,
			seen: Seen{recordAnnotations(lostPlane), "cp"}, code: v1beta2.ReasonRuntimeIsControlPlane,
		},
		"ByUIDLostMoved": {
			reason: "the record was copied from another cluster", byUID: true, known: "c1",
			seen: Seen{recordAnnotations(lostPlane), "c2"}, code: v1beta2.ReasonRuntimeReplaced,
		},
		"ByUIDLostLater": {
			reason: "another Kyma of the lost control plane has used the runtime later", byUID: true,
			seen: Seen{recordAnnotations(otherUID), ""}, code: v1beta2.ReasonRuntimeTaken,
		},
		"LostWithSameUID": {
			reason: "a Kyma has to take the runtime over", code: v1beta2.ReasonRuntimeTaken,
			seen: Seen{recordAnnotations(lostPlane), ""},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			claim := Claim{Me: me, Server: "https://c", Take: c.take, ByUID: c.byUID}
			claim.Me.Cluster = c.known
			got, needs, err := Decide(c.seen, claim)
			refusal, _ := errors.AsType[*Refusal](err)
			code := ""
			if refusal != nil {
				code = refusal.Reason()
			}
			if code != c.code || needs != c.needs {
				t.Fatalf("%s: refused with %q (%v), needs the cluster: %v; want %q, %v", c.reason, code, err, needs,
					c.code, c.needs)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", c.reason, diff)
			}
			for _, part := range c.message {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: the message %q lacks %q", c.reason, err, part)
				}
			}
		})
	}
}

func TestDecode(t *testing.T) {
	long := Owner{ControlPlane: "cp", Kyma: strings.Repeat("n", 253) + "/" + strings.Repeat("a", 253),
		UID: "u", Cluster: "c"}
	cases := map[string]struct {
		reason, text string
		want         Owner
		ok           bool
	}{
		"Own": {"what Encode returns", long.Encode(), long, true},
		"Later": {"a later version may add fields", `{"controlPlane":"cp","kyma":"n/a","more":[1]}`,
			Owner{ControlPlane: "cp", Kyma: "n/a"}, true},
		"Empty":   {"an object without content", "{}", Owner{}, false},
		"NoKyma":  {"half a record", `{"controlPlane":"cp"}`, Owner{}, false},
		"Garbage": {"no JSON", "kcp-system/a", Owner{}, false},
		"Type":    {"a field with another type", `{"controlPlane":1,"kyma":"n/a"}`, Owner{}, false},
		"Long": {"the text is bounded", `{"controlPlane":"cp","kyma":"` + strings.Repeat("a", recordLimit) + `"}`,
			Owner{}, false},
	}
	for name, c := range cases {
		got, err := Decode(c.text)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%s: %s: %v, %v", name, c.reason, got, err)
		}
	}
}

// TestRefusalIsBounded checks that the owner in a runtime, which may be any text, is shortened in messages.
func TestRefusalIsBounded(t *testing.T) {
	for _, seen := range []Seen{
		{annotations("", strings.Repeat("x\x1b[31m\n", 10000)), ""},
		{recordAnnotations(Owner{ControlPlane: strings.Repeat("y\n", 100), Kyma: strings.Repeat("z\x00", 100)}), ""},
	} {
		_, _, err := Decide(seen, Claim{Me: me, Server: "https://" + strings.Repeat("s", 10000)})
		if err == nil || len(err.Error()) > 1024 || strings.ContainsAny(err.Error(), "\n\x1b\x00") {
			t.Errorf("the message is %q", err)
		}
	}
}

// newTestCluster returns a cluster that answers each path with an object, and records the requests.
func newTestCluster(t *testing.T, answers map[string]any) (*apply.Cluster, *[]string) {
	t.Helper()
	requests := &[]string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*requests = append(*requests, r.Method+" "+r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		answer := answers[r.URL.Path]
		if answer == nil {
			w.WriteHeader(http.StatusNotFound)
			answer = map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
				"code": 404}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(s.Close)
	c, err := apply.New(&rest.Config{Host: s.URL}, s.Client(), apply.ClusterOptions{RequestTimeout: 3 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return c, requests
}

// TestVerify checks that the Namespace kube-system is read only if the decision needs it.
func TestVerify(t *testing.T) {
	const path = "/api/v1/namespaces/kube-system"
	system := map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": "kube-system", "uid": "c1"}}
	nameless := map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": "kube-system"}}
	ours := Owner{ControlPlane: "cp", Kyma: "kcp-system/a", UID: "new", Cluster: "c1"}
	cases := map[string]struct {
		reason   string
		seen     map[string]string
		answer   any
		requests []string
		want     Owner
		ok       bool
	}{
		"Ours":  {"the record is complete", recordAnnotations(ours), system, nil, ours, true},
		"Fresh": {"there is no record", nil, system, []string{"GET " + path}, ours, true},
		"Taken": {"another owner", recordAnnotations(Owner{ControlPlane: "x", Kyma: "n/a"}), system, nil, Owner{},
			false},
		"NoAnswer": {"the request fails", nil, nil, []string{"GET " + path}, Owner{}, false},
		"NoUID":    {"the answer is incomplete", nil, nameless, []string{"GET " + path}, Owner{}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			runtime, requests := newTestCluster(t, map[string]any{path: c.answer})
			got, err := Verify(t.Context(), runtime, c.seen, Claim{Me: me})
			if got.Owner != c.want || (err == nil) != c.ok || !slices.Equal(*requests, c.requests) {
				t.Errorf("%s: %v, %v, requests %q", c.reason, got, err, *requests)
			}
		})
	}
}

func TestFindObjectsOfOthers(t *testing.T) {
	const api = "/apis/operator.kyma-project.io/v1beta2"
	served := map[string]string{"kymas": "Kyma", "moduletemplates": "ModuleTemplate",
		"modulereleasemetas": "ModuleReleaseMeta"}
	var resources []any
	for plural, kind := range served {
		resources = append(resources, map[string]any{"name": plural, "kind": kind, "namespaced": true})
	}
	item := func(namespace, name, manager string) any {
		return map[string]any{"metadata": map[string]any{"namespace": namespace, "name": name, "uid": "u",
			"managedFields": []any{map[string]any{"manager": manager, "operation": "Apply"}}}}
	}
	own := item("kyma-system", "default", "lifecycle-manager")
	cases := map[string]struct {
		reason                     string
		served                     bool
		kymas, templates, releases []any
		manifests                  bool // the cluster serves the kind Manifest
		other                      string
		copies                     []string
	}{
		"None": {reason: "the CRDs were deleted already"},
		"Own":  {reason: "the normal case", served: true, kymas: []any{own}},
		"Copy": {reason: "the catalog copy belongs to the runtime", served: true, kymas: []any{own},
			templates: []any{item("kyma-system", "keda-1.0.0", v1beta2.FieldOwnerCatalog)},
			releases:  []any{item("kyma-system", "keda", v1beta2.FieldOwnerCatalog)},
			copies:    []string{"ModuleTemplate kyma-system/keda-1.0.0", "ModuleReleaseMeta kyma-system/keda"}},
		"Another": {reason: "a control plane", served: true,
			kymas: []any{item("kcp-system", "b", "kubectl"), own}, other: "Kyma kcp-system/b"},
		"Many": {reason: "the own Kyma is not among the first", served: true,
			kymas: []any{item("kcp-system", "a", "kubectl"), item("kcp-system", "b", "kubectl")},
			other: "Kyma kcp-system/b"},
		"NoKymaYet": {reason: "a control plane that has only its catalog", served: true, kymas: []any{own},
			releases: []any{item("kcp-system", "theirs", v1beta2.FieldOwnerCatalog),
				item("kyma-system", "keda", v1beta2.FieldOwnerCatalog)},
			other: "ModuleReleaseMeta kcp-system/theirs", copies: []string{"ModuleReleaseMeta kyma-system/keda"}},
		"NothingYet": {reason: "a control plane that is still empty", served: true, kymas: []any{own},
			templates: []any{item("kyma-system", "keda-1.0.0", v1beta2.FieldOwnerCatalog)}, manifests: true,
			other: "the kind Manifest of a control plane", copies: []string{"ModuleTemplate kyma-system/keda-1.0.0"}},
		"OfUser": {reason: "a user of the runtime has created it", served: true, kymas: []any{own},
			templates: []any{item("kyma-system", "mine-1.0.0", "kubectl")},
			other:     "ModuleTemplate kyma-system/mine-1.0.0"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			answers := map[string]any{}
			if c.served {
				kinds := resources
				if c.manifests {
					kinds = append(slices.Clone(kinds),
						map[string]any{"name": "manifests", "kind": "Manifest", "namespaced": true})
				}
				answers[api] = map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "resources": kinds}
				for plural, items := range map[string][]any{"kymas": c.kymas, "moduletemplates": c.templates,
					"modulereleasemetas": c.releases} {
					answers[api+"/"+plural] = map[string]any{"kind": served[plural] + "List",
						"metadata": map[string]any{"resourceVersion": "1"}, "items": items}
				}
			}
			runtime, _ := newTestCluster(t, answers)
			other, found, err := FindObjectsOfOthers(t.Context(), runtime)
			var copies []string
			for _, r := range found {
				copies = append(copies, r.Kind+" "+r.Namespace+"/"+r.Name)
			}
			if err != nil || other != c.other || !slices.Equal(copies, c.copies) {
				t.Errorf("%s: %q and the catalog copy %q, %v, want %q and %q", c.reason, other, copies, err, c.other,
					c.copies)
			}
		})
	}
}

func TestWithoutCRDs(t *testing.T) {
	crd := func(name string) v1beta2.Resource {
		return v1beta2.Resource{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: name}
	}
	kyma := v1beta2.Resource{Group: v1beta2.GroupVersion.Group, Kind: "Kyma", Name: "default"}
	all := []v1beta2.Resource{kyma, crd("kymas.operator.kyma-project.io"), crd("gadgets.example.com")}
	want := fmt.Sprint([]v1beta2.Resource{kyma, crd("gadgets.example.com")})
	if got := WithoutOwnCRDs(all); fmt.Sprint(got) != want || len(all) != 3 ||
		all[1].Kind != "CustomResourceDefinition" {
		t.Errorf("got %v", got)
	}
}
