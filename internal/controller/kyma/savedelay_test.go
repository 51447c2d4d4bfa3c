package kyma

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
)

// TestClassifyChange checks which changes of the status of a Kyma may be saved later: only those in which modules have
// begun to change, and those of the agent while modules change.
func TestClassifyChange(t *testing.T) {
	mandatory := func(s *v1beta2.KymaStatus, status metav1.ConditionStatus, reason string) {
		s.Conditions = []metav1.Condition{{Type: v1beta2.ConditionMandatoryModules, Status: status, Reason: reason}}
	}
	cases := map[string]struct {
		reason string
		edit   func(is, was *v1beta2.KymaStatus)
		want   statusChange
	}{
		"Begins": {"a version was ordered", func(_, _ *v1beta2.KymaStatus) {}, modulesBegin},
		"Warning": {"the Kyma keeps the state of another module", func(is, was *v1beta2.KymaStatus) {
			is.State, was.State = v1beta2.StateWarning, v1beta2.StateWarning
			is.Modules[1].State, was.Modules[1].State = v1beta2.StateWarning, v1beta2.StateWarning
		}, modulesBegin},
		"Mandatory": {"a mandatory module has begun", func(is, was *v1beta2.KymaStatus) {
			is.State, is.Modules[0].State = v1beta2.StateReady, v1beta2.StateReady
			mandatory(is, metav1.ConditionFalse, v1beta2.ReasonModulesNotReady)
			mandatory(was, metav1.ConditionTrue, v1beta2.ReasonReady)
		}, modulesBegin},
		"MandatoryFails": {"a mandatory module has a problem", func(is, was *v1beta2.KymaStatus) {
			is.State, is.Modules[0].State = v1beta2.StateReady, v1beta2.StateReady
			mandatory(is, metav1.ConditionFalse, v1beta2.ReasonWorkloadFailed)
			mandatory(was, metav1.ConditionTrue, v1beta2.ReasonReady)
		}, saveAtOnce},
		"Shown": {"the state is already saved", func(_, was *v1beta2.KymaStatus) {
			was.State, was.Modules[0].State = v1beta2.StateProcessing, v1beta2.StateProcessing
		}, saveAtOnce},
		"Unchanged": {"something else has changed", func(is, _ *v1beta2.KymaStatus) {
			is.State, is.Modules[0].State = v1beta2.StateReady, v1beta2.StateReady
		}, saveAtOnce},
		"Ends":     {"the module is Ready", func(is, was *v1beta2.KymaStatus) { *is, *was = *was, *is }, saveAtOnce},
		"Edited":   {"somebody has changed the Kyma", func(is, _ *v1beta2.KymaStatus) { is.ObservedGeneration++ }, saveAtOnce},
		"New":      {"the Kyma has no state yet", func(_, was *v1beta2.KymaStatus) { was.State = "" }, saveAtOnce},
		"Recovers": {"people wait for the end of the error", func(_, was *v1beta2.KymaStatus) { was.State = v1beta2.StateError }, saveAtOnce},
		"Fails": {"another module has a problem", func(is, _ *v1beta2.KymaStatus) {
			is.State, is.Modules[1].State = v1beta2.StateError, v1beta2.StateError
		}, saveAtOnce},
		"Added":   {"a module is new", func(_, was *v1beta2.KymaStatus) { was.Modules = was.Modules[:1] }, saveAtOnce},
		"Removed": {"a module is being removed", func(is, _ *v1beta2.KymaStatus) { is.Modules[1].State = v1beta2.StateDeleting }, saveAtOnce},
		"Renamed": {"another module", func(is, _ *v1beta2.KymaStatus) { is.Modules[1].Name = "c" }, saveAtOnce},
		"Manifest": {"a new Manifest, which the status has to name", func(is, _ *v1beta2.KymaStatus) {
			is.Modules[1].Manifest = &v1beta2.ObjectReference{Metadata: v1beta2.ObjectReferenceMeta{Name: "m"}}
		}, saveAtOnce},
		"Ordered": {"the change has no outcome yet", func(is, was *v1beta2.KymaStatus) {
			was.Modules[0].History = []v1beta2.ModuleChange{{Version: "1", Outcome: v1beta2.StateReady}}
			is.Modules[0].History = append(slices.Clone(was.Modules[0].History), v1beta2.ModuleChange{Version: "2"})
		}, modulesBegin},
		"Step": {"the outcome of the step is recorded nowhere else", func(is, was *v1beta2.KymaStatus) {
			was.Modules[0].History = []v1beta2.ModuleChange{{Version: "1", Outcome: v1beta2.StateReady}}
			is.Modules[0].History = append(slices.Clone(was.Modules[0].History),
				v1beta2.ModuleChange{Version: "2", Outcome: v1beta2.StateReady}, v1beta2.ModuleChange{Version: "3"})
		}, saveAtOnce},
		"Agent": {"the agent has sent its first heartbeat", func(is, was *v1beta2.KymaStatus) {
			agents(is, was, func(a *v1beta2.AgentStatus) { a.Connected, a.Reason, a.Version = true, "", "1" })
		}, agentConnects},
		"AgentWatches": {"the agent has its watch list", func(is, was *v1beta2.KymaStatus) {
			agents(is, was, func(a *v1beta2.AgentStatus) { a.Digest = "d" })
		}, agentConnects},
		"AgentAndModule": {"a module has begun, too", func(is, was *v1beta2.KymaStatus) {
			agents(is, was, func(a *v1beta2.AgentStatus) { a.Connected = true })
			was.State, was.Modules[0].State = v1beta2.StateReady, v1beta2.StateReady
		}, modulesBegin},
		"AgentOfReady": {"no other change will follow", func(is, was *v1beta2.KymaStatus) {
			agents(is, was, func(a *v1beta2.AgentStatus) { a.Connected = true })
			*is, *was = *ready(), *ready()
			is.Agent, was.Agent = &v1beta2.AgentStatus{Connected: true}, &v1beta2.AgentStatus{}
		}, saveAtOnce},
		"AgentFails": {"a problem", func(is, was *v1beta2.KymaStatus) {
			agents(is, was, func(a *v1beta2.AgentStatus) { a.Digest, a.Reason = "d", v1beta2.ReasonAgentImpaired })
		}, saveAtOnce},
		"AgentLost": {"likewise", func(is, was *v1beta2.KymaStatus) {
			agents(is, was, func(*v1beta2.AgentStatus) {})
			was.Agent.Connected = true
		}, saveAtOnce},
		"AgentObjects": {"a deletion needs the list", func(is, was *v1beta2.KymaStatus) {
			agents(is, was, func(a *v1beta2.AgentStatus) {
				a.Connected, a.Synced = true, []v1beta2.Resource{{Kind: "Role"}}
			})
		}, saveAtOnce},
		"AgentCertificate": {"the first certificate: another process would issue another one",
			func(is, was *v1beta2.KymaStatus) {
				agents(is, was, func(a *v1beta2.AgentStatus) {
					a.Digest, a.Certificate = "d", &v1beta2.AgentCertificate{Serial: "1"}
				})
			}, agentConnects},
		"AgentRenewed": {"the certificate was renewed", func(is, was *v1beta2.KymaStatus) {
			agents(is, was, func(a *v1beta2.AgentStatus) { a.Certificate = &v1beta2.AgentCertificate{Serial: "2"} })
			was.Agent.Certificate = &v1beta2.AgentCertificate{Serial: "1"}
		}, saveAtOnce},
		"FirstAgent": {"the agent is about to be delivered", func(is, was *v1beta2.KymaStatus) {
			agents(is, was, func(*v1beta2.AgentStatus) {})
			was.Agent = nil
		}, saveAtOnce},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			is, was := processing(), ready()
			c.edit(is, was)
			if got := classifyChange(is, was); got != c.want {
				t.Errorf("%s: got %d, want %d", c.reason, got, c.want)
			}
		})
	}
}

