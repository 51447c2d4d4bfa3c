package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	ctrlrecorder "sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/agentdelivery"
	"github.com/kyma-fleet/lifecycle-manager/internal/egress"
	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// startDiscovery starts an API server that responds only to discovery requests. startDiscovery serves all kinds of the
// manager's scheme.
func startDiscovery(t *testing.T) *rest.Config {
	t.Helper()
	kinds, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	resources := map[schema.GroupVersion]*metav1.APIResourceList{}
	for gvk := range kinds.AllKnownTypes() {
		gv := gvk.GroupVersion()
		if resources[gv] == nil {
			resources[gv] = &metav1.APIResourceList{GroupVersion: gv.String()}
		}
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		resources[gv].APIResources = append(resources[gv].APIResources,
			metav1.APIResource{Name: plural.Resource, Kind: gvk.Kind, Namespaced: true})
	}
	groups := map[string]*metav1.APIGroup{}
	for gv := range resources {
		if groups[gv.Group] == nil {
			groups[gv.Group] = &metav1.APIGroup{Name: gv.Group}
		}
		groups[gv.Group].Versions = append(groups[gv.Group].Versions,
			metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version})
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		switch {
		case r.URL.Path == "/api":
			answer = &metav1.APIVersions{Versions: []string{"v1"}}
		case r.URL.Path == "/apis":
			list := &metav1.APIGroupList{}
			for name, group := range groups {
				if name != "" {
					list.Groups = append(list.Groups, *group)
				}
			}
			answer = list
		case r.URL.Path == "/api/v1/namespaces/kube-system":
			answer = &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
				ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "uid"}}
		case r.URL.Path == "/api/v1":
			answer = resources[corev1.SchemeGroupVersion]
		case len(parts) == 2:
			answer = groups[parts[1]]
		case len(parts) == 3:
			answer = resources[schema.GroupVersion{Group: parts[1], Version: parts[2]}]
		}
		if answer == nil || reflect.ValueOf(answer).IsNil() {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

// newConfig returns a valid configuration. If a test builds the parts of a manager with this configuration, no port is
// opened.
func newConfig(t *testing.T, edit func(*config.Manager)) *config.Manager {
	t.Helper()
	c := config.DefaultManager()
	c.OCIRegistryHost, c.MetricsBindAddress, c.HealthProbeBindAddress, c.PodName = "registry.example.com", "0", "0",
		"replica-0"
	if edit != nil {
		edit(c)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return c
}

func withAgents(c *config.Manager) { c.ListenerAddress = "listener.example.com:443" }

// TestBuild checks that each configuration makes exactly the parts that it needs, and that each part gets the earlier
// parts that it needs.
func TestBuild(t *testing.T) {
	const all = "kyma manifest purge tombstones watcher orphan"
	cases := map[string]struct {
		reason string
		edit   func(*config.Manager)
		want   string
	}{
		"Default": {"one leader, watches from here", nil, all + " leading"},
		"Alone":   {"there is nobody to elect", func(c *config.Manager) { c.LeaderElect = false }, all},
		"InCluster": {"no access Secret, so no tombstones", func(c *config.Manager) { c.Mode = config.ModeInCluster },
			"kyma manifest purge watcher orphan"},
		"NoOrphans": {"0 is never", func(c *config.Manager) { c.OrphanSweepInterval = 0 },
			"kyma manifest purge tombstones watcher leading"},
		"Conversion": {"a webhook", func(c *config.Manager) { c.EnableWebhooks = true }, all + " conversion leading"},
		"Agents":     {"listener, issuer and delivery", withAgents, all + " agents leading"},
		"Shards": {"a keeper and its cache", func(c *config.Manager) { c.Shards = config.AllShards },
			all + " leading keeper"},
		"ShardsWithAgents": {"both", func(c *config.Manager) {
			withAgents(c)
			c.Shards = config.AllShards
		}, all + " agents leading keeper"},
		"CertManager": {"another issuer", func(c *config.Manager) {
			withAgents(c)
			c.CertManagement = config.CertManager
		}, all + " agents leading"},
		"PullSecret": {"a cache of its own", func(c *config.Manager) { c.SKRImagePullSecret = "pull" },
			all + " leading"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			configured := newConfig(t, c.edit)
			p, err := buildPartsOfOneManager(t.Context(), configured, startDiscovery(t), process{registerer: registry,
				manyNames: true})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for part, exists := range map[string]bool{
				"kyma": p.controllers.kyma != nil, "manifest": p.controllers.manifest != nil,
				"purge":      p.controllers.purge != nil,
				"tombstones": p.controllers.tombstones != nil, "watcher": p.controllers.watcher != nil,
				"orphan":     p.controllers.orphan != nil,
				"conversion": p.controllers.conversion != nil, "agents": p.agents != nil, "leading": p.leading != nil &&
					p.leading.recorder.Load() != nil, "keeper": p.keeper != nil,
			} {
				if exists {
					got = append(got, part)
				}
			}
			want := strings.Fields(c.want)
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", c.reason, diff)
			}
			checkShared(t, p)
			if err := registry.Register(prometheus.NewGauge(
				prometheus.GaugeOpts{Name: "lifecycle_mgr_mandatory_modules",
					Help: "Number of mandatory modules."})); err == nil {
				t.Error("the metrics are not registered")
			}
		})
	}
}

