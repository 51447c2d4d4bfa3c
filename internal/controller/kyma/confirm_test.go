package kyma

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// TestNextRequest checks when the manager may uninstall all modules of a runtime at once, and when it first has to read
// the Kyma in the runtime a second time.
func TestNextRequest(t *testing.T) {
	begin := time.Date(2026, time.November, 23, 9, 0, 0, 0, time.UTC)
	type answer struct {
		after      time.Duration // since begin
		uid        types.UID
		generation int64
		shown      int64 // status.observedGeneration
		modules    bool
		want       bool // it may be acted on
	}
	cases := map[string]struct {
		reason  string
		answers []answer
	}{
		"Person": {"the generation has increased", []answer{
			{uid: "a", generation: 3, shown: 3, modules: true, want: true},
			{uid: "a", generation: 4, shown: 3, want: true},
			{uid: "a", generation: 4, shown: 4, want: true}}},
		"PersonAfterRestart": {"the status shows the generation before", []answer{
			{uid: "a", generation: 4, shown: 3, want: true}}},
		"Proxy": {"the same object without modules", []answer{
			{uid: "a", generation: 3, shown: 3, modules: true, want: true},
			{uid: "a", generation: 3, shown: 3},
			{uid: "a", generation: 3, shown: 3, modules: true, want: true}}},
		"ProxyLater": {"each time it has to be confirmed", []answer{
			{uid: "a", generation: 3, modules: true, want: true},
			{uid: "a", generation: 3},
			{uid: "a", generation: 3, modules: true, want: true},
			{uid: "a", generation: 3, after: time.Hour}}},
		"Confirmed": {"a second answer after some time", []answer{
			{uid: "a", generation: 3, modules: true, want: true},
			{uid: "a", generation: 3},
			{uid: "a", generation: 3, after: confirmDelay - 1},
			{uid: "a", generation: 3, after: confirmDelay, want: true},
			{uid: "a", generation: 3, after: confirmDelay + 1, want: true}}},
		"OtherObject": {"deleted and created by somebody", []answer{
			{uid: "a", generation: 3, shown: 3, modules: true, want: true},
			{uid: "b", generation: 7, shown: 3},
			{uid: "b", generation: 7, after: confirmDelay, want: true}}},
		"OlderObject": {"a restored runtime", []answer{
			{uid: "a", generation: 3, shown: 3, modules: true, want: true},
			{uid: "a", generation: 2, shown: 2},
			{uid: "a", generation: 2, after: confirmDelay, want: true}}},
		"FirstAnswer":   {"nothing shows a change", []answer{{uid: "a", generation: 3, shown: 3}}},
		"WithoutStatus": {"nothing shows a change", []answer{{uid: "a", generation: 1}}},
		"WithoutUID":    {"no API server answers so", []answer{{}, {after: confirmDelay, want: true}}},
		"ClockSetBack": {"the wait begins again", []answer{
			{uid: "a", generation: 3, after: time.Hour},
			{uid: "a", generation: 3, after: 0},
			{uid: "a", generation: 3, after: confirmDelay, want: true}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			kyma := &v1beta2.Kyma{Status: v1beta2.KymaStatus{Modules: []v1beta2.ModuleStatus{
				{Name: "keda", State: v1beta2.StateReady, Manifest: &v1beta2.ObjectReference{}}}}}
			var last request
			for i, a := range c.answers {
				remote := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{UID: a.uid, Generation: a.generation},
					Status: v1beta2.KymaStatus{ObservedGeneration: a.shown}}
				if a.modules {
					remote.Spec.Modules = []v1beta2.Module{{Name: "keda"}}
				}
				last = nextRequest(last, remote, removesAll(kyma, remote), begin.Add(a.after))
				if last.isConfirmed != a.want {
					t.Errorf("%s: answer %d: acted on is %t, want %t", c.reason, i, last.isConfirmed, a.want)
				}
			}
		})
	}
}

// TestRemovesAll checks that the controller does not wait if there is no module to remove.
func TestRemovesAll(t *testing.T) {
	installed := &v1beta2.ObjectReference{}
	for name, c := range map[string]struct {
		has  []v1beta2.ModuleStatus
		want bool
	}{
		"None":         {nil, false},
		"Installed":    {[]v1beta2.ModuleStatus{{State: v1beta2.StateError, Manifest: installed}}, true},
		"NotInstalled": {[]v1beta2.ModuleStatus{{State: v1beta2.StateWarning}}, false},
		"Deleting":     {[]v1beta2.ModuleStatus{{State: v1beta2.StateDeleting, Manifest: installed}}, false},
	} {
		kyma := &v1beta2.Kyma{Status: v1beta2.KymaStatus{Modules: c.has}}
		if got := removesAll(kyma, &v1beta2.Kyma{}); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
		if removesAll(kyma, &v1beta2.Kyma{Spec: v1beta2.KymaSpec{Modules: []v1beta2.Module{{Name: "other"}}}}) {
			t.Errorf("%s: another module is requested, and all are removed", name)
		}
	}
}
