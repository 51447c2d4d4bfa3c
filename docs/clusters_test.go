package docs_test

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

const kubeconfig = `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
clusters: [{name: a, cluster: {server: "https://runtime-a.example.com"}}], users: [{name: a, user: {token: abc}}]}`

// programs are fake programs that the scripts call. There are two Kymas: runtime-a, whose cluster exists, and other,
// whose cluster does not exist. If a script applies a Secret, the fake kubectl writes the Secret to a file with the
// name "applied".
var programs = map[string]string{
	"kubectl": `case "$*" in
*"get kyma"*) echo "runtime-a other" ;;
"-n fleet get secret runtime-a-kubeconfig"*) printf %s "$CONFIG" ;;
"-n fleet get secret other-kubeconfig --ignore-not-found"*) ;;
"--kubeconfig garden.yaml create --raw"*/namespaces/garden-demo/shoots/runtime-a/adminkubeconfig*)
	grep -q '"kind":"AdminKubeconfigRequest"' && echo "{\"status\":{\"kubeconfig\":\"$CONFIG\"}}" ;;
"--kubeconfig garden.yaml create --raw"*/shoots/other/adminkubeconfig*) exit 1 ;;
"apply --server-side"*) cat >> applied; echo --- >> applied ;;
*) echo "unexpected: kubectl $*" >&2; exit 1 ;;
esac`,
	"jq": `sed -n 's/.*"kubeconfig":"\([^"]*\)".*/\1/p'`,
}

// TestClusters runs the two scripts of docs/guide/clusters.md that write access Secrets. Each script must write exactly
// one Secret, and the manager must accept this Secret.
func TestClusters(t *testing.T) {
	page, err := os.ReadFile("guide/clusters.md")
	if err != nil {
		t.Fatal(err)
	}
	scripts := regexp.MustCompile("(?s)```bash\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for name, section := range map[string]string{"ClusterAPI": "-n fleet get", "Gardener": "adminkubeconfig"} {
		t.Run(name, func(t *testing.T) {
			script := ""
			for _, s := range scripts {
				if strings.Contains(s[1], section) {
					script = s[1]
				}
			}
			if script == "" {
				t.Fatalf("the page has no script with %q", section)
			}
			s := run(t, script)
			if s.Namespace != "kcp-system" || s.Labels[v1beta2.LabelKymaName] != "runtime-a" {
				t.Errorf("the script writes Secret %s/%s with labels %v", s.Namespace, s.Name, s.Labels)
			}
			if _, err := runtimes.ParseKubeconfig(s.Data[v1beta2.AccessSecretKey]); err != nil {
				t.Errorf("the manager refuses the kubeconfig: %v", err)
			}
		})
	}
}

// run runs a script with the fake programs, and returns the Secret that the script applies.
func run(t *testing.T, script string) corev1.Secret {
	t.Helper()
	folder := t.TempDir()
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	shell := exec.CommandContext(t.Context(), "bash", "-c", "set -eu\n"+script)
	shell.Dir = folder
	shell.Env = append(os.Environ(), "PATH="+folder+":/usr/bin:/bin",
		"CONFIG="+base64.StdEncoding.EncodeToString([]byte(kubeconfig)))
	if out, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	applied, err := os.ReadFile(filepath.Join(folder, "applied"))
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(strings.TrimSuffix(string(applied), "---\n"), "---\n")
	if len(documents) != 1 {
		t.Fatalf("the script applies %d objects:\n%s", len(documents), applied)
	}
	var secret corev1.Secret
	if err := yaml.UnmarshalStrict([]byte(documents[0]), &secret); err != nil {
		t.Fatalf("%v:\n%s", err, documents[0])
	}
	return secret
}