// TestBuildFurther checks the manager of a further namespace: it shares the registry, and neither reports objects of
// other namespaces nor registers metrics.
func TestBuildFurther(t *testing.T) {
	c := newConfig(t, func(c *config.Manager) { c.WatchNamespaces = []string{"default"} })
	discovery := startDiscovery(t)
	first, err := buildPartsOfOneManager(t.Context(), c, discovery, process{registerer: prometheus.NewRegistry(),
		manyNames: true,
		served:    []string{"kcp-system", "default"}})
	if err != nil {
		t.Fatal(err)
	}
	further, err := buildPartsOfOneManager(t.Context(), c.ForNamespaceWithoutServers("default"), discovery,
		process{manyNames: true, artefacts: first.artefacts})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"kcp-system", "default"}, first.controllers.unserved.Namespaces); diff != "" {
		t.Error(diff)
	}
	if further.controllers.unserved != nil || further.artefacts != first.artefacts || further.pool == first.pool ||
		further.controllers.kyma.Namespace != "default" || further.controllers.kyma.Registry != first.artefacts {
		t.Errorf("got %+v", further)
	}
}

// checkShared checks that all controllers use the same pool, registry, queues and set of urgent runtimes.
func checkShared(t *testing.T, p parts) {
	t.Helper()
	k, m := p.controllers.kyma.Options, p.controllers.manifest.Options
	for what, same := range map[string]bool{
		"urgent of Kymas":         k.Urgent == p.urgent,
		"urgent of Manifests":     m.Urgent == p.urgent,
		"pool of Kymas":           k.Runtimes == p.pool,
		"pool of Manifests":       m.Runtimes == p.pool,
		"pool of the purge":       p.controllers.purge.Runtimes == p.pool,
		"registry":                k.Registry == m.Registry,
		"keeper of Kymas":         k.Shards == p.keeper,
		"keeper of Manifests":     m.Shards == p.keeper,
		"queue of Kymas":          k.Trigger == p.queues.trigger,
		"queue of reviews":        k.Reviews == p.queues.reviews,
		"own limiters of retries": k.RateLimiter != m.RateLimiter && m.RateLimiter != p.controllers.purge.RateLimiter,
	} {
		if !same {
			t.Errorf("not the right one: %s", what)
		}
	}
	if p.agents != nil && (k.Agents.Delivery != p.agents.delivery ||
		k.Agents.FirstHeartbeatTimeout() != p.agents.heartbeats.timeout()) ||
		p.agents == nil && k.Agents.Delivery != nil {
		t.Errorf("the Kyma controller has the agents %+v", k.Agents)
	}
}

// TestReviewsReachTheController checks that requests that the pool and the listener make before the start of the Kyma
// controller are not lost.
func TestReviewsReachTheController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newKymaQueues("kcp-system")
		defer q.reviews.ShutDown()
		q.enqueueAgentReview("a")
		q.enqueueAgentReview("a")
		time.Sleep(batchDelay)
		synctest.Wait()
		if name, _ := q.reviews.Get(); name != "a" || q.reviews.Len() != 0 {
			t.Errorf("review of %q, and %d more; want one of a", name, q.reviews.Len())
		}
		q.enqueueAfterBatchDelay("a") // before the controller has started
	})
}

// fakeManager is a fake controller-runtime manager. It has only the methods that are called while the options of
// controllers and other parts are computed.
type fakeManager struct {
	ctrl.Manager
	client client.Client
}

