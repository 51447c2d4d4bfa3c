package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/playground/docs"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// guides is the folder of the pages.
const guides = "../../docs/guide/"

// aids are shell functions that replace programs in the commands of the guides. helm is not installed, so klm checks
// that the chart accepts the values. kubectl apply -k deploy becomes a dry run at the API server, because no registry
// has the image that the kustomize base names. The function for klm adds --yes, because nobody answers the questions of
// klm.
const aids = `
helm() { command klm install --print "${@:7}" > /dev/null; }
klm() { case "$1" in install|restore|uninstall) set -- "$@" --yes ;; esac; command klm "$@"; }
kubectl() { case "$*" in *"-k deploy/"*) set -- "$@" --dry-run=server --force-conflicts ;; esac; command kubectl "$@"; }
`

// followInstall follows install.md, but for its last block, which removes the manager.
func followInstall(t *testing.T, l *landscape.Landscape) {
	page := read(t, "install.md")
	followGuide(t, l, page, 0, len(page.Blocks)-1)
}

// followGuides runs the commands of upgrade.md and registry.md, which need an installed manager, and then those at the
// end of install.md.
func followGuides(t *testing.T, l *landscape.Landscape) {
	for _, name := range []string{"upgrade.md", "registry.md"} {
		page := read(t, name)
		followGuide(t, l, page, 0, len(page.Blocks))
	}
	awaitModule(t, l.Clients[landscape.ControlPlane], l.Namespace(), "runtime-a")
	page := read(t, "recovery.md")
	followGuide(t, l, page, 0, len(page.Blocks))
	page = read(t, "install.md")
	followGuide(t, l, page, len(page.Blocks)-1, len(page.Blocks))
	checkUninstalled(t, l)
	runStep(t, l, "kubectl -n kcp-system delete secret lifecycle-manager-registry") // of registry.md
}

// read reads a page of the guides.
func read(t *testing.T, page string) docs.Page {
	t.Helper()
	p, err := docs.Read(guides + page)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// followGuide runs the blocks of a page between two blocks, as a reader does. The working folder is like a clone, and
// has the kubeconfig of runtime-a and values of an installation. The address of the registry in the page is replaced by
// that of the landscape's registry.
func followGuide(t *testing.T, l *landscape.Landscape, page docs.Page, from, to int) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(root, "deploy"), filepath.Join(dir, "deploy")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "runtime-a.kubeconfig"), l.Clusters["runtime-a"].Kubeconfig(),
		0o600); err != nil {
		t.Fatal(err)
	}
	values := "image: {repository: " + landscape.ManagerImage + ", tag: 0.1.0}\n" +
		"registry: {host: " + l.RegistryHost + "}\n"
	if err := os.WriteFile(filepath.Join(dir, "values.yaml"), []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := page.Run(t.Context(), docs.Shell{Dir: dir, Before: docs.DryRunMakeFunction(root) + aids,
		Env: []string{"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "PASSWORD=secret",
			"KUBECONFIG=" + l.KubeconfigPath(landscape.ControlPlane)},
		Replace: strings.NewReplacer("registry.host=registry.example.com/modules", "registry.host="+l.RegistryHost,
			"registry.host=registry.example.com", "registry.host="+l.RegistryHost)}, from, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", out)
}
