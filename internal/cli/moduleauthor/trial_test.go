package moduleauthor

import (
	"errors"
	"net/http"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/author"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/trial"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// TestImageFlags checks into which flags one flag --image is expanded: one flag for each repository from which the
// tested versions of the module use the image.
func TestImageFlags(t *testing.T) {
	trial := &trial.Trial{
		Module: &author.Module{Images: []string{"127.0.0.1:5000/team/operator:2.0.0",
			"example.com/other-operator:1"}},
		Previous: &author.Module{Images: []string{"example.com/operator@sha256:00"}},
	}
	cases := map[string]struct {
		reason, image string
		want          []string
	}{
		"Short": {"without host and path", "operator=bin/o", []string{"--image=127.0.0.1:5000/team/operator=bin/o",
			"--image=example.com/operator=bin/o", "--image=operator=bin/o"}},
		"Whole": {"only that repository", "example.com/operator=bin/o", []string{"--image=example.com/operator=bin/o"}},
		"None":  {"others are for the cluster to judge", "nothing=bin/o", []string{"--image=nothing=bin/o"}},
	}
	for name, c := range cases {
		if diff := cmp.Diff(c.want, expandImageFlag(c.image, trial)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.reason, diff)
		}
	}
}

// TestUnsuitableCluster checks that klm module test changes nothing in a cluster that has objects of the tested
// versions, or that may be a control plane or a runtime.
func TestUnsuitableCluster(t *testing.T) {
	t.Chdir(t.TempDir())
	const common = "name: example.com/module/widget\nteam: a/b\nrepository: https://example.com\n" +
		"documentation: https://example.com\nicons: [{name: a, link: https://example.com/a.svg}]\n"
	for file, text := range map[string]string{
		"1.yaml":   "version: 1.0.0\nmanifest: old.yaml\n" + common,
		"2.yaml":   "version: 2.0.0\nmanifest: new.yaml\n" + common,
		"old.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: former}\n",
		"new.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: monitoring}\n" +
			"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	group := "/apis/" + v1beta2.GroupVersion.Group
	namespace := func(name string) client.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid"}}
	}
	cases := map[string]struct {
		fixture.Case
		object client.Object
		path   string // of the failing request
		fail   error
	}{
		"Object": {fixture.Case{Code: console.ExitFailed, Want: []string{"Namespace monitoring", "would delete"}},
			namespace("monitoring"), "", nil},
		"Previous": {fixture.Case{Code: console.ExitFailed, Want: []string{"Namespace former", "would delete"}},
			namespace("former"), "", nil},
		"Unknown": {fixture.Case{Reason: "nobody knows whether the object exists", Code: console.ExitFailed,
			Want: []string{"preparing the cluster"}}, namespace("other"), "/api/v1/namespaces/monitoring",
			apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "monitoring", errors.New("no"))},
		"Forbidden": {fixture.Case{Code: console.ExitForbidden, Want: []string{"neither a control plane nor a runtime"}},
			namespace("other"), group, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))},
		"Failed": {fixture.Case{Code: console.ExitFailed, Want: []string{"neither a control plane nor a runtime"}},
			namespace("other"), group, apierrors.NewInternalError(errors.New("down"))},
	}
	fixture.Case{Args: "build 1.yaml --archive old.ctf --commit 0123456789012345678901234567890123456789",
		Want: []string{"widget:1.0.0 is in old.ctf"}}.Check(t, Commands, "")
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := fixture.NewServer(t, c.object)
			s.Serves = nil
			s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if c.fail == nil || r.URL.Path != c.path {
					return false
				}
				fixture.Fail(w, c.fail)
				return true
			}
			c.Args = "test 2.yaml --timeout 1s --previous old.ctf//example.com/module/widget:1.0.0"
			c.Check(t, Commands, s.Kubeconfig)
			if len(s.Writes()) > 0 {
				t.Errorf("writes %q", s.Writes())
			}
		})
	}
	s := fixture.NewServer(t)
	s.Serves = nil
	s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == group { // the CRDs of an earlier version
			_, _ = w.Write([]byte(`{"kind":"APIGroup","apiVersion":"v1","versions":[{"version":"v1beta1"}]}`))
		}
		return r.URL.Path == group
	}
	fixture.Case{Reason: "older CRDs", Args: "test 2.yaml", Code: console.ExitCluster,
		Want: []string{"is a control plane or a runtime"}}.Check(t, Commands, s.Kubeconfig)
}
