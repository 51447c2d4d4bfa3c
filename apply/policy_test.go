package apply

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// annotatedConfigMap returns the ConfigMap named config with policy annotations.
func annotatedConfigMap(t *testing.T, data string, annotations map[string]string) Set {
	t.Helper()
	text, err := json.Marshal(annotations)
	if err != nil {
		t.Fatal(err)
	}
	return Set{Bundle: bundleOf(
		t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: config, namespace: mod, annotations: `+string(
			text)+`}, data: `+data+`}`)}
}

// apply calls Apply and returns its result and the requests that the server received.
func (s *server) apply(c *Cluster, set Set, p *Progress) (Result, []string) {
	s.t.Helper()
	s.takeRequests()
	result, err := c.Apply(s.t.Context(), set, p)
	if err != nil {
		s.t.Fatalf("applying: %v", err)
	}
	return result, s.takeRequests()
}

// configMapData returns the data of the ConfigMap.
func (s *server) configMapData() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored[configPath]["data"]
}

func TestTakeover(t *testing.T) {
	s := newServer(t)
	c := s.cluster(ClusterOptions{})
	s.held[configPath] = map[string]string{".data.a": "kubectl-edit", ".data.b": "flux", ".data.gone": "flux"}
	set := annotatedConfigMap(t, `{a: "1", b: "2", c: "3"}`, nil)

	result, sent := s.apply(c, set, nil)
	want := []Takeover{{Ref: Ref{Version: "v1", Kind: "ConfigMap", Namespace: "mod", Name: "config"},
		Fields: []string{"data.a", "data.b"}, Managers: []string{"flux", "kubectl-edit"}}}
	if diff := cmp.Diff(want, result.TakenOver); diff != "" || len(result.Applied) != 1 || !result.AllApplied() {
		t.Errorf("taken over (-want +got):\n%s\n%+v", diff, result)
	}
	if diff := cmp.Diff(patches(configPath, configPath), sent); diff != "" {
		t.Errorf("a conflict costs one more request (-want +got):\n%s", diff)
	}
	if text := want[0].String(); text != "ConfigMap mod/config: took data.a, data.b over from flux, kubectl-edit" {
		t.Errorf("got %q", text)
	}
	if result, sent = s.apply(c, set, nil); len(sent) != 1 || len(result.TakenOver) != 0 {
		t.Errorf("without a conflict: got %v and %v, want one request", result.TakenOver, sent)
	}
}

// TestCreateOnlyOfOthers checks that an object of somebody else that is only to be created is reported until the
// inventory records it, and that it stays when the module is removed, even if the inventory does not record it.
func TestCreateOnlyOfOthers(t *testing.T) {
	s := newServer(t)
	c := s.cluster(ClusterOptions{})
	set := annotatedConfigMap(t, `{a: "1"}`, map[string]string{AnnotationApplyPolicy: "create-only"})
	theirs := annotatedConfigMap(t, `{a: "theirs"}`, nil)
	theirs.Owner = "flux"
	s.apply(c, theirs, nil)
	ref := Ref{Version: "v1", Kind: "ConfigMap", Namespace: "mod", Name: "config", Pending: true}
	own := &Ownership{Name: "kcp-system/m", Recorded: []Ref{ref}}
	set.Ownership = own
	var p Progress
	for range 2 {
		if result, _ := s.apply(c, set, &p); len(result.Existing) != 1 || result.Existing[0].Met != MetAdopted {
			t.Errorf("got %+v, want the object of somebody else", result.Existing)
		}
	}
	ref.Adopted = true
	own.Recorded = []Ref{ref}
	if result, sent := s.apply(c, set, &p); len(result.Existing) != 0 || len(sent) != 0 {
		t.Errorf("recorded: got %+v with %v, want nothing", result.Existing, sent)
	}
	ref.Pending, ref.Adopted = false, false
	own.Applied = &p
	if result, err := c.DeleteOwned(t.Context(), []Ref{ref}, nil, own); err != nil || len(result.Left) != 1 {
		t.Errorf("got %+v, %v, want an object that stays", result, err)
	}
	if diff := cmp.Diff(any(map[string]any{"a": "theirs"}), s.configMapData()); diff != "" {
		t.Errorf("the object of somebody else (-want +got):\n%s", diff)
	}
}

func TestCreateOnly(t *testing.T) {
	s := newServer(t)
	c := s.cluster(ClusterOptions{})
	only := map[string]string{AnnotationApplyPolicy: "create-only"}
	set, newer := annotatedConfigMap(t, `{a: "1"}`, only), annotatedConfigMap(t, `{a: "2"}`, only)
	var p Progress

	if result, sent := s.apply(c, set, &p); len(result.Applied) != 1 || len(sent) != 1 {
		t.Errorf("new: got %+v with %v, want one PATCH", result, sent)
	}
	if result, sent := s.apply(c, newer, &p); len(result.Unchanged) != 1 || len(sent) != 0 {
		t.Errorf("new content: got %+v with %v, want nothing sent", result, sent)
	}
	s.change(configPath, func(o map[string]any) { o["data"] = map[string]any{"a": "theirs"} })
	var fresh Progress
	if result, sent := s.apply(c, newer, &fresh); len(result.Unchanged) != 1 || len(sent) != 2 || !result.AllApplied() {
		t.Errorf("after a restart: got %+v with %v, want a refused PATCH and a GET", result, sent)
	}
	if diff := cmp.Diff(any(map[string]any{"a": "theirs"}), s.configMapData()); diff != "" {
		t.Errorf("it must not be changed (-want +got):\n%s", diff)
	}
	if _, sent := s.apply(c, newer, &fresh); len(sent) != 0 {
		t.Errorf("now it is known: got %v, want nothing sent", sent)
	}
	if drifted, err := c.FindDrift(t.Context(), newer, &fresh); err != nil || len(drifted) != 0 {
		t.Errorf("what others write is no drift: got %v, %v", drifted, err)
	}
	s.mu.Lock()
	delete(s.stored, configPath)
	s.mu.Unlock()
	if drifted, err := c.FindDrift(t.Context(), newer, &fresh); err != nil || len(drifted) != 1 || !drifted[0].Missing {
		t.Errorf("its absence is drift: got %v, %v", drifted, err)
	}
	if result, _ := s.apply(c, newer, &fresh); len(result.Applied) != 1 {
		t.Errorf("it is created again: %+v", result)
	}

	// The test server simulates that the object is deleted between the PATCH and the GET of Apply.
	s.setScript("GET "+configPath, errorScript(http.StatusNotFound, "NotFound", "gone"))
	s.setScript("GET "+configPath, func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, 404, "NotFound", "gone", "config", "configmaps")
	})
	if result, _ := s.apply(c, set, nil); len(result.Failed) != 1 || result.Failed[0].Reason() != ObjectConflict {
		t.Errorf("deleted meanwhile: got %+v, want to try again", result)
	}
}

func TestIgnorePaths(t *testing.T) {
	s := newServer(t)
	c := s.cluster(ClusterOptions{})
	ignore := map[string]string{AnnotationIgnorePaths: "data.a, data[b.yaml]"}
	set, newer := annotatedConfigMap(t, `{a: "1", b.yaml: "1", c: "1"}`, ignore),
		annotatedConfigMap(t, `{a: "2", b.yaml: "2", c: "2"}`, ignore)
	var p Progress

	if result, sent := s.apply(c, set, &p); len(result.Applied) != 1 || len(sent) != 1 {
		t.Errorf("new: got %+v with %v, want one PATCH", result, sent)
	}
	if diff := cmp.Diff(any(map[string]any{"a": "1", "b.yaml": "1", "c": "1"}), s.configMapData()); diff != "" {
		t.Errorf("created with everything (-want +got):\n%s", diff)
	}
	// The test simulates that another client takes over the field data.a, which AnnotationIgnorePaths names. The field
	// manager of the installation still owns data[b.yaml], the other field in AnnotationIgnorePaths.
	s.change(configPath, func(o map[string]any) {
		o["data"].(map[string]any)["a"] = "theirs"
		entry := o["metadata"].(map[string]any)["managedFields"].([]any)[0].(map[string]any)
		fields := entry["fieldsV1"].(map[string]any)
		delete(fields["f:data"].(map[string]any), "f:a")
	})
	if drifted, err := c.FindDrift(t.Context(), set, &p); err != nil || len(drifted) != 0 || !p.IsApplied(refOfConfig) {
		t.Errorf("an ignored field is no drift by the record: got %v, %v", drifted, err)
	}
	if drifted, err := c.FindDrift(t.Context(), set, nil); err != nil || len(drifted) != 0 {
		t.Errorf("nor by its value: got %v, %v", drifted, err)
	}

	s.takeRequests()
	if drifted, err := c.FindDrift(t.Context(), set, &p); err != nil || len(drifted) != 0 ||
		!strings.Contains(s.accepts["GET "+configPath], "PartialObjectMetadata") {
		t.Errorf("and then it is seen by the record again: got %v, %v", drifted, err)
	}

	known := p.recordOf(refOfConfig).uid
	if result, sent := s.apply(c, newer, &p); len(result.Applied) != 1 || len(result.TakenOver) != 0 || known == 0 ||
		!slices.Equal(sent, []string{"GET " + configPath, "PATCH " + configPath}) {
		t.Errorf("upgrade: got %+v with %v, want a GET and a PATCH", result, sent)
	}
	if !strings.Contains(s.bodies["PATCH "+configPath], `"data":{"b.yaml":"1","c":"2"}`) {
		t.Errorf("what is still ours is sent as it is, what is not is left out: %s", s.bodies["PATCH "+configPath])
	}
	if _, sent := s.apply(c, newer, &p); len(sent) != 0 {
		t.Errorf("again: got %v", sent)
	}
	s.change(configPath, func(o map[string]any) { o["data"].(map[string]any)["c"] = "theirs" })
	if drifted, err := c.FindDrift(t.Context(), newer, nil); err != nil || len(drifted) != 1 ||
		!slices.Equal(drifted[0].Fields, []string{"data.c"}) {
		t.Errorf("others fields drift: got %v, %v", drifted, err)
	}

	// Apply is called without Progress, as happens after a restart of the manager. Other field managers own
	// data[b.yaml], which AnnotationIgnorePaths names, and data.c, which it does not name. Apply must take over only
	// data.c.
	s.held[configPath] = map[string]string{".data.b.yaml": "x", ".data.c": "kubectl-edit"}
	result, sent := s.apply(c, newer, nil)
	if !slices.Equal(sent, []string{"PATCH " + configPath, "GET " + configPath, "PATCH " + configPath,
		"GET " + configPath, "PATCH " + configPath}) || len(result.Applied) != 1 {
		t.Errorf("after a restart: got %+v with %v", result, sent)
	}
	if len(result.TakenOver) != 1 || !slices.Equal(result.TakenOver[0].Fields, []string{"data.c"}) {
		t.Errorf("got %v, want the field that was taken", result.TakenOver)
	}

	// The test simulates that the object was deleted without a record of the deletion in Progress.
	s.mu.Lock()
	delete(s.stored, configPath)
	s.mu.Unlock()
	if result, _ := s.apply(c, set, &p); len(result.Applied) != 1 ||
		cmp.Diff(any(map[string]any{"a": "1", "b.yaml": "1", "c": "1"}), s.configMapData()) != "" {
		t.Errorf("created again with everything: %+v, %v", result, s.configMapData())
	}
	// The object is being deleted.
	s.change(configPath, func(
		o map[string]any) {
		o["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-02T03:04:05Z"
	})
	if result, _ := s.apply(c, newer, &p); len(result.Waiting) != 1 || result.Waiting[0].Reason != ObjectTerminating {
		t.Errorf("terminating: got %+v", result)
	}
}

var refOfConfig = Ref{Version: "v1", Kind: "ConfigMap", Namespace: "mod", Name: "config"}

func TestPolicyInvalid(t *testing.T) {
	tests := map[string]struct {
		reason      string
		annotations map[string]string
		message     string // a part of it
		keep        bool
	}{
		"Policy": {"an unknown word", map[string]string{AnnotationApplyPolicy: "sometimes"},
			`apply-policy is "sometimes", want "enforce" or "create-only"`, false},
		"Prune": {"a misspelt protection protects", map[string]string{AnnotationPrune: "keeep"},
			`prune is "keeep"`, true},
		"Immutable": {"an unknown word", map[string]string{AnnotationOnImmutable: "yes"},
			`on-immutable is "yes"`, false},
		"EmptyPath": {"two commas", map[string]string{AnnotationIgnorePaths: "data.a,,data.b"}, `path "": `, false},
		"Dots": {"an empty step", map[string]string{AnnotationIgnorePaths: "data..a"},
			`path "data..a": a key is empty`, false},
		"OpenBracket": {"not closed", map[string]string{AnnotationIgnorePaths: "data[a"},
			`path "data[a": brackets`, false},
		"EmptyBracket": {"nothing in it", map[string]string{AnnotationIgnorePaths: "data[]"},
			`path "data[]": brackets`, false},
		"AfterBracket": {"no dot", map[string]string{AnnotationIgnorePaths: "data[a]b"},
			`path "data[a]b": a bracket must`, false},
		"Keys": {"a key without value", map[string]string{AnnotationIgnorePaths: "spec.ports[port=1,x]"},
			`[key=value]`, false},
		"Identity": {"the name is not to be left to others", map[string]string{AnnotationIgnorePaths: "metadata.name"},
			"of metadata only", false},
		"Metadata": {"nor all of metadata", map[string]string{AnnotationIgnorePaths: "metadata"},
			"of metadata only", false},
		"Status": {"it is not ours", map[string]string{AnnotationIgnorePaths: "status.x"},
			"status cannot be ignored", false},
		"Deep": {"too deep", map[string]string{AnnotationIgnorePaths: strings.Repeat("a.", 30) + "a"},
			"more than 24 steps", false},
		"Many": {"too many", map[string]string{AnnotationIgnorePaths: strings.TrimSuffix(strings.Repeat("data.a,", 33),
			",")}, "more than 32 paths", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			c := s.cluster(ClusterOptions{})
			set := annotatedConfigMap(t, `{a: "1"}`, tc.annotations)
			result, sent := s.apply(c, set, nil)
			if len(sent) != 0 || len(result.Failed) != 1 || result.Failed[0].Reason() != ObjectRefused ||
				!strings.Contains(result.Failed[0].Error(), tc.message) {
				t.Fatalf("%s: got %v with %v, want %q", tc.reason, result.Failed, sent, tc.message)
			}
			refs, err := c.DesiredInventory(t.Context(), set)
			if err != nil || len(refs) != 1 || refs[0].Keep != tc.keep {
				t.Errorf("it stays in the inventory: got %v, %v", refs, err)
			}
			if drifted, err := c.FindDrift(t.Context(), set, nil); err != nil || len(drifted) != 0 {
				t.Errorf("it is for Apply to report: got %v, %v", drifted, err)
			}
		})
	}
}

// TestOnImmutable tests a change that the API server rejects because a field is immutable.
func TestOnImmutable(t *testing.T) {
	const words = `Invalid value: {"matchLabels":{"a":"b: c"}}: field is immutable`
	immutable := func(w http.ResponseWriter, _ *http.Request) { refuseFor(w, "data.a", "FieldValueInvalid", words) }
	recreate := map[string]string{AnnotationOnImmutable: "recreate"}
	start := func(t *testing.T, annotations map[string]string) (*server, *Cluster, Set) {
		s := newServer(t)
		c := s.cluster(ClusterOptions{})
		set := annotatedConfigMap(t, `{a: "1"}`, annotations)
		s.apply(c, set, nil)
		s.setScript("PATCH "+configPath, immutable)
		return s, c, set
	}
	t.Run("Report", func(t *testing.T) {
		s, c, set := start(t, nil)
		result, sent := s.apply(c, set, nil)
		if len(sent) != 1 || len(result.Failed) != 1 || result.Failed[0].Reason() != FieldImmutable ||
			ClassOf(result.Failed[0]) != Terminal {
			t.Fatalf("got %+v with %v", result, sent)
		}
		if e := result.Failed[0]; e.Message != "data.a: field is immutable" ||
			!slices.Equal(e.Fields, []string{"data.a"}) || !strings.Contains(e.Error(), "ConfigMap mod/config") {
			t.Errorf("got %v, want object and field, without its value", e)
		}
	})
	t.Run("Recreate", func(t *testing.T) {
		s, c, set := start(t, recreate)
		var p Progress
		result, sent := s.apply(c, set, &p)
		if !slices.Equal(sent, []string{"PATCH " + configPath, "GET " + configPath, "DELETE " + configPath}) ||
			len(result.Waiting) != 1 || result.Waiting[0].Reason != ObjectRecreated {
			t.Fatalf("got %+v with %v", result, sent)
		}
		if !strings.Contains(s.bodies["DELETE "+configPath], `"preconditions":{"uid":"uid-`) ||
			!strings.Contains(result.Waiting[0].Message, "data.a: field is immutable") {
			t.Errorf("got %s, %v", s.bodies["DELETE "+configPath], result.Waiting)
		}
		s.setScript("PATCH "+configPath, nil)
		if result, sent = s.apply(c, set, &p); len(sent) != 1 || len(result.Applied) != 1 || !result.AllApplied() {
			t.Errorf("next pass: got %+v with %v", result, sent)
		}
	})
	t.Run("Terminating", func(t *testing.T) {
		s, c, set := start(t, recreate)
		s.change(configPath, func(
			o map[string]any) {
			o["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-02T03:04:05Z"
		})
		if result, sent := s.apply(c, set, nil); len(sent) != 2 || len(result.Waiting) != 1 ||
			result.Waiting[0].Reason != ObjectTerminating {
			t.Errorf("it is deleted once: got %+v with %v", result, sent)
		}
	})
	t.Run("NotOurs", func(t *testing.T) {
		s, c, set := start(t, recreate)
		s.change(configPath, func(o map[string]any) {
			o["metadata"].(map[string]any)["managedFields"].([]any)[0].(map[string]any)["manager"] = "helm"
		})
		if result, sent := s.apply(c, set, nil); len(sent) != 2 || len(result.Failed) != 1 ||
			!strings.Contains(result.Failed[0].Message, "not created by this module") {
			t.Errorf("what others made is not deleted: got %+v with %v", result, sent)
		}
	})
	for name, isRecorded := range map[string]bool{"AdoptedByAnnotation": false, "AdoptedByInventory": true} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			c := s.cluster(ClusterOptions{})
			s.store(configPath, map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
				"metadata": map[string]any{"name": "config", "namespace": "mod"}}, "Update", "kubectl")
			set := annotatedConfigMap(t, `{a: "1"}`, recreate)
			set.Ownership = &Ownership{Name: "n/m", Title: "module m"}
			set.Overlay.Annotations = map[string]string{AnnotationOwnedBy: "n/m"}
			result, _ := s.apply(c, set, nil)
			if len(result.Existing) != 1 || result.Existing[0].Met != MetAdopted {
				t.Fatalf("got %+v, want an adopted object", result)
			}
			recorded := result.Existing[0].Ref
			if recorded.Adopted = isRecorded; isRecorded {
				s.change(configPath, func(o map[string]any) {
					delete(o["metadata"].(map[string]any)["annotations"].(map[string]any), AnnotationAdopted)
				})
			}
			set.Ownership.Recorded = []Ref{recorded}
			s.setScript("PATCH "+configPath, immutable)
			result, sent := s.apply(c, set, nil)
			if !slices.Equal(sent, []string{"PATCH " + configPath, "GET " + configPath}) || len(result.Failed) != 1 {
				t.Fatalf("an object that existed before is not deleted: got %+v with %v", result, sent)
			}
			if text := result.Failed[0].Error(); !strings.Contains(text, "it existed before this module") ||
				!strings.Contains(text, "delete the object if nobody needs its content") {
				t.Errorf("got %q", text)
			}
		})
	}
	t.Run("OfOtherModule", func(t *testing.T) {
		s, c, set := start(t, recreate)
		set.Ownership = &Ownership{Name: "n/m", Title: "module m",
			Recorded: []Ref{{Version: "v1", Kind: "ConfigMap", Namespace: "mod", Name: "config"}},
			Find:     func(name string) (string, bool) { return "module other", name == "n/other" }}
		s.change(configPath, func(o map[string]any) {
			o["metadata"].(map[string]any)["annotations"] = map[string]any{AnnotationOwnedBy: "n/other"}
		})
		if result, sent := s.apply(c, set, nil); len(sent) != 2 || len(result.Failed) != 1 ||
			!strings.Contains(result.Failed[0].Message, "not created by this module") {
			t.Errorf("an object of another module is not deleted: got %+v with %v", result, sent)
		}
	})
	t.Run("Refused", func(t *testing.T) {
		s, c, set := start(t, recreate)
		s.setScript("DELETE "+configPath, errorScript(http.StatusForbidden, "Forbidden",
			`admission webhook "w" denied the request: no`))
		if result, _ := s.apply(c, set, nil); len(result.Failed) != 1 || result.Failed[0].Reason() != AdmissionRefused {
			t.Errorf("got %+v", result)
		}
		s.setScript("DELETE "+configPath, errorScript(http.StatusTooManyRequests, "TooManyRequests", "later"))
		if _, err := c.Apply(t.Context(), set, nil); ClassOf(err) != Unreachable {
			t.Errorf("got error %v", err)
		}
	})
	t.Run("Definition", func(t *testing.T) {
		s := newServer(t)
		c := s.cluster(ClusterOptions{})
		set := Set{Bundle: bundleOf(t, module), Overlay: render.Overlay{Annotations: recreate}}
		s.setScript("PATCH "+definitionPath, func(w http.ResponseWriter, _ *http.Request) {
			refuseFor(w, "spec.scope", "FieldValueInvalid", `Invalid value: "Cluster": field is immutable`)
		})
		result, sent := s.apply(c, set, nil)
		if len(result.Failed) != 1 || result.Failed[0].Reason() != FieldImmutable ||
			!strings.Contains(result.Failed[0].Message, "never deleted") ||
			slices.Contains(sent, "DELETE "+definitionPath) {
			t.Errorf("got %+v with %v", result.Failed, sent)
		}
	})
}

