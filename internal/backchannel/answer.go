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

// refusal is an answer other than 200.
type refusal struct {
	status  int
	reason  string // for metrics
	message string // for the client; one line
	detail  error  // for the log
	after   time.Duration
	hangUp  bool // close the connection, if it is of nobody else: who sends this has nothing to say here
}

// target is what a path stands for.
type target struct {
	manager   string
	heartbeat bool
}

// ours tells whether the lifecycle manager is meant.
func (t target) ours() bool { return t.manager == protocol.Manager }

// bodies holds buffers for bodies. None grows beyond the largest body that is read.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// serve answers a request. What it decides, in this order:
//
//	 1 path is not /v2/<manager>/event or /v2/lifecycle-manager/heartbeat   404; 400 if the first part is no version
//	 2 method is not POST                                                   405
//	 3 the body is said to be too large                                     413
//	 4 too many requests are under way                                      503
//	 5 no certificate, or none that leads to a root and is valid now        401
//	 6 the certificate has no common name                                   400
//	 7 it is of no runtime that is known here                               403
//	 8 it was revoked                                                       401
//	 9 the runtime sends too much, or too much at the same time             429
//	10 the body is too large after all; did not come in time; is malformed  413; 408; 400
//	11 nobody who could work on it can be reached                           503
//	12 it was heard                                                         200
func (l *Listener) serve(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	metrics.ListenerRequests.Inc()
	metrics.ListenerInFlight.Inc()
	defer func() {
		metrics.ListenerInFlight.Dec()
		took := time.Since(begin).Seconds()
		metrics.ListenerDuration.Set(took)
		metrics.WatcherRequestSeconds.Observe(took)
	}()
	if refused := l.answer(w, r); refused != nil {
		l.refuse(w, r, refused)
	}
}

// refuse writes an answer that is not 200.
func (l *Listener) refuse(w http.ResponseWriter, r *http.Request, refused *refusal) {
	metrics.ListenerErrors.Inc()
	metrics.WatcherRefused.WithLabelValues(refused.reason).Inc()
	switch refused.status {
	case http.StatusRequestEntityTooLarge:
		metrics.ListenerTooLarge.Inc()
	case http.StatusUnauthorized, http.StatusForbidden:
		path := "other" // strangers think of many
		if r.URL.Path == protocol.EventPath(protocol.Manager) || r.URL.Path == protocol.HeartbeatPath(protocol.Manager) {
			path = r.URL.Path
		}
		metrics.ListenerUnverified.WithLabelValues(metrics.ListenerName, path).Inc()
	}
	h := w.Header()
	h.Set(protocol.HeaderInstance, l.instance)
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	shared := connOf(r).trusted.Load() // others speak through that connection, too
	if refused.hangUp && (!shared || refused.status == http.StatusRequestEntityTooLarge) {
		h.Set("Connection", "close")
	}
	if refused.after > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(refused.after.Seconds()))))
	}
	if refused.status == http.StatusMethodNotAllowed {
		h.Set("Allow", http.MethodPost)
	}
	w.WriteHeader(refused.status)
	_, _ = io.WriteString(w, refused.message+"\n") //nolint:gosec // it is plain text for a program; whoever has gone needs no answer
	l.tell(r, refused)
}

// tell writes some refusals to the log: enough to see what goes on, not so many that they are a burden.
func (l *Listener) tell(r *http.Request, refused *refusal) {
	l.quiet.Lock()
	ok, _ := l.said.take(lines, time.Now())
	l.quiet.Unlock()
	if ok {
		l.opts.Log.Info("Refused a request", "remote", r.RemoteAddr, "path", r.URL.Path, "status", refused.status, "reason", refused.reason,
			"message", refused.message, "detail", fmt.Sprint(refused.detail))
	}
}

// answer does what a request asks for and answers it, or says why not.
func (l *Listener) answer(w http.ResponseWriter, r *http.Request) *refusal {
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
		return &refusal{status: http.StatusMethodNotAllowed, reason: "method", message: "the method " + r.Method + " is not possible here, POST is"}
	case r.ContentLength > limit:
		return tooLarge(limit)
	case l.inFlight.Add(1) > int64(l.opts.Limits.InFlight):
		l.inFlight.Add(-1)
		return &refusal{status: http.StatusServiceUnavailable, reason: "busy", message: "there are too many requests: try again", after: time.Second}
	}
	defer l.inFlight.Add(-1)
	from, kyma, refused := l.authorize(r)
	if from.forwarder != "" {
		w.Header().Set(headerForwarded, from.forwarder)
	}
	if refused != nil {
		return refused
	}
	rec, refused := l.begin(kyma, to.heartbeat)
	if refused != nil {
		return refused
	}
	defer func() {
		rec.mu.Lock()
		rec.inFlight--
		rec.mu.Unlock()
	}()
	if c := connOf(r); !c.trusted.Load() {
		l.door.admit(c, rec)
	}
	body := bodies.Get().(*bytes.Buffer)
	defer bodies.Put(body)
	if refused := read(w, r, body, limit); refused != nil {
		return refused
	}
	return l.act(w, r, to, from, rec, body.Bytes())
}

