package connection

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// Explain converts an error of an API server or of the network into an error with an exit code and a message for the
// user. The parameter "doing" is a text that describes the action that has failed, such as "reading the Kymas".
func (c *Cluster) Explain(err error, doing string) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*console.Problem](err); ok {
		return err
	}
	if apply.IsServerCertificateInvalid(err) {
		return console.Fail(console.ExitCluster, "%s: %s cannot be trusted: %s; check the certificate authority and "+
			"the server in your kubeconfig", doing, c, messageWithoutURL(err))
	}
	if _, ok := errors.AsType[*url.Error](err); ok || errors.Is(err, context.DeadlineExceeded) {
		return console.Fail(console.ExitCluster, "%s: %s does not answer: %s; check its address and your network",
			doing, c, messageWithoutURL(err))
	}
	answer, _ := errors.AsType[*apply.Error](err)
	isAnswer := func(reason string) bool { return answer != nil && answer.Reason() == reason }
	switch {
	case errors.Is(err, context.Canceled):
		return console.Fail(console.ExitFailed, "%s: interrupted", doing)
	case apierrors.IsUnauthorized(err), isAnswer(apply.RuntimeUnauthorized):
		return console.Fail(console.ExitForbidden,
			"%s: %s does not accept the credentials: log in again, or use another context", doing, c)
	case apierrors.IsForbidden(err), isAnswer(apply.RuntimeForbidden):
		return console.Fail(console.ExitForbidden, "%s: %s", doing, missingPermissionText(err))
	case apierrors.IsNotFound(err):
		return console.Fail(console.ExitNotFound, "%s: %s", doing, err.Error())
	case apierrors.IsConflict(err):
		return console.Fail(console.ExitFailed, "%s: another client changed it at the same time: try again", doing)
	case strings.Contains(err.Error(), "unknown field"):
		return console.Fail(console.ExitCluster,
			"%s: %s: the CRDs in %s are older than this klm: ask its platform team to update them", doing, err.Error(),
			c)
	}
	return console.Fail(console.ExitFailed, "%s: %s", doing, err.Error())
}

// messageWithoutURL returns the reason why a request failed. The returned text does not contain the URL of the request.
func messageWithoutURL(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return err.Error()
}

var forbiddenRequest = regexp.MustCompile(
	`User "([^"]*)" cannot (\w+) resource "([^"]*)" in API group "([^"]*)"(?: in the namespace "([^"]*)")?`)

// missingPermissionText returns a text about the permission that a forbidden request needs. missingPermissionText finds
// the permission in the error message of the API server.
func missingPermissionText(err error) string {
	m := forbiddenRequest.FindStringSubmatch(err.Error())
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
	return fmt.Sprintf("permission missing: %s may not %s %s %s: ask for a role that allows it, or use another context",
		m[1], m[2], resource, where)
}
