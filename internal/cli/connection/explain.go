package connection

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// Explain turns what an API server or the way to it has said into words for a person, with an exit code. doing says what was tried.
func (c *Cluster) Explain(err error, doing string) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*console.Problem](err); ok {
		return err
	}
	if _, ok := errors.AsType[*url.Error](err); ok || errors.Is(err, context.DeadlineExceeded) {
		return console.Fail(console.ExitCluster, "%s: %s does not answer: %s; check its address and your network", doing, c, reasonOf(err))
	}
	switch {
	case errors.Is(err, context.Canceled):
		return console.Fail(console.ExitFailed, "%s: interrupted", doing)
	case apierrors.IsUnauthorized(err):
		return console.Fail(console.ExitForbidden, "%s: %s does not accept the credentials: log in again, or use another context", doing, c)
	case apierrors.IsForbidden(err):
		return console.Fail(console.ExitForbidden, "%s: %s", doing, permission(err))
	case apierrors.IsNotFound(err):
		return console.Fail(console.ExitNotFound, "%s: %s", doing, err.Error())
	case apierrors.IsConflict(err):
		return console.Fail(console.ExitFailed, "%s: somebody else changes it at the same time: try again", doing)
	case strings.Contains(err.Error(), "unknown field"):
		return console.Fail(console.ExitCluster, "%s: %s: the definitions in %s are older than this klm: have its operator update them", doing, err.Error(), c)
	}
	return console.Fail(console.ExitFailed, "%s: %s", doing, err.Error())
}

// reasonOf returns why a request failed, without the address that it went to.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return err.Error()
}

var refusedRequest = regexp.MustCompile(`User "([^"]*)" cannot (\w+) resource "([^"]*)" in API group "([^"]*)"(?: in the namespace "([^"]*)")?`)

// permission says which permission is missing.
func permission(err error) string {
	m := refusedRequest.FindStringSubmatch(err.Error())
	if m == nil {
		return "not allowed: " + err.Error()
	}
	resource, where := m[3], "in the whole cluster"
	if m[4] != "" {
		resource += "." + m[4]
	}
	if m[5] != "" {
		where = "in namespace " + m[5]
	}
	return fmt.Sprintf("permission missing: %s may not %s %s %s: ask for a role that allows it, or use another context", m[1], m[2], resource, where)
}
