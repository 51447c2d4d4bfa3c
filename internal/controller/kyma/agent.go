package kyma

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/delivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// The agent of a runtime tells what happens there, so that nobody has to look. Its trouble is on the Kyma and nobody else's: modules are looked
// after as before, only less promptly.

// Voices tells who is heard.
type Voices interface {
	// State returns what was heard of a runtime last, and whether that is recent.
	State(kyma string) (backchannel.State, bool)
	// Forget drops what is known of a runtime.
	Forget(kyma string)
}

// Agents say how runtimes get their agents. The zero value is for runtimes without: those that are there are taken away.
type Agents struct {
	// Delivery puts them there. nil means none.
	Delivery *delivery.Delivery
	// Voices tells which of them are heard. Needed with Delivery.
	Voices Voices
	// Heartbeat is the time between two heartbeats.
	Heartbeat time.Duration
	// Silence returns how long after its last heartbeat an agent may count as heard. It is called in each pass, so it must be cheap. Needed with Delivery.
	Silence func() time.Duration
	// Release ends the certificates of a runtime that goes. nil: nothing to do.
	Release func(ctx context.Context, kyma string) error
}

// confirmation is how long an agent may take to say that it watches what it was told to.
const confirmation = time.Minute

// inheritAgent takes over the watcher that the Kyma project's lifecycle-manager has left in the runtime. It says of each Kyma whether its watcher is
// well, and knows no status.agent; we only say it with one.
func (n *run) inheritAgent() {
	s := &n.kyma.Status
	if s.Agent == nil && meta.FindStatusCondition(s.Conditions, v1beta2.ConditionSKRWebhook) != nil {
		s.Agent = &v1beta2.AgentStatus{Since: metav1.NewTime(n.now.Truncate(time.Second)), Synced: delivery.Inherited()}
	}
}

// planAgent works out what the runtime gets for its agent. The status, with the list of what is to be delivered, is saved after it.
func (n *run) planAgent(ctx context.Context) error {
	if n.Agents.Delivery == nil || n.InCluster || n.paused {
		return nil
	}
	agent := n.kyma.Status.Agent
	if agent == nil {
		agent = n.newAgent()
	}
	awaits := n.awaitsInterests() // before they are read
	request, err := n.agentRequest(ctx, n.kyma, n.runtime.Server)
	if err != nil {
		return err
	}
	if awaits {
		delivered, err := n.Agents.Delivery.IsDelivered(request, agent)
		if n.undecided = !delivered; err != nil || n.undecided {
			return err
		}
	}
	n.watchlist, n.kyma.Status.Agent = request.Watchlist.Digest(), agent
	n.kit, err = n.Agents.Delivery.Plan(request, agent)
	return err
}

// newAgent is what is known of an agent that nothing was delivered for.
func (n *run) newAgent() *v1beta2.AgentStatus {
	return &v1beta2.AgentStatus{Since: metav1.NewTime(n.now.Truncate(time.Second))}
}

// deliverAgent brings the agent to the runtime, or takes it away where none is wanted, and notes whether it is heard.
func (n *run) deliverAgent(ctx context.Context) error {
	if n.InCluster || n.paused {
		return nil
	}
	if n.Agents.Delivery == nil {
		return n.removeAgent(ctx)
	}
	if n.kyma.Status.Agent == nil {
		n.kyma.Status.Agent = n.newAgent()
	}
	m, s := n.memory(n.kyma.Name, n.runtime), n.kyma.Status.Agent
	if !s.Connected {
		m.agent.Doubt(5 * time.Minute)
	}
	var waits string
	var err error
	if !n.undecided {
		waits, err = n.Agents.Delivery.Deliver(ctx, n.runtime.Cluster, n.kit, &m.agent, s)
	}
	again := n.hearAgent(m, waits, err)
	n.Runtimes.SetAgentConnected(n.kyma.Name, s.Connected)
	switch {
	case err != nil:
		log.FromContext(ctx).Info("agent cannot be delivered", "problem", err.Error())
	case waits != "":
		log.FromContext(ctx).V(1).Info("agent is being delivered", "waiting for", waits)
	}
	return loop.RecheckAfter(again)
}

