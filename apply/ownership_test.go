package apply

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// TestDecideApply has a case for each row of the decision table in the comment of decideApply.
func TestDecideApply(t *testing.T) {
	cases := map[string]struct {
		reason string
		facts  facts
		want   Met
	}{
		"Terminating": {"it is being deleted", facts{deleting: true, own: true, applied: true}, metTerminating},
		"Other":       {"another module owns it", facts{other: true, applied: true}, MetShared},
		"OtherTake":   {"take is for objects of users", facts{other: true, policy: Take}, MetShared},
		"Own":         {"our inventory was lost", facts{own: true, applied: true}, MetOwn},
		"Stale":       {"its owner does not exist any more", facts{applied: true, policy: Refuse}, MetOwn},
		"Copied":      {"a user has copied our annotation", facts{own: true}, MetAdopted},
		"Refuse":      {"a user made it", facts{policy: Refuse}, metRefused},
		"Take":        {"a user made it", facts{policy: Take}, MetTaken},
		"Adopt":       {"a user made it", facts{policy: Adopt}, MetAdopted},
		"Default":     {"a user made it", facts{}, MetAdopted},
	}
	for name, c := range cases {
		if got := decideApply(c.facts); got != c.want {
			t.Errorf("%s: %s: got %s, want %s", name, c.reason, got, c.want)
		}
	}
}

// TestDecideDelete has a case for each row of the decision table in the comment of decideDelete.
func TestDecideDelete(t *testing.T) {
	cases := map[string]struct {
		reason string
		facts  facts
		want   removal
	}{
		"Terminating":    {"it is being deleted", facts{deleting: true, other: true}, removalWait},
		"Other":          {"another module owns it", facts{other: true, applied: true, adopted: true}, removalWithdraw},
		"CreatedAgain":   {"a user has created it again", facts{adopted: true, claimed: true}, removalLeave},
		"Claimed":        {"another module contains it", facts{own: true, applied: true, claimed: true}, removalHandOver},
		"ClaimedAdopted": {"the next owner releases it", facts{own: true, adopted: true, claimed: true}, removalHandOver},
		"Adopted":        {"it was there before", facts{own: true, applied: true, adopted: true}, removalRelease},
		"Own":            {"we created it", facts{own: true, applied: true}, removalDelete},
		"WithoutManager": {"a backup has restored it", facts{own: true}, removalDelete},
		"WithoutOwner":   {"the annotation was removed", facts{applied: true}, removalDelete},
	}
	for name, c := range cases {
		if got := decideDelete(c.facts); got != c.want {
			t.Errorf("%s: %s: got %s, want %s", name, c.reason, got, c.want)
		}
	}
}

