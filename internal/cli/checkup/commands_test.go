package checkup

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/crds"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

// TestMain lengthens deadlines, because a busy machine may need long for a connection.
func TestMain(m *testing.M) {
	dialTimeout = 10 * time.Minute
	m.Run()
}

const namespace = "kcp-system"

// installedCRDs returns the CRDs of this version of klm in the form in which an API server returns them. All API
// versions in the returned CRDs are served, as if the manager had already enabled the alpha and beta versions.
func installedCRDs(t *testing.T) []client.Object {
	t.Helper()
	var all []client.Object
	for _, crd := range crds.All() {
		crd = crd.DeepCopy()
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Served = true
		}
		data, err := json.Marshal(crd)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal(data, &u.Object); err != nil {
			t.Fatal(err)
		}
		u.SetAPIVersion("apiextensions.k8s.io/v1")
		u.SetKind("CustomResourceDefinition")
		all = append(all, u)
	}
	return all
}

// changed removes the schema from the last version of one CRD.
func changed(all []client.Object, name string) []client.Object {
	i := slices.IndexFunc(all, func(o client.Object) bool { return o.GetName() == name })
	u := all[i].(*unstructured.Unstructured)
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	delete(versions[len(versions)-1].(map[string]any), "schema")
	_ = unstructured.SetNestedSlice(u.Object, versions, "spec", "versions")
	return all
}

// ofRuntime returns the CRDs as a runtime has them: only three CRDs, and only the stored version of each.
func ofRuntime(all []client.Object) []client.Object {
	all = slices.DeleteFunc(all, func(o client.Object) bool {
		resource, _, _ := strings.Cut(o.GetName(), ".")
		return !slices.Contains([]string{"kymas", "moduletemplates", "modulereleasemetas"}, resource)
	})
	for _, o := range all {
		u := o.(*unstructured.Unstructured)
		versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
		_ = unstructured.SetNestedSlice(u.Object, versions[len(versions)-1:], "spec", "versions")
	}
	return all
}

func lease(before time.Duration) client.Object {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: v1beta2.LeaderLease, Namespace: namespace,
		Labels: map[string]string{v1beta2.LabelVersion: "0.2.0"}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("pod-1"), LeaseDurationSeconds: new(int32(15)),
			RenewTime: &metav1.MicroTime{Time: fixture.BeforeNoon(before).Time}}}
}

// deployment returns the Deployment of a manager with one pod and flags.
func deployment(ready int64, flags ...any) client.Object {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"namespace": namespace, "name": deploymentName},
		"spec": map[string]any{"replicas": int64(1), "template": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"name": "manager", "args": flags}}}}},
		"status": map[string]any{"readyReplicas": ready},
	}}
}

// commands returns the commands of package checkup. The command klm version withdraw is replaced by a stub, because
// package channeladmin tests this command.
func commands(a *console.App) []*cobra.Command { return Commands(a, &cobra.Command{Use: "withdraw"}) }

func agents(versions ...string) []client.Object {
	var all []client.Object
	for n, version := range versions {
		k := fixture.Kyma(v1beta2.StateReady, v1beta2.Module{}, v1beta2.ModuleStatus{})
		k.Name, k.Status.Agent = fmt.Sprintf("runtime-%d", n), &v1beta2.AgentStatus{Version: version}
		all = append(all, k)
	}
	return all
}

