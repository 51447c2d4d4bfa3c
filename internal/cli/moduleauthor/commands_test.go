package moduleauthor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/internal/author/storage"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// TestAuthor checks the commands from the skeleton of a module to a signed version in an archive, and their errors.
func TestAuthor(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	private, public := keys(t)
	const config = "name: example.com/module/widget\nversion: 1.0.0\nmanifest: %s\nrepository: https://example.com\n" +
		"documentation: https://example.com\nteam: a/b\nicons: [{name: a, link: https://example.com/a.svg}]\n"
	many := ""
	for _, name := range []string{"a", "c", "d"} {
		many += fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {a: 1}\n---\n", name)
	}
	many += "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata:\n"
	for i := range 20 {
		many += fmt.Sprintf("  k%02d: 1\n", i)
	}
	for file, data := range map[string][]byte{"key.pem": private, "key.pub": public, "policy.yaml": []byte("keys: {"),
		"bad.yaml":  []byte("nam3: example.com/module/greeter\nversion: 0.1.0\n"),
		"many.yaml": fmt.Appendf(nil, config, "many-manifest.yaml"), "many-manifest.yaml": []byte(many),
		"chart/module-config.yaml":      fmt.Appendf(nil, config, "widget"),
		"chart/widget/Chart.yaml":       []byte("apiVersion: v2\nname: widget\nversion: 1.0.0\n"),
		"chart/widget/templates/a.yaml": []byte("a: [ # {{ if true }}yes{{ end }}\n")} {
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const commit = " --commit 0123456789012345678901234567890123456789"
	for _, c := range []fixture.Case{
		{
			Reason: "a skeleton",
			Args:   "init example.com/module/greeter --directory greeter",
			Want:   []string{"greeter/module-config.yaml\n"},
		},
		{
			Reason: "existing files are kept",
			Args:   "init example.com/module/greeter --directory greeter",
			Want:   []string{"greeter/module-config.yaml exists already, and is not changed"},
		},
		{
			Reason: "a name that is not one of a component",
			Args:   "init Greeter",
			Code:   console.ExitFailed,
			Want:   []string{"capital letters"},
		},
		{
			Reason: "warnings do not fail; here there is no Git repository",
			Args:   "lint greeter/module-config.yaml",
			Want:   []string{"example.com/module/greeter:0.1.0: 0 errors, 1 warning"},
		},
		{
			Reason: "the manifest as it is packed",
			Args:   "render greeter/module-config.yaml",
			Want:   []string{"kind: CustomResourceDefinition"},
		},
		{
			Reason: "only a chart has templates",
			Args:   "render greeter/module-config.yaml --template a/templates/b.yaml",
			Code:   console.ExitUsage,
			Want:   []string{"is no chart"},
		},
		{
			Reason: "the output of a template, even if it is not valid",
			Args:   "render chart/module-config.yaml --template widget/templates/a.yaml",
			Want:   []string{"a: [ # yes\n"},
		},
		{
			Reason: "the templates are named",
			Args:   "render chart/module-config.yaml --template widget/templates/b.yaml",
			Code:   console.ExitNotFound,
			Want:   []string{"it has widget/templates/a.yaml"},
		},
		{
			Reason: "the same finding about many objects is one line, and a long list is folded",
			Args:   "lint many.yaml",
			Code:   console.ExitFailed,
			Want: []string{"ConfigMap a and 2 more objects: data[a] is the number 1",
				"error    ConfigMap b: data[k17] is the number 1", "1 more finding: klm module lint --all"},
		},
		{
			Reason: "the whole list",
			Args:   "lint many.yaml --all",
			Code:   console.ExitFailed,
			Want:   []string{"ConfigMap d: data[a] is the number 1", "ConfigMap b: data[k19] is the number 1"},
		},
		{
			Reason: "a file that does not exist",
			Args:   "lint none.yaml",
			Code:   console.ExitFailed,
			Want:   []string{"none.yaml"},
		},
		{
			Reason: "all problems of a module-config",
			Args:   "build bad.yaml",
			Code:   console.ExitFailed,
			Want:   []string{`unknown key "nam3"`},
		},
		{
			Reason: "an archive and a ModuleTemplate",
			Args:   "build greeter/module-config.yaml --archive a.ctf" + commit,
			Want:   []string{"example.com/module/greeter:0.1.0 is in a.ctf, its ModuleTemplate in template.yaml"},
		},
		{
			Reason: "another archive",
			Args:   "build greeter/module-config.yaml --archive b.ctf --template b.yaml -o name" + commit,
			Want:   []string{"example.com/module/greeter:0.1.0\n"},
		},
		{
			Reason: "the same version before",
			Args:   "lint greeter/module-config.yaml --previous a.ctf",
			Code:   console.ExitFailed,
			Want:   []string{"after 0.1.0"},
		},
		{
			Reason: "an archive that does not exist",
			Args:   "lint greeter/module-config.yaml --previous none.ctf",
			Code:   console.ExitNotFound,
			Want:   []string{"none.ctf"},
		},
		{
			Reason: "images are optional",
			Args:   "mirror --images=false a.ctf copy.ctf",
			Want:   []string{"example.com/module/greeter:0.1.0 is copied: "},
		},
		{
			Reason: "what exists is not copied again",
			Args:   "mirror --images=false a.ctf copy.ctf",
			Want:   []string{"example.com/module/greeter:0.1.0 existed already: "},
		},
		{
			Reason: "components keep their names",
			Args:   "mirror --images=false a.ctf copy.ctf//example.com/module/other",
			Code:   console.ExitUsage,
			Want:   []string{"the target must not name a component"},
		},
		{
			Reason: "push is for registries",
			Args:   "push a.ctf copy.ctf",
			Code:   console.ExitUsage,
			Want:   []string{"copy.ctf is not a registry: klm module mirror copies between archives"},
		},
		{
			Reason: "pull is from registries",
			Args:   "pull a.ctf copy.ctf",
			Code:   console.ExitUsage,
			Want:   []string{"a.ctf is not a registry"},
		},
		{Reason: "a key is required", Args: "sign a.ctf", Code: console.ExitUsage, Want: []string{"--key is required"}},
		{
			Reason: "a kind that does not exist",
			Args:   "sign a.ctf --key key.pem --kind pgp",
			Code:   console.ExitUsage,
			Want:   []string{`--kind: "pgp" is neither ocm nor cosign`},
		},
		{
			Reason: "a public key does not sign",
			Args:   "sign a.ctf --key key.pub",
			Code:   console.ExitUsage,
			Want:   []string{"--key: "},
		},
		{
			Reason: "no signature yet",
			Args:   "verify a.ctf --key key.pub",
			Code:   console.ExitFailed,
			Want:   []string{"it has no signature"},
		},
		{
			Reason: "signatures are not verified without a key",
			Args:   "verify a.ctf",
			Want:   []string{"is complete; signatures were not verified: sha256:"},
		},
		{
			Reason: "the first push would change the digest",
			Args:   "sign a.ctf --key key.pem",
			Code:   console.ExitFailed,
			Want:   []string{"build it with --registry"},
		},
		{
			Reason: "for a registry",
			Args: "build greeter/module-config.yaml --archive signed.ctf --template c.yaml --registry " +
				"registry.example.com" + commit,
			Want: []string{"is in signed.ctf"},
		},
		{
			Reason: "cosign",
			Args:   "sign signed.ctf --key key.pem",
			Want:   []string{"example.com/module/greeter:0.1.0 is signed (cosign): sha256:"},
		},
		{
			Reason: "by this key",
			Args:   "verify signed.ctf --key key.pub",
			Want:   []string{"is complete, and signed by key.pub (cosign): sha256:"},
		},
		{
			Reason: "keys or a policy",
			Args:   "verify a.ctf --key key.pub --trust-policy policy.yaml",
			Code:   console.ExitUsage,
			Want:   []string{"--key and --trust-policy exclude each other"},
		},
		{
			Reason: "a policy that cannot be decoded",
			Args:   "verify a.ctf --trust-policy policy.yaml",
			Code:   console.ExitUsage,
			Want:   []string{"--trust-policy: "},
		},
		{
			Reason: "images are for the local cluster",
			Args:   "test greeter/module-config.yaml --image a=b --kubeconfig none",
			Code:   console.ExitUsage,
			Want:   []string{"--image is for the cluster that is started here"},
		},
	} {
		c.Check(t, Commands, "")
	}
	var first, second struct{ Digest string }
	for file, into := range map[string]any{"a": &first, "b": &second} {
		r := fixture.Run(t, Commands, "", "", strings.Fields(
			"build greeter/module-config.yaml -o json --archive "+file+"2.ctf --template c.yaml"+commit)...)
		if err := json.Unmarshal([]byte(r.Out), into); err != nil {
			t.Fatal(err)
		}
	}
	if first.Digest == "" || first.Digest != second.Digest {
		t.Errorf("digests %q and %q of the same input", first.Digest, second.Digest)
	}
}

// keys returns a private and a public key in PEM.
func keys(t *testing.T) (private, public []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	open, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
		pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: open})
}