// TestConditionalDelete checks that deleting an object costs one DELETE if the object has not changed since it was
// applied. If another installation has claimed the object in the meantime, the object is not deleted.
func TestConditionalDelete(t *testing.T) {
	s := newServer(t)
	c := s.cluster(ClusterOptions{})
	own := &Ownership{Name: "n/m", Title: "module m", Applied: &Progress{},
		Find: func(name string) (string, bool) { return "module other", name == "n/other" }}
	set := Set{Bundle: bundleOf(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: config, namespace: mod}}`),
		Ownership: own}
	set.Overlay.Annotations = map[string]string{AnnotationOwnedBy: own.Name}
	refs, err := c.DesiredInventory(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	if result, err := c.Apply(t.Context(), set, own.Applied); err != nil || !result.AllApplied() ||
		len(s.takeRequests()) != 1 {
		t.Fatalf("a new object costs one request: %v, %+v", err, result)
	}
	if left, err := c.DeleteOwned(t.Context(), refs, nil, own); err != nil || !left.Done() ||
		len(s.takeRequests()) != 1 {
		t.Errorf("an unchanged object costs one request: %v, %+v", err, left)
	}

	if result, err := c.Apply(t.Context(), set, own.Applied); err != nil || len(result.Created) != 1 ||
		len(own.Applied.objects) != 1 {
		t.Errorf("a deleted object is created again: %v, %+v", err, result)
	}

	own.Applied = nil // after a restart
	if _, err := c.Apply(t.Context(), set, nil); err != nil {
		t.Fatal(err)
	}
	s.change(configPath, func(o map[string]any) {
		o["metadata"].(map[string]any)["annotations"] = map[string]any{AnnotationOwnedBy: "n/other"}
	})
	s.takeRequests()
	left, err := c.DeleteOwned(t.Context(), refs, nil, own)
	if err != nil || len(left.Left) != 1 || left.Left[0].Reason != LeftToOwner || s.stored[configPath] == nil {
		t.Errorf("an object of another module: %v, %+v", err, left)
	}
}

// TestOwnersTurn checks Drifted.OwnersTurn for an object that two installations share. If another client has changed a
// field, OwnersTurn is true, because the owner has to correct the field. If the installation that owns the object has
// applied a value that differs from the value of the other installation, Apply returns a conflict.
func TestOwnersTurn(t *testing.T) {
	applied := func(fields ...string) func(map[string]any) {
		data := map[string]any{}
		for _, f := range fields {
			data["f:"+f] = map[string]any{}
		}
		return func(o map[string]any) {
			o["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{"manager": DefaultOwner,
				"operation": "Apply", "fieldsV1": map[string]any{"f:data": data}}}
		}
	}
	cases := map[string]struct {
		reason string
		data   map[string]any
		owned  []string
		want   bool
	}{
		"Edited":  {"a user has changed a", map[string]any{"a": "2", "b": "1"}, []string{"b"}, true},
		"Removed": {"a user has removed a", map[string]any{"b": "1"}, []string{"b"}, true},
		"OtherValue": {"the owner has applied another value", map[string]any{"a": "2", "b": "1"},
			[]string{"a", "b"}, false},
		"More": {"the owner applies c", map[string]any{"a": "1", "b": "1", "c": "1"},
			[]string{"a", "b", "c"}, false},
		"EditedAndOwn": {"the owner has changed b, a user a", map[string]any{"a": "2", "b": "2"}, []string{"b"}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			cluster := s.cluster(ClusterOptions{})
			ref := Ref{Version: "v1", Kind: "ConfigMap", Namespace: "mod", Name: "config", Shared: true}
			own := &Ownership{Name: "n/m", Title: "module m", Recorded: []Ref{ref},
				Find: func(name string) (string, bool) { return "module other", name == "n/other" }}
			set := Set{Ownership: own, Bundle: bundleOf(t,
				`{apiVersion: v1, kind: ConfigMap, metadata: {name: config, namespace: mod}, data: {a: "1", b: "1"}}`)}
			// The owner of the object did not set AnnotationOwnedBy itself, for example because it took the object over
			// from a former owner. FindDrift must not report AnnotationOwnedBy as drift, although the field manager of
			// the owner does not own this annotation.
			set.Overlay.Annotations = map[string]string{AnnotationOwnedBy: own.Name}
			if _, err := cluster.Apply(t.Context(), Set{Bundle: set.Bundle}, nil); err != nil {
				t.Fatal(err)
			}
			s.change(configPath, func(o map[string]any) {
				o["metadata"].(map[string]any)["annotations"] = map[string]any{AnnotationOwnedBy: "n/other",
					AnnotationCoOwners: own.Name}
			})
			var done Progress
			if found, err := cluster.FindDrift(t.Context(), set, &done); err != nil || len(found) > 0 {
				t.Fatalf("both modules have the same content: %v, %v", found, err)
			}
			s.change(configPath, applied(c.owned...))
			s.change(configPath, func(o map[string]any) { o["data"] = maps.Clone(c.data) })
			found, err := cluster.FindDrift(t.Context(), set, &done)
			if err != nil || len(found) != 1 || found[0].OwnersTurn != c.want || done.IsApplied(ref) != c.want {
				t.Errorf("%s: got %+v, %v, applied %t", c.reason, found, err, done.IsApplied(ref))
			}
		})
	}
}

// TestAdoptedUntilSaved checks that an adopted object stays adopted even if the inventory does not record the adoption,
// as when saving the status has failed. To check this, TestAdoptedUntilSaved applies a second version of the object
// with an inventory that does not record the adoption: the object must keep AnnotationAdopted. Without
// AnnotationAdopted, the object would be deleted with the module.
func TestAdoptedUntilSaved(t *testing.T) {
	s := newServer(t)
	cluster := s.cluster(ClusterOptions{})
	bundle := func(value string) *render.Bundle {
		return bundleOf(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: config, namespace: mod}, data: {a: "`+
			value+`"}}`)
	}
	if _, err := cluster.Apply(t.Context(), Set{Bundle: bundle("1"), Owner: "a-user"}, nil); err != nil {
		t.Fatal(err)
	}
	ref := Ref{Version: "v1", Kind: "ConfigMap", Namespace: "mod", Name: "config", Pending: true}
	own := &Ownership{Name: "n/m", Title: "module m", Recorded: []Ref{ref}}
	var done Progress
	for _, value := range []string{"1", "2"} {
		set := Set{Ownership: own, Bundle: bundle(value)}
		set.Overlay.Annotations = map[string]string{AnnotationOwnedBy: own.Name}
		result, err := cluster.Apply(t.Context(), set, &done)
		if err != nil || len(result.Existing) != 1 || !result.Existing[0].Ref.Adopted {
			t.Errorf("version %s: got %+v, %v: want an adopted object", value, result, err)
		}
	}
}

