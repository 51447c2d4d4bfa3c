package manifest

import (
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/condition"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/source"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

// outage describes a reconcile that continues although the sources of the installed version cannot be read: the runtime
// is observed, and nothing is applied, compared or pruned.
type outage struct {
	is      bool        // the reconcile continues without the sources
	err     error       // nil if the sources have not answered yet
	changed []apply.Ref // objects that are not compared because of this
}

// continueIfSourcesUnreadable decides whether a reconcile continues without the sources, after a step could not read a
// source. If the desired version is already installed, the reconcile continues without the sources, and later
// reconciles try again to read them. If the desired version is not installed yet, continueIfSourcesUnreadable returns
// the error of the step that could not read the source.
func (n *run) continueIfSourcesUnreadable(err error, isInstalled bool) error {
	after, isWaiting := loop.WaitDelay(err)
	if !isInstalled || !isWaiting && !source.IsUnreadable(err) {
		return err
	}
	n.rendered = nil
	n.observed.outage = outage{is: true, changed: n.memory.drifted(n.changes.objects)}
	if !isWaiting {
		n.observed.outage.err = err
		since := time.Now()
		if c := condition.SourcesUnreadable(n.manifest); c != nil {
			since = c.LastTransitionTime.Time
		}
		after = loop.PollDelay(time.Now(), since)
	}
	return loop.ContinueAndRequeueAfter(after)
}

// isCurrentSpecApplied reports whether the status shows that the spec of a Manifest was applied completely.
func isCurrentSpecApplied(m *v1beta2.Manifest) bool {
	s := &m.Status
	switch {
	case s.AppliedDigest == "" || s.Version != m.Spec.Version:
		return false
	case s.AppliedGeneration != 0:
		return s.AppliedGeneration == m.Generation
	default: // the status is from a release without this field
		return s.State == v1beta2.StateReady && s.ObservedGeneration == m.Generation
	}
}

// reportSourcesReadable sets the condition that the sources cannot be read. reportSourcesReadable removes the condition
// only after the sources were resolved and, if needed, read.
func (n *run) reportSourcesReadable(out loop.Outcome) {
	switch {
	case n.observed.outage.err != nil:
		condition.SetSourcesUnreadable(n.manifest, n.observed.outage.err, n.observed.outage.changed)
	case !n.observed.outage.is && out.Err == nil && n.plan.digest != "":
		condition.RemoveSourcesUnreadable(n.manifest)
	}
}
