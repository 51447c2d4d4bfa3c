package agent

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-fleet/lifecycle-manager/internal/agent"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
)

// deadline is the timeout of every wait. A wait takes at most a few seconds.
const deadline = 20 * time.Minute

var (
	host *cluster.Host
	// Tests that do not change the API server share this cluster; each test has its own namespace.
	api *cluster.Cluster
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // the tests wait most of the time
		panic(err)
	}
	os.Exit(func() int {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		var err error
		if host, err = cluster.Open(ctx, cluster.Options{Audit: true}); err != nil {
			panic(err)
		}
		defer func() { _ = host.Close() }()
		if api, err = host.Start(ctx, "agent"); err != nil {
			panic(err)
		}
		return m.Run()
	}())
}

// ownSecret is the Secret with the certificate of the agent, which the agent watches besides its watch list.
const ownSecret = "skr-webhook-tls"

// world has a runtime with an agent, and the control plane to which the agent connects.
type world struct {
	*listener
	authority  *authority
	namespace  string // of the test
	user       string // of the agent
	kube       *kubernetes.Clientset
	dir        string // of the certificate files
	kubeconfig []byte // of the agent
	options    agent.Options
}

// newWorld creates everything except the agent. The user of the agent may only list and watch the resources in the
// rules, and its watch list.
func newWorld(t testing.TB, c *cluster.Cluster, name string, list protocol.Watchlist,
	rules ...rbacv1.PolicyRule) *world {
	t.Helper()
	w := &world{namespace: name, user: "system:serviceaccount:" + name + ":agent", kube: client(c),
		authority: newAuthority(t), dir: t.TempDir()}
	w.listener = newListener(t, w.authority)
	w.authority.writeFiles(t, w.dir, name)
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	subject := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: name, Name: "agent"}}
	must(w.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{}))
	must(w.kube.CoreV1().ServiceAccounts(name).Create(
		ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}, metav1.CreateOptions{}))
	must(w.kube.RbacV1().Roles(name).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Rules: []rbacv1.PolicyRule{
			{
				APIGroups:     []string{""},
				Resources:     []string{"configmaps"},
				ResourceNames: []string{"watches"},
				Verbs:         []string{"get", "list", "watch"},
			},
			{
				APIGroups:     []string{""},
				Resources:     []string{"secrets"},
				ResourceNames: []string{ownSecret},
				Verbs:         []string{"get", "list", "watch"},
			},
		}}, metav1.CreateOptions{}))
	must(w.kube.RbacV1().RoleBindings(name).Create(
		ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Subjects: subject,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "agent"}}, metav1.CreateOptions{}))
	must(w.kube.CoreV1().Secrets(name).Create(
		ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: ownSecret}}, metav1.CreateOptions{}))
	w.grantRights(t, rules...)
	must(w.kube.RbacV1().ClusterRoleBindings().Create(
		ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subject,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}},
		metav1.CreateOptions{}))
	w.watch(t, list)
	data, err := c.TokenKubeconfig(ctx, name, "agent")
	if err != nil {
		t.Fatal(err)
	}
	w.kubeconfig = data
	cfg, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	w.options = agent.Options{
		Config: cfg, Watchlist: types.NamespacedName{Namespace: name, Name: "watches"},
		Address: w.address, Version: "test",
		CA: filepath.Join(w.dir, "ca.crt"), Certificate: filepath.Join(w.dir, "tls.crt"),
		Key:            filepath.Join(w.dir, "tls.key"),
		ReloadInterval: 100 * time.Millisecond, Log: testr.NewWithInterface(t, testr.Options{Verbosity: 1}),
	}
	return w
}

// client returns a Kubernetes client without a rate limit.
func client(c *cluster.Cluster) *kubernetes.Clientset {
	cfg := c.Config()
	cfg.QPS = -1
	return kubernetes.NewForConfigOrDie(cfg)
}

