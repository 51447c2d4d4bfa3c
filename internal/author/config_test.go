package author

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// good is a valid module-config with its manifest.
const good = `name: example.com/module/widget
version: 2.0.1
manifest: manifest.yaml
repository: https://example.com/widget
documentation: https://example.com/widget/docs
team: example/blue
icons:
  - name: icon
    link: https://example.com/icon.svg
`

const workload = `apiVersion: apps/v1
kind: Deployment
metadata: {name: widget, namespace: kyma-system}
spec:
  template:
    spec:
      containers:
        - name: manager
          image: IMAGE
          env:
            - {name: KEY, value: "VALUE"}
`

// writeModule creates a folder with a module and returns the path of the config.
func writeModule(t *testing.T, config, image, env string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"module-config.yaml": config,
		"manifest.yaml":      strings.NewReplacer("IMAGE", image, "VALUE", env).Replace(workload),
		"cr.yaml":            "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: default}\n",
		"two.yaml": "apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\napiVersion: v1\nkind: B\nmetadata: " +
			"{name: b}\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "module-config.yaml")
}

// goodConfigWith(key, with) returns the module-config in the constant good with a change of one key: the line "with"
// replaces the line of the key and its nested lines. If "with" is empty, goodConfigWith only removes the lines of the
// key.
func goodConfigWith(key, with string) string {
	var out []string
	skip := false
	for l := range strings.Lines(good) {
		skip = skip && strings.HasPrefix(l, " ")
		if strings.HasPrefix(l, key+":") {
			skip = true
			if with != "" {
				out = append(out, with+"\n")
			}
		}
		if !skip {
			out = append(out, l)
		}
	}
	return strings.Join(out, "")
}

