package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/condition"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/source"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// plan is the desired content of the runtime, and the work that this reconcile has to do.
type plan struct {
	sources []source.Source // in the order in which they are installed
	config  source.Artefact // the config layer; zero if there is none
	options render.Options  // for the objects of all sources
	overlay render.Overlay
	digest  string // digest of all inputs that determine the desired content

	applyAll bool // all objects are applied, because this digest has not been applied completely
	// drifted are the objects that other clients have probably changed or deleted. A reconcile compares the objects in
	// drifted with their desired state, or sends all objects if applyAll is set.
	drifted    []apply.Ref
	compareAll bool // all objects are compared, or sent again with applyAll
}

// history is what newPlan needs from earlier reconciles and from events.
type history struct {
	drifted       []apply.Ref // objects that others changed or deleted
	missed        bool        // events about objects may have been lost
	dropped       bool        // too many objects changed, so it is not known which
	retried       bool        // a person requested a retry
	driftReported bool        // the last comparison found drift, which was reported and not corrected
	neverCompared bool        // this process has neither sent nor compared the objects of the Manifest

	sinceCompared time.Duration // time since all objects were last sent or compared
	sinceAudit    time.Duration // time since all objects were last compared
	auditInterval time.Duration
}

// recentComparisonPeriod is the time after a comparison of all objects in which lost events do not cause another
// comparison of all objects. The loss of events during an installation does no harm, because an installation compares
// all objects anyway.
const recentComparisonPeriod = time.Minute

// newPlan returns the plan for a Manifest whose sources were resolved.
func newPlan(m *v1beta2.Manifest, found source.Found, pullSecret string, h history) plan {
	p := plan{
		sources: found.Sources,
		config:  found.Config,
		options: objectOptions(m, pullSecret, found.Injection),
		overlay: render.Overlay{
			Labels:      map[string]string{v1beta2.LabelAppComponent: m.Name},
			Annotations: map[string]string{v1beta2.AnnotationOwnedBy: m.Namespace + "/" + m.Name},
		},
		drifted: h.drifted,
	}
	p.digest = p.desiredDigest(m)
	p.applyAll = m.Status.AppliedDigest != p.digest
	switch {
	case h.retried, h.dropped, h.sinceAudit >= h.auditInterval*7/8:
		p.compareAll = true
	case h.missed && h.sinceCompared > recentComparisonPeriod:
		p.compareAll = true
	case condition.SourcesUnreadable(m) != nil && h.neverCompared: // changes may have been observed before a restart
		p.compareAll = true
	// the conflict must be found again after a restart
	case readyConditionReason(&m.Status) == v1beta2.ReasonOwnedByOtherModule:
		p.compareAll = h.neverCompared
	case reportsDrift(m): // drift that was reported before a restart must be found again
		p.compareAll = h.neverCompared
	case h.driftReported: // the annotation was removed, so the drift is corrected now
		p.compareAll = true
	}
	return p
}

// hasWork reports whether objects have to be applied or compared.
func (p plan) hasWork() bool { return p.applyAll || p.compareAll || len(p.drifted) > 0 }

// objectOptions returns the changes that are made to every object of the module.
func objectOptions(m *v1beta2.Manifest, pullSecret string, injection *render.Injection) render.Options {
	o := render.Options{
		Labels: map[string]string{v1beta2.LabelManagedBy: v1beta2.ManagedByKyma,
			v1beta2.LabelAppPartOf: v1beta2.PartOfKyma},
		Annotations: map[string]string{v1beta2.AnnotationDisclaimer: v1beta2.Disclaimer},
		Images:      m.Spec.LocalizedImages,
		PullSecret:  pullSecret,
		Injection:   injection,
	}
	if mgr := m.Spec.Manager; mgr != nil {
		o.Manager = &render.Manager{Group: mgr.Group, Version: mgr.Version, Kind: mgr.Kind,
			Namespace: mgr.Namespace, Name: mgr.Name}
	}
	return o
}

// desiredDigest returns the digest of all inputs that determine the desired content of the runtime. The digest does not
// include properties of the runtime that charts use, such as its Kubernetes version. If a property of the runtime that
// a chart uses changes, the next audit detects the change.
//
// desiredDigest computes the digest from the digests of the artefacts, and not from their content. Therefore an
// unchanged Manifest needs no download, even after a restart. The status of every Manifest contains this digest. If the
// way in which the digest is computed changes, all modules are applied again.
func (p plan) desiredDigest(m *v1beta2.Manifest) string {
	h := sha256.New()
	encode := json.NewEncoder(h)
	for _, s := range p.sources {
		options := p.options
		options.Digest = s.Digest()
		_ = encode.Encode([]any{s.Name, options.ResultingBundleDigest()}) // strings and JSON values always encode
	}
	for _, part := range []any{p.overlay, m.Spec.Version, m.Spec.CustomResourcePolicy, m.Spec.Resource} {
		_ = encode.Encode(part)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// stateRules returns the rules with which the state of the module's custom resource is read.
func stateRules(s *v1beta2.ManifestSpec) apply.StateRules {
	rules := apply.StateRules{Expression: s.StateExpression}
	for _, c := range s.CustomStateCheck {
		rules.Rules = append(rules.Rules, apply.StateRule{JSONPath: c.JSONPath, Value: c.Value,
			State: apply.State(c.MappedState)})
	}
	return rules
}

// isModuleCRDecisive reports whether the state of the module's custom resource decides about the readiness of the
// module. The annotation of the Manifest has precedence over the parameter byDefault, the value of the manager's flag.
func isModuleCRDecisive(m *v1beta2.Manifest, byDefault bool) bool {
	if m.Spec.Resource == nil || m.Spec.CustomResourcePolicy == v1beta2.Ignore {
		return false
	}
	decides, err := strconv.ParseBool(m.Annotations[v1beta2.AnnotationCustomStateCheck])
	if err != nil {
		return byDefault
	}
	return decides
}

// readinessRulesKey returns a text that changes whenever one of the readiness rules outside the spec changes.
func readinessRulesKey(m *v1beta2.Manifest, stateCheckDefault bool) string {
	return fmt.Sprint(isModuleCRDecisive(m, stateCheckDefault), " ", m.Annotations[v1beta2.AnnotationDrift])
}

// reportsDrift reports whether drift is only reported and not corrected.
func reportsDrift(m *v1beta2.Manifest) bool {
	return m.Annotations[v1beta2.AnnotationDrift] == v1beta2.DriftReport
}

// readiness is the state of the module in the runtime. The fields reason and message are set if the module is not
// Ready.
type readiness struct {
	state   v1beta2.State
	reason  string
	message string
}

// readinessOf summarizes the objects that are not ready. If at least one object has failed, the failed objects
// determine the state and the message, not the objects that are still in progress.
func readinessOf(waiting []apply.NotReady) readiness {
	r := readiness{state: v1beta2.StateReady}
	for _, w := range waiting {
		switch {
		case w.Failed && r.state != v1beta2.StateError:
			r = readiness{v1beta2.StateError, v1beta2.ReasonWorkloadFailed, w.Message}
		case !w.Failed && r.state == v1beta2.StateReady:
			r = readiness{v1beta2.StateProcessing, v1beta2.ReasonWorkloadNotReady, w.Message}
		}
	}
	return r
}

// readinessByResource converts the state of the module's custom resource to the readiness of the module.
func readinessByResource(v apply.StateResult) readiness {
	if v.State == apply.StateReady {
		return readiness{state: v1beta2.StateReady}
	}
	return readiness{v1beta2.State(v.State), v1beta2.ReasonCustomResourceNotReady, v.Message}
}