// TestImmutableWords tests the error messages of real API servers about immutable fields.
func TestImmutableWords(t *testing.T) {
	tests := map[string]struct {
		reason       string
		kind, field  string
		cause, words string
		want         string // reason of the error
		message      string
	}{
		"Selector": {
			reason:  "most built-in kinds",
			kind:    "Deployment",
			field:   "spec.selector",
			cause:   "FieldValueInvalid",
			words:   `Invalid value: {"matchLabels":{"a":"c"}}: field is immutable`,
			want:    FieldImmutable,
			message: "spec.selector: field is immutable",
		},
		"Class": {
			reason:  "other words",
			kind:    "PriorityClass",
			field:   "value",
			cause:   "FieldValueForbidden",
			words:   "Forbidden: may not be changed in an update.",
			want:    FieldImmutable,
			message: "value: may not be changed in an update.",
		},
		"Claim": {reason: "with differences below", kind: "PersistentVolumeClaim", field: "spec",
			cause:   "FieldValueForbidden",
			words:   "Forbidden: spec is immutable after creation except resources.requests\n@@ -1,6 +1,6 @@\n {",
			want:    FieldImmutable,
			message: "spec: spec is immutable after creation except resources.requests"},
		"Rule": {
			reason:  "a rule of a custom resource",
			kind:    "Thing",
			field:   "spec.a",
			cause:   "FieldValueInvalid",
			words:   `Invalid value: "y": a is immutable`,
			want:    FieldImmutable,
			message: "spec.a: a is immutable",
		},
		"Invalid": {
			reason: "just wrong",
			kind:   "Deployment",
			field:  "spec.replicas",
			cause:  "FieldValueInvalid",
			words:  "Invalid value: -1: must be greater than or equal to 0",
			want:   ObjectRefused,
		},
		"Required": {
			reason: "required, whatever it says",
			kind:   "Deployment",
			field:  "spec.x",
			cause:  "FieldValueRequired",
			words:  "Required value: immutable",
			want:   ObjectRefused,
		},
		"UID": {
			reason: "another object than we mean",
			kind:   "Deployment",
			field:  "metadata.uid",
			cause:  "FieldValueInvalid",
			words:  `Invalid value: "x": field is immutable`,
			want:   ObjectConflict,
		},
		"Stored": {reason: "a stored version is missing", kind: "CustomResourceDefinition",
			field: "status.storedVersions[0]", cause: "FieldValueInvalid",
			words: `Invalid value: "v1": missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions`, want: StoredVersionDropped,
			message: "the module has dropped version v1, in which objects may still be stored (status.storedVersions)"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			c := s.cluster(ClusterOptions{})
			path, yaml := configPath, `{apiVersion: v1, kind: ConfigMap, metadata: {name: config, namespace: mod}}`
			if tc.kind == "CustomResourceDefinition" {
				path, yaml = definitionPath, module
			}
			s.setScript("PATCH "+path, func(w http.ResponseWriter,
				_ *http.Request) {
				refuseFor(w, tc.field, tc.cause, tc.words)
			})
			result, _ := s.apply(c, Set{Bundle: bundleOf(t, yaml)}, nil)
			if len(result.Failed) != 1 || result.Failed[0].Reason() != tc.want || tc.message != "" &&
				result.Failed[0].Message != tc.message {
				t.Errorf("%s: got %v", tc.reason, result.Failed)
			}
		})
	}
}

