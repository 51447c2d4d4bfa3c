package rollout

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

// checkGates judges the gates of the current stage, and reports whether all have passed. A gate with an unknown result
// has not passed.
func (a *advance) checkGates() (allPassed bool) {
	gates := a.spec.Stages[a.currentStage()].Gates
	before := a.status.Stage.Gates
	a.status.Stage.Gates = nil
	passed := true
	for i := range gates {
		is, isRead := a.judgeGate(&gates[i])
		if is.State != v1beta2.GatePass && is.State != v1beta2.GateFail {
			is.State = v1beta2.GateUnknown
		}
		is.Name, is.Since = gates[i].Name, metav1.NewTime(a.Now)
		is.Message = text.ClipLine(cmp.Or(is.Message, "the result is "+string(is.State)), 256)
		b := v1beta2.RolloutBlocker{Code: v1beta2.ReasonGateNotPassed, Object: "gate " + is.Name, Message: is.Message,
			Remedy: "wait, or " + a.command("abort")}
		for _, was := range before {
			switch {
			case was.Name != is.Name:
			case !isRead: // the saved result stays until the gate is read, so that its time goes on
				is = was
			case was.State == is.State:
				is.Since = was.Since
			}
		}
		a.status.Stage.Gates = append(a.status.Stage.Gates, is)
		if isRead && is.State == v1beta2.GatePass {
			continue
		}
		passed = false
		switch {
		case !isRead: // a saved result decides nothing
		case gates[i].Approval != nil:
			b.Code, b.Remedy = v1beta2.ReasonApprovalNeeded, fmt.Sprintf("%s --stage=%s", a.command("approve"),
				a.status.Stage.Name)
		case is.State == v1beta2.GateFail && a.Now.Sub(is.Since.Time) >= failFor(&gates[i]):
			b.Code = v1beta2.ReasonGateFailed
			b.Remedy = "correct what the gate measures; then " + a.command("resume") + " --reason=…, or " +
				a.command("abort")
			a.status.HaltedAt = metav1.NewTime(a.Now)
		case is.State == v1beta2.GateFail:
			a.requeueAfter(failFor(&gates[i]) - a.Now.Sub(is.Since.Time))
		}
		a.block(b)
	}
	return passed
}

func failFor(g *v1beta2.RolloutGate) time.Duration {
	if g.PromQL != nil {
		return g.PromQL.FailFor.Duration
	}
	return 0
}

// judgeGate returns the state of one gate. isRead is false if the gate has to be read, and the result is not known yet.
func (a *advance) judgeGate(g *v1beta2.RolloutGate) (is v1beta2.RolloutGateStatus, isRead bool) {
	switch {
	case g.Approval != nil:
		by := map[string]bool{}
		other := 0
		for _, p := range a.spec.Approvals {
			if p.Stage != a.status.Stage.Name || p.Gate != "" && p.Gate != g.Name {
				continue
			}
			if p.Plan != a.status.Plan {
				other++
				continue
			}
			by[p.By] = true
		}
		need := max(1, int(g.Approval.Count))
		if len(by) >= need {
			return v1beta2.RolloutGateStatus{State: v1beta2.GatePass,
				Message: fmt.Sprintf("%d of %d approved", len(by), need)}, true
		}
		message := fmt.Sprintf("stage %s has %d of %d approvals", a.status.Stage.Name, len(by), need)
		if other > 0 {
			message += fmt.Sprintf("; approvals for another plan that do not count: %d", other)
		}
		return v1beta2.RolloutGateStatus{State: v1beta2.GateUnknown, Message: message}, true
	case g.NotBefore != nil:
		if left := g.NotBefore.Sub(a.Now); left > 0 {
			a.requeueAfter(left)
			return v1beta2.RolloutGateStatus{State: v1beta2.GateUnknown, Message: "not before " +
				g.NotBefore.UTC().Format("2006-01-02T15:04:05Z07:00")}, true
		}
		return v1beta2.RolloutGateStatus{State: v1beta2.GatePass}, true
	}
	if is, found := a.Gates[g.Name]; found {
		return is, true
	}
	return v1beta2.RolloutGateStatus{State: v1beta2.GateUnknown, Message: "the gate was not read yet"}, false
}
