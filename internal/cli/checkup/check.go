package checkup

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/liveness"
)

const (
	// minKubernetes is the lowest version of Kubernetes, as in Chart.yaml.
	minKubernetes = "1.30.0"
	// maxSkew is the maximum difference between the clocks of two machines. If the clocks differ more, certificates,
	// tokens and Leases may not work.
	maxSkew = time.Minute
	// deploymentName and listenerService are the names of objects of the chart.
	deploymentName  = connection.ManagerDeployment
	listenerService = "lifecycle-manager-listener"
)

// dialTimeout is the deadline of each connection that is tried. Tests change dialTimeout.
var dialTimeout = 3 * time.Second

func checkCommand(a *console.App) *cobra.Command {
	return a.Command("check", "check whether a control plane has what the manager needs, before and after its installation", `
Each line is ok, a warning or a failure, with what to do: version and clock of the cluster, your permissions, CRDs, namespace, the manager and
what its flags refer to. Connections to the registry and to the listener are tried from here, so a failure of these is only a warning. Nothing
is written. If a line fails, the exit code is 3.`, `
klm check
klm check -n kcp-system -o json | jq '.[] | select(.result != "ok")'`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error {
			c, err := connection.Open(a)
			if err != nil {
				return err
			}
			c.Namespace = cmp.Or(a.Config.Namespace, v1beta2.ControlPlaneNamespace)
			r, err := check(cmd.Context(), c, a.Now)
			if err != nil {
				return err
			}
			if err := a.Print(r); err != nil {
				return err
			}
			if n := r.count(failed); n > 0 {
				return console.Fail(console.ExitNotReady, "%d of %d checks failed", n, len(r))
			}
			return nil
		})
}

// result is the result of one check.
type result string

const (
	passed  result = "ok"
	warning result = "warning"
	failed  result = "failed"
)

// line is one check.
type line struct {
	Check   string `json:"check"`
	Result  result `json:"result"`
	Message string `json:"message"`
}

// checkReport is the report of klm check.
type checkReport []line

func (r *checkReport) add(check string, is result, format string, args ...any) {
	*r = append(*r, line{check, is, fmt.Sprintf(format, args...)})
}

func (r checkReport) count(of result) (n int) {
	for _, l := range r {
		if l.Result == of {
			n++
		}
	}
	return n
}

// Names returns the lines that -o name prints.
func (r checkReport) Names() []string {
	var all []string
	for _, l := range r {
		if l.Result != passed {
			all = append(all, l.Check)
		}
	}
	return all
}

// Show writes the report as text for people.
func (r checkReport) Show(p *console.Page) {
	for _, l := range r {
		text := fmt.Sprintf("%-8s %s: %s", l.Result, l.Check, l.Message)
		if l.Result == failed {
			text = p.Red(text)
		}
		p.Line("%s", text)
	}
}

// checker is one run of klm check.
type checker struct {
	checkReport
	*connection.Cluster
	now        func() time.Time
	deployment *appsv1.Deployment // set by checkManagerDeploymentAndLeases; nil if the manager is not installed
}

// check checks a control plane. check returns an error if the cluster does not answer.
func check(ctx context.Context, c *connection.Cluster, now func() time.Time) (checkReport, error) {
	r := &checker{Cluster: c, now: now}
	if err := r.checkClusterVersionAndClock(ctx); err != nil {
		return nil, err
	}
	r.readDeployment(ctx)
	r.checkNamespace(ctx)
	r.checkCRDs(ctx)
	r.checkUserPermissions(ctx)
	r.checkManagerDeploymentAndLeases(ctx)
	if r.deployment != nil {
		r.checkManagerFlagReferences(ctx)
	}
	return r.checkReport, nil
}

