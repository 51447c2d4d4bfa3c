package deploy

import (
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
	"github.com/kyma-fleet/lifecycle-manager/playground/program"
	"github.com/kyma-fleet/lifecycle-manager/playground/sample"
)

// image is the image of the manager in all tests.
const image = landscape.ManagerImage + ":0.1.0"

// bin is the folder with the programs under test. TestMain sets bin.
var bin string

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard()) // of our own clients
	os.Exit(run(m))
}

// run builds the programs and runs the tests.
func run(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "deploy-"); err != nil {
		fmt.Fprintln(os.Stderr, "making a folder for programs:", err)
		return 1
	}
	defer os.RemoveAll(bin) //nolint:errcheck // in the folder for temporary files
	if err := program.Build("../..", bin, program.KLM, program.Manager, program.Agent, program.Operator,
		program.Kubectl); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// startLandscape starts a landscape without a manager.
func startLandscape(t *testing.T, runtimes ...string) *landscape.Landscape {
	t.Helper()
	l, err := landscape.Up(t.Context(), landscape.Options{Dir: filepath.Join(bin, t.Name()), Bin: bin,
		Runtimes: runtimes, Deployed: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			logState(t, l)
		}
		if err := l.CloseAndRemoveDir(); err != nil {
			t.Errorf("stopping the landscape: %v", err)
		}
	})
	return l
}

// logState logs the state of the clusters after a failed test.
func logState(t *testing.T, l *landscape.Landscape) {
	logs, err := filepath.Glob(filepath.Join(l.Dir, "data", "logs", "*", "*"))
	if err != nil {
		t.Error(err)
	}
	for _, file := range logs {
		if data, err := os.ReadFile(file); err == nil && strings.Contains(file, "lifecycle-manager") {
			t.Logf("%s ends with:\n%s", filepath.Base(file), data[max(0, len(data)-3000):])
		}
	}
}

// runKlm runs klm with a kubeconfig, and returns its output and its exit code.
func runKlm(t *testing.T, kubeconfig string, args ...string) (string, int) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(bin, "klm"), append(args, "--kubeconfig="+kubeconfig)...)
	out, err := command.CombinedOutput()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), e.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out), 0
}

// install runs klm install, which has to succeed.
func install(t *testing.T, l *landscape.Landscape, args ...string) {
	t.Helper()
	args = append([]string{"install", "--yes", "--image=" + image, "--timeout=15m",
		"--set=registry.host=" + l.RegistryHost}, args...)
	if out, code := runKlm(t, l.KubeconfigPath(landscape.ControlPlane), args...); code != 0 ||
		!strings.Contains(out, "is ready") {
		t.Fatalf("klm %v ended with %d and says:\n%s", args, code, out)
	}
}

// await waits until the function look() returns true. The failure message contains the text of the last call of look().
func await(t *testing.T, what string, look func(context.Context) (bool, string)) {
	t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for limit := time.Now().Add(15 * time.Minute); ; {
		ok, seen := look(t.Context())
		if ok {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("waiting for %s; seen last: %s", what, seen)
		}
		<-ticker.C
	}
}

// awaitModule waits until the sample module of a Kyma is ready.
func awaitModule(t *testing.T, c client.Client, namespace, name string) {
	t.Helper()
	await(t, "module sample of "+name, func(ctx context.Context) (bool, string) {
		k := &v1beta2.Kyma{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, k); err != nil {
			return false, err.Error()
		}
		ok := k.Status.State == v1beta2.StateReady && len(k.Status.Modules) == 1 &&
			k.Status.Modules[0].State == v1beta2.StateReady
		return ok, fmt.Sprintf("%s %+v", k.Status.State, k.Status.Modules)
	})
}

