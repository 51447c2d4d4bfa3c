package installer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

func TestImageValues(t *testing.T) {
	cases := map[string]struct {
		reason, image string
		want          []string // repository, tag, digest
	}{
		"None": {"the image of the values counts", "", nil},
		"Tag": {"", "registry.example.com/kyma/manager:0.1.0",
			[]string{"registry.example.com/kyma/manager", "0.1.0", ""}},
		"Digest": {"", "registry.example.com/manager@sha256:00",
			[]string{"registry.example.com/manager", "", "sha256:00"}},
		"Both": {"", "registry.example.com/manager:1@sha256:00",
			[]string{"registry.example.com/manager", "1", "sha256:00"}},
		"Port": {"the port of a registry is not a tag", "127.0.0.1:5000/manager",
			[]string{"127.0.0.1:5000/manager", "", ""}},
	}
	for name, c := range cases {
		var want []string
		if c.want != nil {
			want = []string{"image.repository=" + c.want[0], "image.tag=" + c.want[1], "image.digest=" + c.want[2]}
		}
		if diff := cmp.Diff(want, imageValues(c.image)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.reason, diff)
		}
	}
}

// TestFlags checks which input klm refuses before the first request, and the files that klm writes without a cluster.
func TestFlags(t *testing.T) {
	const none = "/no/kubeconfig"
	for _, c := range []fixture.Case{
		{
			Reason: "one of both",
			Args:   "install --print --dry-run",
			Code:   console.ExitUsage,
			Want:   []string{"--print and --dry-run exclude each other"},
		},
		{
			Reason: "a flavour that does not exist",
			Args:   "install --flavour=mint",
			Code:   console.ExitUsage,
			Want:   []string{`--flavour: "mint" is neither control-plane nor in-cluster`},
		},
		{
			Reason: "a cluster is needed",
			Args:   "install --image=registry.example.com/manager:0.1.0",
			Code:   console.ExitCluster,
			Want:   []string{"kubeconfig"},
		},
		{
			Reason: "printing needs no cluster",
			Args:   "install --print --flavour=in-cluster --image=registry.example.com/manager:0.1.0 -n here",
			Want: []string{"---\n", "kind: Deployment", "namespace: here",
				"image: registry.example.com/manager:0.1.0"},
		},
		{Reason: "nor does it for the other flavour", Args: "install --print", Want: []string{"namespace: kcp-system"}},
		{
			Reason: "a flavour that does not exist",
			Args:   "uninstall --flavour=mint",
			Code:   console.ExitUsage,
			Want:   []string{"--flavour"},
		},
		{
			Reason: "a cluster is needed",
			Args:   "uninstall --yes",
			Code:   console.ExitCluster,
			Want:   []string{"kubeconfig"},
		},
	} {
		c.Check(t, Commands, none)
	}
}

// TestRefusedValues checks that invalid values are refused before anything is written.
func TestRefusedValues(t *testing.T) {
	s := fixture.NewServer(t)
	for _, c := range []fixture.Case{
		{
			Reason: "a value that does not exist",
			Args:   "install --image=registry.example.com/manager:1 --set=replica=2",
			Code:   console.ExitUsage,
			Want:   []string{"replica"},
		},
		{
			Reason: "a file that does not exist",
			Args:   "install --values=/none",
			Code:   console.ExitUsage,
			Want:   []string{"--values: open /none"},
		},
		{
			Reason: "nodes cannot pull an image without a registry",
			Args:   "install",
			Code:   console.ExitUsage,
			Want:   []string{"names no registry: give --image"},
		},
		{
			Reason: "not an expression",
			Args:   "install --set=replicas",
			Code:   console.ExitUsage,
			Want:   []string{"--set: "},
		},
		{
			Reason: "a credential",
			Args:   "install --set=extraArgs={--otlp-endpoint=https://me:secret@example.com}",
			Code:   console.ExitUsage,
			Want:   []string{"value extraArgs[0] has a credential: ", "valueFrom.secretKeyRef"},
		},
	} {
		c.Check(t, Commands, s.Kubeconfig)
	}
	if w := s.Writes(); len(w) > 0 {
		t.Errorf("something was written: %v", w)
	}
}

