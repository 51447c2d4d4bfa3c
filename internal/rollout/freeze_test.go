package rollout

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// TestHoldOf checks which rollouts a suspension or a freeze of the policy holds, and the time until this changes.
func TestHoldOf(t *testing.T) {
	now := time.Date(2026, time.December, 20, 12, 0, 0, 0, time.UTC)
	freeze := func(name string, from, to int, except ...v1beta2.FreezeException) v1beta2.RolloutFreeze {
		at := func(hours int) metav1.Time { return metav1.NewTime(now.Add(time.Duration(hours) * time.Hour)) }
		return v1beta2.RolloutFreeze{Name: name, From: at(from), To: at(to), Except: except}
	}
	for name, c := range map[string]struct {
		reason    string
		freezes   []v1beta2.RolloutFreeze
		isBack    bool
		isStopped bool
		code      string
		message   string
		hours     int // until it changes
	}{
		"None":   {"nothing is frozen", nil, false, false, "", "", 0},
		"Past":   {"it has ended", []v1beta2.RolloutFreeze{freeze("a", -5, 0)}, false, false, "", "", 0},
		"Future": {"it has not begun", []v1beta2.RolloutFreeze{freeze("a", 3, 9)}, false, false, "", "", 3},
		"Now": {"it has begun", []v1beta2.RolloutFreeze{freeze("a", 0, 9)}, false, false, v1beta2.ReasonRolloutFrozen,
			"RolloutPolicy p has the freeze a until 2026-12-20T21:00:00Z: nobody begins before", 9},
		"Overlap": {"the one that ends last is shown, and the first change is an end",
			[]v1beta2.RolloutFreeze{freeze("a", -1, 4), freeze("b", -1, 9), freeze("c", -1, 2)}, false, false,
			v1beta2.ReasonRolloutFrozen,
			"RolloutPolicy p has the freeze b until 2026-12-20T21:00:00Z: nobody begins before", 2},
		"Except": {"the way back goes on", []v1beta2.RolloutFreeze{freeze("a", -1, 9, v1beta2.ExceptBack)}, true,
			false, "", "", 0},
		"ExceptOther": {"the exception is for the way back", []v1beta2.RolloutFreeze{freeze("a", -1, 9,
			v1beta2.ExceptBack)}, false, false, v1beta2.ReasonRolloutFrozen,
			"RolloutPolicy p has the freeze a until 2026-12-20T21:00:00Z: nobody begins before", 9},
		"Back": {"there is no exception", []v1beta2.RolloutFreeze{freeze("a", -1, 9)}, true, false,
			v1beta2.ReasonRolloutFrozen,
			"RolloutPolicy p has the freeze a until 2026-12-20T21:00:00Z: nobody begins before", 9},
		"Suspended": {"a person has stopped it as well", []v1beta2.RolloutFreeze{freeze("a", -1, 9)}, false, true,
			v1beta2.ReasonRolloutSuspended, "RolloutPolicy p suspends all its rollouts", 9},
	} {
		policy := &v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec: v1beta2.RolloutPolicySpec{Freezes: c.freezes, Suspend: c.isStopped}}
		r := &v1beta2.ModuleRollout{}
		if c.isBack {
			r.Spec.Direction = v1beta2.RolloutBack
		}
		hold, change := HoldOfPolicy(policy, r, now)
		code, message := "", ""
		if hold != nil {
			code, message = hold.Code, hold.Message
		}
		if code != c.code || message != c.message || change != time.Duration(c.hours)*time.Hour {
			t.Errorf("%s: %s: got %q %q in %s, want %q %q in %d hours", name, c.reason, code, message, change, c.code,
				c.message, c.hours)
		}
	}
	if hold, change := HoldOfPolicy(nil, &v1beta2.ModuleRollout{}, now); hold != nil || change != 0 {
		t.Errorf("without a policy got %v in %s", hold, change)
	}
}
