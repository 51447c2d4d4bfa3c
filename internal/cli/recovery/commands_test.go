package recovery

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// controlPlane returns the objects of a control plane: two runtimes, one of which is being deleted.
func controlPlane() []client.Object {
	kyma := fixture.Kyma(v1beta2.StateReady, v1beta2.Module{Name: "sample"},
		v1beta2.ModuleStatus{Name: "sample", Version: "1.0.0", State: v1beta2.StateReady},
		fixture.Condition(v1beta2.ConditionReady, "True", "Ready", "kyma is ready"))
	kyma.UID, kyma.ManagedFields = "old", []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	leaving := kyma.DeepCopy()
	leaving.Name, leaving.DeletionTimestamp = "runtime-b", new(fixture.BeforeNoon(time.Hour))
	leaving.Annotations = map[string]string{v1beta2.AnnotationDeletionGivenUp: "tombstone-b"}
	manifest := fixture.Manifest("1.0.0", "1.0.0")
	manifest.Namespace, manifest.Generation, manifest.Status.ObservedGeneration = "kcp-system", 7, 6
	manifest.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(kyma,
		v1beta2.GroupVersion.WithKind(v1beta2.KindKyma))}
	byUser := manifest.DeepCopy()
	byUser.Name, byUser.OwnerReferences = "of-a-user", nil
	secret := func(name string, kind corev1.SecretType) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kcp-system"}, Type: kind,
			Data: map[string][]byte{"config": []byte("apiVersion: v1\n---\nkind: Config\n")}}
	}
	settings := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kcp-system"},
			Data: map[string]string{"a": "- x\n---\n# was being deleted since never\n"}}
	}
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kcp-system", Labels: map[string]string{"a": "b"}}},
		kyma, leaving, &manifest, byUser, secret("runtime-a-access", corev1.SecretTypeOpaque),
		secret("token", corev1.SecretTypeServiceAccountToken), settings("policy"), settings("kube-root-ca.crt"),
		&v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "sample-1.0.0", Namespace: "kcp-system"}},
		&v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "standard", Namespace: "kcp-system"}},
		&v1beta2.ModuleRollout{ObjectMeta: metav1.ObjectMeta{Name: "sample-regular-r2", Namespace: "kcp-system"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "of-others", Namespace: "default"}},
	}
}

const all = "1 Namespace, 1 ModuleTemplate, 1 RolloutPolicy, 1 ModuleRollout, 2 Kymas, 2 Manifests, 1 Secret, " +
	"1 ConfigMap"

// saved makes a backup of the objects in controlPlane, and returns the path of the file.
func saved(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "backup.yaml")
	fixture.Case{Reason: "a backup", Args: "backup " + file, Want: []string{"has " + all + " of namespace kcp-system",
		"credentials"}}.Check(t, Commands, fixture.NewServer(t, controlPlane()...).Kubeconfig)
	return file
}