// checkClusterVersionAndClock checks version and clock of the API server.
func (r *checker) checkClusterVersionAndClock(ctx context.Context) error {
	v := &version.Info{}
	at, err := r.GetJSONDated(ctx, "/version", v)
	if err != nil {
		return r.Explain(err, "reading the version of the cluster")
	}
	switch have, err := semver.NewVersion(v.GitVersion); {
	case err != nil:
		r.add("Kubernetes", warning, "version %q cannot be compared with %s, which is needed at least", v.GitVersion,
			minKubernetes)
	case have.LessThan(semver.MustParse(minKubernetes)):
		r.add("Kubernetes", failed, "%s is too old: upgrade the cluster to %s or newer", v.GitVersion, minKubernetes)
	default:
		r.add("Kubernetes", passed, "%s", v.GitVersion)
	}
	if skew := r.now().Sub(at).Abs(); skew > maxSkew {
		r.add("clock", warning, "this computer and the API server differ by %s: correct one of them; certificates and "+
			"tokens depend on it", skew.Round(time.Second))
	} else {
		r.add("clock", passed, "this computer and the API server differ by less than %s", maxSkew)
	}
	return nil
}

// readDeployment reads the Deployment of the manager.
func (r *checker) readDeployment(ctx context.Context) {
	d := &appsv1.Deployment{}
	path := "/apis/apps/v1/namespaces/" + r.Namespace + "/deployments/" + deploymentName
	err := r.GetJSON(ctx, path, d)
	switch {
	case err == nil:
		r.deployment = d
	case !apierrors.IsNotFound(err):
		r.add("manager", warning, "%v", r.Explain(err, "reading the Deployment"))
	}
}

func (r *checker) checkNamespace(ctx context.Context) {
	err := r.GetJSON(ctx, "/api/v1/namespaces/"+r.Namespace, &corev1.Namespace{})
	switch {
	case apierrors.IsNotFound(err):
		r.add("namespace", warning, "%s does not exist: klm install creates it", r.Namespace)
	case err != nil:
		r.add("namespace", warning, "%v", r.Explain(err, "reading namespace "+r.Namespace))
	default:
		r.add("namespace", passed, "%s", r.Namespace)
	}
}

func (r *checker) checkCRDs(ctx context.Context) {
	equal := 0
	all := compareCRDs(ctx, r.Cluster, false)
	for _, s := range all {
		switch s.State {
		case crdEqual:
			equal++
		case crdMissing:
			is := warning
			if r.deployment != nil {
				is = failed
			}
			r.add("CRD", is, "%s does not exist: klm install creates it", s.Name)
		case crdDiffers:
			r.add("CRD", warning, "%s differs from the one of this klm: use the klm of the manager's version, or upgrade "+
				"with klm install", s.Name)
		default:
			r.add("CRD", warning, "%s", s.Problem)
		}
	}
	if equal > 0 {
		r.add("CRDs", passed, "%d of %d are those of this klm", equal, len(all))
	}
}

// right is a permission that the user may need. A permission for a namespaced resource is checked in the namespace of
// the manager.
type right struct {
	verb, group, resource string
	cluster               bool
}

func (r right) String() string {
	if r.group == "" {
		return r.verb + " " + r.resource
	}
	return r.verb + " " + r.resource + "." + r.group
}

// toInstall contains the permissions that klm install needs.
var toInstall = []right{
	{"create", "apiextensions.k8s.io", "customresourcedefinitions", true},
	{"create", "rbac.authorization.k8s.io", "clusterroles", true},
	{"create", "rbac.authorization.k8s.io", "clusterrolebindings", true},
	{"create", "rbac.authorization.k8s.io", "roles", false},
	{"create", "rbac.authorization.k8s.io", "rolebindings", false},
	{"create", "admissionregistration.k8s.io", "validatingadmissionpolicies", true},
	{"create", "admissionregistration.k8s.io", "validatingadmissionpolicybindings", true},
	{"create", "", "namespaces", true},
	{"create", "", "serviceaccounts", false},
	{"create", "", "services", false},
	{"create", "", "configmaps", false},
	{"create", "apps", "deployments", false},
	{"create", "networking.k8s.io", "networkpolicies", false},
}

// toOperate contains the permissions that the operator of a fleet needs.
var toOperate = []right{
	{"list", v1beta2.GroupVersion.Group, "kymas", false},
	{"create", v1beta2.GroupVersion.Group, "kymas", false},
	{"patch", v1beta2.GroupVersion.Group, "kymas", false},
	{"list", v1beta2.GroupVersion.Group, "manifests", false},
	{"patch", v1beta2.GroupVersion.Group, "manifests", false},
	{"list", v1beta2.GroupVersion.Group, "moduletemplates", false},
	{"patch", v1beta2.GroupVersion.Group, "modulereleasemetas", false},
	{"create", "", "secrets", false},
	{"list", "coordination.k8s.io", "leases", false},
}