// publish publishes the sample module in the control plane.
func publish(t *testing.T, l *landscape.Landscape) {
	t.Helper()
	versions := sample.Versions()
	for _, v := range versions {
		err := l.PushAndCreateModuleTemplate(t.Context(), landscape.Module{
			Name: sample.Module, Version: v.Version, Component: sample.Component, Tar: true,
			Manifest: v.Manifest, DefaultCR: v.DefaultCR,
			Manager: &v1beta2.Manager{Group: "apps", Version: "v1", Kind: "Deployment",
				Namespace: sample.Namespace, Name: sample.Operator},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.SetChannels(t.Context(), sample.Module, sample.Component,
		map[string]string{"regular": versions[0].Version}); err != nil {
		t.Fatal(err)
	}
}

// enable registers a runtime, enables the sample module there, and waits until the module is ready.
func enable(t *testing.T, l *landscape.Landscape, name string) {
	t.Helper()
	if err := l.Register(t.Context(), name, "regular"); err != nil {
		t.Fatal(err)
	}
	request(t, l, name)
}

// request enables the module in a registered runtime, and waits until it is ready.
func request(t *testing.T, l *landscape.Landscape, name string) {
	t.Helper()
	await(t, "the Kyma in "+name, func(ctx context.Context) (bool, string) {
		err := l.PatchDesiredKymaSpec(ctx, name,
			func(s *v1beta2.KymaSpec) { s.Modules = []v1beta2.Module{{Name: sample.Module, Managed: new(true)}} })
		return err == nil, fmt.Sprint(err)
	})
	awaitModule(t, l.Clients[landscape.ControlPlane], l.Namespace(), name)
}

// TestDeploy installs the manager with klm, then with kustomize, and then with the in-cluster flavour on another
// cluster.
func TestDeploy(t *testing.T) {
	l := startLandscape(t, "runtime-a", "runtime-b")
	kcp := l.Clients[landscape.ControlPlane]
	t.Run("Refused", func(t *testing.T) { testRefused(t, l) })
	if t.Failed() {
		return
	}
	t.Run("Chart", func(t *testing.T) {
		followInstall(t, l)
		publish(t, l)
		request(t, l, "runtime-a") // the page has registered it
	})
	t.Run("Approvals", func(t *testing.T) { testApprovals(t, l) })
	t.Run("Emergencies", func(t *testing.T) { testEmergencies(t, l) })
	// The upgrade adds a second replica, shards, and the conversion webhook behind its Service.
	t.Run("Upgrade", func(t *testing.T) {
		install(t, l, "--set=replicas=2,shards=64,webhooks.enabled=true")
		old := &unstructured.Unstructured{}
		old.SetAPIVersion("operator.kyma-project.io/v1alpha1")
		old.SetKind("Kyma")
		await(t, "conversions", func(ctx context.Context) (bool, string) {
			err := kcp.Get(ctx, client.ObjectKey{Namespace: l.Namespace(), Name: "runtime-a"}, old)
			return err == nil, fmt.Sprint(err)
		})
		awaitModule(t, kcp, l.Namespace(), "runtime-a")
		// klm keeps the values of the previous installation, so v1alpha1 is still served.
		out, code := runKlm(t, l.KubeconfigPath(landscape.ControlPlane), "install", "--dry-run")
		if code != 0 || !strings.Contains(out, "nothing would change") ||
			!strings.Contains(out, "keep     value shards: 64") {
			t.Errorf("what was just installed would change, %d:\n%s", code, out)
		}
		if out, code := runKlm(t, l.KubeconfigPath(landscape.ControlPlane), "install"); code != 0 ||
			!strings.Contains(out, "is ready") { // nothing changes, so no confirmation is needed
			t.Errorf("the same installation ended with %d:\n%s", code, out)
		}
	})
	t.Run("Asked", func(t *testing.T) { testConfirmation(t, l) })
	t.Run("Less", func(t *testing.T) { testSmallerInstallation(t, l) })
	t.Run("Guides", func(t *testing.T) { followGuides(t, l) })
	// The cluster is empty at first. Without an inventory, klm uninstall must find the objects that kustomize has
	// installed.
	t.Run("Kustomize", func(t *testing.T) {
		createRegistrySecret(t, l)
		runStep(t, l, "kubectl apply --server-side --force-conflicts -k "+writeOverlay(t))
		enable(t, l, "runtime-b")
		awaitModule(t, kcp, l.Namespace(), "runtime-a")
		for _, args := range [][]string{{"uninstall", "--yes"}, {"install", "--image=" + image}} {
			runStep(t, l, "kubectl -n kcp-system annotate deployment lifecycle-manager meta.helm.sh/release-name=klm "+
				"--overwrite")
			if out, code := runKlm(t, l.KubeconfigPath(landscape.ControlPlane), args...); code != 1 ||
				!strings.Contains(out, "was installed by Helm") {
				t.Errorf("klm %v of a release of Helm ends with %d and says:\n%s", args, code, out)
			}
		}
		runStep(t, l, "kubectl -n kcp-system annotate deployment lifecycle-manager meta.helm.sh/release-name-")
		uninstall(t, l)
	})
	t.Run("InCluster", func(t *testing.T) { testInCluster(t) })
}

// testApprovals checks the admission policy for approvals and resumptions: they must have the name of the user, and the
// user must have the verb approve.
func testApprovals(t *testing.T, l *landscape.Landscape) {
	kcp := l.Clients[landscape.ControlPlane]
	rule := func(verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{v1beta2.Group}, Resources: []string{"modulerollouts"},
			Verbs: verbs}
	}
	as := func(user string, rules ...rbacv1.PolicyRule) client.Client { return asUser(t, l, user, rules...) }
	usual := rule("get", "create", "patch")
	editor, approver := as("editor", usual), as("approver", usual, rule("approve"))
	restorer := as("restorer", usual, rule("override"))
	rollout := func(by string) *v1beta2.ModuleRollout {
		r := &v1beta2.ModuleRollout{ObjectMeta: metav1.ObjectMeta{Name: "mod-regular-r9", Namespace: l.Namespace()},
			Spec: v1beta2.ModuleRolloutSpec{Module: "mod", Channel: "regular", From: "1.0.0", To: "2.0.0", Revision: 9,
				Lineage: "mod", State: v1beta2.RolloutPaused}}
		if by != "" {
			r.Spec.Approvals = []v1beta2.RolloutApproval{{Stage: "own", By: by, At: metav1.Now(), Plan: "sha256:1"}}
		}
		return r
	}
	await(t, "the policy to be in force", func(ctx context.Context) (bool, string) {
		err := editor.Create(ctx, rollout("editor"), client.DryRunAll)
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "the verb approve"), fmt.Sprint(err)
	})
	if err := restorer.Create(t.Context(), rollout("somebody"), client.DryRunAll); err != nil {
		t.Errorf("a rollout cannot be restored: %v", err)
	}
	if err := editor.Create(t.Context(), rollout("")); err != nil {
		t.Fatalf("a rollout without approvals is refused: %v", err)
	}
	cases := map[string]struct {
		reason string
		client client.Client
		change string
		want   string
	}{
		"Approves": {"it is their name, and they have the verb", approver,
			`{"approvals":[{"stage":"own","by":"approver","at":"2026-01-01T00:00:00Z","plan":"p"}]}`, ""},
		"Other": {"another name", approver,
			`{"approvals":[{"stage":"own","by":"editor","at":"2026-01-01T00:00:00Z","plan":"p"}]}`, "must have the name"},
		"NoVerb": {"the right to update is not enough", editor,
			`{"approvals":[{"stage":"own","by":"editor","at":"2026-01-01T00:00:00Z","plan":"p"}]}`,
			"the verb approve"},
		"Resumes":  {"likewise", approver, `{"resumptions":[{"by":"approver","reason":"r"}]}`, ""},
		"Nameless": {"nobody can be asked", approver, `{"resumptions":[{"reason":"r"}]}`, "must have the name"},
		"NoResume": {"a halt stays without the verb", editor, `{"resumptions":[{"by":"editor","reason":"r"}]}`,
			"the verb approve"},
		"Aborts": {"nobody is updated by it", editor, `{"state":"Aborted"}`, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := c.client.Patch(t.Context(), rollout(""), client.RawPatch(types.MergePatchType,
				[]byte(`{"spec":`+c.change+`}`)), client.DryRunAll)
			if c.want == "" && err != nil {
				t.Errorf("%s: refused: %v", c.reason, err)
			}
			if c.want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: %v, want %q", c.reason, err, c.want)
			}
		})
	}
	if err := kcp.Delete(t.Context(), rollout("")); err != nil {
		t.Fatal(err)
	}
}

