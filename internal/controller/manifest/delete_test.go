package manifest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

const samplePath = "/apis/example.com/v1/namespaces/default/samples/"

// sampleResource returns a custom resource of kind Sample.
func sampleResource(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Sample",
		"metadata": map[string]any{"namespace": "default", "name": name},
	}}
}

// newSampleBench returns a bench whose runtime serves the kind Sample and whose Manifest has a custom resource of that
// kind.
func newSampleBench(t *testing.T, policy v1beta2.CustomResourcePolicy) *bench {
	b := newBench(t, moduleOf(func(m *v1beta2.Manifest) {
		m.Spec.Resource, m.Spec.CustomResourcePolicy = sampleResource("own"), policy
	}))
	b.runtime.kinds["example.com/v1/samples"] = "Sample"
	b.write("sample", configMap("a", "1"))
	return b
}

// TestResourcePolicy checks that the custom resource is created once, and only if the policy is to create it. A custom
// resource that exists is not changed.
func TestResourcePolicy(t *testing.T) {
	cases := map[string]struct {
		reason  string
		policy  v1beta2.CustomResourcePolicy
		exists  bool
		creates bool
	}{
		"Create": {"it does not exist", v1beta2.CreateAndDelete, false, true},
		"Exists": {"it belongs to the user", v1beta2.CreateAndDelete, true, false},
		"Ignore": {"it is left to the user", v1beta2.Ignore, false, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newSampleBench(t, c.policy)
			if c.exists {
				b.runtime.put(samplePath+"own", map[string]any{"kind": "Sample", "spec": "of the user",
					"metadata": map[string]any{"name": "own", "namespace": "default"}})
			}
			b.settle(v1beta2.StateReady)
			o := b.runtime.object(samplePath + "own")
			if created := o != nil && o["spec"] == nil; created != c.creates {
				t.Errorf("%s: the custom resource is %v", c.reason, o)
			}
			condition := slices.ContainsFunc(b.manifest().Status.Conditions,
				func(c metav1.Condition) bool { return c.Type == v1beta2.ConditionModuleCR })
			if condition == (c.policy == v1beta2.Ignore) {
				t.Errorf("%s: condition ModuleCR exists: %t", c.reason, condition)
			}
		})
	}
}

// TestResourceIsNotReadToCreateIt checks that a new module creates its custom resource without reading it first. While
// the module is Processing, the custom resource is read once in each reconcile, and created again if it is deleted. No
// time passes during the test, because the custom resource counts as expected only for expectedPeriod.
func TestResourceIsNotReadToCreateIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSampleBench(t, v1beta2.CreateAndDelete)
		b.edit(func(m *v1beta2.Manifest) {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1beta2.AnnotationCustomStateCheck, v1beta2.ValueTrue)
			m.Spec.CustomStateCheck = []v1beta2.CustomStateCheck{{JSONPath: "status.state", Value: "Up",
				MappedState: v1beta2.StateReady}}
		})
		reconcile := func(want ...string) {
			t.Helper()
			if _, err := b.reconcile(); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, line := range b.runtime.take() {
				if strings.HasSuffix(line, samplePath+"own") {
					got = append(got, strings.Fields(line)[0])
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("requests about the custom resource, -want +got:\n%s", diff)
			}
		}
		reconcile("PATCH")
		reconcile() // it is expected back
		b.ageSeen()
		reconcile("GET")
		b.runtime.drop(samplePath + "own")
		b.ageSeen()
		reconcile("GET")
		reconcile("GET", "PATCH")
		if b.statusWrites != 1 {
			t.Errorf("the status was written %d times, want once, with the inventory", b.statusWrites)
		}
	})
}

