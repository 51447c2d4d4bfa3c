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
		"OwnWrite": {
			reason:     "the very write",
			answer:     withGeneration,
			uid:        "u",
			generation: 3,
			version:    "100",
			want:       true,
		},
		"Older": {
			reason:     "an event from before",
			answer:     withGeneration,
			uid:        "u",
			generation: 2,
			version:    "90",
			want:       true,
		},
		"Status": {
			reason:     "status does not change the generation",
			answer:     withGeneration,
			uid:        "u",
			generation: 3,
			version:    "120",
			want:       true,
		},
		"Spec": {
			reason:     "another client changed the spec",
			answer:     withGeneration,
			uid:        "u",
			generation: 4,
			version:    "120",
		},
		"Recreated": {
			reason:     "another object of that name starts with the same generation",
			answer:     withGeneration,
			uid:        "v",
			generation: 3,
			version:    "120",
		},
		"NoGeneration": {
			reason:  "a kind without generation: a newer version is of another client",
			answer:  without,
			uid:     "u",
			version: "101",
		},
		"SameVersion": {
			reason:  "a kind without generation: the same version is an own write",
			answer:  without,
			uid:     "u",
			version: "100",
			want:    true,
		},
		"OpaqueVersion": {
			reason:     "a version that is not a number is ignored",
			answer:     withGeneration,
			uid:        "u",
			generation: 4,
			version:    "abc",
		},
		"OnlyVersion":    {reason: "an event may contain less", answer: without, version: "100", want: true},
		"NothingIsKnown": {reason: "an empty event", answer: without},
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
		"Nothing": {reason: "it was neither written nor read", uid: "u", version: "100"},
		"Written": {reason: "our own write", applied: true, uid: "u", version: "100", want: true},
		"Newer":   {reason: "written by another client since", applied: true, uid: "u", version: "101"},
		"Read": {
			reason:  "read as it is told",
			read:    &metadata{UID: "u", ResourceVersion: "120", Generation: 3},
			uid:     "u",
			version: "120",
			want:    true,
		},
		"Older": {
			reason:  "a late event",
			read:    &metadata{UID: "u", ResourceVersion: "120", Generation: 3},
			uid:     "u",
			version: "110",
			want:    true,
		},
		"ReadSince": {
			reason:  "its status, after our write",
			applied: true,
			read:    &metadata{UID: "u", ResourceVersion: "120", Generation: 3},
			uid:     "u",
			version: "120",
			want:    true,
		},
		"SpecChanged": {
			reason:  "read, but not compared",
			applied: true,
			read:    &metadata{UID: "u", ResourceVersion: "120", Generation: 4},
			uid:     "u",
			version: "120",
		},
		"Recreated": {
			reason:  "another object of that name",
			read:    &metadata{UID: "u", ResourceVersion: "120", Generation: 1},
			uid:     "v",
			version: "110",
		},
		"Replaced": {
			reason:  "the object that was read is not the one that was written",
			applied: true,
			read:    &metadata{UID: "v", ResourceVersion: "120", Generation: 3},
			uid:     "v",
			version: "120",
		},
		"Opaque": {
			reason:  "a version that is not a number is ignored",
			read:    &metadata{UID: "u", ResourceVersion: "abc", Generation: 1},
			uid:     "u",
			version: "abc",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var p Progress
			if tc.applied {
				p.beginWrite(ref)
				p.recordApplied(ref, 1, &metadata{UID: "u", ResourceVersion: "100", Generation: 3}, 1, true)
			}
			if r := tc.read; r != nil {
				p.RecordReadUnlessChanged(ref, types.UID(r.UID), r.Generation, r.ResourceVersion)
			}
			if got := p.IsNotNewerThanRecorded(ref, tc.uid, tc.version); got != tc.want {
				t.Errorf("%s: got %t, want %t", tc.reason, got, tc.want)
			}
			if p.IsApplied(ref) != tc.applied {
				t.Error("an object that was only read counts as applied, or the other way round")
			}
		})
	}
}

// TestObserveEventInFlight tests watch events that arrive while an object is being applied. Only the response to the
// apply request shows whether an event that arrived during the request was caused by the request.
func TestObserveEventInFlight(t *testing.T) {
	deployment := Ref{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "default", Name: "d"}
	config := Ref{Version: "v1", Kind: "ConfigMap", Namespace: "default", Name: "c"}
	tests := map[string]struct {
		reason     string
		ref        Ref
		generation int64 // generation of the event that arrives during the request
		version    int
		want       bool // the object needs no further request
	}{
		"OwnWrite": {
			reason:     "the event of this very write",
			ref:        deployment,
			generation: 1,
			version:    101,
			want:       true,
		},
		"Status": {
			reason:     "a controller wrote status right after",
			ref:        deployment,
			generation: 1,
			version:    150,
			want:       true,
		},
		"ChangedSpec": {
			reason:     "another client changed the spec right after",
			ref:        deployment,
			generation: 2,
			version:    150,
		},
		"OwnConfig":     {reason: "the event of this very write", ref: config, version: 101, want: true},
		"ChangedConfig": {reason: "another client changed it right after", ref: config, version: 150},
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
				s.setScript("PATCH /api/v1/namespaces/default/configmaps/c", func(w http.ResponseWriter, r *http.Request) {
					writeJSON(w, 201, map[string]any{"kind": "ConfigMap",
						"metadata": map[string]any{"name": "c", "uid": "u", "resourceVersion": "101"}})
				})
			}
			set := Set{Bundle: bundleOf(t, yaml)}
			result, err := c.Apply(t.Context(), set, &p)
			if err != nil || result.AllApplied() != tc.want || p.IsApplied(tc.ref) != tc.want {
				t.Fatalf("%s: got %v, %+v", tc.reason, err, result)
			}
			if !tc.want && (result.Waiting[0].Reason != ChangedMeanwhile ||
				!strings.Contains(result.Waiting[0].Message, "another client")) {
				t.Errorf("got %+v, want ChangedMeanwhile", result.Waiting)
			}
			s.before = nil
			s.takeRequests()
			if result, err = c.Apply(t.Context(), set, &p); err != nil || !result.AllApplied() {
				t.Fatalf("again: %v, %+v", err, result)
			}
			if sent := len(s.takeRequests()); (sent == 0) != tc.want {
				t.Errorf("%s: got %d requests", tc.reason, sent)
			}
		})
	}
}

// TestForgetDuringRequest tests an object that another client changes during a request for the object. The next Apply
// must send the object again, whatever the API server responds to the first request.
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
	s.takeRequests()
	if result, err = c.Apply(t.Context(), set, &p); err != nil || !result.AllApplied() ||
		len(s.takeRequests()) != 1 || !p.IsApplied(ref) {
		t.Fatalf("again: %v, %+v", err, result)
	}

	// If another client changes an object while FindDrift reads it, FindDrift must not record the object as unchanged.
	for _, known := range []bool{true, false} {
		if !known {
			p = Progress{}
		}
		s.before = func(*http.Request) { p.Forget(ref) }
		if drifted, err := c.FindDrift(t.Context(), set, &p); err != nil || len(drifted) != 0 || p.IsApplied(ref) {
			t.Errorf("known %t: %v, %v, applied %t; want what was read not to be recorded", known,
				drifted, err, p.IsApplied(ref))
		}
		s.before = nil
		if drifted, err := c.FindDrift(t.Context(), set, &p); err != nil || len(drifted) != 0 || !p.IsApplied(ref) {
			t.Errorf("known %t, again: %v, %v, applied %t", known, drifted, err, p.IsApplied(ref))
		}
	}
}
