package rollout

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// TestFailureBeyondBudget checks that the failure that exceeds the limit of its stage is judged and recorded without a
// delay, and that all other changes wait for the next reconcile.
func TestFailureBeyondBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := onePolicy()
		policy.Spec.MaxUpdating = 10
		policy.Spec.Stages[0].MaxConcurrency = new(intstr.FromString("100%"))
		policy.Spec.Stages[0].MaxFailures = new(intstr.FromInt32(1))
		f := newFleet(t, append(objects(5), policy)...)
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		// change changes a Manifest, and reports whether the change makes the module be reconciled at once.
		change := func(runtime int, state v1beta2.State) bool {
			was, is := &v1beta2.Manifest{}, &v1beta2.Manifest{}
			name := fmt.Sprintf("runtime-%d", runtime)
			key := types.NamespacedName{Namespace: namespace, Name: name + "-keda"}
			if err := f.control.Get(t.Context(), key, was); err != nil {
				t.Fatal(err)
			}
			f.order(name, "2.0.0", state)
			if err := f.control.Get(t.Context(), key, is); err != nil {
				t.Fatal(err)
			}
			f.onFleet(q).OnUpdate(was, is)
			synctest.Wait()
			if q.Len() == 0 {
				return false
			}
			request, _ := q.Get()
			defer q.Done(request)
			result, err := f.Reconcile(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			return result.RequeueAfter == 0 || f.rollout("keda-regular-r2").Status.Phase == v1beta2.RolloutHalted
		}
		f.pass()
		f.move("2.0.0")
		f.pass()
		time.Sleep(time.Second) // until the version has settled
		f.pass()
		if change(0, v1beta2.StateReady) {
			t.Error("a proven runtime does not wait for the next reconcile")
		}
		if change(1, v1beta2.StateError) {
			t.Error("a failure within the limit does not wait for the next reconcile")
		}
		if !change(2, v1beta2.StateError) {
			t.Fatal("the failure beyond the limit waits for the next reconcile")
		}
		r := f.rollout("keda-regular-r2")
		if r.Status.Phase != v1beta2.RolloutHalted || r.Status.Runtimes.Failed != 2 {
			t.Errorf("after two failures: %+v", r.Status)
		}
		before := r.ResourceVersion
		if change(3, v1beta2.StateError) || f.rollout("keda-regular-r2").ResourceVersion != before {
			t.Error("a failure after the halt does not wait for the next reconcile")
		}
	})
}
