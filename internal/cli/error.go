package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Exit codes. They are stable; the help of the root lists them.
const (
	exitOK        = 0
	exitFailed    = 1 // none of the others
	exitUsage     = 2 // the command line is wrong; nothing was asked of a cluster
	exitNotReady  = 3 // it is not as wished yet, or something is in the way
	exitNotFound  = 4 // what was named does not exist
	exitForbidden = 5 // no permission, or the credentials are not accepted
	exitCluster   = 6 // no cluster, one that does not answer, or the wrong one
)

// problem is an error with an exit code.
type problem struct {
	code    int
	message string
}

func (p *problem) Error() string { return p.message }

// fail returns a problem.
func fail(code int, format string, args ...any) error {
	return &problem{code, fmt.Sprintf(format, args...)}
}

// codeOf returns the exit code of an error.
func codeOf(err error) int {
	if err == nil {
		return exitOK
	}
	if p, ok := errors.AsType[*problem](err); ok {
		return p.code
	}
	return exitFailed
}

// explain turns what an API server or the way to it has said into words for a person, with an exit code. doing says what was tried.
func (c *cluster) explain(err error, doing string) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*problem](err); ok {
		return err
	}
	if _, ok := errors.AsType[*url.Error](err); ok || errors.Is(err, context.DeadlineExceeded) {
		return fail(exitCluster, "%s: %s does not answer: %s; check its address and your network", doing, c, reasonOf(err))
	}
	switch {
	case errors.Is(err, context.Canceled):
		return fail(exitFailed, "%s: interrupted", doing)
	case apierrors.IsUnauthorized(err):
		return fail(exitForbidden, "%s: %s does not accept the credentials: log in again, or use another context", doing, c)
	case apierrors.IsForbidden(err):
		return fail(exitForbidden, "%s: %s", doing, permission(err))
	case apierrors.IsNotFound(err):
		return fail(exitNotFound, "%s: %s", doing, err.Error())
	case apierrors.IsConflict(err):
		return fail(exitFailed, "%s: somebody else changes it at the same time: try again", doing)
	case strings.Contains(err.Error(), "unknown field"):
		return fail(exitCluster, "%s: %s: the definitions in %s are older than this klm: have its operator update them", doing, err.Error(), c)
	}
	return fail(exitFailed, "%s: %s", doing, err.Error())
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
