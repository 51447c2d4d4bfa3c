package manifest

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

func TestValuesOf(t *testing.T) {
	cases := map[string]struct {
		reason string
		flags  map[string]any
		want   string
		fails  bool
	}{
		"None": {"", nil, "", false},
		"Plain": {"", map[string]any{"a": 1, "b": "x", "c": nil, "d": []any{1}},
			`{"a":1,"b":"x","c":null,"d":[1]}`, false},
		"Dots": {"they nest", map[string]any{"a.b.c": true}, `{"a":{"b":{"c":true}}}`, false},
		"Leading": {"as in the seed's example", map[string]any{".some.value.override": "x"},
			`{"some":{"value":{"override":"x"}}}`, false},
		"Escaped": {"", map[string]any{`a.b\.c/d`: 1}, `{"a":{"b.c/d":1}}`, false},
		"Together": {"", map[string]any{"a.b": 1, "a.c": 2, "a": map[string]any{"d": 3}},
			`{"a":{"b":1,"c":2,"d":3}}`, false},
		"Twice":     {"", map[string]any{"a.b": 1, ".a.b": 2}, "", true},
		"Clash":     {"", map[string]any{"a": 1, "a.b": 2}, "", true},
		"Empty":     {"", map[string]any{"": 1}, "", true},
		"EmptyPart": {"", map[string]any{"a..b": 1}, "", true},
		"NotJSON":   {"", map[string]any{"a": func() {}}, "", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := maps.Clone(tc.flags)
			got, err := encodeValues(tc.flags)
			if tc.fails {
				if reasonOf(err) != InvalidInfo {
					t.Errorf("got %s, %v", got, err)
				}
				return
			}
			if err != nil || string(got) != tc.want {
				t.Errorf("got %s, %v, want %s: %s", got, err, tc.want, tc.reason)
			}
			if nested, ok := tc.flags["a"].(map[string]any); ok && len(nested) != 1 || len(before) != len(tc.flags) {
				t.Error("the caller's maps were changed")
			}
		})
	}
}

