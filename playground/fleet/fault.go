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

// Death is how a cluster cannot be reached.
type Death string

// The ways in which a cluster cannot be reached.
const (
	// Refused ends every connection at once, the open ones and each new one. With Options.OwnPorts nothing listens any
	// more, so that new ones are refused by the operating system; else they are reset right after they were made.
	Refused Death = "refused"
	// BlackHole takes connections, and whatever is sent, and never answers. What was sent is answered when the fault is
	// healed.
	BlackHole Death = "black hole"
)

// Fault is what goes wrong at a cluster. Its parts add up. Which requests are hit is decided by the fleet's seed, the
// cluster, and how many requests came since the fault began.
type Fault struct {
	// Dead is empty if the cluster can be reached.
	Dead Death
	// Up and Down make the cluster dead for a time only: it is alive for Up, dead for Down, and so on. Zero: dead all
	// the time.
	Up, Down time.Duration
	// Delay is added to every request, but for what a watch sends later.
	Delay time.Duration
	// TooMany is the share of requests that are answered with 429, from 0 to 1, and RetryAfter what the answer says, in
	// whole seconds, at least one.
	TooMany    float64
	RetryAfter time.Duration
	// Errors is the share of requests that are answered with Code. 0 means 500.
	Errors float64
	Code   int
	// Cut is the share of requests that end their connection in place of an answer, and with it all other requests on
	// that.
	Cut float64
	// Expired lets every request be answered with 401, whatever its credentials.
	Expired bool
}

// trouble is a fault from its beginning to its end.
type trouble struct {
	Fault
	began time.Time
	met   atomic.Uint64
	over  chan struct{} // closed when it ends
}

// Fault makes something go wrong from now on, in place of what went wrong before.
func (c *Cluster) Fault(f Fault) {
	t := &trouble{Fault: f, began: c.fleet.now(), over: make(chan struct{})}
	c.replaceFault(t)
	if f.Dead == Refused {
		c.die(t)
	}
}

// Heal ends the fault of the cluster, if there is one.
func (c *Cluster) Heal() { c.replaceFault(nil) }

func (c *Cluster) replaceFault(t *trouble) {
	before := c.fault.Swap(t)
	if before != nil {
		close(before.over)
	}
	if c.port != nil && (t == nil || t.Dead != Refused) {
		_ = c.port.listen() // the port was ours, and stays so unless somebody took it
	}
}

// die ends what is open, each time that the cluster goes down.
func (c *Cluster) die(t *trouble) {
	if c.fault.Load() != t || c.fleet.life.Err() != nil {
		return
	}
	if t.refuses(c.fleet.now()) {
		if c.port != nil {
			_ = c.port.close() // it is only closed to refuse
		}
		c.Cut()
	} else if c.port != nil {
		_ = c.port.listen() // as in replaceFault
	}
	if t.Down > 0 {
		time.AfterFunc(t.rest(c.fleet.now()), func() { c.die(t) })
	}
}

// down reports whether the cluster is dead at this moment.
func (t *trouble) down(now time.Time) bool {
	if t.Dead == "" {
		return false
	}
	return t.Down <= 0 || now.Sub(t.began)%(t.Up+t.Down) >= t.Up
}

// rest returns how long it is until the cluster dies or lives again.
func (t *trouble) rest(now time.Time) time.Duration {
	at := now.Sub(t.began) % (t.Up + t.Down)
	if at < t.Up {
		return t.Up - at + time.Millisecond
	}
	return t.Up + t.Down - at + time.Millisecond
}

// turn returns a channel that receives a value when the cluster dies or lives again; nil if it never does.
func (t *trouble) turn(now time.Time) <-chan time.Time {
	if t.Down <= 0 {
		return nil
	}
	return time.After(t.rest(now))
}

func (t *trouble) refuses(now time.Time) bool  { return t.Dead == Refused && t.down(now) }
func (t *trouble) swallows(now time.Time) bool { return t.Dead == BlackHole && t.down(now) }

// meets lets a request meet the fault, and reports whether it was answered by that.
func (t *trouble) meets(c *Cluster, w http.ResponseWriter, r *http.Request) bool {
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
	roll := c.fleet.roll(c.index, t.met.Add(1))
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
		c.send(w, failure(metav1.Status{Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
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
		c.send(w, failure(metav1.Status{Code: int32(code), Reason: reason,
			Message: "an error on the server has prevented the request from succeeding"}), jsonType)
		return true
	}
	return false
}

// roll returns a number from 0 to 1 that depends on the seed, the cluster and a count.
func (f *Fleet) roll(cluster int, n uint64) float64 {
	var b [24]byte
	binary.BigEndian.PutUint64(b[:], f.seed)
	binary.BigEndian.PutUint64(b[8:], uint64(cluster)) //nolint:gosec // an index
	binary.BigEndian.PutUint64(b[16:], n)
	sum := sha256.Sum256(b[:])
	return float64(binary.BigEndian.Uint64(sum[:])) / math.MaxUint64
}

// Afflict makes something go wrong at a share of all clusters, from 0 to 1, and returns them. Equal seeds and kinds
// choose the same; of two kinds, the clusters are others if there are enough.
func (f *Fleet) Afflict(share float64, kind int, fault Fault) []*Cluster {
	var hit []*Cluster
	for _, c := range f.clusters {
		roll := math.Mod(f.roll(c.index, 0)+float64(kind)*share, 1)
		if roll < share {
			c.Fault(fault)
			hit = append(hit, c)
		}
	}
	return hit
}