// start runs the agent until the test ends.
func (w *world) start(t *testing.T) {
	t.Helper()
	a, err := agent.New(w.options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	})
}

// grantRights replaces the resources that the agent may list and watch.
func (w *world) grantRights(t testing.TB, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}, Rules: rules}
	_, err := w.kube.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = w.kube.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// readRule returns a rule that allows the agent to list and watch resources.
func readRule(group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"list", "watch"}}
}

// watch puts a watch list into the ConfigMap.
func (w *world) watch(t testing.TB, list protocol.Watchlist) {
	t.Helper()
	data, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	w.writeWatchlist(t, string(data))
}

func (w *world) writeWatchlist(t testing.TB, data string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "watches"},
		"data": map[string]string{protocol.WatchlistKey: data},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.kube.CoreV1().ConfigMaps(w.namespace).Patch(t.Context(), "watches", types.ApplyPatchType, patch,
		metav1.PatchOptions{FieldManager: "test", Force: new(true)}); err != nil {
		t.Fatal(err)
	}
}

// putConfigMap creates or changes a ConfigMap of the test.
func (w *world) putConfigMap(t testing.TB, name, value string, labels map[string]string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "labels": labels},
		"data": map[string]string{"value": value},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.kube.CoreV1().ConfigMaps(w.namespace).Patch(t.Context(), name, types.ApplyPatchType, patch,
		metav1.PatchOptions{FieldManager: "test"}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) remove(t *testing.T, name string) {
	t.Helper()
	if err := w.kube.CoreV1().ConfigMaps(w.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until check returns "".
func eventually(t testing.TB, check func() string) {
	t.Helper()
	end := time.Now().Add(deadline)
	for {
		says := check()
		if says == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %v: %s", deadline, says)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// awaitEvents waits until each of the lines was received since the mark; a line has the form "lifecycle-manager
// ConfigMap a/b", optionally followed by " deleted" or " began".
func (w *world) awaitEvents(t testing.TB, mark int, lines ...string) {
	t.Helper()
	eventually(t, func() string {
		var got []string
		for _, e := range w.since(mark, nil) {
			got = append(got, eventLine(e))
		}
		for _, wanted := range lines {
			if !slices.Contains(got, wanted) {
				return fmt.Sprintf("%q was not told; told was %q", wanted, got)
			}
		}
		return ""
	})
}

func eventLine(e received) string {
	text := e.manager + " " + e.WatchedGVK.Kind
	if e.Watched.Name != "" {
		text += " " + e.Watched.Namespace + "/" + e.Watched.Name
	}
	if e.Deleted {
		text += " deleted"
	}
	if e.WatchStarted {
		text += " began"
	}
	return text
}

// awaitWatchlist waits until the agent reports that it uses the watch list.
func (w *world) awaitWatchlist(t testing.TB, list protocol.Watchlist) {
	t.Helper()
	eventually(t, func() string {
		if b := w.lastHeartbeat(); b.Watchlist != list.Digest() {
			return fmt.Sprintf("the last heartbeat is %+v, and does not say %s", b, list.Digest())
		}
		return ""
	})
}

// requests returns the number of requests with this verb that the agent has sent since the mark, for each resource. The
// result of requests does not include the watches of the agent's own ConfigMap and Secret.
func (w *world) requests(c *cluster.Cluster, since cluster.Mark, verb string) map[string]int {
	counts := map[string]int{}
	for _, r := range c.Requests(since) {
		if r.User == w.user && r.Verb == verb && r.Name != "watches" && r.Name != ownSecret {
			counts[r.Resource]++
		}
	}
	return counts
}

func configMaps(namespace, selector string) protocol.Watch {
	return protocol.Watch{Version: "v1", Resource: "configmaps", Kind: "ConfigMap",
		Namespace: namespace, Selector: selector}
}

// TestReports checks that an agent reports changes after its start, and that it watches other objects when its watch
// list changes. TestReports also checks that the agent opens only one watch for each kind.
func TestReports(t *testing.T) {
	t.Parallel()
	const name = "tell"
	list := protocol.Watchlist{HeartbeatInterval: metav1.Duration{Duration: time.Second}, Watches: []protocol.Watch{
		configMaps(name, "team=blue"), configMaps(name, "team=red"),
		{Version: "*", Resource: "configmaps", Namespace: name, Selector: "team=red", Manager: "other"},
		{Version: "*", Group: "apps", Resource: "deployments", Field: protocol.FieldSpec},
	}}
	w := newWorld(t, api, name, list, readRule("", "configmaps", "secrets"), readRule("apps", "deployments"))
	w.putConfigMap(t, "before", "1", map[string]string{"team": "blue"})
	mark := api.Mark()
	w.start(t)
	w.awaitEvents(t, 0, "lifecycle-manager ConfigMap began", "lifecycle-manager Deployment began")
	w.awaitWatchlist(t, list)

	from := w.mark()
	w.putConfigMap(t, "before", "2", map[string]string{"team": "blue"})
	w.putConfigMap(t, "red", "1", map[string]string{"team": "red"})
	w.putConfigMap(t, "green", "1", map[string]string{"team": "green"})
	w.awaitEvents(t, from, "lifecycle-manager ConfigMap tell/before", "lifecycle-manager ConfigMap tell/red",
		"other ConfigMap tell/red")
	from = w.mark()
	w.putConfigMap(t, "red", "1", map[string]string{"team": "green"}) // it leaves
	w.remove(t, "before")
	w.awaitEvents(t, from, "lifecycle-manager ConfigMap tell/red deleted",
		"lifecycle-manager ConfigMap tell/before deleted")
	for _, e := range w.since(0, nil) {
		if e.Watched.Name == "green" || e.manager == "other" && e.Watched.Name == "before" {
			t.Errorf("told, though nobody wants it: %s", eventLine(e))
		}
		if e.Watched.Name == "red" && !e.Deleted && (e.Object == nil || e.Object.Labels["team"] == "" ||
			len(e.Object.ManagedFields) != 1) {
			t.Errorf("%s has the metadata %+v", eventLine(e), e.Object)
		}
	}
	eventually(t, func() string { // the audit log has a watch only after its response has begun
		if got := w.requests(api, mark, "watch"); got["configmaps"] != 1 || got["deployments"] != 1 || len(got) != 2 {
			return fmt.Sprintf("watches: %v", got)
		}
		return ""
	})

	list.Watches = append(list.Watches, protocol.Watch{Version: "v1", Resource: "secrets",
		Kind: "Secret", Namespace: name})
	from = w.mark()
	w.watch(t, list)
	w.awaitEvents(t, from, "lifecycle-manager Secret began")
	for _, e := range w.since(from, func(e received) bool { return e.WatchStarted && e.Resource != "secrets" }) {
		t.Errorf("a watch that was there began again: %s", eventLine(e))
	}
	eventually(t, func() string { // the audit log has a watch only after its response has begun
		if got := w.requests(api, mark, "watch"); got["configmaps"] != 1 ||
			got["deployments"] != 1 || got["secrets"] != 1 {
			return fmt.Sprintf("watches: %v", got)
		}
		return ""
	})
	w.writeWatchlist(t, `{"watches":[{"resource":"secrets"}]}`)
	eventually(t, func() string {
		if b := w.lastHeartbeat(); !strings.Contains(b.Problem, "version is missing") || b.Watchlist != list.Digest() {
			return fmt.Sprintf("a bad list: %+v", b)
		}
		return ""
	})
	from = w.mark()
	if _, err := w.kube.CoreV1().Secrets(name).Create(
		t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitEvents(t, from, "lifecycle-manager Secret tell/s")
	w.watch(t, list)
	eventually(t, func() string { // other tests change Deployments, which are events, too
		b := w.lastHeartbeat()
		var last uint64
		for _, e := range w.since(0, func(e received) bool { return e.manager == protocol.ManagerName }) {
			last = max(last, e.Sequence)
		}
		if b.Problem != "" || b.Sequence != last || b.Pending != 0 || b.EventsLost || b.Version != "test" {
			return fmt.Sprintf("the last number is %d, the heartbeat says %+v", last, b)
		}
		return ""
	})
	if n := w.connections(); n > 2 {
		t.Errorf("it opened %d connections", n)
	}
}

// TestListenerDown: changes while the listener is down are reported when it is up again. If another process listens on
// the address after that, the agent sends its recent reports again.
func TestListenerDown(t *testing.T) {
	t.Parallel()
	const name, objects = "down", 200
	list := protocol.Watchlist{HeartbeatInterval: metav1.Duration{Duration: 2 * time.Second},
		Watches: []protocol.Watch{configMaps(name, "test")}}
	w := newWorld(t, api, name, list, readRule("", "configmaps"))
	w.start(t)
	w.awaitEvents(t, 0, "lifecycle-manager ConfigMap began")
	w.putConfigMap(t, "told", "1", map[string]string{"test": ""})
	w.awaitEvents(t, 0, "lifecycle-manager ConfigMap down/told")
	w.down()
	var want []string
	for n := range objects {
		w.putConfigMap(t, fmt.Sprint("o", n), "1", map[string]string{"test": ""})
		want = append(want, fmt.Sprint("lifecycle-manager ConfigMap down/o", n))
	}
	w.remove(t, "o0")
	want[0] += " deleted"
	from := w.mark()
	w.setResponse(0, "two")
	w.up(t)
	w.awaitEvents(t, from, append(want, "lifecycle-manager ConfigMap down/told")...)
	eventually(t, func() string {
		if b := w.lastHeartbeat(); b.Pending > 0 || b.Sequence < objects+2 || b.EventsLost {
			return fmt.Sprintf("the heartbeat says %+v", b)
		}
		return ""
	})
	numbers := map[uint64]string{}
	for _, e := range w.since(0, nil) {
		if former, known := numbers[e.Sequence]; known && former != e.Watched.Name {
			t.Errorf("number %d is %s and %s", e.Sequence, former, e.Watched.Name)
		}
		numbers[e.Sequence] = e.Watched.Name
	}
	if b := w.lastHeartbeat(); uint64(len(numbers)) != b.Sequence {
		t.Errorf("%d numbers were seen of %d", len(numbers), b.Sequence)
	}

	w.setResponse(503, "two") // the listener responds with errors
	w.putConfigMap(t, "o1", "2", map[string]string{"test": ""})
	from = w.mark()
	eventually(t, func() string {
		if w.refusals() == 0 {
			return "it was not tried"
		}
		return ""
	})
	w.setResponse(0, "two")
	w.awaitEvents(t, from, "lifecycle-manager ConfigMap down/o1")
}

// TestCertificates: when the certificate files change, the agent opens a new connection, and no event is lost.
func TestCertificates(t *testing.T) {
	t.Parallel()
	const name = "certificates"
	list := protocol.Watchlist{HeartbeatInterval: metav1.Duration{Duration: time.Second},
		Watches: []protocol.Watch{configMaps(name, "test")}}
	w := newWorld(t, api, name, list, readRule("", "configmaps"))
	for _, file := range []string{"ca.crt", "tls.crt", "tls.key"} { // they come later
		if err := os.Rename(filepath.Join(w.dir, file), filepath.Join(w.dir, file+".later")); err != nil {
			t.Fatal(err)
		}
	}
	w.start(t)
	w.putConfigMap(t, "early", "1", map[string]string{"test": ""})
	w.authority.writeFiles(t, w.dir, "first")
	w.awaitEvents(t, 0, "lifecycle-manager ConfigMap began")
	w.awaitWatchlist(t, list)
	opened := w.connections()
	w.authority.writeFiles(t, w.dir, "second")
	eventually(t, func() string {
		if w.connections() == opened {
			return "there is no new connection"
		}
		return ""
	})
	w.putConfigMap(t, "late", "1", map[string]string{"test": ""})
	w.awaitEvents(t, 0, "lifecycle-manager ConfigMap certificates/late")
}

// TestRights: the agent needs no rights except list and watch for the resources in its watch list. Without these
// rights, the heartbeat reports a problem until the rights are granted again.
func TestRights(t *testing.T) {
	t.Parallel()
	const name = "rights"
	list := protocol.Watchlist{HeartbeatInterval: metav1.Duration{Duration: time.Second}, Watches: []protocol.Watch{
		configMaps(name, "test"), {Version: "v1", Resource: "secrets", Namespace: name},
	}}
	w := newWorld(t, api, name, list, readRule("", "configmaps"))
	w.options.WatchTimeout = 2 * time.Second // so that the agent detects lost rights
	mark := api.Mark()
	w.start(t)
	w.awaitEvents(t, 0, "lifecycle-manager ConfigMap began")
	problem := func(want string) {
		t.Helper()
		eventually(t, func() string {
			if got := w.lastHeartbeat().Problem; got != want {
				return fmt.Sprintf("the problem is %q, want %q", got, want)
			}
			return ""
		})
	}
	problem("not allowed to list and watch secrets")
	w.grantRights(t, readRule("", "configmaps", "secrets"))
	problem("")
	w.awaitEvents(t, 0, "lifecycle-manager Secret began")
	w.grantRights(t)
	problem("not allowed to list and watch configmaps; not allowed to list and watch secrets")
	w.putConfigMap(t, "meanwhile", "1", map[string]string{"test": ""})
	w.grantRights(t, readRule("", "configmaps", "secrets"))
	problem("")
	w.awaitEvents(t, 0, "lifecycle-manager ConfigMap rights/meanwhile")
	for _, r := range api.Requests(mark) {
		if r.User == w.user && r.Code == 403 && r.Resource != "secrets" && r.Resource != "configmaps" {
			t.Errorf("it asked for what it may not: %s %s", r.Verb, r.Path)
		}
	}
}

// TestDefinitions: a resource without a CRD is watched a few seconds after the CRD was created. A resource whose CRD
// was deleted is watched again when the CRD is created again.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	const name = "definitions"
	list := protocol.Watchlist{HeartbeatInterval: metav1.Duration{Duration: time.Second}, Watches: []protocol.Watch{
		{Group: "test.example.com", Version: "*", Resource: "gadgets", Field: protocol.FieldSpec},
		{Group: "test.example.com", Version: "*", Resource: "gadgets", Field: protocol.FieldStatus, Manager: "watcher"},
	}}
	w := newWorld(t, api, name, list, readRule("test.example.com", "gadgets"))
	loose := dynamic.NewForConfigOrDie(api.Config())
	definitions := loose.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	gadgets := loose.Resource(schema.GroupVersionResource{Group: "test.example.com", Version: "v1",
		Resource: "gadgets"}).Namespace(name)
	schemaOf := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "gadgets.test.example.com"},
		"spec": map[string]any{
			"group": "test.example.com", "scope": "Namespaced",
			"names": map[string]any{"plural": "gadgets", "kind": "Gadget"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
				"schema":       map[string]any{"openAPIV3Schema": schemaOf},
				"subresources": map[string]any{"status": map[string]any{}}}},
		},
	}}
	define := func() {
		t.Helper()
		eventually(t, func() string {
			if _, err := definitions.Create(t.Context(), definition.DeepCopy(), metav1.CreateOptions{}); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	w.start(t)
	eventually(t, func() string {
		if b := w.lastHeartbeat(); b.Problem != "gadgets.test.example.com does not exist in the runtime" {
			return fmt.Sprintf("the heartbeat says %+v", b)
		}
		return ""
	})
	define()
	w.awaitEvents(t, 0, "lifecycle-manager Gadget began")
	eventually(t, func() string { return w.lastHeartbeat().Problem })

	gadget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "test.example.com/v1", "kind": "Gadget",
		"metadata": map[string]any{"name": "g"}, "spec": map[string]any{"n": int64(1)}}}
	gadget, err := gadgets.Create(t.Context(), gadget, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.awaitEvents(t, 0, "lifecycle-manager Gadget definitions/g", "watcher Gadget definitions/g")
	from := w.mark()
	gadget.Object["status"] = map[string]any{"state": "Ready"}
	if gadget, err = gadgets.UpdateStatus(t.Context(), gadget, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitEvents(t, from, "watcher Gadget definitions/g")
	gadget.Object["spec"] = map[string]any{"n": int64(2)}
	if _, err = gadgets.Update(t.Context(), gadget, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitEvents(t, from, "lifecycle-manager Gadget definitions/g")
	events := map[string]bool{} // an event whose answer is late is sent again, with the same number
	for _, e := range w.since(from, nil) {
		events[fmt.Sprint(e.manager, " ", e.Sequence)] = true
	}
	if len(events) != 2 {
		t.Errorf("one change of the spec and one of the status made %d events", len(events))
	}

	from = w.mark()
	if err := definitions.Delete(t.Context(), definition.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitEvents(t, from, "lifecycle-manager Gadget definitions/g deleted")
	from = w.mark()
	define()
	eventually(t, func() string {
		if _, err := gadgets.Create(
			t.Context(), &unstructured.Unstructured{Object: map[string]any{"apiVersion": "test.example.com/v1",
				"kind": "Gadget", "metadata": map[string]any{"name": "h"}}}, metav1.CreateOptions{}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			return err.Error()
		}
		return ""
	})
	w.awaitEvents(t, from, "lifecycle-manager Gadget definitions/h")
}

// TestRestart: the API server is stopped, objects change, and the API server starts again without its watch history.
func TestRestart(t *testing.T) {
	t.Parallel()
	c, err := host.Start(t.Context(), "restart")
	if err != nil {
		t.Fatal(err)
	}
	const name = "restart"
	list := protocol.Watchlist{HeartbeatInterval: metav1.Duration{Duration: time.Second},
		Watches: []protocol.Watch{configMaps(name, "test")}}
	w := newWorld(t, c, name, list, readRule("", "configmaps"))
	for n := range 5 {
		w.putConfigMap(t, fmt.Sprint("o", n), "1", map[string]string{"test": ""})
	}
	w.start(t)
	w.awaitEvents(t, 0, "lifecycle-manager ConfigMap began")
	from := w.mark()
	c.Cut(cluster.Refuse)
	eventually(t, func() string {
		if b := w.lastHeartbeat(); !strings.Contains(b.Problem, "cannot") {
			return fmt.Sprintf("the heartbeat says %+v", b)
		}
		return ""
	})
	c.Mend()
	w.putConfigMap(t, "o1", "2", map[string]string{"test": ""})
	w.awaitEvents(t, from, "lifecycle-manager ConfigMap restart/o1")
	from = w.mark()
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.putConfigMap(t, "o2", "2", map[string]string{"test": ""})
	w.remove(t, "o3")
	w.awaitEvents(t, from, "lifecycle-manager ConfigMap restart/o2", "lifecycle-manager ConfigMap restart/o3 deleted")
	eventually(t, func() string { return w.lastHeartbeat().Problem })
	for _, e := range w.since(from, func(e received) bool { return e.WatchStarted || e.Watched.Name == "o4" }) {
		t.Errorf("nothing happened to it: %s", eventLine(e))
	}
	list.Watches = append(list.Watches, protocol.Watch{Version: "v1", Resource: "namespaces"})
	w.grantRights(t, readRule("", "configmaps", "namespaces"))
	w.watch(t, list)
	w.awaitWatchlist(t, list)
}
