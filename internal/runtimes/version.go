package runtimes

import (
	"context"
	"regexp"
	"sync"
	"time"
)

// versionCachePeriod is the time after which the version of Kubernetes is read again.
const versionCachePeriod = time.Hour

// maxVersionBytes is the maximum length of status.kubernetesVersion of a Kyma.
const maxVersionBytes = 32

// versionPattern matches the Kubernetes versions that may be written to the status of a Kyma. A version that does not
// match is ignored, because a runtime could report any text as its version, and people see the version.
var versionPattern = regexp.MustCompile(`^v?[0-9]{1,4}\.[0-9]{1,4}([.+_~-][0-9A-Za-z.+_~-]*)?$`)

// kubernetesVersion is the version of Kubernetes that the API server of a runtime has reported.
type kubernetesVersion struct {
	mu     sync.Mutex
	value  string    // "" if it is not known
	readAt time.Time // time of the last attempt to read it
}

// CachedKubernetesVersion returns the version of Kubernetes in the runtime, such as "v1.34.2", or "" if the version is
// not known. CachedKubernetesVersion sends at most one request an hour, and another one after each outage of the
// runtime, because an upgrade of the cluster may have been the cause of the outage. A failed request for the version
// has no other effect: the connection stays usable.
//
// The parameter firstValue is the version in the status of the Kyma, or "". For the first connection after a start of
// this process, CachedKubernetesVersion returns firstValue as if it had just been read. So a restart of the manager
// does not cause a request for the version to every runtime of the fleet.
func (rt *Runtime) CachedKubernetesVersion(ctx context.Context, firstValue string) string {
	rt.version.mu.Lock()
	defer rt.version.mu.Unlock()
	now := time.Now()
	if rt.version.readAt.IsZero() && rt.isFirst && firstValue != "" {
		rt.version.value, rt.version.readAt = firstValue, now
	}
	if !rt.version.readAt.IsZero() && now.Sub(rt.version.readAt) < versionCachePeriod &&
		!rt.breaker.closedAfter(rt.version.readAt) {
		return rt.version.value
	}
	rt.version.readAt = now
	// Capabilities caches the version of Kubernetes. The rendering of charts calls Capabilities, too, so the API server
	// is asked only once.
	if known, err := rt.Capabilities(ctx, []string{"kubeVersion"}); err == nil {
		rt.version.value = validVersion(known.KubeVersion)
	}
	return rt.version.value
}

// validVersion returns a version of at most maxVersionBytes, or "" if the text is not a version.
func validVersion(text string) string {
	text = text[:min(len(text), maxVersionBytes)]
	if !versionPattern.MatchString(text) {
		return ""
	}
	return text
}

// closedAfter reports whether the breaker was open, and was closed after the time t.
func (b *breaker) closedAfter(t time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed.After(t)
}