// testEmergencies checks the admission policy for emergencies: a user who declares one must have the verb override.
func testEmergencies(t *testing.T, l *landscape.Landscape) {
	kcp := l.Clients[landscape.ControlPlane]
	rule := func(resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{v1beta2.Group}, Resources: []string{resource}, Verbs: verbs}
	}
	releases := rule("modulereleasemetas", "get", "create", "patch")
	releaser := asUser(t, l, "releaser", releases)
	overrider := asUser(t, l, "overrider", releases, rule("modulerollouts", "override"))
	release := func(urgency string) *v1beta2.ModuleReleaseMeta {
		r := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Name: "urgent", Namespace: l.Namespace()},
			Spec: v1beta2.ModuleReleaseMetaSpec{ModuleName: "urgent", Channels: []v1beta2.ChannelVersion{{
				Channel: "regular", Version: "1.0.0"}}}}
		if urgency != "" {
			r.Annotations = map[string]string{v1beta2.AnnotationUrgency: urgency}
		}
		return r
	}
	const other, line = "fast 1.1.0 Emergency: a leak", "regular 2.0.0 Emergency: it fails"
	await(t, "the policy to be in force", func(ctx context.Context) (bool, string) {
		err := releaser.Create(ctx, release(line), client.DryRunAll)
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "the verb override"), fmt.Sprint(err)
	})
	if err := overrider.Create(t.Context(), release(other)); err != nil {
		t.Fatalf("an emergency cannot be declared: %v", err)
	}
	for name, c := range map[string]struct {
		reason  string
		client  client.Client
		urgency string
		isOK    bool
	}{
		"Declares":    {"they have the verb", overrider, line, true},
		"NoVerb":      {"the right to release is not enough", releaser, line, false},
		"AddsALine":   {"one of two lines is new", releaser, other + `\n` + line, false},
		"KeepsALine":  {"somebody else has declared it", releaser, other + `\nregular 2.0.0 Hotfix: it fails`, true},
		"ChangesLine": {"another version", releaser, "fast 1.2.0 Emergency: a leak", false},
		"Hotfix":      {"the policy says what it leaves out", releaser, "regular 2.0.0 Hotfix: it fails", true},
		"Removes":     {"nothing is left out by that", releaser, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.client.Patch(t.Context(), release(""), client.RawPatch(types.MergePatchType, []byte(
				`{"metadata":{"annotations":{"`+v1beta2.AnnotationUrgency+`":"`+c.urgency+`"}}}`)), client.DryRunAll)
			if c.isOK != (err == nil) || err != nil && !strings.Contains(err.Error(), "the verb override") {
				t.Errorf("%s: %v", c.reason, err)
			}
		})
	}
	if err := kcp.Delete(t.Context(), release("")); err != nil {
		t.Fatal(err)
	}
}

