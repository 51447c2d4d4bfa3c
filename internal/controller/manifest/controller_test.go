package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/source"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

const configMaps = "/api/v1/namespaces/default/configmaps/"

// patches returns those of the requests that are PATCHes of ConfigMaps.
func patches(names ...string) []string {
	lines := []string{}
	for _, name := range names {
		lines = append(lines, "PATCH "+configMaps+name)
	}
	return lines
}

// names returns the names of the objects in the inventory.
func names(m *v1beta2.Manifest) []string {
	all := []string{}
	for _, r := range m.Status.Synced {
		all = append(all, r.Name)
	}
	return all
}

// readyMessage returns the reason and the message of the condition Ready.
func readyMessage(t *testing.T, m *v1beta2.Manifest) (reason, message string) {
	t.Helper()
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionReady)
	if c == nil {
		t.Fatalf("there is no condition Ready: %+v", m.Status)
	}
	return c.Reason, c.Message
}

// TestInstall checks that each object is sent once, and that the status is written twice. A reconcile of an unchanged
// Manifest must send no request to the runtime and write no status.
func TestInstall(t *testing.T) {
	b := newBench(t, moduleOf(nil))
	b.write("sample", configMap("a", "1"), configMap("b", "1"))
	got := slices.Sorted(slices.Values(b.settle(v1beta2.StateReady)))
	if diff := cmp.Diff(patches("a", "b"), got); diff != "" {
		t.Errorf("requests of an installation, -want +got:\n%s", diff)
	}
	steps := []string{"adopt", "connect", "decide", "reach", "render", "record", "apply", "resource", "prune",
		"observe", "audit", "publish"}
	if diff := cmp.Diff(steps, b.steps); diff != "" {
		t.Errorf("steps, -want +got:\n%s", diff)
	}
	m := b.manifest()
	if diff := cmp.Diff([]string{"a", "b"}, names(m)); diff != "" ||
		m.Status.Version != "1.0.0" || b.statusWrites != 2 {
		t.Errorf("version %s after %d writes of the status; inventory, -want +got:\n%s",
			m.Status.Version, b.statusWrites, diff)
	}
	result, err := b.reconcile()
	if err != nil || len(b.runtime.take()) != 0 || b.statusWrites != 2 {
		t.Errorf("an unchanged Manifest: %v, requests %v, %d writes of the status", err,
			b.runtime.take(), b.statusWrites)
	}
	if least, most := time.Hour*7/8, time.Hour*9/8; result.RequeueAfter < least || result.RequeueAfter > most {
		t.Errorf("the next audit is in %s, want %s to %s", result.RequeueAfter, least, most)
	}
}

// TestUpgrade checks that the objects of the new version are applied before the objects of the former version are
// deleted. Until the former objects are deleted, the inventory has the objects of the former and of the new version. If
// the module goes back to the former version, the objects that were deleted are created again.
func TestUpgrade(t *testing.T) {
	b := newBench(t, moduleOf(nil))
	b.write("sample", configMap("a", "1"), configMap("b", "1"))
	b.settle(v1beta2.StateReady)

	b.write("sample", configMap("a", "1"), configMap("c", "1"))
	b.edit(func(m *v1beta2.Manifest) { m.Spec.Version, m.Generation = "2.0.0", 2 })
	b.runtime.failWith(func(line string) (int, string) {
		if strings.HasPrefix(line, "PATCH") && strings.HasSuffix(line, "/c") {
			return 403, "Forbidden"
		}
		return 0, ""
	})
	b.runtime.take()
	_, err := b.reconcile()
	m := b.manifest()
	if diff := cmp.Diff([]string{"a", "c", "b"}, names(m)); diff != "" || m.Status.Version != "1.0.0" || err == nil {
		t.Errorf("before all is applied: %v, version %s, inventory -want +got:\n%s", err, m.Status.Version, diff)
	}
	if reason, message := readyMessage(t, m); m.Status.State != v1beta2.StateError || reason != apply.ObjectRefused ||
		!strings.Contains(message, "c") {
		t.Errorf("a refused object: %s, %s: %s", m.Status.State, reason, message)
	}
	if slices.ContainsFunc(b.runtime.take(), func(line string) bool { return strings.HasPrefix(line, "DELETE") }) {
		t.Error("an object of the former version was deleted before the new ones exist")
	}

	b.runtime.failWith(nil)
	got := b.settle(v1beta2.StateReady)
	first := slices.Index(got, "PATCH "+configMaps+"c")
	last := slices.Index(got, "DELETE "+configMaps+"b")
	if first < 0 || last < first {
		t.Errorf("requests are %v, want c to be applied before b is deleted", got)
	}
	m = b.manifest()
	if diff := cmp.Diff([]string{"a", "c"}, names(m)); diff != "" || m.Status.Version != "2.0.0" {
		t.Errorf("after it: version %s, inventory -want +got:\n%s", m.Status.Version, diff)
	}

	b.write("sample", configMap("a", "1"), configMap("b", "1"))
	b.edit(func(m *v1beta2.Manifest) { m.Spec.Version, m.Generation = "1.0.0", 3 })
	got = b.settle(v1beta2.StateReady)
	want := []string{"PATCH " + configMaps + "b", "DELETE " + configMaps + "c"}
	if diff := cmp.Diff(want, got); diff != "" || b.runtime.object(configMaps+"b") == nil {
		t.Errorf("back to the former version, requests are -want +got:\n%s", diff)
	}
}