// TestDelete checks that the custom resource is deleted first. The other objects of the module are deleted after the
// operator has removed its finalizer from the custom resource.
func TestDelete(t *testing.T) {
	b := newSampleBench(t, v1beta2.CreateAndDelete)
	b.settle(v1beta2.StateReady)
	b.runtime.change(samplePath+"own", func(o map[string]any) {
		o["metadata"].(map[string]any)["finalizers"] = []any{"example.com/operator"}
	})
	b.delete()
	got := b.settle(v1beta2.StateDeleting)
	reason, message := readyMessage(t, b.manifest())
	if reason != v1beta2.ReasonObjectsRemaining || !strings.Contains(message, "example.com/operator") {
		t.Errorf("while the operator works: %s: %s", reason, message)
	}
	deletes := slices.DeleteFunc(got, func(line string) bool { return !strings.HasPrefix(line, "DELETE") })
	if diff := cmp.Diff([]string{"DELETE " + samplePath + "own"}, deletes); diff != "" {
		t.Errorf("while the operator works, deletions are -want +got:\n%s", diff)
	}
	steps := []string{"connect", "reclaim", "blockers", "resource", "plan", "operator"}
	if !slices.Equal(b.steps, steps) {
		t.Errorf("steps are %v, want %v", b.steps, steps)
	}

	b.runtime.drop(samplePath + "own")
	for range 5 {
		if b.manifest() == nil {
			break
		}
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if m, left := b.manifest(), b.runtime.paths(); m != nil || len(left) > 0 {
		t.Errorf("after the deletion there are %v, and the Manifest %v", left, m)
	}
	steps = append(steps, "teardown", "release")
	if !slices.Equal(b.steps, steps) {
		t.Errorf("steps are %v, want %v", b.steps, steps)
	}
	if _, err := b.reconcile(); err != nil || b.r.memories.Len() != 0 {
		t.Errorf("a Manifest that does not exist: %v, %d are remembered", err, b.r.memories.Len())
	}
}

// TestDeleteWaitsForUsers checks that custom resources of users block the deletion of a module. Custom resources that
// the Manifests of other modules own do not block it.
func TestDeleteWaitsForUsers(t *testing.T) {
	cases := map[string]struct {
		reason  string
		other   string // the name of another custom resource of the kind
		policy  v1beta2.CustomResourcePolicy
		blocked bool
	}{
		"Users":      {"a user made it", "users", v1beta2.CreateAndDelete, true},
		"OthersOwn":  {"another Manifest deletes it", "others", v1beta2.CreateAndDelete, false},
		"UsersOwn":   {"with the policy Ignore all belong to users", "", v1beta2.Ignore, true},
		"NothingToo": {"there is only the module's own", "", v1beta2.CreateAndDelete, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newSampleBench(t, c.policy)
			other := moduleOf(func(m *v1beta2.Manifest) {
				m.Name, m.UID, m.Status.ObservedGeneration, m.Spec.Resource = "other", "m-2", 1,
					sampleResource("others")
			})
			if err := b.control.Create(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			b.settle(v1beta2.StateReady)
			for _, name := range []string{"own", c.other} {
				if name != "" && b.runtime.object(samplePath+name) == nil {
					b.runtime.put(samplePath+name, map[string]any{
						"apiVersion": "example.com/v1", "kind": "Sample",
						"metadata": map[string]any{"name": name, "namespace": "default", "uid": name},
					})
				}
			}
			b.delete()
			for range 5 {
				if _, err := b.reconcile(); err != nil {
					t.Fatal(err)
				}
			}
			m := b.manifest()
			if blocked := m != nil; blocked != c.blocked {
				t.Fatalf("%s: the Manifest is %v", c.reason, m)
			}
			if c.blocked {
				if reason, message := readyMessage(t, m); reason != v1beta2.ReasonCustomResourceBlocksDeletion ||
					!strings.Contains(message, "1 Sample.example.com (default/") {
					t.Errorf("%s: %s: %s", c.reason, reason, message)
				}
				if b.runtime.object(configMaps+"a") == nil {
					t.Error("the module was deleted although custom resources of users exist")
				}
			}
		})
	}
}

// TestDeleteKeepsDefaultOfOtherModule checks that the default custom resource stays if another module has the same one:
// a module and its successor are installed together while the user changes from one to the other.
func TestDeleteKeepsDefaultOfOtherModule(t *testing.T) {
	cases := map[string]struct {
		reason     string
		name       string // the default custom resource of the other module
		policy     v1beta2.CustomResourcePolicy
		isDeleted  bool // the other module is being deleted, too
		handedOver bool // the other module is handed over to the user
		begun      bool // the custom resource is already being deleted
		stays      bool
	}{
		"Same":       {reason: "the other module needs it", name: "own", stays: true},
		"HandedOver": {reason: "it belongs to the user now", name: "own", isDeleted: true, handedOver: true, stays: true},
		"BothLeave":  {reason: "nobody needs it", name: "own", isDeleted: true},
		"Ignore":     {reason: "the other module has not created it", name: "own", policy: v1beta2.Ignore},
		"OtherName":  {reason: "the other module has another one", name: "others"},
		"Begun":      {reason: "the operator has to remove the finalizers", name: "own", begun: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newSampleBench(t, v1beta2.CreateAndDelete)
			recorder := events.NewFakeRecorder(100)
			b.r.Events = recorder
			b.settle(v1beta2.StateReady)
			other := moduleOf(func(m *v1beta2.Manifest) {
				m.Name, m.UID, m.Status.ObservedGeneration = "other", "m-2", 1
				m.Labels[v1beta2.LabelModuleName], m.Finalizers = "successor", []string{v1beta2.FinalizerManifest}
				m.Spec.Resource, m.Spec.CustomResourcePolicy = sampleResource(c.name), c.policy
				if c.handedOver {
					m.Annotations = map[string]string{v1beta2.AnnotationIsUnmanaged: v1beta2.ValueTrue}
				}
			})
			if err := b.control.Create(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			if c.isDeleted {
				if err := b.control.Delete(t.Context(), other); err != nil {
					t.Fatal(err)
				}
			}
			if c.begun {
				b.runtime.change(samplePath+"own", func(o map[string]any) {
					metadata := o["metadata"].(map[string]any)
					metadata["finalizers"] = []any{"example.com/operator"}
					metadata["deletionTimestamp"] = "2026-01-02T03:04:05Z"
				})
			}
			b.delete()
			writes := b.reconcileTimes(5)
			if c.begun {
				if b.runtime.object(configMaps+"a") == nil {
					t.Fatalf("%s: the operator is deleted first", c.reason)
				}
				b.runtime.drop(samplePath + "own")
				writes = append(writes, b.reconcileTimes(3)...)
			}
			if m := b.manifest(); m != nil {
				t.Fatalf("%s: the Manifest is %v", c.reason, m)
			}
			isSent := slices.Contains(writes, "DELETE "+samplePath+"own")
			if exists := b.runtime.object(samplePath+"own") != nil; exists != c.stays || isSent == c.stays {
				t.Errorf("%s: the custom resource exists: %t, sent %q, want that it stays: %t", c.reason, exists, writes,
					c.stays)
			}
			reported := 0
			for len(recorder.Events) > 0 {
				if strings.Contains(<-recorder.Events, "ObjectLeftToOwner Sample.example.com default/own stays: "+
					"it is the default custom resource of module successor, too") {
					reported++
				}
			}
			if want := map[bool]int{true: 1}[c.stays]; reported != want {
				t.Errorf("%s: %d events report that it stays, want %d", c.reason, reported, want)
			}
		})
	}
}

// TestDeleteForbidden checks that the status has a reason if the permission to delete an object is missing.
func TestDeleteForbidden(t *testing.T) {
	b := newBench(t, moduleOf(nil))
	b.write("sample", configMap("a", "1"))
	b.settle(v1beta2.StateReady)
	b.delete()
	b.runtime.failWith(func(line string) (int, string) {
		if strings.HasPrefix(line, "DELETE") {
			return 403, "Forbidden"
		}
		return 0, ""
	})
	b.settle(v1beta2.StateDeleting)
	if _, message := readyMessage(t, b.manifest()); !strings.Contains(message, "ConfigMap default/a") {
		t.Errorf("the message does not name the object: %s", message)
	}
}

// TestHandOver checks that the objects stay without our labels and annotations, and that the Manifest is deleted, also
// if no connection to the runtime is open.
func TestHandOver(t *testing.T) {
	b := newBench(t, moduleOf(nil))
	b.write("sample", configMap("a", "1"), configMap("b", "1"))
	b.settle(v1beta2.StateReady)
	b.runtime.drop(configMaps + "b")
	b.r.Runtimes.Remove("a") // closes the connection, as when the runtime is idle
	b.edit(func(m *v1beta2.Manifest) {
		m.Annotations = map[string]string{v1beta2.AnnotationIsUnmanaged: v1beta2.ValueTrue}
	})
	if _, err := b.reconcile(); err != nil {
		t.Fatal(err)
	}
	if m := b.manifest(); m != nil {
		t.Errorf("the Manifest still exists: finalizers %v", m.Finalizers)
	}
	meta := b.runtime.object(configMaps + "a")["metadata"].(map[string]any)
	labels, annotations := meta["labels"].(map[string]any), meta["annotations"].(map[string]any)
	if labels[v1beta2.LabelManagedBy] != nil || annotations[v1beta2.AnnotationOwnedBy] != nil ||
		annotations[v1beta2.AnnotationDisclaimer] != nil {
		t.Errorf("the object keeps labels %v, annotations %v", labels, annotations)
	}
}

// TestSuspended checks a Manifest that must not be reconciled: no request is sent, and the condition has the reason.
func TestSuspended(t *testing.T) {
	cases := map[string]struct {
		edit func(*v1beta2.Manifest)
		want string
	}{
		"Skipped": {func(m *v1beta2.Manifest) { m.Labels[v1beta2.LabelSkipReconciliation] = v1beta2.ValueTrue },
			v1beta2.ReasonSkipReconciliation},
		"Paused": {func(m *v1beta2.Manifest) {
			m.Annotations = map[string]string{
				v1beta2.AnnotationPaused: "for a test"}
		}, v1beta2.ReasonModulePaused},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, moduleOf(nil))
			b.write("sample", configMap("a", "1"))
			b.settle(v1beta2.StateReady)
			b.edit(c.edit)
			b.edit(func(m *v1beta2.Manifest) { m.Spec.Version, m.Generation = "2.0.0", 2 })
			if _, err := b.reconcile(); err != nil {
				t.Fatal(err)
			}
			m := b.manifest()
			if reason, _ := readyMessage(t, m); reason != c.want || m.Status.State != v1beta2.StateReady ||
				m.Status.ObservedGeneration != 1 || len(b.runtime.take()) > 0 {
				t.Errorf("reason %s, state %s of generation %d", reason, m.Status.State, m.Status.ObservedGeneration)
			}
			b.delete()
			for range 3 {
				if _, err := b.reconcile(); err != nil {
					t.Fatal(err)
				}
			}
			if b.manifest() != nil || len(b.runtime.paths()) > 0 {
				t.Error("a suspended Manifest cannot be deleted")
			}
		})
	}
}

