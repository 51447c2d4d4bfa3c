package backchannel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// refusal is a response with another status code than 200.
type refusal struct {
	status    int
	reason    string // for metrics
	message   string // one line, sent to the client
	detail    error  // for the log
	after     time.Duration
	closeConn bool // close the connection after the response, unless it belongs to a peer
}

// target is the parsed path of a request.
type target struct {
	manager   string
	heartbeat bool
}

// isForLifecycleManager reports whether the request is for Lifecycle Manager, and not for another manager that has
// registered a Watcher.
func (t target) isForLifecycleManager() bool { return t.manager == protocol.ManagerName }

// bodies is a pool of buffers for request bodies. No buffer grows beyond the maximum size of a body.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// serve handles a request. The first row whose condition is true decides the status code:
//
//	 1 the path is not /v2/<manager>/event or /v2/lifecycle-manager/heartbeat   404; 400 if the first part is no version
//	 2 the method is not POST                                                   405
//	 3 Content-Length is too large                                              413
//	 4 too many requests are in flight                                          503
//	 5 no certificate, or none that is valid now and leads to a root            401
//	 6 the certificate has no common name                                       400
//	 7 no runtime has this identity                                             403
//	 8 the certificate was revoked                                              401
//	 9 the runtime exceeds its rate or its concurrent requests                  429
//	10 the body is too large, too slow, or malformed                            413; 408; 400
//	11 the replica that reconciles the runtime cannot be reached                503
//	12 else                                                                     200
func (l *Listener) serve(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	metrics.ListenerRequests.Inc()
	metrics.ListenerInFlight.Inc()
	defer func() {
		metrics.ListenerInFlight.Dec()
		took := time.Since(begin).Seconds()
		metrics.ListenerDuration.Set(took)
		metrics.ListenerRequestSeconds.Observe(took)
	}()
	if refused := l.handleRequest(w, r); refused != nil {
		l.refuse(w, r, refused)
	}
}

// refuse writes a response other than 200.
func (l *Listener) refuse(w http.ResponseWriter, r *http.Request, refused *refusal) {
	metrics.ListenerErrors.Inc()
	metrics.ListenerRefused.WithLabelValues(refused.reason).Inc()
	switch refused.status {
	case http.StatusRequestEntityTooLarge:
		metrics.ListenerTooLarge.Inc()
	case http.StatusUnauthorized, http.StatusForbidden:
		path := "other" // a client that is not identified can send any number of different paths
		if r.URL.Path == protocol.EventPath(protocol.ManagerName) ||
			r.URL.Path == protocol.HeartbeatPath(protocol.ManagerName) {
			path = r.URL.Path
		}
		metrics.ListenerUnverified.WithLabelValues(metrics.ListenerName, path).Inc()
	}
	h := w.Header()
	h.Set(protocol.HeaderInstance, l.instance)
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	c := connOf(r)
	shared := c.trusted.Load() // a peer uses the connection for the requests of many runtimes
	if refused.closeConn && (!shared || refused.status == http.StatusRequestEntityTooLarge) ||
		l.connLimiter.mustCloseAfterResponse(c) {
		h.Set("Connection", "close")
	}
	if refused.after > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(refused.after.Seconds()))))
	}
	if refused.status == http.StatusMethodNotAllowed {
		h.Set("Allow", http.MethodPost)
	}
	w.WriteHeader(refused.status)
	//nolint:gosec // it is plain text for a program; a client that has disconnected needs no response
	_, _ = io.WriteString(w, refused.message+"\n")
	l.logRefusal(r, refused)
}

// logRefusal logs some of the refused requests, at a limited rate.
func (l *Listener) logRefusal(r *http.Request, refused *refusal) {
	l.logMu.Lock()
	ok, _ := l.logRate.takeToken(logLines, time.Now())
	l.logMu.Unlock()
	if ok {
		l.opts.Log.Info("Refused a request", "remote", r.RemoteAddr, "path", r.URL.Path, "status",
			refused.status, "reason", refused.reason,
			"message", refused.message, "detail", fmt.Sprint(refused.detail))
	}
}

