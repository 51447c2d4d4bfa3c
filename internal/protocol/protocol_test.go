package protocol

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestPaths(t *testing.T) {
	if got := EventPath(ManagerName) + " " + HeartbeatPath("x"); got != "/v2/lifecycle-manager/event /v2/x/heartbeat" {
		t.Error(got)
	}
}

func TestParseEvent(t *testing.T) {
	kyma := metav1.GroupVersionKind{Group: "operator.kyma-project.io", Version: "v1beta2", Kind: "Kyma"}
	cases := map[string]struct {
		reason string
		body   string
		want   Event
		fails  bool
	}{
		"Reference": {
			"what the Kyma project's agent sends",
			`{"watched":{"Namespace":"kyma-system","Name":"default"},"watchedGvk":{"group":"operator.kyma-project.io","version":"v1beta2","kind":"Kyma"}}`,
			Event{Watched: Name{"kyma-system", "default"}, WatchedGVK: kyma}, false,
		},
		"Ours": {
			"what our agent sends",
			`{"watched":{"Namespace":"","Name":"a"},"watchedGvk":{"kind":"A"},"boot":"b","sequence":7,"resource":"as","deleted":true,"object":{"uid":"u"}}`,
			Event{Watched: Name{Name: "a"}, WatchedGVK: metav1.GroupVersionKind{Kind: "A"}, BootID: "b", Sequence: 7,
				Resource: "as", Deleted: true, Object: &metav1.ObjectMeta{UID: "u"}}, false,
		},
		"Began": {"a whole resource has no name", `{"watchedGvk":{"kind":"A"},"began":true}`,
			Event{WatchedGVK: metav1.GroupVersionKind{Kind: "A"}, WatchStarted: true}, false},
		"NoName":  {"an object has one", `{"watchedGvk":{"kind":"A"}}`, Event{}, true},
		"NoKind":  {"and a kind", `{"watched":{"Name":"a"}}`, Event{}, true},
		"NotJSON": {"JSON is wanted", `hello`, Event{}, true},
		"Negative": {"no number is negative", `{"watched":{"Name":"a"},"watchedGvk":{"kind":"A"},"sequence":-1}`,
			Event{}, true},
		"Two": {"one event at a time", `{"watched":{"Name":"a"},"watchedGvk":{"kind":"A"}}{}`, Event{}, true},
		"Listed": {"no agent sends owner references",
			`{"watchedGvk":{"kind":"A"},"began":true,"there":[{"name":"a","ownerReferences":[{}]}]}`,
			Event{WatchedGVK: metav1.GroupVersionKind{Kind: "A"}, WatchStarted: true, Objects: Objects{{Name: "a"}}},
			false},
		"ListedWithoutName": {"each listed object has a name",
			`{"watchedGvk":{"kind":"A"},"began":true,"there":[{"name":"a"},{}]}`, Event{}, true},
		"NoList": {"the objects are a list", `{"watchedGvk":{"kind":"A"},"began":true,"there":{"name":"a"}}`, Event{},
			true},
		"NullList": {"null is an empty list", `{"watchedGvk":{"kind":"A"},"began":true,"there":null}`,
			Event{WatchedGVK: metav1.GroupVersionKind{Kind: "A"}, WatchStarted: true}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseEvent([]byte(c.body))
			if diff := cmp.Diff(c.want, got); diff != "" || (err != nil) != c.fails {
				t.Errorf("%s: %v %s", c.reason, err, diff)
			}
		})
	}
}

// TestMaxEventEntries checks how many objects and managedFields an event may have, and that a second list in the event
// does not hide the first one.
func TestMaxEventEntries(t *testing.T) {
	list := func(entry string, n int) string { return `[` + strings.Repeat(entry+`,`, n-1) + entry + `]` }
	cases := map[string]struct {
		reason string
		fields string
		fails  bool
	}{
		"Most": {"as many as the maximum", `"there":` + list(`{"name":"a"}`, MaxEventEntries), false},
		"More": {"one more", `"there":` + list(`{"name":"a"}`, MaxEventEntries+1), true},
		"Twice": {"a key that is there twice", `"there":` + list(`{}`, 5400) + `,"there":` + list(`{"name":"a"}`, 1),
			true},
		"MostFields": {"all objects together", `"object":{"managedFields":` + list(`{}`, MaxEventEntries/2) +
			`},"there":[{"name":"a","managedFields":` + list(`{}`, MaxEventEntries/2) + `}]`, false},
		"MoreFields": {"one more", `"object":{"managedFields":` + list(`{}`, MaxEventEntries/2) +
			`},"there":[{"name":"a","managedFields":` + list(`{}`, MaxEventEntries/2+1) + `}]`, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ParseEvent([]byte(`{"watchedGvk":{"kind":"A"},"began":true,` + c.fields + `}`))
			if (err != nil) != c.fails {
				t.Errorf("%s: %v", c.reason, err)
			}
		})
	}
}

