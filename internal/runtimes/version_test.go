package runtimes

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/apply"
)

// versioned is a fake runtime that answers requests for its Kubernetes version.
type versioned struct {
	version  atomic.Value // string; "" is an answer with status 403
	requests atomic.Int32
}

func (v *versioned) RoundTrip(req *http.Request) (*http.Response, error) {
	v.requests.Add(1)
	version, _ := v.version.Load().(string)
	code, body := http.StatusOK, fmt.Sprintf(`{"gitVersion":%q}`, version)
	if version == "" || req.URL.Path != "/version" {
		code, body = http.StatusForbidden, `{"kind":"Status","code":403,"reason":"Forbidden"}`
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Request: req,
		Body: io.NopCloser(strings.NewReader(body))}, nil
}

// TestKubernetesVersion checks that the version is read once an hour and after an outage, and that an error changes
// nothing.
func TestKubernetesVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := &versioned{}
		cluster, err := apply.New(&rest.Config{Host: "https://a", QPS: -1}, &http.Client{Transport: next},
			apply.ClusterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		b := &breaker{runtime: "a", base: "https://a", next: next, changed: func() {}}
		rt := &Runtime{Cluster: cluster, breaker: b}
		check := func(when, want string, requests int32) {
			t.Helper()
			if got := rt.CachedKubernetesVersion(t.Context(), ""); got != want || next.requests.Load() != requests {
				t.Errorf("%s: %q, %d requests, want %q, %d", when, got, next.requests.Load(), want, requests)
			}
			time.Sleep(time.Second)
		}
		check("not allowed", "", 1)
		check("not allowed, again", "", 1)
		next.version.Store("v1.34.2")
		time.Sleep(versionCachePeriod)
		check("first", "v1.34.2", 2)
		next.version.Store("v1.35.0")
		check("within the hour", "v1.34.2", 2)
		time.Sleep(versionCachePeriod)
		check("after an hour", "v1.35.0", 3)
		next.version.Store("")
		time.Sleep(versionCachePeriod)
		check("not allowed any more", "v1.35.0", 4)
		next.version.Store("v1.36.0")
		b.open(&Error{Code: RuntimeUnreachable})
		time.Sleep(time.Minute) // a probe closes the breaker
		check("after an outage", "v1.36.0", 6)
		check("after an outage, again", "v1.36.0", 6)

		first := &Runtime{Cluster: cluster, breaker: &breaker{base: "https://a"}, isFirst: true}
		if got := first.CachedKubernetesVersion(t.Context(), "v1.30.0"); got != "v1.30.0" || next.requests.Load() != 6 {
			t.Errorf("recorded before a restart: %q, %d requests, want the recorded version and 6", got,
				next.requests.Load())
		}
		time.Sleep(versionCachePeriod)
		if got := first.CachedKubernetesVersion(t.Context(), "v1.30.0"); got != "v1.36.0" || next.requests.Load() != 7 {
			t.Errorf("an hour after a restart: %q, %d requests, want v1.36.0 and 7", got, next.requests.Load())
		}
	})
}

func TestValidVersion(t *testing.T) {
	cases := map[string]struct{ reason, text, want string }{
		"Usual":       {"as kube-apiserver reports it", "v1.34.2", "v1.34.2"},
		"Distributor": {"with a suffix of a distributor", "v1.33.5-gke.1125000", "v1.33.5-gke.1125000"},
		"Build":       {"with build metadata", "v1.34.1+k3s1", "v1.34.1+k3s1"},
		"WithoutV":    {"some programs omit the v", "1.30.9", "1.30.9"},
		"Long": {"clipped to the limit of the schema", "v1.34.2-" + strings.Repeat("x", 40),
			"v1.34.2-" + strings.Repeat("x", 24)},
		"Empty":   {"no answer", "", ""},
		"Words":   {"not a version", "latest", ""},
		"Control": {"no control characters reach a terminal", "v1.34\x1b[31m", ""},
		"Huge":    {"a number that no release has", "v1." + strings.Repeat("9", 20), ""},
	}
	for name, c := range cases {
		if got := validVersion(c.text); got != c.want {
			t.Errorf("%s: %s: %q, want %q", name, c.reason, got, c.want)
		}
	}
}