func TestVersion(t *testing.T) {
	fleet := append(agents("0.2.0", "0.1.0", "0.2.0", ""), lease(time.Second))
	cases := map[string]struct {
		fixture.Case
		objects []client.Object
		serves  []string // nil: a control plane
	}{
		"ControlPlane": {fixture.Case{Reason: "all of them", Args: "version", Want: []string{
			"klm       " + config.Version, "manager   0.2.0 (pod-1)\n", "agent     0.2.0 in 2 runtimes\n",
			"agent     0.1.0 in 1 runtime\n", "CRDs      7 equal to those of this klm\n"}},
			append(installedCRDs(t), fleet...), nil},
		"Older": {fixture.Case{Reason: "other CRDs, a missing one", Args: "version", Want: []string{
			"CRDs      5 equal to those of this klm; different from those of this klm: kymas; missing: watchers\n"}},
			slices.DeleteFunc(append(changed(installedCRDs(t), "kymas.operator.kyma-project.io"), fleet...),
				func(o client.Object) bool { return strings.HasPrefix(o.GetName(), "watchers") }), nil},
		"NoManager": {fixture.Case{Reason: "the version of the one that ran last", Args: "version", Want: []string{
			"manager   0.2.0 (pod-1), as of 4m ago: no manager works now"}}, []client.Object{lease(4 * time.Minute)}, nil},
		"Runtime": {fixture.Case{Reason: "a runtime has some of the CRDs", Args: "version",
			Want: []string{"CRDs   3 equal to those of this klm"}},
			ofRuntime(installedCRDs(t)), []string{"kymas", "moduletemplates", "modulereleasemetas"}},
		"Client": {fixture.Case{Reason: "no request", Args: "version --client -o json",
			Want: []string{`"version": "` + config.Version + `"`}}, nil, nil},
		"NoCRDs": {fixture.Case{Reason: "a cluster without us", Args: "version", Code: console.ExitCluster,
			Want: []string{"klm   " + config.Version, "nothing else is known: ", "has no CRDs of"}}, nil, []string{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := fixture.NewServer(t, c.objects...)
			if c.serves != nil {
				s.Serves = c.serves
			}
			c.Check(t, commands, s.Kubeconfig)
			if len(s.Writes()) > 0 {
				t.Errorf("%s: it wrote %q", c.Reason, s.Writes())
			}
		})
	}
	none := fixture.Case{Reason: "without a cluster the version of klm is no failure", Args: "version",
		Want: []string{config.Version, "nothing else is known: "}}
	none.Check(t, commands, filepath.Join(t.TempDir(), "none"))
}