// TestRelease checks that nothing is changed in the runtime by a deletion that was given up.
func TestRelease(t *testing.T) {
	b := newBench(t, moduleOf(nil))
	b.write("sample", configMap("a", "1"))
	b.settle(v1beta2.StateReady)
	b.edit(func(m *v1beta2.Manifest) {
		m.Annotations = map[string]string{v1beta2.AnnotationDeletionGivenUp: "2026-01-01T00:00:00Z"}
	})
	b.delete()
	b.runtime.take()
	if _, err := b.reconcile(); err != nil || b.manifest() != nil {
		t.Errorf("%v, the Manifest is %v", err, b.manifest())
	}
	if got := b.runtime.take(); len(got) > 0 {
		t.Errorf("requests to a runtime that was given up: %v", got)
	}
}

// ageConditions makes the conditions of a Manifest old, as if its deletion had begun an hour ago.
func ageConditions(m *v1beta2.Manifest) {
	for i := range m.Status.Conditions {
		m.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Hour))
	}
}

// TestOperatorOfDeletedModule checks that a new version is applied if it is requested while the deletion of the module
// is blocked. The operator of the new version may be able to finish the deletion of the module. The new version is not
// applied in two cases: the Manifest was restored from an older state, so the runtime may have a higher version; or the
// purge has started.
func TestOperatorOfDeletedModule(t *testing.T) {
	cases := map[string]struct {
		reason, annotation, want string
	}{
		"Requested": {"the new operator can finish the deletion", "", "2"},
		"Restored":  {"the runtime may have a higher version", v1beta2.AnnotationRuntimeVersion, "1"},
		"Purged":    {"the purge deletes without the operator", v1beta2.AnnotationPurged, "1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newSampleBench(t, v1beta2.CreateAndDelete)
			b.settle(v1beta2.StateReady)
			b.runtime.change(samplePath+"own", func(o map[string]any) {
				o["metadata"].(map[string]any)["finalizers"] = []any{"example.com/operator"}
			})
			b.delete()
			b.settle(v1beta2.StateDeleting)
			b.write("sample", configMap("a", "2"))
			b.edit(func(m *v1beta2.Manifest) {
				m.Generation, m.Spec.Version = 2, "2.0.0"
				if c.annotation != "" {
					metav1.SetMetaDataAnnotation(&m.ObjectMeta, c.annotation, "3.0.0")
				}
			})
			b.editStatus(func(m *v1beta2.Manifest) {
				ageConditions(m)
				if m.IsRestored() { // its inventory has the objects of the version in the runtime
					m.Status.Version, m.Status.AppliedDigest = "3.0.0", v1beta2.DigestUnknown
				}
			})
			for range 3 {
				if _, err := b.reconcile(); err != nil {
					t.Fatal(err)
				}
			}
			if b.manifest() == nil {
				t.Fatal("the Manifest was removed although its custom resource exists")
			}
			if got := b.runtime.object(configMaps + "a")["data"].(map[string]any)["key"]; fmt.Sprint(got) != c.want {
				t.Errorf("%s: the object has %v, want %s", c.reason, got, c.want)
			}
		})
	}
}