// TestOtherCluster checks that klm module test refuses a control plane and a runtime.
func TestOtherCluster(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	fixture.Case{Reason: "a module", Args: "init example.com/module/greeter",
		Want: []string{"module-config.yaml"}}.Check(t, Commands, "")
	s := fixture.NewServer(t)
	fixture.Case{Reason: "a control plane", Args: "test", Code: console.ExitCluster,
		Want: []string{"is a control plane or a runtime, where modules must not be tested"}}.Check(
		t, Commands, s.Kubeconfig)
	fixture.Case{Reason: "a program that does not exist", Args: "test --playground " + filepath.Join(dir, "none"),
		Code: console.ExitUsage, Want: []string{"--playground: "}}.Check(t, Commands, "")
}

// TestCopyReport checks the report: copied artefacts, existing artefacts, and objects that still use the old names of
// images.
func TestCopyReport(t *testing.T) {
	r := copyReport{To: "registry.example.com", Versions: []storage.Copied{
		{Name: "example.com/module/a", Version: "1.0.0", Digest: "sha256:1", New: true, Signatures: 1, Was: "sha256:0",
			Images: []storage.CopiedImage{{Image: "old/operator:1", At: "registry.example.com/operator:1", New: true},
				{Image: "old/helper:1", At: "registry.example.com/helper:1"}},
			OldNames: []storage.OldName{{Object: "Deployment a", Image: "old/operator:1",
				At: "registry.example.com/operator:1"}, {Object: "ConfigMap b", Image: "else/tool:1"}}},
		{Name: "example.com/module/b", Version: "2.0.0", Digest: "sha256:2", Signatures: 2},
	}}
	p := &console.Page{}
	r.Show(p)
	want := `example.com/module/a:1.0.0 is copied: registry.example.com@sha256:1
  with 1 artefact of cosign
  image old/operator:1 is copied: registry.example.com/operator:1
  image old/helper:1 existed already: registry.example.com/helper:1
  its descriptor now names the location of it and its images; its digest was sha256:0 before
  installed objects use these images by their old names: configure a registry mirror in the container runtimes of the clusters
    Deployment a: old/operator:1, which is copied to registry.example.com/operator:1
    ConfigMap b: else/tool:1, which is not a resource of the component and was not copied
example.com/module/b:2.0.0 existed already: registry.example.com@sha256:2
  with 2 artefacts of cosign
`
	if p.String() != want {
		t.Errorf("got\n%s\nwant\n%s", p, want)
	}
}
