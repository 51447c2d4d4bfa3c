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
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// waitTimeout is the timeout of each wait in a script. A wait normally takes a few seconds. On a busy machine, a
// runtime may not answer in time; after a few such failures, the manager sends it less than one probe a minute, and
// repeats a failed reconcile after up to five minutes. A script that shows that the manager does not wait for a time
// must set this time to more than waitTimeout.
const waitTimeout = 30 * time.Minute

// scenario is the state of one running script.
type scenario struct {
	ctx  context.Context
	dir  string
	land *landscape.Landscape // set by up
	host *cluster.Host        // set by up: runs the clusters of land

	failed string // the command that failed, and why

	signer *ecdsa.PrivateKey // set by trust

	second *landscape.Landscape // set by second: another control plane for the same runtimes

	others map[string]*landscape.Process // set by replicas: further replicas of the manager, by name

	marks    map[string]cluster.Mark // set by mark: the start of counting, by cluster
	markedAt time.Time               // set by mark
	pulls    int                     // set by mark: requests to the registry before the mark
	orders   int                     // set by mark: requests to the chart repository before the mark
	passes   map[string]float64      // set by mark: reconciles before the mark, by controller

	backups map[string][]unstructured.Unstructured // set by backup: the objects, by name

	certificates map[string]tls.Certificate // set by certificate: by name
	floods       []*flood                   // set by flood: the floods that run
}

// key is the key of the scenario among the values of a script.
type key struct{}

func (s *scenario) close() error {
	if s.land == nil {
		return nil
	}
	var second error
	if s.second != nil {
		second = s.second.Manager.Stop()
	}
	return errors.Join(second, s.closeReplicas(), s.land.CloseAndRemoveDir())
}

