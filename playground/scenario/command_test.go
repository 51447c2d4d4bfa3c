package scenario

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// waitTimeout bounds every wait. What is waited for takes a few seconds; more is only ever needed on a machine that is
// busy with other things.
const waitTimeout = 3 * time.Minute

// scenario is one script under way.
type scenario struct {
	ctx  context.Context
	dir  string
	land *landscape.Landscape // set by up

	failed string // the command that failed, and why

	signer *ecdsa.PrivateKey // set by trust

	others map[string]*landscape.Process // set by replicas: further replicas of the manager, by name

	marks  map[string]cluster.Mark // set by mark: where counting begins, by cluster
	pulls  int                     // set by mark: requests to the registry so far
	orders int                     // set by mark: requests to the chart repository so far
	passes map[string]float64      // set by mark: passes so far, by controller

	certificates map[string]tls.Certificate // set by certificate: by name
	floods       []*flood                   // set by flood: those under way
}

// key finds the scenario among the values of a script.
type key struct{}

func (s *scenario) close() error {
	if s.land == nil {
		return nil
	}
	return errors.Join(s.closeReplicas(), s.land.Close())
}

// commands are what a script can say, next to the commands of package testscript (cmp, stdout, cp, …). A line that
// begins with # is a phase; a failure shows the lines of its phase. A command with ! before it has to fail, and prints
// why.
//
// OBJECT is [CLUSTER:]KIND/[NAMESPACE/]NAME. Without CLUSTER it is in the control plane. Without NAMESPACE it is in
// kcp-system there, and in kyma-system elsewhere. KIND is one of those in object_test.go.
//
// CLAIM is PATH=VALUE, PATH!=VALUE or PATH~REGEXP; see parseClaim for paths and their short forms.
var commands = map[string]func(*testscript.TestScript, bool, []string){

	// The landscape.

	// up [-in-cluster] [-ingress] [-manager=FLAG…] RUNTIME… starts a control plane, the runtimes, a registry, a chart
	// repository, and the manager with further flags; with -ingress behind the ingress gateway of a mesh, which goes by
	// VirtualServices. It sets REGISTRY and CHARTS to the addresses, LOCKED_REGISTRY and LOCKED_CHARTS to those that
	// ask for a login, and REGISTRY_HOST and LOCKED_REGISTRY_HOST to host:port only.
	"up": command((*scenario).up),
	// register RUNTIME CHANNEL makes a runtime known: access Secret, and Kyma with the channel. It waits until the Kyma
	// is in the runtime.
	"register": command((*scenario).register),
	// kyma NAME CHANNEL creates a Kyma without an access Secret.
	"kyma": command((*scenario).kyma),
	// access RUNTIME KUBECONFIG writes the access Secret of a Kyma: good, empty, garbage, exec, file, bad-token,
	// bad-ca; user=NAME is a good one of a new user; other=RUNTIME is the good one of another runtime; gate is one that
	// leads through the runtime's gate.
	"access": command((*scenario).access),
	// withdraw CLUSTER USER takes all rights from a user made by access, and waits until the API server knows.
	"withdraw": command((*scenario).withdraw),
	// runtime stop|start|slow|mend NAME does that to a cluster. A slow one delays all data by 200 ms each way.
	"runtime": command((*scenario).cluster),
	// manager kill|stop ends the manager at once (SIGKILL) or asks it to end; manager start [FLAG…] starts it again,
	// with these further flags if there are any instead of those that it had.
	"manager": command((*scenario).manager),
	// replica start starts another replica of the manager; agents report to it from now on, though it does not work
	// yet.
	"replica": command((*scenario).replica),
	// replicas plays with several replicas that share the work (--shards); see replicas_test.go.
	"replicas": command((*scenario).replicas),
	// agent RUNTIME kill ends the process of the agent in a runtime at once; its Deployment starts another.
	"agent": command((*scenario).agent),
	// receive SERVICE PORT puts a component of the control plane behind a Service in kcp-system that the ingress
	// gateway leads to. `told SERVICE [TEXT]` prints what that component has received since, each thing once, sorted;
	// with TEXT it waits until some of it has that text.
	"receive": command((*scenario).receive),
	"told":    command((*scenario).received),
	// certificate NAME of=RUNTIME keeps the client certificate of a runtime's agent; stranger=COMMON-NAME makes one of
	// another authority, expired=COMMON-NAME and nameless make one of the manager's own that has ended, or is nobody's.
	"certificate": command((*scenario).certificate),
	// post [-as=CERTIFICATE] [-forwarded=CERTIFICATE] [-to=MANAGER] FILE posts an event to the listener and prints the
	// status and the message of the answer; with -forwarded it says in the header that its client has shown that
	// certificate.
	"post": command((*scenario).post),
	// flood -as=CERTIFICATE FILE posts the same event from 15 connections without a pause; flooded N ends that after so
	// many answers and prints how many there were of each status.
	"flood":   command((*scenario).flood),
	"flooded": command((*scenario).flooded),
	// gate RUNTIME FAULT REGEXP [N] makes the next N requests through the gate (all without N) whose "METHOD PATH"
	// matches meet a fault: 429, 500, 502, 503 (the answer), cut (the connection is broken before), lose (it is broken
	// in place of the answer), hold (it waits until the gate is opened). gate RUNTIME met N waits until so many have
	// met one; gate RUNTIME open ends all faults and lets go what was held; with drop the runtime never hears of that.
	"gate": command((*scenario).gate),
	// webhook RUNTIME allow|refuse|hang makes the runtime ask a webhook about ConfigMaps whose name begins with
	// guarded, and that say so; none takes it away.
	"webhook": command((*scenario).webhook),

	// The catalog.

	// publish sample pushes all versions of the sample module; its channel regular has the first, fast the last.
	// publish [-tar] [-cr=FILE] [-component=NAME] MODULE VERSION FILE pushes a module with the manifest FILE to the
	// registry and creates its ModuleTemplate.
	"publish": command((*scenario).publish),
	// template [-cr=FILE] MODULE VERSION creates a ModuleTemplate only; push […] MODULE VERSION FILE pushes only.
	"template": command((*scenario).template),
	"push":     command((*scenario).push),
	// channels MODULE CHANNEL=VERSION… makes the channels of a module point at versions; others go. The
	// ModuleReleaseMeta is made if needed.
	"channels": command((*scenario).channels),
	// registry down|up lets the registry fail with 503; registry swap|restore MODULE:VERSION lets it serve other bytes
	// for the module's manifest.
	"registry": command((*scenario).playRegistry),
	// archive FILE NAME=CONTENT… writes a tar archive with entries of exactly these names and contents of the files
	// CONTENT.
	"archive": command((*scenario).archive),
	// bomb FILE MIB writes a gzip file that unpacks to so many MiB of YAML comments.
	"bomb": command((*scenario).bomb),
	// soon VARIABLE SECONDS sets the variable to the moment in so many seconds from now.
	"soon": command((*scenario).soon),
	// expand FROM TO writes the file FROM with variables of the script replaced.
	"expand": command((*scenario).expand),
	// pack [-gzip] [-top=NAME] FILE FOLDER writes a tar archive of a folder; its files are in a folder NAME of the
	// archive.
	"pack": command((*scenario).pack),
	// sample VERSION FOLDER writes the manifest of the sample module into a folder, as manifest.yaml.
	"sample": command((*scenario).sample),
	// layer [-tag=TAG] VARIABLE REPOSITORY FILE pushes a file as a layer and sets the variable to its digest.
	"layer": command((*scenario).layer),
	// chart [-version=VERSION] [-registry=PATH] FOLDER packs a chart, in this version, into the chart repository, or
	// pushes it to PATH/NAME in the registry.
	"chart": command((*scenario).chart),
	// charts down|up lets the chart repository fail with 503; charts swap|restore FILE lets it serve other bytes for a
	// file, such as index.yaml.
	"charts": command((*scenario).playCharts),
	// trust FILE enforce|warn|off writes a trust policy with one key for all artefacts; sign COMPONENT VERSION signs
	// with that key, as cosign does.
	"trust": command((*scenario).trust),
	"sign":  command((*scenario).sign),
	// install CLUSTER istio|gateway-api creates the definitions of gateways and routes as these projects release them,
	// and waits until they are served; uninstall deletes them, and with them all objects.
	"install":   command((*scenario).install),
	"uninstall": command((*scenario).uninstall),
	// guide CLUSTER PAGE creates or changes what is in the YAML blocks of a page of docs/guide.
	"guide": command((*scenario).guide),
	// login NAME docker|basic [USER PASSWORD] creates a Secret with the label login=NAME and the login, by default the
	// right one.
	"login": command((*scenario).login),

	// What people do.

	// enable RUNTIME MODULE [channel=CHANNEL] [version=VERSION] [policy=POLICY] puts the module into the Kyma in the
	// runtime; what it said of that module before is replaced.
	"enable": command((*scenario).enable),
	// disable RUNTIME MODULE takes it out again.
	"disable": command((*scenario).disable),
	// apply [-expand] [-as=OWNER] CLUSTER FILE creates or changes the objects of a file, in which variables of the
	// script are replaced if asked to. OWNER is the field manager.
	"apply": command((*scenario).apply),
	// manifest RUNTIME NAME FILE creates or changes a Manifest of a runtime. FILE has its spec, in which variables of
	// the script are replaced.
	"manifest": command((*scenario).manifest),
	// patch [-status] OBJECT JSON merges.
	"patch": command((*scenario).patch),
	// delete [-foreground] OBJECT… asks for deletion and does not wait. With -foreground what they own goes first.
	"delete": command((*scenario).delete),

	// What is seen.

	// until OBJECT CLAIM… waits until the object is there and all claims hold at the same time.
	"until": command((*scenario).until),
	// check OBJECT CLAIM… fails if they do not hold now.
	"check": command((*scenario).check),
	// gone OBJECT… waits until none of them is there. never OBJECT… fails if one is there now.
	"gone":  command((*scenario).gone),
	"never": command((*scenario).never),
	// remember VARIABLE OBJECT PATH sets the variable to a value of an object.
	"remember": command((*scenario).remember),
	// event OBJECT REGEXP waits until there is an event of the object whose "TYPE REASON MESSAGE" matches.
	"event": command((*scenario).event),
	// show OBJECT [PATH…] prints the object, or these parts of it, as YAML without what differs from run to run.
	"show": command((*scenario).show),
	// ours [-unrecorded] [-catalog] CLUSTER prints every object of a cluster with the label of what the manager made;
	// with -unrecorded only those that no Manifest has in its inventory, and only with -catalog those of the catalog.
	"ours": command((*scenario).ours),

	// What is counted.

	// mark waits until the manager has nothing to do, and begins to count anew.
	"mark": command((*scenario).mark),
	// passes CONTROLLER N waits until the controller (kyma, manifest, watcher) has worked so many times since the mark
	// and has nothing to do any more.
	"passes": command((*scenario).awaitPasses),
	// writes [-sort] CLUSTER [AGENT] prints the requests since the mark that change something, one a line, in the order
	// of their answers; of the manager, or of whoever has that user agent. Leases and events are left out. requests
	// prints reads too, users the names of the users.
	"writes":   command((*scenario).writes),
	"requests": command((*scenario).requests),
	"users":    command((*scenario).users),
	// underway CLUSTER N REGEXP waits until so many requests of the manager since the mark match, as requests prints
	// them.
	"underway": command((*scenario).underway),
	// pulls [-charts] prints the requests to the registry, or to the chart repository, since the mark.
	"pulls": command((*scenario).printPulls),
	// order REGEXP… fails unless in the last output every line that matches an expression comes before all that match
	// the next; each has to match.
	"order": command((*scenario).order),
	// once REGEXP fails if lines of the last output that match are the same, or none match.
	"once": command((*scenario).once),
	// metric VALUE NAME [LABEL=VALUE…] waits until the series of the manager's metric with these labels have that sum.
	"metric": command((*scenario).metric),
	// lines MAX fails if the last output has more lines.
	"lines": command((*scenario).lines),
}

