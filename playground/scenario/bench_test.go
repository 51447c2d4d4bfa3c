package scenario

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// idle is the time for which BenchmarkIdle counts requests.
var idle = flag.Duration("idle", 5*time.Minute, "how long BenchmarkIdle counts requests while nothing changes")

// product is the smallest complete module: a CRD, a workload, and a custom resource. NAME and VERSION are placeholders.
const product = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: NAMEs.NAME.example.com}
spec:
  group: NAME.example.com
  scope: Namespaced
  names: {kind: Product, listKind: ProductList, plural: NAMEs, singular: NAME}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: NAME, namespace: kyma-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: kyma-system, labels: {version: VERSION}}
spec:
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec: {serviceAccountName: NAME, containers: [{name: main, image: "registry.example.com/NAME:VERSION"}]}
`

// setting is an additional object of a module.
const setting = `---
apiVersion: v1
kind: ConfigMap
metadata: {name: NAME-NUMBER, namespace: kyma-system}
data: {version: VERSION}
`

// productOf returns a version of a module with this number of objects. productOf has a custom resource if resource is
// true.
func productOf(name, version string, objects int, resource bool) landscape.Module {
	var b strings.Builder
	b.WriteString(product)
	for i := range objects - 3 {
		b.WriteString(strings.ReplaceAll(setting, "NUMBER", fmt.Sprint(i)))
	}
	m := landscape.Module{
		Name: name, Version: version, Component: "kyma-project.io/module/" + name,
		Manifest: []byte(strings.NewReplacer("NAME", name, "VERSION", version).Replace(b.String())),
	}
	if resource {
		m.DefaultCR = []byte(strings.ReplaceAll(
			"{apiVersion: NAME.example.com/v1, kind: Product, metadata: {name: NAME, namespace: kyma-system}}", "NAME",
			name))
	}
	return m
}

// offer publishes a version of a module in channel regular.
func (s *scenario) offer(b *testing.B, m landscape.Module) {
	b.Helper()
	if err := s.land.PushAndCreateModuleTemplate(s.ctx, m); err != nil {
		b.Fatal(err)
	}
	if err := s.land.SetChannels(s.ctx, m.Name, m.Component,
		map[string]string{v1beta2.DefaultChannel: m.Version}); err != nil {
		b.Fatal(err)
	}
}

// settleDown registers runtime-a, enables modules, and sets the state of their custom resources to Ready in place of
// the modules' operators. settleDown waits until the Kyma is Ready.
func (s *scenario) settleDown(b *testing.B, modules ...string) {
	b.Helper()
	if err := s.land.Register(s.ctx, "runtime-a", v1beta2.DefaultChannel); err != nil {
		b.Fatal(err)
	}
	if err := s.seeReady("0/0"); err != nil {
		b.Fatal(err)
	}
	if err := s.land.PatchDesiredKymaSpec(s.ctx, "runtime-a", func(k *v1beta2.KymaSpec) {
		k.Modules = nil
		for _, name := range modules {
			k.Modules = append(k.Modules, v1beta2.Module{Name: name})
		}
	}); err != nil {
		b.Fatal(err)
	}
	for _, name := range modules {
		o, err := s.object(fmt.Sprintf("runtime-a:Product.v1.%s.example.com/%s", name, name))
		if err != nil {
			b.Fatal(err)
		}
		ready := client.RawPatch(types.MergePatchType, []byte(`{"status":{"state":"Ready"}}`))
		if err := s.poll(func(ctx context.Context) (bool, string) {
			err := o.client.Patch(ctx, o.empty(), ready)
			return err == nil, fmt.Sprint(err)
		}); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.seeReady(fmt.Sprintf("%d/%d", len(modules), len(modules))); err != nil {
		b.Fatal(err)
	}
}

// counted holds the requests of the manager to a cluster since the mark.
type counted struct {
	reads, writes, leases []string
}

// count counts the requests of the manager by type. Leases are counted separately, because they are always renewed.
func (s *scenario) count(name string) (c counted) {
	for _, r := range s.land.Clusters[name].Requests(s.marks[name]) {
		switch {
		case !strings.HasPrefix(r.UserAgent, agent) || strings.HasSuffix(r.Resource, "reviews"):
			// TokenReviews and SubjectAccessReviews are not counted: only the test causes them, because it reads the
			// metrics.
		case r.Resource == "leases":
			c.leases = append(c.leases, line(r))
		case isWrite(r):
			c.writes = append(c.writes, line(r))
		default:
			c.reads = append(c.reads, line(r)+how(r))
		}
	}
	return c
}

// how returns the query of a watch request, which shows whether the watch begins with a list or continues an earlier
// watch.
func how(r cluster.Request) string {
	if r.Verb != "watch" {
		return ""
	}
	_, query, _ := strings.Cut(r.Path, "?")
	return " " + query
}

// BenchmarkIdle counts the requests for a fleet of one runtime while nothing changes. The runtime has a Kyma with 6
// modules of 25 objects, 2 mandatory modules of 5 objects, and a catalog of 50 ModuleTemplates and 20
// ModuleReleaseMetas. BenchmarkIdle fails if there is more than one request to the runtime, a write to the control
// plane, or a request to the registry.
//
//	go test ./scenario -run '^$' -bench Idle -benchtime 1x -timeout 20m [-idle=5m]
func BenchmarkIdle(b *testing.B) {
	s := bringUp(b, "--orphan-sweep-interval=0") // otherwise the sweep could list 25 kinds during the count
	modules := []string{"alpha", "beta", "gamma", "delta", "epsilon", "zeta"}
	for _, name := range modules {
		s.offer(b, productOf(name, "1.0.0", 25, true))
	}
	for _, name := range []string{"guard", "warden"} {
		m := productOf(name, "1.0.0", 5, false)
		if err := s.land.PushAndCreateModuleTemplate(s.ctx, m); err != nil {
			b.Fatal(err)
		}
		if err := s.land.Clients[landscape.ControlPlane].Create(s.ctx, &v1beta2.ModuleReleaseMeta{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.land.Namespace()},
			Spec: v1beta2.ModuleReleaseMetaSpec{
				ModuleName: name, OCMComponentName: m.Component,
				Mandatory: &v1beta2.MandatoryVersion{Version: m.Version},
			},
		}); err != nil {
			b.Fatal(err)
		}
	}
	for templates, releases := len(modules), len(modules); releases < 20; releases++ {
		name, versions := fmt.Sprintf("other-mod%c", 'a'+releases), (50-templates)/(20-releases)
		channels := map[string]string{}
		for v := range versions {
			m := productOf(name, fmt.Sprintf("1.%d.0", v), 3, true)
			if err := s.land.CreateTemplate(s.ctx, m); err != nil {
				b.Fatal(err)
			}
			channels[channelOf(v)] = m.Version // a runtime sees only versions that are in a channel
		}
		templates += versions
		if err := s.land.SetChannels(s.ctx, name, "kyma-project.io/module/"+name, channels); err != nil {
			b.Fatal(err)
		}
	}
	s.settleDown(b, modules...)
	if err := s.poll(s.isComplete); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := s.mark(&call{}); err != nil {
			b.Fatal(err)
		}
		<-time.After(*idle)
		runtime, control := s.count("runtime-a"), s.count(landscape.ControlPlane)
		pulls := s.land.RegistryRequestsAfter(s.pulls)
		b.ReportMetric(idle.Minutes(), "minutes")
		b.ReportMetric(float64(len(runtime.reads)), "runtime-reads")
		b.ReportMetric(float64(len(runtime.writes)), "runtime-writes")
		b.ReportMetric(float64(len(control.reads)), "control-reads")
		b.ReportMetric(float64(len(control.writes)), "control-writes")
		b.ReportMetric(float64(len(control.leases)), "control-leases")
		b.ReportMetric(float64(len(pulls)), "registry-requests")
		if len(control.reads) > 0 {
			b.Logf("reads of the control plane:\n%s", strings.Join(control.reads, "\n"))
		}
		if asked := slices.Concat(runtime.reads, runtime.writes); len(asked) > 1 {
			b.Errorf("%d requests to the runtime, at most one is right:\n%s", len(asked), strings.Join(asked, "\n"))
		}
		if lines := slices.Concat(control.writes, pulls); len(lines) > 0 {
			b.Errorf("%d writes to the control plane or requests to the registry, none is right:\n%s",
				len(lines), strings.Join(lines, "\n"))
		}
	}
}

// isComplete reports whether the runtime has its mandatory modules and the catalog copy.
func (s *scenario) isComplete(ctx context.Context) (bool, string) {
	templates, releases := &v1beta2.ModuleTemplateList{}, &v1beta2.ModuleReleaseMetaList{}
	for _, list := range []client.ObjectList{templates, releases} {
		if err := s.land.Clients["runtime-a"].List(ctx, list); err != nil {
			return false, err.Error()
		}
	}
	if len(templates.Items) != 50 || len(releases.Items) != 20 {
		return false, fmt.Sprintf("the catalog has %d templates and %d releases",
			len(templates.Items), len(releases.Items))
	}
	manifests := &v1beta2.ManifestList{}
	if err := s.land.Clients[landscape.ControlPlane].List(ctx, manifests); err != nil {
		return false, err.Error()
	}
	ready := 0
	for _, m := range manifests.Items {
		if m.Status.State == v1beta2.StateReady {
			ready++
		}
	}
	return ready == 8, fmt.Sprintf("%d Manifests are Ready", ready)
}

// BenchmarkDelete deletes a Kyma with two small modules. Each module has a CRD, a workload, a custom resource and 2
// further objects. The benchmark measures the time until the Kyma is deleted, and counts the requests until then.
// BenchmarkDelete fails if an object is deleted twice.
//
//	go test ./scenario -run '^$' -bench Delete -benchtime 5x
func BenchmarkDelete(b *testing.B) {
	s := bringUp(b)
	for _, name := range []string{"alpha", "beta"} {
		s.offer(b, productOf(name, "1.0.0", 4, true))
	}
	kcp, key := s.land.Clients[landscape.ControlPlane],
		client.ObjectKey{Namespace: s.land.Namespace(), Name: "runtime-a"}
	var reads, writes, deletes, control float64
	for b.Loop() {
		b.StopTimer()
		s.settleDown(b, "alpha", "beta")
		if err := s.mark(&call{}); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := kcp.Delete(s.ctx, &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace,
			Name: key.Name}}); err != nil {
			b.Fatal(err)
		}
		if err := s.poll(func(ctx context.Context) (bool, string) {
			k := &v1beta2.Kyma{}
			err := kcp.Get(ctx, key, k)
			return apierrors.IsNotFound(err), text(k.Status)
		}); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		runtime, plane := s.count("runtime-a"), s.count(landscape.ControlPlane)
		reads, writes, control = reads+float64(len(runtime.reads)), writes+float64(len(runtime.writes)),
			control+float64(len(plane.reads)+len(plane.writes))
		seen := map[string]bool{}
		for _, l := range runtime.writes {
			if !strings.HasPrefix(l, "delete ") {
				continue
			}
			if deletes++; seen[l] {
				b.Errorf("it was deleted twice: %s", l)
			}
			seen[l] = true
		}
		if left, err := s.oursIn(s.ctx, "runtime-a"); err != nil ||
			!slices.Equal(left, []string{"Namespace kyma-system"}) {
			b.Errorf("left in the runtime: %q, %v; only the namespace is right", left, err)
		}
		b.Logf("runtime, reads:\n%s\nruntime, writes:\n%s\ncontrol plane:\n%s", strings.Join(runtime.reads, "\n"),
			strings.Join(runtime.writes, "\n"),
			strings.Join(slices.Concat(plane.reads, plane.writes), "\n"))
		b.StartTimer()
	}
	n := float64(b.N)
	b.ReportMetric(reads/n, "runtime-reads/op")
	b.ReportMetric(writes/n, "runtime-writes/op")
	b.ReportMetric(deletes/n, "deletes/op")
	b.ReportMetric(control/n, "control-requests/op")
}

// changes is the number of channel changes in BenchmarkChannelChange.
const changes = 100

// BenchmarkChannelChange changes the channel of a module in the runtime's Kyma 100 times. For each change, the channel
// gets a version that is new to the manager. The benchmark measures two times from the change: until the workload has
// the new version (applied), and until the Kyma in the runtime shows that the version is Ready (ready). Between the
// moments applied and ready, the Deployment of the module rolls out its new pods.
//
//	go test ./scenario -run '^$' -bench ChannelChange -benchtime 1x
func BenchmarkChannelChange(b *testing.B) {
	s := bringUp(b)
	const module = "alpha"
	channels := map[string]string{}
	for i := range changes + 1 {
		m := productOf(module, fmt.Sprintf("1.%d.0", i), 5, true)
		if err := s.land.PushAndCreateModuleTemplate(s.ctx, m); err != nil {
			b.Fatal(err)
		}
		channels[channelOf(i)] = m.Version
	}
	channels[v1beta2.DefaultChannel] = channels[channelOf(0)]
	if err := s.land.SetChannels(s.ctx, module, "kyma-project.io/module/"+module, channels); err != nil {
		b.Fatal(err)
	}
	s.settleDown(b, module)
	if err := s.settle(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var applied, ready []time.Duration
		for i := 1; i <= changes; i++ {
			a, r, err := s.change(module, channelOf(i), channels[channelOf(i)])
			if err != nil {
				b.Fatalf("change %d: %v", i, err)
			}
			applied, ready = append(applied, a), append(ready, r)
		}
		for name, times := range map[string][]time.Duration{"applied": applied, "ready": ready} {
			slices.Sort(times)
			b.ReportMetric(times[changes/2-1].Seconds()*1000, name+"-p50-ms")
			b.ReportMetric(times[changes*99/100-1].Seconds()*1000, name+"-p99-ms")
			b.ReportMetric(times[changes-1].Seconds()*1000, name+"-max-ms")
		}
	}
}

// channelOf returns a unique channel name for a number.
func channelOf(i int) string { return fmt.Sprintf("ch%c%c", 'a'+i/26, 'a'+i%26) }

// change changes the channel of the only module in the runtime's Kyma, and measures the times until applied and ready.
func (s *scenario) change(module, channel, version string) (applied, ready time.Duration, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, waitTimeout)
	defer cancel()
	where := client.InNamespace(v1beta2.RuntimeNamespace)
	workloads, err := s.land.Clients["runtime-a"].Watch(ctx, &appsv1.DeploymentList{}, where)
	if err != nil {
		return 0, 0, err
	}
	defer workloads.Stop()
	kymas, err := s.land.Clients["runtime-a"].Watch(ctx, &v1beta2.KymaList{}, where)
	if err != nil {
		return 0, 0, err
	}
	defer kymas.Stop()
	begin := time.Now()
	if err := s.land.PatchDesiredKymaSpec(ctx, "runtime-a",
		func(k *v1beta2.KymaSpec) { k.Modules[0].Channel = channel }); err != nil {
		return 0, 0, err
	}
	for applied == 0 || ready == 0 {
		var e watch.Event
		select {
		case e = <-workloads.ResultChan():
		case e = <-kymas.ResultChan():
		case <-ctx.Done():
		}
		switch o := e.Object.(type) {
		case *appsv1.Deployment:
			if applied == 0 && o.Name == module && o.Labels["version"] == version {
				applied = time.Since(begin)
			}
		case *v1beta2.Kyma:
			if m := o.Status.Modules; ready == 0 && o.Status.State == v1beta2.StateReady &&
				len(m) == 1 && m[0].Version == version {
				ready = time.Since(begin)
			}
		default:
			return 0, 0, fmt.Errorf(
				"version %s of channel %s was not seen: applied after %s, ready after %s (0 is never): %v", version,
				channel, applied, ready, e)
		}
	}
	return applied, ready, nil
}