func TestBackup(t *testing.T) {
	file := saved(t)
	info, err := os.Stat(file)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v: others can read the credentials", info.Mode(), err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, never := range []string{"\n  uid:", "resourceVersion", "ownerReferences", "managedFields",
		"kube-root-ca.crt", "of-others", "service-account-token", "\n  deletionTimestamp",
		v1beta2.AnnotationDeletionGivenUp} {
		if strings.Contains(string(text), never) {
			t.Errorf("the backup has %q", never)
		}
	}
	var docs []string
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	if err := visitObjects(f, func(d document) error {
		generation, _, _ := unstructured.NestedInt64(d.Object, "status", "observedGeneration")
		docs = append(docs, fmt.Sprint(nameOf(d.Unstructured), " ", d.deleting, " ", generation, " ",
			d.GetLabels()[v1beta2.LabelManagedBy]))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{"Namespace kcp-system false 0 ", "ModuleTemplate kcp-system/sample-1.0.0 false 0 ",
		"RolloutPolicy kcp-system/standard false 0 ", "ModuleRollout kcp-system/sample-regular-r2 false 0 ",
		"Kyma kcp-system/runtime-a false 1 ", "Kyma kcp-system/runtime-b true 1 ",
		"Manifest kcp-system/of-a-user false 0 ", "Manifest kcp-system/runtime-a-sample-1 false 0 lifecycle-manager",
		"Secret kcp-system/runtime-a-access false 0 ", "ConfigMap kcp-system/policy false 0 "}
	if diff := cmp.Diff(want, docs); diff != "" {
		t.Errorf("kinds in the order of their creation; outdated generations go (-want +got):\n%s", diff)
	}
}

func TestBackupFile(t *testing.T) {
	s := fixture.NewServer(t, controlPlane()...)
	file := filepath.Join(t.TempDir(), "b.yaml")
	check := func(reason, args string, code int, want ...string) {
		t.Helper()
		fixture.Case{Reason: reason, Args: "backup " + args, Code: code, Want: want}.Check(t, Commands, s.Kubeconfig)
	}
	check("the output", "-", 0, "kind: Kyma", lastLine+"10 objects", "the output has "+all)
	check("a new file", file, 0, all)
	check("a file that exists", file, console.ExitUsage, "exists already", "--force")
	check("replaced", file+" --force", 0, all)
	check("no folder", "/nowhere/b.yaml", console.ExitUsage, "/nowhere")
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/manifests") {
			fixture.Fail(w, apierrors.NewResourceExpired("too old"))
			return true
		}
		return false
	}
	before, _ := os.ReadFile(file)
	check("a list that takes too long", file+" --force", console.ExitFailed, "listing Manifests took longer")
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Error("a backup that failed has replaced the former backup")
	}
	check("without a former one", filepath.Dir(file)+"/c.yaml", console.ExitFailed, "listing Manifests")
	if left, _ := filepath.Glob(filepath.Dir(file) + "/*"); len(left) != 1 {
		t.Errorf("after failures there are %v, want only the complete backup", left)
	}
}

// TestBackupDuringChanges checks that a backup has the access Secret of each Kyma in it, and the tombstone of each
// deletion that is given up while the backup is made.
func TestBackupDuringChanges(t *testing.T) {
	s := fixture.NewServer(t, controlPlane()...)
	var changed atomic.Bool
	s.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/kymas") && r.URL.Query().Get("limit") == strconv.Itoa(pageSize) &&
			!changed.Swap(true) {
			s.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "late-access"}})
			s.Create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system",
				Name: "tombstone-late"}})
		}
		return false
	}
	fixture.Case{Reason: "changes while Kymas are listed", Args: "backup -", Want: []string{"name: late-access",
		"name: tombstone-late"}}.Check(t, Commands, s.Kubeconfig)
}

// TestBackupInPages checks that a backup of many objects is complete.
func TestBackupInPages(t *testing.T) {
	objects := controlPlane()
	for i := range pageSize * 2 {
		objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system",
			Name: fmt.Sprintf("tombstone-%d", i)}})
	}
	fixture.Case{Reason: "three pages", Args: "backup -", Want: []string{fmt.Sprintf("%d ConfigMaps", pageSize*2+1)}}.
		Check(t, Commands, fixture.NewServer(t, objects...).Kubeconfig)
}

