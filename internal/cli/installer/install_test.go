package installer

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// newCluster starts a cluster in which CRDs are served immediately, and in which Deployments become ready.
func newCluster(t *testing.T) *fixture.Server {
	t.Helper()
	s := fixture.NewServer(t)
	s.Intercept = serveDiscovery
	s.Reconcile = func(o *unstructured.Unstructured) *unstructured.Unstructured {
		o = o.DeepCopy()
		status := map[string]any{}
		switch o.GetKind() {
		case "CustomResourceDefinition":
			status["conditions"] = []any{map[string]any{"type": "Established", "status": "True"},
				map[string]any{"type": "NamesAccepted", "status": "True"}}
		case "Deployment":
			replicas, found, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "replicas")
			if !found {
				replicas = int64(1)
			}
			for _, key := range []string{"replicas", "updatedReplicas", "readyReplicas", "availableReplicas"} {
				status[key] = replicas
			}
			status["conditions"] = []any{map[string]any{"type": "Available", "status": "True"}}
		default:
			return o
		}
		o.Object["status"] = status
		return o
	}
	return s
}

// discovery maps the path of each group and version to its kinds. In the map discovery, the prefix * marks a
// cluster-scoped kind.
var discovery = map[string][]string{
	"/api/v1":                               {"*Namespace", "ConfigMap", "Secret", "Service", "ServiceAccount"},
	"/apis/apps/v1":                         {"Deployment"},
	"/apis/apiextensions.k8s.io/v1":         {"*CustomResourceDefinition"},
	"/apis/networking.k8s.io/v1":            {"NetworkPolicy"},
	"/apis/policy/v1":                       {"PodDisruptionBudget"},
	"/apis/rbac.authorization.k8s.io/v1":    {"Role", "RoleBinding", "*ClusterRole", "*ClusterRoleBinding"},
	"/apis/admissionregistration.k8s.io/v1": {"*ValidatingAdmissionPolicy", "*ValidatingAdmissionPolicyBinding"},
}