// handleRequest executes a request. If the request is refused, handleRequest returns the refusal.
func (l *Listener) handleRequest(w http.ResponseWriter, r *http.Request) *refusal {
	to, refused := parsePath(r)
	if refused != nil {
		return refused
	}
	limit := l.opts.Limits.EventBytes
	if to.heartbeat {
		limit = protocol.MaxHeartbeatBytes
	}
	switch {
	case r.Method != http.MethodPost:
		return &refusal{status: http.StatusMethodNotAllowed, reason: "method",
			message: "method " + r.Method + " is not allowed: use POST"}
	case r.ContentLength > limit:
		return tooLarge(limit)
	case l.inFlight.Add(1) > int64(l.opts.Limits.InFlight):
		l.inFlight.Add(-1)
		return &refusal{status: http.StatusServiceUnavailable, reason: "busy",
			message: "too many requests are in progress: try again", after: time.Second}
	}
	defer l.inFlight.Add(-1)
	from, kyma, refused := l.authorize(r)
	if from.forwarder != "" {
		w.Header().Set(headerForwarded, from.forwarder)
	}
	if refused != nil {
		return refused
	}
	rec, refused := l.admitRequest(kyma, to.heartbeat)
	if refused != nil {
		return refused
	}
	defer func() {
		rec.mu.Lock()
		rec.inFlight--
		rec.mu.Unlock()
	}()
	c := connOf(r)
	if !c.trusted.Load() {
		l.connLimiter.assignRuntime(c, rec)
	}
	if l.connLimiter.mustCloseAfterResponse(c) {
		w.Header().Set("Connection", "close")
	}
	body := bodies.Get().(*bytes.Buffer)
	defer bodies.Put(body)
	if refused := readBody(w, r, body, limit); refused != nil {
		return refused
	}
	return l.handleOrForward(w, r, to, from, rec, body.Bytes())
}

// parsePath returns the target of a request path. The name of a manager may contain slashes, because the Kyma project
// allows slashes in such names.
func parsePath(r *http.Request) (target, *refusal) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/v2/")
	if !ok {
		version, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if strings.HasSuffix(r.URL.Path, "/event") && !strings.HasPrefix(version, "v") {
			return target{}, &refusal{status: http.StatusBadRequest, reason: "path",
				message: "the path must begin with the version of the contract: " + protocol.EventPath("<manager>")}
		}
		return target{}, notFound()
	}
	if manager, ok := strings.CutSuffix(rest, "/heartbeat"); ok && manager == protocol.ManagerName {
		return target{manager: manager, heartbeat: true}, nil
	}
	manager, ok := strings.CutSuffix(rest, "/event")
	if !ok || r.URL.RawPath != "" || !isManagerName(manager) {
		return target{}, notFound()
	}
	return target{manager: manager}, nil
}

func notFound() *refusal {
	return &refusal{status: http.StatusNotFound, reason: "path",
		message: "unknown path: post to " + protocol.EventPath("<manager>")}
}