// parsePath finds out what a path stands for. A manager may have slashes in its name, as in the contract of the Kyma project.
func parsePath(r *http.Request) (target, *refusal) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/v2/")
	if !ok {
		version, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if strings.HasSuffix(r.URL.Path, "/event") && !strings.HasPrefix(version, "v") {
			return target{}, &refusal{status: http.StatusBadRequest, reason: "path", message: "the path must begin with the version of the contract: " + protocol.EventPath("<manager>")}
		}
		return target{}, missing()
	}
	if manager, ok := strings.CutSuffix(rest, "/heartbeat"); ok && manager == protocol.Manager {
		return target{manager: manager, heartbeat: true}, nil
	}
	manager, ok := strings.CutSuffix(rest, "/event")
	if !ok || r.URL.RawPath != "" || !isName(manager) {
		return target{}, missing()
	}
	return target{manager: manager}, nil
}

func missing() *refusal {
	return &refusal{status: http.StatusNotFound, reason: "path", message: "there is nothing here: post to " + protocol.EventPath("<manager>")}
}

// isName tells whether a manager can be called so: parts of letters, digits, dots, dashes and underscores, separated by slashes.
func isName(manager string) bool {
	if len(manager) > 253 {
		return false
	}
	for part := range strings.SplitSeq(manager, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
		for _, c := range []byte(part) {
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

func tooLarge(limit int64) *refusal {
	return &refusal{status: http.StatusRequestEntityTooLarge, reason: "body_size", message: fmt.Sprintf("the body has more than %d bytes", limit), hangUp: true}
}

// authorize finds out which runtime speaks. Who passes it on is known even if it is refused.
func (l *Listener) authorize(r *http.Request) (caller, string, *refusal) {
	from, refused := l.identify(r, connOf(r))
	if refused != nil {
		return from, "", refused
	}
	if from.id.CommonName == "" {
		return from, "", &refusal{status: http.StatusBadRequest, reason: "no_name", message: "the client certificate has no common name, which would say whose it is", hangUp: true}
	}
	rt, err := l.opts.Lookup(from.id)
	switch {
	case err != nil:
		return from, "", &refusal{status: http.StatusForbidden, reason: "unknown_runtime", detail: err,
			message: fmt.Sprintf("the client certificate is for %q, which is no runtime of this control plane, or not any more", from.id.CommonName), hangUp: true}
	case from.issued.Before(rt.NotBefore):
		return from, "", &refusal{status: http.StatusUnauthorized, reason: "revoked",
			message: fmt.Sprintf("client certificates of %q that were issued before %s are revoked: get a new one from the control plane", from.id.CommonName, rt.NotBefore.UTC().Format(time.RFC3339)), hangUp: true}
	}
	return from, rt.Kyma, nil
}

// begin counts a request of a runtime, if that may send it. The record is that of the runtime.
func (l *Listener) begin(kyma string, heartbeat bool) (*record, *refusal) {
	now := time.Now()
	r := l.board.lock(kyma)
	defer r.mu.Unlock()
	r.last = now
	if r.inFlight >= l.opts.Limits.PerRuntime {
		return nil, &refusal{status: http.StatusTooManyRequests, reason: "runtime_busy", message: "this runtime has too many requests under way: send fewer at a time", after: time.Second}
	}
	b, allowed := &r.events, rate{time.Duration(float64(time.Second) / l.opts.Limits.Rate), l.opts.Limits.Burst}
	if heartbeat {
		b, allowed = &r.beats, heartbeats
	}
	if ok, wait := b.take(allowed, now); !ok {
		return nil, &refusal{status: http.StatusTooManyRequests, reason: "rate", message: "this runtime sends too many requests: wait", after: wait}
	}
	r.inFlight++
	return r, nil
}

// read reads a body into an empty buffer.
func read(w http.ResponseWriter, r *http.Request, body *bytes.Buffer, limit int64) *refusal {
	body.Reset()
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	if err == nil {
		return nil
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return tooLarge(limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &refusal{status: http.StatusRequestTimeout, reason: "slow", message: "the body did not come in time", detail: err, hangUp: true}
	}
	return &refusal{status: http.StatusBadRequest, reason: "body", message: "the body could not be read", detail: err, hangUp: true}
}

// act delivers what was heard, or passes it on to where that is done.
func (l *Listener) act(w http.ResponseWriter, r *http.Request, to target, from caller, rec *record, body []byte) *refusal {
	if !to.ours() {
		return l.route(w, r, to.manager, from, body)
	}
	if l.opts.Leader != nil {
		if address, me := l.opts.Leader(rec.kyma); !me {
			return l.forward(w, r, address, from, body)
		}
	}
	if to.heartbeat {
		h, err := protocol.ParseHeartbeat(body)
		if err != nil {
			return malformed(err)
		}
		metrics.WatcherHeard.WithLabelValues(metrics.HeardHeartbeat).Inc()
		pace := l.opts.Pace().Truncate(time.Second)
		l.board.hear(rec, from.id, h, pace)
		if pace > 0 {
			w.Header().Set(protocol.HeaderNext, strconv.Itoa(int(pace/time.Second)))
		}
	} else {
		e, err := protocol.ParseEvent(body)
		if err != nil {
			return malformed(err)
		}
		metrics.WatcherHeard.WithLabelValues(metrics.HeardEvent).Inc()
		l.opts.Deliver(rec.kyma, e)
		l.board.note(rec, e.Boot, e.Sequence)
	}
	w.Header().Set(protocol.HeaderInstance, l.instance)
	w.WriteHeader(http.StatusOK)
	return nil
}

func malformed(err error) *refusal {
	return &refusal{status: http.StatusBadRequest, reason: "body", message: err.Error()}
}