// configSet returns the Set of a module with the ConfigMap config, whose key a has the given value. metadata is added
// to the metadata of the ConfigMap.
func configSet(t *testing.T, own *Ownership, value, metadata string) Set {
	t.Helper()
	set := Set{Ownership: own, Bundle: bundleOf(t, `{apiVersion: v1, kind: ConfigMap, metadata: `+
		`{name: config, namespace: mod`+metadata+`}, data: {a: "`+value+`"}}`)}
	set.Overlay.Annotations = map[string]string{AnnotationOwnedBy: own.Name}
	return set
}

// TestCreatedAgain checks objects of the inventory that other clients have changed so that they lack AnnotationOwnedBy
// or fields of our field manager. An object that another client has created again is adopted or refused, like any
// object that existed before. An object that still has one of the two is corrected by one PATCH, and stays an object of
// the installation, and so does an object that the same process has applied.
func TestCreatedAgain(t *testing.T) {
	metadataOf := func(o map[string]any) map[string]any { return o["metadata"].(map[string]any) }
	strip := func(keys ...string) func(map[string]any) {
		return func(o map[string]any) {
			for _, key := range keys {
				delete(metadataOf(o), key)
			}
			o["data"] = map[string]any{"a": "theirs"}
		}
	}
	createAgain := func(o map[string]any) {
		strip("annotations", "managedFields")(o)
		metadataOf(o)["uid"] = "another"
	}
	adopted := []string{"PATCH " + configPath, "GET " + configPath, "PATCH " + configPath}
	cases := map[string]struct {
		reason     string
		change     func(map[string]any)
		isRestart  bool
		policy     Adoption
		sent       []string
		met        Met // "" if the object counts as our own
		isOursLast bool
	}{
		"CreatedAgain": {reason: "its owner keeps it", change: createAgain, isRestart: true, sent: adopted,
			met: MetAdopted},
		"WhileRunning": {reason: "another UID", change: createAgain, sent: adopted, met: MetAdopted},
		"Refused": {reason: "the policy forbids to change it", change: createAgain, isRestart: true, policy: Refuse,
			sent: adopted[:2], met: metRefused},
		"Stripped": {reason: "our field manager has applied it", change: strip("annotations"), isRestart: true,
			sent: adopted[:1], isOursLast: true},
		"Restored": {reason: "a backup has restored it", change: strip("managedFields"), isRestart: true,
			sent: adopted[:1], isOursLast: true},
		"Replaced": {reason: "this process has applied it", change: strip("annotations", "managedFields"),
			sent: adopted[:1], isOursLast: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			cluster := s.cluster(ClusterOptions{})
			ref := Ref{Version: "v1", Kind: "ConfigMap", Namespace: "mod", Name: "config"}
			own := &Ownership{Name: "n/m", Title: "module m", Recorded: []Ref{ref}, Adoption: tc.policy}
			version := func(value string) Set { return configSet(t, own, value, "") }
			done := &Progress{}
			s.apply(cluster, version("1"), done)
			s.change(configPath, tc.change)
			if tc.isRestart {
				done = &Progress{}
			}
			drifted, err := cluster.FindDrift(t.Context(), version("1"), done)
			if err != nil || len(drifted) != 1 || drifted[0].OwnershipUnknown != (tc.met != "") {
				t.Fatalf("%s: got %+v, %v", tc.reason, drifted, err)
			}
			result, sent := s.apply(cluster, version("1"), done)
			if !slices.Equal(sent, tc.sent) {
				t.Errorf("%s: got %v, want %v", tc.reason, sent, tc.sent)
			}
			switch {
			case tc.met == metRefused:
				if len(result.Failed) != 1 || result.Failed[0].Reason() != AdoptionRefused ||
					fmt.Sprint(s.configMapData()) != "map[a:theirs]" {
					t.Errorf("%s: got %+v, data %v", tc.reason, result, s.configMapData())
				}
			case tc.met != "":
				if len(result.Existing) != 1 || result.Existing[0].Met != tc.met || !result.Existing[0].Ref.Adopted {
					t.Errorf("%s: got %+v", tc.reason, result)
				}
				// The inventory could not be saved: the object is adopted all the same.
				if result, _ = s.apply(cluster, version("2"), done); len(result.Existing) != 1 ||
					!result.Existing[0].Ref.Adopted {
					t.Errorf("%s: the next version: got %+v", tc.reason, result)
				}
			default:
				if len(result.Existing) > 0 || len(result.Applied) != 1 {
					t.Errorf("%s: got %+v, want our own object", tc.reason, result)
				}
			}
			own.Applied = done
			teardown, err := cluster.DeleteOwned(t.Context(), []Ref{ref}, nil, own)
			if err != nil || len(teardown.Deleted) == 1 != tc.isOursLast ||
				slices.Contains(s.paths(), configPath) == tc.isOursLast {
				t.Errorf("%s: got %+v, %v, left %v", tc.reason, teardown, err, s.paths())
			}
		})
	}
}

