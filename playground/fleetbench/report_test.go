package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// example is a run with a few scenarios.
func example(clusters int, heap, cpu float64) Run {
	return Run{Clusters: clusters, Modules: 5, Objects: 10, WatchMode: "agent", Scenarios: []Scenario{
		{
			Name:            "install",
			Seconds:         10,
			Elapsed:         10,
			Clusters:        clusters,
			Installs:        5 * clusters,
			CPUPerInstall:   cpu,
			RatioPerInstall: cpu / 2,
			Manager:         Use{CPU: 3, Peak: 200 * mega},
			Latencies:       map[string]Latency{"ready": {N: 5, P99: 700}},
		},
		{
			Name:    "idle",
			Seconds: 60,
			Values: map[string]float64{heapPerRuntime: heap, idleWrites: 0, idlePlaneWrites: 2,
				requestsPerFive: 0.5, idleCores: 9},
		},
		{Name: "edit", Failed: "it broke", Values: map[string]float64{installModuleWrites: 99}},
	}}
}

// TestPanels checks that each title of the chart names a figure.
func TestPanels(t *testing.T) {
	known := map[string]bool{}
	for _, f := range figures {
		known[f.title] = true
	}
	for _, l := range leading {
		if !known[l.title] {
			t.Errorf("there is no figure %q", l.title)
		}
	}
	for name := range shared {
		if !known[name] {
			t.Errorf("there is no figure %q", name)
		}
	}
}

func TestJudge(t *testing.T) {
	cases := map[string]struct {
		reason string
		runs   []Run
		what   string
		want   Verdict
	}{
		"Met": {"a value at its limit meets it", []Run{example(100, 60, 4)},
			"live heap for one idle runtime", Met},
		"Missed": {"above it does not", []Run{example(100, 60, 5.1)}, "CPU of the manager for one module install",
			Missed},
		"Zero": {"a limit of zero is one", []Run{example(100, 60, 4)}, "writes to the control plane while idle",
			Missed},
		"TooSmall": {"some aims need the full size", []Run{example(100, 60, 4)},
			"CPU of the manager while idle", NotMeasured},
		"Full": {"and are judged there", []Run{example(100, 60, 4), example(10_000, 60, 4)},
			"CPU of the manager while idle", Missed},
		"Failed": {"a scenario that failed says nothing", []Run{example(100, 60, 4)},
			"writes to the runtime to install a module, beyond its objects", NotMeasured},
		"Growth": {"sizes are compared", []Run{example(1000, 50, 4), example(10_000, 59, 5)},
			"live heap for one runtime at 10,000 clusters", Met},
		"TooMuch": {"by their ratio", []Run{example(1000, 50, 4), example(10_000, 59, 5)},
			"CPU for one install at 10,000 clusters, by the reference work", Missed},
		"NoGrowth": {"if both are there", []Run{example(100, 50, 4), example(10_000, 59, 5)},
			"CPU for one install at 10,000 clusters, by the reference work", NotMeasured},
		"Unordered": {"the largest counts, wherever it is", []Run{example(1000, 70, 4), example(100, 50, 4)},
			"live heap for one idle runtime", Missed},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for _, a := range judgeAims(c.runs) {
				if a.What == c.what {
					if a.Verdict != c.want {
						t.Errorf("%s: %q is %s, want %s", c.reason, a.What, a.Verdict, c.want)
					}
					return
				}
			}
			t.Errorf("there is no aim %q", c.what)
		})
	}
	if judgeAims(nil) != nil {
		t.Error("without runs there is nothing to judge")
	}
}

func TestReport(t *testing.T) {
	r := Result{Machine: Machine{Processor: "a processor", CPUs: 2},
		Runs: []Run{example(100, 50, 4), example(1000, 40, 3)}}
	r.Aims = judgeAims(r.Runs)
	var b bytes.Buffer
	r.print(&b)
	for _, want := range []string{"a processor", "failed", "install: time, s", "MISSED", "AIM"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in the report:\n%s", want, b.String())
		}
	}
	b.Reset()
	for i := range r.Runs[0].Scenarios {
		r.Runs[0].Scenarios[i].print(&b)
	}
	if !strings.Contains(b.String(), "500 modules") || !strings.Contains(b.String(), "failed: it broke") {
		t.Errorf("the tables of scenarios are\n%s", b.String())
	}
	file := filepath.Join(t.TempDir(), "result.json")
	if err := r.writeJSONAndChart(file); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var again Result
	if err := json.Unmarshal(data, &again); err != nil || len(again.Runs) != 2 ||
		again.Runs[1].Scenarios[0].Manager.Peak != 200*mega {
		t.Errorf("the JSON is read as %+v, %v", again, err)
	}
	drawing, err := os.ReadFile(strings.TrimSuffix(file, ".json") + ".svg")
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(drawing)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the chart is no XML: %v", err)
		}
	}
	if !strings.Contains(string(drawing), "idle: manager&#39;s live heap for a runtime, kB") ||
		strings.Contains(string(drawing), "NaN") || strings.Contains(string(drawing), "edit:") {
		t.Errorf("the chart is\n%s", drawing)
	}
}

func TestList(t *testing.T) {
	counts := map[string]int{"a": 1, "b": 5, "c": 1, "d": 2}
	if got := formatCounts(counts, 2); got != "9: b 5, d 2, others 2" {
		t.Errorf("got %q", got)
	}
	if got := formatCounts(nil, 2); got != "none" {
		t.Errorf("got %q", got)
	}
	for v, want := range map[float64]string{3: "3", 123.4: "123", 1.234: "1.23", 0.01234: "0.0123"} {
		if got := formatNumber(v); got != want {
			t.Errorf("number(%v) is %q, want %q", v, got, want)
		}
	}
}

// TestModule checks that a module has the requested number of different objects, and that each object has the version
// label.
func TestModule(t *testing.T) {
	for _, objects := range []int{3, 4, 9, 10, 11, 25} {
		m := newModules(30, objects)[28]
		seen := map[string]bool{}
		for document := range strings.SplitSeq(string(m.manifestYAML("1.2.3")), "---\n") {
			var o struct {
				Kind     string
				Metadata struct {
					Name   string
					Labels map[string]string
				}
			}
			if err := yaml.Unmarshal([]byte(document), &o); err != nil {
				t.Fatal(err)
			}
			if o.Kind == "" {
				continue
			}
			if o.Metadata.Labels[versionLabel] != "1.2.3" || seen[o.Kind+o.Metadata.Name] {
				t.Errorf("%s %s is there twice or without version", o.Kind, o.Metadata.Name)
			}
			seen[o.Kind+o.Metadata.Name] = true
		}
		if len(seen) != objects {
			t.Errorf("%d objects, want %d", len(seen), objects)
		}
		if m.name != "bench-abc" {
			t.Errorf("the 29th module is %s", m.name)
		}
	}
}
