package metrics

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// libraryMetrics are metrics of libraries, with their labels, that dashboards and alerts use. A test in playground/docs
// checks that the manager serves these metrics.
var libraryMetrics = map[string][]string{
	"leader_election_master_status":                {"name"},
	"controller_runtime_reconcile_total":           {"controller", "result"},
	"controller_runtime_reconcile_errors_total":    {"controller"},
	"controller_runtime_active_workers":            {"controller"},
	"controller_runtime_max_concurrent_reconciles": {"controller"},
	"workqueue_depth":                              {"name", "controller", "priority"},
	"workqueue_longest_running_processor_seconds":  {"name", "controller"},
	"rest_client_requests_total":                   {"code", "method", "host"},
	"process_resident_memory_bytes":                nil,
	"process_cpu_seconds_total":                    nil,
	"go_memstats_heap_inuse_bytes":                 nil,
	"go_goroutines":                                nil,
}

// targetLabels are labels that Prometheus adds to every series.
var targetLabels = []string{"pod", "instance", "job", "namespace"}

// described is a registry that only records the descriptions of metrics.
type described struct {
	prometheus.Registerer
	labels map[string][]string
}

var descForm = regexp.MustCompile(`fqName: "([^"]+)".*constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}`)

func (d *described) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		_ = d.Register(c)
	}
}

func (d *described) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc)
	go func() { c.Describe(descs); close(descs) }()
	for desc := range descs {
		m := descForm.FindStringSubmatch(desc.String())
		labels := strings.Split(m[3], ",")
		for pair := range strings.SplitSeq(m[2], ",") {
			name, _, _ := strings.Cut(pair, "=")
			labels = append(labels, name)
		}
		_, one := c.(prometheus.Histogram)
		if _, many := c.(*prometheus.HistogramVec); one || many {
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				d.labels[m[1]+part] = append([]string{"le"}, labels...)
			}
		}
		d.labels[m[1]] = labels
	}
	return nil
}

// knownLabels returns the labels of every metric by name.
func knownLabels() map[string][]string {
	d := &described{labels: map[string][]string{}}
	MustRegister(d, Sources{})
	maps.Copy(d.labels, libraryMetrics)
	return d.labels
}

var (
	texts       = regexp.MustCompile(`"(\\.|[^"\\])*"`)
	ranges      = regexp.MustCompile(`\[[^\]]*\]`)
	selector    = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)?\{([^}]*)\}`)
	matcher     = regexp.MustCompile(`([a-zA-Z_]\w*)\s*(=~|!~|!=|=)`)
	grouping    = regexp.MustCompile(`\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	word        = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	number      = regexp.MustCompile(`\b[0-9][0-9.a-z]*`)
	phases      = regexp.MustCompile(`phase=~?"([^"]*)"`)
	inTemplates = regexp.MustCompile(`\$labels\.(\w+)`)
)

// vocabulary contains the functions, aggregations and operators of PromQL that the expressions in alerts and dashboards
// use.
var vocabulary = strings.Fields(
	`sum max min count topk rate increase histogram_quantile absent time vector sort_desc max_over_time min_over_time changes and or unless offset bool`)

// promQLProblems returns the problems of a PromQL expression: unknown metrics and labels, unknown words, and unbalanced
// parentheses. promQLProblems is not a full parser: it parses only the names in the expression.
func promQLProblems(expr string, metrics map[string][]string) (problems []string, labels []string) {
	rest := ranges.ReplaceAllString(texts.ReplaceAllString(expr, `""`), "")
	if strings.Count(rest, "(") != strings.Count(rest, ")") || strings.Count(rest, "{") != strings.Count(rest, "}") {
		problems = append(problems, "parentheses without their other half")
	}
	var here []string // labels of all metrics in the expression
	for _, m := range selector.FindAllStringSubmatch(rest, -1) {
		for _, label := range matcher.FindAllStringSubmatch(m[2], -1) {
			if all, is := metrics[m[1]]; is && !slices.Contains(all, label[1]) &&
				!slices.Contains(targetLabels, label[1]) {
				problems = append(problems, m[1]+" has no label "+label[1])
			}
		}
	}
	rest = selector.ReplaceAllString(rest, "$1")
	groups := grouping.FindAllStringSubmatch(rest, -1)
	rest = number.ReplaceAllString(grouping.ReplaceAllString(rest, ""), "")
	for _, w := range word.FindAllString(rest, -1) {
		all, is := metrics[w]
		if !is && !slices.Contains(vocabulary, w) {
			problems = append(problems, "there is no metric "+w)
		}
		here = append(here, all...)
	}
	for _, g := range groups {
		for _, label := range word.FindAllString(g[2], -1) {
			if !slices.Contains(here, label) && !slices.Contains(targetLabels, label) {
				problems = append(problems, "no metric in it has the label "+label)
			}
			labels = append(labels, label)
		}
	}
	return problems, append(labels, here...)
}

