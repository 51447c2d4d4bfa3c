package console

import (
	"errors"
	"fmt"
)

// The exit codes are stable; the help of the root command lists the exit codes.
const (
	ExitOK        = 0
	ExitFailed    = 1 // a failure that has no other code
	ExitUsage     = 2 // the command line is wrong; no request was sent to a cluster
	ExitNotReady  = 3 // the requested state is not reached yet, or something blocks it
	ExitNotFound  = 4 // an object that the user has named does not exist
	ExitForbidden = 5 // no permission, or the credentials are not accepted
	ExitCluster   = 6 // there is no cluster, it does not respond, or it is the wrong cluster
	ExitNoManager = 7 // no manager works in the control plane, so the states in the report may be old
)

// Problem is an error with an exit code and a message. The message includes the remedy.
type Problem struct {
	code    int
	message string
}

func (p *Problem) Error() string { return p.message }

// Fail returns a [Problem] with a formatted message.
func Fail(code int, format string, args ...any) error {
	return &Problem{code, fmt.Sprintf(format, args...)}
}

// ExitCode returns the exit code of an error.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if p, ok := errors.AsType[*Problem](err); ok {
		return p.code
	}
	return ExitFailed
}
