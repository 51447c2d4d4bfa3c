package eventrecorder

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// recorded has the notes of recorded events, by action.
type recorded struct {
	events.EventRecorder
	notes map[string][]string
}

func (r *recorded) Eventf(_, _ runtime.Object, _, _, action, note string, args ...any) {
	r.notes[action] = append(r.notes[action], fmt.Sprintf(note, args...))
}

func (r *recorded) count() (n int) {
	for _, notes := range r.notes {
		n += len(notes)
	}
	return n
}

// TestRecorder checks that two events are merged only if their notes are equal.
func TestRecorder(t *testing.T) {
	under := &recorded{notes: map[string][]string{}}
	r := NewRateLimited(under, logr.Discard())
	for _, n := range []int{3, 4, 4} {
		r.Eventf(&corev1.Secret{}, nil, corev1.EventTypeWarning, "Orphaned", "Sweep", "%d objects: 100%%", n)
	}
	if len(under.notes) != 2 {
		t.Errorf("three events, of which two have the same note, are %d: %q", len(under.notes), under.notes)
	}
	for action, notes := range under.notes {
		if notes[0] != "3 objects: 100%" && notes[0] != "4 objects: 100%" || len(action) != len("Sweep-00000000") {
			t.Errorf("%s has the note %q", action, notes)
		}
	}
}

// TestFlood checks that a runtime with too many events uses up only its own limit, whichever of its objects the events
// are about.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no time passes, however slow the machine is
		under := &recorded{notes: map[string][]string{}}
		r := NewRateLimited(under, logr.Discard())
		kyma := func(name string) client.Object { return &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: name}} }
		manifest := func(name, kyma string) client.Object {
			return &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Name: name,
				Labels: map[string]string{v1beta2.LabelKymaName: kyma}}}
		}
		for i := range 2000 {
			about := kyma("a")
			if i%2 == 0 {
				about = manifest(fmt.Sprint(i), "a")
			}
			r.Eventf(about, nil, corev1.EventTypeWarning, "ModuleNotFound", "Reconcile", "\x1b[31m%d %s", i,
				strings.Repeat("x", 100_000))
		}
		if got := under.count(); got != Burst {
			t.Errorf("a runtime has %d events at once, want %d", got, Burst)
		}
		for _, notes := range under.notes {
			if len(notes[0]) > loop.MessageLimit || strings.Contains(notes[0], "\x1b") {
				t.Fatalf("a note of %d bytes, or with escape sequences", len(notes[0]))
			}
		}
		r.Eventf(kyma("b"), nil, corev1.EventTypeNormal, "Installed", "Reconcile", "one")
		r.Eventf(manifest("c-1", "c"), nil, corev1.EventTypeNormal, "Installed", "Reconcile", "two")
		r.Eventf(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, nil, corev1.EventTypeNormal, "Read",
			"Read", "three")
		if got := under.count(); got != Burst+3 {
			t.Errorf("the events of others were dropped, too: %d in all", got)
		}
	})
}

// TestOnKyma checks that an event about a change of a module is recorded and logged once: about the Kyma of the module.
// If no Kyma reports a Manifest, its events are recorded about the Manifest.
func TestOnKyma(t *testing.T) {
	var lines []string
	under := &recorded{notes: map[string][]string{}}
	r := NewRateLimited(under, funcr.New(func(_, args string) { lines = append(lines, args) },
		funcr.Options{}))
	kyma := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	manifest := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Name: "a-m",
		Labels: map[string]string{v1beta2.LabelKymaName: "a"},
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(kyma, v1beta2.GroupVersion.WithKind(v1beta2.KindKyma))}}}
	mandatory := manifest.DeepCopy()
	mandatory.Labels[v1beta2.LabelMandatoryModule] = v1beta2.ValueTrue
	ofUser := manifest.DeepCopy()
	ofUser.OwnerReferences = nil
	record := func(about client.Object, reason, note string) {
		r.Eventf(about, nil, corev1.EventTypeNormal, reason, "Reconcile", "%s", note)
	}
	record(kyma, v1beta2.EventInstalled, "module m: version 1.0.0 is installed")
	record(manifest, v1beta2.EventInstalled, "module m: version 1.0.0 is installed")
	record(manifest, v1beta2.ReasonTakenOver, "took a field")
	record(mandatory, v1beta2.EventInstalled, "module n: version 1.0.0 is installed")
	record(ofUser, v1beta2.EventFailed, "module o: failed")
	want := []string{
		`"level"=0 "msg"="module m: version 1.0.0 is installed" "runtime"="a" "reason"="Installed" "object"="Kyma a"`,
		`"level"=0 "msg"="took a field" "runtime"="a" "reason"="TakenOver" "object"="Manifest a-m"`,
		`"level"=0 "msg"="module n: version 1.0.0 is installed" "runtime"="a" "reason"="Installed" "object"="Manifest a-m"`,
		`"level"=0 "msg"="module o: failed" "runtime"="a" "reason"="Failed" "object"="Manifest a-m"`,
	}
	if got := under.count(); got != len(want) {
		t.Errorf("%d events are recorded, want %d", got, len(want))
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("lines of the log -want +got:\n%s", diff)
	}
}

// TestRepeated checks that a repeated warning is logged once, and that the next log line about this warning has the
// number of repetitions. An event that is no warning is logged each time.
func TestRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		under := &recorded{notes: map[string][]string{}}
		r := NewRateLimited(under, funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
		record := func(kyma, kind, reason string) {
			r.Eventf(&v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: kyma}}, nil, kind, reason, "Reconcile", "text")
		}
		for range 3 {
			record("a", corev1.EventTypeWarning, "AgentImpaired")
			record("a", corev1.EventTypeWarning, "AgentSilent")
			record("b", corev1.EventTypeWarning, "AgentImpaired")
			record("a", corev1.EventTypeNormal, "Removed")
		}
		time.Sleep(RepeatInterval)
		record("a", corev1.EventTypeWarning, "AgentImpaired")
		line := func(kyma, reason, more string) string {
			return `"level"=0 "msg"="text" "runtime"="` + kyma + `" "reason"="` + reason + `" "object"="Kyma ` + kyma + `"` +
				more
		}
		want := []string{
			line("a", "AgentImpaired", ""), line("a", "AgentSilent", ""), line("b", "AgentImpaired", ""),
			line("a", "Removed", ""), line("a", "Removed", ""), line("a", "Removed", ""),
			line("a", "AgentImpaired", ` "repeated"=2`),
		}
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Errorf("lines differ (-want +got):\n%s", diff)
		}
		if got := under.count(); got != 13 {
			t.Errorf("%d events are recorded, want 13", got)
		}
	})
}
