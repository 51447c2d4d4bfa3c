package apply

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestObserveEvent(t *testing.T) {
	withGeneration := &metadata{UID: "u", ResourceVersion: "100", Generation: 3}
	without := &metadata{UID: "u", ResourceVersion: "100"}
	tests := map[string]struct {
		reason     string
		answer     *metadata
		uid        types.UID
		generation int64
		version    string
		want       bool
	}{
		"OwnWrite":       {"the very write", withGeneration, "u", 3, "100", true},
		"Older":          {"an event from before", withGeneration, "u", 2, "90", true},
		"Status":         {"status does not change the generation", withGeneration, "u", 3, "120", true},
		"Spec":           {"another client changed the spec", withGeneration, "u", 4, "120", false},
		"Recreated":      {"another object of that name starts with the same generation", withGeneration, "v", 3, "120", false},
		"NoGeneration":   {"a kind without generation: a newer version is of another client", without, "u", 0, "101", false},
		"SameVersion":    {"a kind without generation: the same version is an own write", without, "u", 0, "100", true},
		"OpaqueVersion":  {"a version that is not a number is ignored", withGeneration, "u", 4, "abc", false},
		"OnlyVersion":    {"an event may contain less", without, "", 0, "100", true},
		"NothingIsKnown": {"an empty event", without, "", 0, "", false},
	}
	ref := Ref{Version: "v1", Kind: "ConfigMap", Namespace: "a", Name: "b"}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var p Progress
			if p.ObserveEvent(ref, tc.uid, tc.generation, tc.version) {
				t.Error("an event of an object that was never applied counts as an own write")
			}
			p.beginWrite(ref)
			p.recordApplied(ref, 1, tc.answer, 1, true)
			other := ref
			other.Version = "v2"
			if got := p.ObserveEvent(other, tc.uid, tc.generation, tc.version); got != tc.want {
				t.Errorf("%s: got %t, want %t", tc.reason, got, tc.want)
			}
			if p.Forget(ref); p.ObserveEvent(ref, tc.uid, tc.generation, tc.version) || p.IsApplied(ref) {
				t.Error("an event of a forgotten object counts as an own write")
			}
		})
	}
}

func TestIsKnownVersion(t *testing.T) {
	ref := Ref{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "a", Name: "b"}
	tests := map[string]struct {
		reason  string
		applied bool // at version 100, generation 3
		read    *metadata
		uid     types.UID
		version string
		want    bool
	}{
		"Nothing":     {"it was neither written nor read", false, nil, "u", "100", false},
		"Written":     {"our own write", true, nil, "u", "100", true},
		"Newer":       {"written by another client since", true, nil, "u", "101", false},
		"Read":        {"read as it is told", false, &metadata{UID: "u", ResourceVersion: "120", Generation: 3}, "u", "120", true},
		"Older":       {"a late event", false, &metadata{UID: "u", ResourceVersion: "120", Generation: 3}, "u", "110", true},
		"ReadSince":   {"its status, after our write", true, &metadata{UID: "u", ResourceVersion: "120", Generation: 3}, "u", "120", true},
		"SpecChanged": {"read, but not compared", true, &metadata{UID: "u", ResourceVersion: "120", Generation: 4}, "u", "120", false},
		"Recreated":   {"another object of that name", false, &metadata{UID: "u", ResourceVersion: "120", Generation: 1}, "v", "110", false},
		"Replaced":    {"the object that was read is not the one that was written", true, &metadata{UID: "v", ResourceVersion: "120", Generation: 3}, "v", "120", false},
		"Opaque":      {"a version that is not a number is ignored", false, &metadata{UID: "u", ResourceVersion: "abc", Generation: 1}, "u", "abc", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var p Progress
			if tc.applied {
				p.beginWrite(ref)
				p.recordApplied(ref, 1, &metadata{UID: "u", ResourceVersion: "100", Generation: 3}, 1, true)
			}
			if r := tc.read; r != nil {
				p.ObserveRead(ref, types.UID(r.UID), r.Generation, r.ResourceVersion)
			}
			if got := p.IsKnownVersion(ref, tc.uid, tc.version); got != tc.want {
				t.Errorf("%s: got %t, want %t", tc.reason, got, tc.want)
			}
			if p.IsApplied(ref) != tc.applied {
				t.Error("an object that was only read counts as applied, or the other way round")
			}
		})
	}
}