// commands are the commands of scripts, in addition to those of package testscript (cmp, stdout, cp, …). A line that
// begins with # starts a phase. If a command fails, the test prints the output of all commands in the same phase. A
// command with ! before it must fail, and prints the reason.
//
// OBJECT is [CLUSTER:]KIND/[NAMESPACE/]NAME. The default of CLUSTER is the control plane. The default of NAMESPACE is
// kcp-system in the control plane, and kyma-system in other clusters. object_test.go lists the values of KIND.
//
// CLAIM is PATH=VALUE, PATH!=VALUE or PATH~REGEXP. parseClaim describes paths and their short forms.
var commands = map[string]func(*testscript.TestScript, bool, []string){

	// The landscape.

	// up [-in-cluster] [-ingress] [-elect] [-manager=FLAG…] RUNTIME… starts a control plane, the runtimes, a registry,
	// a chart repository, and the manager with these additional flags. With -ingress the manager is behind the ingress
	// gateway of a mesh, which VirtualServices configure. With -elect the managers elect a leader, which scripts with
	// several managers on one control plane need. Without -elect a manager cannot lose its Lease on a busy machine. up
	// sets the variables REGISTRY and CHARTS to the addresses. LOCKED_REGISTRY and LOCKED_CHARTS are the addresses that
	// require a login. REGISTRY_HOST and LOCKED_REGISTRY_HOST have the form host:port.
	"up": command((*scenario).up),
	// register RUNTIME CHANNEL registers a runtime: it creates the access Secret, and a Kyma with the channel. register
	// waits until the Kyma exists in the runtime.
	"register": command((*scenario).register),
	// kyma NAME CHANNEL creates a Kyma without an access Secret.
	"kyma": command((*scenario).kyma),
	// access [-namespace=NAMESPACE] RUNTIME KUBECONFIG writes the access Secret of a Kyma. KUBECONFIG is one of good,
	// empty, garbage, exec, file, bad-token and bad-ca. user=NAME is a valid kubeconfig of a new user. other=RUNTIME is
	// the valid kubeconfig of another runtime. gate is a kubeconfig that leads through the runtime's gate.
	"access": command((*scenario).access),
	// withdraw CLUSTER USER removes all rights of a user that the command access has created. withdraw waits until the
	// API server refuses the user's requests.
	"withdraw": command((*scenario).withdraw),
	// runtime stop|start|slow|mend NAME stops, starts, slows down or repairs a cluster. A slow cluster delays all data
	// by 200 ms each way.
	"runtime": command((*scenario).cluster),
	// manager kill kills the manager with SIGKILL, and manager stop asks it to end. manager start [FLAG…] starts the
	// manager again. If there are flags, they replace the additional flags of the previous start. manager former starts
	// a former version of the manager, from the folder in the flag -former of the tests. Without the flag -former,
	// manager former starts the present version.
	"manager": command((*scenario).manager),
	// backup NAME saves the Kymas and Manifests with their statuses, and the catalog. restore [-no-status=RUNTIME…]
	// [-no-manifest=RUNTIME…] NAME deletes the present objects of these kinds, and creates the saved objects anew,
	// without owner references. The options -no-status and -no-manifest name runtimes whose statuses or Manifests are
	// not restored. During backup and restore, the manager must not run.
	"backup":  command((*scenario).backup),
	"restore": command((*scenario).restore),
	// crds [-without=FILE] [-former] CLUSTER… installs the CRDs in clusters, as an upgrade or a rollback does. With
	// -former, the CRDs of the flag -former of the tests are installed. The flag -without removes fields from the CRDs,
	// as in a former version. Each line of its FILE names a field as PLURAL PATH, such as "kymas
	// status.modules[].history". crds only replaces CRDs that a cluster already has.
	//
	// rewrite OBJECT… reads objects and writes them back unchanged, so that the API server drops the fields that the
	// CRD does not have.
	"crds":    command((*scenario).crds),
	"rewrite": command((*scenario).rewrite),
	// replica start starts another replica of the manager, which needs up -elect. From then on, agents report to this
	// replica, even though it does not work yet.
	"replica": command((*scenario).replica),
	// replicas controls several replicas that share the work (--shards), which need up -elect; see replicas_test.go.
	"replicas": command((*scenario).replicas),
	// second up [FLAG…] starts a second control plane in a cluster with the name second, and a manager of its own. Its
	// catalog contains the versions of the sample module, as after the command publish sample. second register NAME
	// CHANNEL [RUNTIME] registers a runtime under NAME in the second control plane. The default of RUNTIME is NAME.
	"second": command((*scenario).secondControlPlane),
	// agent RUNTIME kill kills the process of the agent in a runtime. The Deployment of the agent then starts a new
	// agent process.
	"agent": command((*scenario).agent),
	// receive SERVICE PORT creates a Service in kcp-system, with an HTTP server that records requests. The ingress
	// gateway can route to this Service. `told SERVICE [TEXT]` prints the requests that the server behind the Service
	// has received since the last call, without duplicates, sorted. With TEXT, the second command waits until one of
	// the requests contains this text.
	"receive": command((*scenario).receive),
	"told":    command((*scenario).received),
	// certificate NAME of=RUNTIME keeps the client certificate of a runtime's agent under a name. stranger=COMMON-NAME
	// makes a certificate of another authority. expired=COMMON-NAME makes an expired certificate of the manager's
	// authority. nameless makes a certificate of the manager's authority that names no runtime.
	"certificate": command((*scenario).certificate),
	// post [-as=CERTIFICATE] [-forwarded=CERTIFICATE] [-to=MANAGER] FILE posts an event to the listener. post prints
	// the status and the message of the answer. With -forwarded, the request has the header in which an ingress gateway
	// names the client's certificate, with the certificate of the flag as the value.
	"post": command((*scenario).post),
	// flood -as=CERTIFICATE FILE posts the same event from 15 connections without a pause. flooded N [STATUS=N…] ends
	// the flood after N answers, of which at least N have each named status, and prints the number of answers with each
	// status.
	"flood":   command((*scenario).flood),
	"flooded": command((*scenario).flooded),
	// gate controls the gate of a runtime: a proxy in front of the runtime's API server that injects faults into
	// requests.
	//   - gate RUNTIME FAULT REGEXP [N] applies a fault to the next N requests whose "METHOD PATH" matches REGEXP.
	//     Without N, the fault applies to all matching requests. The faults 429, 500, 502 and 503 are the status of the
	//     answer. The fault cut closes the connection before the request is forwarded. The fault lose forwards the
	//     request, but closes the connection without an answer. The fault hold delays the request until the gate is
	//     opened.
	//   - gate RUNTIME met N waits until faults have affected N requests.
	//   - gate RUNTIME open ends all faults, and forwards the held requests.
	//   - gate RUNTIME drop ends all faults, and discards the held requests.
	//   - gate RUNTIME forge REGEXP FORGERY changes the Kyma in the answers to matching requests. With the FORGERY
	//     modules=N, the spec of the Kyma requests N modules. With name=N, it requests a module whose name has N bytes.
	//     With none=N, the spec in the first N answers requests no modules. With channel=N, the name of the channel has
	//     escape sequences and N more characters. With status=N, the status has N modules. The next forgery replaces
	//     this one and begins a new count of met, and no request gets the true answer between them.
	"gate": command((*scenario).gate),
	// webhook RUNTIME allow|refuse|hang installs an admission webhook in the runtime, for ConfigMaps that have the
	// matching label and a name that begins with guarded. webhook RUNTIME none removes the webhook.
	"webhook": command((*scenario).webhook),
	// refuse [-reason=REASON] KIND EXPRESSION creates a ValidatingAdmissionPolicy in the control plane for a kind of
	// this project. The policy refuses a write of the status if the CEL expression is false. The refusal has the reason
	// REASON, which is Invalid by default. refuse returns when the API server applies the policy.
	//
	// accept KIND removes the policy of a kind. accept returns when the API server does not apply the policy any more.
	"refuse": command((*scenario).refuse),
	"accept": command((*scenario).accept),

	// The catalog.

	// publish sample pushes all versions of the sample module. The channel regular of the module points to the first
	// version, and the channel fast to the last version.
	//
	// publish [-tar] [-cr=FILE] [-resources=FILE] [-component=NAME] MODULE VERSION FILE pushes a module with the
	// manifest FILE to the registry and creates its ModuleTemplate. The flag -resources names a file with a list of
	// resources for the component descriptor. Variables of the script are replaced in this list.
	"publish": command((*scenario).publish),
	// template [-cr=FILE] MODULE VERSION only creates a ModuleTemplate. push […] MODULE VERSION FILE only pushes a
	// module.
	"template": command((*scenario).template),
	"push":     command((*scenario).push),
	// channels MODULE CHANNEL=VERSION… sets the channels of a module, and removes all its other channels. channels
	// creates the ModuleReleaseMeta if needed.
	"channels": command((*scenario).channels),
	// registry down|up makes the registry answer with 503, or work again. registry swap|restore MODULE:VERSION makes it
	// serve other bytes for the module's manifest, or the original bytes again.
	"registry": command((*scenario).playRegistry),
	// archive FILE NAME=CONTENT… writes a tar archive. For each argument, the archive has an entry with exactly this
	// NAME and with the content of the file CONTENT.
	"archive": command((*scenario).archive),
	// bomb FILE MIB writes a gzip file that unpacks to MIB MiB of YAML comments.
	"bomb": command((*scenario).bomb),
	// soon VARIABLE SECONDS sets the variable to the present time plus SECONDS.
	"soon": command((*scenario).soon),
	// expand FROM TO writes the content of FROM to TO, with the variables of the script replaced.
	"expand": command((*scenario).expand),
	// pack [-gzip] [-top=NAME] FILE FOLDER writes a tar archive of a folder. With -top, all paths in the archive begin
	// with the folder NAME.
	"pack": command((*scenario).pack),
	// sample VERSION FOLDER writes the manifest of the sample module into a folder, as manifest.yaml.
	"sample": command((*scenario).sample),
	// layer [-tag=TAG] VARIABLE REPOSITORY FILE pushes a file as a layer and sets the variable to its digest.
	"layer": command((*scenario).layer),
	// chart [-version=VERSION] [-registry=PATH] FOLDER packs a chart in this version into the chart repository. With
	// -registry the command pushes the chart to PATH/NAME in the registry.
	"chart": command((*scenario).chart),
	// charts down|up makes the chart repository answer with 503, or work again. charts swap|restore FILE makes it serve
	// other bytes for a file such as index.yaml, or the original bytes again.
	"charts": command((*scenario).playCharts),
	// trust FILE enforce|warn|off writes a trust policy with one key for all artefacts. sign COMPONENT VERSION signs
	// with that key, as cosign does.
	"trust": command((*scenario).trust),
	"sign":  command((*scenario).sign),
	// install CLUSTER istio|gateway-api creates the CRDs of gateways and routes as these projects release them, and
	// waits until they are served. uninstall deletes the CRDs with all their objects.
	"install":   command((*scenario).install),
	"uninstall": command((*scenario).uninstall),
	// guide CLUSTER PAGE creates or changes the objects in the YAML blocks of a page of docs/guide.
	"guide": command((*scenario).guide),
	// login NAME docker|basic [USER PASSWORD] creates a Secret with the label login=NAME that contains a user name and
	// a password. The default is the user name and the password that the registry accepts.
	"login": command((*scenario).login),

	// Actions of users.

	// enable RUNTIME MODULE [channel=CHANNEL] [version=VERSION] [policy=POLICY] adds the module to the Kyma in the
	// runtime. enable replaces an existing entry of the module.
	"enable": command((*scenario).enable),
	// disable RUNTIME MODULE removes the module from the Kyma in the runtime.
	"disable": command((*scenario).disable),
	// request RUNTIME PREFIX N replaces the requested modules by N modules that no catalog has: PREFIX-1, and so on.
	"request": command((*scenario).request),
	// apply [-expand] [-as=OWNER] CLUSTER FILE creates or changes the objects of a file. With -expand, it
	// replaces $NAME in the file by the value of this variable of the script. OWNER is the field manager.
	"apply": command((*scenario).apply),
	// manifest RUNTIME NAME FILE creates or changes a Manifest of a runtime. FILE has the spec of the Manifest.
	// Variables of the script are replaced in the file.
	"manifest": command((*scenario).manifest),
	// approve ROLLOUT STAGE adds an approval of the current plan of a ModuleRollout in the name of the administrator.
	"approve": command((*scenario).approve),
	// patch [-status] OBJECT JSON sends a merge patch.
	"patch": command((*scenario).patch),
	// delete [-foreground] OBJECT… sends DELETE requests and does not wait. With -foreground, dependents are deleted
	// first.
	"delete": command((*scenario).delete),

	// Observations.

	// until OBJECT CLAIM… waits until the object exists and all claims are true at the same time. Claims about a status
	// with observedGeneration are true only if the status is of the present generation of the object.
	"until": command((*scenario).until),
	// check OBJECT CLAIM… fails if one of the claims is false now.
	"check": command((*scenario).check),
	// gone OBJECT… waits until none of the objects exists. never OBJECT… fails if one of them exists now.
	"gone":  command((*scenario).gone),
	"never": command((*scenario).never),
	// remember VARIABLE OBJECT PATH sets the variable to the value at a path of an object.
	"remember": command((*scenario).remember),
	// event OBJECT REGEXP waits until an event of the object has a matching "TYPE REASON MESSAGE". After the message of
	// an event that has occurred more than once follows " (repeated)".
	"event": command((*scenario).event),
	// events OBJECT prints "TYPE REASON N" for each type and reason of the object's Events, sorted. N is the number of
	// times that such an Event was recorded.
	"events": command((*scenario).printEvents),
	// show OBJECT [PATH…] prints the object, or the parts at these paths, as YAML. Fields that differ from run to run
	// are left out.
	"show": command((*scenario).show),
	// ours [-unrecorded] [-catalog] CLUSTER prints every object of a cluster that has the manager's label. ours prints
	// objects of the catalog only with the flag -catalog. With the flag -unrecorded, ours prints only the objects that
	// are in no Manifest's inventory.
	"ours": command((*scenario).ours),

	// Counts.

	// mark waits until the manager has no work, and then starts a new count.
	"mark": command((*scenario).mark),
	// passes [-polls] CONTROLLER N waits until the controller (kyma, manifest, watcher) has reconciled N times since
	// the mark and has no more work. With -polls, passes does not wait until there is no more work, which a manager
	// that polls always has.
	"passes": command((*scenario).awaitPasses),
	// writes [-sort] [-rollouts] [-events] [-first] CLUSTER [AGENT] prints the requests since the mark that change an
	// object, one per line, in the order of their answers. writes prints requests of the manager, or of the user agent
	// AGENT. writes does not print requests about Leases, events and access reviews. With -events, writes also prints
	// requests about events, each with the name of the object that the event is about. With -first, writes does not
	// print requests that the manager of the second control plane sends to a runtime. With -rollouts, writes also
	// prints the writes that record the progress of rollouts.
	//
	// requests has the same arguments, and also prints reads. With -reviews, requests prints only access reviews. users
	// prints the names of the users of these requests.
	"writes":   command((*scenario).writes),
	"requests": command((*scenario).requests),
	"users":    command((*scenario).users),
	// underway [-reviews] [-events] CLUSTER N REGEXP waits until N requests of the manager since the mark match REGEXP,
	// in the format of requests.
	"underway": command((*scenario).underway),
	// pulls [-charts] prints the requests to the registry, or to the chart repository, since the mark.
	"pulls": command((*scenario).printPulls),
	// order REGEXP… checks the order of the lines in the output of the last command. All lines that match an expression
	// must come before all lines that match the next expression. Each expression must match at least one line.
	"order": command((*scenario).order),
	// once REGEXP checks the lines of the last output that match. once fails if two of them are equal, or if there is
	// none.
	"once": command((*scenario).once),
	// metric VALUE NAME [LABEL=VALUE…] waits until the sum of the series of a manager's metric with these labels is
	// VALUE. With VALUE+, metric waits until the sum is at least VALUE.
	"metric": command((*scenario).metric),
	// lines [-after=DURATION:MAX] MAX fails if the last output has more lines. most [-after=DURATION:MAX] MAX REGEXP
	// fails if more lines of the last output match, or none. With -after, the MAX in this flag applies if the time
	// DURATION has passed since the mark. On a busy machine, the manager writes more often, because it writes the
	// progress of a module that is not ready after two seconds, and again after ten seconds.
	"lines": command((*scenario).lines),
	"most":  command((*scenario).atMost),
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

// want returns an error unless the number of arguments is from least to most.
func (c *call) want(least, most int, usage string) error {
	if len(c.args) < least || len(c.args) > most {
		return fmt.Errorf("usage: %s", usage)
	}
	return nil
}

// print sets the output of the command. There may be no lines.
func (c *call) print(lines ...string) {
	out := c.script.Stdout()
	for _, line := range lines {
		fmt.Fprintln(out, line)
	}
}

// output returns the output of the last command.
func (c *call) output() []string {
	text := strings.TrimSuffix(c.script.ReadFile("stdout"), "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// command makes a command of a script from a method. Leading arguments that begin with a dash are flags.
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

// poll calls the function look() until it returns true. The interval between two calls grows from 20 ms to 150 ms,
// because the reads take processor time from the manager. After waitTimeout, poll fails with the text that look()
// returned last.
func (s *scenario) poll(look func(context.Context) (bool, string)) error {
	var last string
	ctx, cancel := context.WithTimeout(s.ctx, waitTimeout)
	defer cancel()
	often := wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.2, Steps: 20, Cap: 150 * time.Millisecond}
	err := often.DelayFunc().Until(ctx, true, true,
		func(ctx context.Context) (bool, error) {
			var ok bool
			if ok, last = look(ctx); ok {
				return true, nil
			}
			if s.land.Manager != nil {
				select {
				case <-s.land.Manager.Done():
					if !s.land.Manager.IsStopRequested() {
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
	number, isLeast := strings.CutSuffix(c.args[0], "+")
	want, err := strconv.ParseFloat(number, 64)
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
		return got == want || isLeast && got > want, fmt.Sprintf("%s %v is %g", c.args[1], labels, got)
	})
}

// mark starts a new count.
func (s *scenario) mark(c *call) error {
	if err := c.want(0, 0, "mark"); err != nil {
		return err
	}
	s.marks, s.passes = map[string]cluster.Mark{}, map[string]float64{}
	if s.managerRuns() {
		if err := s.settle(); err != nil {
			return err
		}
		all, err := s.metrics()
		if err != nil {
			return err
		}
		for _, controller := range controllers {
			s.passes[controller] = passesOf(all, controller)
		}
	}
	for name, cluster := range s.land.Clusters {
		s.marks[name] = cluster.Mark()
	}
	s.pulls, s.orders = len(s.land.RegistryRequestsAfter(0)), len(s.land.ChartRequestsAfter(0))
	s.markedAt = time.Now()
	return nil
}

// controllers lists the names of the manager's controllers.
var controllers = []string{"kyma", "manifest", "watcher"}

func (s *scenario) managerRuns() bool {
	select {
	case <-s.land.Manager.Done():
		return false
	default:
		return true
	}
}

// passesOf returns the number of reconciles of a controller since the manager started.
func passesOf(all landscape.Metrics, controller string) float64 {
	return all.Sum("controller_runtime_reconcile_total", fmt.Sprintf("controller=%q", controller))
}

const (
	// calm is longer than the time between a change and the reconcile that it causes: an agent reports a change up to
	// 500 ms after it, and the manager then collects changes for 300 ms. The rest is for requests. A script in which
	// the manager polls runtimes needs a --poll-interval that leaves a much longer gap between all polls.
	calm = 2 * time.Second
	// calmReads is the number of reads that must show no new reconcile. Each read comes after an answer of every API
	// server, so that the time of all reads grows with the time that the processes need on a busy machine, and a
	// process that was stopped has time to continue. Without other work, the reads take about the time calm.
	calmReads = 13
)

// settle waits until the manager's queues are empty, and no reconcile has run for the time calm and for calmReads
// reads.
func (s *scenario) settle() error {
	before, since, unchanged := -1.0, time.Now(), 0
	return s.poll(func(ctx context.Context) (bool, string) {
		began := time.Now()
		s.awaitAnswers(ctx)
		all, err := s.land.Metrics(ctx)
		if err != nil {
			return false, err.Error()
		}
		busy, working := all.Sum("workqueue_depth"), all.Sum("controller_runtime_active_workers")
		passes := all.Sum("controller_runtime_reconcile_total")
		unchanged++
		if busy != 0 || working != 0 || passes == 0 || passes != before {
			before, since, unchanged = passes, time.Now(), 0
		}
		isCalm := time.Since(since) >= calm && unchanged >= calmReads
		if took := time.Since(began); !isCalm && took > calm/calmReads { // a busy machine
			select {
			case <-time.After(took):
			case <-ctx.Done():
			}
		}
		return isCalm, fmt.Sprintf("%v waiting, %v working, %v passes so far", busy, working, passes)
	})
}

// awaitAnswers sends a request to every API server of the scenario, and waits for the answers. The answer of a cluster
// that is stopped is an error, which has no effect.
func (s *scenario) awaitAnswers(ctx context.Context) {
	var wg sync.WaitGroup
	for _, c := range s.land.Clients {
		wg.Go(func() { _ = c.Get(ctx, client.ObjectKey{Name: metav1.NamespaceDefault}, &corev1.Namespace{}) })
	}
	wg.Wait()
}

// metrics returns the metrics of the manager, as soon as it answers.
func (s *scenario) metrics() (all landscape.Metrics, err error) {
	err = s.poll(func(ctx context.Context) (bool, string) {
		var err error
		all, err = s.land.Metrics(ctx)
		return err == nil, fmt.Sprint(err)
	})
	return all, err
}

// awaitPasses waits until a controller has reconciled a number of times since the mark.
func (s *scenario) awaitPasses(c *call) error {
	if err := c.want(2, 2, "passes [-polls] CONTROLLER N"); err != nil {
		return err
	}
	n, err := strconv.Atoi(c.args[1])
	if err != nil || !slices.Contains(controllers, c.args[0]) {
		return fmt.Errorf("usage: passes kyma|manifest N")
	}
	err = s.poll(func(ctx context.Context) (bool, string) {
		all, err := s.land.Metrics(ctx)
		if err != nil {
			return false, err.Error()
		}
		done := passesOf(all, c.args[0]) - s.passes[c.args[0]]
		return done >= float64(n), fmt.Sprintf("%v passes of %s", done, c.args[0])
	})
	if err != nil || c.has("polls") {
		return err
	}
	return s.settle()
}
