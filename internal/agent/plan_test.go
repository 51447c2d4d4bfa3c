package agent

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

func TestPlans(t *testing.T) {
	watch := func(group, version, resource, selector string) protocol.Watch {
		return protocol.Watch{Group: group, Version: version, Resource: resource, Selector: selector}
	}
	inside := func(w protocol.Watch, namespace, name string) protocol.Watch {
		w.Namespace, w.Name = namespace, name
		return w
	}
	cases := map[string]struct {
		reason  string
		watches []protocol.Watch
		want    []string // query | filter of each target
	}{
		"None": {"nothing to watch is fine", nil, nil},
		"One": {"one entry is one query", []protocol.Watch{inside(watch("g", "v1", "a", "x=1"), "ns", "n")},
			[]string{"g/v1/a ns/n [x=1] | 0"}},
		"Equal": {"equal entries of two managers are one", []protocol.Watch{watch("g", "v1", "a", "x=1"),
			{Manager: "m", Group: "g", Version: "v1", Resource: "a", Selector: "x=1"}},
			[]string{"g/v1/a / [x=1] | 0 0"}},
		"Two": {"resources are apart", []protocol.Watch{watch("g", "v1", "a", ""), watch("g", "v1", "b", "")},
			[]string{"g/v1/a / [] | 0", "g/v1/b / [] | 0"}},
		"Versions": {"and so are versions", []protocol.Watch{watch("g", "v1", "a", ""), watch("g", "v2", "a", "")},
			[]string{"g/v1/a / [] | 0", "g/v2/a / [] | 0"}},
		"Star": {"any version joins one that is named",
			[]protocol.Watch{watch("g", "*", "a", ""), watch("g", "v2", "a", ""), watch("g", "v1", "a", "")},
			[]string{"g/v1/a / [] | 0 0", "g/v2/a / [] | 0"}},
		"StarAlone": {"or stays open", []protocol.Watch{watch("g", "*", "a", "")}, []string{"g/*/a / [] | 0"}},
		"Values": {"values of a label are joined", []protocol.Watch{watch("", "v1", "a", "x=2"),
			watch("", "v1", "a", "x in (1,3),y=1")}, []string{"/v1/a / [x in (1,2,3)] | 1 0"}},
		"Exists": {"any value is wider", []protocol.Watch{watch("", "v1", "a", "x=2"), watch("", "v1", "a", "x")},
			[]string{"/v1/a / [x] | 1 0"}},
		"NotIn": {"what is excluded cannot be joined", []protocol.Watch{watch("", "v1", "a", "x=2"),
			watch("", "v1", "a", "x!=3")}, []string{"/v1/a / [] | 1 0"}},
		"All": {"all is all", []protocol.Watch{watch("", "v1", "a", "x=2"), watch("", "v1", "a", "")},
			[]string{"/v1/a / [] | 1 0"}},
		"Namespace": {"a namespace that all have stays", []protocol.Watch{inside(watch("", "v1", "a", ""), "ns", "1"),
			inside(watch("", "v1", "a", ""), "ns", "2")}, []string{"/v1/a ns/ [] | 0 1"}},
		"Wide": {"else it is all namespaces", []protocol.Watch{inside(watch("", "v1", "a", ""), "ns", ""),
			inside(watch("", "v1", "a", ""), "other", "")}, []string{"/v1/a / [] | 0 1"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range plansFor(protocol.Watchlist{Watches: c.watches}) {
				q := p.query
				text := fmt.Sprintf("%s/%s/%s %s/%s [%s] |", q.group, q.version, q.resource,
					q.namespace, q.name, q.selector)
				for _, t := range p.targets {
					text += fmt.Sprint(" ", t.filter)
				}
				got = append(got, text)
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: %s", c.reason, diff)
			}
		})
	}
}

// FuzzUnion checks that the union matches every object that at least one of the selectors matches.
func FuzzUnion(f *testing.F) {
	f.Add("a=1", "a in (2,3),b", "a", "2", "b", "")
	f.Add("a==1,a!=2", "!b", "a", "1", "c", "x")
	f.Fuzz(func(t *testing.T, one, two, key, value, key2, value2 string) {
		scopes := []scope{{selector: one}, {selector: two}}
		set := labels.Set{key: value, key2: value2}
		taken := false
		for _, s := range scopes {
			selector, err := labels.Parse(s.selector)
			if err != nil {
				return
			}
			taken = taken || selector.Matches(set)
		}
		all, err := labels.Parse(selectorOfAny(scopes))
		if err != nil {
			t.Fatalf("union of %q and %q is %q: %v", one, two, selectorOfAny(scopes), err)
		}
		if taken && !all.Matches(set) {
			t.Errorf("union of %q and %q is %q, and does not take %v", one, two, selectorOfAny(scopes), set)
		}
	})
}