func TestNewRelease(t *testing.T) {
	cluster := ClusterInfo{Config: &rest.Config{Host: "https://127.0.0.1:1"}}
	cases := map[string]struct {
		reason          string
		info            InstallInfo
		name, namespace string
		fails           string
	}{
		"Release": {
			info:      InstallInfo{ClusterInfo: cluster, ChartInfo: ChartInfo{ReleaseName: "r", Name: "c"}},
			name:      "r",
			namespace: "default",
		},
		"Flag": {
			info: InstallInfo{
				ClusterInfo: cluster,
				ChartInfo:   ChartInfo{Name: "c", ConfigFlags: map[string]any{"ReleaseName": "f", "Namespace": "n"}},
			},
			name:      "f",
			namespace: "n",
		},
		"Chart": {
			reason:    "the alias does not count",
			info:      InstallInfo{ClusterInfo: cluster, ChartInfo: ChartInfo{Name: "mine/c"}},
			name:      "c",
			namespace: "default",
		},
		"Path": {
			info:      InstallInfo{ClusterInfo: cluster, ChartInfo: ChartInfo{Path: "/a/b/shop-1.0.0.tgz"}},
			name:      "shop-1.0.0",
			namespace: "default",
		},
		"NoCluster": {info: InstallInfo{ChartInfo: ChartInfo{ReleaseName: "r"}}, fails: InvalidInfo},
		"NoName":    {info: InstallInfo{ClusterInfo: cluster}, fails: InvalidInfo},
		"BadName": {
			info:  InstallInfo{ClusterInfo: cluster, ChartInfo: ChartInfo{ReleaseName: "R!"}},
			fails: InvalidInfo,
		},
		"LongName": {
			reason: "as in Helm",
			info:   InstallInfo{ClusterInfo: cluster, ChartInfo: ChartInfo{ReleaseName: strings.Repeat("r", 54)}},
			fails:  InvalidInfo,
		},
		"BadNamespace": {
			info: InstallInfo{
				ClusterInfo: cluster,
				ChartInfo:   ChartInfo{ReleaseName: "r", ConfigFlags: map[string]any{"Namespace": "a/b"}},
			},
			fails: InvalidInfo,
		},
		"BadFlag": {
			info: InstallInfo{
				ClusterInfo: cluster,
				ChartInfo:   ChartInfo{ReleaseName: "r", ConfigFlags: map[string]any{"Wait": "yes"}},
			},
			fails: render.InvalidConfig,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r, err := newRelease(tc.info)
			if tc.fails != "" {
				if reasonOf(err) != tc.fails {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || r.name != tc.name || r.namespace != tc.namespace {
				t.Errorf("got %+v, %v: %s", r, err, tc.reason)
			}
		})
	}
}

// TestNoChart tests that an error about the chart is returned before any request is sent to the cluster.
func TestNoChart(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(t.TempDir(), "large.tgz")
	f, err := os.Create(large)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(defaultMaxBytes+1), f.Close()); err != nil {
		t.Fatal(err)
	}
	shop := newShop(t)
	cases := map[string]struct {
		chart ChartInfo
		want  string
	}{
		"Nothing":    {ChartInfo{ReleaseName: "r"}, InvalidInfo},
		"NoPath":     {ChartInfo{Path: filepath.Join(dir, "none")}, ChartNotFound},
		"Large":      {ChartInfo{Path: large}, ChartTooLarge},
		"Empty":      {ChartInfo{Path: dir, ReleaseName: "r"}, render.InvalidArchive},
		"Repository": {ChartInfo{Repository: shop.repository(), Name: "shop", Version: "7.x"}, ChartNotFound},
		"Devel": {ChartInfo{Repository: shop.repository(), Name: "shop",
			ConfigFlags: map[string]any{"Devel": true}, SetFlags: map[string]any{"a": 1, "a.b": 2}}, InvalidInfo},
		"Version": {ChartInfo{Repository: shop.repository(), Name: "shop",
			ConfigFlags: map[string]any{"Version": "8.x"}}, ChartNotFound},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			info := InstallInfo{ChartInfo: tc.chart,
				ClusterInfo: ClusterInfo{Config: &rest.Config{Host: "http://127.0.0.1:1"}}}
			if _, err := InstallOrUpgradeChart(t.Context(), info); reasonOf(err) != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// TestUnreachable tests that all operations return an error with a reason if the cluster is unreachable.
func TestUnreachable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	info := InstallInfo{ChartInfo: ChartInfo{Path: file, ReleaseName: "r"},
		ClusterInfo: ClusterInfo{Config: &rest.Config{Host: "http://127.0.0.1:1"}}}
	for name, operation := range map[string]func() error{
		"Install":   func() error { _, err := InstallOrUpgradeChart(t.Context(), info); return err },
		"Check":     func() error { _, err := ConsistencyCheck(t.Context(), info); return err },
		"Diff":      func() error { _, err := Diff(t.Context(), info); return err },
		"Uninstall": func() error { _, err := UninstallChart(t.Context(), info); return err },
	} {
		if err := operation(); reasonOf(err) != apply.RuntimeUnreachable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestInventoryRoundTrip tests that a written inventory can be read again and contains only names.
func TestInventoryRoundTrip(t *testing.T) {
	want := inventory{Digest: "sha256:1", Objects: []apply.Ref{{Group: "apps", Version: "v1", Kind: "Deployment",
		Namespace: "n", Name: "a", Keep: true}},
		CustomResources: []apply.Ref{{Group: "g", Version: "v1", Kind: "K", Name: "b"}}}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got inventory
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzValuesOf(f *testing.F) {
	f.Add("a.b", "a.c", "x")
	f.Add(`.a\.b`, "a", "\xff")
	f.Fuzz(func(t *testing.T, one, two, value string) {
		document, err := encodeValues(map[string]any{one: value, two: value})
		if err != nil {
			return
		}
		if !json.Valid(document) {
			t.Errorf("not JSON: %q", document)
		}
	})
}