// hearAgent notes whether the agent is heard, and why not, and returns when that is to be looked at again. The first row that fits wins:
//
//	1  it could not be delivered                         not heard: the error
//	2  it is being delivered                             as before
//	3  the Kyma was met a moment ago, and it was heard   as before: its next heartbeat is on its way
//	4  it was never heard, or not for a while            not heard: AgentSilent
//	5  it says that it cannot watch something            not heard: AgentImpaired
//	6  it does not watch what it was told to by now      not heard: AgentImpaired
//	7  else                                              heard
func (n *run) hearAgent(m *memory, waits string, err error) time.Duration {
	s := n.kyma.Status.Agent
	state, heard := n.Agents.Voices.State(n.kyma.Name)
	before := s.Connected
	young := n.now.Sub(m.born) < n.Agents.Silence()
	behind := heard && !n.undecided && state.Heartbeat.Watchlist != n.watchlist
	switch {
	case !behind:
		m.behind = time.Time{}
	case m.behind.IsZero():
		m.behind = n.now
	}
	switch {
	case err != nil:
		n.setHeard(state, false, orReason(err, v1beta2.ReasonAgentNotDelivered), "the agent cannot be delivered: "+err.Error())
		return time.Minute
	case waits != "":
		return time.Second
	case !heard && s.Connected && young && state.Last.IsZero():
		n.reviews.AddAfter(n.kyma.Name, m.born.Add(n.Agents.Silence()).Sub(n.now)+time.Second)
		return n.renewal()
	case !heard:
		n.setHeard(state, false, v1beta2.ReasonAgentSilent, fmt.Sprintf("the agent is not heard: check that Deployment %s/skr-webhook of the runtime "+
			"is available, and that %s can be reached from there", v1beta2.RuntimeNamespace, n.Agents.Delivery.Address))
	case state.Heartbeat.Problem != "":
		n.setHeard(state, false, v1beta2.ReasonAgentImpaired, "the agent cannot watch everything: "+state.Heartbeat.Problem)
	case behind && n.now.Sub(m.behind) >= confirmation:
		n.setHeard(state, false, v1beta2.ReasonAgentImpaired, fmt.Sprintf("the agent does not watch what ConfigMap %s/skr-webhook-watches of the runtime says: look at its log", v1beta2.RuntimeNamespace))
	default:
		n.setHeard(state, true, "", "")
	}
	switch {
	case before && !s.Connected:
		return time.Second // it may be that something was taken away, which the next pass brings back
	case behind && !s.Connected:
		return n.Agents.Heartbeat + time.Second
	case behind:
		n.reviews.AddAfter(n.kyma.Name, confirmation+time.Second)
	}
	return n.renewal()
}

// renewal is how long the certificate will do.
func (n *run) renewal() time.Duration {
	return max(n.Agents.Delivery.Due(n.kyma.Status.Agent).Sub(n.now), time.Minute)
}

// setHeard records whether the agent is heard. Nothing in it changes while nothing changes.
func (n *run) setHeard(state backchannel.State, heard bool, reason, message string) {
	s := n.kyma.Status.Agent
	if s.Connected != heard {
		s.Since = metav1.NewTime(n.now.Truncate(time.Second))
		s.LastHeartbeat, s.Sequence = metav1.Time{}, 0
		if !heard && !state.Last.IsZero() {
			s.LastHeartbeat, s.Sequence = metav1.NewTime(state.Last.Truncate(time.Second)), int64(state.Heartbeat.Sequence) //nolint:gosec // a count
		}
		if !heard {
			n.event(corev1.EventTypeWarning, reason, message)
			n.memory(n.kyma.Name, n.runtime).agent.Doubt(0)
			metrics.AgentProblems.WithLabelValues(reason).Inc()
		}
	}
	s.Connected, s.Reason, s.Message = heard, reason, message
	if heard {
		s.Version = state.Heartbeat.Version
		if s.Certificate != nil {
			s.Certificate.RootInUse = state.Identity.Root
		}
	}
}

func orReason(err error, otherwise string) string {
	if reason := loop.Reason(err); reason != "" {
		return reason
	}
	return otherwise
}

// removeAgent takes away what was delivered when agents were wanted.
func (n *run) removeAgent(ctx context.Context) error {
	s := n.kyma.Status.Agent
	if s == nil {
		return nil
	}
	left, err := n.runtime.Delete(ctx, delivery.Refs(s.Synced), &n.memory(n.kyma.Name, n.runtime).deletion)
	if err != nil {
		return fmt.Errorf("removing the agent of runtime %s: %w", n.kyma.Name, err)
	}
	if len(left.Remaining) > 0 {
		return loop.Later(time.Second, "the agent to be gone: "+left.WaitMessage())
	}
	n.kyma.Status.Agent = nil
	return nil
}

