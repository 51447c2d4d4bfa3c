package channel

import (
	"fmt"
	"strings"
)

// block returns a Blocker that keeps what is installed.
func newBlocker(code, object, format string, args ...any) *Blocker {
	return &Blocker{Code: code, Object: object, Message: fmt.Sprintf(format, args...), KeepInstalled: true}
}

// listed joins what a person may choose from, and not more than a person reads.
func joinChoices(names []string) string {
	const most = 10
	switch {
	case len(names) == 0:
		return "(this runtime may have none)"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
