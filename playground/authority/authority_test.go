package authority

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/authority"
	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
)

// deadline is the timeout of every wait. A wait takes at most a few seconds.
const deadline = 20 * time.Minute

// All tests share this cluster; each test has its own namespace.
var (
	api  *cluster.Cluster
	kube client.WithWatch // client with all permissions
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		host, err := cluster.Open(ctx, cluster.Options{Audit: true})
		if err != nil {
			panic(err)
		}
		defer func() { _ = host.Close() }()
		if api, err = host.Start(ctx, "authority"); err != nil {
			panic(err)
		}
		if kube, err = client.NewWithWatch(api.Config(), client.Options{Scheme: scheme.Scheme}); err != nil {
			panic(err)
		}
		return m.Run()
	}())
}

func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := kube.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// eventually waits until the condition returns "".
func eventually(t *testing.T, condition func() (missing string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	for {
		missing := condition()
		if missing == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("after %v: %s", deadline, missing)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// authorityClient returns a client with the rights that an authority needs in its namespace, and no others.
func authorityClient(t *testing.T, namespace string) client.WithWatch {
	t.Helper()
	create(t,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "manager"}},
		&rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "authority"},
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
				{
					APIGroups:     []string{""},
					Resources:     []string{"secrets"},
					ResourceNames: []string{authority.SecretName},
					Verbs:         []string{"get", "list", "watch", "update"},
				},
			},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "authority"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "authority"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "manager"}},
		},
	)
	kubeconfig, err := api.TokenKubeconfig(t.Context(), namespace, "manager")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// startReplicas starts n Authorities at the same time, as n replicas of the manager would. The Authorities stop at the
