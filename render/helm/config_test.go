package helm

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/render/input"
)

func TestParseConfig(t *testing.T) {
	cases := map[string]struct {
		reason string
		layer  string
		want   []Config
	}{
		"Empty":     {"no config", "", nil},
		"Comment":   {"", "# nothing\n---\n", nil},
		"NoConfigs": {"the key is optional", "other: 1\n", nil},
		"Null":      {"", "configs:\n", nil},
		"NameOnly":  {"both may be missing", "configs: [{name: a}]", []Config{{Name: "a"}}},
		"Overrides": {"as Helm's --set", "configs:\n- name: redis\n  overrides: replica.count=2,auth.enabled=false\n",
			[]Config{{Name: "redis", Set: "replica.count=2,auth.enabled=false"}}},
		"Document": {"a text with a document", "configs:\n- name: a\n  overrides: |\n    b: {c: 1}\n    d: x=y\n",
			[]Config{{Name: "a", Values: []byte("b: {c: 1}\nd: x=y")}}},
		"Map": {"", "configs: [{name: a, overrides: {c: 1, b: [x]}}]",
			[]Config{{Name: "a", Values: []byte(`{"b":["x"],"c":1}`)}}},
		"ColonInSet": {"one line is never a document", "configs: [{name: a, overrides: 'a=b: c'}]",
			[]Config{{Name: "a", Set: "a=b: c"}}},
		"Client": {"durations as people write them",
			"configs: [{name: a, clientConfig: 'CreateNamespace=true,Namespace=cache,Timeout=10s,Wait=true'}]",
			[]Config{{Name: "a", Client: ClientConfig{CreateNamespace: true, Namespace: "cache",
				Timeout: 10 * time.Second, Wait: true}}}},
		"ClientMap": {"", "configs: [{name: a, clientConfig: {DisableHooks: true, Timeout: 1m30s, Version: 1.5}}]",
			[]Config{{Name: "a", Client: ClientConfig{DisableHooks: true, Timeout: 90 * time.Second, Version: "1.5"}}}},
		"Nanoseconds": {"as the first module manager wanted them",
			"configs: [{name: a, clientConfig: Timeout=10000000000}]",
			[]Config{{Name: "a", Client: ClientConfig{Timeout: 10 * time.Second}}}},
		"Unknown": {"other options do nothing", "configs: [{name: a, clientConfig: 'Zeta=1,Atomic=true', other: 1}]",
			[]Config{{Name: "a", Client: ClientConfig{Ignored: []string{"Atomic", "Zeta"}}}}},
		"Two": {"in their order", "configs: [{name: a, overrides: x=1}, {name: a, overrides: x=2}, {name: b}]",
			[]Config{{Name: "a", Set: "x=1"}, {Name: "a", Set: "x=2"}, {Name: "b"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for what, layer := range map[string][]byte{"plain": []byte(tc.layer), "zipped": zip(t, []byte(tc.layer))} {
				got, err := ParseInstallConfigs(layer)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s, %s (-want +got):\n%s", what, tc.reason, diff)
				}
			}
		})
	}
}

func TestParseConfigFails(t *testing.T) {
	cases := map[string]struct{ layer, want, says string }{
		"NotYAML":      {"a: [", input.InvalidConfig, "not valid YAML"},
		"Two":          {"a: 1\n---\nb: 1\n", input.InvalidConfig, "more than one document"},
		"Twice":        {"configs: []\nconfigs: []", input.InvalidConfig, "repeated"},
		"List":         {"[a]", input.InvalidConfig, "not a map"},
		"Text":         {"hello", input.InvalidConfig, "not a map"},
		"ConfigsMap":   {"configs: {a: b}", input.InvalidConfig, "not a list"},
		"Element":      {"configs: [a]", input.InvalidConfig, "configs[0] is not a map"},
		"NoName":       {"configs: [{overrides: a=b}]", input.InvalidConfig, "no name"},
		"NameType":     {"configs: [{name: 5}]", input.InvalidConfig, "no name"},
		"Overrides":    {"configs: [{name: a, overrides: novalue}]", input.InvalidValues, `"a"`},
		"OverrideType": {"configs: [{name: a, overrides: 5}]", input.InvalidConfig, "neither"},
		"Client":       {"configs: [{name: a, clientConfig: novalue}]", input.InvalidConfig, "Name=value"},
		"ClientType":   {"configs: [{name: a, clientConfig: [a]}]", input.InvalidConfig, "neither"},
		"Flag": {"configs: [{name: a, clientConfig: CreateNamespace=maybe}]", input.InvalidConfig,
			"unsupported flag value: CreateNamespace"},
		"Duration": {"configs: [{name: a, clientConfig: Timeout=soon}]", input.InvalidConfig, "Timeout"},
		"Negative": {"configs: [{name: a, clientConfig: Timeout=-5s}]", input.InvalidConfig, "Timeout"},
		"Aliases": {"x: &a " + strings.Repeat("x", 10_000) + "\nconfigs: [{name: a, overrides: {b: [" +
			strings.Repeat("*a,", 2_000) + "]}}]", input.InvalidConfig, "aliases"},
		"Large": {"# " + strings.Repeat("x", maxConfigBytes), input.ArchiveTooLarge, "larger"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ParseInstallConfigs([]byte(tc.layer))
			if reasonOf(err) != tc.want || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestConfigApplyTo checks that a chart is rendered with the values of the config.
func TestConfigApplyTo(t *testing.T) {
	configs, err := ParseInstallConfigs(
		[]byte("configs:\n- {name: shop, overrides: {a: 1}, clientConfig: " +
			"'Namespace=n,ReleaseName=r,CreateNamespace=true,SkipCRDs=true'}\n- {name: shop, overrides: a=2}"))
	if err != nil {
		t.Fatal(err)
	}
	got := FindConfig(configs, "shop").ApplyTo(Settings{Release: "x", Namespace: "y", Set: []string{"b=1"}})
	want := Settings{Release: "r", Namespace: "n", CreateNamespace: true, SkipCRDs: true,
		Values: []byte(`{"a":1}`), Set: []string{"b=1"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, FindConfig(configs, "other").ApplyTo(want)); diff != "" {
		t.Errorf("no config changes something:\n%s", diff)
	}
	if _, err := ParseClientConfig(map[string]any{"Timeout": 5 * time.Second, "Wait": true,
		"Namespace": nil}); err != nil {
		t.Error(err)
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("configs:\n- name: redis\n  overrides: a.b[1]=2,c={x,y}\n  clientConfig: Timeout=10s\n"))
	f.Add([]byte("configs: [{name: a, overrides: {b: null}, clientConfig: {Wait: true}}]"))
	f.Add([]byte("configs: &a [*a]"))
	f.Fuzz(func(t *testing.T, layer []byte) {
		configs, err := ParseInstallConfigs(layer)
		if err != nil {
			if reasonOf(err) == err.Error() {
				t.Errorf("no reason: %v", err)
			}
			return
		}
		for _, c := range configs {
			// ApplyTo and Overrides must work for every config that ParseInstallConfigs accepts.
			if _, err := c.ApplyTo(Settings{}).Overrides(); err != nil || c.Name == "" || c.Client.Timeout < 0 {
				t.Errorf("%+v was accepted: %v", c, err)
			}
		}
	})
}

// zip compresses data with gzip.
func zip(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// reasonOf returns the reason code of an error, or its text if it has no code.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*input.Error](err); ok {
		return e.Reason()
	}
	return fmt.Sprint(err)
}
