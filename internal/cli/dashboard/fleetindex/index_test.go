package fleetindex

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/liveness"
)

func member(name, version string, state v1beta2.State) *fleetlist.Member {
	m := &fleetlist.Member{}
	m.Metadata.Name, m.Metadata.ResourceVersion, m.Status.State = name, version, state
	return m
}

func names(s *Snapshot) (all []string) {
	for _, m := range s.Members {
		all = append(all, m.Metadata.Name+"="+string(m.Status.State))
	}
	return all
}

// TestSnapshots checks that a snapshot never changes, that a new list of runtimes takes effect only when it is
// complete, and that a delta contains the differences between two snapshots.
func TestSnapshots(t *testing.T) {
	x := New()
	x.Put(member("b", "1", "Ready"), member("a", "1", "Ready"), member("c", "1", "Error"))
	x.Publish()
	first := x.Snapshot()
	if diff := cmp.Diff([]string{"a=Ready", "b=Ready", "c=Error"}, names(first)); diff != "" || !first.Ready {
		t.Errorf("ready: %v\n%s", first.Ready, diff)
	}
	x.Put(member("b", "2", "Warning"))
	x.Publish()
	deltas, complete, _ := x.Since(first.Revision)
	want := []Delta{{Revision: 2, Topics: []Topic{Runtimes}, Names: []string{"b"}}}
	if diff := cmp.Diff(want, deltas); diff != "" || !complete || names(first)[1] != "b=Ready" {
		t.Errorf("the first snapshot has %v\n%s", names(first), diff)
	}

	x.change(fleetlist.Change{Reset: true}) // the list is read again, in two pages
	x.change(fleetlist.Change{Member: member("a", "1", "Ready")})
	x.Publish()
	if got := len(x.Snapshot().Members); got != 3 {
		t.Errorf("during a list there are %d members", got)
	}
	x.change(fleetlist.Change{Member: member("d", "1", "Ready")})
	x.change(fleetlist.Change{Listed: true})
	x.Publish()
	s := x.Snapshot()
	if diff := cmp.Diff([]string{"a=Ready", "d=Ready"}, names(s)); diff != "" || s.Membership != s.Revision {
		t.Errorf("after the list (-want +got):\n%s", diff)
	}
	if s.Tally().Runtimes != 2 || first.Tally().States[0] != (Count{"Error", 1}) {
		t.Errorf("the counts are %+v, and were %+v", s.Tally(), first.Tally())
	}
	x.Remove("d")
	x.Publish()
	if m, i := x.Snapshot().Member("d"); m != nil || i != -1 {
		t.Errorf("d is still there")
	}
	for range maxDeltas {
		x.Put(member("a", x.now().String(), "Ready"))
		x.Publish()
	}
	if _, complete, _ := x.Since(first.Revision); complete {
		t.Error("deltas are kept for ever")
	}
}

// TestManagerAge checks that the age of the last sign of a manager grows in the snapshots while no manager works,
// although nothing else changes. While a manager works, its renewals alone make no new snapshot.
func TestManagerAge(t *testing.T) {
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = v1beta2.ControlPlaneNamespace, v1beta2.LeaderLease
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = new("pod-1"), new(int32(15))
	lease.Spec.RenewTime = &metav1.MicroTime{Time: fixture.Noon}
	server := fixture.NewServer(t, lease)
	c, err := connection.ControlPlane(t.Context(), fixture.App(server.Kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	x := New()
	observeAt := func(at time.Time) (revision uint64, staleness string) {
		server.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Date", at.Format(http.TimeFormat))
			return false
		}
		x.recordManager(liveness.Read(t.Context(), c))
		x.Publish()
		s := x.Snapshot()
		return s.Revision, s.Manager.Report(time.Time{}).StalenessText()
	}
	first, _ := observeAt(fixture.Noon.Add(time.Second))
	if second, _ := observeAt(fixture.Noon.Add(2 * time.Second)); second != first {
		t.Errorf("a renewal made revision %d from %d", second, first)
	}
	observeAt(fixture.Noon.Add(time.Minute))
	if _, text := observeAt(fixture.Noon.Add(8 * time.Hour)); !strings.Contains(text, "8h") {
		t.Errorf("after eight hours the page says %q", text)
	}
}

// TestUnreadableKind checks that the snapshot has a note about a kind that cannot be read, until it can be read.
func TestUnreadableKind(t *testing.T) {
	server := fixture.NewServer(t)
	var broken atomic.Bool
	broken.Store(true)
	server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !broken.Load() || !strings.HasSuffix(r.URL.Path, "/moduletemplates") {
			return false
		}
		http.Error(w, "the storage is broken", http.StatusInternalServerError)
		return true
	}
	x := New()
	start(t, x, server)
	until(t, "the note", func() bool {
		return strings.Contains(strings.Join(x.Snapshot().Notes, " "), "watching the moduletemplates")
	})
	broken.Store(false)
	until(t, "the fleet", func() bool { return x.Snapshot().Ready && len(x.Snapshot().Notes) == 0 })
}