// call is one line of a script.
type call struct {
	script *testscript.TestScript
	args   []string
	flags  map[string][]string // -name=value
}

// flag returns the value of a flag, "" if it was not given.
func (c *call) flag(name string) string {
	if values := c.flags[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// has reports whether a flag was given.
func (c *call) has(name string) bool { return len(c.flags[name]) > 0 }

// want fails unless there are between least and most arguments.
func (c *call) want(least, most int, usage string) error {
	if len(c.args) < least || len(c.args) > most {
		return fmt.Errorf("usage: %s", usage)
	}
	return nil
}

// print makes the lines, of which there may be none, the output of the command.
func (c *call) print(lines ...string) {
	out := c.script.Stdout()
	for _, line := range lines {
		fmt.Fprintln(out, line)
	}
}

// output returns the lines that the last command printed.
func (c *call) output() []string {
	text := strings.TrimSuffix(c.script.ReadFile("stdout"), "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// command makes a command of a script out of a method. Arguments that begin with a dash, before all others, are flags.
func command(do func(*scenario, *call) error) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, negated bool, args []string) {
		said := strings.Join(args, " ")
		c := &call{script: ts, flags: map[string][]string{}}
		for len(args) > 0 && strings.HasPrefix(args[0], "-") {
			name, v, _ := strings.Cut(args[0][1:], "=")
			c.flags[name], args = append(c.flags[name], v), args[1:]
		}
		c.args = args
		s := ts.Value(key{}).(*scenario)
		err := do(s, c)
		switch {
		case negated && err == nil:
			ts.Fatalf("this was to fail")
		case negated:
			c.print(err.Error())
		case err != nil:
			s.failed = fmt.Sprintf("%s: %v", said, err)
			ts.Fatalf("%v", err)
		}
	}
}

// poll looks again and again until look says yes. When waitTimeout ends it fails with what look said last.
func (s *scenario) poll(look func(context.Context) (bool, string)) error {
	var last string
	err := wait.PollUntilContextTimeout(s.ctx, 20*time.Millisecond, waitTimeout, true,
		func(ctx context.Context) (bool, error) {
			var ok bool
			if ok, last = look(ctx); ok {
				return true, nil
			}
			if s.land.Manager != nil {
				select {
				case <-s.land.Manager.Done():
					if !s.land.Manager.Asked() {
						return false, fmt.Errorf("the manager has ended: %w", s.land.Manager.Err())
					}
				default:
				}
			}
			return false, nil
		})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("not seen in %s; seen last: %s", waitTimeout, last)
	}
	if err != nil {
		return fmt.Errorf("%w; seen last: %s", err, last)
	}
	return nil
}

// metric waits until a metric has a value.
func (s *scenario) metric(c *call) error {
	if err := c.want(2, 10, "metric VALUE NAME [LABEL=VALUE…]"); err != nil {
		return err
	}
	want, err := strconv.ParseFloat(c.args[0], 64)
	if err != nil {
		return err
	}
	var labels []string
	for _, arg := range c.args[2:] {
		label, value, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q is not LABEL=VALUE", arg)
		}
		labels = append(labels, fmt.Sprintf("%s=%q", label, value))
	}
	return s.poll(func(ctx context.Context) (bool, string) {
		got, err := s.land.Metric(ctx, c.args[1], labels...)
		if err != nil {
			return false, err.Error()
		}
		return got == want, fmt.Sprintf("%s %v is %g", c.args[1], labels, got)
	})
}