// TestCreatedAgainBeforeUpgrade is TestCreatedAgain without a comparison: the next version is applied before FindDrift
// finds the object. Either an event has reported the change (Progress.Doubt), or the first PATCH conflicts with the
// fields of another client. An object with ignored paths is read anyway.
func TestCreatedAgainBeforeUpgrade(t *testing.T) {
	const (
		patch = "PATCH " + configPath
		get   = "GET " + configPath
	)
	edit := func(uid string, keys ...string) func(map[string]any) {
		return func(o map[string]any) {
			metadata := o["metadata"].(map[string]any)
			for _, key := range keys {
				delete(metadata, key)
			}
			metadata["uid"] = cmp.Or(uid, metadata["uid"].(string))
			o["data"] = map[string]any{"a": "theirs"}
		}
	}
	createAgain := edit("another", "annotations", "managedFields")
	cases := map[string]struct {
		reason    string
		change    func(map[string]any) // nil if the object is deleted
		isRestart bool
		noEvent   bool // the object conflicts instead
		ignores   bool
		policy    Adoption
		sent      []string
		met       Met // "" if the object counts as our own
	}{
		"Event": {reason: "an event has reported it", change: createAgain, sent: []string{get, get, patch},
			met: MetAdopted},
		"EventAfterRestart": {reason: "nothing is known of the object", change: createAgain, isRestart: true,
			sent: []string{get, get, patch}, met: MetAdopted},
		"EventRefused": {reason: "the policy forbids to change it", change: createAgain, policy: Refuse,
			sent: []string{get, get}, met: metRefused},
		"EventChanged": {reason: "an admin has changed our object", change: edit(""), sent: []string{get, patch}},
		"EventReplaced": {reason: "this process has applied it", change: edit("", "annotations", "managedFields"),
			sent: []string{get, patch}},
		"EventRestored": {reason: "a backup has restored it", change: edit("another", "managedFields"),
			sent: []string{get, patch}},
		"EventDeleted": {reason: "it is only deleted", sent: []string{get, patch}},

		"Conflict": {reason: "no event, and another UID", change: createAgain, noEvent: true,
			sent: []string{patch, get, get, patch, patch}, met: MetAdopted},
		"ConflictAfterRestart": {reason: "no event could be received", change: createAgain, noEvent: true, isRestart: true,
			sent: []string{patch, get, get, patch, patch}, met: MetAdopted},
		"ConflictRefused": {reason: "nothing is overwritten", change: createAgain, noEvent: true, isRestart: true,
			policy: Refuse, sent: []string{patch, get, get}, met: metRefused},
		"ConflictWithAdmin": {reason: "an admin has changed our object", change: edit(""), noEvent: true, isRestart: true,
			sent: []string{patch, get, patch}},
		"ConflictReplaced": {reason: "this process has applied it", change: edit("", "annotations", "managedFields"),
			noEvent: true, sent: []string{patch, get, patch}},

		"Ignored": {reason: "the object is read anyway", change: createAgain, noEvent: true, ignores: true,
			sent: []string{get, get, get, patch, get, patch}, met: MetAdopted},
		"IgnoredRefused": {reason: "nothing is overwritten", change: createAgain, noEvent: true, isRestart: true,
			ignores: true, policy: Refuse, sent: []string{patch, get, get}, met: metRefused},
		"IgnoredOwn": {reason: "an admin has changed our object", change: edit(""), noEvent: true, ignores: true,
			sent: []string{get, patch, get, patch}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			cluster := s.cluster(ClusterOptions{})
			ref := Ref{Version: "v1", Kind: "ConfigMap", Namespace: "mod", Name: "config"}
			own := &Ownership{Name: "n/m", Title: "module m", Recorded: []Ref{ref}, Adoption: tc.policy}
			annotations := ""
			if tc.ignores {
				annotations = ", annotations: {" + AnnotationIgnorePaths + `: "data.b"}`
			}
			version := func(value string) Set { return configSet(t, own, value, annotations) }
			done := &Progress{}
			s.apply(cluster, version("1"), done)
			if tc.change != nil {
				s.change(configPath, tc.change)
			} else {
				s.mu.Lock()
				delete(s.stored, configPath)
				s.mu.Unlock()
			}
			if tc.isRestart {
				done = &Progress{}
			}
			if tc.noEvent {
				s.held[configPath] = map[string]string{".data.a": "kubectl-create"}
			} else {
				done.Doubt(ref)
			}
			result, sent := s.apply(cluster, version("2"), done)
			if !slices.Equal(sent, tc.sent) {
				t.Errorf("%s: got %v, want %v", tc.reason, sent, tc.sent)
			}
			switch {
			case tc.met == metRefused:
				if len(result.Failed) != 1 || result.Failed[0].Reason() != AdoptionRefused {
					t.Errorf("%s: got %+v", tc.reason, result)
				}
				if result, _ = s.apply(cluster, version("2"), done); len(result.Failed) != 1 ||
					fmt.Sprint(s.configMapData()) != "map[a:theirs]" {
					t.Errorf("%s: the next Apply: got %+v, data %v", tc.reason, result, s.configMapData())
				}
			case tc.met != "":
				if len(result.Existing) != 1 || result.Existing[0].Met != tc.met || !result.Existing[0].Ref.Adopted {
					t.Errorf("%s: got %+v", tc.reason, result)
				}
			default:
				if len(result.Existing) > 0 || len(result.Applied) != 1 || !done.IsApplied(ref) ||
					fmt.Sprint(s.configMapData()) != "map[a:2]" {
					t.Errorf("%s: got %+v, data %v, want our own object", tc.reason, result, s.configMapData())
				}
			}
			own.Applied = done
			teardown, err := cluster.DeleteOwned(t.Context(), []Ref{ref}, nil, own)
			if isOurs := tc.met == ""; err != nil || len(teardown.Deleted) == 1 != isOurs ||
				slices.Contains(s.paths(), configPath) == isOurs {
				t.Errorf("%s: got %+v, %v, left %v", tc.reason, teardown, err, s.paths())
			}
		})
	}
}