func TestRestore(t *testing.T) {
	file := saved(t)
	s := fixture.NewServer(t)
	check := func(reason, args string, code int, want ...string) {
		t.Helper()
		fixture.Case{Reason: reason, Args: "restore " + file + " " + args, Code: code, Want: want}.
			Check(t, Commands, s.Kubeconfig)
	}
	check("nothing is written", "--dry-run", 0, "Kyma             2 to be created", "1 object to be deleted again")
	check("nobody answers", "", console.ExitUsage, "nothing was changed")
	if len(s.Writes()) > 0 {
		t.Fatalf("wrote %v without a yes", s.Writes())
	}
	check("a new control plane", "--yes", 0, "Secret           1 created", "Manifest         2 created", "start the manager")
	manifest := s.Object("/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/manifests/runtime-a-sample-1")
	if version, _, _ := unstructured.NestedString(manifest.Object, "status", "version"); version != "1.0.0" {
		t.Errorf("the status is not restored: %v", manifest.Object["status"])
	}
	if owner := metav1.GetControllerOf(manifest); owner == nil || owner.UID != "uid-of-runtime-a" {
		t.Errorf("owner is %v, want the Kyma that was created", owner)
	}
	byUser := s.Object("/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/manifests/of-a-user")
	if len(byUser.GetOwnerReferences()) > 0 {
		t.Error("the Manifest of a user belongs to the manager now")
	}
	leaving := s.Object("/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas/runtime-b")
	if leaving.GetDeletionTimestamp() == nil {
		t.Error("a Kyma that was being deleted is not deleted again")
	}
	writes := len(s.Writes())
	check("again", "--yes", 0, "Manifest         2 unchanged", "Kyma             2 unchanged")
	if len(s.Writes()) != writes {
		t.Errorf("a second restore has written %v", s.Writes()[writes:])
	}
}

// TestRestoreIntoAnotherControlPlane checks that a Kyma that was being deleted is not deleted again in another control
// plane: the Kyma does not own its runtime there, and the manager would drop it and the inventories of its modules.
func TestRestoreIntoAnotherControlPlane(t *testing.T) {
	whole, err := os.ReadFile(saved(t))
	if err != nil {
		t.Fatal(err)
	}
	var manifest string // of runtime-b: it was being deleted, too
	for text := range strings.SplitSeq(string(whole), "\n---\n") {
		if strings.Contains(text, "name: runtime-a-sample-1") {
			manifest = "---\n" + deletingLine + "2026-08-01T11:00:00Z\n" +
				strings.ReplaceAll(text, "runtime-a", "runtime-b") + "\n"
		}
	}
	const objects = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/"
	for reason, text := range map[string]string{
		"another control plane":      string(whole),
		"a backup of an earlier klm": strings.Replace(string(whole), controlPlaneLine, "# ", 1),
	} {
		file := filepath.Join(t.TempDir(), "b.yaml")
		text = strings.Replace(text, lastLine, manifest+lastLine, 1)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := fixture.NewServer(t)
		if strings.Contains(text, controlPlaneLine) {
			s.Patch(t, "/api/v1/namespaces/kube-system", `{"metadata":{"uid":"another"}}`)
		}
		check := func(args string, want ...string) {
			t.Helper()
			fixture.Case{Reason: reason, Args: "restore " + file + " --yes " + args, Code: console.ExitNotReady,
				Want: append(want, "Kymas runtime-b.", "klm runtime take", "klm runtime remove")}.
				Check(t, Commands, s.Kubeconfig)
		}
		check("", "Kyma             2 created", "Manifest         3 created")
		for _, name := range []string{"kymas/runtime-b", "manifests/runtime-b-sample-1"} {
			if o := s.Object(objects + name); o == nil || o.GetDeletionTimestamp() != nil {
				t.Errorf("%s: %s has to exist and not to be deleted: %v", reason, name, o)
			}
		}
		check("--replace", "Kyma             2 unchanged", "Manifest         3 unchanged")
	}
}

