package manager

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
)

// TestLeaderAnnouncesListener checks that the Lease of leader election has the address of the leader's listener after
// each write of the leader: when the Lease was created, and when it is renewed without the address.
func TestLeaderAnnouncesListener(t *testing.T) {
	lease := &coordinationv1.Lease{} // in the API server
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet:
			lease = &coordinationv1.Lease{}
			if err := json.NewDecoder(r.Body).Decode(lease); err != nil {
				t.Error(err)
			}
		case !strings.HasSuffix(r.URL.Path, v1beta2.LeaderLease):
			http.Error(w, "there are no replicas with shards", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(lease)
	}))
	t.Cleanup(server.Close)
	c := newConfig(t, func(c *config.Manager) {
		withAgents(c)
		c.PodIP = "10.0.0.1"
	})
	cfg := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	r, err := newReplica(c, cfg, ctrl.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lock := r.options.LeaderElectionResourceLockInterface
	for _, step := range []struct {
		reason, holder, want string
		write                func(context.Context, resourcelock.LeaderElectionRecord) error
	}{
		{"the Lease is created", lock.Identity(), "10.0.0.1:8445", lock.Create},
		{"the Lease is released", "", "", lock.Update},
		{"the Lease is acquired", lock.Identity(), "10.0.0.1:8445", lock.Update},
		{"the Lease is renewed", lock.Identity(), "10.0.0.1:8445", lock.Update},
	} {
		if err := step.write(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: step.holder}); err != nil {
			t.Fatalf("%s: %v", step.reason, err)
		}
		if got := lease.Annotations[shard.AddressAnnotation]; got != step.want {
			t.Errorf("%s: it has the address %q, want %q", step.reason, got, step.want)
		}
		lease.Annotations = nil
		if _, _, err := lock.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFindListenerWithoutAnswer checks that the known address of the leader is used while the API server does not
// answer, and that only one caller in each leaseValidPeriod waits for an answer.
func TestFindListenerWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		silent := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object,
				_ ...client.GetOption) error {
				reads++
				<-ctx.Done()
				return ctx.Err()
			}})
		l := &leaderAddress{base: t.Context(), reader: silent, address: "leader:1"}
		begin := time.Now()
		for range 3 {
			if address, me := l.findListener(); address != "leader:1" || me {
				t.Errorf("the leader is %q, this replica: %t", address, me)
			}
		}
		if took := time.Since(begin); reads != 1 || took != leaseValidPeriod {
			t.Errorf("%d reads in %s, want 1 in %s", reads, took, leaseValidPeriod)
		}
	})
}
