package scenario

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/rogpeppe/go-internal/testscript"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kyma-fleet/lifecycle-manager/playground/program"
)

var update = flag.Bool("update", false, "write what was seen into the expectations of the scripts")

// failures are printed again at the end, because the output of failed scenarios is long.
var failures struct {
	sync.Mutex
	said []string
}

// bin is the folder with the programs under test. TestMain sets bin.
var bin string

// slots limits the number of landscapes that run at the same time, because each needs about 1 GiB. They mostly wait.
var slots = make(chan struct{}, 8)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(cap(slots)+1)); err != nil { // slots is the limit
		panic(err) // the flag exists, and the value is a number
	}
	ctrl.SetLogger(logr.Discard()) // of our own clients; the manager's log is its own
	os.Exit(run(m))
}

// run builds the programs and runs the tests.
func run(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "scenario-"); err != nil {
		fmt.Fprintln(os.Stderr, "making a folder for programs:", err)
		return 1
	}
	defer os.RemoveAll(bin) //nolint:errcheck // in the folder for temporary files
	if err := program.Build("../..", bin, program.Manager, program.Agent, program.Operator); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := closeHosts(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	for _, failure := range failures.said {
		fmt.Fprintln(os.Stderr, failure)
	}
	return code
}

// longScripts are the scripts that take longest, the longest first. They start first, so that none of them runs alone
// at the end.
var longScripts = []string{"deletion_deadline", "rollout_lost", "bad_kyma", "purge", "bad_runtime", "rollout_leader",
	"agent_faults", "rollout_calendar", "rollout_join", "restored_older", "upgrade_writes", "flood", "rollout_stop",
	"rollout_preflight", "rollout_replicas", "owner_two", "rollout_back"}

// scripts returns the files of all scripts, with longScripts at the end: package testing starts parallel subtests in
// the reverse order.
func scripts(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Backward(longScripts) {
		file := filepath.Join("testdata", name+".txtar")
		at := slices.Index(files, file)
		if at < 0 {
			t.Fatalf("longScripts names %s, which does not exist", file)
		}
		files = append(slices.Delete(files, at, at+1), file)
	}
	return files
}

// TestScenarios runs the scripts in testdata.
func TestScenarios(t *testing.T) {
	t.Parallel() // with the other long tests of the package
	t.Cleanup(func() { checkRights(t) })
	testscript.Run(t, testscript.Params{
		Files: scripts(t), Cmds: commands, UpdateScripts: *update, RequireUniqueNames: true,
		WorkdirRoot: bin, // so that TestMain removes it; testscript forgets its own folder when -run leaves scripts out
		Setup: func(env *testscript.Env) error {
			slots <- struct{}{}
			ctx, cancel := context.WithCancel(context.Background())
			s := &scenario{ctx: ctx, dir: filepath.Join(env.WorkDir, "landscape")}
			env.Values[key{}] = s
			t := env.T().(testing.TB)
			var seen string
			env.Defer(func() {
				if t.Failed() {
					seen = s.describe()
					failures.Lock()
					failures.said = append(failures.said, fmt.Sprintf("--- failed: %s %s", t.Name(), s.failed))
					failures.Unlock()
				}
				if err := s.close(); err != nil {
					t.Errorf("stopping the landscape: %v", err)
				}
				if err := s.recordRights(); err != nil { // the audit log has a request only after its effect is visible
					t.Error(err)
				}
				if err := s.end(t.Failed()); err != nil {
					t.Error(err)
				}
				cancel()
				<-slots
			})
			t.Cleanup(func() { // after the script's own log
				if seen != "" {
					t.Log(seen)
				}
			})
			return nil
		},
	})
}
