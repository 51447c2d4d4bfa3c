package klm

import (
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	ociregistry "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/playground/docs"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// TestGuide runs every command of the guide in order, with the clusters of this landscape.
func TestGuide(t *testing.T) {
	l := theLandscape(t)
	page, err := docs.Read("../../docs/guide/klm.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, c := range l.Clusters {
		if err := os.WriteFile(dir+"/"+name+".yaml", c.Kubeconfig(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := page.Run(t.Context(), docs.Shell{Dir: dir, Env: []string{
		"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "KUBECONFIG=" + fleetKubeconfig(l)}},
		0, len(page.Blocks))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", out)
}

// TestAuthorGuide runs every command of the guide for authors in order: the blocks that begin with ```sh, in one shell.
// The two registries of the guide are on loopback. The test creates the operator, its images and the keys, which the
// guide expects.
func TestAuthorGuide(t *testing.T) {
	l := theLandscape(t)
	page, err := docs.Read("../../docs/guide/author.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	outside, inside := serveImages(t), serveImages(t)
	pushImages(t, outside, "greeter-operator:0.1.0", "greeter-operator:0.2.0")
	prepareReader(t, dir)
	runtime, err := exec.Command(filepath.Join(bin, "klm"), "--kubeconfig", fleetKubeconfig(l), "runtime", "add",
		"runtime-a", "--kubeconfig-file", filepath.Join(dir, "runtime-a.yaml")).CombinedOutput()
	if err != nil {
		t.Fatalf("adding the runtime: %v\n%s", err, runtime)
	}
	t.Cleanup(func() { forgetGreeter(t, l) })

	for i, b := range page.Blocks {
		page.Blocks[i].Text = strings.Replace(b.Text, "cd greeter\n",
			"cd greeter\nmkdir bin && mv ../greeter-operator bin/ && mv ../signing.* .\n", 1)
	}
	out, err := page.Run(t.Context(), docs.Shell{Dir: dir, Replace: strings.NewReplacer("registry.inside.example.com",
		inside, "registry.example.com", outside), Env: []string{"PATH=" + dir + string(os.PathListSeparator) + bin +
		string(os.PathListSeparator) + os.Getenv("PATH"), "KUBECONFIG=" + fleetKubeconfig(l), "HOME=" + dir}},
		0, len(page.Blocks))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", out)
	for _, want := range []string{"upgrade    0.1.0 became 0.2.0 and is ready", "leftovers  nothing is left",
		inside + "/modules/greeter-operator:0.2.0@sha256:", "signed by signing.pub",
		"create   Deployment.apps kyma-system/greeter-operator"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not print %q:\n%s", want, out)
		}
	}
}

// serveImages serves a registry on loopback and returns its address.
func serveImages(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(ociregistry.New(ociregistry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// pushImages pushes images for two platforms.
func pushImages(t *testing.T, host string, images ...string) {
	t.Helper()
	for _, image := range images {
		if err := pushIndex(host + "/" + image); err != nil {
			t.Fatal(err)
		}
	}
}

// pushIndex pushes an image index with random images for two platforms.
func pushIndex(image string) error {
	tag, err := name.NewTag(image)
	if err != nil {
		return err
	}
	index, err := random.Index(1024, 2, 2)
	if err != nil {
		return err
	}
	return remote.WriteIndex(tag, index)
}

// prepareReader creates the files of a reader of the guide: keys, the operator, a program kubectl, and the kubeconfig
// of a runtime.
func prepareReader(t *testing.T, dir string) {
	t.Helper()
	if err := writeKeys(filepath.Join(dir, "signing"), "rsa"); err != nil {
		t.Fatal(err)
	}
	init := exec.Command(filepath.Join(bin, "klm"), "module", "init", "example.com/module/greeter", "--directory",
		filepath.Join(dir, "first"))
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := buildOperator(filepath.Join(dir, "first", "operator"),
		filepath.Join(dir, "greeter-operator")); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(dir, "kubectl"))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "runtime-a.yaml"), land.up.Clusters["runtime-a"].Kubeconfig(), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// kubectl replaces the program kubectl in the guide. kubectl supports only kubectl apply -f FILE -f FILE, with
// $KUBECONFIG.
func kubectl(args []string) error {
	if len(args) < 3 || args[0] != "apply" {
		return fmt.Errorf("kubectl %q: only apply -f FILE is known here", args)
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	for i := 1; i+1 < len(args); i += 2 {
		text, err := os.ReadFile(args[i+1])
		if err != nil {
			return err
		}
		objects, err := render.Parse(text)
		if err != nil {
			return err
		}
		for _, o := range objects {
			if err := c.Apply(life, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("somebody"),
				client.ForceOwnership); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetGreeter deletes the objects that the guide has created in the clusters.
func forgetGreeter(t *testing.T, l *landscape.Landscape) {
	t.Helper()
	if out, err := exec.Command(filepath.Join(bin, "klm"), "--kubeconfig", fleetKubeconfig(l), "runtime", "remove",
		"runtime-a", "--yes").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for kind, names := range map[string][]string{"ModuleReleaseMeta": {"greeter"},
		"ModuleTemplate": {"greeter-0.1.0", "greeter-0.2.0"}} {
		for _, name := range names {
			o := newObject(landscape.ControlPlane, kind+".v1beta2.operator.kyma-project.io", name)
			if err := client.IgnoreNotFound(l.Clients[landscape.ControlPlane].Delete(life, o)); err != nil {
				t.Error(err)
			}
		}
	}
}
