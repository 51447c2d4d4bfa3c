package installer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// formerDeployment is an input file for klm migrate check: a Deployment with flags of every kind. The file also has a
// second object and a second container, which the command must ignore.
const formerDeployment = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: klm}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: klm-controller-manager, namespace: kcp-system}
spec:
  template:
    spec:
      containers:
      - name: proxy
        args: [--v=2]
      - name: manager
        command: [/manager]
        args:
        - --leader-elect
        - -log-level=1
        - --oci-registry-host
        - registry.example.com
        - --modules-repository-subpath=modules
        - --max-concurrent-kyma-reconciles=40
        - --kyma-requeue-success-interval=5m
        - --skr-watcher-image-tag=2.1.0
        - --cert-management=cert.gardener.cloud/v1alpha1
        - --min-maintenance-window-size=soon
        - --somebody-elses=1
        env:
        - {name: GODEBUG, value: fips140=only}
        - {name: KLM_EXPERIMENTAL_KNOWN_MANAGERS, value: x}
        - {name: POD_NAME, value: y}
`

func TestCheckMigration(t *testing.T) {
	container, err := formerManager([]byte(formerDeployment))
	if err != nil {
		t.Fatal(err)
	}
	r := checkMigration(container)
	want := map[string]string{
		"--leader-elect": flagKept, "--log-level": flagCheck, "--oci-registry-host": flagKept,
		"--modules-repository-subpath": flagKept, "--max-concurrent-kyma-reconciles": flagKept,
		"--kyma-requeue-success-interval": flagRemoved, "--skr-watcher-image-tag": flagCheck,
		"--cert-management": flagInvalid, "--min-maintenance-window-size": flagInvalid, "--somebody-elses": flagRemoved,
		"$GODEBUG": flagCheck, "$KLM_EXPERIMENTAL_KNOWN_MANAGERS": flagRemoved,
	}
	got := map[string]string{}
	for _, f := range r.Flags {
		got[f.Name] = f.Result
		if f.Result != flagKept && f.Reason == "" {
			t.Errorf("%s is %s without a reason", f.Name, f.Result)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results differ (-want +got):\n%s", diff)
	}
	const values = `extraArgs:
- --leader-elect
- --max-concurrent-kyma-reconciles=40
registry:
  host: registry.example.com
  subpath: modules
`
	if r.Values != values || r.Invalid != 2 {
		t.Errorf("got %d invalid values and\n%s", r.Invalid, r.Values)
	}
}

// TestMigrateCommand checks that klm migrate check needs no cluster.
func TestMigrateCommand(t *testing.T) {
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "deployment.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	const none = "/no/kubeconfig"
	valid := strings.NewReplacer("        - --cert-management=cert.gardener.cloud/v1alpha1\n", "",
		"=soon", "=10m").Replace(formerDeployment)
	for _, c := range []fixture.Case{
		{
			Reason: "invalid values are counted",
			Args:   "migrate check " + file(formerDeployment),
			Code:   console.ExitNotReady,
			Want:   []string{"--cert-management", "invalid", "2 values are not valid for this manager"},
		},
		{
			Reason: "a person decides about the rest",
			Args:   "migrate check " + file(valid),
			Want:   []string{"--skr-watcher-image-tag", "check", "host: registry.example.com", "correct its name"},
		},
		{
			Reason: "another file",
			Args:   "migrate check " + file("kind: Deployment\n"),
			Code:   console.ExitUsage,
			Want:   []string{"it has no Deployment with a container that has flags"},
		},
		{
			Reason: "no YAML",
			Args:   "migrate check " + file("a: b: c"),
			Code:   console.ExitUsage,
			Want:   []string{"reading a Deployment"},
		},
		{
			Reason: "no file",
			Args:   "migrate check /no/file",
			Code:   console.ExitUsage,
			Want:   []string{"no such file"},
		},
	} {
		c.Check(t, Commands, none)
	}
}