// TestRepairedObjectIsDeleted checks that the deletion of a module also deletes an object that it had deleted before,
// and that the repair of the operator has created again in the meantime, because a user has created a custom resource.
func TestRepairedObjectIsDeleted(t *testing.T) {
	b := newSampleBench(t, v1beta2.CreateAndDelete)
	b.write("sample", configMap("a", "1"), configMap("b", "1"))
	b.settle(v1beta2.StateReady)
	b.runtime.change(configMaps+"b", func(o map[string]any) {
		o["metadata"].(map[string]any)["finalizers"] = []any{"example.com/slow"}
	})
	b.delete()
	reconcileUntil := func(want string, reached func() bool) {
		t.Helper()
		for range 10 {
			if reached() {
				return
			}
			if _, err := b.reconcile(); err != nil {
				t.Fatal(err)
			}
		}
		t.Fatalf("%s; there are %v, and the Manifest %v", want, b.runtime.paths(), b.manifest())
	}
	hasA := func() bool { return b.runtime.object(configMaps+"a") != nil }
	reconcileUntil("a is not deleted", func() bool { return !hasA() })
	b.runtime.put(samplePath+"users", map[string]any{"apiVersion": "example.com/v1", "kind": "Sample",
		"metadata": map[string]any{"name": "users", "namespace": "default", "uid": "users"}})
	b.editStatus(ageConditions)
	reconcileUntil("a is not created again for the custom resource", hasA)
	b.runtime.drop(samplePath + "users")
	b.runtime.drop(configMaps + "b")
	reconcileUntil("the deletion does not end", func() bool { return b.manifest() == nil })
	if hasA() {
		t.Error("the Manifest is removed, and the object that was created again remains")
	}
}

