package supportdump

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// TestArchive checks the content of the archive: all objects, no secret data, and a list of the objects that could not
// be read.
func TestArchive(t *testing.T) {
	manifest := fixture.Manifest("1.0.0", "1.0.0")
	manifest.Namespace = "kcp-system"
	other := fixture.Kyma(v1beta2.StateReady, v1beta2.Module{Name: "sample"}, v1beta2.ModuleStatus{Name: "sample"})
	other.Name = "runtime-b"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "runtime-a-access", Namespace: "kcp-system",
		Labels: map[string]string{v1beta2.LabelKymaName: "runtime-a"}},
		Data: map[string][]byte{"config": []byte("hunter2")}}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Namespace: "kcp-system"},
		Data: map[string]string{"password": "hunter2", "color": "blue"}}
	s := fixture.NewServer(t, fixture.Kyma(v1beta2.StateReady, v1beta2.Module{Name: "sample"},
		v1beta2.ModuleStatus{Name: "sample"}), other, &manifest, secret, settings)
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/pods") {
			return false
		}
		fixture.Fail(w, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "",
			errors.New(`User "kim" cannot list resource "pods" in API group "" in the namespace "kcp-system"`)))
		return true
	}
	commands := func(a *console.App) []*cobra.Command { return []*cobra.Command{Command(a)} }
	dir := t.TempDir()
	cases := map[string]struct {
		fixture.Case
		has, hasNot []string // parts of file: text
	}{
		"All": {
			fixture.Case{
				Reason: "the whole namespace",
				Args:   "support-dump --file " + dir + "/all.tar.gz",
				Want:   []string{"all.tar.gz has 5 objects.", "Not in it: pods; see problems.txt in the archive."},
			},
			[]string{"kymas.yaml: name: runtime-a", "kymas.yaml: name: runtime-b",
				"manifests.yaml: name: runtime-a-sample-1", "secrets.yaml: name: runtime-a-access",
				"configmaps.yaml: color: blue", "configmaps.yaml: password: (redacted)",
				"problems.txt: pods: listing: permission missing: kim may not list pods",
				"about.txt: control plane: true", "about.txt: server version: v1.34.0"},
			[]string{"hunter2"},
		},
		"One": {
			fixture.Case{
				Reason: "one runtime",
				Args:   "support-dump --runtime runtime-a --file " + dir + "/one.tar.gz",
				Want:   []string{"one.tar.gz has 4 objects."},
			},
			[]string{"kymas.yaml: name: runtime-a"}, []string{"runtime-b"},
		},
		"Unknown": {fixture.Case{Reason: "the error suggests a runtime",
			Args: "support-dump --runtime runtime-x --file " + dir + "/x.tar.gz", Code: console.ExitNotFound,
			Want: []string{"did you mean runtime-a or runtime-b?"}}, nil, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.Check(t, commands, s.Kubeconfig)
			file := strings.Fields(c.Args)[len(strings.Fields(c.Args))-1]
			if c.Code != 0 {
				if _, err := os.Stat(file); err == nil {
					t.Error("a file was written")
				}
				return
			}
			files := read(t, file)
			for _, want := range c.has {
				name, text, _ := strings.Cut(want, ": ")
				if !strings.Contains(files[name], text) {
					t.Errorf("%s: %s without %q:\n%s", c.Reason, name, text, files[name])
				}
			}
			for _, secret := range c.hasNot {
				for name, text := range files {
					if strings.Contains(text, secret) {
						t.Errorf("%s: %s has %q", c.Reason, name, secret)
					}
				}
			}
		})
	}
	fixture.Case{Reason: "a file that exists is not overwritten", Args: "support-dump --file " + filepath.Join(
		dir, "all.tar.gz"), Code: console.ExitUsage, Want: []string{"exists already: choose another name"}}.Check(
		t, commands, s.Kubeconfig)
}

// read returns the files in an archive.
func read(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(zip); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(header.Name, "klm-support/")] = string(data)
	}
}
