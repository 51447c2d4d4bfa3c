package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
	"github.com/kyma-fleet/lifecycle-manager/playground/program"
	"github.com/kyma-fleet/lifecycle-manager/playground/sample"
)

// readyTimeout is the time in which all modules must become Ready after the start of the manager. It applies to the
// command up --until=ready.
const readyTimeout = 15 * time.Minute

// up is the command that starts a complete landscape.
type up struct {
	Dir       string
	Bin       string
	Until     string
	Runtimes  []string
	InCluster bool
	Flags     []string
}

func upCommand() *cobra.Command {
	v := &up{}
	command := &cobra.Command{
		Use: "up",
		Short: "Start a control plane, runtimes, a registry and the manager; install the sample module on every " +
			"runtime",
		Long: `Start a control plane, runtimes, a registry and the manager; install the sample module on every
runtime and show how it gets Ready. Then print what to try next, and run until Ctrl-C, which stops
and removes everything.`,
		Example: "  playground up\n  playground up --until=ready   # ends with exit code 0 when all is Ready, 1 " +
			"after 15 minutes\n  playground up --in-cluster    # one cluster that is control plane and runtime",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return v.run(command.Context(), command.OutOrStdout()) },
	}
	flags := command.Flags()
	flags.StringVar(&v.Dir, "dir", ".landscape",
		"folder for kubeconfigs, logs and data; made at the start and removed at the end")
	flags.StringVar(&v.Bin, "bin", "bin", "folder with lifecycle-manager, sample-operator, klm and kubectl")
	flags.StringVar(&v.Until, "until", "",
		"ready: end when every module is Ready, with exit code 1 and the reasons after 15 minutes")
	flags.StringSliceVar(&v.Runtimes, "runtimes", []string{"runtime-a", "runtime-b"}, "names of the runtimes")
	flags.BoolVar(&v.InCluster, "in-cluster", false, "one cluster: the manager installs modules where it runs")
	flags.StringArrayVar(&v.Flags, "manager-flag", nil,
		"a flag for the manager, such as --audit-interval=1m; may be given several times")
	return command
}

func (v *up) run(ctx context.Context, out io.Writer) (err error) {
	if v.Until != "" && v.Until != "ready" {
		return fmt.Errorf("--until: %q is not known; give ready or leave it out", v.Until)
	}
	if entries, err := os.ReadDir(v.Dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("--dir: %s is not empty: another landscape runs there or was killed; stop it, or remove "+
			"the folder", v.Dir)
	}
	if v.InCluster {
		v.Runtimes = nil
	}
	if err := silenceLibraries(); err != nil {
		return err
	}
	// The default periods of a manager: users notice soon that a manager has ended.
	flags := []string{"--leader-election-lease-duration=15s", "--leader-election-renew-deadline=10s"}
	if !v.InCluster {
		flags = append(flags, "--watch-mode=agent", "--heartbeat-interval=5s")
	}
	l, err := landscape.Up(ctx, landscape.Options{
		Dir: v.Dir, Bin: v.Bin, Runtimes: v.Runtimes, InCluster: v.InCluster, ManagerArgs: append(flags, v.Flags...),
		Say: func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) },
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil // asked to end while starting
		}
		return err
	}
	defer func() { err = errors.Join(err, l.CloseAndRemoveDir()) }()
	stop, err := serveControl(v.Dir, l.Clusters)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	dashboard, stopDashboard, err := v.serveDashboard(ctx, l.KubeconfigPath(landscape.ControlPlane))
	if err != nil {
		return err
	}
	defer stopDashboard()
	fmt.Fprint(out, dashboard)
	if err := os.WriteFile(filepath.Join(v.Dir, "registry"), []byte(l.RegistryHost+"\n"), 0o600); err != nil {
		return fmt.Errorf("writing the address of the registry: %w", err)
	}
	if err := v.publishAndEnableSampleModule(ctx, l); err != nil {
		return err
	}
	limit, cancel := context.WithTimeoutCause(ctx, readyTimeout,
		fmt.Errorf("not all modules are Ready after %s", readyTimeout))
	defer cancel()
	err = l.FollowRestartingOnLostLease(limit, out, allModulesReady)
	if ctx.Err() != nil {
		return nil // asked to end
	}
	if v.Until == "ready" || err != nil && limit.Err() == nil {
		return err
	}
	if err != nil {
		fmt.Fprintf(out, "\n%v\n", err)
	}
	fmt.Fprint(out, v.whatNext(l))
	if err := l.FollowRestartingOnLostLease(ctx, out, func([]landscape.Row) bool { return false }); ctx.Err() == nil {
		return err
	}
	fmt.Fprintln(out, "\nstopping and removing everything")
	return nil
}

// serveDashboard starts klm dashboard for the control plane. serveDashboard returns the line with the address, and a
// function stop that ends the dashboard.
func (v *up) serveDashboard(ctx context.Context, kubeconfig string) (line string, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	//nolint:gosec // the user chooses the folder of the programs
	command := exec.CommandContext(ctx, v.programPath(program.KLM), "dashboard", "--no-open", "--actions",
		"--kubeconfig", kubeconfig)
	var problem bytes.Buffer
	command.Stderr = &problem
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 5 * time.Second
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		cancel()
		return "", nil, fmt.Errorf("starting the dashboard: %w; make build builds %s", err, command.Path)
	}
	stop = func() {
		cancel()
		_ = command.Wait() // ended by the signal
	}
	if line, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		stop()
		return "", nil, fmt.Errorf("starting the dashboard: it has printed no address: %s", problem.Bytes())
	}
	return line, stop, nil
}