// serveDiscovery responds to requests for the kinds of the cluster.
func serveDiscovery(w http.ResponseWriter, r *http.Request) bool {
	var answer any
	switch kinds, isKnown := discovery[r.URL.Path]; {
	case r.URL.Path == "/api":
		answer = metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case r.URL.Path == "/apis":
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for path := range discovery {
			if name, is := strings.CutPrefix(path, "/apis/"); is {
				v := metav1.GroupVersionForDiscovery{GroupVersion: name, Version: "v1"}
				list.Groups = append(list.Groups, metav1.APIGroup{Name: strings.TrimSuffix(name, "/v1"),
					Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
			}
		}
		answer = list
	case isKnown && r.Method == http.MethodGet:
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis/"), "/api/")}
		for _, kind := range kinds {
			kind, isCluster := strings.CutPrefix(kind, "*")
			plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: plural.Resource, Kind: kind,
				Namespaced: !isCluster, Verbs: metav1.Verbs{"get", "list", "patch"}})
		}
		answer = list
	default:
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
	return true
}

const (
	deploymentPath = "/apis/apps/v1/namespaces/kcp-system/deployments/lifecycle-manager"
	inventoryPath  = "/api/v1/namespaces/kcp-system/configmaps/lifecycle-manager-inventory"
)

// TestInstall checks that the values of the previous installation are kept, and that an existing installation is not
// changed without a confirmation.
func TestInstall(t *testing.T) {
	s := newCluster(t)
	stored := func() string {
		text, _, _ := unstructured.NestedString(s.Object(inventoryPath).Object, "data", valuesKey)
		return text
	}
	replicas := func() any {
		n, _, _ := unstructured.NestedFieldNoCopy(s.Object(deploymentPath).Object, "spec", "replicas")
		return n
	}
	for _, c := range []struct {
		fixture.Case
		replicas any
		values   []string // parts of the stored values
		writes   bool
	}{
		{Case: fixture.Case{Reason: "the first installation does not ask", Args: "install " +
			"--image=registry.example.com/m:1 --set=replicas=2,agents.address=a.example.com:443",
			Want: []string{"lifecycle manager (control-plane) in namespace kcp-system is ready"}},
			replicas: 2.0, values: []string{"replicas: 2\n", "tag: 1\n", "flavour: control-plane\n"}, writes: true},
		{Case: fixture.Case{Reason: "what stays, and what would change", Args: "install --set=replicas=3 --dry-run",
			Want: []string{"change   value replicas: 2 → 3", "keep     value image.repository: \"registry.example.com/m\"",
				"change   Deployment.apps kcp-system/lifecycle-manager"}}, replicas: 2.0, values: []string{"replicas: 2\n"}},
		{Case: fixture.Case{Reason: "the answer is no", Args: "install --set=replicas=3", Input: "n\n",
			Code: console.ExitFailed, Want: []string{"change   value replicas: 2 → 3",
				"Change the lifecycle manager in namespace kcp-system", "nothing was changed"}},
			replicas: 2.0, values: []string{"replicas: 2\n"}},
		{Case: fixture.Case{Reason: "there is no answer", Args: "install --set=replicas=3", Code: console.ExitUsage,
			Want: []string{"add --yes"}}, replicas: 2.0},
		{Case: fixture.Case{Reason: "the answer is yes", Args: "install --set=replicas=3", Input: "y\n",
			Want: []string{"is ready"}}, replicas: 3.0,
			values: []string{"replicas: 3\n", "address: a.example.com:443\n"}, writes: true},
		{Case: fixture.Case{Reason: "another flag", Args: "install --yes --set=logLevel=1",
			Want: []string{"set      value logLevel: the default → 1", "keep     value replicas: 3"}}, replicas: 3.0,
			values: []string{"replicas: 3\n", "logLevel: 1\n"}, writes: true},
		{Case: fixture.Case{Reason: "the former values are dropped",
			Args: "install --yes --reset-values --image=registry.example.com/m:2",
			Want: []string{"drop     value replicas: 3 → the default", "change   value image.tag: 1 → 2"}}, replicas: 1.0,
			values: []string{"tag: 2\n"}, writes: true},
		{Case: fixture.Case{Reason: "a second installation has nothing of the first one", Args: "install -n other",
			Code: console.ExitUsage, Want: []string{"names no registry"}}, replicas: 1.0},
		{Case: fixture.Case{Reason: "nothing is kept of what is uninstalled", Args: "uninstall --yes",
			Want: []string{"is removed"}}, writes: true},
		{Case: fixture.Case{Reason: "so the image is not known", Args: "install", Code: console.ExitUsage,
			Want: []string{"names no registry"}}},
	} {
		before := len(s.Writes())
		c.Check(t, Commands, s.Kubeconfig)
		wrote := false
		for _, w := range s.Writes()[before:] { // the dry run of a new object also causes an access review
			wrote = wrote || !strings.Contains(w, "/selfsubject")
		}
		if wrote != c.writes {
			t.Errorf("%s: writes: %v", c.Reason, s.Writes()[before:])
		}
		if c.replicas == nil {
			continue
		}
		if got := replicas(); got != c.replicas && got != int64(c.replicas.(float64)) {
			t.Errorf("%s: %v replicas, want %v", c.Reason, got, c.replicas)
		}
		for _, want := range c.values {
			if !strings.Contains(stored(), want) {
				t.Errorf("%s: stored values without %q:\n%s", c.Reason, want, stored())
			}
		}
	}
}

// TestInstallWithoutNamespace checks the message if the values do not create the namespace, and it does not exist.
func TestInstallWithoutNamespace(t *testing.T) {
	s := newCluster(t)
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/configmaps") {
			return serveDiscovery(w, r)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"},
			"kcp-system").Status())
		return true
	}
	fixture.Case{Reason: "nothing creates the namespace", Code: console.ExitNotFound,
		Args: "install --image=registry.example.com/m:1 --yes --set=namespace.create=false",
		Want: []string{"namespace kcp-system does not exist", "create it, or leave out namespace.create=false"}}.
		Check(t, Commands, s.Kubeconfig)
	if got := s.Object(deploymentPath); got != nil {
		t.Error("the manager was installed without an inventory")
	}
}