// TestExplainApply checks that errors of package apply get an exit code and a remedy.
func TestExplainApply(t *testing.T) {
	in := &installer{Cluster: fixture.ControlPlane}
	cases := map[string]struct {
		reason string
		status int // of the API server
		code   int
		want   string
	}{
		"Unauthorized": {"log in", http.StatusUnauthorized, console.ExitForbidden,
			"does not accept the credentials: log in again"},
		"Refused": {"any other answer", http.StatusForbidden, console.ExitFailed,
			"installing: reading ConfigMap kcp-system/a: no (HTTP 403)"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := fixture.NewServer(t)
			s.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.status)
				fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"message":"no"}`,
					c.status)
				return true
			}
			err := in.explainApply(applyError(t, s))
			if console.ExitCode(err) != c.code || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: exit code %d, want %d: %v", c.reason, console.ExitCode(err), c.code, err)
			}
		})
	}
	if err := in.explainApply(context.Canceled); console.ExitCode(err) != console.ExitFailed ||
		err.Error() != "installing: interrupted" {
		t.Errorf("an error of something else: %v", err)
	}
}

// applyError sends a request to the test server through package apply, and returns the error of package apply.
func applyError(t *testing.T, s *fixture.Server) error {
	t.Helper()
	c, err := connection.Open(fixture.App(s.Kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	to, err := apply.New(c.Config, nil, apply.ClusterOptions{RequestTimeout: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	_, err = to.Get(t.Context(), apply.Ref{Version: "v1", Kind: "ConfigMap", Namespace: "kcp-system", Name: "a"})
	return err
}

// TestTimeout checks that only a timeout is converted into a separate error, and that an error that already has an exit
// code is kept.
func TestTimeout(t *testing.T) {
	in := &installer{Cluster: fixture.ControlPlane}
	ended, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	<-ended.Done()
	if err := in.toTimeoutError(ended, errors.New("odd"), 0); console.ExitCode(err) != console.ExitNotReady ||
		!strings.Contains(err.Error(), "nothing is undone, try again") {
		t.Errorf("after the timeout: %v", err)
	}
	if err := in.toTimeoutError(ended, console.Fail(console.ExitForbidden, "no"), 0); console.ExitCode(
		err) != console.ExitForbidden {
		t.Errorf("an error with a code: %v", err)
	}
	if err := in.toTimeoutError(t.Context(), errors.New("odd"), 0); err.Error() != "odd" {
		t.Errorf("before the timeout: %v", err)
	}
	if err := explainTimeout(context.DeadlineExceeded, "Deployment a"); console.ExitCode(err) != console.ExitNotReady ||
		err.Error() != "not done in time: Deployment a" {
		t.Errorf("while it waited: %v", err)
	}
	if err := explainTimeout(context.Canceled, "Deployment a"); !errors.Is(err, context.Canceled) {
		t.Errorf("when it was interrupted: %v", err)
	}
}

func TestNamesOf(t *testing.T) {
	var refs []apply.Ref
	for range 20 {
		refs = append(refs, apply.Ref{Version: "v1", Kind: "ConfigMap", Namespace: "kcp-system", Name: "a-long-name"})
	}
	if got := clippedNames(refs[:2]); got != "ConfigMap kcp-system/a-long-name, ConfigMap kcp-system/a-long-name" {
		t.Errorf("two objects: %q", got)
	}
	if got := clippedNames(refs); len([]rune(got)) != 240 || !strings.HasSuffix(got, "…") {
		t.Errorf("many objects: %d characters, %q", len([]rune(got)), got)
	}
}