func (m fakeManager) GetClient() client.Client                         { return m.client }
func (m fakeManager) GetAPIReader() client.Reader                      { return m.client }
func (fakeManager) GetEventRecorder(string) ctrlrecorder.EventRecorder { return &events.FakeRecorder{} }
func (fakeManager) GetLogger() logr.Logger                             { return logr.Discard() }
func (fakeManager) Elected() <-chan struct{}                           { return nil }

// optionsOf returns the values of the options of all parts for a configuration, by part and field.
func optionsOf(t *testing.T, c *config.Manager) map[string]string {
	t.Helper()
	f := foundation{config: c, manager: fakeManager{client: fake.NewClientBuilder().Build()},
		urgent: queueing.NewUrgent(), queues: newKymaQueues(c.Namespace)}
	options, err := managerOptions(t.Context(), c, false)
	if err != nil {
		t.Fatal(err)
	}
	cfg := controlPlaneConfig(c, &rest.Config{}, f.urgent)
	beats := newHeartbeats(t.Context(), f, nil)
	values := map[string]string{}
	for part, o := range map[string]any{
		"manager": options, "config": *cfg, "pool": poolOptions(f, replica{cfg: cfg}),
		"kyma":     kymaOptions(f, nil, nil, agentdelivery.Options{HeartbeatInterval: beats.interval}, nil, nil),
		"manifest": manifestOptions(f, nil, nil, nil, &kyma.Reconciler{}),
		"purge":    purgeOptions(f, nil, &kyma.Reconciler{}), "watcher": watcherOptions(f),
		"orphan": orphanOptions(f, nil), "conversion": conversionOptions(f),
		"rollout":  rolloutOptions(f, nil, &kyma.Reconciler{}, nil),
		"listener": listenerOptions(t.Context(), f, nil, issuerStub{}, nil, beats),
		"delivery": deliveryOptions(c, issuerStub{}),
		"egress":   egressOptions(c, "registry.example.com"),
	} {
		collectValues(values, part, reflect.ValueOf(o))
	}
	limiter := newItemExponentialRateLimiter(c)
	var delays []time.Duration
	for range 20 {
		delays = append(delays, limiter.When(reconcile.Request{}))
	}
	values["retries"] = fmt.Sprint(delays)
	values["heartbeat budget"] = fmt.Sprint(beats.budget)
	values["cached kinds"] = fmt.Sprint(len(options.Cache.ByObject))
	address, err := listenerAddress(c)
	values["listener address"] = fmt.Sprint(address, err)
	return values
}

// issuerStub is an issuer whose methods are never called.
type issuerStub struct{ issuer }

// collectValues collects the values of all exported fields of basic types, and whether functions and maps are set.
func collectValues(values map[string]string, path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				collectValues(values, path+"."+field.Name, v.Field(i))
			}
		}
	case reflect.Pointer:
		if k := v.Type().Elem().Kind(); !v.IsNil() && k != reflect.Struct && k != reflect.Interface {
			collectValues(values, path, v.Elem())
		}
	case reflect.Func:
		values[path] = fmt.Sprint(!v.IsNil())
	case reflect.Map:
		values[path] = fmt.Sprint(v.Len())
		if v.Type().Key().Kind() == reflect.String {
			values[path] = fmt.Sprint(v.MapKeys())
		}
	case reflect.Interface, reflect.Chan:
	default:
		values[path] = fmt.Sprint(v)
	}
}

