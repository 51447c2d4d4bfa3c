package moduleauthor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/author"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/storage"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/trial"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/ocmaccess"
)

func testCommand(a *console.App) *cobra.Command {
	var e ocmaccess.Flags
	var o testOptions
	c := a.Command("test [FILE] [--previous PLACE] [--image REPOSITORY=PROGRAM]",
		"install a module on a local API server, upgrade it, and remove it",
		`FILE is the module-config. Without --kubeconfig and --context, klm starts a cluster with the program playground: beside klm, on the $PATH, or
--playground. Its pods are simulated; --image runs pods with an image as a local program. If that is the operator, the default custom resource has
to become Ready. With --kubeconfig or --context klm uses that cluster: it must not have objects of the module, and should be for tests only. With --previous
that version is installed first, and upgraded. At the end no objects may be left that did not exist before.
`+ocmaccess.PlaceHelp, `
klm module test --image sample-operator=bin/operator
klm module test --previous released.ctf --image sample-operator=bin/operator
klm module test --kubeconfig kind.yaml`,
		console.Arguments("[FILE]"), func(cmd *cobra.Command, args []string) error {
			o.source.File = defaultConfig
			if len(args) > 0 {
				o.source.File = args[0]
			}
			var err error
			if o.access, err = e.Access(a); err != nil {
				return err
			}
			return testModule(cmd.Context(), a, o)
		})
	c.ValidArgsFunction = nil // files
	c.Flags().StringVar(&o.previous, "previous", "", "PLACE//COMPONENT:VERSION to install first, and to upgrade")
	c.Flags().StringArrayVar(&o.images, "image", nil,
		"REPOSITORY=PROGRAM: run pods with this image as a local program; may be repeated")
	c.Flags().StringVar(&o.playground, "playground", "",
		"path of the program playground; empty: beside klm, or on the $PATH")
	registerRootFlag(c, &o.source)
	c.Flags().DurationVar(&o.timeout, "timeout", 3*time.Minute, "timeout of each step")
	e.Register(c.Flags())
	return c
}

// testOptions are the arguments and flags of klm module test.
type testOptions struct {
	source               author.Source
	previous, playground string
	images               []string
	timeout              time.Duration
	access               storage.Access
}

// testReport is the report of klm module test.
type testReport struct {
	Name    string       `json:"name"`
	Version string       `json:"version"`
	Steps   []trial.Step `json:"steps"`
}

func (t testReport) Names() []string { return []string{t.Name + ":" + t.Version} }

func (t testReport) Show(p *console.Page) {
	for _, s := range t.Steps {
		p.Line("%-10s %s", s.Name, s.Result)
	}
	p.Line("%s:%s can be released", t.Name, t.Version)
}

func testModule(ctx context.Context, a *console.App, o testOptions) (err error) {
	m, err := author.Build(ctx, o.source)
	if err != nil {
		return ocmaccess.ExplainWithExitCode(err)
	}
	t := trial.Trial{Module: m, Timeout: o.timeout, Progress: func(text string) { fmt.Fprintf(a.Err, "  %s\n", text) }}
	if o.previous != "" {
		p, err := ocmaccess.Open(o.previous, o.access, false)
		if err != nil {
			return err
		}
		if t.Previous, err = author.Load(ctx, p); err != nil {
			return ocmaccess.ExplainWithExitCode(err)
		}
	}
	local := a.Config.Kubeconfig == "" && a.Config.Context == ""
	switch {
	case local:
		stop, err := startCluster(ctx, a, o, &t)
		if err != nil {
			return err
		}
		defer stop()
	case len(o.images) > 0:
		return console.Fail(console.ExitUsage,
			"--image is for the cluster that is started here: leave out --kubeconfig and --context, or --image")
	default:
		if t.Config, err = testClusterConfig(ctx, a); err != nil {
			return err
		}
	}
	steps, err := t.Run(ctx)
	if err != nil {
		for _, s := range steps {
			fmt.Fprintf(a.Err, "  %s: %s\n", s.Name, s.Result)
		}
		return console.Fail(console.ExitFailed, "%s:%s should not be released as it is: %v", m.Name, m.Version, err)
	}
	return a.Print(testReport{m.Name, m.Version, steps})
}

// testClusterConfig returns the client configuration of the cluster in the kubeconfig. The cluster must be neither a
// control plane nor a runtime.
func testClusterConfig(ctx context.Context, a *console.App) (*rest.Config, error) {
	c, err := connection.Open(a)
	if err != nil {
		return nil, err
	}
	// Only a certain answer counts: any other error could hide a runtime with the modules of users.
	switch err := c.GetJSON(ctx, "/apis/"+v1beta2.GroupVersion.Group, &metav1.APIGroup{}); {
	case err == nil:
		return nil, console.Fail(console.ExitCluster,
			"%s is a control plane or a runtime, where modules must not be tested: use another cluster, or no "+
				"--kubeconfig and --context, and klm starts one", c)
	case !apierrors.IsNotFound(err):
		return nil, c.Explain(err, "checking that the cluster is neither a control plane nor a runtime")
	}
	if _, err := c.UID(ctx); err != nil {
		return nil, c.Explain(err, "connecting")
	}
	return c.Config, nil
}