func TestParseHeartbeat(t *testing.T) {
	cases := map[string]struct {
		reason string
		body   string
		want   Heartbeat
		fails  bool
	}{
		"Full": {"all there is",
			`{"boot":"b","version":"1","sequence":3,"pending":2,"lost":true,"watchlist":"w","problem":"p"}`,
			Heartbeat{BootID: "b", Version: "1", Sequence: 3, Pending: 2, EventsLost: true,
				Watchlist: "w", Problem: "p"}, false},
		"Boot":     {"a life has a name", `{"version":"1"}`, Heartbeat{}, true},
		"Pending":  {"nothing is less than nothing", `{"boot":"b","pending":-1}`, Heartbeat{}, true},
		"Sequence": {"nor is a number", `{"boot":"b","sequence":-1}`, Heartbeat{}, true},
		"NotJSON":  {"JSON is wanted", ``, Heartbeat{}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseHeartbeat([]byte(c.body))
			if diff := cmp.Diff(c.want, got); diff != "" || (err != nil) != c.fails {
				t.Errorf("%s: %v %s", c.reason, err, diff)
			}
		})
	}
}

func TestParseWatchlist(t *testing.T) {
	entry := func(more string) string { return `{"watches":[{"version":"v1","resource":"things"` + more + `}]}` }
	cases := map[string]struct {
		reason string
		data   string
		fails  bool
	}{
		"Empty": {"nothing to watch is fine", `{"watches":[]}`, false},
		"Small": {"a resource and a version are enough", entry(""), false},
		"Star":  {"the version may be left open", `{"watches":[{"version":"*","resource":"things"}]}`, false},
		"Full": {"all fields",
			entry(`,"manager":"m","group":"example.com","kind":"Thing","namespace":"ns","name":"a:b","selector":"a in (b,c),!d","field":"status"`), false},
		"Heartbeat": {"an interval is a duration", `{"watches":[],"heartbeat":"10s"}`, false},
		"TwoManagers": {"two managers may want the same",
			`{"watches":[{"version":"v1","resource":"things"},{"version":"v1","resource":"things","manager":"m"}]}`,
			false},
		"NotJSON":    {"JSON is wanted", `[]`, true},
		"Missing":    {"an empty key is no list", ``, true},
		"NoVersion":  {"a version is wanted", `{"watches":[{"resource":"things"}]}`, true},
		"NoResource": {"a resource is wanted", `{"watches":[{"version":"v1"}]}`, true},
		"Subresource": {"subresources are not watched", `{"watches":[{"version":"v1","resource":"things/status"}]}`,
			true},
		"Traversal": {"nothing leads out of a path", entry(`,"namespace":"../../secrets"`), true},
		"Dots":      {"not even a name", entry(`,"name":".."`), true},
		"Manager":   {"a manager is one segment", entry(`,"manager":"a/b"`), true},
		"Version":   {"a version is a word", `{"watches":[{"version":"v1/../v2","resource":"things"}]}`, true},
		"Selector":  {"a selector can be read", entry(`,"selector":"a in b"`), true},
		"Field":     {"a field is one of three", entry(`,"field":"metadata"`), true},
		"Duplicate": {"an event would be sent twice",
			`{"watches":[{"version":"v1","resource":"things"},{"version":"v1","resource":"things","manager":"lifecycle-manager"}]}`, true},
		"Negative": {"time goes forward", `{"watches":[],"heartbeat":"-1s"}`, true},
		"TooMany":  {"there is a limit", `{"watches":[` + strings.Repeat(`{},`, MaxWatches) + `{}]}`, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ParseWatchlist([]byte(c.data))
			if (err != nil) != c.fails {
				t.Errorf("%s: %v", c.reason, err)
			}
		})
	}
}