// asUser returns a client of a user with some rights in the namespace of the manager. asUser waits until the rights are
// in force.
func asUser(t *testing.T, l *landscape.Landscape, user string, rules ...rbacv1.PolicyRule) client.Client {
	t.Helper()
	kcp := l.Clients[landscape.ControlPlane]
	meta := metav1.ObjectMeta{Name: user, Namespace: l.Namespace()}
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role",
			Name: user}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}},
	} {
		if err := kcp.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			await(t, user+" to have the verb "+verb, func(ctx context.Context) (bool, string) {
				review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user,
					ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: l.Namespace(), Verb: verb,
						Group: rule.APIGroups[0], Resource: rule.Resources[0]}}}
				err := kcp.Create(ctx, review)
				return err == nil && review.Status.Allowed, fmt.Sprint(review.Status.Reason, err)
			})
		}
	}
	config := l.Clusters[landscape.ControlPlane].Config()
	config.Impersonate.UserName = user
	c, err := client.New(config, client.Options{Scheme: kcp.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// testRefused checks that an installation that cannot work changes nothing, and that klm prints the reason.
func testRefused(t *testing.T, l *landscape.Landscape) {
	kcp := l.Clients[landscape.ControlPlane]
	if err := kcp.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "nobody",
		Namespace: "default"}}); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := l.Clusters[landscape.ControlPlane].TokenKubeconfig(t.Context(), "default", "nobody")
	if err != nil {
		t.Fatal(err)
	}
	nobody := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(nobody, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	admin := l.KubeconfigPath(landscape.ControlPlane)
	cases := map[string]struct {
		reason     string
		kubeconfig string
		args       []string
		code       int
		want       string
	}{
		"NoImage": {
			reason:     "a node finds no image without a registry",
			kubeconfig: admin,
			code:       2,
			want:       "give --image",
		},
		"Value": {
			reason:     "a value that does not exist is named",
			kubeconfig: admin,
			args:       []string{"--image=" + image, "--set=replica=2"},
			code:       2,
			want:       "replica",
		},
		"Flavour": {
			reason:     "there are two",
			kubeconfig: admin,
			args:       []string{"--flavour=mint"},
			code:       2,
			want:       "--flavour",
		},
		"Rights": {
			reason:     "all that is missing is named at once",
			kubeconfig: nobody,
			args:       []string{"--image=" + image},
			code:       5,
			want:       "create clusterroles.rbac.authorization.k8s.io, patch clusterroles",
		},
		"Kind": {
			reason:     "a kind that is not there is named",
			kubeconfig: admin,
			args:       []string{"--image=" + image, "--set=metrics.serviceMonitor.enabled=true"},
			code:       6,
			want:       "ServiceMonitor",
		},
		"Kubeconfig": {
			reason:     "no cluster",
			kubeconfig: filepath.Join(t.TempDir(), "none"),
			args:       []string{"--image=" + image},
			code:       6,
			want:       "kubeconfig",
		},
		"DryRun": {
			reason:     "what would come is told",
			kubeconfig: admin,
			args:       []string{"--image=" + image, "--dry-run"},
			want:       "create   Deployment.apps kcp-system/lifecycle-manager",
		},
		"Both": {
			reason:     "one of them asks the cluster, the other does not",
			kubeconfig: admin,
			args:       []string{"--print", "--dry-run"},
			code:       2,
			want:       "exclude each other",
		},
		"Print": {
			reason:     "printing needs no cluster",
			kubeconfig: filepath.Join(t.TempDir(), "none"),
			args:       []string{"--print", "--flavour=in-cluster", "-n=here"},
			want:       "namespace: here",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			out, code := runKlm(t, c.kubeconfig, append([]string{"install"}, c.args...)...)
			if code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("%s: klm install %v ended with %d, want %d, and does not say %q:\n%s", c.reason,
					c.args, code, c.code, c.want, out)
			}
		})
	}
	err = kcp.Get(t.Context(), client.ObjectKey{Name: l.Namespace()}, &corev1.Namespace{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("something was installed: %v", err)
	}
	if out, code := runKlm(t, admin, "uninstall", "--yes"); code != 4 || !strings.Contains(out,
		"no lifecycle manager") {
		t.Errorf("nothing is removed with %d:\n%s", code, out)
	}
}