// mark begins to count.
func (s *scenario) mark(c *call) error {
	if err := c.want(0, 0, "mark"); err != nil {
		return err
	}
	s.marks, s.passes = map[string]cluster.Mark{}, map[string]float64{}
	if s.managerRuns() {
		if err := s.settle(); err != nil {
			return err
		}
		for _, controller := range controllers {
			n, err := s.passesOf(s.ctx, controller)
			if err != nil {
				return err
			}
			s.passes[controller] = n
		}
	}
	for name, cluster := range s.land.Clusters {
		s.marks[name] = cluster.Mark()
	}
	s.pulls, s.orders = len(s.land.RegistryRequests(0)), len(s.land.ChartRequests(0))
	return nil
}

// controllers are the manager's, by name.
var controllers = []string{"kyma", "manifest", "watcher"}

func (s *scenario) managerRuns() bool {
	select {
	case <-s.land.Manager.Done():
		return false
	default:
		return true
	}
}

// passesOf returns how often a controller has worked since the manager started.
func (s *scenario) passesOf(ctx context.Context, controller string) (float64, error) {
	return s.land.Metric(ctx, "controller_runtime_reconcile_total", fmt.Sprintf("controller=%q", controller))
}

// calm is longer than the manager gathers changes before it begins to work on them.
const calm = 500 * time.Millisecond

