package klm

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
	"github.com/kyma-fleet/lifecycle-manager/playground/program"
	"github.com/kyma-fleet/lifecycle-manager/playground/sample"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// bin is the folder with the programs under test. TestMain sets bin.
var bin string

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard()) // of our own clients
	if filepath.Base(os.Args[0]) == "kubectl" {
		if err := kubectl(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	os.Exit(run(m))
}

// run builds the programs and runs the tests.
func run(m *testing.M) int {
	defer end()
	var err error
	if bin, err = os.MkdirTemp("", "klm-"); err != nil {
		fmt.Fprintln(os.Stderr, "making a folder for programs:", err)
		return 1
	}
	defer os.RemoveAll(bin) //nolint:errcheck // in the folder for temporary files
	if err := program.Build("../..", bin, program.KLM, program.Manager, program.Agent, program.Operator,
		program.Playground); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := os.Symlink("klm", filepath.Join(bin, "kubectl-lifecycle")); err != nil {
		fmt.Fprintln(os.Stderr, "naming klm as a plugin:", err)
		return 1
	}
	defer func() {
		if land.up != nil {
			if err := land.up.CloseAndRemoveDir(); err != nil {
				fmt.Fprintln(os.Stderr, "stopping the landscape:", err)
			}
		}
	}()
	return m.Run()
}

// land is the landscape of all scripts. land is started when the first test needs it.
var land struct {
	once sync.Once
	up   *landscape.Landscape
	err  error
}

// life is the context of the landscape, which runs longer than the test that has started it.
var life, end = context.WithCancel(context.Background())

// runtimes are the names of the runtimes in the landscape.
var runtimes = []string{"runtime-a", "runtime-b"}

func theLandscape(t testing.TB) *landscape.Landscape {
	t.Helper()
	land.once.Do(func() {
		land.up, land.err = landscape.Up(life, landscape.Options{
			Dir: filepath.Join(bin, "landscape"), Bin: bin, Runtimes: runtimes, LongTimeouts: true,
			// A manager that cannot renew its Lease until the renew deadline ends, even if the machine is only
			// busy. manager.txtar kills the manager and waits until its Lease has expired, so the Lease is not longer.
			ManagerArgs: []string{"--watch-mode=hub", "--catalog-spread=0", "--leader-election-lease-duration=45s",
				"--leader-election-renew-deadline=40s", "--leader-election-retry-period=1s"},
		})
		if land.err != nil {
			land.up = nil // Up has stopped the landscape
			return
		}
		land.err = errors.Join(publish(life, land.up), writeKubeconfig(land.up))
	})
	if land.err != nil {
		t.Fatal(land.err)
	}
	return land.up
}

// publish publishes two versions of the sample module, in the channels regular and fast.
func publish(ctx context.Context, l *landscape.Landscape) error {
	versions := sample.Versions()
	for _, v := range versions {
		err := l.PushAndCreateModuleTemplate(ctx, landscape.Module{
			Name: sample.Module, Version: v.Version, Component: sample.Component, Tar: true,
			Manifest: v.Manifest, DefaultCR: v.DefaultCR,
			Manager: &v1beta2.Manager{Group: "apps", Version: "v1", Kind: "Deployment",
				Namespace: sample.Namespace, Name: sample.Operator},
		})
		if err != nil {
			return err
		}
	}
	return l.SetChannels(ctx, sample.Module, sample.Component, map[string]string{"regular": versions[0].Version,
		"fast": versions[len(versions)-1].Version})
}

// fleetKubeconfig returns the path of a kubeconfig with one context for each cluster, named like the cluster. The
// current context is the control plane.
func fleetKubeconfig(l *landscape.Landscape) string { return l.KubeconfigPath("fleet") }

func writeKubeconfig(l *landscape.Landscape) error {
	all := clientcmdapi.NewConfig()
	for name, c := range l.Clusters {
		one, err := clientcmd.Load(c.Kubeconfig())
		if err != nil {
			return err
		}
		context := one.Contexts[one.CurrentContext]
		all.Clusters[name], all.AuthInfos[name] = one.Clusters[context.Cluster], one.AuthInfos[context.AuthInfo]
		all.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	all.CurrentContext = landscape.ControlPlane
	return clientcmd.WriteToFile(*all, fleetKubeconfig(l))
}

// scripts are the names of the scripts in testdata, in the order in which they run.
var scripts = []string{"manager", "operator", "module", "bad_input", "rights", "plugin", "dump", "author"}

// TestScripts runs the scripts one after the other.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) != len(scripts) {
		t.Fatalf("%d scripts are known, but there are %q, %v", len(scripts), files, err)
	}
	for _, name := range scripts {
		t.Run(name, func(t *testing.T) { runScripts(t, filepath.Join("testdata", name+".txtar")) })
	}
}