// TestOddInput checks the errors about typical mistakes of authors. The message of each error must contain the location
// of the problem and how to solve it.
func TestOddInput(t *testing.T) {
	cases := map[string]struct {
		reason           string
		config           string
		image, env       string
		problem          string // text in the error; "" means that the build succeeds
		images, warnings int
	}{
		"Good": {reason: "the base of all others", config: good, images: 1},
		"CapitalName": {
			reason:  "registries have no capitals",
			config:  goodConfigWith("name", "name: Example/Widget"),
			problem: `module-config.yaml:1: name "Example/Widget" has capital letters`,
		},
		"ShortName": {
			reason:  "a component needs a domain",
			config:  goodConfigWith("name", "name: widget"),
			problem: `:1: name "widget" is not that of a component: a domain and a path`,
		},
		"UnderscoreName": {
			reason:  "the ModuleTemplate would be refused later",
			config:  goodConfigWith("name", "name: example.com/module/widget_x"),
			problem: `:1: name "example.com/module/widget_x": the last part, "widget_x"`,
		},
		"InlineValues": {
			reason:  "as in other tools",
			config:  good + "chart: {values: {replicas: 2}}\n",
			problem: "chart: values has to be the path of a file: write the values into a file",
		},
		"NoName": {reason: "required", config: goodConfigWith("name", ""), problem: "name is missing"},
		"VersionWithV": {
			reason:  "strict",
			config:  goodConfigWith("version", "version: v2.0.1"),
			problem: `:2: version "v2.0.1": leave out the v`,
		},
		"VersionOfTwo": {
			reason:  "strict",
			config:  goodConfigWith("version", "version: 2.0"),
			problem: `:2: version "2.0" is no semantic version`,
		},
		"VersionWithDots": {
			reason:  "the ModuleTemplate would be refused later",
			config:  goodConfigWith("version", "version: 2.0.1-rc.1"),
			problem: `write "2.0.1-rc-1"`,
		},
		"VersionOfBuild": {
			reason:  "the ModuleTemplate would be refused later",
			config:  goodConfigWith("version", "version: 2.0.1-rc.1+b1"),
			problem: "build metadata",
		},
		"Upgrade": {reason: "declared for the ModuleTemplate", config: good + "upgrade: {from: '>=1.5.0 <2.0.1', back: 2.0.0, " +
			"risks: [{name: old, when: 'labels.region == \"eu\"', message: it stops}]}\n", images: 1},
		"UpgradeRange": {
			reason:  "no fleet could use it",
			config:  good + "upgrade: {back: newer}\n",
			problem: `:10: upgrade: back: "newer" is not a range of versions`,
		},
		"UpgradeItself": {
			reason:  "an edge to itself or upwards",
			config:  good + "upgrade: {back: '>=1.0.0'}\n",
			problem: `upgrade: back: ">=1.0.0" contains version 2.0.1 itself`,
		},
		"UpgradeRisk": {
			reason:  "it would keep the version from every runtime",
			config:  good + "upgrade: {risks: [{name: old, when: 'labels.region ==', message: it stops}]}\n",
			problem: "is not a valid CEL expression",
		},
		"UpgradeKey": {
			reason:  "a typing error",
			config:  good + "upgrade: {to: 1.0.0}\n",
			problem: `unknown key "to" in upgrade: known are back, from, risks`,
		},
		"ManifestHTTP": {
			reason:  "no plain HTTP",
			config:  goodConfigWith("manifest", "manifest: http://x.example.com/m.yaml"),
			problem: `:3: manifest: "http://x.example.com/m.yaml" does not begin with https://`,
		},
		"ManifestPath": {
			reason:  "only the author has it",
			config:  goodConfigWith("manifest", "manifest: /abs/m.yaml"),
			problem: "/abs/m.yaml: no such file",
		},
		"ManifestMissing": {
			reason:  "no such file",
			config:  goodConfigWith("manifest", "manifest: nope.yaml"),
			problem: "nope.yaml: no such file",
		},
		"ManifestNoHost": {
			reason:  "no such URL",
			config:  goodConfigWith("manifest", "manifest: https:///m.yaml"),
			problem: `:3: manifest: "https:///m.yaml" has no host`,
		},
		"RepositoryHTTP": {
			reason:  "no plain HTTP",
			config:  goodConfigWith("repository", "repository: http://example.com/a"),
			problem: `:4: repository: "http://example.com/a" does not begin with https://`,
		},
		"NoTeam": {reason: "scanners need somebody", config: goodConfigWith("team", ""),
			problem: "team is missing"},
		"NoTeamNoScan":    {reason: "nobody scans", config: goodConfigWith("team", "securityScanEnabled: false"), images: 1},
		"NoDocumentation": {reason: "required", config: goodConfigWith("documentation", ""), problem: "documentation is missing"},
		"NoIcons":         {reason: "required", config: goodConfigWith("icons", ""), problem: "icons is missing"},
		"IconsTwice": {
			reason:  "a map in truth",
			config:  goodConfigWith("icons", `icons: [{name: a, link: "https://x"}, {name: a, link: "https://y"}]`),
			problem: `:7: icons: "a" is duplicated`,
		},
		"IconsAsMap": {reason: "the older form", config: goodConfigWith("icons", `icons: {a: "https://x"}`), images: 1},
		"IconsNoLink": {
			reason:  "required",
			config:  goodConfigWith("icons", `icons: {a: ""}`),
			problem: `:7: icons: the link of "a" is missing`,
		},
		"ManagerNoKind": {
			reason:  "required",
			config:  good + "manager: {name: a, group: apps, version: v1}\n",
			problem: ":10: manager: kind is missing",
		},
		"ManagerNoGroup": {
			reason:  "required",
			config:  good + "manager: {name: a, kind: Pod, version: v1, group: \"\"}\n",
			problem: ":10: manager: group is missing",
		},
		"ManagerNoName": {
			reason:  "required",
			config:  good + "manager: {group: apps, version: v1, kind: Deployment}\n",
			problem: ":10: manager: name is missing",
		},
		"ManagerNamespace": {reason: "no such name",
			config:  good + "manager: {name: a, group: apps, version: v1, kind: Deployment, namespace: Kyma_System}\n",
			problem: `:10: manager: namespace "Kyma_System" is none`},
		"ManagerUnknown": {
			reason:  "strict inside, too",
			config:  good + "manager: {titel: a}\n",
			problem: `:10: unknown key "titel" in manager`,
		},
		"AssociatedVersion": {
			reason:  "required",
			config:  good + "associatedResources: [{group: a, kind: B}]\n",
			problem: ":10: associatedResources[0]: version is missing",
		},
		"DefaultCRPath": {
			reason:  "only the author has it",
			config:  good + "defaultCR: /abs/cr.yaml\n",
			problem: "/abs/cr.yaml: no such file",
		},
		"DefaultCRMissing": {
			reason:  "no such file",
			config:  good + "defaultCR: nope.yaml\n",
			problem: "nope.yaml: no such file",
		},
		"DefaultCRTwo": {
			reason:  "one switches the module on",
			config:  good + "defaultCR: two.yaml\n",
			problem: ":10: defaultCR: it holds 2 objects",
		},
		"DefaultCR": {reason: "as it should be", config: good + "defaultCR: cr.yaml\n", images: 1},
		"ResourceNoLink": {
			reason:  "required",
			config:  good + "resources: [{name: a}]\n",
			problem: `:10: resources: the link of "a" is missing`,
		},
		"UnknownKey": {
			reason:   "another tool may read it",
			config:   good + "unknownField: 1\n",
			images:   1,
			warnings: 1,
		},
		"MisspeltKey": {
			reason:  "somebody meant something by it",
			config:  good + "defualtCR: cr.yaml\n",
			problem: `:10: unknown key "defualtCR": did you mean defaultCR? known are`,
		},
		"KeyOfAnotherCase": {
			config:  good + "requiresdowntime: true\n",
			problem: "did you mean requiresDowntime?",
		},
		"ModulectlFile": {
			reason: "generated files have all keys, most of them empty",
			config: good + "defaultCR: \"\"\nsecurity: \"\"\nsecurityScanEnabled: null\nlabels: {}\nannotations: {}\n" +
				"manager: null\nassociatedResources: []\nresources: []\nrequiresDowntime: false\ninternal: false\n" +
				"beta: false\nchannel: \"\"\nmandatory:\n",
			images: 1,
		},
		"BrokenScaffold": {
			reason:  "an old tool wrote such keys",
			config:  good + "resources,omitempty: []\n",
			problem: "did you mean resources?",
		},
		"KeyTwice": {
			reason:  "which of them counts?",
			config:  good + "version: 3.0.0\n",
			problem: ":10: version is duplicated, first in line 2",
		},
		"KeyOfThePast": {
			reason:   "files that are around have it",
			config:   good + "channel: fast\n",
			images:   1,
			warnings: 1,
		},
		"NotYAML": {reason: "nothing can be read", config: "a: [", problem: "not YAML"},
		"Empty":   {reason: "nothing is there", config: "", problem: "not a module-config"},
		"WrongType": {
			reason:  "a word for a truth",
			config:  good + "beta: perhaps\n",
			problem: ":10: beta: cannot unmarshal",
		},
		"ImageNoTag": {
			reason:  "it means latest",
			config:  good,
			image:   "registry/x",
			problem: `image "registry/x": without a tag it means latest`,
		},
		"ImageLatest": {
			reason: "it moves",
			config: good,
			image:  "registry/x:latest",
			problem: "Deployment kyma-system/widget, container manager: image \"registry/x:latest\": the tag " +
				"latest moves",
		},
		"ImageMain": {reason: "it moves", config: good, image: "registry/x:main", problem: "the tag main moves"},
		"ImageLatestCase": {
			reason:  "it moves",
			config:  good,
			image:   "registry/x:Latest",
			problem: "the tag Latest moves",
		},
		"ImageCapital": {
			reason:  "no registry takes it",
			config:  good,
			image:   "UPPER/x:1.0.0",
			problem: "no capital letters",
		},
		"ImageShortDigest": {
			reason:  "no digest",
			config:  good,
			image:   "x@sha256:0123",
			problem: `the digest "sha256:0123" is none`,
		},
		"EnvPort":        {reason: "no image", config: good, env: ":8080", images: 1},
		"EnvHostPort":    {reason: "no image", config: good, env: "localhost:8080", images: 1},
		"EnvURLWithPath": {reason: "no image", config: good, env: "http://svc:80/path", images: 1},
		"EnvPair":        {reason: "no image", config: good, env: "a:b", images: 1},
		"EnvURL":         {reason: "no image", config: good, env: "https://foo.bar", images: 1},
		"EnvAddress":     {reason: "no image", config: good, env: "0.0.0.0:8443", images: 1},
		"EnvMoving":      {reason: "it may be an image", config: good, env: "some:latest", images: 1, warnings: 1},
		"EnvImage":       {reason: "it has a path and a tag", config: good, env: "kyma-system/foo:bar", images: 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.image == "" {
				c.image = "example.com/widget:2.0.1"
			}
			m, err := Build(t.Context(), Source{File: writeModule(t, c.config, c.image, c.env), Commit: "0123"})
			if c.problem != "" {
				if err == nil || !strings.Contains(err.Error(), c.problem) {
					t.Fatalf("%s: got error %v, want one with %q", c.reason, err, c.problem)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", c.reason, err)
			}
			if len(m.Images) != c.images || len(m.Findings) != c.warnings {
				t.Errorf("%s: images %q and findings %q, want %d and %d", c.reason, m.Images,
					m.Findings, c.images, c.warnings)
			}
		})
	}
}