func TestDigest(t *testing.T) {
	a, b := Watch{Version: "v1", Resource: "as"}, Watch{Version: "v1", Resource: "bs", Field: FieldSpec}
	named := a
	named.Manager = ManagerName
	list := Watchlist{Watches: []Watch{a, b}}
	digest := list.Digest()
	if len(digest) != 16 || digest != "70fbb23917c16105" {
		t.Errorf("the digest is %q: both sides have to agree on it, also in different versions", digest)
	}
	if list.HeartbeatIntervalOrDefault() != 30*time.Second {
		t.Errorf("the interval is %v", list.HeartbeatIntervalOrDefault())
	}
	cases := map[string]struct {
		reason string
		list   Watchlist
		same   bool
	}{
		"Order":   {"the order does not matter", Watchlist{Watches: []Watch{b, a}}, true},
		"Manager": {"nor that the default is said", Watchlist{Watches: []Watch{named, b}}, true},
		"Heartbeat": {"nor which", Watchlist{Watches: []Watch{a, b},
			HeartbeatInterval: metav1.Duration{Duration: DefaultHeartbeatInterval}}, true},
		"Interval": {"another interval does", Watchlist{Watches: []Watch{a, b},
			HeartbeatInterval: metav1.Duration{Duration: time.Second}}, false},
		"Field": {"and another field", Watchlist{Watches: []Watch{a, {Version: "v1", Resource: "bs"}}}, false},
		"Fewer": {"and fewer entries", Watchlist{Watches: []Watch{a}}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if same := c.list.Digest() == digest; same != c.same {
				t.Errorf("%s: same is %t", c.reason, same)
			}
		})
	}
}