// TestConfigurationReachesParts checks that each field of the configuration changes an option of some part.
func TestConfigurationReachesParts(t *testing.T) {
	elsewhere := map[string]string{
		"Version": "cmd", "Kubeconfig": "cmd", "LogLevel": "cmd", "LogRuntimeLimit": "cmd",
		"OTLPEndpoint": "cmd", "TraceRatio": "cmd", "RenderTimeout": "cmd", "RenderMemoryLimit": "cmd",
		"MemoryTarget":          "TestPercentFor",
		"MaxControlPlaneWrites": "TestWritesAreLimited", "MaxControlPlaneWritesWhileUrgent": "TestWritesAreLimited",
		"OCIRegistryHost": "TestRegistryOptions", "OCIRegistryCredSecret": "TestLogin",
		"ModulesRepositorySubpath": "TestRegistryOptions",
		"RegistryCacheBytes":       "a limit of memory only", "TrustPolicy": "playground",
		"Shards": "TestBuild", "ShardLeaseDuration": "a duration of shard.New only", "PodName": "TestReplicaIdentity",
		"EnableWebhooks": "TestBuild", "CertManagement": "TestBuild", "SelfSignedCertIssuerName": "newIssuer only",
		"SelfSignedCertDuration": "newIssuer only",
	}
	base := func(c *config.Manager) {
		withAgents(c)
		c.PodIP, c.ListenerForwardedFrom, c.ListenerBindAddress = "10.0.0.1", []string{"10.0.0.0/8"}, ":8445"
	}
	special := map[string]any{
		"Mode": config.ModeInCluster, "WatchMode": config.WatchHub, "ExitAfterStep": "kyma/connect:3",
		"ListenerBindAddress": ":1", "KymaSkrListenerBindAddress": ":1", "WebhookURL": "https://x/convert",
		"EgressAllow": []string{"10.0.0.0/8"}, "EgressDeny": []string{"10.0.0.0/8"},
	}
	before := optionsOf(t, newConfig(t, base))
	for field := range reflect.TypeFor[config.Manager]().Fields() {
		t.Run(field.Name, func(t *testing.T) {
			c := newConfig(t, base)
			v := reflect.ValueOf(c).Elem().FieldByName(field.Name)
			switch value, isSpecial := special[field.Name]; {
			case isSpecial:
				v.Set(reflect.ValueOf(value))
			case v.Kind() == reflect.String:
				v.SetString("changed")
			case v.Kind() == reflect.Bool:
				v.SetBool(!v.Bool())
			case v.Kind() == reflect.Slice:
				v.Set(reflect.ValueOf([]string{"changed"}))
			case v.CanInt():
				v.SetInt(v.Int() + 7)
			case v.CanFloat():
				v.SetFloat(v.Float() + 7)
			}
			where, isElsewhere := elsewhere[field.Name]
			if diff := cmp.Diff(before, optionsOf(t, c)); (diff == "") != isElsewhere {
				t.Errorf("the options of parts differ by %q; elsewhere: %q", diff, where)
			}
		})
	}
}

// TestWritesAreLimited checks that the configured limits apply to all clients of the control plane.
func TestWritesAreLimited(t *testing.T) {
	for name, c := range map[string]struct {
		urgent bool
		want   int32
	}{"Always": {false, 5}, "WhileUrgent": {true, 3}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				urgent := queueing.NewUrgent()
				if c.urgent {
					urgent.Mark("a")
				}
				cfg := controlPlaneConfig(&config.Manager{MaxControlPlaneWrites: 5,
					MaxControlPlaneWritesWhileUrgent: 3}, &rest.Config{}, urgent)
				var now, most atomic.Int32
				over := cfg.WrapTransport(roundTripper(func(*http.Request) (*http.Response, error) {
					for n := now.Add(1); n > most.Load(); {
						most.Store(n)
					}
					time.Sleep(time.Second)
					now.Add(-1)
					return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
				}))
				for range 20 {
					go func() {
						r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
							"https://a.example.com", http.NoBody)
						if err == nil {
							err = send(over, r)
						}
						if err != nil {
							t.Error(err)
						}
					}()
				}
				time.Sleep(time.Minute)
				if got := most.Load(); got != c.want {
					t.Errorf("%d writes at the same time, want %d", got, c.want)
				}
			})
		})
	}
}

// TestRegistryOptions checks that the flags determine the options of the registry.
func TestRegistryOptions(t *testing.T) {
	r, err := newRegistry(t.Context(), newConfig(t, func(c *config.Manager) { c.ModulesRepositorySubpath = "modules" }),
		nil)
	if err != nil || r.Base() != "registry.example.com/modules" {
		t.Errorf("the registry is %q, %v", r.Base(), err)
	}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1/index.yaml", http.NoBody)
	response, err := r.Transport().RoundTrip(request)
	if err == nil {
		_ = response.Body.Close()
	}
	if !egress.IsRefused(err) || !strings.HasSuffix(err.Error(), "allow the address with --egress-allow") {
		t.Errorf("a location on loopback: got %v", err)
	}
}