// testConfirmation checks that klm shows which values and objects change, and that it changes nothing without a
// confirmation.
func testConfirmation(t *testing.T, l *landscape.Landscape) {
	before := resourceVersions(t, l)
	out, code := runKlm(t, l.KubeconfigPath(landscape.ControlPlane), "install", "--set=shards=0,logLevel=1")
	for _, want := range []string{"change   value shards: 64 → 0", "set      value logLevel: the default → 1",
		"keep     value replicas: 2", "change   Deployment.apps kcp-system/lifecycle-manager",
		"Change the lifecycle manager in namespace kcp-system", "nothing was changed: add --yes"} {
		if code != 2 || !strings.Contains(out, want) {
			t.Errorf("klm install ended with %d, want 2, and does not say %q:\n%s", code, want, out)
		}
	}
	if diff := cmp.Diff(before, resourceVersions(t, l)); diff != "" {
		t.Errorf("something was changed without an answer: -before +after\n%s", diff)
	}
}

// testSmallerInstallation installs with values that need fewer objects. Only the objects that are no longer needed are
// deleted. The preceding dry run changes nothing.
func testSmallerInstallation(t *testing.T, l *landscape.Landscape) {
	kcp := l.Clients[landscape.ControlPlane]
	configMap := func(name string, labels map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace(), Name: name, Labels: labels}}
	}
	ofBefore, foreign := configMap("of-before", map[string]string{"app.kubernetes.io/name": "lifecycle-manager"}),
		configMap("of-somebody", nil)
	inventory := configMap("lifecycle-manager-inventory", nil)
	if err := errors.Join(kcp.Create(t.Context(), ofBefore), kcp.Create(t.Context(), foreign),
		kcp.Get(t.Context(), client.ObjectKeyFromObject(inventory), inventory)); err != nil {
		t.Fatal(err)
	}
	// The inventory lists objects of a former version, and objects that somebody has added to make klm delete them.
	for _, more := range []string{
		`{"version":"v1","kind":"ConfigMap","namespace":"kcp-system","name":"of-before"}`,
		`{"version":"v1","kind":"ConfigMap","namespace":"kcp-system","name":"of-somebody"}`,
		`{"version":"v1","kind":"Namespace","name":"kcp-system"}`,
		`{"group":"example.com","version":"v1","kind":"Gone","namespace":"kcp-system","name":"a"}`,
	} {
		inventory.Data["objects"] = "[" + more + "," + strings.TrimPrefix(inventory.Data["objects"], "[")
	}
	if err := kcp.Update(t.Context(), inventory); err != nil {
		t.Fatal(err)
	}
	stale := []client.Object{ofBefore}
	for _, kind := range []string{"Role", "RoleBinding"} {
		stale = append(stale, newObject("rbac.authorization.k8s.io/v1", kind, l.Namespace(), "lifecycle-manager-webhooks"))
	}
	for _, kind := range []string{"ClusterRole", "ClusterRoleBinding"} {
		stale = append(stale, newObject("rbac.authorization.k8s.io/v1", kind, "", "lifecycle-manager-conversion"))
	}
	stale = append(stale, newObject("v1", "Service", l.Namespace(), "lifecycle-manager-webhook"))
	before := resourceVersions(t, l)
	args := []string{"install", "--reset-values", "--image=" + image, "--set=registry.host=" + l.RegistryHost}
	out, code := runKlm(t, l.KubeconfigPath(landscape.ControlPlane), append(args, "--dry-run")...)
	for _, want := range []string{"delete   ConfigMap kcp-system/of-before",
		"delete   ClusterRole.rbac.authorization.k8s.io lifecycle-manager-conversion",
		"change   Deployment.apps kcp-system/lifecycle-manager", "spec.replicas: 2 → 1",
		"drop     value webhooks.enabled: true → the default"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("the dry run ended with %d and does not say %q:\n%s", code, want, out)
		}
	}
	for _, stays := range []string{"of-somebody", "delete   Namespace", "delete   CustomResourceDefinition"} {
		if strings.Contains(out, stays) {
			t.Errorf("the dry run says %q:\n%s", stays, out)
		}
	}
	if diff := cmp.Diff(before, resourceVersions(t, l)); diff != "" {
		t.Errorf("a dry run changes something: -before +after\n%s", diff)
	}
	enabled := enableLikeFormerManager(t, kcp)
	install(t, l, "--reset-values")
	if err := <-enabled; err != nil {
		t.Errorf("enabling v1alpha1 again: %v", err)
	}
	for _, o := range stale {
		if err := kcp.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s is still there: %v", o, o.GetName(), err)
		}
	}
	if err := kcp.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign); err != nil {
		t.Errorf("something of others went: %v", err)
	}
	awaitModule(t, kcp, l.Namespace(), "runtime-a")
	out, code = runKlm(t, l.KubeconfigPath(landscape.ControlPlane), append(args, "--dry-run")...)
	if code != 0 || !strings.Contains(out, "nothing would change") {
		t.Errorf("what was just installed would change, %d:\n%s", code, out)
	}
}