// checkUserPermissions checks the permissions of the user. Missing permissions to install are failures if there is no
// manager yet, and warnings otherwise.
func (r *checker) checkUserPermissions(ctx context.Context) {
	install, operate := failed, warning
	if r.deployment != nil {
		install = warning
	}
	r.checkRightsTo(ctx, "install or upgrade", toInstall, install)
	r.checkRightsTo(ctx, "operate a fleet", toOperate, operate)
}

func (r *checker) checkRightsTo(ctx context.Context, do string, rights []right, otherwise result) {
	var missing []string
	for _, needed := range rights {
		of := authorizationv1.ResourceAttributes{Verb: needed.verb, Group: needed.group, Resource: needed.resource}
		if !needed.cluster {
			of.Namespace = r.Namespace
		}
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &of}}
		if err := r.Create(ctx, review); err != nil {
			r.add("permissions", warning, "%v", r.Explain(err, "checking your permissions"))
			return
		}
		if !review.Status.Allowed {
			missing = append(missing, needed.String())
		}
	}
	if len(missing) > 0 {
		r.add("permissions", otherwise, "you may not %s: missing: %s; ask for a role that allows it, or use another "+
			"context", do, strings.Join(missing, ", "))
		return
	}
	r.add("permissions", passed, "you may %s", do)
}

// checkManagerDeploymentAndLeases checks the Deployment of the manager and its Leases.
func (r *checker) checkManagerDeploymentAndLeases(ctx context.Context) {
	manager := liveness.Read(ctx, r.Cluster).Report(time.Time{})
	if d := r.deployment; d == nil {
		r.add("manager", warning, "namespace %s has no Deployment %s: klm install creates it", r.Namespace,
			deploymentName)
	} else {
		desired := int32(1)
		if d.Spec.Replicas != nil {
			desired = *d.Spec.Replicas
		}
		is := passed
		if d.Status.ReadyReplicas < desired || desired == 0 {
			is = failed
		}
		text := fmt.Sprintf("%d of %s ready", d.Status.ReadyReplicas, console.Count(int(desired), "pod"))
		if is == failed {
			text += fmt.Sprintf(": kubectl -n %s get pods -l app.kubernetes.io/name=lifecycle-manager shows why",
				r.Namespace)
		}
		r.add("manager", is, "%s", text)
	}
	p := &console.Page{Now: r.now()}
	manager.Show(p)
	text := strings.Join(strings.Fields(p.String()), " ")
	switch manager.State {
	case liveness.Working:
		r.add("Lease", passed, "%s", text)
	case liveness.NotWorking:
		r.add("Lease", failed, "%s", text)
	case liveness.Unknown:
		r.add("Lease", warning, "%s", text)
	}
}

// managerFlagOrEmpty returns the value of a flag of the manager, or "".
func (r *checker) managerFlagOrEmpty(name string) string {
	value, _ := connection.ManagerFlag(r.deployment, name)
	return value
}

// checkManagerFlagReferences checks the objects and addresses that the flags of the manager name.
func (r *checker) checkManagerFlagReferences(ctx context.Context) {
	for _, of := range []struct{ flag, resource, kind string }{
		{"oci-registry-cred-secret", "secrets", "Secret"},
		{"skr-image-pull-secret", "secrets", "Secret"},
		{"maintenance-policy-configmap", "configmaps", "ConfigMap"},
	} {
		if name := r.managerFlagOrEmpty(of.flag); name != "" {
			r.checkNamed(ctx, of.flag, of.resource, of.kind, name)
		}
	}
	if host := r.managerFlagOrEmpty("oci-registry-host"); host != "" {
		r.checkRegistry(ctx, host)
	} else if name := r.managerFlagOrEmpty("oci-registry-cred-secret"); name != "" {
		r.checkRegistryNamedInSecret(ctx, name)
	}
	if address := r.managerFlagOrEmpty("listener-address"); address != "" {
		r.checkListenerServiceAndTCP(ctx, address)
	}
}

