package source

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/retry"
)

func controlPlaneSecret(name string, edit func(*corev1.Secret)) client.Object {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kcp-system",
		Labels: map[string]string{v1beta2.LabelModuleName: InjectionModule}},
		Data: map[string][]byte{"key": []byte(name)}}
	if edit != nil {
		edit(s)
	}
	return s
}

func manifestOfModule(module string) *v1beta2.Manifest {
	return &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "kcp-system",
		Labels: map[string]string{v1beta2.LabelModuleName: module}}}
}

// TestInjectionIsLimited checks which Secrets of the control plane a module can read.
func TestInjectionIsLimited(t *testing.T) {
	secrets := fake.NewClientBuilder().WithObjects(
		controlPlaneSecret("allowed", nil),
		controlPlaneSecret("unlabelled", func(s *corev1.Secret) { s.Labels = nil }),
		controlPlaneSecret("of-other", func(s *corev1.Secret) { s.Labels[v1beta2.LabelModuleName] = "other" }),
		controlPlaneSecret("elsewhere", func(s *corev1.Secret) { s.Namespace = "default" }),
		controlPlaneSecret("kubeconfig", func(s *corev1.Secret) { s.Labels[v1beta2.LabelKymaName] = "runtime-a" }),
		controlPlaneSecret("token", func(s *corev1.Secret) { s.Type = corev1.SecretTypeServiceAccountToken }),
	).Build()
	cases := map[string]struct {
		reason  string
		module  string
		allowed bool
		want    []string
	}{
		"Deployer":   {"only Secrets that are meant for it", InjectionModule, true, []string{"allowed"}},
		"NotAllowed": {"the flag allows it", InjectionModule, false, nil},
		"Other":      {"no other module", "other", true, nil},
		"ByHand":     {"a Manifest without a module is not one of the deployer", "", true, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f := NewFinder(Options{Secrets: secrets, InjectData: c.allowed})
			got, err := f.secretDataToInject(t.Context(), manifestOfModule(c.module))
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for name := range got.Data {
				names = append(names, name)
			}
			if !slices.Equal(names, c.want) || (got.Version != "") != (c.want != nil) ||
				got.Annotation != v1beta2.AnnotationInjectData {
				t.Errorf("%s: got %q, version %q", c.reason, names, got.Version)
			}
		})
	}
}

// TestInjectionIsRefreshed checks that changed data gets another version, and checks at which times the data is read
// again.
func TestInjectionIsRefreshed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret := controlPlaneSecret("a", nil).(*corev1.Secret)
		secrets := fake.NewClientBuilder().WithObjects(secret).Build()
		f := NewFinder(Options{Secrets: secrets, InjectData: true})
		read := func(retried bool) (version, value string) {
			ctx := t.Context()
			if retried {
				ctx = retry.WithTime(ctx, time.Now())
			}
			i, err := f.secretDataToInject(ctx, manifestOfModule(InjectionModule))
			if err != nil {
				t.Fatal(err)
			}
			return i.Version, string(i.Data["a"]["key"])
		}
		change := func(value string) {
			time.Sleep(time.Millisecond)
			secret.Data = map[string][]byte{"key": []byte(value)}
			if err := secrets.Update(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
		}
		first, _ := read(false)
		change("second")
		if version, _ := read(false); version != first {
			t.Error("the Secrets are read for each Manifest")
		}
		second, value := read(true)
		if second == first || value != "second" || strings.Contains(second, value) {
			t.Errorf("after a retry: version %q, value %q", second, value)
		}
		change("third")
		time.Sleep(credentialCachePeriod)
		if _, value := read(false); value != "third" {
			t.Errorf("after the period: got %q", value)
		}
	})
}
