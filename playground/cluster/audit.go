package cluster

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// maxRequests bounds the memory of an audit (about 60 MB); the oldest requests are forgotten.
const maxRequests = 200_000

// Request is one request as the API server saw it.
type Request struct {
	Time time.Time // when it came in
	// get, list, watch, create, update, patch, delete, deletecollection; for other paths the HTTP method in lower case
	Verb        string
	Path        string // as it was sent, with the query
	Group       string // "" is the core group, or not an API object
	Resource    string // as in "deployments"; "" for paths that are no API object
	Subresource string
	Namespace   string
	Name        string // "" on create with a generated name, on list, watch and deletecollection
	User        string // as authenticated, as in "system:serviceaccount:team:operator"
	UserAgent   string
	Code        int // HTTP status of the response
}

// Mark is a point in the sequence of a cluster's requests.
type Mark int

// Mark returns the point after the requests so far.
func (c *Cluster) Mark() Mark {
	if c.audit == nil {
		return 0
	}
	return c.audit.mark()
}

// Requests returns the requests that were answered since the mark, in the order of their answers; a watch counts when
// it begins. It includes those of the cluster's own parts, whose users are system:apiserver, kube-controller-manager,
// kube-scheduler and kubelet. The zero Mark is the first start. Without Options.Audit there are none. A cluster
// remembers 200,000 requests; older ones are missing.
func (c *Cluster) Requests(since Mark) []Request {
	if c.audit == nil {
		return nil
	}
	return c.audit.since(since)
}

// auditLog is an audit backend that keeps requests in memory, and the policy that asks for the metadata of each.
type auditLog struct {
	mu       sync.Mutex // guards what follows
	first    int        // number of requests forgotten
	requests []Request
	began    map[types.UID]struct{} // long-running requests that are counted already
}

func (a *auditLog) mark() Mark {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Mark(a.first + len(a.requests))
}

func (a *auditLog) since(mark Mark) []Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	from := min(max(int(mark)-a.first, 0), len(a.requests))
	return append([]Request(nil), a.requests[from:]...)
}

// EvaluatePolicyRule implements audit.PolicyRuleEvaluator.
func (a *auditLog) EvaluatePolicyRule(authorizer.Attributes) audit.RequestAuditConfig {
	return audit.RequestAuditConfig{Level: auditinternal.LevelMetadata,
		OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived}}
}

// ProcessEvents implements audit.Sink. A long-running request has two events, any other one.
func (a *auditLog) ProcessEvents(events ...*auditinternal.Event) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, event := range events {
		if _, counted := a.began[event.AuditID]; counted && event.Stage != auditinternal.StageResponseStarted {
			delete(a.began, event.AuditID)
			continue
		}
		if event.Stage == auditinternal.StageResponseStarted {
			if a.began == nil {
				a.began = map[types.UID]struct{}{}
			}
			a.began[event.AuditID] = struct{}{}
		}
		r := Request{
			Time: event.RequestReceivedTimestamp.Time, Verb: event.Verb, Path: event.RequestURI,
			User: event.User.Username, UserAgent: event.UserAgent,
		}
		if ref := event.ObjectRef; ref != nil {
			r.Group, r.Resource, r.Subresource, r.Namespace, r.Name = ref.APIGroup, ref.Resource,
				ref.Subresource, ref.Namespace, ref.Name
		}
		if event.ResponseStatus != nil {
			r.Code = int(event.ResponseStatus.Code)
		}
		if len(a.requests) >= maxRequests {
			drop := maxRequests / 10
			a.requests = append(a.requests[:0:0], a.requests[drop:]...)
			a.first += drop
		}
		a.requests = append(a.requests, r)
	}
	return true
}

// Run implements audit.Backend.
func (a *auditLog) Run(<-chan struct{}) error { return nil }

// Shutdown implements audit.Backend.
func (a *auditLog) Shutdown() {}

// String implements audit.Backend.
func (a *auditLog) String() string { return "playground" }