func runScripts(t *testing.T, files ...string) {
	l := theLandscape(t)
	testscript.Run(t, testscript.Params{
		Files: files, Cmds: commands, RequireExplicitExec: true, WorkdirRoot: bin,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", bin+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("KUBECONFIG", fleetKubeconfig(l))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("REGISTRY", l.RegistryHost)
			env.Setenv("LOCKED_REGISTRY", l.LockedRegistryHost)
			for name, c := range l.Clusters {
				if err := os.WriteFile(filepath.Join(env.WorkDir, name+".yaml"), c.Kubeconfig(), 0o600); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

// deadline is the timeout of every wait. A wait takes at most a few seconds.
const deadline = 20 * time.Minute

// commands are the commands of scripts, in addition to the commands of package testscript:
//
//	klm [-code=N] ARG…            run klm; it has to end with exit code N, 0 if none is given
//	retry [-code=N] REGEXP ARG…   run klm with ARG… until it ends with that code and its output matches
//	apply CLUSTER FILE            apply the objects in a file
//	patch CLUSTER KIND NAME JSON  patch an object of KIND.VERSION.GROUP (merge patch) in kyma-system, or kcp-system in the control plane
//	user CLUSTER NAME FILE        write a kubeconfig of a user with the rights that it gets by apply: service account NAME in namespace default
//	kubeconfig CLUSTER SORT FILE  write a kubeconfig: exec, file (key in a file), dead (nobody listens), token (nobody knows it)
//	delete CLUSTER KIND NAME      delete an object
//	gone CLUSTER KIND NAME        wait until there is no such object
//	manager kill|start            kill the manager (SIGKILL), or start it again
//	keypair rsa|ec                make keys for signing: rsa.pem and rsa.pub, ec.pem and ec.pub
//	component NAME:VERSION RESOURCE=PATH…  publish a component version with these layers; a folder becomes an archive
//	image REFERENCE               push an image for two platforms to a registry without login
var commands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"klm": func(ts *testscript.TestScript, _ bool, args []string) {
		code, args := exitCode(ts, args)
		if got := runKlm(ts, args); got != code {
			ts.Fatalf("klm ended with exit code %d, not %d", got, code)
		}
	},
	"retry": func(ts *testscript.TestScript, _ bool, args []string) {
		code, args := exitCode(ts, args)
		want, err := regexp.Compile("(?m)" + args[0])
		ts.Check(err)
		limit := time.Now().Add(deadline)
		for {
			out, got := klmOutput(ts, args[1:])
			if got == code && want.MatchString(out) {
				return
			}
			if time.Now().After(limit) {
				ts.Fatalf("klm %v still ends with %d and says:\n%s", args[1:], got, out)
			}
			<-time.After(200 * time.Millisecond)
		}
	},
	"apply": func(ts *testscript.TestScript, _ bool, args []string) {
		objects, err := render.Parse([]byte(ts.ReadFile(args[1])))
		ts.Check(err)
		for _, o := range objects {
			ts.Check(land.up.Clients[args[0]].Apply(life, client.ApplyConfigurationFromUnstructured(
				(*unstructured.Unstructured)(o)), client.FieldOwner("somebody"), client.ForceOwnership))
		}
	},
	"patch": func(ts *testscript.TestScript, _ bool, args []string) {
		o := newObject(args[0], args[1], args[2])
		ts.Check(land.up.Clients[args[0]].Patch(life, o, client.RawPatch(types.MergePatchType, []byte(args[3]))))
	},
	"delete": func(ts *testscript.TestScript, _ bool, args []string) {
		ts.Check(land.up.Clients[args[0]].Delete(life, newObject(args[0], args[1], args[2])))
	},
	"gone": func(ts *testscript.TestScript, _ bool, args []string) {
		for limit := time.Now().Add(deadline); ; {
			err := land.up.Clients[args[0]].Get(life, client.ObjectKeyFromObject(newObject(args[0], args[1], args[2])),
				newObject(args[0], args[1], args[2]))
			if err != nil && client.IgnoreNotFound(err) == nil {
				return
			}
			if time.Now().After(limit) {
				ts.Fatalf("%v is still there", args)
			}
			<-time.After(100 * time.Millisecond)
		}
	},
	"component": func(ts *testscript.TestScript, _ bool, args []string) {
		ts.Check(publishLayers(args[0], args[1:], ts.MkAbs))
	},
	"image": func(ts *testscript.TestScript, _ bool, args []string) {
		ts.Check(pushIndex(strings.TrimPrefix(args[0], "http://")))
	},
	"manager": func(ts *testscript.TestScript, _ bool, args []string) {
		if args[0] == "kill" {
			ts.Check(land.up.Manager.Kill())
			return
		}
		ts.Check(land.up.StartManagerWithoutWait(life))
	},
	"keypair": func(ts *testscript.TestScript, _ bool, args []string) {
		ts.Check(writeKeys(ts.MkAbs(args[0]), args[0]))
	},
	"user": func(ts *testscript.TestScript, _ bool, args []string) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: args[1], Namespace: "default"}}
		ts.Check(client.IgnoreAlreadyExists(land.up.Clients[args[0]].Create(life, account)))
		data, err := land.up.Clusters[args[0]].TokenKubeconfig(life, "default", args[1])
		ts.Check(err)
		ts.Check(os.WriteFile(ts.MkAbs(args[2]), data, 0o600))
	},
	"kubeconfig": func(ts *testscript.TestScript, _ bool, args []string) {
		data, err := badKubeconfig(args[0], args[1])
		ts.Check(err)
		ts.Check(os.WriteFile(ts.MkAbs(args[2]), data, 0o600))
	},
}

