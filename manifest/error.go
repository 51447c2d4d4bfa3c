package manifest

import (
	"fmt"
	"strings"
)

// Reasons of an Error. The reason codes do not change: conditions and events may contain them.
const (
	// InvalidInfo: the InstallInfo is incomplete or invalid.
	InvalidInfo = "InvalidInfo"
	// InvalidInventory: the inventory of an installation cannot be read.
	InvalidInventory = "InvalidInventory"
	// ChartNotFound: the chart does not exist, or the chart has no matching version.
	ChartNotFound = "ChartNotFound"
	// ChartTooLarge: a chart, the index of a repository or the list of tags of a chart exceeds a limit.
	ChartTooLarge = "ChartTooLarge"
	// DigestMismatch: the digest of the downloaded chart differs from the digest in the index of the repository.
	DigestMismatch = "DigestMismatch"
	// InvalidIndex: the index of a repository, or the image of a chart in a registry, is invalid.
	InvalidIndex = "InvalidIndex"
	// RepositoryUnreachable: the connection to the repository failed, a request timed out, or the repository returned a
	// server error.
	RepositoryUnreachable = "RepositoryUnreachable"
	// EgressRefused: the repository, a URL in its index or a redirect has an address that must not be reached.
	EgressRefused = "EgressRefused"
	// RepositoryUnauthorized: the repository rejects the credentials, or requires credentials and has received none.
	RepositoryUnauthorized = "RepositoryUnauthorized"
)

// Error states what failed, why it failed, and how to fix it. The text of an Error is one line without credentials.
type Error struct {
	reason  string
	doing   string
	problem string
	err     error
}

// Reason returns one of the reason codes above.
func (e *Error) Reason() string { return e.reason }

// Unwrap returns the wrapped error of another package, or nil.
func (e *Error) Unwrap() error { return e.err }

func (e *Error) Error() string {
	text := e.doing + ": " + e.problem
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	if text = strings.Join(strings.Fields(text), " "); len(text) > 1000 {
		text = strings.ToValidUTF8(text[:1000], "") + "…"
	}
	return text
}

func invalidInfo(format string, args ...any) error {
	return &Error{reason: InvalidInfo, doing: "reading the InstallInfo", problem: fmt.Sprintf(format, args...)}
}
