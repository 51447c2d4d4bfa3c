package gate

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestNotifier checks that a call never waits for the webhook, that a notification is repeated after
// NotificationRetryInterval until the webhook accepts it, and that another version is announced at once.
func TestNotifier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const host = "http://hook.example.com"
		requests, changes := atomic.Int32{}, atomic.Int32{}
		codes := make(chan int)
		n := NewNotifier(&Reader{Allow: []string{host}, Client: &http.Client{Transport: inMemory{http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				select {
				case code := <-codes:
					w.WriteHeader(code)
					_, _ = w.Write([]byte("{}"))
				case <-r.Context().Done():
				}
			})}}}, func(module string) {
			if changes.Add(1); module != "keda" {
				t.Errorf("module %s has a new result", module)
			}
		})
		go func() { _ = n.Start(t.Context()) }()
		check := func(what, version string, wantDelivered, wantError bool, wantRequests, wantChanges int32) {
			t.Helper()
			synctest.Wait()
			isDelivered, err := n.Deliver("keda/regular",
				Notification{Module: "keda", ID: version, URL: host, Body: []byte("{}")})
			synctest.Wait()
			if isDelivered != wantDelivered || (err != nil) != wantError || requests.Load() != wantRequests ||
				changes.Load() != wantChanges {
				t.Errorf("%s: delivered %t, %v, %d requests, %d changes", what, isDelivered, err, requests.Load(),
					changes.Load())
			}
		}
		check("first call", "1", false, false, 1, 0)
		check("during the request", "1", false, false, 1, 0)
		codes <- http.StatusServiceUnavailable
		check("refused", "1", false, true, 1, 1)
		time.Sleep(NotificationRetryInterval - time.Second)
		check("before the interval has passed", "1", false, true, 1, 1)
		time.Sleep(time.Second)
		check("second attempt", "1", false, true, 2, 1)
		time.Sleep(timeout)
		check("no answer", "1", false, true, 2, 2)
		time.Sleep(NotificationRetryInterval)
		check("third attempt", "1", false, true, 3, 2)
		codes <- http.StatusOK
		check("accepted", "1", true, false, 3, 3)
		time.Sleep(2 * NotificationRetryInterval)
		check("long after", "1", true, false, 3, 3)
		check("another version", "2", false, false, 4, 3)
		check("yet another one, while the webhook is asked", "3", false, false, 4, 3)
		codes <- http.StatusOK
		check("the queue goes on with the newest version", "3", false, false, 5, 4)
		codes <- http.StatusOK
		check("accepted", "3", true, false, 5, 5)
	})
}
