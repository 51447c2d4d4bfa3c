package cluster

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// maxRequests limits the number of recorded requests of a cluster (about 60 MB). Beyond this limit, the oldest requests
// are dropped.
const maxRequests = 200_000

// Request is one request as the API server recorded it.
type Request struct {
	Time time.Time // time of receipt
	// Verb is get, list, watch, create, update, patch, delete or deletecollection. For paths that are no resources,
	// Verb is the HTTP method in lower case.
	Verb        string
	Path        string // path of the request with the query
	Group       string // "" is the core group, or not an API object
	Resource    string // as in "deployments"; "" for paths that are no API object
	Subresource string
	Namespace   string
	Name        string // "" on create with a generated name, on list, watch and deletecollection
	User        string // authenticated or impersonated user, as in "system:serviceaccount:team:operator"
	UserAgent   string
	Code        int // HTTP status of the response
}

// Mark is a point in the sequence of a cluster's requests.
type Mark int

// Mark returns the point in the sequence after all requests so far.
func (c *Cluster) Mark() Mark {
	if c.audit == nil {
		return 0
	}
	return c.audit.mark()
}

// Requests returns the requests since the mark, in the order of their responses. A watch is recorded when it begins.
// The result of Requests includes requests of the parts of the cluster itself, whose users are system:apiserver,
// kube-controller-manager, kube-scheduler and kubelet. For the zero Mark, Requests returns all requests since the first
// start of the cluster. Without Options.Audit, the result of Requests is empty. A cluster keeps 200,000 requests. Older
// requests are missing in the result.
func (c *Cluster) Requests(since Mark) []Request {
	if c.audit == nil {
		return nil
	}
	return c.audit.since(since)
}

// auditLog is an audit backend that keeps requests in memory. auditLog is also the audit policy, which selects the
// metadata of each request.
type auditLog struct {
	mu       sync.Mutex // guards what follows
	first    int        // number of dropped requests
	requests []Request
	began    map[types.UID]struct{} // long-running requests that are already recorded
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

// clear deletes the recorded requests.
func (a *auditLog) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.first, a.requests = 0, nil
}

// EvaluatePolicyRule implements audit.PolicyRuleEvaluator.
func (a *auditLog) EvaluatePolicyRule(authorizer.Attributes) audit.RequestAuditConfig {
	return audit.RequestAuditConfig{Level: auditinternal.LevelMetadata,
		OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived}}
}

// ProcessEvents implements audit.Sink. The API server sends two audit events for a long-running request, such as a
// watch, and one audit event for any other request.
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
		if event.ImpersonatedUser != nil {
			r.User = event.ImpersonatedUser.Username
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
