package apply

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestUnservedVersion checks that entries in the managed fields with a version that the CRD no longer has do not
// prevent an object from being applied. Only the entries with this version are removed, and the managers that lose
// their fields are reported. Without removing the entries, the API server would reject each PATCH with 500.
func TestUnservedVersion(t *testing.T) {
	entry := func(manager, version string) map[string]any {
		return map[string]any{"manager": manager, "operation": "Update", "apiVersion": version,
			"fieldsV1": map[string]any{"f:data": map[string]any{}}}
	}
	repair := []string{"PATCH " + configPath, "GET " + configPath, "PATCH " + configPath}
	for name, tc := range map[string]struct {
		entries  []any
		sent     []string
		kept     string // the managed fields in the first merge patch
		takeover string
		failed   string
	}{
		"AnotherManager": {
			entries: []any{entry("kubectl", "example.com/v1"), entry("flux", "example.com/v2"), entry(DefaultOwner,
				"example.com/v2")},
			sent:     append(repair, "PATCH "+configPath),
			kept:     "flux example.com/v2, " + DefaultOwner + " example.com/v2",
			takeover: "ConfigMap mod/config: took the fields managed in example.com/v1 over from kubectl",
		},
		"OwnEntry": {
			entries: []any{entry(DefaultOwner, "example.com/v1"), entry("flux", "example.com/v2")},
			sent:    append(repair, "PATCH "+configPath),
			kept:    "flux example.com/v2",
		},
		"NoOtherEntry": {
			entries: []any{entry(DefaultOwner, "example.com/v1")},
			sent:    append(repair, "PATCH "+configPath),
			kept:    " ", // an empty entry
		},
		"TwoVersions": {
			entries: []any{entry("b", "example.com/v1"), entry("a", "example.com/v1beta1"), entry("flux",
				"example.com/v2")},
			sent: append(append(repair, repair...), "PATCH "+configPath),
			kept: "a example.com/v1beta1, flux example.com/v2",
			takeover: "ConfigMap mod/config: took the fields managed in example.com/v1 over from b\n" +
				"ConfigMap mod/config: took the fields managed in example.com/v1beta1 over from a",
		},
		"TooManyVersions": {
			entries: []any{entry("a", "example.com/v1"), entry("a", "example.com/v1beta1"),
				entry("a", "example.com/v3"), entry("a", "example.com/v4"), entry("a", "example.com/v5"),
				entry("flux", "example.com/v2")},
			sent: append(append(append(append(repair, repair...), repair...), repair...), "PATCH "+configPath),
			kept: "a example.com/v1beta1, a example.com/v3, a example.com/v4, a example.com/v5, flux example.com/v2",
			takeover: "ConfigMap mod/config: took the fields managed in example.com/v1 over from a\n" +
				"ConfigMap mod/config: took the fields managed in example.com/v1beta1 over from a\n" +
				"ConfigMap mod/config: took the fields managed in example.com/v3 over from a\n" +
				"ConfigMap mod/config: took the fields managed in example.com/v4 over from a",
			failed: "applying ConfigMap mod/config: request to convert CR to an invalid group/version: example.com/v5 " +
				"(HTTP 500): it is retried",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.unserved = []string{"example.com/v1", "example.com/v1beta1", "example.com/v3", "example.com/v4",
				"example.com/v5"}
			c := s.cluster(ClusterOptions{})
			if result, _ := s.apply(c, annotatedConfigMap(t, `{a: "1"}`, nil), nil); !result.AllApplied() {
				t.Fatal(result.Failed)
			}
			s.change(configPath, func(o map[string]any) {
				o["metadata"].(map[string]any)["managedFields"] = tc.entries
			})
			var first string
			s.onMerge = func(body string) {
				if first == "" {
					first = body
				}
			}
			result, sent := s.apply(c, annotatedConfigMap(t, `{a: "2"}`, nil), nil)
			if diff := cmp.Diff(tc.sent, sent); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			var patch struct {
				Metadata struct {
					ResourceVersion string
					ManagedFields   []struct{ Manager, APIVersion string }
				}
			}
			if err := json.Unmarshal([]byte(first), &patch); err != nil || patch.Metadata.ResourceVersion == "" {
				t.Fatalf("the merge patch is not bound to the version that was read: %v, %s", err, first)
			}
			var kept []string
			for _, e := range patch.Metadata.ManagedFields {
				kept = append(kept, e.Manager+" "+e.APIVersion)
			}
			if got := strings.Join(kept, ", "); got != tc.kept {
				t.Errorf("kept %q, want %q", got, tc.kept)
			}
			var takeovers []string
			for _, x := range result.TakenOver {
				takeovers = append(takeovers, x.String())
			}
			var failed string
			for _, x := range result.Failed {
				failed += x.Error()
			}
			if takeover := strings.Join(takeovers, "\n"); takeover != tc.takeover || failed != tc.failed {
				t.Errorf("got %q and %q, want %q and %q", takeover, failed, tc.takeover, tc.failed)
			}
		})
	}
}

