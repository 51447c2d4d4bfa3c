package runtimekyma

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// object returns a Kyma as it is stored in a runtime, with the given parts instead of the usual ones.
func object(t testing.TB, parts map[string]any) *unstructured.Unstructured {
	t.Helper()
	o := map[string]any{"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
		"metadata": map[string]any{"namespace": "kyma-system", "name": "default", "uid": "u",
			"annotations": map[string]any{v1beta2.AnnotationOwner: "o"}},
		"spec":   map[string]any{"channel": "regular", "modules": []any{map[string]any{"name": "keda"}}},
		"status": map[string]any{"state": "Ready"}}
	maps.Copy(o, parts)
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return u
}

// modules returns a list for spec.modules: n copies of the module entry in the parameter "one". If the module entry has
// no name, each copy of it gets its own name.
func modules(n int, one map[string]any) []any {
	var all []any
	for i := range n {
		m := maps.Clone(one)
		if _, named := m["name"]; !named {
			m["name"] = fmt.Sprintf("module-%d", i)
		}
		all = append(all, m)
	}
	return all
}

// TestDecode checks which Kymas of runtimes are accepted, and that the error describes the violation in one short line,
// which does not contain the invalid value.
func TestDecode(t *testing.T) {
	type fields = map[string]any
	spec := func(channel any, all []any) fields {
		return fields{"spec": fields{"channel": channel, "modules": all}}
	}
	annotations := fields{}
	for i := range 2000 {
		annotations[fmt.Sprintf("a-%d", i)] = ""
	}
	cases := map[string]struct {
		reason string
		parts  fields
		want   string // of the violation; "" if the Kyma is valid
	}{
		"Usual":      {"as every API server has it", nil, ""},
		"WithoutAny": {"nothing is required", fields{"spec": fields{}, "status": fields{}}, ""},
		"Most":       {"the limit itself", spec("regular", modules(250, fields{})), ""},
		"Unknown": {"fields of other versions", fields{"spec": fields{"channel": "regular", "sync": fields{"a": "b"},
			"modules": modules(2, fields{"future": []any{1}})}}, ""},
		"Early": {"a status of the first versions", fields{"status": fields{"state": "", "moduleInfos": []any{},
			"modules": []any{fields{"name": "keda"}}}}, ""},
		"Short": {"an earlier CRD had no minimum", spec("regular", []any{fields{"name": ""}}), ""},
		"Both": {"version and channel",
			spec("regular", modules(1, fields{"version": "1.0.0", "channel": "fast"})), ""},

		"Many": {"100,000 modules", spec("regular", modules(100_000, fields{})),
			"spec.modules: must have at most 250 items"},
		"ManyInvalid": {"lists are counted first", spec("regular", modules(251, fields{"channel": "\x1b"})),
			"spec.modules: must have at most 250 items"},
		"LongName": {"10 MB", spec("regular", modules(2, fields{"name": strings.Repeat("x", 10_000_000)})),
			"spec.modules[0].name: must have at most 253 characters"},
		"LongerName": {"a little more than allowed", spec("regular", modules(1, fields{"name": strings.Repeat("x", 254)})),
			"spec.modules[0].name: must have at most 253 characters"},
		"LongDigest": {"of the catalog copy; memory keeps it", fields{"status": fields{
			"catalogDigest": strings.Repeat("x", 129)}}, "status.catalogDigest: must have at most 128 characters"},
		"Escapes": {"a channel that recolours a terminal", spec("\x1b[31mfast\n\u202e", nil),
			"spec.channel: must match ^[a-z]+$"},
		"Version": {"not a version", spec("fast", modules(1, fields{"version": "../../latest"})),
			"spec.modules[0].version: must match ^(0|"},
		"Policy": {"not one of the values", spec("fast", modules(1, fields{"customResourcePolicy": "Steal"})),
			`spec.modules[0].customResourcePolicy: must be one of ["CreateAndDelete" "Ignore"]`},
		"Type": {"another type", spec(fields{"a": "b"}, nil), "spec.channel: must be of type string"},
		"Twice": {"the same name twice", spec("fast", modules(2, fields{"name": "keda"})),
			"spec.modules[1]: must have another name"},
		"Spec":       {"a text in place of spec", fields{"spec": "none"}, "spec: must be of type object"},
		"Status":     {"each entry could become a Manifest", fields{"status": fields{"modules": modules(501, fields{})}}, "status.modules: must have at most 500 items"},
		"State":      {"a state that does not exist", fields{"status": fields{"state": "Owned"}}, "status.state: must be one of "},
		"Labels":     {"not a label", fields{"metadata": fields{"labels": fields{"\x1b": "x"}}}, "metadata.labels: Invalid value: "},
		"Annotation": {"more than an API server stores", fields{"metadata": fields{"annotations": fields{"a": strings.Repeat("x", 1<<20)}}}, "metadata.annotations: Too long: "},
		"Entries":    {"very many annotations", fields{"metadata": fields{"annotations": annotations}}, "metadata: must have at most 1000 labels"},
		"Generation": {"metadata of another type", fields{"metadata": fields{"generation": "one"}}, "unrecognized type"},
	}
	schema, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			u := object(t, c.parts)
			k, err := schema.Decode(u)
			invalid, is := errors.AsType[*InvalidError](err)
			if is != (c.want != "") || err != nil && !is {
				t.Fatalf("%s: %v", c.reason, err)
			}
			if !is {
				return
			}
			if !strings.Contains(invalid.Violation, c.want) || len(invalid.Violation) > maxViolation ||
				strings.ContainsAny(invalid.Error(), "\x1b\n\u202e") {
				t.Errorf("%s: %q (%d bytes), want %q", c.reason, invalid.Violation, len(invalid.Violation), c.want)
			}
			if invalid.Reason() != v1beta2.ReasonRuntimeKymaInvalid || k == nil || k.Spec.Channel != "" ||
				len(k.Spec.Modules)+len(k.Status.Modules) > 0 {
				t.Errorf("the reason is %s; a part of the Kyma can be used: %.200v", invalid.Reason(), k)
			}
		})
	}
}

// TestDecodeSame checks that the same object always has the same violation: an alternating message would cause a status
// write each time.
func TestDecodeSame(t *testing.T) {
	schema, err := New()
	if err != nil {
		t.Fatal(err)
	}
	u := object(t, map[string]any{
		"spec": map[string]any{"channel": "1", "modules": modules(250, map[string]any{"channel": "2", "version": "x",
			"customResourcePolicy": "y"})},
		"status": map[string]any{"state": "z", "modules": modules(100, map[string]any{"state": "z"})}})
	said := map[string]bool{}
	for range 20 {
		_, err := schema.Decode(u)
		said[fmt.Sprint(err)] = true
	}
	if len(said) != 1 {
		t.Errorf("one object has %d violations", len(said))
	}
}

// BenchmarkDecode measures the decoding of a Kyma with 20 modules and their status.
func BenchmarkDecode(b *testing.B) {
	schema, err := New()
	if err != nil {
		b.Fatal(err)
	}
	u := object(b, map[string]any{
		"spec": map[string]any{"channel": "regular", "modules": modules(20, map[string]any{"version": "1.0.0"})},
		"status": map[string]any{"state": "Ready", "modules": modules(20, map[string]any{"state": "Ready",
			"channel": "fast", "version": "1.0.0"})}})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := schema.Decode(u); err != nil {
			b.Fatal(err)
		}
	}
}
