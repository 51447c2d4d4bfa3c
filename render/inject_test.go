package render_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

const marked = `apiVersion: v1
kind: Secret
metadata: {name: token, annotations: {example.com/inject: "true"}}
data: {old: b2xk}
stringData: {plain: text}
---
apiVersion: v1
kind: Secret
metadata: {name: other, annotations: {example.com/inject: "false"}}
stringData: {plain: text}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: token, annotations: {example.com/inject: "true"}}
data: {a: b}
`

func buildMarked(t *testing.T, i *render.Injection) (*render.Bundle, error) {
	t.Helper()
	objects, err := render.Parse([]byte(marked))
	if err != nil {
		t.Fatal(err)
	}
	return render.Build(objects, render.Options{Injection: i, Digest: "sha256:a"})
}

func TestInjection(t *testing.T) {
	i := render.Injection{Annotation: "example.com/inject", Version: "1", Source: "the Secrets here",
		Data: map[string]map[string][]byte{"token": {"new": []byte("value")}, "unused": {"a": []byte("b")}}}
	bundle, err := buildMarked(t, &i)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range bundle.Objects {
		text := string(o.AppendJSON(nil, "", render.Overlay{}))
		got = append(got, text[strings.Index(text, `},"`)+1:])
	}
	want := []string{`,"data":{"new":"dmFsdWU="}}`, `,"stringData":{"plain":"text"}}`, `,"data":{"a":"b"}}`}
	for n := range want {
		if !strings.HasSuffix(got[n], want[n]) {
			t.Errorf("object %d ends with %s, want %s", n, got[n], want[n])
		}
	}
	if len(bundle.LeftOut) > 0 {
		t.Errorf("left out: %q", bundle.LeftOut)
	}
}

// TestInjectionRefused checks two cases: a marked Secret without data in the Injection is an error, and a module that
// may receive no data keeps the data of its own Secrets.
func TestInjectionRefused(t *testing.T) {
	_, err := buildMarked(t, &render.Injection{Annotation: "example.com/inject", Version: "1",
		Source: "the Secrets here"})
	if e, ok := errors.AsType[*render.Error](err); !ok || e.Reason() != render.InjectionFailed ||
		e.Object != "Secret token" || !strings.Contains(e.Error(), "the Secrets here") {
		t.Errorf("got %v", err)
	}
	bundle, err := buildMarked(t, &render.Injection{Annotation: "example.com/inject"})
	if err != nil || len(bundle.LeftOut) != 1 || !strings.Contains(bundle.LeftOut[0], "Secret token") {
		t.Fatalf("got %+v, %v", bundle, err)
	}
	if text := string(bundle.Objects[0].AppendJSON(nil, "", render.Overlay{})); !strings.Contains(text, "b2xk") {
		t.Errorf("the Secret lost its own data: %s", text)
	}
}

// TestInjectionDigest checks that an Injection without Version does not change the digest of a bundle, so that digests
// which older managers have stored stay valid. Injections with different Versions must result in different digests.
func TestInjectionDigest(t *testing.T) {
	digest := func(i *render.Injection) string {
		return render.Options{Digest: "sha256:a", Injection: i}.ResultingBundleDigest()
	}
	none := digest(nil)
	if got := digest(&render.Injection{Annotation: "example.com/inject"}); got != none {
		t.Errorf("without data: got %s, want %s", got, none)
	}
	first, second := digest(&render.Injection{Version: "1"}), digest(&render.Injection{Version: "2"})
	if diff := cmp.Diff(3, len(map[string]bool{none: true, first: true, second: true})); diff != "" {
		t.Errorf("different data has one digest: %s", diff)
	}
}
