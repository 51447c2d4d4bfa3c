package condition_test

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/condition"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

// TestUnreadable checks that the condition names the objects that are not compared, and keeps its first text while the
// reason stays the same.
func TestUnreadable(t *testing.T) {
	unreachable := func(problem string) error {
		return ocm.NewError(ocm.RegistryUnreachable, "r.example.com/m", "%s", problem)
	}
	ref := func(name string) apply.Ref {
		return apply.Ref{Version: "v1", Kind: "Secret", Namespace: "n", Name: name}
	}
	m := &v1beta2.Manifest{Status: v1beta2.ManifestStatus{Version: "1.0.0"}}
	steps := []struct {
		reason  string
		err     error
		changed []apply.Ref
		want    string
	}{
		{"first", unreachable("refused"), nil, "pulling r.example.com/m: refused: version 1.0.0 stays installed as it is"},
		{"another text of the same reason", unreachable("timeout"), nil,
			"pulling r.example.com/m: refused: version 1.0.0 stays installed as it is"},
		{"a changed object", unreachable("timeout"), []apply.Ref{ref("a")},
			"pulling r.example.com/m: refused: version 1.0.0 stays installed as it is; not compared with the module " +
				"until then: Secret n/a"},
		{"many changed objects", unreachable("timeout"), []apply.Ref{ref("a"), ref("b"), ref("c"), ref("d"), ref("e")},
			"pulling r.example.com/m: refused: version 1.0.0 stays installed as it is; not compared with the module " +
				"until then: Secret n/a, Secret n/b, Secret n/c and 2 more"},
		{"another reason", ocm.NewError(ocm.ArtifactNotFound, "r.example.com/m", "none"), nil,
			"pulling r.example.com/m: none: version 1.0.0 stays installed as it is"},
	}
	for _, s := range steps {
		condition.SetSourcesUnreadable(m, s.err, s.changed)
		c := condition.SourcesUnreadable(m)
		if c == nil || c.Status != metav1.ConditionFalse || c.Message != s.want || c.Reason != ocm.ReasonOf(s.err) {
			t.Errorf("%s: got %+v, want %q", s.reason, c, s.want)
		}
	}
	condition.RemoveSourcesUnreadable(m)
	if len(m.Status.Conditions) != 0 {
		t.Errorf("readable again: %+v", m.Status.Conditions)
	}
}

// TestSuspended checks that a suspended Manifest keeps the status of its condition Ready.
func TestSuspended(t *testing.T) {
	m := &v1beta2.Manifest{}
	condition.SetAll(m, v1beta2.StateReady, v1beta2.ReasonReady, "ready")
	condition.SetSuspended(m, v1beta2.ReasonModulePaused, "paused by a test")
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionReady)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1beta2.ReasonModulePaused {
		t.Errorf("got %+v, want True with the reason of the pause", c)
	}
}

// TestSignatures checks that there is no condition if no signature is required, and that one problem makes the
// condition False.
func TestSignatures(t *testing.T) {
	m := &v1beta2.Manifest{}
	good, bad := condition.Signature{Source: "a"}, condition.Signature{Source: "b"}
	good.Verified, good.Key, good.Kind, bad.Problem = true, "k", "cosign", errors.New("not signed").Error()
	for name, c := range map[string]struct {
		signatures []condition.Signature
		want       metav1.ConditionStatus
	}{
		"NotRequired": {[]condition.Signature{{Source: "a"}}, ""},
		"Verified":    {[]condition.Signature{good}, metav1.ConditionTrue},
		"Problem":     {[]condition.Signature{good, bad}, metav1.ConditionFalse},
	} {
		m.Status.Conditions = nil
		condition.SetSignatures(m, c.signatures)
		var got metav1.ConditionStatus
		if is := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionSignature); is != nil {
			got = is.Status
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