// TestInstallAtTheSameTime checks that klm does not overwrite an installation that another person has changed since klm
// has read it, for example while klm waited for a confirmation.
func TestInstallAtTheSameTime(t *testing.T) {
	const args = "install --image=registry.example.com/m:1 --yes"
	for name, isFirst := range map[string]bool{"First": true, "Change": false} {
		t.Run(name, func(t *testing.T) {
			s := newCluster(t)
			if !isFirst {
				fixture.Case{Reason: "an installation", Args: args}.Check(t, Commands, s.Kubeconfig)
			}
			var hasRead atomic.Bool
			s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				// the permissions are checked after the inventory was read, and before it is written
				if strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews") && !hasRead.Swap(true) {
					if got := fixture.Run(t, Commands, s.Kubeconfig, "", strings.Fields(args+
						" --set=replicas=3")...); got.Code != 0 {
						t.Errorf("the other installation fails: %s", got.Err)
					}
				}
				return serveDiscovery(w, r)
			}
			fixture.Case{Reason: "the user has not seen the changes", Args: args + " --set=logLevel=1",
				Code: console.ExitFailed, Want: []string{"another client has changed the installation in namespace " +
					"kcp-system in the meantime"}}.Check(t, Commands, s.Kubeconfig)
			stored, _, _ := unstructured.NestedString(s.Object(inventoryPath).Object, "data", valuesKey)
			if !strings.Contains(stored, "replicas: 3\n") || strings.Contains(stored, "logLevel") {
				t.Errorf("the values of the other person are not kept:\n%s", stored)
			}
			fixture.Case{Reason: "again", Args: args + " --set=logLevel=1", Want: []string{"keep     value replicas: 3",
				"is ready"}}.Check(t, Commands, s.Kubeconfig)
		})
	}
}

// TestOlderInstallation checks an installation by an older version of klm, which has stored no values: klm reports that
// the values are unknown, and uses only the values of the command.
func TestOlderInstallation(t *testing.T) {
	s := newCluster(t)
	first := fixture.Run(t, Commands, s.Kubeconfig, "", "install", "--image=registry.example.com/m:1", "--set=replicas=2")
	if first.Code != 0 {
		t.Fatal(first.Err)
	}
	s.Patch(t, inventoryPath, `{"data":{"values":null}}`)
	for _, c := range []fixture.Case{
		{Reason: "no image is known", Args: "install", Code: console.ExitUsage, Want: []string{"names no registry"}},
		{Reason: "klm says that nothing is kept", Args: "install --image=registry.example.com/m:1 --dry-run",
			Want: []string{"The values of the installation in namespace kcp-system are not recorded", "spec.replicas: 2 → 1"}},
	} {
		c.Check(t, Commands, s.Kubeconfig)
	}
	s.Patch(t, deploymentPath, `{"metadata":{"annotations":{"meta.helm.sh/release-name":"klm"}}}`)
	fixture.Case{Reason: "Helm has its own values", Args: "install --yes --image=registry.example.com/m:1",
		Code: console.ExitFailed, Want: []string{"was installed by Helm: helm upgrade klm"}}.Check(t, Commands, s.Kubeconfig)
	s.Forbidden = []string{"get configmaps"}
	fixture.Case{Reason: "whoever may not read the values cannot keep them", Args: "install --image=registry.example.com/m:1",
		Code: console.ExitForbidden, Want: []string{"get configmaps"}}.Check(t, Commands, s.Kubeconfig)
}

