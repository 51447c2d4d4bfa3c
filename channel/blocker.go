package channel

import (
	"fmt"
	"strings"
)

// newBlocker returns a Blocker that keeps the installed version.
func newBlocker(code, object, format string, args ...any) *Blocker {
	return &Blocker{Code: code, Object: object, Message: fmt.Sprintf(format, args...), KeepInstalled: true}
}

// joinChoices joins the values that a user can choose from, at most ten.
func joinChoices(names []string) string {
	const most = 10
	switch {
	case len(names) == 0:
		return "(none is available to this runtime)"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
