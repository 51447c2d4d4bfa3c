package fleet

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Death is a way in which a cluster is unreachable.
type Death string

// Ways in which a cluster is unreachable.
const (
	// Refused ends all open connections at once, and every new connection. With Options.OwnPorts the port of the
	// cluster is closed, so the operating system refuses new connections. Without OwnPorts a new connection is accepted
	// and then reset.
	Refused Death = "refused"
	// BlackHole accepts connections and requests, but sends no answer. When the fault is healed, the cluster answers
	// the requests that it has received.
	BlackHole Death = "black hole"
)

// Fault is a set of failures of a cluster. All fields that are set apply together. The seed of the fleet, the index of
// the cluster, and the number of requests since the fault began decide which requests fail.
type Fault struct {
	// Dead is the way in which the cluster is unreachable. If Dead is empty, the cluster is reachable.
	Dead Death
	// Up and Down make Dead periodic: the cluster is reachable for Up, then unreachable for Down, and so on. If Down is
	// 0, the cluster is unreachable all the time.
	Up, Down time.Duration
	// Delay is added to every request. Later events of a watch are not delayed.
	Delay time.Duration
	// TooMany is the share of requests that are answered with 429, from 0 to 1. RetryAfter is the value of the header
	// Retry-After in answers with 429. The header contains whole seconds, and at least one.
	TooMany    float64
	RetryAfter time.Duration
	// Errors is the share of requests that are answered with Code, from 0 to 1. Code 0 means 500.
	Errors float64
	Code   int
	// Cut is the share of requests whose connection is closed without an answer, from 0 to 1. All other requests on the
	// closed connection end, too.
	Cut float64
	// Expired makes the cluster answer every request with 401, even with valid credentials.
	Expired bool
}

// activeFault is a fault of a cluster that has begun.
type activeFault struct {
	Fault
	began time.Time
	met   atomic.Uint64
	over  chan struct{} // closed when the fault ends
}

// Fault starts a fault. Fault replaces the fault that the cluster had before.
func (c *Cluster) Fault(f Fault) {
	t := &activeFault{Fault: f, began: c.fleet.now(), over: make(chan struct{})}
	c.swapFaultAndReopenPort(t)
	if f.Dead == Refused {
		c.refuseWheneverDown(t)
	}
}

// Heal ends the fault of the cluster. Heal does nothing if there is no fault.
func (c *Cluster) Heal() { c.swapFaultAndReopenPort(nil) }

func (c *Cluster) swapFaultAndReopenPort(t *activeFault) {
	before := c.fault.Swap(t)
	if before != nil {
		close(before.over)
	}
	if c.port != nil && (t == nil || t.Dead != Refused) {
		_ = c.port.ensureServing() // fails only if another process took the port meanwhile
	}
}

// refuseWheneverDown closes the connections and the port of a cluster when a fault with Refused makes it unreachable.
// If the fault is periodic, refuseWheneverDown calls itself at each change.
func (c *Cluster) refuseWheneverDown(t *activeFault) {
	if c.fault.Load() != t || c.fleet.life.Err() != nil {
		return
	}
	if t.refuses(c.fleet.now()) {
		if c.port != nil {
			_ = c.port.close() // an error of closing does not matter
		}
		c.CloseConnections()
	} else if c.port != nil {
		_ = c.port.ensureServing() // as in swapFaultAndReopenPort
	}
	if t.Down > 0 {
		time.AfterFunc(t.untilChange(c.fleet.now()), func() { c.refuseWheneverDown(t) })
	}
}

// isDown reports whether the cluster is unreachable at the time now.
func (t *activeFault) isDown(now time.Time) bool {
	if t.Dead == "" {
		return false
	}
	return t.Down <= 0 || now.Sub(t.began)%(t.Up+t.Down) >= t.Up
}

// untilChange returns the time until a periodic fault makes the cluster unreachable or reachable.
func (t *activeFault) untilChange(now time.Time) time.Duration {
	at := now.Sub(t.began) % (t.Up + t.Down)
	if at < t.Up {
		return t.Up - at + time.Millisecond
	}
	return t.Up + t.Down - at + time.Millisecond
}

// nextChange returns a channel that receives a value at the next change between reachable and unreachable. nextChange
// returns nil if the fault is not periodic.
func (t *activeFault) nextChange(now time.Time) <-chan time.Time {
	if t.Down <= 0 {
		return nil
	}
	return time.After(t.untilChange(now))
}

func (t *activeFault) refuses(now time.Time) bool  { return t.Dead == Refused && t.isDown(now) }
func (t *activeFault) swallows(now time.Time) bool { return t.Dead == BlackHole && t.isDown(now) }

// applyTo applies the fault to a request. applyTo reports whether the fault has answered the request.
func (t *activeFault) applyTo(c *Cluster, w http.ResponseWriter, r *http.Request) (isAnswered bool) {
	if t.Delay > 0 {
		wait := time.NewTimer(t.Delay)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-t.over:
		case <-r.Context().Done():
			return true
		}
	}
	roll := c.fleet.randomShare(c.index, t.met.Add(1))
	switch {
	case t.refuses(c.fleet.now()), roll < t.Cut:
		c.count("", "cut")
		if own, ok := r.Context().Value(connectionKey{}).(*connection); ok {
			own.reset()
		}
		panic(http.ErrAbortHandler)
	case roll < t.Cut+t.TooMany:
		c.count("", "throttled")
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int(t.RetryAfter/time.Second))))
		c.writeReply(w, failureReply(metav1.Status{Code: http.StatusTooManyRequests,
			Reason:  metav1.StatusReasonTooManyRequests,
			Message: "too many requests, please try again later",
			//nolint:gosec // seconds
			Details: &metav1.StatusDetails{RetryAfterSeconds: int32(max(1, t.RetryAfter/time.Second))},
		}), jsonType)
		return true
	case roll < t.Cut+t.TooMany+t.Errors:
		c.count("", "failed")
		code := t.Code
		if code == 0 {
			code = http.StatusInternalServerError
		}
		reason := metav1.StatusReasonInternalError
		if code == http.StatusServiceUnavailable {
			reason = metav1.StatusReasonServiceUnavailable
		}
		c.writeReply(w, failureReply(metav1.Status{Code: int32(code), Reason: reason,
			Message: "an error on the server has prevented the request from succeeding"}), jsonType)
		return true
	}
	return false
}

// randomShare returns a pseudo-random number from 0 to 1, which depends only on the seed of the fleet, the index of the
// cluster and n.
func (f *Fleet) randomShare(cluster int, n uint64) float64 {
	var b [24]byte
	binary.BigEndian.PutUint64(b[:], f.seed)
	binary.BigEndian.PutUint64(b[8:], uint64(cluster)) //nolint:gosec // an index
	binary.BigEndian.PutUint64(b[16:], n)
	sum := sha256.Sum256(b[:])
	return float64(binary.BigEndian.Uint64(sum[:])) / math.MaxUint64
}

// Afflict starts a fault in a share of all clusters, from 0 to 1, and returns these clusters. The seed of the fleet and
// the parameter partition decide which clusters Afflict chooses: the same seed and partition result in the same
// clusters. Calls with different values of partition choose different clusters, if there are enough.
func (f *Fleet) Afflict(share float64, partition int, fault Fault) []*Cluster {
	var hit []*Cluster
	for _, c := range f.clusters {
		roll := math.Mod(f.randomShare(c.index, 0)+float64(partition)*share, 1)
		if roll < share {
			c.Fault(fault)
			hit = append(hit, c)
		}
	}
	return hit
}
