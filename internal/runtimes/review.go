package runtimes

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/internal/access"
)

// A credential may lose rights, or its account may be deleted, while no request is sent to the runtime. If an agent
// reports changes, it also reports changes of the objects that determine the rights of the credential: the
// ServiceAccount of the token, ClusterRoles and ClusterRoleBindings. After a change of the ServiceAccount, a
// ClusterRole or a ClusterRoleBinding, the manager sends a review of the rights: one SelfSubjectRulesReview, whose
// answer has all rights of the credential, or 401 if the credential is not valid any more. RoleBindings and Roles are
// not watched. Their changes are detected by the SelfSubjectRulesReview that is sent once per checkInterval.

const (
	// rightsDelay is the time between the change of a role or binding and the SelfSubjectRulesReview that it causes.
	// The review is delayed because an API server still uses the former rights for a short time after the change of a
	// role or binding.
	rightsDelay = 3 * time.Second
	// accountDelay is the time between the change of a ServiceAccount and the SelfSubjectRulesReview that it causes.
	// The review is delayed because an API server that has checked a token accepts the token for 10 s without another
	// check.
	accountDelay = 12 * time.Second
	// maxEarlyReviews is the number of reviews that changes of roles, bindings or accounts may cause before the rate of
	// reviews is limited. When maxEarlyReviews is used up, changes may cause at most one review in each checkInterval.
	maxEarlyReviews = 6
	// The pool itself subscribes to the objects that determine the rights of the credential. credentialKey is the
	// Subscriber.Key of this subscription.
	credentialKey = "Credential"
	// reviewPath and reviewBody are the URL path and the body of a SelfSubjectRulesReview, with which the manager asks
	// for its own rights in a runtime. The answer to reviewBody has the rights in all namespaces and the rights that
	// apply only in the namespace kyma-system.
	reviewPath = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
	reviewBody = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview",` +
		`"spec":{"namespace":"kyma-system"}}`
	// notOurs is a label selector for objects without the label that all objects of modules and agents have.
	notOurs = "!operator.kyma-project.io/managed-by"
)

var (
	rbac            = schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	clusterRoles    = rbac.WithResource("clusterroles")
	clusterBindings = rbac.WithResource("clusterrolebindings")
	accounts        = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
)

// reviews sends SelfSubjectRulesReviews for the credential of one connection, and records the rights that the answers
// contain.
type reviews struct {
	breaker *breaker
	first   http.RoundTripper // for the first review, for which a reconcile waits
	changed func()            // called without the lock when the rights differ from those of the review before

	sending sync.Mutex // held while a review is sent, so that answers are recorded in the order of the reviews

	mu      sync.Mutex    // guards the following fields
	begun   bool          // the first review was answered
	had     access.Rights // all rights that the credential has had
	has     access.Rights // the rights in the last answer
	early   int           // number of reviews that changes may still cause; negative if one of the future is used
	updated time.Time     // when early was increased
	timer   *time.Timer   // nil unless a review is due
	due     time.Time     // when the review of timer is sent
	number  int           // number of the last timer
	stopped bool
}

// refreshRights sends one request and records the rights in the answer. If the runtime cannot be reconciled,
// refreshRights returns the reason, and otherwise nil. If the answer contains no list of rights, because the API server
// does not allow reviews, the recorded rights stay unchanged.
func (r *reviews) refreshRights() (runtimeError *Error) {
	runtimeError, _ = r.refreshRightsThrough(r.breaker.next)
	return runtimeError
}

// refreshRightsThrough is like refreshRights, for a request that is sent through the given transport. If this transport
// has postponed the request, postponed is true.
func (r *reviews) refreshRightsThrough(transport http.RoundTripper) (runtimeError *Error, postponed bool) {
	r.sending.Lock()
	defer r.sending.Unlock()
	answer, bad, postponed := r.breaker.sendThrough(transport, "POST", reviewPath, reviewBody)
	if bad != nil || postponed {
		return bad, postponed
	}
	rights, err := access.ParseRights(answer)
	if err != nil {
		return nil, false
	}
	r.mu.Lock()
	isChanged := r.begun && r.has != rights
	r.had, r.has = access.Union(r.had, rights), rights
	r.mu.Unlock()
	if isChanged {
		r.changed()
	}
	return nil, false
}

// sendFirstReview sends the first review of the rights, unless the runtime has answered a review before. When
// sendFirstReview returns, the caller can read the rights in the field has. If the bulkhead postpones the review, the
// next call sends it.
func (r *reviews) sendFirstReview() {
	r.mu.Lock()
	begun := r.begun
	r.mu.Unlock()
	if begun {
		return
	}
	r.breaker.openIfCheckFails(0, func() *Error {
		bad, postponed := r.refreshRightsThrough(r.first)
		r.mu.Lock()
		r.begun = bad == nil && !postponed
		r.mu.Unlock()
		return bad
	})
}