// checkNamed checks that an object exists whose name is the value of a flag. checkNamed reads only the metadata of the
// object.
func (r *checker) checkNamed(ctx context.Context, flag, resource, kind, name string) {
	err := r.GetJSON(ctx, "/api/v1/namespaces/"+r.Namespace+"/"+resource+"/"+name, &metav1.PartialObjectMetadata{})
	switch {
	case apierrors.IsNotFound(err):
		r.add(kind, failed, "%s of --%s does not exist in namespace %s: create it", name, flag, r.Namespace)
	case err != nil:
		r.add(kind, warning, "%v", r.Explain(err, "reading "+kind+" "+name+" of --"+flag))
	default:
		r.add(kind, passed, "%s of --%s exists", name, flag)
	}
}

// checkRegistryNamedInSecret reads the name of the registry from the Secret that contains the login for the registry,
// and checks the registry. checkRegistryNamedInSecret does not log in to the registry.
func (r *checker) checkRegistryNamedInSecret(ctx context.Context, secret string) {
	s := &corev1.Secret{}
	if err := r.GetJSON(ctx, "/api/v1/namespaces/"+r.Namespace+"/secrets/"+secret, s); err != nil {
		return // checkNamed has reported that
	}
	var logins struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	err := json.Unmarshal(s.Data[corev1.DockerConfigJsonKey], &logins)
	switch hosts := slices.Sorted(maps.Keys(logins.Auths)); {
	case err != nil:
		r.add("registry", failed, "key %s of Secret %s is not JSON: create the Secret again with kubectl create secret "+
			"docker-registry", corev1.DockerConfigJsonKey, secret)
	case len(hosts) != 1:
		r.add("registry", failed, "Secret %s has logins for %s, but must have exactly one: correct it, or set "+
			"registry.host", secret, cmp.Or(strings.Join(hosts, ", "), "no registry"))
	default:
		r.checkRegistry(ctx, hosts[0])
	}
}

// checkRegistry sends a request to the registry from this computer. The manager may reach the registry over a network
// path that differs from that of this computer.
func (r *checker) checkRegistry(ctx context.Context, host string) {
	location := host
	if !strings.Contains(host, "://") {
		location = "https://" + host
	}
	base, rest, _ := strings.Cut(location, "://")
	server, _, _ := strings.Cut(rest, "/")
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"://"+server+"/v2/", http.NoBody)
	if err != nil {
		r.add("registry", failed, "%s is not the address of a registry: correct the value registry.host, or the Secret "+
			"with the login", host)
		return
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		r.add("registry", warning, "%s cannot be reached from here; that is no problem if the manager can reach it",
			server)
		return
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK || response.StatusCode == http.StatusUnauthorized {
		r.add("registry", passed, "%s answers", server)
		return
	}
	r.add("registry", warning, "%s answers /v2/ with %s: check that it is a registry", server, response.Status)
}

// checkListenerServiceAndTCP checks the Service of the listener, and connects to the address that agents use.
func (r *checker) checkListenerServiceAndTCP(ctx context.Context, address string) {
	s := &corev1.Service{}
	err := r.GetJSON(ctx, "/api/v1/namespaces/"+r.Namespace+"/services/"+listenerService, s)
	switch {
	case apierrors.IsNotFound(err):
		r.add("listener", warning, "Service %s does not exist: the address %s of --listener-address needs a way to port "+
			"8445 of the manager", listenerService, address)
	case err != nil:
		r.add("listener", warning, "%v", r.Explain(err, "reading Service "+listenerService))
	case s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0:
		r.add("listener", failed, "Service %s has no address of a load balancer yet: kubectl -n %s describe service %s "+
			"shows why", listenerService, r.Namespace, listenerService)
	default:
		r.add("listener", passed, "Service %s exists", listenerService)
	}
	connection, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		r.add("listener", warning, "%s of --listener-address cannot be reached from here; agents in runtimes have to "+
			"reach it", address)
		return
	}
	_ = connection.Close() // nothing was sent
	r.add("listener", passed, "%s accepts connections", address)
}
