package gate

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// TestCache checks that a gate is read at most once per Interval, that a call never waits for a read, and that a result
// does not count after a resumption.
func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const host = "http://gate.example.com"
		requests, changes := atomic.Int32{}, atomic.Int32{}
		answers := make(chan string)
		c := NewCache(&Reader{Allow: []string{host}, Client: &http.Client{Transport: inMemory{http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				select {
				case result := <-answers:
					_, _ = fmt.Fprintf(w, `{"result":%q}`, result)
				case <-r.Context().Done():
				}
			})}}}, func(module string) {
			if changes.Add(1); module != "keda" {
				t.Errorf("module %s has a new result", module)
			}
		})
		go func() { _ = c.Start(t.Context()) }()
		r := &v1beta2.ModuleRollout{ObjectMeta: metav1.ObjectMeta{Name: "keda-regular-r2"}}
		r.Spec.Module = "keda"
		r.Spec.Stages = []v1beta2.ModuleRolloutStage{{RolloutStage: v1beta2.RolloutStage{Name: "all",
			Gates: []v1beta2.RolloutGate{{Name: "hook", Webhook: &v1beta2.WebhookGate{URL: host}},
				{Name: "go", Approval: &v1beta2.ApprovalGate{}}}}}}
		check := func(what string, want v1beta2.GateState, wantRequests, wantChanges int32) {
			t.Helper()
			synctest.Wait()
			results, next := c.RequestResults(r)
			synctest.Wait()
			if is := results["hook"].State; is != want || requests.Load() != wantRequests ||
				changes.Load() != wantChanges || next <= 0 || next > Interval {
				t.Errorf("%s: state %q after %d requests and %d changes, next %s", what, is, requests.Load(),
					changes.Load(), next)
			}
		}
		check("first call", "", 1, 0)
		check("during the first read", "", 1, 0)
		answers <- "pass"
		check("after the first read", v1beta2.GatePass, 1, 1)
		time.Sleep(Interval - time.Second)
		check("before the interval has passed", v1beta2.GatePass, 1, 1)
		time.Sleep(time.Second)
		check("during the second read", v1beta2.GatePass, 2, 1)
		answers <- "pass"
		check("the same result", v1beta2.GatePass, 2, 1)
		time.Sleep(Interval)
		check("during the third read", v1beta2.GatePass, 3, 1)
		time.Sleep(timeout)
		check("without an answer", v1beta2.GateUnknown, 3, 2)
		r.Spec.Resumptions = append(r.Spec.Resumptions, v1beta2.RolloutResumption{})
		check("after a resumption", "", 4, 2)
		answers <- "fail"
		check("the first read after the resumption", v1beta2.GateFail, 4, 3)
		time.Sleep(maxAge)
		check("an old result", "", 5, 3)
		answers <- "fail"
		check("the same result as the old one", v1beta2.GateFail, 5, 4)
		c.Forget(func(rollout string) bool { return rollout == r.Name })
		check("after it was forgotten", "", 6, 4)
	})
}