// TestObserveEventInFlight: events that come while an object is being applied are judged by the answer.
func TestObserveEventInFlight(t *testing.T) {
	deployment := Ref{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "default", Name: "d"}
	config := Ref{Version: "v1", Kind: "ConfigMap", Namespace: "default", Name: "c"}
	tests := map[string]struct {
		reason     string
		ref        Ref
		generation int64 // of the event that arrives meanwhile
		version    int
		want       bool // done with it
	}{
		"OwnWrite":      {"the event of this very write", deployment, 1, 101, true},
		"Status":        {"a controller wrote status right after", deployment, 1, 150, true},
		"ChangedSpec":   {"another client changed the spec right after", deployment, 2, 150, false},
		"OwnConfig":     {"the event of this very write", config, 0, 101, true},
		"ChangedConfig": {"another client changed it right after", config, 0, 150, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			c := s.cluster(ClusterOptions{})
			var p Progress
			s.before = func(r *http.Request) {
				if !p.ObserveEvent(tc.ref, "", tc.generation, strconv.Itoa(tc.version)) {
					t.Errorf("an event while it is being applied must wait for the answer")
				}
			}
			yaml := "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}}"
			if tc.ref == config {
				yaml = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}"
				s.on("PATCH /api/v1/namespaces/default/configmaps/c", func(w http.ResponseWriter, r *http.Request) {
					write(w, 201, map[string]any{"metadata": map[string]any{"uid": "u", "resourceVersion": "101"}})
				})
			}
			set := Set{Bundle: bundleOf(t, yaml)}
			result, err := c.Apply(t.Context(), set, &p)
			if err != nil || result.Done() != tc.want || p.IsApplied(tc.ref) != tc.want {
				t.Fatalf("%s: got %v, %+v", tc.reason, err, result)
			}
			if !tc.want && (result.Waiting[0].Reason != ChangedMeanwhile || !strings.Contains(result.Waiting[0].Message, "another client")) {
				t.Errorf("got %+v, want ChangedMeanwhile", result.Waiting)
			}
			s.before = nil
			s.take()
			if result, err = c.Apply(t.Context(), set, &p); err != nil || !result.Done() {
				t.Fatalf("again: %v, %+v", err, result)
			}
			if sent := len(s.take()); (sent == 0) != tc.want {
				t.Errorf("%s: got %d requests", tc.reason, sent)
			}
		})
	}
}

// TestForgetDuringRequest: an object that was changed by another client while its request was under way is sent again,
// whatever the answer says.
func TestForgetDuringRequest(t *testing.T) {
	s := newServer(t)
	c := s.cluster(ClusterOptions{})
	set := Set{Bundle: bundleOf(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}")}
	ref := Ref{Version: "v1", Kind: "ConfigMap", Namespace: "default", Name: "c"}
	var p Progress
	s.before = func(*http.Request) { p.Forget(ref) }
	result, err := c.Apply(t.Context(), set, &p)
	if err != nil || p.IsApplied(ref) || len(result.Waiting) != 1 || result.Waiting[0].Reason != ChangedMeanwhile {
		t.Fatalf("applied: %t, %v, %+v; want it to be sent again", p.IsApplied(ref), err, result)
	}
	s.before = nil
	s.take()
	if result, err = c.Apply(t.Context(), set, &p); err != nil || !result.Done() || len(s.take()) != 1 || !p.IsApplied(ref) {
		t.Fatalf("again: %v, %+v", err, result)
	}

	// A comparison that has read the object before the change must not record it as unchanged.
	for _, known := range []bool{true, false} {
		if !known {
			p = Progress{}
		}
		s.before = func(*http.Request) { p.Forget(ref) }
		if drifted, err := c.FindDrift(t.Context(), set, &p); err != nil || len(drifted) != 0 || p.IsApplied(ref) {
			t.Errorf("known %t: %v, %v, applied %t; want what was read not to be recorded", known, drifted, err, p.IsApplied(ref))
		}
		s.before = nil
		if drifted, err := c.FindDrift(t.Context(), set, &p); err != nil || len(drifted) != 0 || !p.IsApplied(ref) {
			t.Errorf("known %t, again: %v, %v, applied %t", known, drifted, err, p.IsApplied(ref))
		}
	}
}