// TestReleaseNeedsRemovedAccessSecret checks when a Manifest whose runtime has no access Secret is released.
func TestReleaseNeedsRemovedAccessSecret(t *testing.T) {
	kyma := func(deleted bool) *v1beta2.Kyma {
		k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "a",
			Finalizers: []string{v1beta2.FinalizerKyma}}}
		if deleted {
			k.DeletionTimestamp = new(metav1.Now())
		}
		return k
	}
	cases := map[string]struct {
		reason   string
		kymas    []client.Object
		after    time.Duration
		released bool
	}{
		"Moment":   {"the Secret may be created again", []client.Object{kyma(true)}, time.Second, false},
		"Removed":  {"the cluster was given up", []client.Object{kyma(true)}, time.Minute, true},
		"NoKyma":   {"nobody will create a Secret", nil, time.Minute, true},
		"KymaStay": {"the Kyma needs a Secret", []client.Object{kyma(false)}, time.Hour, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, append(c.kymas, moduleOf(func(m *v1beta2.Manifest) {
					m.Finalizers, m.DeletionTimestamp = ownFinalizers(), new(metav1.Now())
				}))...)
				b.runtime.Close() // no time would pass while the server waits for connections
				kinds := runtime.NewScheme()
				if err := corev1.AddToScheme(kinds); err != nil {
					t.Fatal(err)
				}
				none := fake.NewClientBuilder().WithScheme(kinds).WithIndex(runtimes.NewSecretMetadata(),
					runtimes.KymaNameIndex, runtimes.KymaIndexValues).Build()
				pool, err := runtimes.New(t.Context(), runtimes.Options{Cache: none, Live: none,
					Namespace: "kcp-system"})
				if err != nil {
					t.Fatal(err)
				}
				recorder := events.NewFakeRecorder(10)
				b.r.Runtimes, b.r.Events = pool, recorder
				for range 2 {
					if _, err := b.reconcile(); err != nil {
						t.Fatal(err)
					}
					if m := b.manifest(); m != nil {
						if reason, _ := readyMessage(t, m); reason != v1beta2.ReasonAccessSecretNotFound {
							t.Errorf("%s: reason %s", c.reason, reason)
						}
					}
					time.Sleep(c.after)
				}
				isReleased := b.manifest() == nil
				if isReleased != c.released || isReleased != (len(recorder.Events) > 0) {
					t.Errorf("%s: released %t with %d events, want %t", c.reason, isReleased, len(recorder.Events),
						c.released)
				}
			})
		})
	}
}

// TestNothingIsDeletedForAnotherOwner checks that a Manifest whose deletion waits for a custom resource deletes nothing
// once another Kyma or control plane has taken the runtime over, and that it goes on if the runtime is given back.
func TestNothingIsDeletedForAnotherOwner(t *testing.T) {
	b := newSampleBench(t, v1beta2.CreateAndDelete)
	var owner error
	var verified []types.NamespacedName
	b.r.VerifyOwner = func(_ context.Context, kyma types.NamespacedName, rt *runtimes.Runtime) error {
		if verified = append(verified, kyma); rt == nil {
			t.Error("the owner is verified without a connection")
		}
		return owner
	}
	b.settle(v1beta2.StateReady)
	if len(verified) != 0 {
		t.Errorf("an installation verifies the owner of %v", verified)
	}
	b.delete()
	owner = &runtimes.Error{Code: v1beta2.ReasonRuntimeTaken, Runtime: "a", Message: "it belongs to z"}
	b.runtime.take()
	for range 3 {
		if _, err := b.reconcile(); err == nil {
			t.Error("a reconcile of the deletion returns no error")
		}
	}
	if got := b.runtime.take(); len(got) != 0 {
		t.Errorf("sent %q to the runtime of another owner", got)
	}
	if want := (types.NamespacedName{Namespace: "kcp-system", Name: "a"}); !slices.Contains(verified, want) {
		t.Errorf("verified %v, want %v", verified, want)
	}
	if reason, message := readyMessage(t, b.manifest()); reason != v1beta2.ReasonRuntimeTaken {
		t.Errorf("reason %s, %s", reason, message)
	}
	owner = nil
	for range 20 {
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if b.manifest() != nil || b.runtime.object(configMaps+"a") != nil {
		t.Error("the runtime was given back, but the module is not deleted")
	}
}

const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"

// addCRD adds a CRD to the objects of the module, in the runtime and in the inventory, and makes the runtime serve its
// kind.
func (b *bench) addCRD(plural, kind string) {
	b.t.Helper()
	name := plural + ".example.com"
	b.runtime.kinds["example.com/v1/"+plural] = kind
	b.runtime.put(crds+name, map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": name,
			"annotations":   map[string]any{v1beta2.AnnotationOwnedBy: "kcp-system/m"},
			"managedFields": []any{map[string]any{"manager": v1beta2.FieldOwnerApplier, "operation": "Apply"}}}})
	b.editStatus(func(m *v1beta2.Manifest) {
		m.Status.Synced = append(m.Status.Synced, v1beta2.Resource{Group: "apiextensions.k8s.io", Version: "v1",
			Kind: "CustomResourceDefinition", Name: name})
	})
}

// putCustomResource stores a custom resource in the namespace default of the runtime.
func (b *bench) putCustomResource(plural, kind, name string, metadata map[string]any) {
	metadata["name"], metadata["namespace"] = name, "default"
	b.runtime.put("/apis/example.com/v1/namespaces/default/"+plural+"/"+name, map[string]any{
		"apiVersion": "example.com/v1", "kind": kind, "metadata": metadata})
}

// reconcileTimes reconciles a number of times, and returns the requests to the runtime that change objects.
func (b *bench) reconcileTimes(n int) (writes []string) {
	b.t.Helper()
	b.runtime.take()
	for range n {
		if _, err := b.reconcile(); err != nil {
			b.t.Fatal(err)
		}
	}
	return slices.DeleteFunc(b.runtime.take(), func(line string) bool { return strings.HasPrefix(line, "GET") })
}