// agents sets the same agent, which is not connected, in two statuses of a Kyma whose module is Processing. After that,
// agents changes the agent of the status is.
func agents(is, was *v1beta2.KymaStatus, change func(*v1beta2.AgentStatus)) {
	was.State, was.Modules[0].State = v1beta2.StateProcessing, v1beta2.StateProcessing
	agent := v1beta2.AgentStatus{Reason: v1beta2.ReasonAgentSilent}
	is.Agent, was.Agent = agent.DeepCopy(), agent.DeepCopy()
	change(is.Agent)
}

func ready() *v1beta2.KymaStatus {
	return &v1beta2.KymaStatus{State: v1beta2.StateReady, ObservedGeneration: 1,
		Modules: []v1beta2.ModuleStatus{{Name: "a", State: v1beta2.StateReady}, {Name: "b", State: v1beta2.StateReady}}}
}

func processing() *v1beta2.KymaStatus {
	s := ready()
	s.State, s.Modules[0].State = v1beta2.StateProcessing, v1beta2.StateProcessing
	return s
}

// TestDeferSave checks that the state Processing is saved after processingSaveDelay, also if several reconciles and
// several modules follow each other, and that it is saved at once if a person waits.
func TestDeferSave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testReconciler(t, Options{Urgent: queueing.NewUrgent(), InCluster: true})
		saved := &v1beta2.Kyma{Status: *ready()}
		after := func(s *v1beta2.KymaStatus) time.Duration {
			k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: *s}
			return (&run{Reconciler: r, now: time.Now(), kyma: k}).deferSave(saved)
		}
		expect := func(s *v1beta2.KymaStatus, want time.Duration) {
			t.Helper()
			if got := after(s); got != want {
				t.Errorf("deferred for %s, want %s", got, want)
			}
		}
		expect(processing(), processingSaveDelay)
		time.Sleep(processingSaveDelay / 2)
		both := processing()
		both.Modules[1].State = v1beta2.StateProcessing
		expect(both, processingSaveDelay/2)
		time.Sleep(processingSaveDelay / 2)
		expect(both, 0)

		expect(ready(), 0) // the modules are Ready: the next change is a new one
		expect(processing(), processingSaveDelay)
		r.Urgent.Mark("a")
		expect(processing(), 0)

		saved.Status = *processing()
		saved.Status.Agent = &v1beta2.AgentStatus{}
		connected := processing()
		connected.Agent = &v1beta2.AgentStatus{Connected: true}
		expect(connected, agentSaveDelay) // a person waits for the modules, not for the agent
	})
}