// end of the test.
func startReplicas(t *testing.T, namespace string, n int, seen func() (map[string][]string,
	bool)) []*authority.Authority {
	t.Helper()
	c := authorityClient(t, namespace)
	replicas := make([]*authority.Authority, n)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, n)
	for i := range replicas {
		a, err := authority.New(authority.Options{
			Client: c, Namespace: namespace, Hosts: []string{"klm.example.com"}, Interval: 300 * time.Millisecond,
			SettlePeriod: -1, RuntimesByRoot: seen,
		})
		if err != nil {
			t.Fatal(err)
		}
		replicas[i] = a
		go func() { ended <- a.Start(ctx) }()
	}
	t.Cleanup(func() {
		stop()
		for range replicas {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	return replicas
}

// awaitSameRoots waits until all replicas have the same root certificates. The parameter roots is the number of root
// certificates that each replica must have.
func awaitSameRoots(t *testing.T, replicas []*authority.Authority, roots int) []*x509.Certificate {
	t.Helper()
	eventually(t, func() string {
		for i, a := range replicas {
			if err := errors.Join(a.Ready(nil), a.LastError()); err != nil {
				return err.Error()
			}
			if len(a.Roots()) != roots || !slices.EqualFunc(a.Roots(), replicas[0].Roots(), (*x509.Certificate).Equal) {
				return fmt.Sprintf("replica %d has %d roots, the first has %d", i,
					len(a.Roots()), len(replicas[0].Roots()))
			}
		}
		return ""
	})
	return replicas[0].Roots()
}

func issue(t *testing.T, a *authority.Authority) *authority.Certificate {
	t.Helper()
	c, err := a.Issue(t.Context(), authority.Subject{Kyma: "a", CommonName: "runtime-a", UID: "uid-a"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// verifyBoth checks that a runtime and the listener of a replica trust each other. The certificate of the runtime is
// verified with the roots of the replica. The certificate of the listener is verified with the roots that the runtime
// got together with its certificate.
func verifyBoth(a *authority.Authority, c *authority.Certificate) error {
	pair, err := tls.X509KeyPair(c.PEM, c.Key)
	if err != nil {
		return err
	}
	listener, err := a.Serving()
	if err != nil {
		return err
	}
	here, there := x509.NewCertPool(), x509.NewCertPool()
	for _, r := range a.Roots() {
		here.AddCert(r)
	}
	there.AppendCertsFromPEM(c.CA)
	for _, late := range []time.Duration{-time.Hour, 0, time.Hour} {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: here, CurrentTime: time.Now().Add(late),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if err != nil {
			return err
		}
		if _, err := listener.Leaf.Verify(x509.VerifyOptions{Roots: there, CurrentTime: time.Now().Add(late),
			DNSName: "klm.example.com"}); err != nil {
			return err
		}
	}
	return nil
}

func secretOf(t *testing.T, namespace string) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	if err := kube.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: authority.SecretName}, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// changeSecret changes the Secret as an operator would. changeSecret tries again if a replica has changed the Secret at
// the same time.
func changeSecret(t *testing.T, namespace string, change func(*corev1.Secret)) {
	t.Helper()
	eventually(t, func() string {
		s := secretOf(t, namespace)
		change(s)
		if err := kube.Update(t.Context(), s); err != nil {
			return err.Error()
		}
		return ""
	})
}

// secretWrites returns the verb and the HTTP status of each write of a Secret in a namespace.
func secretWrites(namespace string, since cluster.Mark) []string {
	var all []string
	for _, r := range api.Requests(since) {
		if r.Namespace == namespace && r.Resource == "secrets" && r.User != "playground-admin" &&
			!slices.Contains([]string{"get", "list", "watch"}, r.Verb) {
			all = append(all, fmt.Sprint(r.Verb, " ", r.Code))
		}
	}
	return all
}

// TestReplicas checks that replicas that start at the same time with minimal rights create one CA, and follow all later
// changes of its Secret.
func TestReplicas(t *testing.T) {
	const namespace, n = "replicas", 6
	replicas := startReplicas(t, namespace, n, nil)
	awaitSameRoots(t, replicas, 1)
	if made := slices.DeleteFunc(secretWrites(namespace, 0), func(w string) bool { return w != "create 201" }); len(
		made) != 1 {
		t.Errorf("the Secret was written %d times", len(made))
	}
	s := secretOf(t, namespace)
	if s.Type != corev1.SecretTypeOpaque || s.Labels[v1beta2.LabelManagedBy] != v1beta2.ManagedByLifecycleManager ||
		len(s.Data) != 2 {
		t.Errorf("type %s, labels %v, %d keys", s.Type, s.Labels, len(s.Data))
	}
	certificate := issue(t, replicas[0])
	for i, a := range replicas {
		if err := verifyBoth(a, certificate); err != nil {
			t.Errorf("replica %d: %v", i, err)
		}
	}

	t.Run("Idle", func(t *testing.T) {
		// The replicas have the CA before their watches are open. A watch may also have been refused at first, before
		// the rights were in force.
		eventually(t, func() string {
			watches := 0
			for _, r := range api.Requests(0) {
				if r.Namespace == namespace && r.Resource == "secrets" && r.Verb == "watch" {
					if !strings.Contains(r.Path, "fieldSelector=metadata.name%3D"+authority.SecretName) {
						t.Fatalf("too wide a watch: %s", r.Path)
					}
					if r.Code == http.StatusOK {
						watches++
					}
				}
			}
			if watches < n {
				return fmt.Sprintf("%d watches for %d replicas", watches, n)
			}
			if watches >= 20*n { // a replica whose connection was lost opens its watch again, but not without end
				t.Fatalf("too many watches: %d for %d replicas", watches, n)
			}
			return ""
		})
		since := api.Mark()
		looks := 0
		eventually(t, func() string { // three intervals
			looks = 0
			for _, r := range api.Requests(since) {
				if r.Namespace == namespace && r.Verb == "get" {
					looks++
				}
			}
			if looks < 3*n {
				return fmt.Sprintf("%d looks", looks)
			}
			return ""
		})
		if w := secretWrites(namespace, since); len(w) > 0 {
			t.Errorf("nothing has changed, but there is %q", w)
		}
	})

	t.Run("Broken", func(t *testing.T) {
		var good map[string][]byte
		changeSecret(t, namespace, func(s *corev1.Secret) {
			good = s.Data
			s.Data = map[string][]byte{"ca.crt": []byte(
				"oops")}
		})
		eventually(t, func() string {
			for _, a := range replicas {
				if a.LastError() == nil {
					return "a replica has not noticed"
				}
			}
			return ""
		})
		for _, a := range replicas {
			if err := verifyBoth(a, certificate); err != nil {
				t.Error(err)
			}
		}
		if string(secretOf(t, namespace).Data["ca.crt"]) != "oops" {
			t.Error("somebody wrote over the broken Secret")
		}
		changeSecret(t, namespace, func(s *corev1.Secret) { s.Data = good })
		awaitSameRoots(t, replicas, 1)
	})

	t.Run("Deleted", func(t *testing.T) {
		since := api.Mark()
		if err := kube.Delete(t.Context(), secretOf(t, namespace)); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string {
			if !slices.Contains(secretWrites(namespace, since), "create 201") {
				return "it is not written again"
			}
			return ""
		})
		awaitSameRoots(t, replicas, 1)
		if stale, why := replicas[n-1].Stale(certificate.Record(), time.Time{}); stale {
			t.Errorf("the roots are others: %s", why)
		}
	})
}

// TestRotation requests two rotations of the root certificate, one after the other, in a fleet of two runtimes. At any
// time during the rotations, the certificates of both runtimes are accepted.
func TestRotation(t *testing.T) {
	const namespace = "rotation"
	fleet := make(chan map[string]*authority.Certificate, 1) // the certificates of the runtimes
	fleet <- nil
	replicas := startReplicas(t, namespace, 3, func() (map[string][]string, bool) {
		has := <-fleet
		defer func() { fleet <- has }()
		seen := map[string][]string{}
		for name, c := range has {
			seen[c.Root] = append(seen[c.Root], name)
		}
		return seen, true
	})
	awaitSameRoots(t, replicas, 1)
	give := func(names ...string) {
		t.Helper()
		has := map[string]*authority.Certificate{}
		maps.Copy(has, <-fleet)
		for _, name := range names {
			has[name] = issue(t, replicas[len(has)%len(replicas)])
		}
		fleet <- has
	}
	all := func() {
		t.Helper()
		has := <-fleet
		defer func() { fleet <- has }()
		for name, c := range has {
			for i, a := range replicas {
				if err := verifyBoth(a, c); err != nil {
					t.Errorf("%s at replica %d: %v", name, i, err)
				}
			}
		}
	}
	rotate := func(value string) {
		changeSecret(t, namespace, func(s *corev1.Secret) {
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, v1beta2.AnnotationRotateRoot, value)
		})
	}
	give("early", "late")
	all()
	changed := replicas[2].Changed()
	rotate("once")
	awaitSameRoots(t, replicas, 2)
	<-changed
	all()
	give("early")
	all()
	rotate("twice")
	awaitSameRoots(t, replicas, 3)
	all()
	eventually(t, func() string {
		if s := replicas[0].OutdatedRuntimes(); s.Count != 2 || !slices.Equal(s.Names, []string{"early", "late"}) {
			return fmt.Sprintf("stragglers: %+v", s)
		}
		return ""
	})
	give("late")
	awaitSameRoots(t, replicas, 2) // no runtime uses the first root any more
	all()
	give("early")
	last := awaitSameRoots(t, replicas, 1)
	all()
	give("early", "late") // the bundle of roots has changed
	all()
	for _, c := range <-fleet {
		if stale, why := replicas[1].Stale(c.Record(), time.Time{}); stale {
			t.Errorf("in the end, %s", why)
		}
	}
	fleet <- nil
	if got := secretOf(t, namespace).Annotations[v1beta2.AnnotationRootRotated]; got != "twice" || len(last) != 1 {
		t.Errorf("done is %q", got)
	}
}