func TestCheck(t *testing.T) {
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer registry.Close()
	address := strings.TrimPrefix(registry.URL, "http://")
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pull", Namespace: namespace}}
	login := func(name, config string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(config)}}
	}
	withLogin := func(config string) []client.Object {
		return append(installedCRDs(t), space, lease(time.Second), login("login", config),
			deployment(1, "--oci-registry-cred-secret=login"))
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: listenerService, Namespace: namespace},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	broken := deployment(0, "--oci-registry-host=http://127.0.0.1:1", "--skr-image-pull-secret=gone",
		"--listener-address=127.0.0.1:1")
	cases := map[string]struct {
		fixture.Case
		objects   []client.Object
		forbidden []string
		version   string
		skew      time.Duration
	}{
		"Before": {Case: fixture.Case{Reason: "a new cluster", Args: "check", Want: []string{
			"ok       Kubernetes: v1.34.0\n", "ok       clock: ", "warning  namespace: kcp-system does not exist: klm install",
			"warning  CRD: kymas.operator.kyma-project.io does not exist: klm install", "ok       permissions: you may install",
			"warning  manager: namespace kcp-system has no Deployment"}}},
		"After": {
			Case: fixture.Case{Reason: "everything is there", Args: "check", Want: []string{
				"ok       namespace: kcp-system\n", "ok       CRDs: 7 of 7",
				"ok       manager: 1 of 1 pod ready", "ok       Lease: manager 0.2.0 works: leader pod-1",
				"ok       Secret: pull of --skr-image-pull-secret exists", "ok       registry: " + address + " answers",
				"ok       listener: " + address + " accepts connections", "warning  listener: Service " + listenerService +
					" does not exist"}},
			objects: append(installedCRDs(t), space, secret, lease(time.Second), deployment(1, "--oci-registry-host="+
				registry.URL, "--skr-image-pull-secret=pull", "--listener-address="+address)),
		},
		"Login": {
			Case: fixture.Case{Reason: "the Secret names the registry", Args: "check", Want: []string{
				"ok       Secret: login of --oci-registry-cred-secret exists", "ok       registry: " + address + " answers"}},
			objects: withLogin(`{"auths":{"` + registry.URL + `":{"username":"a","password":"secret"}}}`),
		},
		"Logins": {
			Case: fixture.Case{Reason: "the manager would not know which", Args: "check", Code: console.ExitNotReady,
				Want: []string{"failed   registry: Secret login has logins for a.example.com, b.example.com, but must have"}},
			objects: withLogin(`{"auths":{"b.example.com":{},"a.example.com":{}}}`),
		},
		"NoLogin": {
			Case: fixture.Case{Reason: "no registry", Args: "check", Code: console.ExitNotReady,
				Want: []string{"failed   registry: Secret login has logins for no registry"}},
			objects: withLogin(`{}`),
		},
		"NotJSON": {
			Case: fixture.Case{Reason: "another Secret", Args: "check", Code: console.ExitNotReady,
				Want: []string{"failed   registry: key .dockerconfigjson of Secret login is not JSON"}},
			objects: withLogin(`password`),
		},
		"Broken": {
			Case: fixture.Case{Reason: "all is broken", Args: "check", Code: console.ExitNotReady, Want: []string{
				"failed   Kubernetes: v1.29.9 is too old: upgrade the cluster to 1.30.0",
				"failed   CRD: kymas.operator.kyma-project.io does not exist", "failed   manager: 0 of 1 pod ready: kubectl",
				"failed   Lease: NO MANAGER WORKS", "failed   Secret: gone of --skr-image-pull-secret does not exist",
				"failed   listener: Service lifecycle-manager-listener has no address of a load balancer yet",
				"warning  registry: 127.0.0.1:1 cannot be reached from here", "checks failed"}},
			objects: []client.Object{space, service, lease(time.Hour), broken},
			version: "v1.29.9",
		},
		"Rights": {Case: fixture.Case{Reason: "an installation needs rights", Args: "check", Code: console.ExitNotReady,
			Want: []string{"failed   permissions: you may not install or upgrade: missing: create clusterroles." +
				"rbac.authorization.k8s.io, create deployments.apps", "warning  permissions: you may not operate a fleet: " +
				"missing: create secrets"}},
			forbidden: []string{"create deployments", "create clusterroles", "create secrets"}},
		"Reader": {Case: fixture.Case{Reason: "somebody who only looks at a running installation", Args: "check",
			Want: []string{"warning  permissions: you may not install or upgrade"}},
			objects:   append(installedCRDs(t), space, lease(time.Second), deployment(1)),
			forbidden: []string{"create deployments"}},
		"Clock": {Case: fixture.Case{Reason: "clocks differ", Args: "check", Want: []string{
			"warning  clock: this computer and the API server differ by 10m0s: correct one of them"}}, skew: 10 * time.Minute},
		"Differs": {Case: fixture.Case{Reason: "other CRDs", Args: "check -o name", Want: []string{"CRD\n"}},
			objects: append(changed(installedCRDs(t), "kymas.operator.kyma-project.io"), space, lease(time.Second),
				deployment(1))},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := fixture.NewServer(t, c.objects...)
			s.Forbidden = c.forbidden
			s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != "/version" || c.version == "" && c.skew == 0 {
					return false
				}
				w.Header().Set("Date", fixture.Noon.Add(c.skew).Format(http.TimeFormat))
				version := c.version
				if version == "" {
					version = "v1.34.0"
				}
				fmt.Fprintf(w, `{"gitVersion":%q}`, version)
				return true
			}
			c.Check(t, commands, s.Kubeconfig)
			if len(s.Writes()) > 0 {
				t.Errorf("%s: it wrote %q", c.Reason, s.Writes())
			}
		})
	}
	none := fixture.Case{Reason: "no cluster", Args: "check", Code: console.ExitCluster,
		Want: []string{"reading the kubeconfig"}}
	none.Check(t, commands, filepath.Join(t.TempDir(), "none"))
}