// TestFlavour checks that the value flavour determines the namespace, also if this value is in a file of values, and
// that the next installation keeps the value.
func TestFlavour(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte("flavour: in-cluster\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newCluster(t)
	for _, c := range []fixture.Case{
		{Reason: "from the file", Args: "install --image=registry.example.com/m:1 --values=" + file,
			Want: []string{"lifecycle manager (in-cluster) in namespace kyma-system is ready"}},
		{Reason: "it is kept in its namespace", Args: "install -n kyma-system --dry-run",
			Want: []string{"keep     value flavour: \"in-cluster\"", "nothing would change"}},
		{Reason: "with the flavour, nobody needs the namespace", Args: "install --flavour=in-cluster --dry-run",
			Want: []string{"nothing would change"}},
		{Reason: "nor does anybody need the flavour", Args: "install --dry-run", Want: []string{"nothing would change"}},
		{Reason: "the other namespace has no installation", Args: "install --flavour=control-plane --dry-run",
			Code: console.ExitUsage, Want: []string{"names no registry"}},
	} {
		c.Check(t, Commands, s.Kubeconfig)
	}
}

// TestMissing checks that klm names each missing object that the manager needs, with the command that creates the
// object.
func TestMissing(t *testing.T) {
	s := newCluster(t)
	fixture.Case{Reason: "the Secret and the ConfigMap", Args: "install --image=registry.example.com/m:1 " +
		"--set=maintenancePolicy.configMap=policy", Want: []string{
		"missing: Secret lifecycle-manager-registry of flag --oci-registry-cred-secret: kubectl -n kcp-system create secret",
		"missing: ConfigMap policy of flag --maintenance-policy-configmap: kubectl -n kcp-system create configmap",
	}}.Check(t, Commands, s.Kubeconfig)
}

const (
	identityBindingPath = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/lifecycle-manager-identity"
	identityRolePath    = "/apis/rbac.authorization.k8s.io/v1/clusterroles/lifecycle-manager-identity"
)

// checkOwner checks that the roles of the cluster exist, and that they are bound to the manager in a namespace.
func checkOwner(t *testing.T, s *fixture.Server, reason, namespace string) {
	t.Helper()
	binding := s.Object(identityBindingPath)
	if binding == nil || s.Object(identityRolePath) == nil {
		t.Fatalf("%s: the roles of the manager are gone", reason)
	}
	subjects, _, _ := unstructured.NestedSlice(binding.Object, "subjects")
	if got := subjects[0].(map[string]any)["namespace"]; len(subjects) != 1 || got != namespace {
		t.Errorf("%s: the roles are bound to namespace %v, want %s", reason, got, namespace)
	}
}

// TestOtherNamespace checks that klm does not touch the cluster-wide objects of a manager in another namespace: their
// names are fixed, so they are the same for every namespace.
func TestOtherNamespace(t *testing.T) {
	s := newCluster(t)
	const image = " --image=registry.example.com/m:1 "
	for _, c := range []fixture.Case{
		{Reason: "the manager", Args: "install -n a" + image, Want: []string{"in namespace a is ready"}},
		{Reason: "a misspelled namespace", Args: "uninstall -n b --yes", Code: console.ExitNotFound,
			Want: []string{"no lifecycle manager in namespace b", "the manager is in namespace a: to remove that one, give -n a"}},
		{Reason: "the default namespaces", Args: "uninstall --yes", Code: console.ExitNotFound,
			Want: []string{"the manager is in namespace a"}},
		{Reason: "a second manager", Args: "install -n b" + image, Code: console.ExitFailed,
			Want: []string{"belong to the manager in namespace a", "-n a", "klm uninstall -n a"}},
		{Reason: "nor is it shown as possible", Args: "install -n b --dry-run" + image, Code: console.ExitFailed,
			Want: []string{"belong to the manager in namespace a"}},
	} {
		c.Check(t, Commands, s.Kubeconfig)
		checkOwner(t, s, c.Reason, "a")
	}
	if s.Object("/api/v1/namespaces/b") != nil {
		t.Error("the namespace of a refused installation was created")
	}
	// An older klm has moved the bindings to a second manager.
	s.Patch(t, identityBindingPath, `{"subjects":[{"kind":"ServiceAccount","name":"lifecycle-manager","namespace":"b"}]}`)
	fixture.Case{Reason: "one of two managers", Args: "uninstall -n a --yes", Want: []string{
		"Cluster-wide objects stay, because they belong to the manager in namespace b", "is removed from namespace a"},
	}.Check(t, Commands, s.Kubeconfig)
	checkOwner(t, s, "one of two managers", "b")
	for _, path := range []string{"/apis/apps/v1/namespaces/a/deployments/lifecycle-manager",
		"/api/v1/namespaces/a/configmaps/lifecycle-manager-inventory"} {
		if s.Object(path) != nil {
			t.Errorf("%s is left", path)
		}
	}
	fixture.Case{Reason: "the namespace of the manager was deleted", Args: "uninstall -n b --yes",
		Want: []string{"is removed from namespace b"}}.Check(t, Commands, s.Kubeconfig)
	if s.Object(identityBindingPath) != nil || s.Object(identityRolePath) != nil {
		t.Error("roles without a manager are left")
	}
}

// TestFoundNamespace checks that, without a namespace and a flavour, klm changes and removes the installation that the
// cluster has, and asks for a namespace if there are two.
func TestFoundNamespace(t *testing.T) {
	s := newCluster(t)
	for _, c := range []fixture.Case{
		{Reason: "the installation", Args: "install --flavour=in-cluster --image=registry.example.com/m:1",
			Want: []string{"(in-cluster) in namespace kyma-system is ready"}},
		{Reason: "an upgrade without the flavour", Args: "install --yes --image=registry.example.com/m:2",
			Want: []string{"change   value image.tag: 1 → 2", "(in-cluster) in namespace kyma-system is ready"}},
		{Reason: "the flavour is no value that is dropped",
			Args: "install --yes --reset-values --image=registry.example.com/m:2",
			Want: []string{"(in-cluster) in namespace kyma-system is ready"}},
	} {
		c.Check(t, Commands, s.Kubeconfig)
	}
	s.Patch(t, "/api/v1/namespaces/kyma-system/configmaps/lifecycle-manager-inventory", `{"data":{"values":null}}`)
	for _, c := range []fixture.Case{
		{Reason: "the values are not stored", Args: "install --yes --image=registry.example.com/m:3",
			Want: []string{"(in-cluster) in namespace kyma-system is ready"}},
		{Reason: "it is found to be removed", Args: "uninstall --yes",
			Want: []string{"lifecycle manager (in-cluster) is removed from namespace kyma-system"}},
	} {
		c.Check(t, Commands, s.Kubeconfig)
	}
	for _, namespace := range []string{"kcp-system", "kyma-system"} {
		s.Put(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": map[string]any{"name": "lifecycle-manager", "namespace": namespace}}})
	}
	for _, verb := range []string{"install", "uninstall"} {
		fixture.Case{Reason: "there are two", Args: verb + " --yes", Code: console.ExitFailed,
			Want: []string{"both in namespace kcp-system and in namespace kyma-system", "-n"}}.Check(t, Commands, s.Kubeconfig)
	}
}

// TestDashboardIsRemoved checks that the objects of the dashboard are deleted when it is disabled, and that an object
// that klm may not delete is reported and stays in the inventory.
func TestDashboardIsRemoved(t *testing.T) {
	s := newCluster(t)
	const (
		deployment = "/apis/apps/v1/namespaces/kcp-system/deployments/lifecycle-manager-dashboard"
		service    = "/api/v1/namespaces/kcp-system/services/lifecycle-manager-dashboard"
		role       = "/apis/rbac.authorization.k8s.io/v1/clusterroles/lifecycle-manager-dashboard"
	)
	fixture.Case{Reason: "with a dashboard", Args: "install --image=registry.example.com/m:1 " +
		"--set=dashboard.enabled=true,dashboard.url=https://f.example.com,dashboard.oidc.issuer=https://i.example.com," +
		"dashboard.oidc.clientID=c", Want: []string{"is ready"}}.Check(t, Commands, s.Kubeconfig)
	for _, path := range []string{deployment, service, role} {
		if s.Object(path) == nil {
			t.Fatalf("%s is not installed", path)
		}
	}
	s.Patch(t, service, `{"metadata":{"labels":{"app.kubernetes.io/name":"other"}}}`)
	const refused = "is not that of the manager, or Helm has installed it: Service kcp-system/lifecycle-manager-dashboard"
	fixture.Case{Reason: "without it", Args: "install --yes --set=dashboard.enabled=false", Want: []string{
		"removed, because no longer needed: ", refused}}.Check(t, Commands, s.Kubeconfig)
	if s.Object(deployment) != nil || s.Object(role) != nil || s.Object(service) == nil {
		t.Error("not exactly the objects of klm were deleted")
	}
	fixture.Case{Reason: "the object is not forgotten", Args: "install --yes", Want: []string{refused}}.Check(
		t, Commands, s.Kubeconfig)
	s.Patch(t, service, `{"metadata":{"labels":{"app.kubernetes.io/name":"lifecycle-manager-dashboard"}}}`)
	fixture.Case{Reason: "nor when klm may delete it", Args: "uninstall --yes", Want: []string{"is removed"}}.Check(
		t, Commands, s.Kubeconfig)
	if s.Object(service) != nil {
		t.Error("the Service is left")
	}
}
