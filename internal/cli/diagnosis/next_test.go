package diagnosis

import (
	"testing"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

func TestNextTry(t *testing.T) {
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		why    string
		reason string
		state  v1beta2.State
		since  time.Duration // 0: unknown
		want   string
		within time.Duration
		retry  bool
	}{
		"Probe": {
			why: "the delay is twice the time, and a fifth at random", reason: v1beta2.ReasonRuntimeUnreachable,
			state: v1beta2.StateError, since: 10 * time.Second, want: "the runtime is probed within 24s",
			within: 24 * time.Second, retry: true,
		},
		"ProbeLimit": {
			why: "at least every 96 s", reason: v1beta2.ReasonRuntimeUnauthorized, state: v1beta2.StateError,
			since: time.Hour, want: "the runtime is probed within 96s", within: 96 * time.Second, retry: true,
		},
		"Backoff": {
			why: "the delay doubles, so it is not longer than the time before", reason: v1beta2.ReasonArtifactNotFound,
			state: v1beta2.StateError, since: 40 * time.Second, want: "the manager tries again within 40s",
			within: 40 * time.Second, retry: true,
		},
		"BackoffLimit": {
			why: "the default of --failure-max-delay", reason: "SomethingNew", state: v1beta2.StateError,
			since: time.Hour, want: "the manager tries again within 5m", within: 5 * time.Minute, retry: true,
		},
		"UnknownSince": {
			why: "the longest delay", reason: v1beta2.ReasonRegistryUnreachable, state: v1beta2.StateError,
			want: "the manager tries again within 5m", within: 5 * time.Minute, retry: true,
		},
		"Just": {
			why: "the first delays are short", reason: v1beta2.ReasonRegistryUnreachable, state: v1beta2.StateError,
			since: time.Millisecond, want: "the manager tries again within 1s", within: time.Second, retry: true,
		},
		"Terminal": {
			why: "trying again cannot help", reason: v1beta2.ReasonInvalidReference, state: v1beta2.StateError,
			since: time.Hour, want: "when the module gets another version, or the request changes", retry: true,
		},
		"Secret": {
			why: "an event", reason: v1beta2.ReasonAccessSecretNotFound, state: v1beta2.StateError, since: time.Hour,
			want: "when the access Secret changes",
		},
		"Request": {
			why: "an event", reason: v1beta2.ReasonDowngradeRefused, state: v1beta2.StateWarning, since: time.Hour,
			want: "when the request or the catalog changes",
		},
		"Waiting": {
			why: "a module that waits", reason: v1beta2.ReasonApplying, state: v1beta2.StateProcessing,
			since: time.Minute, want: "when something changes in the runtime",
		},
		"Window": {why: "the message has the time", reason: v1beta2.ReasonWaitingForWindow, state: v1beta2.StateReady,
			since: time.Minute, want: "when the window begins"},
		"Paused": {why: "a person", reason: v1beta2.ReasonKymaPaused, state: v1beta2.StateReady,
			want: "when somebody ends it"},
		"Nothing": {why: "a reason that says nothing about it", reason: "SomethingNew", state: v1beta2.StateWarning},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			since := time.Time{}
			if c.since != 0 {
				since = now.Add(-c.since)
			}
			next := nextTry(c.reason, c.state, since, now)
			if next == nil {
				next = &NextTry{}
			}
			within := time.Duration(0)
			if !next.AtLatest.IsZero() {
				within = next.AtLatest.Sub(now)
			}
			if next.When != c.want || within != c.within || next.Retry != c.retry {
				t.Errorf("%s: got %q within %s, retry %v", c.why, next.When, within, next.Retry)
			}
		})
	}
}