// isManagerName reports whether a string can be the name of a manager. A name consists of parts, separated by slashes.
// A part consists of letters, digits, dots, dashes and underscores.
func isManagerName(manager string) bool {
	if len(manager) > 253 {
		return false
	}
	for part := range strings.SplitSeq(manager, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
		for _, c := range []byte(part) {
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') &&
				c != '.' && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

func tooLarge(limit int64) *refusal {
	return &refusal{status: http.StatusRequestEntityTooLarge, reason: "body_size",
		message: fmt.Sprintf("the body has more than %d bytes", limit), closeConn: true}
}

// authorize returns the caller of a request and the name of its Kyma. If another replica has forwarded the request,
// authorize sets the field forwarder of the returned caller even if authorize refuses the request.
func (l *Listener) authorize(r *http.Request) (from caller, kyma string, refused *refusal) {
	from, refused = l.identify(r, connOf(r))
	if refused != nil {
		return from, "", refused
	}
	if from.ID.CommonName == "" {
		return from, "", &refusal{status: http.StatusBadRequest, reason: "no_name",
			message: "the client certificate has no common name, which identifies the runtime", closeConn: true}
	}
	rt, err := l.opts.Lookup(from.ID)
	switch {
	case err != nil:
		return from, "", &refusal{status: http.StatusForbidden, reason: "unknown_runtime", detail: err,
			message: fmt.Sprintf(
				"the client certificate is for %q, which is not a runtime of this control plane (any more)",
				from.ID.CommonName), after: refusedDelay, closeConn: true}
	case from.Issued.Before(rt.NotBefore):
		return from, "", &refusal{status: http.StatusUnauthorized, reason: "revoked",
			message: fmt.Sprintf(
				"client certificates of %q that were issued before %s are revoked: get a new one from the "+
					"control plane", from.ID.CommonName, rt.NotBefore.UTC().Format(time.RFC3339)), after: refusedDelay,
			closeConn: true}
	}
	return from, rt.Kyma, nil
}

// admitRequest counts a request of a runtime, and returns the record of the runtime. If a limit is exceeded,
// admitRequest refuses the request.
func (l *Listener) admitRequest(kyma string, heartbeat bool) (*record, *refusal) {
	now := time.Now()
	r := l.tracker.getOrCreateLockedRecord(kyma)
	defer r.mu.Unlock()
	r.last = now
	if r.inFlight >= l.opts.Limits.PerRuntime {
		return nil, &refusal{status: http.StatusTooManyRequests, reason: "runtime_busy",
			message: "this runtime has too many concurrent requests: send fewer at a time", after: time.Second}
	}
	b, allowed := &r.events, rate{time.Duration(float64(time.Second) / l.opts.Limits.Rate), l.opts.Limits.Burst}
	if heartbeat {
		b, allowed = &r.beats, heartbeats
	}
	if ok, wait := b.takeToken(allowed, now); !ok {
		return nil, &refusal{status: http.StatusTooManyRequests, reason: "rate",
			message: "this runtime sends too many requests: wait", after: wait}
	}
	r.inFlight++
	return r, nil
}

// readBody reads the body of a request into an empty buffer.
func readBody(w http.ResponseWriter, r *http.Request, body *bytes.Buffer, limit int64) *refusal {
	body.Reset()
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	if err == nil {
		return nil
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return tooLarge(limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &refusal{status: http.StatusRequestTimeout, reason: "slow", message: "the body was not received in time",
			detail: err, closeConn: true}
	}
	return &refusal{status: http.StatusBadRequest, reason: "body", message: "the body cannot be read",
		detail: err, closeConn: true}
}

// handleOrForward delivers an event, or records a heartbeat. If another replica or another manager is responsible for
// the request, handleOrForward forwards the request.
func (l *Listener) handleOrForward(w http.ResponseWriter, r *http.Request, to target, from caller,
	rec *record, body []byte) *refusal {
	if !to.isForLifecycleManager() {
		return l.forwardToManager(w, r, to.manager, from, body)
	}
	if l.opts.Leader != nil {
		if address, me := l.opts.Leader(rec.kyma); !me {
			return l.forwardToLeader(w, r, address, from, body)
		}
	}
	if to.heartbeat {
		h, err := protocol.ParseHeartbeat(body)
		if err != nil {
			return malformedRefusal(err)
		}
		metrics.AgentReports.WithLabelValues(metrics.ReportHeartbeat).Inc()
		pace := l.opts.NextHeartbeat().Truncate(time.Second)
		l.tracker.recordHeartbeat(rec, from.ID, h, pace)
		if pace > 0 {
			w.Header().Set(protocol.HeaderNextHeartbeat, strconv.Itoa(int(pace/time.Second)))
		}
	} else {
		e, err := protocol.ParseEvent(body)
		if err != nil {
			return malformedRefusal(err)
		}
		metrics.AgentReports.WithLabelValues(metrics.ReportEvent).Inc()
		l.opts.Deliver(rec.kyma, e)
		l.tracker.recordEvent(rec, e.BootID, e.Sequence)
	}
	w.Header().Set(protocol.HeaderInstance, l.instance)
	w.WriteHeader(http.StatusOK)
	return nil
}

func malformedRefusal(err error) *refusal {
	return &refusal{status: http.StatusBadRequest, reason: "body", message: err.Error()}
}