// scheduleReview sends a SelfSubjectRulesReview after a delay, because roles, bindings or accounts have changed.
// Several changes within this delay cause only one review. If changes have already caused maxEarlyReviews reviews, the
// next review is sent later, but at most one checkInterval later.
func (r *reviews) scheduleReview(minDelay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.updated.IsZero() {
		r.early, r.updated = maxEarlyReviews, now
	}
	if earned := int(now.Sub(r.updated) / checkInterval); earned > 0 {
		r.early, r.updated = min(maxEarlyReviews, r.early+earned), r.updated.Add(time.Duration(earned)*checkInterval)
	}
	due := now.Add(minDelay)
	switch {
	case r.stopped || r.timer != nil && !due.After(r.due):
		return
	case r.timer != nil && r.timer.Stop():
	default:
		if next := r.updated.Add(checkInterval); r.early <= 0 && due.Before(next) {
			due = next
		}
		r.early--
	}
	r.number++
	number := r.number
	r.due, r.timer = due, time.AfterFunc(due.Sub(now), func() { r.runReviewUnlessStopped(number) })
}

// runReviewUnlessStopped sends a review of the rights when the timer of the review has expired. The parameter
// timerNumber identifies the timer. If the expired timer is still in the field timer, runReviewUnlessStopped clears the
// field. If the field timer contains a newer timer already, runReviewUnlessStopped does not change the field.
func (r *reviews) runReviewUnlessStopped(timerNumber int) {
	r.mu.Lock()
	if r.number == timerNumber {
		r.timer = nil
	}
	stopped := r.stopped
	r.mu.Unlock()
	if !stopped {
		r.breaker.openIfCheckFails(0, r.refreshRights)
	}
}

// stop stops sending reviews.
func (r *reviews) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.timer != nil {
		r.timer.Stop()
	}
}

// WatchCredentialRights makes the agent of a runtime report changes of the objects that determine the rights of the
// credential. After a reported change, the pool sends a SelfSubjectRulesReview, which returns the rights of the
// credential. The first call of WatchCredentialRights for a connection also sends a SelfSubjectRulesReview. The pool
// calls the function changed when the rights of the credential have changed, and when the connection was made,
// replaced, broken or restored. If there are no agents, WatchCredentialRights does nothing.
func (p *Pool) WatchCredentialRights(kyma string, rt *Runtime, changed func()) {
	if rt.reviews == nil {
		return
	}
	rt.reviews.sendFirstReview()
	interests := p.InternInterests(rt.rightsInterests())
	p.Subscribe(kyma, Subscriber{Key: credentialKey, Interests: interests,
		Notify: func(e Event) {
			switch {
			case e.ConnectionChanged:
				changed()
				return
			case len(interests) == 0:
				return // nothing is watched, so nothing was missed
			case e.Listed && e.Interest.Resource == accounts && len(e.Objects) > 0:
				return // the account exists
			}
			delay := rightsDelay
			if e.Missed || e.Interest.Resource == accounts {
				delay = accountDelay
			}
			if rt := p.connectionIfOpen(kyma); rt != nil && rt.reviews != nil {
				rt.reviews.scheduleReview(delay)
			}
		}})
}

// UnwatchRights ends the reports that WatchCredentialRights has requested.
func (p *Pool) UnwatchRights(kyma string) { p.Unsubscribe(kyma, credentialKey) }

// rightsInterests returns interests in the objects that determine the rights of the credential. These objects are
// ClusterRoles, ClusterRoleBindings and the ServiceAccount of the token. The agent needs the right to watch the objects
// that determine the rights of the credential. The manager can grant the agent only rights that its own credential has,
// so rightsInterests leaves out objects that the credential may not watch.
func (rt *Runtime) rightsInterests() (watchable []Interest) {
	rt.reviews.mu.Lock()
	has := rt.reviews.has
	rt.reviews.mu.Unlock()
	if has.MayWatch(clusterRoles.GroupResource()) && has.MayWatch(clusterBindings.GroupResource()) {
		watchable = append(watchable, Interest{Resource: clusterBindings, Kind: "ClusterRoleBinding", Labels: notOurs},
			Interest{Resource: clusterRoles, Kind: "ClusterRole", Labels: notOurs})
	}
	if rt.account.name != "" && has.MayWatch(accounts.GroupResource()) {
		watchable = append(watchable, Interest{Resource: accounts, Kind: "ServiceAccount",
			Namespace: rt.account.namespace,
			Name:      rt.account.name})
	}
	return watchable
}

// Credential returns what is known about the credential of a connection, without a request.
func (p *Pool) Credential(kyma string, rt *Runtime) access.Finding {
	f := access.Finding{Secret: rt.credential.secret, Lifetime: rt.lifetime, IsFirst: rt.isFirst}
	if rt.reviews == nil {
		return f
	}
	rt.reviews.mu.Lock()
	f.Had, f.Has = rt.reviews.had, rt.reviews.has
	rt.reviews.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.entries[kyma]; e != nil {
		for key, s := range e.subscribers {
			for _, i := range s.Interests {
				if key != credentialKey {
					f.Resources = append(f.Resources, i.Resource.GroupResource())
				}
			}
		}
	}
	return f
}

// notifyConnectionChanged notifies the subscriber with the given key that the connection has changed.
func (p *Pool) notifyConnectionChanged(kyma, onlySubscriber string) {
	p.mu.Lock()
	var notify func(Event)
	if e := p.entries[kyma]; e != nil {
		notify = e.subscribers[onlySubscriber].Notify
	}
	p.mu.Unlock()
	if notify != nil {
		notify(Event{ConnectionChanged: true})
	}
}