// enableLikeFormerManager waits until v1alpha1 is disabled in the CRD of Manifests, and enables it once more, as a
// manager with webhooks does until it stops. The result gets the error of the change, or nil.
func enableLikeFormerManager(t *testing.T, c client.WithWatch) (result <-chan error) {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("apiextensions.k8s.io/v1")
	list.SetKind("CustomResourceDefinitionList")
	changes, err := c.Watch(t.Context(), list, client.MatchingFields{"metadata.name": "manifests." + v1beta2.Group})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		defer changes.Stop()
		for e := range changes.ResultChan() {
			crd, _ := e.Object.(*unstructured.Unstructured)
			if crd == nil {
				break
			}
			versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
			if first, _ := versions[0].(map[string]any); first["name"] == "v1alpha1" && first["served"] == false {
				done <- c.Patch(t.Context(), crd, client.RawPatch(types.JSONPatchType,
					[]byte(`[{"op":"replace","path":"/spec/versions/0/served","value":true}]`)))
				return
			}
		}
		done <- errors.New("the watch has ended before v1alpha1 was disabled")
	}()
	return done
}

// resourceVersions returns the resource versions of the objects of an installation.
func resourceVersions(t *testing.T, l *landscape.Landscape) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, o := range managerObjects(t, l) {
		all[o.GetKind()+" "+o.GetName()] = o.GetResourceVersion()
	}
	return all
}