func TestTrim(t *testing.T) {
	now := metav1.Now()
	full := &metav1.ObjectMeta{
		Name: "n", Namespace: "ns", UID: "u", ResourceVersion: "1", Generation: 2,
		DeletionTimestamp: &now, CreationTimestamp: now,
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d", lastAppliedAnnotation: "{}"},
		Finalizers:      []string{"f"},
		OwnerReferences: []metav1.OwnerReference{{UID: "o"}},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "m", Operation: metav1.ManagedFieldsOperationApply, Time: &now, Subresource: "status",
			APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1("{}"),
		}},
	}
	before := full.DeepCopy()
	got := EventMetadata(full)
	want := &metav1.ObjectMeta{
		UID: "u", ResourceVersion: "1", Generation: 2, DeletionTimestamp: &now, Labels: map[string]string{"a": "b"},
		Annotations: map[string]string{"c": "d"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", Operation: metav1.ManagedFieldsOperationApply,
			Time: &now, Subresource: "status"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got.Labels["a"], got.DeletionTimestamp.Time = "changed", time.Time{}
	if diff := cmp.Diff(before, full, cmp.Comparer(
		func(a, b *metav1.FieldsV1) bool { return a.String() == b.String() })); diff != "" {
		t.Errorf("the original was touched: %s", diff)
	}
	if EventMetadata(nil) != nil || EventMetadata(&metav1.ObjectMeta{}).Labels != nil {
		t.Error("nothing comes from nothing")
	}
}

// FuzzParseEvent and the two fuzz tests below check that every parsed message can be encoded, and that parsing the
// encoded message gives the same value.
func FuzzParseEvent(f *testing.F) {
	f.Add([]byte(`{"watched":{"Namespace":"kyma-system","Name":"default"},"watchedGvk":{"group":"operator.kyma-project.io","version":"v1beta2","kind":"Kyma"}}`))
	f.Add([]byte(`{"watchedGvk":{"kind":"A"},"began":true,"sequence":18446744073709551615,"object":{"deletionTimestamp":"2026-01-01T00:00:00Z","managedFields":[{"time":null}]}}`))
	f.Fuzz(func(t *testing.T, body []byte) { roundTrip(t, body, ParseEvent) })
}

func FuzzParseHeartbeat(f *testing.F) {
	f.Add([]byte(`{"boot":"b","version":"1","sequence":3,"pending":2,"lost":true,"watchlist":"w","problem":"p"}`))
	f.Fuzz(func(t *testing.T, body []byte) { roundTrip(t, body, ParseHeartbeat) })
}

func FuzzParseWatchlist(f *testing.F) {
	f.Add([]byte(`{"watches":[{"manager":"m","group":"g","version":"*","resource":"things","kind":"K","namespace":"n","name":"x","selector":"a=b","field":"spec"}],"heartbeat":"1m0s"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		roundTrip(t, body, ParseWatchlist)
		if w, err := ParseWatchlist(body); err == nil {
			data, err := json.Marshal(w)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := ParseWatchlist(data); err != nil || again.Digest() != w.Digest() {
				t.Errorf("%s gives %v", data, err)
			}
		}
	})
}

func roundTrip[T any](t *testing.T, body []byte, parse func([]byte) (T, error)) {
	one, err := parse(body)
	if err != nil {
		return
	}
	first, err := json.Marshal(one)
	if err != nil {
		t.Fatalf("%s parses, but cannot be written: %v", body, err)
	}
	two, err := parse(first)
	if err != nil {
		t.Fatalf("%s parses, and %s does not: %v", body, first, err)
	}
	if second, err := json.Marshal(two); err != nil || !bytes.Equal(first, second) {
		t.Errorf("%s becomes %s: %v", first, second, err)
	}
}

// TestWatchState checks that two watches that differ only in the field State count as equal, because agents of former
// versions ignore this field.
func TestWatchState(t *testing.T) {
	watch := Watch{Version: "v1", Resource: "pods"}
	without := Watchlist{Watches: []Watch{watch}}
	watch.State = true
	with := Watchlist{Watches: []Watch{watch}}
	if with.Digest() != without.Digest() {
		t.Error("an agent of a former version would report another watch list than the manager wants")
	}
	twice, err := json.Marshal(Watchlist{Watches: append(with.Watches, without.Watches...)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseWatchlist(twice); err == nil {
		t.Error("an agent of a former version refuses two watches that differ only in that")
	}
}

// TestTrimState checks that the trimmed state of an object keeps the fields that decide whether the object is ready,
// and that the trimmed state is small.
func TestTrimState(t *testing.T) {
	object := func(text string) map[string]any {
		return map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": map[string]any{"name": "d", "managedFields": []any{"x"},
				"annotations": map[string]any{lastAppliedAnnotation: "{}", "a": "b"}},
			"spec":   map[string]any{"replicas": 1, "template": map[string]any{"spec": "x"}},
			"status": map[string]any{"text": text}}
	}
	want := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"annotations":{"a":"b"},"name":"d"},"spec":{"replicas":1},` +
		`"status":{"text":"t"}}`
	if got := string(TrimAndEncodeState(object("t"))); got != want {
		t.Errorf("got %s", got)
	}
	resource := object("t")
	resource["apiVersion"] = "example.com/v1"
	if got := string(TrimAndEncodeState(resource)); !strings.Contains(got, `"template"`) {
		t.Errorf("a field of a custom resource is missing: %s", got)
	}
	if got := TrimAndEncodeState(object(strings.Repeat("t", MaxStateBytes))); got != nil {
		t.Errorf("a state of %d bytes is sent", len(got))
	}
}

// TestDecodeStates checks that a state in an event is used only for the object with the same namespace and name.
func TestDecodeStates(t *testing.T) {
	state := func(name string) json.RawMessage {
		return json.RawMessage(`{"apiVersion":"v1","kind":"A","metadata":{"namespace":"n","name":"` + name + `"}}`)
	}
	e := Event{Watched: Name{"n", "a"}, State: state("a"),
		Objects: []metav1.ObjectMeta{{Namespace: "n", Name: "b"}, {Namespace: "n", Name: "c"}, {Name: "d"}},
		States:  []json.RawMessage{state("b"), state("other")}}
	got := e.DecodeValidStates()
	if len(got) != 2 || got[types.NamespacedName{Namespace: "n", Name: "a"}].GetName() != "a" ||
		got[types.NamespacedName{Namespace: "n", Name: "b"}].GetName() != "b" {
		t.Errorf("got %v", got)
	}
	nested := func(n int) Event {
		return Event{Watched: Name{"n", "a"}, State: json.RawMessage(`{"apiVersion":"v1","kind":"A","metadata":` +
			`{"namespace":"n","name":"a"},"spec":[` + strings.Repeat(`{},`, n-1) + `{}]}`)}
	}
	for n, want := range map[int]int{maxStateContainers - 3: 1, maxStateContainers - 2: 0} {
		if e := nested(n); len(e.DecodeValidStates()) != want {
			t.Errorf("%d states with %d objects and lists are decoded, want %d", len(e.DecodeValidStates()), n+3, want)
		}
	}
	if got := (&Event{Watched: Name{"n", "a"}, State: json.RawMessage(`{"kind":`)}).DecodeValidStates(); got != nil {
		t.Errorf("from an invalid state: got %v", got)
	}
}