// agentRequest says what the agent of this runtime is to watch: what followers are interested in, and what Watchers say.
func (r *Reconciler) agentRequest(ctx context.Context, k *v1beta2.Kyma, server string) (delivery.Request, error) {
	request := delivery.Request{Kyma: k, Server: server, NotBefore: NotBefore(k)}
	request.Watchlist.HeartbeatInterval = metav1.Duration{Duration: r.Agents.Heartbeat}
	for _, i := range r.Runtimes.Interests(k.Name) {
		if i.Resource.Group == "" && i.Resource.Resource == "secrets" {
			continue // the right to watch them is the right to read them; audits see what happens to them
		}
		request.Watchlist.Watches = append(request.Watchlist.Watches, watchOf(i))
	}
	var watchers v1beta2.WatcherList
	if err := r.Client.List(ctx, &watchers, client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return request, fmt.Errorf("listing Watchers: %w", err)
	}
	slices.SortFunc(watchers.Items, func(a, b v1beta2.Watcher) int { return strings.Compare(a.Name, b.Name) })
	for i := range watchers.Items {
		w := &watchers.Items[i]
		if w.ManagerName() == "" || !w.DeletionTimestamp.IsZero() {
			continue // its status says so
		}
		addWatcher(&request, w)
	}
	return request, nil
}

// addWatcher adds what a Watcher wants to be told of.
func addWatcher(r *delivery.Request, w *v1beta2.Watcher) {
	of := w.Spec.ResourceToWatch
	if w.Mode() == v1beta2.WatcherModeWebhook {
		r.Webhooks = append(r.Webhooks, delivery.Webhook{
			Name: w.WebhookName(), Manager: w.ManagerName(), Group: of.Group, Version: of.Version, Resource: of.Resource,
			Status: w.Spec.Field == v1beta2.StatusField, Labels: w.Spec.LabelsToWatch,
		})
		return
	}
	selector, err := w.LabelSelector()
	if err != nil {
		return // its status says so
	}
	watch := protocol.Watch{
		Manager: w.ManagerName(), Group: of.Group, Version: of.Version, Resource: of.Resource, Selector: selector, Field: protocol.Field(w.Spec.Field),
	}
	if !slices.Contains(r.Watchlist.Watches, watch) {
		r.Watchlist.Watches = append(r.Watchlist.Watches, watch)
	}
}

// watchOf says to an agent what a follower is interested in.
func watchOf(i runtimes.Interest) protocol.Watch {
	w := protocol.Watch{
		Group: i.Resource.Group, Version: i.Resource.Version, Resource: i.Resource.Resource, Kind: i.Kind,
		Namespace: i.Namespace, Name: i.Name, Selector: i.Labels,
	}
	if i.Resource.Group == v1beta2.GroupVersion.Group { // of these, the status is ours
		w.Field = protocol.FieldSpec
	}
	return w
}

// NotBefore returns the time before which certificates of a runtime do not count; zero if there is none.
func NotBefore(k *v1beta2.Kyma) time.Time {
	t, err := time.Parse(time.RFC3339, k.Annotations[v1beta2.AnnotationCertificatesNotBefore])
	if err != nil {
		return time.Time{}
	}
	return t
}

// Manifests say one after the other what they want to hear of, and after a restart they do so again. Meanwhile the watch list would be a part of
// what it is going to be, so the agent keeps the one it has, for as long as that should take.
const (
	firstInterests = 5 * time.Second // of a Manifest that is being installed
	againInterests = 2 * time.Minute // of one that was, before the program started
)