// managerObjects returns the objects with the label of the manager. The status of Deployments is left out, because it
// may change at any time.
func managerObjects(t *testing.T, l *landscape.Landscape) []unstructured.Unstructured {
	t.Helper()
	var all []unstructured.Unstructured
	for _, gvk := range [][2]string{
		{"v1", "ServiceAccount"}, {"v1", "Service"}, {"v1", "ConfigMap"}, {"apps/v1", "Deployment"},
		{"networking.k8s.io/v1", "NetworkPolicy"}, {"policy/v1", "PodDisruptionBudget"},
		{"rbac.authorization.k8s.io/v1", "Role"}, {"rbac.authorization.k8s.io/v1", "RoleBinding"},
		{"rbac.authorization.k8s.io/v1", "ClusterRole"}, {"rbac.authorization.k8s.io/v1", "ClusterRoleBinding"},
		{"admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"},
		{"admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(gvk[0])
		list.SetKind(gvk[1] + "List")
		if err := l.Clients[landscape.ControlPlane].List(t.Context(), list,
			client.MatchingLabels{"app.kubernetes.io/name": "lifecycle-manager"}); err != nil {
			t.Fatal(err)
		}
		all = append(all, list.Items...)
	}
	for i := range all {
		if kind := all[i].GetKind(); kind == "Deployment" || kind == "PodDisruptionBudget" {
			all[i].SetResourceVersion(fmt.Sprint(all[i].GetGeneration()))
		}
	}
	return all
}

// uninstall removes the manager. uninstall checks that all objects of the manager are deleted, and no objects of users.
func uninstall(t *testing.T, l *landscape.Landscape, args ...string) {
	t.Helper()
	kubeconfig, before := l.KubeconfigPath(landscape.ControlPlane), len(managerObjects(t, l))
	if out, code := runKlm(t, kubeconfig, append([]string{"uninstall", "--dry-run"}, args...)...); code != 0 ||
		!strings.Contains(out, "ServiceAccount") || len(managerObjects(t, l)) != before {
		t.Errorf("a dry run ended with %d, and of %d objects there are %d left:\n%s", code,
			before, len(managerObjects(t, l)), out)
	}
	if out, code := runKlm(t, kubeconfig, append([]string{"uninstall", "--yes"}, args...)...); code != 0 ||
		!strings.Contains(out, "is removed") {
		t.Fatalf("klm uninstall ended with %d and says:\n%s", code, out)
	}
	checkUninstalled(t, l, args...)
}

// checkUninstalled checks what klm uninstall has left.
func checkUninstalled(t *testing.T, l *landscape.Landscape, args ...string) {
	t.Helper()
	kcp := l.Clients[landscape.ControlPlane]
	for _, o := range managerObjects(t, l) {
		t.Errorf("%s %s is left", o.GetKind(), o.GetName())
	}
	var pods corev1.PodList
	if err := kcp.List(t.Context(), &pods, client.InNamespace(l.Namespace()),
		client.MatchingLabels{"app.kubernetes.io/name": "lifecycle-manager"}); err != nil || len(pods.Items) > 0 {
		t.Errorf("klm does not wait for the end of the manager: %d pods, %v", len(pods.Items), err)
	}
	var kymas v1beta2.KymaList
	if err := kcp.List(t.Context(), &kymas, client.InNamespace(l.Namespace())); err != nil || len(kymas.Items) == 0 ||
		!kymas.Items[0].DeletionTimestamp.IsZero() {
		t.Errorf("Kymas went with the manager: %v, %v", kymas.Items, err)
	}
	if out, code := runKlm(t, l.KubeconfigPath(landscape.ControlPlane), append([]string{"uninstall", "--yes"},
		args...)...); code != 4 {
		t.Errorf("where nothing is installed, klm uninstall ends with %d and says:\n%s", code, out)
	}
}

// createRegistrySecret creates the Secret with the address and the credentials of the registry.
func createRegistrySecret(t *testing.T, l *landscape.Landscape) {
	t.Helper()
	host := strings.TrimPrefix(l.LockedRegistryHost, "http://")
	auth := base64.StdEncoding.EncodeToString([]byte(landscape.LoginUser + ":" + landscape.LoginPassword))
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "lifecycle-manager-registry", Namespace: l.Namespace()},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: fmt.Appendf(
			nil, `{"auths":{%q:{"auth":%q}}}`, host, auth)},
	}
	if err := l.Clients[landscape.ControlPlane].Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// writeOverlay writes a kustomize overlay of the base that sets the image of the manager, and returns its folder.
func writeOverlay(t *testing.T) string {
	t.Helper()
	tree := t.TempDir()
	if err := os.CopyFS(tree, os.DirFS(filepath.Join("..", "..", "deploy"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(tree, "overlay"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := "resources: [../base]\nimages: [{name: lifecycle-manager, newName: " + landscape.ManagerImage + "}]\n"
	if err := os.WriteFile(filepath.Join(tree, "overlay", "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(tree, "overlay")
}

// testInCluster installs the in-cluster flavour on a separate cluster.
func testInCluster(t *testing.T) {
	l, err := landscape.Up(t.Context(), landscape.Options{Dir: filepath.Join(bin, "in-cluster"), Bin: bin,
		InCluster: true, Deployed: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.CloseAndRemoveDir(); err != nil {
			t.Errorf("stopping the landscape: %v", err)
		}
	}()
	install(t, l, "--flavour=in-cluster")
	publish(t, l)
	enable(t, l, "default")
	uninstall(t, l, "--flavour=in-cluster")
}