// TestCommit checks that the commit is found in all formats in which Git stores it.
func TestCommit(t *testing.T) {
	cases := map[string]struct {
		reason string
		files  map[string]string
		want   string
	}{
		"Branch": {"a loose ref", map[string]string{".git/HEAD": "ref: refs/heads/main\n",
			".git/refs/heads/main": "abc\n"}, "abc"},
		"Packed": {"git gc packs refs", map[string]string{".git/HEAD": "ref: refs/heads/main\n",
			".git/packed-refs": "# pack\nabc refs/heads/main\n"}, "abc"},
		"Detached": {"as in most pipelines", map[string]string{".git/HEAD": "abc\n"}, "abc"},
		"Worktree": {"a file leads to it", map[string]string{".git": "gitdir: real/worktrees/w\n",
			"real/worktrees/w/HEAD": "ref: refs/heads/w\n", "real/worktrees/w/commondir": "../..\n",
			"real/refs/heads/w": "abc\n"}, "abc"},
		"None": {"a new repository", map[string]string{".git/HEAD": "ref: refs/heads/main\n"}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range c.files {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o750); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := commitOf(dir)
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%s: got %q, %v, want %q", c.reason, got, err, c.want)
			}
		})
	}
}

// TestAbsolutePath checks that a build reads a manifest with an absolute path, and that the build returns a warning
// about the path.
func TestAbsolutePath(t *testing.T) {
	manifest := filepath.Join(t.TempDir(), "manifest.yaml")
	object := []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
	if err := os.WriteFile(manifest, object, 0o600); err != nil {
		t.Fatal(err)
	}
	config := writeModule(t, goodConfigWith("manifest", "manifest: "+manifest), "x", "")
	m, err := Build(t.Context(), Source{File: config, Commit: "0123"})
	if err != nil || len(m.Objects) != 1 || len(m.Findings) != 1 ||
		!strings.Contains(m.Findings[0].What, "is an absolute path") {
		t.Errorf("got %+v, %v", m, err)
	}
}