// TestHandedBack checks two installations that contain the same object and are deleted at the same time. As long as the
// object belongs to the other installation, DeleteOwned must not delete the object. After the other installation has
// handed the object over to the installation of the test, DeleteOwned must delete the object.
func TestHandedBack(t *testing.T) {
	s := newServer(t)
	cluster := s.cluster(ClusterOptions{})
	shared := Ref{Version: "v1", Kind: "ConfigMap", Namespace: "mod", Name: "config"}
	own := &Ownership{Name: "n/m", Title: "module m", Manager: DefaultOwner,
		Find: func(name string) (string, bool) { return "module other", name == "n/other" }}
	set := Set{Ownership: own, Bundle: bundleOf(t,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: config, namespace: mod}, data: {a: "1"}}`)}
	set.Overlay.Annotations = map[string]string{AnnotationOwnedBy: own.Name}
	if _, err := cluster.Apply(t.Context(), set, nil); err != nil {
		t.Fatal(err)
	}
	owners := func(owner string) func(map[string]any) {
		return func(o map[string]any) {
			o["metadata"].(map[string]any)["annotations"] = map[string]any{AnnotationOwnedBy: owner}
		}
	}
	s.change(configPath, owners("n/other"))
	var progress DeletionProgress
	for _, want := range []int{1, 0} { // it is reported once
		result, err := cluster.DeleteOwned(t.Context(), []Ref{shared}, &progress, own)
		if err != nil || len(result.Left) != want || len(result.Remaining) > 0 {
			t.Fatalf("an object of another module: %+v, %v", result, err)
		}
	}
	s.change(configPath, owners(own.Name))
	if result, err := cluster.DeleteOwned(t.Context(), []Ref{shared}, &progress, own); err != nil ||
		len(result.Deleted) != 1 || slices.Contains(s.paths(), configPath) {
		t.Errorf("an object that was handed over: %+v, %v, left %v", result, err, s.paths())
	}
}

// TestLeftObjectsKeepTheirContainer checks that a namespace and a CRD are not deleted while they contain an object of
// the inventory that DeleteOwned has left in the cluster. The deletion continues when the object no longer exists.
func TestLeftObjectsKeepTheirContainer(t *testing.T) {
	config := Ref{Version: "v1", Kind: "ConfigMap", Namespace: "mod", Name: "config"}
	thing := Ref{Group: "example.com", Version: "v1", Kind: "Thing", Namespace: "default", Name: "default"}
	namespace := Ref{Version: "v1", Kind: "Namespace", Name: "mod"}
	definition := Ref{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
		Name: "things.example.com"}
	cases := map[string]struct {
		object, container         Ref
		objectPath, containerPath string
		owner, adopted            string // annotations of the object
		reason, message           string
	}{
		"AdoptedInNamespace": {config, namespace, configPath, namespacePath, "n/m", "true", LeftReleased,
			"1 ConfigMap (config)"},
		"OthersInNamespace": {config, namespace, configPath, namespacePath, "n/other", "", LeftToOwner,
			"1 ConfigMap (config)"},
		"AdoptedOfCRD": {thing, definition, thingPath, definitionPath, "n/m", "true", LeftReleased,
			"1 (default/default)"},
		"OthersOfCRD": {thing, definition, thingPath, definitionPath, "n/other", "", LeftToOwner,
			"1 (default/default)"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, c, _ := installed(t)
			s.setScript("GET /api", jsonScript(`{"kind":"APIGroupDiscoveryList","items":[{"metadata":{},
"versions":[{"version":"v1","resources":[{"resource":"configmaps","scope":"Namespaced","verbs":["list","delete"],
"responseKind":{"kind":"ConfigMap"}}]}]}]}`))
			s.setScript("GET /apis", jsonScript(`{"kind":"APIGroupDiscoveryList","items":[]}`))
			own := &Ownership{Name: "n/m", Title: "module m", Manager: DefaultOwner,
				Find: func(name string) (string, bool) { return "module other", name == "n/other" }}
			annotate := func(path string, annotations map[string]any) {
				s.change(path, func(o map[string]any) { o["metadata"].(map[string]any)["annotations"] = annotations })
			}
			annotate(tc.containerPath, map[string]any{AnnotationOwnedBy: own.Name})
			annotate(tc.objectPath, map[string]any{AnnotationOwnedBy: tc.owner, AnnotationAdopted: tc.adopted})
			object := tc.object
			object.Adopted = tc.adopted == "true"
			refs := []Ref{tc.container, object}
			var progress DeletionProgress
			for _, reported := range []int{1, 0} { // the object is reported once
				result, err := c.DeleteOwned(t.Context(), refs, &progress, own)
				if err != nil || len(result.Left) != reported || len(result.Remaining) != 1 ||
					!result.Remaining[0].Content || !result.Remaining[0].Ref.SameObject(tc.container) ||
					!strings.Contains(result.Remaining[0].Message, tc.message) {
					t.Fatalf("got %+v, %v, want that %s stays because of %s", result, err, tc.container, tc.message)
				}
				if reported > 0 && result.Left[0].Reason != tc.reason {
					t.Errorf("left because of %s, want %s", result.Left[0].Reason, tc.reason)
				}
			}
			if stored := s.paths(); !slices.Contains(stored, tc.objectPath) ||
				!slices.Contains(stored, tc.containerPath) {
				t.Fatalf("only %v are left", stored)
			}
			s.mu.Lock()
			delete(s.stored, tc.objectPath)
			s.mu.Unlock()
			result, err := c.DeleteOwned(t.Context(), refs, &progress, own)
			if err != nil || !result.Done() || slices.Contains(s.paths(), tc.containerPath) {
				t.Errorf("without the object: got %+v, %v, left %v", result, err, s.paths())
			}
		})
	}
}

// TestRecordedAreOwn checks which objects DeleteOwned deletes if no field manager is recorded for them, as for objects
// that were applied with only their names.
func TestRecordedAreOwn(t *testing.T) {
	cases := map[string]struct {
		reason  string
		ref     Ref
		trusted bool
		deleted bool
	}{
		"Recorded":  {"the installation has created it", Ref{}, true, true},
		"Pending":   {"it may have existed before", Ref{Pending: true}, true, false},
		"Adopted":   {"it existed before", Ref{Adopted: true}, true, false},
		"Untrusted": {"the inventory alone proves nothing", Ref{}, false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, c, _ := installed(t)
			s.change(configPath, func(o map[string]any) { delete(o["metadata"].(map[string]any), "managedFields") })
			ref := Ref{Version: "v1", Kind: "ConfigMap", Namespace: "mod", Name: "config"}.WithOwnershipFlags(tc.ref)
			own := &Ownership{Name: "n/m", Title: "module m", RecordedAreOwn: tc.trusted}
			result, err := c.DeleteOwned(t.Context(), []Ref{ref}, nil, own)
			if err != nil || len(result.Deleted) == 1 != tc.deleted || len(result.Left) == 0 != tc.deleted ||
				slices.Contains(s.paths(), configPath) == tc.deleted {
				t.Errorf("%s: got %+v, %v, left %v", tc.reason, result, err, s.paths())
			}
		})
	}
}

// TestInventoryInNamespace checks that a namespace is deleted although it contains the object in which the inventory is
// stored.
func TestInventoryInNamespace(t *testing.T) {
	s, c, _ := installed(t)
	s.setScript("GET /api", jsonScript(`{"kind":"APIGroupDiscoveryList","items":[{"metadata":{},
"versions":[{"version":"v1","resources":[{"resource":"configmaps","scope":"Namespaced","verbs":["list","delete"],
"responseKind":{"kind":"ConfigMap"}}]}]}]}`))
	s.setScript("GET /apis", jsonScript(`{"kind":"APIGroupDiscoveryList","items":[]}`))
	namespace := []Ref{{Version: "v1", Kind: "Namespace", Name: "mod"}}
	own := &Ownership{Name: "n/m", Title: "module m"}
	if result, err := c.DeleteOwned(t.Context(), namespace, nil, own); err != nil || result.Done() {
		t.Errorf("with a ConfigMap of others: got %+v, %v", result, err)
	}
	own.Inventory = Ref{Version: "v1", Kind: "ConfigMap", Namespace: "mod", Name: "config"}
	if result, err := c.DeleteOwned(t.Context(), namespace, nil, own); err != nil || !result.Done() ||
		slices.Contains(s.paths(), namespacePath) {
		t.Errorf("with the inventory: got %+v, %v", result, err)
	}
}