// TestDeferSaveOfDeletion checks that the progress of a deletion is saved after processingSaveDelay, and that the
// beginning of the deletion and everything that a person has to know are saved at once.
func TestDeferSaveOfDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testReconciler(t, Options{Urgent: queueing.NewUrgent(), InCluster: true})
		saved := &v1beta2.Kyma{}
		expect := func(operation string, edit func(*run), want time.Duration) {
			t.Helper()
			now := metav1.Now()
			k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "a", DeletionTimestamp: &now}}
			k.Status.State, k.Status.LastOperation.Operation = v1beta2.StateDeleting, operation
			n := &run{Reconciler: r, now: time.Now(), kyma: k}
			edit(n)
			if got := n.deferSave(saved); got != want {
				t.Errorf("%s: deferred for %s, want %s", operation, got, want)
			}
		}
		none := func(*run) {}
		expect("it begins", none, 0)
		saved.Status.State, saved.Status.LastOperation.Operation = v1beta2.StateDeleting, "it begins"
		expect("it begins", none, 0)
		expect("module", none, processingSaveDelay)
		time.Sleep(processingSaveDelay / 2)
		expect("agent", none, processingSaveDelay/2)
		expect("unavailable", func(n *run) { n.deletion.unavailable = errors.New("no answer") }, 0)
		expect("refused", func(n *run) { n.found.refused = errors.New("another owner") }, 0)
		expect("left", func(n *run) { n.deletion.runtimeLeft = leftWithoutAccess }, 0)
		expect("removed", func(n *run) { n.kyma.Status.Modules = []v1beta2.ModuleStatus{{Name: "a"}} }, 0)
		expect("published", func(n *run) { n.remote = &v1beta2.Kyma{} }, 0)
		expect("agent", none, processingSaveDelay)
		time.Sleep(processingSaveDelay)
		expect("agent", none, 0)
		saved.Status.LastOperation.Operation = "agent"
		expect("release", none, processingSaveDelay) // the delay begins again after each save
		saved.Status.Conditions = []metav1.Condition{{Type: v1beta2.ConditionReachable, Status: metav1.ConditionFalse}}
		expect("available again", none, 0)
	})
}