// TestReplicaIdentity checks that a leader that restarts under the same name becomes the leader at once, and that each
// process without a name gets an identity of its own.
func TestReplicaIdentity(t *testing.T) {
	cases := map[string]struct {
		reason    string
		edit      func(*config.Manager)
		identity  string
		repeated  bool // the same in the next process
		userAgent string
	}{
		"Named": {
			reason:    "its Lease is its own",
			identity:  "replica-0",
			repeated:  true,
			userAgent: "lifecycle-manager",
		},
		"Unnamed": {
			reason:    "another process may run on this host",
			edit:      func(c *config.Manager) { c.PodName = "" },
			userAgent: "lifecycle-manager",
		},
		"Shards": {
			reason:    "it waits for its shards to expire anyway",
			edit:      func(c *config.Manager) { c.Shards = config.AllShards },
			identity:  shard.ShardedLeaderIdentity("replica-0_"),
			userAgent: "lifecycle-manager/replica-0",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			configured := newConfig(t, c.edit)
			identity := func() (string, string) {
				options, err := managerOptions(t.Context(), configured, true)
				if err != nil {
					t.Fatal(err)
				}
				r, err := newReplica(configured, controlPlaneConfig(configured, startDiscovery(t),
					queueing.NewUrgent()), options)
				if err != nil {
					t.Fatal(err)
				}
				if needs := r.options.Controller.NeedLeaderElection; (needs != nil && !*needs) != (r.keeper != nil) ||
					(r.fence != nil) != (r.keeper != nil) {
					t.Errorf("%s: controllers need the lead: %v, requests are fenced: %t",
						c.reason, needs, r.fence != nil)
				}
				return r.options.LeaderElectionResourceLockInterface.Identity(), r.cfg.UserAgent
			}
			first, userAgent := identity()
			second, _ := identity()
			if !strings.HasPrefix(first, c.identity) || (first == second) != c.repeated || userAgent != c.userAgent {
				t.Errorf("%s: identities %q and %q, user agent %q", c.reason, first, second, userAgent)
			}
		})
	}
}

// TestMandatoryModules checks that the metric is computed from the cache at each scrape.
func TestMandatoryModules(t *testing.T) {
	kinds, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	release := func(namespace, name string, mandatory bool) *v1beta2.ModuleReleaseMeta {
		r := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		if mandatory {
			r.Spec.Mandatory = &v1beta2.MandatoryVersion{Version: "1.0.0"}
		}
		return r
	}
	going := release("kcp-system", "going", true)
	going.Finalizers, going.DeletionTimestamp = []string{"example.com/x"}, new(metav1.Now())
	c := fake.NewClientBuilder().WithScheme(kinds).
		WithObjects(release("kcp-system", "one", true), release("kcp-system", "optional", false),
			release("other", "two", true), going).Build()
	count := mandatoryModules(t.Context(), c, "kcp-system")
	if got := count(); got != 1 {
		t.Errorf("%v mandatory modules, want 1", got)
	}
	if err := c.Create(t.Context(), release("kcp-system", "two", true)); err != nil {
		t.Fatal(err)
	}
	if got := count(); got != 2 {
		t.Errorf("%v mandatory modules after another one was created, want 2", got)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	unknown := mandatoryModules(ended, failingReader{}, "kcp-system")
	if got := unknown(); !math.IsNaN(got) {
		t.Errorf("%v mandatory modules in a cache that cannot be read, want NaN", got)
	}
}

// failingReader is a cache that is not filled yet.
type failingReader struct{ client.Reader }

func (failingReader) List(ctx context.Context, _ client.ObjectList, _ ...client.ListOption) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestBase checks that runtimes get the CRDs that this program contains, without the versions that need a conversion
// webhook.
func TestBase(t *testing.T) {
	base, err := RuntimeBaseBundle()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, o := range base.Objects {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := json.Unmarshal(o.AppendJSON(nil, "", render.Overlay{}), &crd); err != nil {
			t.Fatal(err)
		}
		if crd.Kind != "CustomResourceDefinition" {
			continue
		}
		for _, v := range crd.Spec.Versions {
			got[crd.Name] = append(got[crd.Name], v.Name)
		}
	}
	want := map[string][]string{
		"kymas.operator.kyma-project.io":              {"v1beta2"},
		"moduletemplates.operator.kyma-project.io":    {"v1beta2"},
		"modulereleasemetas.operator.kyma-project.io": {"v1beta2"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("versions of the CRDs -want +got:\n%s", diff)
	}
}