// TestPublish checks that the first change is published after a short delay, and further changes at most once in an
// interval. The test also checks that the snapshot reports a problem while the control plane does not answer.
func TestPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			tries := 0
			x.Run(ctx, func(ctx context.Context) (*connection.Cluster, error) {
				if tries++; tries > 1 {
					<-ctx.Done()
				}
				return nil, errors.New("it does not answer")
			})
		}()
		revisionAfter := func(d time.Duration) uint64 {
			time.Sleep(d)
			synctest.Wait()
			return x.Snapshot().Revision
		}
		if r := revisionAfter(publishDelay); r != 1 || x.Snapshot().Problem == nil {
			t.Errorf("revision %d with the problem %v", r, x.Snapshot().Problem)
		}
		time.Sleep(2 * publishInterval)
		x.Put(member("a", "1", "Ready"))
		if r := revisionAfter(publishDelay); r != 2 {
			t.Errorf("after the delay, the revision is %d", r)
		}
		time.Sleep(publishInterval + publishDelay) // the two changes of Put are in one snapshot and delay no later one
		x.Put(member("a", "2", "Error"))
		if r := revisionAfter(publishDelay); r != 3 {
			t.Errorf("a later change: the revision is %d", r)
		}
		x.Put(member("a", "3", "Ready"))
		if r := revisionAfter(publishDelay); r != 3 {
			t.Errorf("a change at once: the revision is %d", r)
		}
		if r := revisionAfter(publishInterval); r != 4 {
			t.Errorf("after the interval, the revision is %d", r)
		}
		x.mu.Lock()
		x.clearProblemLocked()
		x.mu.Unlock()
		if revisionAfter(2 * publishInterval); x.Snapshot().Problem != nil {
			t.Errorf("the problem stays: %v", x.Snapshot().Problem)
		}
		stop()
		<-ended
	})
}

// TestMaintenance checks that the maintenance policy is part of the snapshot, and that a second read of an unchanged
// policy is no change.
func TestMaintenance(t *testing.T) {
	read := func() Maintenance {
		p, err := channel.ParsePolicy([]byte(`{"rules":[{"match":{"region":"^eu"},"windows":[{"days":["Sat"],` +
			`"begin":"02:00:00","end":"06:00:00","timeZone":"Europe/Berlin"}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		return Maintenance{Policy: p}
	}
	x := New()
	x.Put(member("a", "1", "Ready"))
	x.Publish()
	if is := x.Snapshot().Maintenance; is.Policy != nil || is.Unknown == "" {
		t.Errorf("before the policy was read: %+v", is)
	}
	x.SetMaintenance(read())
	x.Publish()
	s := x.Snapshot()
	if s.Maintenance.Policy == nil || s.Of[Catalog] != s.Revision {
		t.Errorf("the policy was read: %+v, %v", s.Maintenance, s.Of)
	}
	x.SetMaintenance(read())
	x.Publish()
	if is := x.Snapshot().Revision; is != s.Revision {
		t.Errorf("the same policy made snapshot %d after %d", is, s.Revision)
	}
	x.SetMaintenance(Maintenance{Unknown: "the ConfigMap may not be read"})
	x.Publish()
	if is := x.Snapshot(); is.Maintenance.Policy != nil || is.Revision == s.Revision {
		t.Errorf("the policy cannot be read any more: %+v", is.Maintenance)
	}
}
