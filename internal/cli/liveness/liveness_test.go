package liveness_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/liveness"
)

// lease returns a Lease that is valid for 15 seconds. The Lease was renewed the given duration before the present time
// of the tests.
func lease(name, holder string, before time.Duration, labels map[string]string) client.Object {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kcp-system", Labels: labels},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)),
			RenewTime: &metav1.MicroTime{Time: fixture.BeforeNoon(before).Time}},
	}
}

func leader(holder string, before time.Duration) client.Object {
	return lease(v1beta2.LeaderLease, holder, before, map[string]string{v1beta2.LabelVersion: "0.2.0"})
}

func replica(holder, version string, before time.Duration) client.Object {
	return lease("lifecycle-manager-replica-"+strings.ReplaceAll(holder, "_", "-"), holder, before,
		map[string]string{v1beta2.LabelLease: v1beta2.LeaseOfReplica, v1beta2.LabelVersion: version})
}

func shards(holder string, from, to int) []client.Object {
	var all []client.Object
	for n := from; n < to; n++ {
		all = append(all, lease("lifecycle-manager-shard-"+string(rune('a'+n/26))+string(rune('a'+n%26)), holder, time.Hour,
			map[string]string{v1beta2.LabelLease: v1beta2.LeaseOfShard}))
	}
	return all
}

func deployment(ready, desired int64) client.Object {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"namespace": "kcp-system", "name": "lifecycle-manager"},
		"spec":     map[string]any{"replicas": desired}, "status": map[string]any{"readyReplicas": ready},
	}}
}

