package metrics

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

func TestStates(t *testing.T) {
	type set struct {
		owner  string
		series [][]string
	}
	cases := map[string]struct {
		reason string
		sets   []set
		want   []string
	}{
		"None": {"no owner has series", nil, nil},
		"One":  {"the current state is 1", []set{{"a", [][]string{{"a", "Ready"}}}}, []string{"a Ready 1"}},
		"Moved": {"the former state has no series", []set{{"a", [][]string{{"a", "Processing"}}},
			{"a", [][]string{{"a", "Ready"}}}}, []string{"a Ready 1"}},
		"Others": {"the owners are independent",
			[]set{{"a", [][]string{{"a", "Ready"}}}, {"b", [][]string{{"b", "Error"}}}},
			[]string{"a Ready 1", "b Error 1"}},
		"Several": {"all series of one owner", []set{{"a", [][]string{{"x", "Ready"}, {"y", "Error"}}}},
			[]string{"x Ready 1", "y Error 1"}},
		"Twice": {"a registry refuses duplicates, and all other series with them",
			[]set{{"a", [][]string{{"x", "Ready"}, {"x", "Ready"}}}}, []string{"x Ready 1"}},
		"Forgot":   {"no series", []set{{"a", [][]string{{"a", "Ready"}}}, {"a", nil}, {"c", nil}}, nil},
		"NoValues": {"labels may be empty", []set{{"a", [][]string{{"", ""}}}}, []string{"  1"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := NewStates(prometheus.Opts{Name: "states", Help: "For a test."}, []string{"name", "state"})
			r := prometheus.NewPedanticRegistry()
			r.MustRegister(s)
			for _, set := range c.sets {
				s.Set(set.owner, set.series...)
			}
			families, err := r.Gather()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range families {
				for _, m := range f.Metric {
					got = append(got, fmt.Sprint(m.Label[0].GetValue(), " ",
						m.Label[1].GetValue(), " ", m.Gauge.GetValue()))
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", c.reason, diff)
			}
		})
	}
}

// TestStatesOfMany checks that the time of a call of Set grows with the number of series, and not with its square. With
// an earlier implementation, Set needed minutes for the series of 100,000 modules in the status of one Kyma.
func TestStatesOfMany(t *testing.T) {
	const n = 200_000
	series := make([][]string, n)
	for i := range series {
		series[i] = []string{fmt.Sprintf("module-%d", i/2)}
	}
	s := NewStates(prometheus.Opts{Name: "x"}, []string{"module"})
	s.Set("a", series...)
	if got := len(s.series["a"]); got != n/2 {
		t.Errorf("%d series, want %d", got, n/2)
	}
}

// TestOptionalLabels checks that a label without a value is absent, even if other series have this label.
func TestOptionalLabels(t *testing.T) {
	s := NewStates(prometheus.Opts{Name: "states", Help: "For a test."}, []string{"name"}, "shoot", "id")
	r := prometheus.NewRegistry()
	r.MustRegister(s)
	s.Set("a", []string{"a", "", ""})
	s.Set("b", []string{"b", "x", ""})
	s.Set("c", []string{"c", "", "y"})
	s.Set("d", []string{"d", "x", "y"})
	want := []string{"name=a", "name=b shoot=x", "id=y name=c", "id=y name=d shoot=x"}
	if diff := cmp.Diff(want, gather(t, r)); diff != "" {
		t.Errorf("series -want +got:\n%s", diff)
	}
}

// TestCounts checks that the entries of all owners are counted together, and that no series stays when its count is 0.
func TestCounts(t *testing.T) {
	c := NewCounts(prometheus.Opts{Name: "counts", Help: "For a test."}, []string{"module", "version"})
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	c.Set("a", []string{"x", "1"}, []string{"y", "1"})
	c.Set("b", []string{"x", "1"})
	c.Set("c", []string{"x", "2"})
	c.Set("c", []string{"x", "1"}, []string{"x", "1"})
	c.Set("a", []string{"x", "2"})
	c.Set("b")
	c.Set("nobody")
	want := []string{"module=x version=1: 2", "module=x version=2: 1"}
	var got []string
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range families[0].GetMetric() {
		got = append(got, fmt.Sprintf("%s: %v", gather(t, r)[i], m.GetGauge().GetValue()))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("series -want +got:\n%s", diff)
	}
}

// gather returns the labels of each series in a registry. The registry must contain exactly one metric.
func gather(t *testing.T, r *prometheus.Registry) (series []string) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families[0].GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		series = append(series, strings.Join(labels, " "))
	}
	return series
}
