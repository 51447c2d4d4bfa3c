package moduleauthor

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/internal/author"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/trial"
)

// TestImageFlags checks into which flags one flag --image is expanded: one flag for each repository from which the
// tested versions of the module use the image.
func TestImageFlags(t *testing.T) {
	trial := &trial.Trial{
		Module: &author.Module{Images: []string{"127.0.0.1:5000/team/operator:2.0.0",
			"example.com/other-operator:1"}},
		Previous: &author.Module{Images: []string{"example.com/operator@sha256:00"}},
	}
	cases := map[string]struct {
		reason, image string
		want          []string
	}{
		"Short": {"without host and path", "operator=bin/o", []string{"--image=127.0.0.1:5000/team/operator=bin/o",
			"--image=example.com/operator=bin/o", "--image=operator=bin/o"}},
		"Whole": {"only that repository", "example.com/operator=bin/o", []string{"--image=example.com/operator=bin/o"}},
		"None":  {"others are for the cluster to judge", "nothing=bin/o", []string{"--image=nothing=bin/o"}},
	}
	for name, c := range cases {
		if diff := cmp.Diff(c.want, expandImageFlag(c.image, trial)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.reason, diff)
		}
	}
}