// publishAndEnableSampleModule publishes the versions of the sample module and registers the runtimes. Then
// publishAndEnableSampleModule enables the module in each runtime, as the admin of the runtime would.
func (v *up) publishAndEnableSampleModule(ctx context.Context, l *landscape.Landscape) error {
	for _, version := range sample.Versions() {
		if err := l.PushAndCreateModuleTemplate(ctx, landscape.Module{
			Name: sample.Module, Version: version.Version, Component: sample.Component, Tar: true,
			Manifest: version.Manifest, DefaultCR: version.DefaultCR,
			Manager: &v1beta2.Manager{Group: "apps", Version: "v1", Kind: "Deployment",
				Namespace: sample.Namespace, Name: sample.Operator},
		}); err != nil {
			return err
		}
	}
	if err := l.SetChannels(ctx, sample.Module, sample.Component, sampleChannels()); err != nil {
		return err
	}
	names := v.Runtimes
	if v.InCluster {
		names = []string{v1beta2.RuntimeKymaName}
	}
	for _, name := range names {
		if err := l.Register(ctx, name, v1beta2.DefaultChannel); err != nil {
			return err
		}
	}
	for _, name := range names {
		cluster, key := l.DesiredKymaKey(name)
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 5*time.Minute, true,
			func(ctx context.Context) (bool, error) {
				return l.Clients[cluster].Get(ctx, key, &v1beta2.Kyma{}) == nil, nil
			})
		if err != nil {
			return fmt.Errorf("waiting for the Kyma to appear in %s: %w", name, v.wrapWithKymaState(ctx, l, name, err))
		}
		if err := l.PatchDesiredKymaSpec(ctx, name,
			func(s *v1beta2.KymaSpec) { s.Modules = []v1beta2.Module{{Name: sample.Module}} }); err != nil {
			return err
		}
	}
	return nil
}

// sampleChannels returns the versions of the channels of the sample module. The channel regular has the oldest version.
// The channel fast has the newest version.
func sampleChannels() map[string]string {
	all := sample.Versions()
	return map[string]string{v1beta2.DefaultChannel: all[0].Version, "fast": all[len(all)-1].Version}
}

// wrapWithKymaState adds the state of the Kyma of a runtime to an error.
func (v *up) wrapWithKymaState(ctx context.Context, l *landscape.Landscape, name string, err error) error {
	k := &v1beta2.Kyma{}
	if l.Clients[landscape.ControlPlane].Get(ctx, client.ObjectKey{Namespace: l.Namespace(), Name: name}, k) == nil {
		err = fmt.Errorf("%w; its state is %q: %s", err, k.Status.State, k.Status.LastOperation.Operation)
	}
	return err
}

func allModulesReady(rows []landscape.Row) bool {
	for _, r := range rows {
		if !r.Ready() || r.Module == "-" {
			return false
		}
	}
	return len(rows) > 0
}

// whatNext returns a text with commands to try next. The user can copy and run each command as it is printed.
func (v *up) whatNext(l *landscape.Landscape) string {
	kubectl, klm := v.programPath("kubectl"), v.programPath("klm")
	admin, runtime := l.KubeconfigPath(landscape.ControlPlane), l.KubeconfigPath(landscape.ControlPlane)
	if !v.InCluster {
		runtime = l.KubeconfigPath(v.Runtimes[0])
	}
	return fmt.Sprintf(`
All is Ready. What to try next, in another terminal, from this folder:

  see the fleet in a browser, at the address above, which works once, or again with
    %[9]s dashboard --kubeconfig %[2]s
  see what the operator of the fleet sees
    %[1]s --kubeconfig %[2]s -n %[4]s get kyma,manifest
    %[9]s status --kubeconfig %[2]s
  switch the module to channel fast, as the admin of a runtime
    %[1]s --kubeconfig %[3]s -n kyma-system patch kyma %[7]s --type merge -p '{"spec":{"modules":[{"name":"%[5]s","channel":"fast"}]}}'
    %[9]s module set-channel %[5]s fast --kubeconfig %[3]s     # the same with klm, which waits
  delete an object and see it come back
    %[1]s --kubeconfig %[3]s -n kyma-system delete deployment sample-operator
  break something and see the reason
    %[1]s --kubeconfig %[3]s -n kyma-system patch %[6]s --type merge -p '{"spec":{"fail":"the disk is full"}}'
    %[1]s --kubeconfig %[3]s -n kyma-system get kyma %[7]s -o jsonpath='{.status.modules}'
    %[9]s module why %[5]s --kubeconfig %[3]s
  mend it
    %[1]s --kubeconfig %[3]s -n kyma-system patch %[6]s --type merge -p '{"spec":{"fail":null}}'
  remove the module
    %[1]s --kubeconfig %[3]s -n kyma-system patch kyma %[7]s --type merge -p '{"spec":{"modules":[]}}'
%[8]s
The table is printed again when something changes. Ctrl-C stops and removes everything.
`, kubectl, admin, runtime, l.Namespace(), sample.Module, "sample sample", v1beta2.RuntimeKymaName, v.outageHint(), klm)
}

// programPath returns the path of a program in a form that a shell can run: the path always contains a slash.
func (v *up) programPath(name string) string {
	path := filepath.Join(v.Bin, name)
	if !strings.Contains(path, "/") {
		path = "./" + path
	}
	return path
}

// outageHint returns a text about how to make a runtime unreachable and reachable again. In in-cluster mode there is no
// runtime, and the text is empty.
func (v *up) outageHint() string {
	if v.InCluster {
		return ""
	}
	last := v.Runtimes[len(v.Runtimes)-1]
	return fmt.Sprintf(`  stop a runtime, see what its Kyma says, start it again (cut, slow and mend work alike)
    %[1]s stop %[2]s
    %[1]s start %[2]s
`, filepath.Join(v.Bin, "playground"), last)
}
