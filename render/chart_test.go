package render

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files anew")

// folder returns a file system with some files. The arguments are a name, its content, the next name, its content, and
// so on.
func folder(entries ...string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for i := 0; i < len(entries); i += 2 {
		fsys[entries[i]] = &fstest.MapFile{Data: []byte(entries[i+1]), Mode: 0o644}
	}
	return fsys
}

// chartOf returns a chart that has the given templates and other files. If Chart.yaml is not among the files, chartOf
// adds one.
func chartOf(t testing.TB, entries ...string) *Artefact {
	t.Helper()
	fsys := folder(entries...)
	if fsys["Chart.yaml"] == nil {
		fsys["Chart.yaml"] = &fstest.MapFile{Data: []byte("apiVersion: v2\nname: shop\nversion: 1.2.3\n")}
	}
	a, err := LoadFolder(fsys, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if a.Kind() != Chart {
		t.Fatalf("taken for a %s", a.Kind())
	}
	return a
}

// configMap is a chart template of a ConfigMap with one value.
func configMap(value string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  v: " + value + "\n"
}

// reasonOf returns the reason code of an error.
func reasonOf(err error) string {
	if e, ok := errors.AsType[interface {
		error
		Reason() string
	}](err); ok {
		return e.Reason()
	}
	return fmt.Sprint(err)
}

// TestChartGolden renders one chart with everything in it: subcharts in a folder and packaged, one switched off by its
// condition, an alias, a library, imported values, definitions, hooks, notes, lookup, files and ignored files.
func TestChartGolden(t *testing.T) {
	packaged := gzipped(t, archive(t,
		"cache/Chart.yaml", "apiVersion: v2\nname: cache\nversion: 2.0.0\n",
		"cache/values.yaml", "size: 1\nexports: {shared: {fromCache: yes-it-is}}\n",
		"cache/templates/c.yaml",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-{{ .Chart.Name }}}\ndata: {size: {{ "+
			".Values.size | quote }}}\n"))
	fsys := os.DirFS("testdata/chart")
	files := fstest.MapFS{"charts/cache-2.0.0.tgz": {Data: packaged}}
	if err := copyInto(files, fsys); err != nil {
		t.Fatal(err)
	}
	a, err := LoadFolder(files, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	settings := Settings{Release: "rel", Namespace: "ns", CreateNamespace: true,
		Values: []byte("replicas: 3\nsmall: {size: 7}\n"), Set: []string{"image.tag=v9,args={a,b}"},
		Capabilities: Capabilities{KubeVersion: "v1.33.4-gke.1", APIVersions: []string{"monitoring.coreos.com/v1"}}}
	objects, leftOut, err := a.RenderObjects(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "# asks: %s\n", strings.Join(a.CapabilityQueries(settings), "; "))
	for _, l := range leftOut {
		fmt.Fprintf(&out, "# left out: %s\n", l)
	}
	for _, o := range objects {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "---\n%s", text)
	}
	golden(t, "testdata/chart.golden.yaml", out.String())

	// The chart as a package of Helm must be rendered to the same objects as the chart in a folder.
	var entries []string
	for name, f := range files {
		if name != "scratch.txt" && name != ".helmignore" {
			entries = append(entries, "shop/"+name, string(f.Data))
		}
	}
	b, err := Load(gzipped(t, archive(t, entries...)), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := b.RenderObjects(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(objects, again); diff != "" {
		t.Errorf("packaged (-folder +packaged):\n%s", diff)
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); -update writes it anew:\n%s", file, diff)
	}
}

func TestChartValues(t *testing.T) {
	cases := map[string]struct {
		reason   string
		template string
		settings Settings
		want     string
	}{
		"Default": {"the chart's own value", "{{ .Values.a.b }}", Settings{}, "chart"},
		"Document": {"it overrides the chart's", "{{ .Values.a.b }}",
			Settings{Values: []byte("a: {b: document}")}, "document"},
		"Set": {"it overrides the document", "{{ .Values.a.b }}",
			Settings{Values: []byte("a: {b: document}"), Set: []string{"a.b=set"}}, "set"},
		"SetTwice": {"the last wins", "{{ .Values.a.b }}", Settings{Set: []string{"a.b=one", "a.b=two"}}, "two"},
		"Null": {"null deletes a default", "{{ default \"gone\" .Values.a.b }}",
			Settings{Set: []string{"a.b=null"}}, "gone"},
		"Types": {"bool and integer keep their type",
			"{{ printf \"%T %T %T\" .Values.x .Values.y .Values.z }}", Settings{Set: []string{"x=true,y=12,z=1.5"}},
			"bool int64 string"},
		"Release": {"name and namespace", "{{ .Release.Name }}/{{ .Release.Namespace }}",
			Settings{Release: "r", Namespace: "n"}, "r/n"},
		"ReleaseDefault": {"the chart's name, and default", "{{ .Release.Name }}/{{ .Release.Namespace }}",
			Settings{}, "shop/default"},
		"Install": {"as helm template, always",
			"{{ .Release.IsInstall }} {{ .Release.IsUpgrade }} {{ .Release.Revision }} {{ .Release.Service }}",
			Settings{}, "true false 1 Helm"},
		"KubeVersion": {"as the caller says",
			"{{ .Capabilities.KubeVersion.Version }} {{ .Capabilities.KubeVersion.Minor }}",
			Settings{Capabilities: Capabilities{KubeVersion: "1.30.2"}}, "v1.30.2 30"},
		"KubeDefault": {"the documented default", "{{ .Capabilities.KubeVersion }}", Settings{}, DefaultKubeVersion},
		"Has": {"", `{{ .Capabilities.APIVersions.Has "a/v1" }} {{ .Capabilities.APIVersions.Has "b/v1" }}`,
			Settings{Capabilities: Capabilities{APIVersions: []string{"a/v1"}}}, "true false"},
		"HasBuiltIn": {"by default, those that are built in", `{{ .Capabilities.APIVersions.Has "apps/v1" }}`,
			Settings{}, "true"},
		"HasDynamic": {"a computed name queries all", `{{ .Capabilities.APIVersions.Has (printf "%s/v1" "a") }}`,
			Settings{Capabilities: Capabilities{APIVersions: []string{"a/v1"}}}, "true"},
		"Keys": {"sorted, because a map has no order", `{{ keys (dict "c" 1 "a" 2 "b" 3) | join "," }}`,
			Settings{}, "a,b,c"},
		"MapValues": {"in the order of keys", `{{ values (dict "c" 1 "a" 2 "b" 3) | join "," }}`, Settings{}, "2,3,1"},
		"Until": {"as in sprig",
			`{{ until 3 }}{{ until -2 }}{{ untilStep 5 1 -2 }}{{ untilStep 0 -5 1 }}{{ seq 3 }}`, Settings{},
			"[0 1 2][0 -1][5 3][]1 2 3"},
		"Repeat": {"as in sprig", `{{ repeat 3 "ab" }}{{ indent 2 "c" }}{{ nindent 1 "" | trim }}`, Settings{},
			"ababab  c"},
		"Lookup": {"as in helm template, nothing is found",
			`{{ if lookup "v1" "Secret" "n" "s" }}there{{ else }}none{{ end }}`, Settings{}, "none"},
		"Tpl": {"a value can be a template", `{{ tpl .Values.t . }}`,
			Settings{Values: []byte("t: '{{ .Capabilities.KubeVersion.Minor }}'"),
				Capabilities: Capabilities{KubeVersion: "v1.31.0"}}, "31"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := chartOf(t, "values.yaml", "a: {b: chart}\n", "templates/a.yaml", configMap("'"+tc.template+"'"))
			objects, _, err := a.RenderObjects(t.Context(), tc.settings)
			if err != nil {
				t.Fatal(err)
			}
			if got := objects[0].Object["data"].(map[string]any)["v"]; got != tc.want {
				t.Errorf("got %q, want %q: %s", got, tc.want, tc.reason)
			}
		})
	}
}

// fails is a test case with a chart that cannot be rendered.
type fails struct {
	reason   string // reason for the test case
	files    []string
	settings Settings
	want     string   // expected reason of the error
	says     []string // expected parts of the error's text
}

// aliasedChart is a Chart.yaml whose aliases repeat a long text, in a field that Helm ignores.
var aliasedChart = "apiVersion: v2\nname: shop\nversion: 1.2.3\nkubeVersion: '>=1.25'\nx: &a " +
	strings.Repeat("x", 10_000) + "\ny: [" + strings.Repeat("*a,", 2_000) + "]\n"

func TestChartFails(t *testing.T) {
	chart := func(fields string) string { return "apiVersion: v2\nname: shop\nversion: 1.2.3\n" + fields }
	cases := map[string]fails{
		"Aliases": {
			files:    []string{"Chart.yaml", aliasedChart, "templates/a.yaml", ""},
			settings: Settings{},
			want:     ArchiveTooLarge,
			says:     []string{`"Chart.yaml"`, "aliases repeat more than"},
		},
		"Syntax": {
			files:    []string{"templates/a.yaml", "\n\n{{ if }}\n"},
			settings: Settings{},
			want:     TemplateFailed,
			says:     []string{`"shop/templates/a.yaml", line 3`, "missing value for if"},
		},
		"Execution": {
			files:    []string{"templates/a.yaml", "a: b\n{{ .Values.x.y }}\n"},
			settings: Settings{},
			want:     TemplateFailed,
			says:     []string{`"shop/templates/a.yaml", line 2`, "nil pointer"},
		},
		"Included": {
			reason: "where it happened, not where it was included",
			files: []string{"templates/a.yaml", "{{ include \"h\" . }}", "templates/_h.tpl",
				"\n{{ define \"h\" }}\n{{ .Values.x.y }}\n{{ end }}"},
			settings: Settings{},
			want:     TemplateFailed,
			says:     []string{`"shop/templates/_h.tpl", line 3`},
		},
		"Required": {
			reason:   "the author's words",
			files:    []string{"templates/a.yaml", "{{ required \"set the host\" .Values.host }}"},
			settings: Settings{},
			want:     TemplateFailed,
			says:     []string{"line 1", "set the host"},
		},
		"Fail": {
			reason:   "the author's words, on one line",
			files:    []string{"templates/a.yaml", "{{ fail \"no\\nway\" }}"},
			settings: Settings{},
			want:     TemplateFailed,
			says:     []string{"no way"},
		},
		"Unknown": {
			reason:   "env is no function here",
			files:    []string{"templates/a.yaml", "{{ env \"HOME\" }}"},
			settings: Settings{},
			want:     TemplateFailed,
			says:     []string{`"env" not defined`},
		},
		"Recursion": {
			reason: "it ends",
			files: []string{"templates/_h.tpl", "{{ define \"h\" }}{{ include \"h\" . }}{{ end }}",
				"templates/a.yaml", "{{ include \"h\" . }}"},
			settings: Settings{},
			want:     TemplateFailed,
			says:     []string{"nested reference"},
		},
		"Random": {
			reason:   "one rendering serves all clusters",
			files:    []string{"templates/a.yaml", configMap(`{{ randAlphaNum 8 }}`)},
			settings: Settings{},
			want:     RefusedFeature,
			says:     []string{"randAlphaNum", "templates/a.yaml", "as a value"},
		},
		"Now": {
			files:    []string{"templates/a.yaml", configMap(`{{ now | date "2006" }}`)},
			settings: Settings{},
			want:     RefusedFeature,
			says:     []string{"data.v", "calls now"},
		},
		"RandomChecksum": {
			reason: "the first object in the order of installation is named",
			files: []string{"templates/a.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, " +
				"annotations: {sum: '{{ include (print $.Template.BasePath \"/b.yaml\") . | sha256sum }}'}}\n",
				"templates/b.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {p: " +
					"'{{ randAlphaNum 8 }}'}\n"},
			settings: Settings{},
			want:     RefusedFeature,
			says:     []string{"templates/b.yaml", "Secret s", "stringData.p", "randAlphaNum"},
		},
		"RandomName": {
			files: []string{"templates/a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: " +
				"'s-{{ randAlphaNum 5 | lower }}'}\n"},
			want: RefusedFeature,
			says: []string{"metadata.name"},
		},
		"RandomDecision": {
			reason: "the number of objects depends on the result",
			files:  []string{"templates/a.yaml", "{{ if gt (randInt 0 10) 5 }}\n" + configMap("1") + "{{ end }}\n"},
			want:   RefusedFeature,
			says:   []string{"the list of objects", "randInt"},
		},
		"DateOfNothing": {
			reason: "date uses the current time in place of a value that is no date",
			files:  []string{"templates/a.yaml", configMap(`{{ date "2006" "x" | quote }}`)},
			want:   RefusedFeature,
			says:   []string{"calls now"},
		},
		"Certificate": {
			files: []string{"templates/a.yaml", configMap(
				`{{ $ca := genCA "ca" 365 }}{{ (genSignedCert "a" nil nil 365 $ca).Cert | b64enc }}`)},
			want: RefusedFeature,
			says: []string{"genCA, genSignedCert"},
		},
		"DocumentLine": {
			reason: "line and document of the whole output, as Helm splits it",
			files: []string{"templates/a.yaml", "---# first\n" + configMap("1") + "---apiVersion: v1\nkind: " +
				"ConfigMap\nmetadata: {name: b}\ndata:\n  k: 1\n  k: 2\n"},
			want: InvalidYAML,
			says: []string{"document 2, line 12", "ConfigMap b", `key "k"`, "line 11"},
		},
		"RandomInTpl": {
			reason:   "not by the back door",
			files:    []string{"templates/a.yaml", configMap(`{{ tpl "{{ uuidv4 }}" . }}`)},
			settings: Settings{},
			want:     RefusedFeature,
			says:     []string{"uuidv4"},
		},
		"DNS": {
			files:    []string{"templates/a.yaml", configMap(`{{ getHostByName "example.com" }}`)},
			settings: Settings{},
			want:     RefusedFeature,
			says:     []string{"network"},
		},
		"Repeat": {
			reason:   "memory",
			files:    []string{"templates/a.yaml", `{{ repeat 2000000000 "x" }}`},
			settings: Settings{},
			want:     RefusedFeature,
			says:     []string{"repeat"},
		},
		"RepeatOverflow": {
			reason:   "memory",
			files:    []string{"templates/a.yaml", `{{ repeat 4611686018427387904 "xxxx" }}`},
			settings: Settings{},
			want:     RefusedFeature,
			says:     []string{"repeat"},
		},
		"Until": {
			reason:   "memory",
			files:    []string{"templates/a.yaml", `{{ range until 2000000000 }}x{{ end }}`},
			settings: Settings{},
			want:     RefusedFeature,
			says:     []string{"counting"},
		},
		"Seq": {
			reason:   "memory",
			files:    []string{"templates/a.yaml", `{{ seq 1 2000000000 }}`},
			settings: Settings{},
			want:     RefusedFeature,
			says:     []string{"seq"},
		},
		"NotYAML": {
			files:    []string{"templates/a.yaml", "a: [\n"},
			settings: Settings{},
			want:     InvalidYAML,
			says:     []string{"shop/templates/a.yaml", "the output of the template"},
		},
		"NoObject": {
			files:    []string{"templates/a.yaml", "a: b\n"},
			settings: Settings{},
			want:     InvalidObject,
			says:     []string{"shop/templates/a.yaml", "apiVersion"},
		},
		"HookJob": {
			reason: "it would have to run once",
			files: []string{"templates/a.yaml",
				"apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, annotations: {helm.sh/hook: " +
					"\"pre-install,pre-upgrade\"}}\n"},
			settings: Settings{},
			want:     RefusedFeature,
			says:     []string{"Job j", "templates/a.yaml", "chart.disableHooks: true", "DisableHooks=true"},
		},
		"TooOld": {
			files:    []string{"Chart.yaml", chart("kubeVersion: '>=1.40.0-0'\n")},
			settings: Settings{Capabilities: Capabilities{KubeVersion: "v1.33.4"}},
			want:     KubernetesTooOld,
			says:     []string{">=1.40.0-0", "v1.33.4"},
		},
		"Library": {
			files:    []string{"Chart.yaml", chart("type: library\n")},
			settings: Settings{},
			want:     InvalidChart,
			says:     []string{"library"},
		},
		"NoVersion": {
			files:    []string{"Chart.yaml", "apiVersion: v2\nname: shop\n"},
			settings: Settings{},
			want:     InvalidChart,
			says:     []string{"version"},
		},
		"BadChartYAML": {
			files:    []string{"Chart.yaml", "name: [\n"},
			settings: Settings{},
			want:     InvalidChart,
			says:     []string{"Chart.yaml"},
		},
		"BadValuesYAML": {
			files:    []string{"values.yaml", "a: [\n"},
			settings: Settings{},
			want:     InvalidChart,
			says:     []string{"values.yaml"},
		},
		"Dependency": {
			files: []string{"Chart.yaml", chart(
				"dependencies: [{name: db, version: 1.x, repository: https://example.com}]\n")},
			settings: Settings{},
			want:     InvalidChart,
			says:     []string{"db 1.x", "helm dependency build"},
		},
		"Twice": {
			reason: "the loader would take them in any order",
			files: []string{"charts/a/Chart.yaml", "apiVersion: v2\nname: db\nversion: 1.0.0\n",
				"charts/b/Chart.yaml", "apiVersion: v2\nname: db\nversion: 1.0.0\n"},
			settings: Settings{},
			want:     InvalidChart,
			says:     []string{"db 1.0.0 twice"},
		},
		"Subchart": {
			files:    []string{"charts/db.tgz", "no archive"},
			settings: Settings{},
			want:     InvalidArchive,
			says:     []string{"charts/db.tgz"},
		},
		"Schema": {
			files:    []string{"values.schema.json", `{"properties":{"port":{"type":"integer"}}}`},
			settings: Settings{Set: []string{"port=http"}},
			want:     InvalidValues,
			says:     []string{"schema", "/port", "integer"},
		},
		"SchemaOfSub": {
			files: []string{"charts/db/Chart.yaml", "apiVersion: v2\nname: db\nversion: 1.0.0\n",
				"charts/db/values.schema.json", `{"required":["size"]}`, "values.yaml", "db: {a: 1}"},
			settings: Settings{},
			want:     InvalidValues,
			says:     []string{"chart db", "size"},
		},
		"SchemaRemote": {
			reason:   "nothing is fetched",
			files:    []string{"values.schema.json", `{"$ref":"https://example.com/schema.json"}`},
			settings: Settings{},
			want:     RefusedFeature,
			says:     []string{"https://example.com/schema.json"},
		},
		"SchemaFile": {
			reason:   "nothing is read from this machine",
			files:    []string{"values.schema.json", `{"$ref":"file:///etc/passwd"}`},
			settings: Settings{},
			want:     RefusedFeature,
			says:     []string{"file:///etc/passwd"},
		},
		"SchemaDialect": {
			reason:   "nothing is fetched",
			files:    []string{"values.schema.json", `{"$schema":"https://example.com/dialect"}`},
			settings: Settings{},
			want:     RefusedFeature,
			says:     []string{"https://example.com/dialect"},
		},
		"SchemaBroken": {
			files:    []string{"values.schema.json", `{"type": 5}`},
			settings: Settings{},
			want:     InvalidChart,
			says:     []string{"values.schema.json"},
		},
		"SchemaNoJSON": {
			files:    []string{"values.schema.json", `{`},
			settings: Settings{},
			want:     InvalidChart,
			says:     []string{"values.schema.json"},
		},
		"Values": {
			settings: Settings{Values: []byte("a: [")},
			want:     InvalidValues,
			says:     []string{"values document"},
		},
		"ValuesList": {
			settings: Settings{Values: []byte("[a]")},
			want:     InvalidValues,
			says:     []string{"values document"},
		},
		"ValuesTwice": {
			settings: Settings{Values: []byte("a: 1\na: 2")},
			want:     InvalidValues,
			says:     []string{"repeated"},
		},
		"Set": {settings: Settings{Set: []string{"a"}}, want: InvalidValues, says: []string{"path=value"}},
		"SetIndex": {
			reason:   "memory",
			settings: Settings{Set: []string{"a[65000]=b"}},
			want:     InvalidValues,
			says:     []string{"index"},
		},
		"SetIndexHidden": {
			reason:   "memory",
			settings: Settings{Set: []string{`a[6\5000]=b`}},
			want:     InvalidValues,
			says:     []string{"index"},
		},
		"Release": {settings: Settings{Release: "Not_A_Name"}, want: InvalidValues, says: []string{"Not_A_Name"}},
		"KubeVersion": {
			settings: Settings{
				Capabilities: Capabilities{KubeVersion: "new"},
				Values:       []byte("a: .Capabilities.KubeVersion"),
			},
			want: InvalidValues,
			says: []string{`"new"`},
		},
		"Duplicate": {
			files:    []string{"templates/a.yaml", configMap("1"), "templates/b.yaml", configMap("2")},
			settings: Settings{},
			want:     DuplicateObject,
			says:     []string{"ConfigMap a"},
		},
		"CRD": {
			files:    []string{"crds/a.yaml", "a: b"},
			settings: Settings{},
			want:     InvalidObject,
			says:     []string{"crds/a.yaml"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fsys := folder(tc.files...)
			if fsys["Chart.yaml"] == nil {
				fsys["Chart.yaml"] = &fstest.MapFile{Data: []byte(chart(""))}
			}
			a, err := LoadFolder(fsys, Limits{})
			if err == nil {
				_, err = a.Render(t.Context(), tc.settings, Options{})
			}
			check := reasonOf(err)
			if check != tc.want {
				t.Errorf("got reason %s, want %s (%s): %v", check, tc.want, tc.reason, err)
			}
			for _, says := range tc.says {
				if err != nil && !strings.Contains(err.Error(), says) {
					t.Errorf("the error does not say %q: %v", says, err)
				}
			}
		})
	}
}

// TestChartRandom checks that a chart may call functions whose result differs each time, if no object depends on the
// result.
func TestChartRandom(t *testing.T) {
	cases := map[string]struct {
		reason    string
		templates []string
		settings  Settings
		want      string // value in the ConfigMap
	}{
		"Default": {"the result is not used", []string{configMap(`{{ default (randAlphaNum 16) .Values.password }}`)},
			Settings{Set: []string{"password=p"}}, "p"},
		"OmittedHook": {"the Pod of a test is left out", []string{configMap("x"), "apiVersion: v1\nkind: Pod\nmetadata: " +
			"{name: 'test-{{ randAlphaNum 5 | lower }}', annotations: {helm.sh/hook: test}}\n"}, Settings{}, "x"},
		"Length": {"each result has the same length", []string{configMap(`n{{ randAlphaNum 16 | len }}`)},
			Settings{}, "n16"},
		"Certificate": {"the given certificate is used", []string{configMap(
			`{{ $c := genSelfSignedCert "a" nil nil 365 }}{{ .Values.cert | default $c.Cert }}`)},
			Settings{Set: []string{"cert=c"}}, "c"},
		"OneOfOne": {"there is only one result", []string{configMap(`n{{ randInt 3 4 }}`)}, Settings{}, "n3"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var files []string
			for i, text := range tc.templates {
				files = append(files, fmt.Sprintf("templates/%d.yaml", i), text)
			}
			objects, _, err := chartOf(t, files...).RenderObjects(t.Context(), tc.settings)
			if err != nil {
				t.Fatal(err)
			}
			if len(objects) != 1 || objects[0].Object["data"].(map[string]any)["v"] != tc.want {
				t.Errorf("got %v, want %q: %s", objects, tc.want, tc.reason)
			}
		})
	}
}

// TestChartDocuments checks that the output of a template is split into documents as Helm does it, and that the objects
// are in the order in which Helm installs them.
func TestChartDocuments(t *testing.T) {
	object := func(kind, name string) string {
		return "apiVersion: v1\nkind: " + kind + "\nmetadata: {name: " + name + "}\n"
	}
	objects, _, err := chartOf(t,
		"templates/a.yaml", "\n"+object("Widget", "w")+"---# a comment\n"+object("Service", "s")+"---"+
			object("ConfigMap", "c")+"---   \n\n---\n# nothing\n--- # other\n"+object("Gadget", "g"),
		"templates/b.yaml", object("Namespace", "ns")+"---\n"+object("Service", "a"),
		"templates/_notes.yaml", "no object",
		"crds/c.yaml", object("CustomResourceDefinition", "d")).RenderObjects(t.Context(), Settings{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range objects {
		got = append(got, o.GetKind()+" "+o.GetName())
	}
	want := []string{"CustomResourceDefinition d", "Namespace ns", "ConfigMap c", "Service s", "Service a", "Gadget g",
		"Widget w"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestChartOutputs checks that the output of templates is returned even if it cannot be decoded.
func TestChartOutputs(t *testing.T) {
	got, err := chartOf(t, "values.yaml", "a: 1\n", "templates/a.yaml", "a: [{{ .Values.a }}\n", "templates/_b.tpl",
		`{{ define "b" }}{{ end }}`).TemplateOutputs(t.Context(), Settings{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"shop/templates/a.yaml": "a: [1\n"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestChartHooks(t *testing.T) {
	hook := func(moments string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: h, annotations: {helm.sh/hook: \"" + moments +
			"\"}}\n"
	}
	job := strings.NewReplacer("v1\nkind: ConfigMap", "batch/v1\nkind: Job")
	cases := map[string]struct {
		reason   string
		template string
		disabled bool
		kept     bool
	}{
		"NoHook":      {"", configMap("1"), true, true},
		"Install":     {"it stays as any other", hook("pre-install, pre-upgrade"), false, true},
		"Crd":         {"an old way to bring definitions", hook("crd-install"), false, true},
		"Test":        {"", hook("test"), false, false},
		"TestSuccess": {"", hook("test-success"), false, false},
		"Delete":      {"objects are deleted by the inventory alone", hook("pre-delete,post-delete"), false, false},
		"Rollback":    {"", hook("post-rollback"), false, false},
		"Mixed":       {"one moment that occurs is enough", hook("post-delete,post-install"), false, true},
		"TestJob":     {"", job.Replace(hook("test")), false, false},
		"Disabled":    {"", hook("pre-install"), true, false},
		"DisabledJob": {"it would be refused otherwise", job.Replace(hook("pre-install")), true, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bundle, err := chartOf(t, "templates/a.yaml", tc.template).Render(
				t.Context(), Settings{DisableHooks: tc.disabled}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if kept := len(bundle.Objects) == 1; kept != tc.kept || kept == (len(bundle.LeftOut) == 1) {
				t.Errorf("kept %v, left out %q: %s", kept, bundle.LeftOut, tc.reason)
			}
		})
	}
}

// TestResourcePolicy checks that package apply keeps those objects that Helm would keep.
func TestResourcePolicy(t *testing.T) {
	cases := map[string]struct{ reason, annotations, want string }{
		"Keep":  {"", "helm.sh/resource-policy: keep", "keep"},
		"Case":  {"as Helm reads it", "helm.sh/resource-policy: ' Keep'", "keep"},
		"Other": {"", "helm.sh/resource-policy: other", ""},
		"Decided": {"our own annotation wins", "helm.sh/resource-policy: keep, operator.kyma-project.io/prune: delete",
			"delete"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bundle, err := chartOf(t, "templates/a.yaml",
				"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {"+tc.annotations+"}}\n").Render(
				t.Context(), Settings{}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if got := bundle.Objects[0].Annotation("operator.kyma-project.io/prune"); got != tc.want {
				t.Errorf("got %q, want %q: %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestCapabilityQueries(t *testing.T) {
	cases := map[string]struct {
		reason   string
		files    []string
		settings Settings
		want     []string
	}{
		"Nothing": {"", []string{"templates/a.yaml", "{{ .Values.capabilities }}"}, Settings{}, nil},
		"Version": {"", []string{"templates/a.yaml",
			`{{ semverCompare ">=1.25" $.Capabilities.KubeVersion.Version }}`}, Settings{}, []string{"kubeVersion"}},
		"Has": {"each once, sorted", []string{"templates/a.yaml",
			"{{ .Capabilities.APIVersions.Has \"b/v1\" }}{{ .Capabilities.APIVersions.Has `a/v1` }}{{ " +
				".Capabilities.APIVersions.Has \"b/v1\" }}"}, Settings{},
			[]string{"apiVersion a/v1", "apiVersion b/v1"}},
		"Dynamic": {"an unknown form queries everything",
			[]string{"templates/a.yaml", "{{ .Capabilities.APIVersions | toYaml }}"}, Settings{},
			[]string{"apiVersions", "kubeVersion"}},
		"Whole": {"", []string{"templates/a.yaml", "{{ $c := .Capabilities }}"}, Settings{},
			[]string{"apiVersions", "kubeVersion"}},
		"Get": {"", []string{"templates/a.yaml", `{{ get . "Capabilities" }}`}, Settings{},
			[]string{"apiVersions", "kubeVersion"}},
		"HelmVersion": {"that is ours", []string{"templates/a.yaml", "{{ .Capabilities.HelmVersion.Version }}"},
			Settings{}, nil},
		"Constraint": {"", []string{"Chart.yaml", "apiVersion: v2\nname: a\nversion: 1.0.0\nkubeVersion: '>=1.25'\n"},
			Settings{}, []string{"kubeVersion in >=1.25"}},
		"Aliases": {"a text that is repeated too often is not copied", []string{"Chart.yaml", aliasedChart},
			Settings{}, nil},
		"Subchart": {"", []string{"charts/b/Chart.yaml", "apiVersion: v2\nname: b\nversion: 1.0.0\n",
			"charts/b/templates/a.yaml", "{{ .Capabilities.KubeVersion }}"}, Settings{}, []string{"kubeVersion"}},
		"Values": {"values can be templates", nil, Settings{Values: []byte("a: '{{ .Capabilities.KubeVersion }}'"),
			Set: []string{`b={{ .Capabilities.APIVersions.Has "c/v1" }}`}}, []string{"apiVersion c/v1", "kubeVersion"}},
		"Talk": {"documentation does not count", []string{"README.md", "{{ .Capabilities }}", "templates/NOTES.txt",
			"{{ .Capabilities }}"}, Settings{}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, chartOf(t, tc.files...).CapabilityQueries(tc.settings)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestSettingsDigest checks that the digest changes with every input of the rendering, and with nothing else.
func TestSettingsDigest(t *testing.T) {
	a := chartOf(t, "Chart.yaml", "apiVersion: v2\nname: a\nversion: 1.0.0\nkubeVersion: '>=1.25'\n",
		"templates/a.yaml", configMap(`{{ .Capabilities.APIVersions.Has "a/v1" }}`))
	base := Settings{Release: "r", Capabilities: Capabilities{KubeVersion: "v1.30.0", APIVersions: []string{"b/v1"}}}
	digest := func(change func(*Settings)) string {
		s := base
		change(&s)
		return s.Digest(a.Digest(), a.CapabilityQueries(s))
	}
	have := digest(func(*Settings) {})
	for name, change := range map[string]func(*Settings){
		"OtherVersion": func(s *Settings) { s.Capabilities.KubeVersion = "v1.31.0" },
		"OtherAPI":     func(s *Settings) { s.Capabilities.APIVersions = []string{"b/v1", "c/v1"} },
	} {
		if digest(change) != have {
			t.Errorf("%s: the chart does not read it, but the digest has changed", name)
		}
	}
	seen := map[string]string{have: "nothing"}
	for name, change := range map[string]func(*Settings){
		"OutOfRange": func(s *Settings) { s.Capabilities.KubeVersion = "v1.24.0" },
		"AskedAPI":   func(s *Settings) { s.Capabilities.APIVersions = []string{"a/v1", "b/v1"} },
		"Release":    func(s *Settings) { s.Release = "q" },
		"Namespace":  func(s *Settings) { s.Namespace = "q" },
		"Create":     func(s *Settings) { s.CreateNamespace = true },
		"Values":     func(s *Settings) { s.Values = []byte("a: 1") },
		"Set":        func(s *Settings) { s.Set = []string{"a=1"} },
		"SetTwo":     func(s *Settings) { s.Set = []string{"a=1", "b=1"} },
		"SetOne":     func(s *Settings) { s.Set = []string{"a=1,b=1"} },
		"Hooks":      func(s *Settings) { s.DisableHooks = true },
		"CRDs":       func(s *Settings) { s.SkipCRDs = true },
	} {
		d := digest(change)
		if first, ok := seen[d]; ok {
			t.Errorf("%s has the digest of %s", name, first)
		}
		seen[d] = name
	}
	if got := (Settings{}).Digest("sha256:1", nil); got != "sha256:1" {
		t.Errorf("without settings it should be the artefact's, but is %s", got)
	}
	if got := base.Digest("", nil); got != "" {
		t.Errorf("without artefact it should be empty, but is %s", got)
	}
	bundle, err := a.Render(t.Context(), base, Options{PullSecret: "p"})
	if err != nil {
		t.Fatal(err)
	}
	if want := (Options{PullSecret: "p", Digest: have}).ResultingBundleDigest(); bundle.Digest != want {
		t.Errorf("the bundle has digest %s, known before is %s", bundle.Digest, want)
	}
}

// TestUnqueriedIsHidden checks that a template cannot read a property of the cluster for which CapabilityQueries
// returns no query. Therefore the digest covers every property that the output can depend on.
func TestUnqueriedIsHidden(t *testing.T) {
	a := chartOf(t, "templates/a.yaml", configMap(
		`{{ range $k, $v := . }}{{ if hasSuffix "ilities" $k }}{{ toJson $v | quote }}{{ end }}{{ end }}`))
	render := func(c Capabilities) any {
		objects, _, err := a.RenderObjects(t.Context(), Settings{Capabilities: c})
		if err != nil {
			t.Fatal(err)
		}
		return objects[0].Object["data"]
	}
	if diff := cmp.Diff(render(Capabilities{KubeVersion: "v1.1.1", APIVersions: []string{"a/v1"}}),
		render(Capabilities{KubeVersion: "v1.2.2"})); diff != "" {
		t.Error(diff)
	}
}

// TestChartIsReusable checks that a rendering does not change the input of the next rendering.
func TestChartIsReusable(t *testing.T) {
	a := chartOf(t, "Chart.yaml",
		"apiVersion: v2\nname: a\nversion: 1.0.0\ndependencies: [{name: b, version: 1.0.0, condition: b.enabled}]\n",
		"charts/b/Chart.yaml", "apiVersion: v2\nname: b\nversion: 1.0.0\n", "charts/b/templates/b.yaml",
		configMap("{{ .Values.x }}"))
	counts := []int{}
	for _, set := range []string{"b.enabled=false", "b.enabled=true,b.x=1", "b.enabled=false"} {
		objects, _, err := a.RenderObjects(t.Context(), Settings{Set: []string{set}})
		if err != nil {
			t.Fatal(err)
		}
		counts = append(counts, len(objects))
	}
	if !slices.Equal(counts, []int{0, 1, 0}) {
		t.Errorf("got %v objects", counts)
	}
}

// TestRenderTimeout checks that endless templates are stopped.
func TestRenderTimeout(t *testing.T) {
	for name, template := range map[string]string{
		"Range":     `{{ range 9000000000000000 }}{{ end }}`,
		"Nested":    `{{ $l := until 90000 }}{{ range $l }}{{ range $l }}{{ range $l -}} x {{- end }}{{ end }}{{ end }}`,
		"InElse":    `{{ if .Values.x }}{{ else }}{{ with .Release }}{{ range 9000000000000000 }}{{- /* nothing */ -}}{{ end }}{{ end }}{{ end }}`,
		"Include":   `{{ define "twice" }}{{ include "twice" . }}{{ include "twice" . }}{{ end }}{{ range 1000000 }}{{ include "less" 20 }}{{ end }}{{ define "less" }}{{ if gt . 0 }}{{ include "less" (sub . 1) }}{{ include "less" (sub . 1) }}{{ end }}{{ end }}`,
		"Template":  `{{ define "less" }}{{ if gt . 0 }}{{ template "less" (sub . 1) }}{{ template "less" (sub . 1) }}{{ end }}{{ end }}{{ template "less" 60 }}`,
		"Continued": `{{ range 9000000000000000 }}{{ continue }}{{ end }}`,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			begin := time.Now()
			_, _, err := chartOf(t, "templates/a.yaml", template).RenderObjects(ctx, Settings{})
			if reasonOf(err) != RenderTimeout || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(begin); took > time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func FuzzChart(f *testing.F) {
	f.Add("{{ .Values.a }}", "a: 1", "b=2", "k: v")
	f.Add(`{{ tpl .Values.a . }}{{ include "x" . }}`, "a: '{{ now }}'", "a.b[1]={x,y}", "a: &a [*a]")
	f.Add(`{{ range $i, $x := .Values }}{{ $i }}{{ end }}`, "a: {b: null}", "a=null", "")
	f.Fuzz(func(t *testing.T, template, values, set, own string) {
		a, err := LoadFolder(folder("Chart.yaml", "apiVersion: v2\nname: a\nversion: 1.0.0\n", "values.yaml", own,
			"templates/a.yaml", template), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		settings := Settings{Values: []byte(values), Set: []string{set}}
		first, _, err := a.RenderObjects(ctx, settings)
		if err != nil {
			if reasonOf(err) == err.Error() {
				t.Fatalf("no reason: %v", err)
			}
			return
		}
		second, _, err := a.RenderObjects(ctx, settings)
		if err != nil && reasonOf(err) != RenderTimeout {
			t.Fatal(err)
		}
		if err != nil {
			return
		}
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("two renderings differ:\n%s", diff)
		}
	})
}
