package render

import (
	"archive/tar"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// copyInto copies all files of an fs.FS into a file system in memory.
func copyInto(to fstest.MapFS, from fs.FS) error {
	return fs.WalkDir(from, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(from, name)
		to[name] = &fstest.MapFile{Data: data, Mode: 0o644}
		return err
	})
}

func TestLoadRecognises(t *testing.T) {
	const chart, kustomization = "apiVersion: v2\nname: a\nversion: 1.0.0\n", "resources: [a.yaml]\n"
	plain := configMap("1")
	cases := map[string]struct {
		reason string
		layer  []byte
		want   Kind
	}{
		"Plain":       {"", []byte(plain), Manifests},
		"PlainZipped": {"", gzipped(t, []byte(plain)), Manifests},
		"Tar":         {"", archive(t, "a.yaml", plain), Manifests},
		"TarFolder":   {"", archive(t, "a/a.yaml", plain), Manifests},
		"Chart": {"as Helm packages it",
			gzipped(t, archive(t, "a/Chart.yaml", chart, "a/templates/a.yaml", plain)), Chart},
		"ChartTop": {"as tar -C chart . packages it",
			archive(t, "./Chart.yaml", chart, "./templates/a.yaml", plain), Chart},
		"ChartMac": {"files of macOS archivers are ignored", archive(t, "a/Chart.yaml", chart, "._a", "x",
			"a/._Chart.yaml", "x", "a/templates/a.yaml", plain), Chart},
		"ChartDeep": {"deeper is something else",
			archive(t, "a/b/Chart.yaml", chart, "a/b/templates/a.yaml", plain), Manifests},
		"Two": {"two folders are no chart", archive(t, "a/Chart.yaml", chart, "b/a.yaml", plain),
			Manifests},
		"Kustomize":      {"", archive(t, "kustomization.yaml", kustomization, "a.yaml", plain), Kustomization},
		"KustomizeYML":   {"", archive(t, "k/kustomization.yml", kustomization, "k/a.yaml", plain), Kustomization},
		"KustomizeNoExt": {"", archive(t, "Kustomization", kustomization, "a.yaml", plain), Kustomization},
		"ChartOfKustomize": {"a chart may have one for its own purposes",
			archive(t, "Chart.yaml", chart, "kustomization.yaml", kustomization, "a.yaml", plain), Chart},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, err := Load(tc.layer, Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if a.Kind() != tc.want {
				t.Errorf("taken for a %s: %s", a.Kind(), tc.reason)
			}
			if _, err := ReadManifests(tc.layer, Limits{}); tc.want != Manifests && reasonOf(err) != RefusedFeature {
				t.Errorf("ReadManifests returned %v", err)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	const chart = "apiVersion: v2\nname: a\nversion: 1.0.0\n"
	bomb := gzipped(t, archive(t, "b/Chart.yaml", chart, "b/big.txt", strings.Repeat("x", 10_000)))
	nested := gzipped(t, archive(t, "n/Chart.yaml", chart))
	for range maxSubcharts + 2 {
		nested = gzipped(t, archive(t, "n/Chart.yaml", chart, "n/charts/n.tgz", string(nested)))
	}
	link := archiveOf(t, []*tar.Header{{Name: "a/Chart.yaml", Typeflag: tar.TypeReg,
		Size: int64(len(chart)), Mode: 0o644},
		{Name: "a/templates/x.yaml", Typeflag: tar.TypeSymlink, Linkname: "y.yaml"}}, []string{"", chart})
	cases := map[string]struct {
		reason string
		layer  []byte
		limits Limits
		want   string
	}{
		"Bombs": {"the limit holds for all archives together", archive(t, "a/Chart.yaml", chart, "a/charts/x.tgz",
			string(bomb), "a/charts/y.tgz", string(bomb)), Limits{MaxBytes: 15_000}, ArchiveTooLarge},
		"OneBomb": {"", archive(t, "a/Chart.yaml", chart, "a/charts/x.tgz", string(bomb)),
			Limits{MaxBytes: 9_000}, ArchiveTooLarge},
		"Files": {"the limit holds for all archives together", archive(t, "a/Chart.yaml", chart, "a/charts/x.tgz",
			string(bomb), "a/charts/y.tgz", string(bomb)), Limits{MaxFiles: 6}, ArchiveTooLarge},
		"Deep": {"", nested, Limits{}, ArchiveTooLarge},
		"Link": {"a file that is missing would be missed by nobody", link, Limits{}, UnsafeArchive},
		"SubOutside": {"", archive(t, "a/Chart.yaml", chart, "a/charts/x.tgz",
			string(archive(t, "../x/Chart.yaml", chart))), Limits{}, UnsafeArchive},
		"SubTwo": {"", archive(t, "a/Chart.yaml", chart, "a/charts/x.tgz",
			string(archive(t, "x/Chart.yaml", chart, "y/a", "b"))), Limits{}, InvalidChart},
		"SubDamaged": {"", archive(t, "a/Chart.yaml", chart, "a/charts/x.tgz", string(bomb[:50])), Limits{},
			InvalidArchive},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := Load(tc.layer, tc.limits); reasonOf(err) != tc.want {
				t.Errorf("got %v, want %s: %s", err, tc.want, tc.reason)
			}
		})
	}
}

func TestLoadFolder(t *testing.T) {
	dir := t.TempDir()
	put := func(name, content string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open := func(fsys fs.FS) (*Artefact, error) { return LoadFolder(fsys, Limits{}) }
	put("Chart.yaml", "apiVersion: v2\nname: a\nversion: 1.0.0\n")
	put("templates/real.yaml", configMap("1"))
	put("templates/skipped.yaml", "{{ fail }}")
	put(".helmignore", "skipped.yaml\n/private/\n")
	put("private/secret", "x")
	put(".git/HEAD", "x")
	if err := os.Symlink("real.yaml", filepath.Join(dir, "templates", "linked.yaml")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	a, err := open(root.FS())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range a.files {
		if strings.HasPrefix(f.Path, ".git/") || strings.HasPrefix(f.Path, "private") ||
			path.Base(f.Path) == "skipped.yaml" {
			t.Errorf("%s should have been left out", f.Path)
		}
	}
	if objects, _, err := a.RenderObjects(t.Context(), Settings{}); err != nil || len(objects) != 2 {
		// RenderObjects must return two equal objects: one from the file real.yaml, and one from the symbolic link to
		// this file. Only Build merges equal objects.
		t.Errorf("got %d objects, %v", len(objects), err)
	}
	again, err := open(os.DirFS(dir))
	if err != nil || again.Digest() != a.Digest() {
		t.Errorf("the digest depends on the way: %v", err)
	}

	for name, target := range map[string]string{"Absolute": "/etc/passwd", "Up": "../../outside",
		"Through": "../templates/../../outside"} {
		t.Run(name, func(t *testing.T) {
			link := filepath.Join(dir, "templates", "bad.yaml")
			if err := os.Symlink(target, link); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = os.Remove(link) }()
			for _, fsys := range []fs.FS{root.FS(), os.DirFS(dir)} {
				if _, err := open(fsys); reasonOf(err) != UnsafeArchive {
					t.Errorf("got %v", err)
				}
			}
		})
	}
	if _, err := LoadFolder(os.DirFS(dir), Limits{MaxFiles: 2}); reasonOf(err) != ArchiveTooLarge {
		t.Errorf("too many files: %v", err)
	}
	if _, err := LoadFolder(os.DirFS(dir), Limits{MaxBytes: 20}); reasonOf(err) != ArchiveTooLarge {
		t.Errorf("too many bytes: %v", err)
	}
	if _, err := open(os.DirFS(filepath.Join(dir, "none"))); err == nil {
		t.Error("a folder that does not exist was read")
	}
}

func TestSubfolder(t *testing.T) {
	a, err := Load(archive(t, "base/kustomization.yaml", "resources: [a.yaml]\n", "base/a.yaml", configMap("1"),
		"overlays/x/kustomization.yaml", "resources: [../../base]\nnamePrefix: x-\n", "plain/b.yaml", configMap("2"),
		"plain/deep/c.yaml", object("c", "data: {}\n")), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	digests := map[string]bool{a.Digest(): true}
	for folder, want := range map[string]struct {
		kind  Kind
		names string
	}{
		"overlays/x": {Kustomization, "x-a"}, "./base/": {Kustomization, "a"}, "plain": {Manifests, "a c"},
		"plain/deep": {Manifests, "c"},
	} {
		sub, err := a.Subfolder(folder)
		if err != nil {
			t.Fatal(err)
		}
		objects, _, err := sub.RenderObjects(t.Context(), Settings{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, o := range objects {
			names = append(names, o.GetName())
		}
		if got := strings.Join(names, " "); sub.Kind() != want.kind || got != want.names {
			t.Errorf("%s: got a %s with %s", folder, sub.Kind(), got)
		}
		if digests[sub.Digest()] {
			t.Errorf("%s has the digest of another folder", folder)
		}
		digests[sub.Digest()] = true
	}
	for folder, want := range map[string]string{"../x": UnsafeArchive, "/x": UnsafeArchive, "none": InvalidArchive} {
		if _, err := a.Subfolder(folder); reasonOf(err) != want {
			t.Errorf("%s: got %v", folder, err)
		}
	}
	for _, whole := range []string{"", "."} {
		if sub, err := a.Subfolder(whole); err != nil || sub != a {
			t.Errorf("%q is not the whole: %v", whole, err)
		}
	}
}

func TestValuesForManifests(t *testing.T) {
	a, err := Load([]byte(configMap("1")), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []Settings{{Values: []byte("a: 1")}, {Set: []string{"a=1"}}} {
		if _, _, err := a.RenderObjects(t.Context(), s); reasonOf(err) != InvalidValues {
			t.Errorf("values that do nothing were accepted: %v", err)
		}
	}
	objects, _, err := a.RenderObjects(t.Context(), Settings{Namespace: "n", CreateNamespace: true, Release: "r"})
	if err != nil || len(objects) != 2 || objects[0].GetKind() != "Namespace" {
		t.Errorf("got %v, %v", objects, err)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(archive(f, "a/Chart.yaml", "apiVersion: v2\nname: a\nversion: 1.0.0\n", "a/templates/a.yaml",
		configMap("{{ .Release.Name }}")))
	f.Add(archive(f, "kustomization.yaml", "resources: [a.yaml]\nnamePrefix: x-\n", "a.yaml", configMap("1")))
	f.Add(archive(f, "a/Chart.yaml", "apiVersion: v2\nname: a\nversion: 1.0.0\n", "a/charts/b.tgz",
		string(gzipped(f, archive(f, "b/Chart.yaml", "name: b\nversion: 1.0.0\n")))))
	f.Fuzz(func(t *testing.T, layer []byte) {
		a, err := Load(layer, Limits{MaxBytes: 1 << 20, MaxFiles: 100})
		if err == nil {
			for _, file := range a.files {
				if file.Path != "" && !fs.ValidPath(file.Path) {
					t.Errorf("%q leaves the folder", file.Path)
				}
			}
			_, _, err = a.RenderObjects(t.Context(), Settings{})
		}
		if err != nil && reasonOf(err) == err.Error() {
			t.Errorf("no reason: %v", err)
		}
	})
}
