package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSummary(t *testing.T) {
	ms := func(values ...int) (all []time.Duration) {
		for _, v := range values {
			all = append(all, time.Duration(v)*time.Millisecond)
		}
		return all
	}
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = 100 - i
	}
	cases := map[string]struct {
		reason string
		times  []time.Duration
		want   Latency
	}{
		"Nothing": {"no times, no latency", nil, Latency{}},
		"One":     {"one time is all of them", ms(7), Latency{N: 1, P50: 7, P90: 7, P99: 7, Most: 7}},
		"Few": {"of few, the largest is the 99th percentile", ms(3, 1, 2),
			Latency{N: 3, P50: 2, P90: 3, P99: 3, Most: 3}},
		"Hundred": {"the order does not matter", ms(hundred...), Latency{N: 100, P50: 50, P90: 90, P99: 99, Most: 100}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, latencyOf(c.times)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestParseMetrics(t *testing.T) {
	const text = `# HELP depth of queues
# TYPE depth gauge
depth{name="a",note="x \"y\", z}"} 3
depth{name="b"} 1.5e+2 1700000000000
depth_total{name="a"} 9
plain 4
`
	cases := map[string]struct {
		reason, metric string
		want           []series
	}{
		"Labels": {"quotes, commas and braces in labels are text", "depth",
			[]series{{map[string]string{"name": "a", "note": `x "y", z}`}, 3}, {map[string]string{"name": "b"}, 150}}},
		"Plain":   {"a metric may have no labels", "plain", []series{{map[string]string{}, 4}}},
		"Missing": {"what is not there has no series", "dept", nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, parseMetrics([]byte(text), c.metric),
				cmp.AllowUnexported(series{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestParseStat(t *testing.T) {
	const tail = " S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 9 0 100"
	cases := map[string]struct {
		reason, text string
		want         time.Duration
		fails        bool
	}{
		"Plain":  {"user and system are added", "12 (manager)" + tail, 3 * time.Second, false},
		"Braces": {"a name may have spaces and braces", "12 (a) b (c))" + tail, 3 * time.Second, false},
		"Short":  {"less is an error", "12 (manager) S 1", 0, true},
		"Empty":  {"nothing is an error", "", 0, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseStat(c.text)
			if got != c.want || (err != nil) != c.fails {
				t.Errorf("%s: got %v, %v", c.reason, got, err)
			}
		})
	}
	if got := parseStatusBytes("VmPeak:\t 9 kB\nVmRSS:\t    12 kB\n", "VmRSS"); got != 12<<10 {
		t.Errorf("resident memory is %d", got)
	}
}

func TestRequestName(t *testing.T) {
	cases := map[string]struct {
		reason, method, path, contentType string
		watch                             bool
		want                              string
	}{
		"List": {
			reason: "without a name, it is a list",
			method: "GET",
			path:   "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas",
			want:   "LIST kymas",
		},
		"Watch": {
			reason: "or a watch",
			method: "GET",
			path:   "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas",
			watch:  true,
			want:   "WATCH kymas",
		},
		"Get": {
			reason: "with a name it is not",
			method: "GET",
			path:   "/api/v1/namespaces/kcp-system/secrets/a",
			want:   "GET secrets",
		},
		"Subresource": {
			reason:      "subresources count apart",
			method:      "PATCH",
			path:        "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas/a/status",
			contentType: "application/merge-patch+json",
			want:        "PATCH kymas/status",
		},
		"Apply": {
			reason:      "server-side apply is no patch",
			method:      "PATCH",
			path:        "/api/v1/namespaces/kcp-system",
			contentType: "application/apply-patch+yaml",
			want:        "APPLY namespaces",
		},
		"Wide": {
			reason: "what is cluster-wide has no namespace",
			method: "POST",
			path:   "/apis/rbac.authorization.k8s.io/v1/clusterroles",
			want:   "POST clusterroles",
		},
		"Other": {reason: "other paths have a name, too", method: "GET", path: "/metrics", want: "LIST metrics"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := requestName(c.method, c.path, c.contentType, c.watch); got != c.want {
				t.Errorf("%s: got %q, want %q", c.reason, got, c.want)
			}
		})
	}
}

func TestCounts(t *testing.T) {
	d := countDifferences(map[string]int{"get a": 1, "apply a": 2},
		map[string]int{"get a": 4, "apply a": 2, "PATCH b/status": 5, "delete c": 1})
	if diff := cmp.Diff(map[string]int{"get a": 3, "PATCH b/status": 5, "delete c": 1}, d); diff != "" {
		t.Errorf("difference (-want +got):\n%s", diff)
	}
	if sumOfCounts(d) != 9 || sumOfWrites(d) != 6 {
		t.Errorf("%d requests, %d writes", sumOfCounts(d), sumOfWrites(d))
	}
	if got := moduleWrites(map[string]int{"apply deployments.apps": 2, "patch kymas.operator.kyma-project.io": 7,
		"get deployments.apps": 1}); got != 2 {
		t.Errorf("%d writes to objects of modules", got)
	}
}

func TestRace(t *testing.T) {
	r := newRace(3)
	r.markFinished(0) // it has not started
	r.markStarted(0)
	r.markStarted(1)
	r.markFinished(1)
	r.markFinished(1)
	if started, finished := r.startedAndFinished(); started != 2 || finished != 1 || r.isRunning(1) ||
		!r.isRunning(0) || r.started(2) {
		t.Errorf("%d started, %d finished", started, finished)
	}
	if late := r.unfinished(5); !cmp.Equal(late, []int{0}) {
		t.Errorf("late are %v", late)
	}
	r.markFinished(0)
	if err := r.waitForAll(t.Context()); err != nil || len(r.finishedDurations()) != 2 || len(r.finishTimes()) != 2 {
		t.Errorf("waiting: %v; times %v", err, r.finishedDurations())
	}
}

func TestChosen(t *testing.T) {
	cases := map[string]struct {
		reason, names string
		want          []string
		fails         bool
	}{
		"All": {"all are all", "all", []string{"install", "idle", "edit", "upgrade", "restart", "failover",
			"rotate", "faults", "rollout", "delete"}, false},
		"Some": {"install comes first, the others in their order", "delete,idle",
			[]string{"install", "idle", "delete"}, false},
		"Unknown": {"a mistake is told", "instal", nil, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			list, err := parseScenarioNames(c.names)
			var got []string
			for _, s := range list {
				got = append(got, s.name)
			}
			if diff := cmp.Diff(c.want, got); diff != "" || (err != nil) != c.fails {
				t.Errorf("%s: %v (-want +got):\n%s", c.reason, err, diff)
			}
		})
	}
}