// TestWritesOfUpgrade counts the writes of the status during an upgrade. A fast upgrade without new objects costs one
// write. New objects cost another write, which also shows that the upgrade has begun. No time passes during the test,
// because an upgrade that takes longer costs more writes.
func TestWritesOfUpgrade(t *testing.T) {
	cases := map[string]struct {
		reason  string
		objects []string // of the new version
		slow    bool     // the custom resource does not become ready within processingSaveDelay
		want    int
	}{
		"Same":        {"only the end is saved", []string{configMap("a", "2"), configMap("b", "2")}, false, 1},
		"Fewer":       {"the saved inventory has too many objects for a moment", []string{configMap("a", "2")}, false, 1},
		"More":        {"the inventory, and the end", []string{configMap("a", "2"), configMap("c", "1")}, false, 2},
		"Slow":        {"people see the state Processing", []string{configMap("a", "2"), configMap("b", "2")}, true, 2},
		"MoreAndSlow": {"likewise", []string{configMap("a", "2"), configMap("c", "1")}, true, 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newSampleBench(t, v1beta2.CreateAndDelete)
				setState := func(state string) {
					b.runtime.change(samplePath+"own", func(o map[string]any) {
						o["status"] = map[string]any{"state": state}
					})
				}
				b.write("sample", configMap("a", "1"), configMap("b", "1"))
				b.settle(v1beta2.StateReady)
				b.edit(func(m *v1beta2.Manifest) {
					metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1beta2.AnnotationCustomStateCheck, v1beta2.ValueTrue)
				})
				setState("Ready")
				b.settle(v1beta2.StateReady)

				b.write("sample", c.objects...)
				b.edit(func(m *v1beta2.Manifest) { m.Spec.Version, m.Generation = "2.0.0", 2 })
				setState("Processing")
				b.ageSeen()
				before := b.statusWrites
				result, err := b.reconcile()
				if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > processingSaveDelay {
					t.Fatalf("%v; the next reconcile is in %s", err, result.RequeueAfter)
				}
				begun := b.manifest().Status
				if isNew := c.want == 2 && !c.slow || name == "MoreAndSlow"; isNew !=
					(begun.State == v1beta2.StateProcessing && begun.ObservedGeneration == 2) ||
					!isNew && (begun.State != v1beta2.StateReady || begun.ObservedGeneration != 1) ||
					begun.Version != "1.0.0" {
					t.Errorf("%s: the saved status is %s of generation %d, version %s", c.reason, begun.State,
						begun.ObservedGeneration, begun.Version)
				}
				if c.slow {
					key := client.ObjectKeyFromObject(b.manifest())
					if d := b.r.memoryOf(key, b.manifest().UID).deferred.status; d != nil {
						since(d, processingSaveDelay+time.Second)
					}
					if _, err := b.reconcile(); err != nil {
						t.Fatal(err)
					}
					if got := b.manifest().Status; got.State != v1beta2.StateProcessing || got.ObservedGeneration != 2 {
						t.Errorf("%s: after %s, the status is %s of generation %d", c.reason, processingSaveDelay,
							got.State, got.ObservedGeneration)
					}
				}
				setState("Ready")
				b.ageSeen()
				b.settle(v1beta2.StateReady)
				m := b.manifest()
				if got := b.statusWrites - before; got != c.want || m.Status.Version != "2.0.0" ||
					m.Status.LastChange.From != "1.0.0" {
					t.Errorf("%s: %d writes, want %d; version %s, changed from %s", c.reason, got, c.want,
						m.Status.Version, m.Status.LastChange.From)
				}
			})
		})
	}
}