// TestUpgradeKeepsNeededCRD checks that an upgrade does not delete a CRD that the bundle does not contain any more if
// the module needs it for its default custom resource, which a user may have configured, or for a custom resource in
// its bundle. The CRD is deleted with the module.
func TestUpgradeKeepsNeededCRD(t *testing.T) {
	const part = "apiVersion: example.com/v1\nkind: Sample\nmetadata: {name: part, namespace: default}\n"
	cases := map[string]struct {
		reason    string
		plural    string
		documents []string // of the new version, besides a ConfigMap
		policy    v1beta2.CustomResourcePolicy
		stays     bool
	}{
		"Default":  {"the default custom resource has this kind", "samples", nil, v1beta2.CreateAndDelete, true},
		"InBundle": {"the new version has a custom resource", "samples", []string{part}, v1beta2.Ignore, true},
		"Unused":   {"nothing has this kind", "bars", nil, v1beta2.CreateAndDelete, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newSampleBench(t, c.policy)
			b.settle(v1beta2.StateReady)
			b.addCRD(c.plural, map[string]string{"samples": "Sample", "bars": "Bar"}[c.plural])
			b.write("sample", append(c.documents, configMap("b", "2"))...)
			b.edit(func(m *v1beta2.Manifest) { m.Generation, m.Spec.Version = 2, "2.0.0" })
			b.reconcileTimes(3)
			m := b.manifest()
			isRecorded := slices.ContainsFunc(m.Status.Synced, func(r v1beta2.Resource) bool {
				return r.Name == c.plural+".example.com"
			})
			exists := b.runtime.object(crds+c.plural+".example.com") != nil
			if exists != c.stays || isRecorded != c.stays {
				t.Errorf("%s: the CRD exists %t, in the inventory %t, want %t", c.reason, exists, isRecorded, c.stays)
			}
			if m.Status.Version != "2.0.0" || b.runtime.object(configMaps+"a") != nil {
				t.Errorf("the upgrade is not complete: %+v", m.Status)
			}
			b.delete()
			b.reconcileTimes(5)
			if m, left := b.manifest(), b.runtime.paths(); m != nil || len(left) > 0 {
				t.Errorf("after the deletion there are %v, and the Manifest %v", left, m)
			}
		})
	}
}

// TestDeleteWithPendingCRD checks a module with a CRD that is in the inventory and may never have been applied. If a
// user has made the CRD, the CRD and its custom resources stay, and the removal does not wait for them.
func TestDeleteWithPendingCRD(t *testing.T) {
	const bar, crd = "/apis/example.com/v1/namespaces/default/bars/bar", crds + "bars.example.com"
	managedBy := func(manager string) []any {
		return []any{map[string]any{"manager": manager, "operation": "Apply", "fieldsV1": map[string]any{}}}
	}
	cases := map[string]struct {
		reason    string
		metadata  map[string]any // of the CRD
		isAllowed bool           // the user allows the deletion of custom resources
		stays     bool           // the CRD with its custom resource
		waits     bool
	}{
		"OfUser": {reason: "a user has made the CRD", metadata: map[string]any{"managedFields": managedBy("kubectl")},
			stays: true},
		"Allowed": {reason: "the user allows the deletion of custom resources of the module", stays: true,
			metadata: map[string]any{"managedFields": managedBy("kubectl")}, isAllowed: true},
		"Created": {reason: "the module has created the CRD", waits: true, stays: true,
			metadata: map[string]any{"managedFields": managedBy(v1beta2.FieldOwnerApplier),
				"annotations": map[string]any{v1beta2.AnnotationOwnedBy: "kcp-system/m"}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, moduleOf(nil))
			b.write("sample", configMap("a", "1"))
			b.settle(v1beta2.StateReady)
			b.addCRD("bars", "Bar")
			c.metadata["name"] = "bars.example.com"
			b.runtime.put(crd, map[string]any{"apiVersion": "apiextensions.k8s.io/v1",
				"kind": "CustomResourceDefinition", "metadata": c.metadata})
			b.editStatus(func(m *v1beta2.Manifest) { m.Status.Synced[len(m.Status.Synced)-1].Pending = true })
			b.putCustomResource("bars", "Bar", "bar", map[string]any{})
			if c.isAllowed {
				b.edit(func(m *v1beta2.Manifest) {
					metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1beta2.AnnotationDeleteCustomResources,
						v1beta2.ValueTrue)
				})
			}
			b.delete()
			b.reconcileTimes(3)
			m := b.manifest()
			if waits := m != nil; waits != c.waits {
				t.Fatalf("%s: the Manifest waits: %t, want %t", c.reason, waits, c.waits)
			}
			if stays := b.runtime.object(crd) != nil && b.runtime.object(bar) != nil; stays != c.stays {
				t.Errorf("%s: the CRD and its custom resource stay: %t, want %t", c.reason, stays, c.stays)
			}
			if exists := b.runtime.object(configMaps+"a") != nil; exists != c.waits {
				t.Errorf("%s: the operator exists: %t, want %t", c.reason, exists, c.waits)
			}
		})
	}
}

