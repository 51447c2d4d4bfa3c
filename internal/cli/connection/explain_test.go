package connection

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

var sampleCluster = &Cluster{Context: "prod", Namespace: v1beta2.ControlPlaneNamespace,
	Config: &rest.Config{Host: "https://kcp"}, Serves: map[string]bool{"manifests": true}}

func TestExplain(t *testing.T) {
	kymas := schema.GroupResource{Group: v1beta2.GroupVersion.Group, Resource: "kymas"}
	cases := map[string]struct {
		reason string
		err    error
		code   int
		says   string
	}{
		"Forbidden": {"which permission, of whom",
			apierrors.NewForbidden(kymas, "", errors.New(
				`User "kim" cannot list resource "kymas" in API group "operator.kyma-project.io" in the namespace "kcp-system"`)), console.ExitForbidden, "permission missing: kim may not list kymas.operator.kyma-project.io in namespace kcp-system"},
		"ForbiddenAll": {"in the whole cluster", apierrors.NewForbidden(
			kymas, "", errors.New(`User "kim" cannot get resource "namespaces" in API group "" at the cluster scope`)),
			console.ExitForbidden, "may not get namespaces in the whole cluster"},
		"ForbiddenElse": {"an admission plugin has its own words",
			apierrors.NewForbidden(kymas, "a", errors.New("quota")), console.ExitForbidden, "quota"},
		"Unauthorized": {"log in", apierrors.NewUnauthorized("no"), console.ExitForbidden,
			"does not accept the credentials"},
		"NotFound": {"", apierrors.NewNotFound(kymas, "a"), console.ExitNotFound, "not found"},
		"Conflict": {"", apierrors.NewConflict(kymas, "a", errors.New("changed")), console.ExitFailed, "try again"},
		"Dead": {"the address is told once",
			&url.Error{Op: "Get", URL: "https://kcp/x", Err: errors.New("connection refused")}, console.ExitCluster,
			`https://kcp (context "prod") does not answer: connection refused`},
		"Slow":        {"", context.DeadlineExceeded, console.ExitCluster, "does not answer"},
		"Interrupted": {"", context.Canceled, console.ExitFailed, "interrupted"},
		"Older": {"strict decoding finds fields that the definition does not have",
			apierrors.NewBadRequest(`strict decoding error: unknown field "spec.modules[0].version"`),
			console.ExitCluster, "older than this klm"},
		"Explained": {"what is said stays", console.Fail(console.ExitNotReady, "wait"), console.ExitNotReady, "wait"},
		"Other":     {"", errors.New("odd"), console.ExitFailed, "trying: odd"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := sampleCluster.Explain(c.err, "trying")
			if console.ExitCode(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: code %d, %v", c.reason, console.ExitCode(err), err)
			}
		})
	}
	if sampleCluster.Explain(nil, "trying") != nil || console.ExitCode(nil) != console.ExitOK {
		t.Error("no error is no error")
	}
}
