package catalog

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// TestFindOutdated checks that a catalog copy whose objects this process has in memory is updated without a list
// request.
func TestFindOutdated(t *testing.T) {
	a, b, c := objectKey{"ModuleTemplate", "a"}, objectKey{"ModuleTemplate", "b"}, objectKey{"ModuleTemplate", "c"}
	want := &contents{digest: "new", hashes: hashSet{{a, "1"}, {b, "2"}}}
	cases := map[string]struct {
		reason  string
		record  record
		digest  string // annotation of the Kyma in the runtime
		keys    []objectKey
		unknown bool
	}{
		"Changed": {"one object differs, one was removed",
			record{digest: "old", has: hashSet{{a, "1"}, {b, "1"}, {c, "1"}}}, "old", []objectKey{b, c}, false},
		"New":     {"the CRDs were just created", record{has: hashSet{}}, "", []objectKey{a, b}, false},
		"Restart": {"the memory is lost", record{}, "old", nil, true},
		"Other": {"another process has written a copy", record{digest: "old", has: hashSet{{a, "1"}}},
			"other", nil, true},
		"Removed": {"somebody has removed the annotation", record{digest: "old", has: hashSet{{a, "1"}}}, "",
			nil, true},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			copies := New(Options{})
			copies.records["k"] = &test.record
			target := Target{Kyma: &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "k"}}, Digest: test.digest}
			keys, unknown := copies.findOutdated(target, want)
			slices.SortFunc(keys, func(x, y objectKey) int { return slices.Compare([]byte(x.name), []byte(y.name)) })
			if !slices.Equal(keys, test.keys) || unknown != test.unknown {
				t.Errorf("%s: got %v, %t, want %v, %t", test.reason, keys, unknown, test.keys, test.unknown)
			}
		})
	}
}

// TestHasCreatedKinds checks when it is certain that a runtime has no catalog copy yet: this reconcile must have
// created the CRDs of all kinds of the catalog.
func TestHasCreatedKinds(t *testing.T) {
	crd := func(plural string) apply.Ref {
		return apply.Ref{Kind: "CustomResourceDefinition", Name: plural + "." + v1beta2.GroupVersion.Group}
	}
	both := []apply.Ref{crd("kymas"), crd("modulereleasemetas"), crd("moduletemplates")}
	if !hasCreatedAllCatalogCRDs(both) {
		t.Error("both were created")
	}
	if hasCreatedAllCatalogCRDs(both[:2]) {
		t.Error("one existed, so objects may exist")
	}
}
