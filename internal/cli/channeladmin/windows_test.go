package channeladmin

import (
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// managerWith returns the Deployment of a manager with the given flags and with a ConfigMap as a volume.
func managerWith(volume string, flags ...any) client.Object {
	spec := map[string]any{"containers": []any{map[string]any{"name": "manager", "args": flags,
		"volumeMounts": []any{map[string]any{"name": "policy", "mountPath": "/etc/maintenance-policy"}}}}}
	if volume != "" {
		spec["volumes"] = []any{map[string]any{"name": "policy", "configMap": map[string]any{"name": volume}}}
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"namespace": "kcp-system", "name": "lifecycle-manager"},
		"spec":     map[string]any{"template": map[string]any{"spec": spec}}}}
}

// TestWindowsAreFound checks that klm uses the maintenance policy of the manager, and reports if klm cannot read the
// policy.
func TestWindowsAreFound(t *testing.T) {
	const every = `["Mon","Tue","Wed","Thu","Fri","Sat","Sun"]`
	policy := func(name, text string) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kcp-system"},
			Data: map[string]string{"policy.json": text}}
	}
	far := policy("far", `{"default": {"begin": "2999-03-01T00:00:00Z", "end": "2999-03-02T00:00:00Z"}}`)
	open := policy("open", `{"default": {"days": `+every+`, "begin": "00:00:00Z", "end": "00:00:00Z"}}`)
	// The clock of package fixture shows 12:00.
	ends := policy("ends", `{"default": {"days": `+every+`, "begin": "11:00:00Z", "end": "12:10:00Z"}}`)
	const plan = "plan sample regular 2.0.0"
	stages := &v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "standard", Namespace: "kcp-system"},
		Spec: v1beta2.RolloutPolicySpec{Modules: v1beta2.RolloutModules{Names: []string{"*"}},
			Stages: []v1beta2.RolloutStage{{Name: "all"}}}}
	for name, c := range map[string]struct {
		fixture.Case
		objects []client.Object
	}{
		"Flag": {fixture.Case{Reason: "the flag of the manager names it", Args: plan,
			Want: []string{"1 runtime has no maintenance window within 14d:",
				"runtime-a (stage all): its window opens at Fri 1 Mar 2999 00:00 UTC", "1 WaitingForWindow"}},
			[]client.Object{far, managerWith("", "--maintenance-policy-configmap=far")}},
		"Open": {fixture.Case{Reason: "its window is open", Args: plan,
			Want: []string{"1          0       1           -         1           0          now"}},
			[]client.Object{open, managerWith("", "--maintenance-policy-configmap", "open")}},
		"Volume": {fixture.Case{Reason: "the manager reads a file", Args: plan,
			Want: []string{"no maintenance window within 14d"}}, []client.Object{far, managerWith("far")}},
		"Least": {fixture.Case{Reason: "less than 20 minutes are left", Args: plan, Want: []string{"1 WaitingForWindow"}},
			[]client.Object{ends, managerWith("ends")}},
		"LeastFlag": {fixture.Case{Reason: "less is enough for this manager", Args: plan,
			Want: []string{"1          0       1           -         1           0          now"}},
			[]client.Object{ends, managerWith("ends", "--min-maintenance-window-size=5m")}},
		"Given": {fixture.Case{Reason: "the flag of klm wins", Args: plan + " --maintenance-policy-configmap=open",
			Want: []string{"1          0       1           -         1           0          now"}},
			[]client.Object{far, open, managerWith("far")}},
		"NoDeployment": {fixture.Case{Reason: "the manager runs elsewhere", Args: plan, Want: []string{
			"klm does not know the maintenance windows: namespace kcp-system has no Deployment lifecycle-manager",
			"--maintenance-policy-configmap names the ConfigMap", "it needs a downtime"}}, nil},
		"NoPolicy": {fixture.Case{Reason: "there is none", Args: plan, Want: []string{"neither names nor mounts a ConfigMap"}},
			[]client.Object{managerWith("")}},
		"Missing": {fixture.Case{Reason: "it was deleted", Args: plan, Want: []string{"reading ConfigMap far"}},
			[]client.Object{managerWith("far")}},
		"Broken": {fixture.Case{Reason: "it cannot be read", Args: plan, Want: []string{"ConfigMap broken-policy: "}},
			[]client.Object{managerWith("broken-policy")}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newControlPlane(t)
			s.Patch(t, "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas/runtime-a",
				`{"spec":{"skipMaintenanceWindows":false}}`)
			s.Patch(t, "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/moduletemplates/sample-2.0.0",
				`{"spec":{"requiresDowntime":true}}`)
			r := s.Object(release).DeepCopy()
			is := map[string]any{"channel": "regular", "version": "1.0.0", "target": "1.0.0", "revision": int64(1)}
			if err := unstructured.SetNestedSlice(r.Object, []any{is}, "status", "channels"); err != nil {
				t.Fatal(err)
			}
			s.Put(r)
			for _, o := range append(c.objects, stages) {
				s.Create(t, o)
			}
			c.Check(t, func(a *console.App) []*cobra.Command { return []*cobra.Command{RolloutPlanCommand(a)} },
				s.Kubeconfig)
			if len(s.Writes()) > 0 {
				t.Errorf("writes %q", s.Writes())
			}
		})
	}
}

// TestRiskWithKubernetesVersion checks that klm knows the version of Kubernetes of a runtime when klm evaluates the
// conditions of known risks.
func TestRiskWithKubernetesVersion(t *testing.T) {
	const kyma = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas/runtime-a"
	for name, c := range map[string]struct {
		version string
		fixture.Case
	}{
		"Old": {"v1.30.1", fixture.Case{Reason: "the runtime has the problem", Want: []string{"0 to move", "1 blocked",
			"KnownRisk", "has the known risk slow"}}},
		"New": {"v1.31.0", fixture.Case{Reason: "the runtime does not have the problem", Want: []string{"1 to move",
			"0 blocked"}}},
		"Unknown": {"", fixture.Case{Reason: "unknown never passes", Want: []string{"0 to move", "1 blocked",
			"may have the known risk slow", "no such attribute"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newControlPlane(t)
			put(t, s, newer, []any{map[string]any{"name": "slow", "when": "k8s.minor < 31", "message": "it is slow"}},
				"spec", "upgrade", "risks")
			put(t, s, kyma, c.version, "status", "kubernetesVersion")
			c.Args = "channel set sample regular 2.0.0 --dry-run -o wide"
			c.Check(t, Commands, s.Kubeconfig)
		})
	}
}