// TestReport checks each row of the table in the comment of Observation.Report, and the text that klm prints for it.
func TestReport(t *testing.T) {
	sharded := append(append(shards("a_1", 0, 40), shards("b_2", 40, 64)...), leader("shards_a_9", time.Second),
		replica("a_1", "0.2.0", time.Second), replica("b_2", "0.1.0", 3*time.Second))
	cases := map[string]struct {
		reason  string
		objects []client.Object
		changed time.Time
		refuse  bool
		state   liveness.State
		text    string
		asOf    string
	}{
		"Leader": {
			reason:  "the leader renews its Lease",
			objects: []client.Object{leader("pod-1_abc", 2*time.Second), deployment(2, 2)},
			state:   liveness.Working,
			text:    "manager 0.2.0 works: leader pod-1, Lease renewed 2s ago, 2 of 2 pods ready\n",
		},
		"Before": {
			reason: "a manager without the label: the version is not known",
			objects: []client.Object{lease(v1beta2.LeaderLease, "pod-1", time.Second, nil),
				deployment(1, 1)},
			state: liveness.Working,
			text:  "manager works: leader pod-1, Lease renewed 1s ago, 1 of 1 pod ready\n",
		},
		"Shards": {
			reason:  "replicas that share the runtimes, in the middle of an upgrade",
			objects: sharded,
			state:   liveness.Working,
			text: "manager 0.1.0 and 0.2.0 works: 2 replicas with shards (a 40, b 24), leader a, Lease renewed 1s ago" +
				"\n",
		},
		"Unheld": {
			reason: "a replica was killed, and the other one has not taken its shards yet",
			objects: append(append(shards("a_1", 0, 40), shards("b_2", 40, 64)...),
				leader("shards_a_9", time.Second), replica("a_1", "0.2.0", time.Second),
				replica("b_2", "0.2.0", time.Minute)),
			state: liveness.Working,
			text: "manager 0.2.0 works: 1 replica with shards (a 40), leader a, Lease renewed 1s ago; 24 shards are " +
				"held by no live replica: their runtimes wait\n",
		},
		"NoLeader": {
			reason:  "the leader of the replicas is gone, and its successor not elected yet: runtimes are reconciled",
			objects: append(shards("a_1", 0, 64), replica("a_1", "0.2.0", time.Second)),
			state:   liveness.Working,
			text:    "manager 0.2.0 works: 1 replica with shards (a 64), Lease renewed 1s ago\n",
		},
		"Killed": {
			reason:  "the Lease was not renewed",
			objects: []client.Object{leader("pod-1_abc", 4*time.Minute), deployment(0, 1)},
			changed: fixture.BeforeNoon(5 * time.Minute).Time,
			state:   liveness.NotWorking,
			asOf:    "as of 4m ago",
			text: "NO MANAGER WORKS in namespace kcp-system: leader pod-1 (version 0.2.0) last renewed its Lease 4m ago; all " +
				"states are as of 4m ago\n" +
				"  check the manager: kubectl -n kcp-system get deployments,pods -l app.kubernetes.io/name=lifecycle-manager" +
				"; a manager\n  with --leader-elect=false writes no Lease and is not seen here; 0 of 1 pod ready\n",
		},
		"Stopped": {
			reason:  "the manager has released its Lease when it ended",
			objects: []client.Object{leader("", time.Minute)},
			state:   liveness.NotWorking,
			asOf:    "as of 60s ago",
			text: "NO MANAGER WORKS in namespace kcp-system: the leader last renewed its Lease 60s ago; all " +
				"states are as of 60s ago\n",
		},
		"AllReplicas": {
			reason: "all replicas were killed",
			objects: append(shards("a_1", 0, 64), leader("shards_a_9", 9*time.Minute),
				replica("a_1", "0.2.0", 8*time.Minute)),
			state: liveness.NotWorking,
			asOf:  "as of 8m ago",
			text:  "NO MANAGER WORKS in namespace kcp-system: leader a (version 0.2.0) last renewed its Lease 8m ago",
		},
		"Fresh": {
			reason: "no Lease: nobody knows",
			state:  liveness.Unknown,
			text: "whether a manager works is unknown: namespace kcp-system has no Lease " +
				"893110f7.kyma-project.io: no manager has run\nthere, or one with --leader-elect=false, which writes no " +
				"Lease\n",
		},
		"Developer": {
			reason:  "make run on a cluster whose Deployment was scaled down: a status is newer than the Lease",
			objects: []client.Object{leader("pod-1_abc", time.Hour)},
			changed: fixture.BeforeNoon(time.Minute).Time,
			state:   liveness.Unknown,
			text: "whether a manager works is unknown: the last Lease ended 59m ago, but a status has changed since " +
				"then: a manager with\n--leader-elect=false, which writes no Lease, may work\n",
		},
		"Forbidden": {
			reason:  "the user may not read Leases",
			objects: []client.Object{leader("pod-1_abc", 2*time.Second)},
			refuse:  true,
			state:   liveness.Unknown,
			text:    "whether a manager works is unknown: reading the Leases of the manager: ",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := fixture.NewServer(t, c.objects...)
			s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if !c.refuse || !strings.Contains(r.URL.Path, "/leases") {
					return false
				}
				fixture.Fail(w, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "", nil))
				return true
			}
			control, err := connection.ControlPlane(t.Context(), fixture.App(s.Kubeconfig))
			if err != nil {
				t.Fatal(err)
			}
			r := liveness.Read(t.Context(), control).Report(c.changed)
			p := &console.Page{Now: fixture.Noon}
			r.Show(p)
			if r.State != c.state || !strings.HasPrefix(p.String(), c.text) || r.StalenessText() != c.asOf {
				t.Errorf("%s: %s, %q, %q", c.reason, r.State, r.StalenessText(), p)
			}
			want := console.ExitOK
			if c.state == liveness.NotWorking {
				want = console.ExitNoManager
			}
			if got := console.ExitCode(r.ErrIfNotWorking()); got != want {
				t.Errorf("%s: exit code %d, want %d: %v", c.reason, got, want, r.ErrIfNotWorking())
			}
		})
	}
}

// TestDiffers checks that klm status --watch shows the fleet again if a manager starts or stops, but not after each
// renewal of a Lease.
func TestDiffers(t *testing.T) {
	read := func(objects ...client.Object) *liveness.Observation {
		control, err := connection.ControlPlane(t.Context(), fixture.App(fixture.NewServer(t, objects...).Kubeconfig))
		if err != nil {
			t.Fatal(err)
		}
		return liveness.Read(t.Context(), control)
	}
	before := read(leader("pod-1", 2*time.Second))
	if read(leader("pod-1", time.Second)).DiffersIgnoringTimes(before) {
		t.Error("a renewal differs")
	}
	if !read(leader("pod-2", time.Second)).DiffersIgnoringTimes(before) || !read(leader("pod-1",
		time.Minute)).DiffersIgnoringTimes(before) {
		t.Error("another leader, or a leader that does not renew its Lease, does not differ")
	}
}