// TestCrashInUpgrade checks that an upgrade is completed although its start was not saved: a process that knows nothing
// sends the objects again. No time passes during the test, because the start of a slow upgrade is saved.
func TestCrashInUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSampleBench(t, v1beta2.CreateAndDelete)
		b.edit(func(m *v1beta2.Manifest) {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1beta2.AnnotationCustomStateCheck, v1beta2.ValueTrue)
		})
		b.write("sample", configMap("a", "1"), configMap("b", "1"))
		setState := func(state string) {
			b.runtime.change(samplePath+"own", func(o map[string]any) { o["status"] = map[string]any{"state": state} })
		}
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
		setState("Ready")
		b.ageSeen()
		b.settle(v1beta2.StateReady)

		b.write("sample", configMap("a", "2"))
		b.edit(func(m *v1beta2.Manifest) { m.Spec.Version, m.Generation = "2.0.0", 2 })
		setState("Processing")
		b.ageSeen()
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a", "b"}, names(b.manifest())); diff != "" {
			t.Errorf("the inventory still has the deleted object, -want +got:\n%s", diff)
		}
		b.r.memories.Forget(client.ObjectKeyFromObject(b.manifest()))
		setState("Ready")
		b.settle(v1beta2.StateReady)
		m := b.manifest()
		if diff := cmp.Diff([]string{"a"}, names(m)); diff != "" || m.Status.Version != "2.0.0" ||
			b.runtime.object(configMaps+"b") != nil {
			t.Errorf("version %s; inventory, -want +got:\n%s", m.Status.Version, diff)
		}
	})
}

// TestEmptySource checks that a source without objects causes an error, and that no installed object is deleted because
// of such a source.
func TestEmptySource(t *testing.T) {
	b := newBench(t, moduleOf(nil))
	b.write("sample", configMap("a", "1"))
	b.settle(v1beta2.StateReady)
	b.write("sample", "# nothing\n")
	b.edit(func(m *v1beta2.Manifest) { m.Spec.Version, m.Generation = "2.0.0", 2 })
	if _, err := b.reconcile(); err == nil {
		t.Error("a source without objects is no error")
	}
	if diff := cmp.Diff([]string{configMaps + "a"}, b.runtime.paths()); diff != "" ||
		b.manifest().Status.State != v1beta2.StateError {
		t.Errorf("state %s, objects -want +got:\n%s", b.manifest().Status.State, diff)
	}
}