func TestPromQLProblems(t *testing.T) {
	cases := map[string]struct {
		reason, expr, want string
	}{
		"Good": {"as it should be", `sum by (state) (rate(lifecycle_mgr_kyma_state{state=~"a|b(c)"}[5m])) > 0.5`,
			""},
		"Histogram": {"a histogram has buckets",
			`histogram_quantile(0.9, sum by (le, step) (lifecycle_mgr_step_duration_seconds_bucket))`, ""},
		"NoMetric": {"a metric that there is not", `sum(lifecycle_mgr_kyma_stat)`,
			"there is no metric lifecycle_mgr_kyma_stat"},
		"NoLabel": {"a label that it does not have", `lifecycle_mgr_kyma_state{module="a"}`,
			"lifecycle_mgr_kyma_state has no label module"},
		"NoGroup": {"a label that nothing in it has", `sum by (module) (lifecycle_mgr_kyma_state)`,
			"no metric in it has the label module"},
		"Function": {"a function that there is not", `average(lifecycle_mgr_kyma_state)`,
			"there is no metric average"},
		"Unbalanced": {"a parenthesis too many", `sum(lifecycle_mgr_kyma_state))`,
			"parentheses without their other half"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			problems, _ := promQLProblems(c.expr, knownLabels())
			if got := strings.Join(problems, "; "); got != c.want {
				t.Errorf("%s: got %q, want %q", c.reason, got, c.want)
			}
		})
	}
}

const monitoring = "../../deploy/chart/monitoring/"

// board has the fields of a Grafana dashboard that the tests use.
type board struct {
	UID, Title string
	Templating struct {
		List []struct{ Name, Definition string }
	}
	Panels []struct {
		ID      int
		Type    string
		Title   string
		Targets []struct{ Expr string }
	}
}

func TestDashboards(t *testing.T) {
	files, err := filepath.Glob(monitoring + "dashboards/*.json")
	if err != nil || len(files) != 4 {
		t.Fatalf("found %q, %v", files, err)
	}
	metrics, shown := knownLabels(), ""
	for _, file := range files {
		var b board
		data, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(data, &b)
		}
		if err != nil {
			t.Fatal(err)
		}
		if b.UID != "klm-"+strings.TrimSuffix(filepath.Base(file), ".json") || b.Title == "" {
			t.Errorf("%s has uid %q and title %q", file, b.UID, b.Title)
		}
		variables := []string{"__rate_interval", "datasource"}
		for _, v := range b.Templating.List {
			variables = append(variables, v.Name)
			if query, is := strings.CutPrefix(v.Definition, "label_values("); is {
				metric, label, _ := strings.Cut(strings.TrimSuffix(query, ")"), ", ")
				if !slices.Contains(metrics[metric], label) {
					t.Errorf("%s: variable %s: %s has no label %s", file, v.Name, metric, label)
				}
			}
		}
		for _, p := range b.Panels {
			if len(p.Targets) == 0 && p.Type != "row" {
				t.Errorf("%s: panel %q shows nothing", file, p.Title)
			}
			for _, target := range p.Targets {
				shown += target.Expr + "\n"
				problems, _ := promQLProblems(target.Expr, metrics)
				for _, problem := range problems {
					t.Errorf("%s: panel %q: %s\n%s", file, p.Title, problem, target.Expr)
				}
				for _, m := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
					if !slices.Contains(variables, m[1]) {
						t.Errorf("%s: panel %q: there is no variable %s", file, p.Title, m[1])
					}
				}
			}
		}
	}
	if !strings.Contains(shown, "lifecycle_mgr_step_duration_seconds_bucket") {
		t.Error("no expression was found: are dashboards still written as before?")
	}
}

// rules has the fields of a PrometheusRule that the tests use.
type rules struct {
	Spec struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
}

// rolloutPhases are the phases in which a rollout has not ended: only rollouts in these phases have metrics.
var rolloutPhases = []v1beta2.RolloutPhase{v1beta2.RolloutPending, v1beta2.RolloutUpdating, v1beta2.RolloutSoaking,
	v1beta2.RolloutWaitingForGate, v1beta2.RolloutHeld, v1beta2.RolloutHalted, v1beta2.RolloutTail}

func TestAlerts(t *testing.T) {
	var r rules
	data, err := os.ReadFile(monitoring + "alerts.yaml")
	if err == nil {
		err = yaml.Unmarshal(data, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/guide/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	metrics, n := knownLabels(), 0
	for _, g := range r.Spec.Groups {
		for _, a := range g.Rules {
			n++
			problems, labels := promQLProblems(a.Expr, metrics)
			for _, problem := range problems {
				t.Errorf("alert %s: %s", a.Alert, problem)
			}
			for _, m := range phases.FindAllStringSubmatch(a.Expr, -1) {
				for phase := range strings.SplitSeq(m[1], "|") {
					if !slices.Contains(rolloutPhases, v1beta2.RolloutPhase(phase)) {
						t.Errorf("alert %s is about phase %s, which no rollout has", a.Alert, phase)
					}
				}
			}
			for _, text := range a.Annotations {
				for _, m := range inTemplates.FindAllStringSubmatch(text, -1) {
					if !slices.Contains(labels, m[1]) {
						t.Errorf("alert %s tells of a label %s, which its expression does not have", a.Alert, m[1])
					}
				}
			}
			if !slices.Contains([]string{"info", "warning", "critical"}, a.Labels["severity"]) ||
				a.Annotations["summary"] == "" {
				t.Errorf("alert %s needs a severity and a summary", a.Alert)
			}
			if anchor := "/docs/guide/troubleshooting.md#" + strings.ToLower(a.Alert); !strings.HasSuffix(
				a.Annotations["runbook_url"], anchor) {
				t.Errorf("alert %s: runbook_url is %s, want …%s", a.Alert, a.Annotations["runbook_url"], anchor)
			}
			if !strings.Contains(string(page), "\n### "+a.Alert+"\n") {
				t.Errorf("alert %s: docs/guide/troubleshooting.md has no section ### %s", a.Alert, a.Alert)
			}
		}
	}
	if n < 15 {
		t.Errorf("found %d alerts: are they still written as before?", n)
	}
}
