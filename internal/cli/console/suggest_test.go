package console

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestClosest(t *testing.T) {
	cases := map[string]struct {
		reason, name string
		names, want  []string
	}{
		"Swapped": {"two letters the wrong way round", "smaple", []string{"sample", "keda"}, []string{"sample"}},
		"Missing": {"one letter too few", "ked", []string{"sample", "keda"}, []string{"keda"}},
		"Part": {"a part of a long name", "broker", []string{"keda", "serverless-broker-agent"},
			[]string{"serverless-broker-agent"}},
		"Case": {"case does not matter", "KEDA", []string{"keda"}, []string{"keda"}},
		"Far":  {"nothing is close", "istio", []string{"sample", "keda"}, nil},
		"Three": {"three at most, the likeliest first, each once", "a-1",
			[]string{"a-2", "a-2", "a-3", "a-4", "a-11"}, []string{"a-11", "a-2", "a-3"}},
		"Nothing": {"nobody is there", "a", nil, nil},
		"Unicode": {"letters, not bytes", "käda", []string{"keda"}, []string{"keda"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, closest(c.name, c.names)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}