// TestDeleteAwaitsDependents checks that the operator of a module is deleted after the custom resources that it has
// made and that have finalizers, because only the operator removes their finalizers.
func TestDeleteAwaitsDependents(t *testing.T) {
	const bar = "/apis/example.com/v1/namespaces/default/bars/bar"
	ofDefault := map[string]any{"apiVersion": "example.com/v1", "kind": "Sample", "name": "own"}
	ofOperator := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}
	finalizers := []any{"example.com/operator"}
	cases := map[string]struct {
		reason     string
		owner      map[string]any
		finalizers []any
		waited     time.Duration // the time that the deletion has already waited
		want       []string      // the first deletions after that of the default custom resource
		waits      bool
	}{
		"NoFinalizer": {"it needs no operator", ofDefault, nil, 0, []string{"DELETE " + configMaps + "a"}, false},
		"OfDefault":   {"the garbage collector deletes it", ofDefault, finalizers, 0, nil, true},
		"OfOperator": {"its owner exists as long as the operator", ofOperator, finalizers, 0,
			[]string{"DELETE " + bar}, true},
		"Forgotten": {"the garbage collector does not delete it", ofDefault, finalizers, garbagePeriod,
			[]string{"DELETE " + bar}, true},
		"Again": {"the operator creates it again", ofDefault, finalizers, 2 * garbagePeriod,
			[]string{"DELETE " + configMaps + "a"}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newSampleBench(t, v1beta2.CreateAndDelete)
			b.settle(v1beta2.StateReady)
			b.addCRD("samples", "Sample")
			b.addCRD("bars", "Bar")
			metadata := map[string]any{"ownerReferences": []any{c.owner}}
			if c.finalizers != nil {
				metadata["finalizers"] = c.finalizers
			}
			b.putCustomResource("bars", "Bar", "bar", metadata)
			b.delete()
			if c.waited > 0 {
				memory := b.r.memoryOf(client.ObjectKey{Namespace: "kcp-system", Name: "m"}, b.manifest().UID)
				memory.dependents = dependentsWait{fewest: 0, since: time.Now().Add(-c.waited)}
			}
			writes := b.reconcileTimes(1)
			want := append([]string{"DELETE " + samplePath + "own"}, c.want...)
			if !slices.Equal(writes[:min(len(writes), len(want))], want) || c.waits && len(writes) != len(want) {
				t.Errorf("%s: deletions are %q, want %q", c.reason, writes, want)
			}
			if exists := b.runtime.object(configMaps+"a") != nil; exists != c.waits {
				t.Fatalf("%s: the operator exists %t, want %t", c.reason, exists, c.waits)
			}
			if !c.waits {
				return
			}
			b.runtime.change(bar, func(o map[string]any) { // as the garbage collector does
				o["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-02T03:04:05Z"
			})
			if writes := b.reconcileTimes(3); len(writes) > 0 {
				t.Errorf("%s: while the operator works, requests are %q", c.reason, writes)
			}
			reason, message := readyMessage(t, b.manifest())
			if reason != v1beta2.ReasonObjectsRemaining ||
				!strings.Contains(message, "Bar.example.com default/bar with finalizers example.com/operator") {
				t.Errorf("%s: %s: %s", c.reason, reason, message)
			}
			b.runtime.drop(bar)
			b.reconcileTimes(3)
			if m, left := b.manifest(), b.runtime.paths(); m != nil || len(left) > 0 {
				t.Errorf("%s: after the deletion there are %v, and the Manifest %v", c.reason, left, m)
			}
		})
	}
}

// TestDeleteAwaitsDependentsOfInventory checks that custom resources of the inventory are deleted before the operator,
// and that the deletion waits for the custom resources that the operator has made for them. The repair of the operator
// must not create the custom resources of the inventory again in the meantime.
func TestDeleteAwaitsDependentsOfInventory(t *testing.T) {
	const bar, part = "/apis/example.com/v1/namespaces/default/bars/bar", samplePath + "part"
	b := newSampleBench(t, v1beta2.Ignore)
	b.write("sample", configMap("a", "1"),
		"apiVersion: example.com/v1\nkind: Sample\nmetadata: {name: part, namespace: default}\n")
	b.settle(v1beta2.StateReady)
	b.addCRD("samples", "Sample")
	b.addCRD("bars", "Bar")
	b.putCustomResource("bars", "Bar", "bar", map[string]any{"finalizers": []any{"example.com/operator"},
		"ownerReferences": []any{map[string]any{"apiVersion": "example.com/v1", "kind": "Sample", "name": "part"}}})
	b.delete()
	b.editStatus(ageConditions)
	if writes := b.reconcileTimes(4); !slices.Equal(writes, []string{"DELETE " + part}) {
		t.Errorf("while the operator works, requests are %q", writes)
	}
	if b.runtime.object(configMaps+"a") == nil {
		t.Fatal("the operator is deleted before the custom resource that it has made")
	}
	if reason, message := readyMessage(t, b.manifest()); !strings.Contains(message, "Bar.example.com default/bar") {
		t.Errorf("%s: %s", reason, message)
	}
	b.runtime.drop(bar)
	b.reconcileTimes(3)
	if m, left := b.manifest(), b.runtime.paths(); m != nil || len(left) > 0 {
		t.Errorf("after the deletion there are %v, and the Manifest %v", left, m)
	}
}