// settle waits until the manager's queues are empty, nobody works, and nothing was done for a while.
func (s *scenario) settle() error {
	before, since := -1.0, time.Now()
	return s.poll(func(ctx context.Context) (bool, string) {
		busy, err := s.land.Metric(ctx, "workqueue_depth")
		if err != nil {
			return false, err.Error()
		}
		working, err := s.land.Metric(ctx, "controller_runtime_active_workers")
		if err != nil {
			return false, err.Error()
		}
		passes, err := s.land.Metric(ctx, "controller_runtime_reconcile_total")
		if err != nil {
			return false, err.Error()
		}
		if busy != 0 || working != 0 || passes == 0 || passes != before {
			before, since = passes, time.Now()
		}
		return time.Since(since) >= calm, fmt.Sprintf("%v waiting, %v working, %v passes so far", busy, working, passes)
	})
}

// awaitPasses waits until a controller has worked some times since the mark.
func (s *scenario) awaitPasses(c *call) error {
	if err := c.want(2, 2, "passes CONTROLLER N"); err != nil {
		return err
	}
	n, err := strconv.Atoi(c.args[1])
	if err != nil || !slices.Contains(controllers, c.args[0]) {
		return fmt.Errorf("usage: passes kyma|manifest N")
	}
	err = s.poll(func(ctx context.Context) (bool, string) {
		done, err := s.passesOf(ctx, c.args[0])
		if err != nil {
			return false, err.Error()
		}
		done -= s.passes[c.args[0]]
		return done >= float64(n), fmt.Sprintf("%v passes of %s", done, c.args[0])
	})
	if err != nil {
		return err
	}
	return s.settle()
}