// TestEmptySourceBesideAnother checks a new version in which one of two sources has lost its objects. Manifests without
// objects are an error that names the source, and none of their objects is deleted. A chart may render no object, for
// example because its values disable it, so its objects are deleted.
func TestEmptySourceBesideAnother(t *testing.T) {
	chart := func(b *bench, templates string) {
		dir := filepath.Join(b.sources, "other")
		if err := os.CopyFS(dir, fstest.MapFS{
			"Chart.yaml": {Data: []byte("apiVersion: v2\nname: other\nversion: 1.0.0\n")}}); err != nil &&
			!errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, "templates"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "templates", "all.yaml"), []byte(templates), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		reason string
		write  func(b *bench, objects string)
		state  v1beta2.State
		want   []string
	}{
		"Manifests": {"they were built by mistake", func(b *bench, objects string) { b.write("other", objects) },
			v1beta2.StateError, []string{configMaps + "a", configMaps + "b"}},
		"Chart": {"its templates decide", chart, v1beta2.StateReady, []string{configMaps + "a"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, moduleOf(func(m *v1beta2.Manifest) {
				other := m.Spec.Installs[0]
				other.Name, other.Source.Raw = "other", []byte(`{"path":"other","type":"kustomize"}`)
				m.Spec.Installs = append(m.Spec.Installs, other)
			}))
			b.write("sample", configMap("a", "1"))
			c.write(b, configMap("b", "1"))
			b.settle(v1beta2.StateReady)
			c.write(b, "# nothing\n")
			b.edit(func(m *v1beta2.Manifest) { m.Spec.Version, m.Generation = "2.0.0", 2 })
			if c.state == v1beta2.StateReady {
				b.settle(c.state)
			} else if _, err := b.reconcile(); !errors.Is(err, source.EmptyError{}) ||
				!strings.Contains(err.Error(), "rendering other") {
				t.Errorf("%s: got %v, want an error that names the source", c.reason, err)
			}
			if diff := cmp.Diff(c.want, b.runtime.paths()); diff != "" || b.manifest().Status.State != c.state {
				t.Errorf("%s: state %s, objects -want +got:\n%s", c.reason, b.manifest().Status.State, diff)
			}
		})
	}
}

// TestDuplicateObject checks that two sources may contain the same object only if its content is equal in both.
func TestDuplicateObject(t *testing.T) {
	for second, want := range map[string]v1beta2.State{"1": v1beta2.StateReady, "2": v1beta2.StateError} {
		b := newBench(t, moduleOf(func(m *v1beta2.Manifest) {
			other := m.Spec.Installs[0]
			other.Name, other.Source.Raw = "other", []byte(`{"path":"other","type":"kustomize"}`)
			m.Spec.Installs = append(m.Spec.Installs, other)
		}))
		b.write("sample", configMap("a", "1"))
		b.write("other", configMap("a", second), configMap("b", "1"))
		_, err := b.reconcile()
		m := b.manifest()
		isDuplicate := loop.Reason(err) == v1beta2.ReasonDuplicateObject
		if m.Status.State != want || (want == v1beta2.StateError) != isDuplicate {
			t.Errorf("value 1 and value %s: %s, %v", second, m.Status.State, err)
		}
		if want == v1beta2.StateError && len(b.runtime.paths()) > 0 {
			t.Errorf("something was applied: %v", b.runtime.paths())
		}
	}
}

// TestDrift checks that an object that another field manager has changed or deleted is corrected. If an annotation of
// the Manifest states that drift is only reported, the object is not corrected.
func TestDrift(t *testing.T) {
	cases := map[string]struct {
		reason  string
		report  bool
		deleted bool
		want    v1beta2.State
		sent    bool
	}{
		"Changed": {reason: "a changed object is applied again", want: v1beta2.StateReady, sent: true},
		"Deleted": {
			reason:  "a deleted object is created again",
			deleted: true,
			want:    v1beta2.StateReady,
			sent:    true,
		},
		"ReportOnly": {reason: "a changed object is reported", report: true, want: v1beta2.StateWarning},
		"ReportDeletion": {
			reason:  "a deleted object is reported",
			report:  true,
			deleted: true,
			want:    v1beta2.StateWarning,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, moduleOf(func(m *v1beta2.Manifest) {
				if c.report {
					m.Annotations = map[string]string{v1beta2.AnnotationDrift: v1beta2.DriftReport}
				}
			}))
			b.write("sample", configMap("a", "1"), configMap("b", "1"))
			b.settle(v1beta2.StateReady)
			if c.deleted {
				b.runtime.drop(configMaps + "a")
			} else {
				b.runtime.change(configMaps+"a", func(o map[string]any) { o["data"] = map[string]any{"key": "other"} })
			}
			memory := b.r.memoryOf(client.ObjectKeyFromObject(b.manifest()), "m-1")
			memory.audited = time.Now().Add(-2 * time.Hour)
			b.settle(c.want)
			value := b.runtime.object(configMaps + "a")
			if corrected := fmt.Sprint(value["data"]) == "map[key:1]"; corrected != c.sent {
				t.Errorf("%s: the object is %v", c.reason, value)
			}
			if reason, message := readyMessage(t, b.manifest()); c.report &&
				(reason != v1beta2.ReasonDriftDetected || !strings.Contains(message, "default/a")) {
				t.Errorf("%s: %s: %s", c.reason, reason, message)
			}
		})
	}
}