// startCluster starts a cluster with the program playground and connects the trial to the cluster. The result stop
// stops the cluster and removes its files.
func startCluster(ctx context.Context, a *console.App, o testOptions, t *trial.Trial) (stop func(), err error) {
	program, err := findPlaygroundProgram(o.playground)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "klm-test-")
	if err != nil {
		return nil, console.Fail(console.ExitFailed, "creating a directory for the cluster: %v", err)
	}
	args := []string{"clusters", "--names=test", "--dir=" + filepath.Join(dir, "clusters")}
	t.Simulated = true
	for _, image := range o.images {
		repository, _, ok := strings.Cut(image, "=")
		if !ok {
			return nil, errors.Join(console.Fail(console.ExitUsage, "--image: %q is not REPOSITORY=PROGRAM", image),
				os.RemoveAll(dir))
		}
		args = append(args, expandImageFlag(image, t)...)
		for _, used := range t.Module.Images {
			t.Simulated = t.Simulated && !isOfRepository(used, repository)
		}
	}
	if t.Simulated {
		fmt.Fprintln(a.Err, "  no --image runs an operator: pods are simulated, and the state of the custom resource "+
			"is ignored")
	}
	fmt.Fprintln(a.Err, "  starting a cluster")
	c := exec.Command(program, args...) //nolint:gosec // the user has put it there
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return nil, errors.Join(console.Fail(console.ExitFailed, "starting %s: %v", program, err), os.RemoveAll(dir))
	}
	stop = func() {
		_ = c.Process.Signal(syscall.SIGTERM) // the process may have ended already
		_, _ = io.Copy(io.Discard, out)
		_ = c.Wait()
		_ = os.RemoveAll(dir)
	}
	stopSignal := context.AfterFunc(ctx, func() { _ = c.Process.Signal(syscall.SIGTERM) })
	defer stopSignal()
	ready := false
	for lines := bufio.NewScanner(out); !ready && lines.Scan(); {
		ready = lines.Text() == "ready"
	}
	if !ready {
		stop()
		return nil, console.Fail(console.ExitFailed, "starting a cluster with %s: %s", program,
			strings.TrimSpace(stderr.String()))
	}
	t.Config, err = clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "clusters", "test.kubeconfig"))
	if err != nil {
		stop()
		return nil, console.Fail(console.ExitFailed, "reading the kubeconfig of the cluster: %v", err)
	}
	return stop, nil
}

// expandImageFlag converts one flag --image of klm module test into flags of the program playground, which runs the
// test cluster. The program playground needs complete names of image repositories. Therefore expandImageFlag returns
// one flag for each image repository that the tested versions use and that matches the name in --image.
func expandImageFlag(repositoryAndProgram string, t *trial.Trial) (playgroundFlags []string) {
	repository, program, _ := strings.Cut(repositoryAndProgram, "=")
	names := map[string]bool{repository: true}
	for _, m := range []*author.Module{t.Module, t.Previous} {
		for _, used := range imagesOf(m) {
			if isOfRepository(used, repository) {
				names[repositoryOf(used)] = true
			}
		}
	}
	var flags []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		flags = append(flags, "--image="+name+"="+program)
	}
	return flags
}

func imagesOf(m *author.Module) []string {
	if m == nil {
		return nil
	}
	return m.Images
}

// isOfRepository reports whether an image belongs to a repository. The host and the path of the repository may be
// omitted.
func isOfRepository(image, nameOrSuffix string) bool {
	name := repositoryOf(image)
	return name == nameOrSuffix || strings.HasSuffix(name, "/"+nameOrSuffix)
}

// repositoryOf returns the name of an image without tag and digest.
func repositoryOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		image = image[:i]
	}
	return image
}

// findPlaygroundProgram returns the path of the program playground.
func findPlaygroundProgram(named string) (string, error) {
	if named != "" {
		if _, err := os.Stat(named); err != nil {
			return "", console.Fail(console.ExitUsage, "--playground: %v", err)
		}
		return named, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "playground")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	if found, err := exec.LookPath("playground"); err == nil {
		return found, nil
	}
	return "", console.Fail(console.ExitCluster,
		"there is no cluster to test on: put the program playground beside klm (make build does), or give "+
			"--kubeconfig of a cluster for tests")
}