// TestRestoreOverOthers checks the actions for objects that already exist.
func TestRestoreOverOthers(t *testing.T) {
	file := saved(t)
	template := "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/moduletemplates/sample-1.0.0"
	other := &v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "sample-1.0.0", Namespace: "kcp-system",
		Labels: map[string]string{"team": "red"}}}
	interrupted := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "runtime-a", Namespace: "kcp-system", UID: "new",
		Labels: map[string]string{"team": "blue"}, Finalizers: []string{v1beta2.FinalizerKyma}},
		Spec: v1beta2.KymaSpec{Channel: "regular", Modules: []v1beta2.Module{{Name: "sample"}}}}
	s := fixture.NewServer(t, other, interrupted)
	check := func(reason, args string, code int, want ...string) {
		t.Helper()
		fixture.Case{Reason: reason, Args: "restore " + file + " --yes " + args, Code: code, Want: want}.
			Check(t, Commands, s.Kubeconfig)
	}
	check("another content is kept, a missing status is added", "", console.ExitNotReady,
		"1 kept: other content", "ModuleTemplate kcp-system/sample-1.0.0", "1 created, 1 got their status",
		"1 object of the backup is not restored")
	if s.Object(template).GetLabels()["team"] != "red" {
		t.Error("an object with another content is overwritten without --replace")
	}
	manifest := s.Object("/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/manifests/runtime-a-sample-1")
	if owner := metav1.GetControllerOf(manifest); owner == nil || owner.UID != "new" {
		t.Errorf("owner is %v, want the Kyma that was there", owner)
	}
	check("on request", "--replace", 0, "ModuleTemplate   1 replaced")
	if s.Object(template).GetLabels()["team"] != "" {
		t.Error("the object is not replaced")
	}
}

// TestRestoreRefusedObject checks that an object that the API server refuses to replace is kept and named, and that
// the rest of the backup is restored.
func TestRestoreRefusedObject(t *testing.T) {
	const name = "sample-regular-r2"
	aborted := &v1beta2.ModuleRollout{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kcp-system",
		Labels: map[string]string{"state": "aborted"}}}
	for reason, refusal := range map[string]error{
		"a rule of the CRD": apierrors.NewInvalid(v1beta2.GroupVersion.WithKind(v1beta2.KindModuleRollout).GroupKind(),
			name, nil),
		"an admission policy": apierrors.NewForbidden(schema.GroupResource{Group: v1beta2.GroupVersion.Group,
			Resource: "modulerollouts"}, name, errors.New("an approval is missing")),
	} {
		s := fixture.NewServer(t, aborted)
		s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPut {
				return false
			}
			fixture.Fail(w, refusal)
			return true
		}
		fixture.Case{Reason: reason, Args: "restore " + saved(t) + " --yes --replace", Code: console.ExitNotReady,
			Want: []string{"refuses to replace ModuleRollout kcp-system/" + name, "Kyma             2 created",
				"Manifest         2 created", "1 object of the backup is not restored"}}.
			Check(t, Commands, s.Kubeconfig)
	}
}

// TestRestoreInterrupted checks that a restore that ends before it has deleted a Kyma again does not turn the deletion
// into a Kyma that stays: the next restore names the Kyma, and deletes it if --replace is set.
func TestRestoreInterrupted(t *testing.T) {
	file := saved(t)
	const leaving = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas/runtime-b"
	s := fixture.NewServer(t)
	var interrupted atomic.Bool
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete || r.URL.Path != leaving || interrupted.Swap(true) {
			return false
		}
		fixture.Fail(w, apierrors.NewInternalError(errors.New("the API server ends")))
		return true
	}
	check := func(reason, args string, code int, want ...string) {
		t.Helper()
		fixture.Case{Reason: reason, Args: "restore " + file + " --yes " + args, Code: code, Want: want}.
			Check(t, Commands, s.Kubeconfig)
	}
	check("the deletion fails", "", console.ExitFailed, "deleting Kyma kcp-system/runtime-b again")
	check("the deletion is still missing", "", console.ExitNotReady, "Kyma kcp-system/runtime-b",
		"1 object of the backup is not restored")
	check("on request", "--replace", 0, "1 replaced")
	if s.Object(leaving).GetDeletionTimestamp() == nil {
		t.Error("a Kyma that was being deleted is not deleted again")
	}
}