// TestDriftDuringUpgrade checks an object that was deleted while another version was requested: it is created again,
// although its content is the same in both versions. If another client has created it again, it is adopted.
func TestDriftDuringUpgrade(t *testing.T) {
	ref := apply.Ref{Version: "v1", Kind: "ConfigMap", Namespace: "default", Name: "a"}
	for name, c := range map[string]struct {
		change  changes
		byOther bool // another client has created the object again
	}{
		"Event":        {change: changes{objects: map[apply.Ref]objectEvent{ref: {deleted: true}}}},
		"Retried":      {change: changes{retried: true}},
		"CreatedAgain": {changes{objects: map[apply.Ref]objectEvent{ref: {uid: "other"}}}, true},
		"RetriedCreatedAgain": {changes{retried: true, objects: map[apply.Ref]objectEvent{ref: {uid: "other"}}},
			true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, moduleOf(nil))
			b.write("sample", configMap("a", "1"), configMap("b", "1"))
			b.settle(v1beta2.StateReady)
			if c.byOther {
				b.runtime.change(configMaps+"a", func(o map[string]any) {
					meta := o["metadata"].(map[string]any)
					meta["uid"], meta["annotations"] = "other", nil
				})
			} else {
				b.runtime.drop(configMaps + "a")
			}
			b.r.memoryOf(client.ObjectKeyFromObject(b.manifest()), "m-1").restoreChanges(c.change)
			b.write("sample", configMap("a", "1"), configMap("b", "2"))
			b.edit(func(m *v1beta2.Manifest) { m.Spec.Version, m.Generation = "2.0.0", 2 })
			for range 3 {
				if _, err := b.reconcile(); err != nil {
					t.Fatal(err)
				}
			}
			if b.manifest().Status.Version != "2.0.0" || b.runtime.object(configMaps+"a") == nil {
				t.Fatalf("version %s is installed, the objects are %v", b.manifest().Status.Version, b.runtime.paths())
			}
			annotations := b.runtime.object(configMaps + "a")["metadata"].(map[string]any)["annotations"]
			adopted, _ := annotations.(map[string]any)[apply.AnnotationAdopted].(string)
			if (adopted == "true") != c.byOther {
				t.Errorf("the annotations are %v, want an adopted object: %t", annotations, c.byOther)
			}
		})
	}
}

// TestLongErrorIsReported checks an error that is longer than the limit of a condition message: the runtime denies
// reads of 120 objects. The status must report the error in a shortened form, because a message that is too long would
// be refused and the Manifest would stay Ready.
func TestLongErrorIsReported(t *testing.T) {
	b := newBench(t, moduleOf(nil))
	var all []string
	for i := range 120 {
		all = append(all, configMap(
			fmt.Sprintf("a-config-map-with-quite-a-long-name-so-that-its-error-is-long-too-%03d", i), "1"))
	}
	b.write("sample", all...)
	b.settle(v1beta2.StateReady)
	b.runtime.failWith(func(line string) (int, string) { return 403, strings.Repeat("Forbidden", 40) })
	memory := b.r.memoryOf(client.ObjectKeyFromObject(b.manifest()), "m-1")
	memory.audited = time.Now().Add(-2 * time.Hour)
	_, err := b.reconcile()
	if err == nil {
		t.Fatal("the audit found nothing")
	}
	m := b.manifest()
	reason, message := readyMessage(t, m)
	if m.Status.State != v1beta2.StateError || len(message) == 0 || len(message) > loop.SummaryLimit ||
		len(m.Status.LastOperation.Operation) > loop.SummaryLimit {
		t.Errorf("after an error of %d bytes the state is %s, %s with %d bytes", len(err.Error()),
			m.Status.State, reason, len(message))
	}
}