func TestCompare(t *testing.T) {
	recorder, err := newRecorder([]scope{{}})
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.Now()
	cases := map[string]struct {
		reason       string
		edit         func(*metav1.ObjectMeta)
		split        bool
		missed       bool
		spec, status bool
	}{
		"Nothing": {
			reason: "the same version is the same",
			edit:   func(o *metav1.ObjectMeta) { o.ResourceVersion = "1" },
			split:  true,
		},
		"Generation": {
			reason: "a generation is a spec",
			edit:   func(o *metav1.ObjectMeta) { o.Generation = 2 },
			split:  true,
			spec:   true,
		},
		"Label": {
			reason: "labels belong to it",
			edit:   func(o *metav1.ObjectMeta) { o.Labels = map[string]string{"a": "2"} },
			split:  true,
			spec:   true,
		},
		"LabelMoves": {
			reason: "a label is not an annotation",
			edit:   func(o *metav1.ObjectMeta) { o.Labels, o.Annotations = nil, map[string]string{"a": "1"} },
			split:  true,
			spec:   true,
		},
		"Annotation": {
			reason: "and annotations",
			edit:   func(o *metav1.ObjectMeta) { o.Annotations = map[string]string{"b": ""} },
			split:  true,
			spec:   true,
		},
		"Finalizer": {
			reason: "and finalizers",
			edit:   func(o *metav1.ObjectMeta) { o.Finalizers = []string{"x"} },
			split:  true,
			spec:   true,
		},
		"Deletion": {
			reason: "and that it is to go",
			edit:   func(o *metav1.ObjectMeta) { o.DeletionTimestamp = &now },
			split:  true,
			spec:   true,
		},
		"Status": {
			reason: "what remains is the status",
			edit:   func(*metav1.ObjectMeta) {},
			split:  true,
			status: true,
		},
		"NoGeneration": {
			reason: "a change of a kind without generations may be one of the spec and the status",
			edit:   func(o *metav1.ObjectMeta) { o.Generation = 0 },
			split:  true,
			spec:   true,
			status: true,
		},
		"NoSubresource": {
			reason: "nor those whose status is no part of its own",
			edit:   func(*metav1.ObjectMeta) {},
			spec:   true,
			status: true,
		},
		"Missed": {
			reason: "after an interruption it may be both",
			edit:   func(*metav1.ObjectMeta) {},
			split:  true,
			missed: true,
			spec:   true,
			status: true,
		},
		"Replaced": {
			reason: "another object is all new",
			edit:   func(o *metav1.ObjectMeta) { o.UID = "u2" },
			split:  true,
			spec:   true,
			status: true,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := &metav1.ObjectMeta{UID: "u", ResourceVersion: "1", Generation: 1, Labels: map[string]string{"a": "1"}}
			before := recorder.record(o)
			o.ResourceVersion = "2"
			c.edit(o)
			d := compare(before, recorder.record(o), c.split, c.missed)
			if d.spec != c.spec || d.status != c.status {
				t.Errorf("%s: got %+v", c.reason, d)
			}
			if d.concerns(protocol.FieldSpec) != c.spec || d.concerns(protocol.FieldStatus) != c.status ||
				d.concerns(protocol.FieldAny) != (c.spec || c.status) {
				t.Errorf("counts of %+v", d)
			}
		})
	}
}

// TestMatchMany tests more filters than a mask of 64 bits has bits. Filter 63 and all filters after it share the last
// bit of the mask. If one of the filters that share this bit matches an object, all of them count as matching, so there
// may be too many events, but never too few.
func TestMatchMany(t *testing.T) {
	var scopes []scope
	for n := range 100 {
		scopes = append(scopes, scope{namespace: fmt.Sprintf("ns%03d", n)})
	}
	recorder, err := newRecorder(scopes)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 100 {
		matched := recorder.record(&metav1.ObjectMeta{Namespace: fmt.Sprintf("ns%03d", n), Name: "a"}).matched
		for filter := range 100 {
			want := min(filter, 63) == min(n, 63)
			if got := matched&filterBit(filter) != 0; got != want {
				t.Fatalf("object %d, filter %d: %t", n, filter, got)
			}
		}
	}
}