// newObject returns an object with only its kind and name, for a request. kind is KIND.VERSION.GROUP.
func newObject(cluster, kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	k, rest, _ := strings.Cut(kind, ".")
	version, group, _ := strings.Cut(rest, ".")
	o.SetKind(k)
	o.SetAPIVersion(strings.TrimPrefix(group+"/"+version, "/"))
	o.SetName(name)
	if o.SetNamespace(v1beta2.RuntimeNamespace); cluster == landscape.ControlPlane {
		o.SetNamespace(v1beta2.ControlPlaneNamespace)
	}
	return o
}

func exitCode(ts *testscript.TestScript, args []string) (int, []string) {
	text, found := strings.CutPrefix(args[0], "-code=")
	if !found {
		return 0, args
	}
	code, err := strconv.Atoi(text)
	ts.Check(err)
	return code, args[1:]
}

// runKlm runs klm with its output as the output of the script command, and returns the exit code.
func runKlm(ts *testscript.TestScript, args []string) int {
	err := ts.Exec(filepath.Join(bin, "klm"), args...)
	return codeOf(ts, err)
}

func codeOf(ts *testscript.TestScript, err error) int {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	}
	ts.Check(err)
	return 0
}

// klmOutput runs klm and returns its output and its exit code. The stdout and stderr of the script do not change.
func klmOutput(ts *testscript.TestScript, args []string) (string, int) {
	c := exec.Command(filepath.Join(bin, "klm"), args...)
	c.Dir = ts.MkAbs(".")
	c.Env = append(slices.Clone(os.Environ()), "KUBECONFIG="+ts.Getenv("KUBECONFIG"), "HOME="+ts.Getenv("HOME"))
	out, err := c.CombinedOutput()
	return string(out), codeOf(ts, err)
}

// badKubeconfig returns the kubeconfig of a cluster with one defect. sort selects the defect.
func badKubeconfig(cluster, sort string) ([]byte, error) {
	config, err := clientcmd.Load(land.up.Clusters[cluster].Kubeconfig())
	if err != nil {
		return nil, err
	}
	context := config.Contexts[config.CurrentContext]
	user, server := config.AuthInfos[context.AuthInfo], config.Clusters[context.Cluster]
	switch sort {
	case "exec":
		*user = clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: "/bin/false",
			InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}
	case "file":
		user.ClientKeyData, user.ClientKey = nil, "/etc/ssl/private/key.pem"
	case "dead":
		server.Server = "https://127.0.0.1:1"
	case "token":
		*user = clientcmdapi.AuthInfo{Token: "nobody-knows-this"}
	default:
		return nil, fmt.Errorf("%q is no sort of kubeconfig", sort)
	}
	return clientcmd.Write(*config)
}