// TestFinalizersOfOthers checks that a finalizer is not lost if another client adds it while this controller changes
// its own finalizers.
func TestFinalizersOfOthers(t *testing.T) {
	const other = "example.com/other"
	addOther := func(b *bench) func() {
		return func() { b.edit(func(m *v1beta2.Manifest) { m.Finalizers = append(m.Finalizers, other) }) }
	}
	for _, deleting := range []bool{false, true} {
		b := newBench(t, moduleOf(nil))
		b.write("sample", configMap("a", "1"))
		if deleting {
			b.settle(v1beta2.StateReady)
			b.delete()
		}
		b.beforePatch = addOther(b)
		result, err := b.reconcile()
		if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > time.Second {
			t.Errorf("deleting %t: a conflict gives %v, again after %s; want a retry soon",
				deleting, err, result.RequeueAfter)
		}
		if m := b.manifest(); m == nil || !slices.Contains(m.Finalizers, other) {
			t.Fatalf("deleting %t: the finalizer of others was lost: %v", deleting, m)
		}
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
		want := []string{other, v1beta2.FinalizerManifest, v1beta2.FinalizerLabelRemoval}
		if deleting {
			want = []string{other}
		}
		if diff := cmp.Diff(want, b.manifest().Finalizers); diff != "" {
			t.Errorf("deleting %t: finalizers -want +got:\n%s", deleting, diff)
		}
	}
}

// TestAwaitFinalizers checks the status of a Manifest from which this controller has removed its finalizers: the status
// names the remaining finalizers of other controllers.
func TestAwaitFinalizers(t *testing.T) {
	b := newBench(t, moduleOf(nil))
	b.write("sample", configMap("a", "1"))
	b.settle(v1beta2.StateReady)
	b.edit(func(m *v1beta2.Manifest) { m.Finalizers = append(m.Finalizers, "example.com/a", "example.com/b") })
	b.delete()
	for _, want := range []string{"its finalizers example.com/a, example.com/b:", "its finalizer example.com/b:"} {
		b.runtime.take()
		result, err := b.reconcile()
		if err != nil || result.RequeueAfter == 0 {
			t.Fatalf("a released Manifest: %v, again after %s", err, result.RequeueAfter)
		}
		reason, message := readyMessage(t, b.manifest())
		if reason != v1beta2.ReasonFinalizersRemaining || !strings.Contains(message, want) {
			t.Errorf("reason %s, message %q, want %q", reason, message, want)
		}
		b.edit(func(m *v1beta2.Manifest) { m.Finalizers = []string{"example.com/b"} })
	}
	if got := b.runtime.take(); len(got) > 0 {
		t.Errorf("requests to the runtime after the release: %v", got)
	}
}

// TestUpgradeKeepsNamespaceOfItsObjects checks an upgrade to a version that no longer contains the namespace of its
// objects: the namespace stays in the inventory, and is deleted with the module.
func TestUpgradeKeepsNamespaceOfItsObjects(t *testing.T) {
	const namespace, object = "/api/v1/namespaces/foo", "/api/v1/namespaces/foo/configmaps/op"
	own := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: op, namespace: foo}\n"
	b := newBench(t, moduleOf(nil))
	b.write("sample", "apiVersion: v1\nkind: Namespace\nmetadata: {name: foo}\n", own, configMap("a", "1"))
	b.settle(v1beta2.StateReady)
	for i, documents := range [][]string{{own, configMap("a", "1")}, {own}} { // the second upgrade deletes an object
		version := fmt.Sprintf("%d.0.0", i+2)
		b.write("sample", documents...)
		b.edit(func(m *v1beta2.Manifest) { m.Spec.Version, m.Generation = version, int64(i+2) })
		b.settle(v1beta2.StateReady)
		m := b.manifest()
		recorded := slices.ContainsFunc(m.Status.Synced, func(r v1beta2.Resource) bool { return r.Kind == "Namespace" })
		if m.Status.Version != version || !recorded || b.runtime.object(namespace) == nil ||
			b.runtime.object(object) == nil {
			t.Fatalf("version %s is installed, the inventory is %v, the objects are %v", m.Status.Version,
				m.Status.Synced, b.runtime.paths())
		}
	}
	if b.runtime.object(configMaps+"a") != nil {
		t.Error("the object that the third version does not contain was not deleted")
	}
	b.delete()
	for range 5 {
		if _, err := b.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if left := b.runtime.paths(); b.manifest() != nil || len(left) > 0 {
		t.Errorf("after the removal there are %v, and the Manifest %v", left, b.manifest())
	}
}

