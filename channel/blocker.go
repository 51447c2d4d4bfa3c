package channel

import (
	"fmt"
	"strings"
)

// newBlocker returns a Blocker that does not remove the module: the installed version stays.
func newBlocker(code, object, format string, args ...any) *Blocker {
	return &Blocker{Code: code, Object: object, Message: fmt.Sprintf(format, args...), KeepInstalled: true}
}

// joinChoices joins at most ten of the values from which a user can choose.
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
