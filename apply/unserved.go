package apply

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxUnservedVersions is the maximum number of versions that write removes from the managed fields of one object. The
// next call of Apply continues with the other versions.
const maxUnservedVersions = 4

// unservedVersion returns the group and version, such as "example.com/v1", because of which the API server cannot
// apply a custom resource: the CRD no longer has the version, but an entry in the managed fields of the object still
// names it. unservedVersion returns "" for all other responses.
//
// An API server ignores such an entry of a built-in kind, but responds with 500 and no reason if the entry is of a
// custom resource (https://github.com/kubernetes/kubernetes/issues/111937). So unservedVersion has to compare the
// message.
func unservedVersion(code int, status *metav1.Status) string {
	_, version, found := strings.Cut(status.Message, "request to convert CR to an invalid group/version: ")
	if code != http.StatusInternalServerError || !found || strings.ContainsAny(version, " \n") {
		return ""
	}
	return version
}

// unservedIn returns the unserved version because of which a request has failed, or "".
func unservedIn(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.unserved
	}
	return ""
}

// removeUnservedManagedFields removes the entries with an unserved version from the managed fields of an object, as an
// API server does for built-in kinds. The fields of the object stay as they are, but nobody owns them any more. If
// other field managers lose entries, removeUnservedManagedFields records this in Result.TakenOver.
func (a *applyCall) removeUnservedManagedFields(ctx context.Context, it *item, version string) error {
	var managers []string
	err := a.patchManagedFields(ctx, it.ref, it.resource, a.set.fieldManager(), nil,
		func(entries []json.RawMessage) (map[string]any, error) {
			var kept []any
			for _, raw := range entries {
				var entry struct {
					APIVersion string `json:"apiVersion"`
					Manager    string `json:"manager"`
				}
				if err := json.Unmarshal(raw, &entry); err != nil {
					return nil, err
				}
				switch {
				case entry.APIVersion != version:
					kept = append(kept, raw)
				case entry.Manager != a.set.fieldManager():
					managers = append(managers, clipMessage(entry.Manager))
				}
			}
			if len(kept) == 0 {
				kept = append(kept, struct{}{}) // an empty list would change nothing
			}
			return map[string]any{"managedFields": kept}, nil
		})
	if err != nil {
		return notFoundAsConflict(err, it)
	}
	if len(managers) > 0 {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.result.TakenOver = append(a.result.TakenOver, Takeover{Ref: it.ref,
			Fields: []string{"the fields managed in " + version}, Managers: sortedUniqueAtMostTen(managers)})
	}
	return nil
}