// TestUnservedObjectIsNotPruned checks an object of the module whose version the runtime no longer serves, although it
// serves the object in another version. After a restart, drift is only reported, so nothing is applied; the object must
// not be deleted as an object of a former version.
func TestUnservedObjectIsNotPruned(t *testing.T) {
	b := newBench(t, moduleOf(func(m *v1beta2.Manifest) {
		m.Annotations = map[string]string{v1beta2.AnnotationDrift: v1beta2.DriftReport}
	}))
	b.runtime.kinds["example.com/v1beta1/samples"] = "Sample"
	b.write("sample", configMap("a", "1"),
		"apiVersion: example.com/v1beta1\nkind: Sample\nmetadata: {name: mine, namespace: default}\n")
	b.settle(v1beta2.StateReady)
	former := strings.Replace(samplePath, "v1", "v1beta1", 1) + "mine"
	object := b.runtime.object(former)
	if object == nil {
		t.Fatalf("the objects are %v", b.runtime.paths())
	}
	b.runtime.drop(former)
	b.runtime.put(samplePath+"mine", object)
	b.runtime.mu.Lock()
	b.runtime.kinds = map[string]string{"example.com/v1/samples": "Sample"}
	b.runtime.mu.Unlock()
	b.r.forget(client.ObjectKeyFromObject(b.manifest()))
	b.r.Runtimes.Remove("a")
	for range 3 {
		if _, err := b.reconcile(); loop.Reason(err) != apply.KindUnknown {
			t.Errorf("got %v, want %s", err, apply.KindUnknown)
		}
		if m := b.manifest(); m.Status.State != v1beta2.StateError {
			t.Errorf("the state is %s: %s", m.Status.State, m.Status.LastOperation.Operation)
		}
	}
	if b.runtime.object(samplePath+"mine") == nil {
		t.Error("the object was deleted")
	}
}

// TestStateExpressionOfContent checks an expression that fails on the content of the custom resource. The error must
// not be terminal: the content may change, and without events nothing else would trigger a reconcile.
func TestStateExpressionOfContent(t *testing.T) {
	cases := map[string]struct {
		reason, expression string
		terminal           bool
	}{
		"Content": {"a field has another type now", `self.status.ready > 3`, false},
		"Invalid": {"the expression can never be evaluated", `self.status. > 3`, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newSampleBench(t, v1beta2.CreateAndDelete)
			b.r.CustomStateCheck = true
			b.r.Runtimes.RecordAgentConnection("a", runtimes.AgentDisconnected)
			b.edit(func(m *v1beta2.Manifest) { m.Spec.StateExpression = c.expression })
			b.runtime.put(samplePath+"own", map[string]any{"apiVersion": "example.com/v1", "kind": "Sample",
				"metadata": map[string]any{"name": "own", "namespace": "default"},
				"status":   map[string]any{"ready": "no"}})
			var err error
			for range 5 {
				if _, err = b.reconcile(); err != nil {
					break
				}
				b.ageSeen()
			}
			if loop.Reason(err) != apply.StateRuleInvalid ||
				errors.Is(err, reconcile.TerminalError(nil)) != c.terminal {
				t.Errorf("%s: got %v, want terminal %t", c.reason, err, c.terminal)
			}
		})
	}
}