// TestUnservedVersionOfOthers checks that an object of another installation is not changed because of its managed
// fields.
func TestUnservedVersionOfOthers(t *testing.T) {
	s := newServer(t)
	s.unserved = []string{"example.com/v1"}
	c := s.cluster(ClusterOptions{})
	set := annotatedConfigMap(t, `{a: "1"}`, nil)
	set.Ownership = &Ownership{Name: "n/m", Title: "module m", Adoption: Refuse,
		Find: func(string) (string, bool) { return "", false }}
	s.apply(c, annotatedConfigMap(t, `{a: "0"}`, nil), nil)
	s.change(configPath, func(o map[string]any) {
		o["metadata"].(map[string]any)["managedFields"] = []any{
			map[string]any{"manager": "kubectl", "operation": "Update", "apiVersion": "example.com/v1"}}
	})
	result, sent := s.apply(c, set, nil)
	if len(result.Failed) != 1 || result.Failed[0].Reason() != AdoptionRefused {
		t.Errorf("got %+v, want AdoptionRefused", result)
	}
	if diff := cmp.Diff([]string{"PATCH " + configPath, "GET " + configPath}, sent); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestUnservedVersionReleased checks that an object that existed before the installation is released even if its
// managed fields name a version that the CRD no longer has.
func TestUnservedVersionReleased(t *testing.T) {
	s := newServer(t)
	c := s.cluster(ClusterOptions{})
	s.apply(c, annotatedConfigMap(t, `{a: "0"}`, nil), nil)
	own := &Ownership{Name: "n/m", Title: "module m", Manager: DefaultOwner,
		Find: func(string) (string, bool) { return "", false }}
	ref := Ref{Version: "v1", Kind: "ConfigMap", Namespace: "mod", Name: "config", Adopted: true}
	s.unserved = []string{"example.com/v1"}
	s.change(configPath, func(o map[string]any) {
		m := o["metadata"].(map[string]any)
		m["annotations"] = map[string]any{AnnotationOwnedBy: own.Name, AnnotationAdopted: "true"}
		m["managedFields"] = []any{
			map[string]any{"manager": "kubectl", "operation": "Update", "apiVersion": "example.com/v1"},
			map[string]any{"manager": DefaultOwner, "operation": "Apply", "apiVersion": "example.com/v2"}}
	})
	result, err := c.DeleteOwned(t.Context(), []Ref{ref}, nil, own)
	if err != nil || len(result.Left) != 1 || result.Left[0].Reason != LeftReleased || !result.Done() {
		t.Errorf("got %+v, %v, want that the object is released", result, err)
	}
}

// TestAdoptedDefinitionReleased checks that a CRD that existed before the installation is released, although the API
// server rejects an apply without its versions: the list of versions is atomic, and the CRD has stored objects in one
// of them.
func TestAdoptedDefinitionReleased(t *testing.T) {
	s, c, _ := installed(t)
	own := &Ownership{Name: "n/m", Title: "module m", Manager: DefaultOwner,
		Find: func(string) (string, bool) { return "", false }}
	ref := Ref{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
		Name: "things.example.com", Adopted: true}
	s.change(definitionPath, func(o map[string]any) {
		o["metadata"].(map[string]any)["annotations"] = map[string]any{AnnotationOwnedBy: own.Name,
			AnnotationAdopted: "true"}
	})
	line := "PATCH " + definitionPath
	s.setScript(line, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Content-Type") == applyType {
			refuseFor(w, "status.storedVersions[0]", "FieldValueInvalid",
				`Invalid value: "v1": missing from spec.versions; v1 was previously a storage version`)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.patch(w, r, []byte(s.bodies[line]))
	})
	result, err := c.DeleteOwned(t.Context(), []Ref{ref}, nil, own)
	if err != nil || len(result.Left) != 1 || result.Left[0].Reason != LeftReleased || !result.Done() {
		t.Errorf("got %+v, %v, want that the CRD is released", result, err)
	}
	if s.stored[definitionPath] == nil {
		t.Error("the CRD was deleted")
	}
}