func TestKeep(t *testing.T) {
	s := newServer(t)
	s.serveKind(thingKind)
	c := s.cluster(ClusterOptions{})
	kept := strings.NewReplacer("metadata: {name: default}",
		"metadata: {name: default, annotations: {"+AnnotationPrune+": keep}}",
		"{name: config, namespace: mod}", "{name: config, namespace: mod, annotations: {"+
			AnnotationPrune+": keep}}").Replace(module)
	set := Set{Bundle: bundleOf(t, kept)}
	s.apply(c, set, nil)
	refs, err := c.DesiredInventory(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	s.takeRequests()
	teardown, err := c.Delete(t.Context(), refs, nil)
	if err != nil || !teardown.Done() || len(teardown.Deleted) != 6 {
		t.Fatalf("deleting: %v, %+v", err, teardown)
	}
	var got []string
	for _, r := range teardown.Kept {
		got = append(got, r.Kind)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"ConfigMap", "CustomResourceDefinition", "Namespace", "Thing"}, got); diff != "" {
		t.Errorf("kept, with what they need (-want +got):\n%s", diff)
	}
	if sent := s.takeRequests(); len(sent) != 6 {
		t.Errorf("it costs no request: %v", sent)
	}
	if !refs[0].SameObject(Ref{Group: "example.com", Version: "v9", Kind: "Thing",
		Namespace: "default", Name: "default"}) {
		t.Error("Keep is not part of the identity")
	}
}
