package manifest

import (
	"fmt"
	"strings"
)

// Reasons of an Error. They are stable: conditions and events may carry them.
const (
	// InvalidInfo: an InstallInfo is not complete, or says what cannot be.
	InvalidInfo = "InvalidInfo"
	// InvalidInventory: the record of an installation cannot be read.
	InvalidInventory = "InvalidInventory"
	// ChartNotFound: there is no such chart, or no version of it that is wanted.
	ChartNotFound = "ChartNotFound"
	// ChartTooLarge: a chart, or the index of a repository, has more bytes than are read.
	ChartTooLarge = "ChartTooLarge"
	// DigestMismatch: the chart received is not the one that the repository's index names.
	DigestMismatch = "DigestMismatch"
	// InvalidIndex: the index of a repository, or a chart's image in a registry, cannot be understood.
	InvalidIndex = "InvalidIndex"
	// RepositoryUnreachable: no connection, no answer in time, or an answer that says the repository is not well.
	RepositoryUnreachable = "RepositoryUnreachable"
	// RepositoryUnauthorized: the repository refuses the credentials, or wants some.
	RepositoryUnauthorized = "RepositoryUnauthorized"
)

// Error says what could not be done, why, and what to do. Its text is one line and holds no credentials.
type Error struct {
	reason  string
	doing   string
	problem string
	err     error
}

// Reason is one of the reasons above.
func (e *Error) Reason() string { return e.reason }

// Unwrap returns the cause, if another package saw it first.
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