// awaitsInterests tells whether a Manifest that is there has not said yet what it wants to hear of, and is given the time to do so.
func (n *run) awaitsInterests() bool {
	m := n.memory(n.kyma.Name, n.runtime)
	var all []string
	patience := firstInterests
	for i := range n.modules {
		manifest := n.modules[i].manifest
		if manifest == nil || !manifest.DeletionTimestamp.IsZero() || manifest.IsUnmanaged() {
			continue
		}
		key := runtimes.ManifestSubscriberKey(manifest.Namespace, manifest.Name)
		if all = append(all, key); manifest.Status.AppliedDigest != "" && !n.Runtimes.HasInterests(n.kyma.Name, key) {
			patience = againInterests
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if m.manifests = all; n.haveDeclared(n.kyma.Name, all) {
		m.awaited = time.Time{}
		return false
	}
	if m.awaited.IsZero() {
		m.awaited = n.now
	}
	left := m.awaited.Add(patience).Sub(n.now)
	if left <= 0 {
		return false
	}
	n.reviews.AddAfter(n.kyma.Name, left+time.Millisecond)
	m.patience = patience
	return true
}

// haveDeclared tells whether all these followers have said what they want to hear of.
func (r *Reconciler) haveDeclared(kyma string, followers []string) bool {
	return !slices.ContainsFunc(followers, func(key string) bool { return !r.Runtimes.HasInterests(kyma, key) })
}

// Review starts a pass over a Kyma if what is known of its agent, or what the agent is to watch, is not what the Kyma's status says. What comes
// together is one review. It makes no request.
func (r *Reconciler) Review(kyma string) {
	const together = 100 * time.Millisecond
	r.reviews.AddAfter(kyma, together)
}

// reviewAgents reviews until ctx ends.
func (r *Reconciler) reviewAgents(ctx context.Context) error {
	defer context.AfterFunc(ctx, r.reviews.ShutDown)()
	for {
		kyma, end := r.reviews.Get()
		if end {
			return nil
		}
		pass, again := r.needsPass(ctx, kyma)
		switch {
		case pass:
			r.Wake(kyma)
		case again > 0: // the queue has one time for each Kyma: this review may have come in place of a later one
			r.reviews.AddAfter(kyma, again+time.Millisecond)
		}
		r.reviews.Done(kyma)
	}
}

// needsPass tells whether a pass would find something to do for the agent of a runtime, and if not, when it may without anything happening, 0 for
// never. Of a Kyma that no pass has seen, there is one to come.
//
//	nobody has looked at the runtime yet            yes, if the agent was heard since, or should have been
//	its Kyma says that it is heard, and it is not   yes; if the Kyma is new to us: when the agent should have been heard
//	the other way round                             yes
//	another version, a problem, another root        yes
//	Manifests have not said what they want to hear  no: when that has taken too long
//	another watch list than delivered, or than had  yes
func (r *Reconciler) needsPass(ctx context.Context, kyma string) (pass bool, again time.Duration) {
	r.mu.Lock()
	m := r.known[kyma]
	if m != nil && m.presumed {
		left := r.Agents.Silence() - time.Since(m.born)
		r.mu.Unlock()
		state, _ := r.Agents.Voices.State(kyma)
		return !state.Last.IsZero() || left <= 0, left
	}
	if m == nil || m.runtime == nil || r.Agents.Delivery == nil {
		r.mu.Unlock()
		return false, 0
	}
	born, server, manifests := m.born, m.runtime.Server, m.manifests
	var patience time.Duration // left
	if !m.awaited.IsZero() {
		patience = m.patience - time.Since(m.awaited)
	}
	r.mu.Unlock()
	k := &v1beta2.Kyma{}
	if err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: kyma}, k, client.DisableReadYourWritesConsistency); err != nil {
		return false, 0 // it is gone
	}
	s := k.Status.Agent
	if s == nil {
		return true, 0
	}
	state, heard := r.Agents.Voices.State(kyma)
	if s.Connected != heard {
		again = r.Agents.Silence() - time.Since(born)
		if heard || !state.Last.IsZero() || again <= 0 {
			return true, 0
		}
	}
	if heard && (s.Version != state.Heartbeat.Version || state.Heartbeat.Problem != "" || s.Certificate != nil && s.Certificate.RootInUse != state.Identity.Root) {
		return true, 0
	}
	if patience > 0 && !r.haveDeclared(kyma, manifests) {
		return false, cmp.Or(min(again, patience), patience)
	}
	request, err := r.agentRequest(ctx, k, server)
	if err != nil {
		return true, 0
	}
	delivered, err := r.Agents.Delivery.IsDelivered(request, s)
	return err != nil || !delivered || heard && state.Heartbeat.Watchlist != request.Watchlist.Digest(), again
}

// Wake starts a pass over a Kyma soon. What comes together is one pass.
func (r *Reconciler) Wake(kyma string) {
	const together = 100 * time.Millisecond
	if q := r.queue.Load(); q != nil {
		(*q).AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: kyma}}, together)
	}
}

// WakeAll starts a pass over every Kyma, spread.
func (r *Reconciler) WakeAll(ctx context.Context) {
	if q := r.queue.Load(); q != nil {
		r.wakeFleet(ctx, *q)
	}
}

// reportAgent says on the Kyma whether its agent is heard.
func (n *run) reportAgent(set setter) {
	s := n.kyma.Status.Agent
	if s == nil || n.Agents.Delivery == nil {
		meta.RemoveStatusCondition(&n.kyma.Status.Conditions, v1beta2.ConditionSKRWebhook)
		return
	}
	if n.RuntimeMetrics && !n.Agents.Delivery.Due(s).IsZero() && n.now.Sub(n.Agents.Delivery.Due(s)) > 24*time.Hour {
		metrics.CertificateOverdue.WithLabelValues(n.kyma.Name).Set(1)
	} else {
		metrics.CertificateOverdue.DeleteLabelValues(n.kyma.Name)
	}
	set(v1beta2.ConditionSKRWebhook, s.Connected, v1beta2.MessageSKRWebhookTrue, v1beta2.MessageSKRWebhookFalse, s.Reason, s.Message)
}
