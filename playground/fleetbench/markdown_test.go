package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// written writes results to files and returns the names of the files.
func written(t *testing.T, all ...Result) []string {
	t.Helper()
	var files []string
	for i := range all {
		files = append(files, filepath.Join(t.TempDir(), "result.json"))
		if err := all[i].writeJSONAndChart(files[i]); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func TestGather(t *testing.T) {
	machine := Machine{Processor: "a processor", CPUs: 2, Memory: 24 << 30}
	of := func(clusters, replicas int, scenarios ...Scenario) Result {
		return Result{Machine: machine, Runs: []Run{{Clusters: clusters, Modules: 5, Objects: 10,
			Replicas: replicas, Scenarios: scenarios}}}
	}
	cases := map[string]struct {
		reason string
		files  []Result
		want   map[int]map[string]float64 // seconds of scenarios by clusters × replicas
		fails  bool
	}{
		"Sizes": {"each size is a run", []Result{of(1000, 1, Scenario{Name: "install", Seconds: 2}),
			of(100, 1, Scenario{Name: "install", Seconds: 1})}, map[int]map[string]float64{100: {"install": 1},
			1000: {"install": 2}}, false},
		"Together": {"scenarios of one fleet are put together",
			[]Result{of(100, 1, Scenario{Name: "install", Seconds: 1}),
				of(100, 1, Scenario{Name: "delete", Seconds: 3})},
			map[int]map[string]float64{100: {"install": 1, "delete": 3}}, false},
		"Latest": {"the last file says how it is now", []Result{of(100, 1, Scenario{Name: "install", Seconds: 1}),
			of(100, 1, Scenario{Name: "install", Seconds: 5})}, map[int]map[string]float64{100: {"install": 5}}, false},
		"Failed": {"unless it failed there", []Result{of(100, 1, Scenario{Name: "install", Seconds: 1}),
			of(100, 1, Scenario{Name: "install", Failed: "it broke"})}, map[int]map[string]float64{100: {"install": 1}},
			false},
		"Replicas": {"replicas make another run", []Result{of(100, 1, Scenario{Name: "install", Seconds: 1}),
			of(100, 2, Scenario{Name: "install", Seconds: 5})}, map[int]map[string]float64{100: {"install": 1},
			200: {"install": 5}}, false},
		"Machines": {"other machines say nothing about this one",
			[]Result{of(100, 1), {Machine: Machine{Processor: "another", CPUs: 2, Memory: 24 << 30}}}, nil, true},
		"Nothing": {"without files there is nothing to tell", nil, nil, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r, err := readAndMergeResults(written(t, c.files...))
			if (err != nil) != c.fails {
				t.Fatalf("%s: %v", c.reason, err)
			}
			if c.fails {
				return
			}
			got := map[int]map[string]float64{}
			for _, run := range r.Runs {
				times := map[string]float64{}
				for _, s := range run.Scenarios {
					times[s.Name] = s.Seconds
				}
				got[run.Clusters*run.Replicas] = times
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

// TestPage checks that the tables are written between the marker lines, and that the rest of the page is unchanged.
func TestPage(t *testing.T) {
	one := Result{Machine: Machine{Processor: "a processor", CPUs: 2},
		Runs: []Run{example(100, 50, 4), example(1000, 40, 3), example(1000, 40, 3)}}
	one.Runs[2].Replicas = 4
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("before\n"+pageBegin+"\nold\n"+pageEnd+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := reportAndUpdatePage(written(t, one), page, &b); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, want := range []string{"before\n" + pageBegin, pageEnd + "\nafter\n", "a processor", "MISSED", "### Growth",
		"(page.svg)", "### Replicas, with 1000 clusters", "### 1000 clusters × 5 modules × 10 objects, 4 replicas",
		"failed: it broke"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the page:\n%s", want, text)
		}
	}
	if strings.Contains(text, "old") {
		t.Errorf("the tables of before are still there:\n%s", text)
	}
	if _, err := os.Stat(strings.TrimSuffix(page, ".md") + ".svg"); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(page, []byte("no place"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := reportAndUpdatePage(written(t, one), page, &b); err == nil {
		t.Error("a page without place for tables is written to")
	}
}

// TestReference checks that the reference work is the same each time, and that its time is measured.
func TestReference(t *testing.T) {
	w, err := newReferenceWorkload()
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(10, w.runOnce); n > 1 {
		t.Errorf("it allocates %v times, so that garbage collection is charged to it", n)
	}
	seen := map[uint32]bool{}
	for at := uint32(0); !seen[at]; at = w.walk[at] {
		seen[at] = true
	}
	if len(seen) != len(w.walk) {
		t.Errorf("the walk meets %d of %d places", len(seen), len(w.walk))
	}
	runtime.LockOSThread() // whose time is looked at
	defer runtime.UnlockOSThread()
	// The reference work must increase the measured processor time of this thread. If the system does not measure that
	// time, the loop runs until the test exceeds its deadline.
	for begin := threadCPUTime(); threadCPUTime() == begin; {
		w.runOnce()
	}
}
