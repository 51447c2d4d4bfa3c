package manifest

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// TestPostponed checks that a reconcile whose requests to the runtime are postponed loses no event, and that it
// writes no status.
func TestPostponed(t *testing.T) {
	b := newBench(t, moduleOf(nil))
	b.write("sample", configMap("a", "1"))
	b.settle(v1beta2.StateReady)
	ref := apply.Ref{Version: "v1", Kind: "ConfigMap", Namespace: "default", Name: "a"}
	b.runtime.mu.Lock()
	clear(b.runtime.stored)
	b.runtime.mu.Unlock()
	m := b.r.memoryOf(client.ObjectKey{Namespace: "kcp-system", Name: "m"}, b.manifest().UID)
	m.mu.Lock()
	m.setObjectLocked(ref, objectEvent{uid: "u", deleted: true})
	m.mu.Unlock()
	m.progress.Forget(ref)

	b.isPostponing, b.statusWrites = true, 0
	result, err := b.reconcile()
	if err != nil || result.RequeueAfter == 0 || b.statusWrites > 0 {
		t.Errorf("%+v, %v and %d writes of the status, want a reconcile later and no write", result, err, b.statusWrites)
	}
	b.isPostponing = false
	if sent := b.settle(v1beta2.StateReady); !slices.ContainsFunc(sent, func(line string) bool {
		return strings.HasPrefix(line, "PATCH ") && strings.Contains(line, "/configmaps/a")
	}) {
		t.Errorf("the deleted object is not created again: %q", sent)
	}
}