func TestRestoreRefuses(t *testing.T) {
	whole, err := os.ReadFile(saved(t))
	if err != nil {
		t.Fatal(err)
	}
	lease := func(name string, label string, renewed time.Duration, holder string) *unstructured.Unstructured {
		l := &coordinationv1.Lease{
			TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kcp-system", Labels: map[string]string{}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)),
				RenewTime: new(metav1.NewMicroTime(fixture.Noon.Add(-renewed)))},
		}
		if label != "" {
			l.Labels[v1beta2.LabelLease] = label
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(l)
		if err != nil {
			t.Fatal(err)
		}
		return &unstructured.Unstructured{Object: fields}
	}
	cases := map[string]struct {
		reason string
		text   string // the file
		lease  *unstructured.Unstructured
		fast   time.Duration // how much the clock of klm is ahead of the clock of the API server
		args   string
		code   int
		want   string
	}{
		"Leader": {reason: "a manager works", lease: lease(leaderLease, "", time.Second, "pod-a"),
			code: console.ExitNotReady, want: "is held by pod-a until"},
		"Replica": {reason: "one of several replicas works", lease: lease("x", v1beta2.LeaseOfReplica, time.Second,
			"pod-b"), code: console.ExitNotReady, want: "a manager works"},
		"FastClock": {reason: "the clock of the user is wrong", lease: lease(leaderLease, "", time.Minute+time.Second,
			"pod-a"), fast: time.Minute, code: console.ExitNotReady, want: "a manager works"},
		"Ended": {reason: "its Lease is over", lease: lease(leaderLease, "", time.Minute, "pod-a"), want: "created"},
		"Left":  {reason: "it has given its Lease back", lease: lease(leaderLease, "", time.Second, ""), want: "created"},
		"Other": {reason: "the Lease of another program", lease: lease("y", "", time.Second, "z"), want: "created"},
		"Cut": {reason: "half of a file", text: string(whole[:len(whole)/2]), code: console.ExitFailed,
			want: "not a complete backup"},
		"Namespace": {reason: "another namespace", args: "-n other", code: console.ExitUsage,
			want: "a backup of namespace kcp-system, not of other"},
		"Foreign": {reason: "an object of another kind", text: "kind: Pod\napiVersion: v1\nmetadata: {name: a}\n" +
			lastLine + "1 object\n", code: console.ExitFailed, want: "has no objects of kind /v1, Kind=Pod"},
		"Elsewhere": {reason: "an object of another namespace", text: string(whole) +
			"---\nkind: Secret\napiVersion: v1\nmetadata: {name: a, namespace: kube-system}\n" + lastLine + "9 objects\n",
			code: console.ExitFailed, want: "Secret kube-system/a is not in namespace kcp-system"},
		"NoYAML": {reason: "not YAML", text: "a: [\n" + lastLine + "1\n", code: console.ExitFailed,
			want: "the object before line"},
		"Huge": {reason: "one object without an end", text: "a: " + strings.Repeat("x", documentLimit+1) + "\n" +
			lastLine + "1\n", code: console.ExitFailed, want: "larger than 8 MiB"},
		"Orphan": {reason: "a Manifest without its Kyma", text: strings.ReplaceAll(string(whole),
			"kyma-name: runtime-a", "kyma-name: runtime-z"), code: console.ExitNotReady, want: "left out: no Kyma"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := fixture.NewServer(t)
			if c.lease != nil {
				s.Put(c.lease)
			}
			s.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Date", fixture.Noon.Add(-c.fast).Format(http.TimeFormat))
				return false
			}
			file := filepath.Join(t.TempDir(), "b.yaml")
			text := c.text
			if text == "" {
				text = string(whole)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			fixture.Case{Reason: c.reason, Args: "restore " + file + " --yes " + c.args, Code: c.code,
				Want: []string{c.want}}.Check(t, Commands, s.Kubeconfig)
			if c.code != 0 && c.code != console.ExitNotReady && len(s.Writes()) > 0 {
				t.Errorf("%s: wrote %v", c.reason, s.Writes())
			}
		})
	}
	fixture.Case{Reason: "standard input", Args: "restore -", Code: console.ExitUsage, Want: []string{"read twice"}}.
		Check(t, Commands, fixture.NewServer(t).Kubeconfig)
}