// TestDeleteWithoutDependentsSendsNoRequestForThem checks that a module costs one list request for each CRD, although
// the deletion also looks for custom resources that the operator has made.
func TestDeleteWithoutDependentsSendsNoRequestForThem(t *testing.T) {
	b := newSampleBench(t, v1beta2.CreateAndDelete)
	b.settle(v1beta2.StateReady)
	b.addCRD("samples", "Sample")
	b.addCRD("bars", "Bar")
	b.delete()
	b.runtime.take()
	if _, err := b.reconcile(); err != nil || b.manifest() != nil {
		t.Fatalf("%v, the Manifest is %v", err, b.manifest())
	}
	got := map[string]int{}
	for _, line := range b.runtime.take() {
		if strings.HasSuffix(line, "/samples") || strings.HasSuffix(line, "/bars") || strings.HasSuffix(line, "/own") {
			got[line]++
		}
	}
	want := map[string]int{"GET /apis/example.com/v1/samples": 1, "GET /apis/example.com/v1/bars": 1,
		"DELETE " + samplePath + "own": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests about custom resources, -want +got:\n%s", diff)
	}
}

// TestDeadWebhookDoesNotPreventRepair checks that the operator of a module is repaired during its deletion if its
// conversion webhook does not answer, so that the custom resources of users cannot be listed.
func TestDeadWebhookDoesNotPreventRepair(t *testing.T) {
	b := newSampleBench(t, v1beta2.CreateAndDelete)
	b.settle(v1beta2.StateReady)
	b.runtime.failWith(func(line string) (int, string) {
		if line == "GET /apis/example.com/v1/samples" {
			return 500, "conversion webhook for example.com/v2, Kind=Sample failed: no endpoints"
		}
		return 0, ""
	})
	b.delete()
	b.reconcileTimes(1)
	b.runtime.drop(configMaps + "a")
	b.write("sample", configMap("a", "2"))
	b.edit(func(m *v1beta2.Manifest) { m.Generation, m.Spec.Version = 2, "2.0.0" })
	b.editStatus(ageConditions)
	b.reconcileTimes(3)
	a := b.runtime.object(configMaps + "a")
	if a == nil || fmt.Sprint(a["data"].(map[string]any)["key"]) != "2" {
		t.Errorf("the operator of the requested version is not applied: %v", a)
	}
	if reason, message := readyMessage(t, b.manifest()); reason != v1beta2.ReasonWebhookFailed ||
		!strings.Contains(message, "no endpoints") {
		t.Errorf("%s: %s", reason, message)
	}
	if b.runtime.object(samplePath+"own") == nil {
		t.Error("the custom resource is deleted although custom resources of users may exist")
	}
	b.runtime.failWith(nil)
	b.reconcileTimes(5)
	if b.manifest() != nil {
		t.Error("the webhook answers again, but the module is not deleted")
	}
}

// TestDeleteAfterRefusedCRD checks that the default custom resource does not count as deleted if its scope is cached
// from a CRD that the API server has refused. Otherwise its operator would be deleted before it removes the finalizer.
func TestDeleteAfterRefusedCRD(t *testing.T) {
	b := newSampleBench(t, v1beta2.CreateAndDelete)
	b.settle(v1beta2.StateReady)
	b.write("sample", configMap("a", "1"), "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"+
		"metadata: {name: samples.example.com}\nspec:\n  group: example.com\n  scope: Cluster\n"+
		"  names: {kind: Sample, plural: samples}\n  versions: [{name: v1, served: true, storage: true}]\n")
	b.edit(func(m *v1beta2.Manifest) { m.Generation, m.Spec.Version = 2, "2.0.0" })
	b.runtime.failWith(func(line string) (int, string) {
		switch {
		case strings.HasPrefix(line, "PATCH "+crds):
			return 422, "Invalid"
		case strings.HasSuffix(line, " /apis/example.com/v1/samples/own"):
			return 404, "" // the kind has another scope
		}
		return 0, ""
	})
	for range 3 {
		if _, err := b.reconcile(); err == nil {
			t.Fatal("the API server refuses the CRD, but the reconcile returns no error")
		}
	}
	b.runtime.change(samplePath+"own", func(o map[string]any) {
		o["metadata"].(map[string]any)["finalizers"] = []any{"example.com/operator"}
	})
	b.delete()
	for range 2 {
		b.reconcileTimes(2)
		if b.runtime.object(configMaps+"a") == nil {
			t.Fatal("the operator is deleted before the custom resource")
		}
		if reason, message := readyMessage(t, b.manifest()); !strings.Contains(message, "example.com/operator") {
			t.Errorf("%s: %s", reason, message)
		}
		b.editStatus(ageConditions) // the repair of the operator reads the bundle again
	}
	b.runtime.drop(samplePath + "own")
	b.reconcileTimes(5)
	if m, left := b.manifest(), b.runtime.paths(); m != nil || len(left) > 0 {
		t.Errorf("after the deletion there are %v, and the Manifest %v", left, m)
	}
}
