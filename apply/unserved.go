package apply

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxUnservedVersions is the maximum number of versions that patch removes from the managed fields of one object. The
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

// removeUnserved removes the entries with an unserved version from the managed fields of an object, as an API server
// does for built-in kinds. The fields of the object stay as they are, but nobody owns them any more. removeUnserved
// returns the field managers, other than ours, whose entries were removed.
func (a *applyCall) removeUnserved(ctx context.Context, it *item, version string) ([]string, error) {
	r := request{method: http.MethodGet, path: it.urlPath(), accept: metadataType, operation: "reading", ref: it.ref}
	var (
		answer partialObject
		fields struct {
			Metadata struct {
				ManagedFields []json.RawMessage `json:"managedFields"` // sent back as they are
			} `json:"metadata"`
		}
	)
	err := a.send(ctx, &r, func(_ int, body []byte) error {
		return errors.Join(answer.decode(body, it.ref), json.Unmarshal(body, &fields))
	})
	if err != nil {
		return nil, deletedMeanwhile(err, it)
	}
	var (
		managers []string
		kept     []any
	)
	for _, raw := range fields.Metadata.ManagedFields {
		var entry struct {
			APIVersion string `json:"apiVersion"`
			Manager    string `json:"manager"`
		}
		switch err := json.Unmarshal(raw, &entry); {
		case err != nil || entry.APIVersion != version:
			kept = append(kept, raw)
		case entry.Manager != a.set.owner():
			managers = append(managers, clipMessage(entry.Manager))
		}
	}
	if len(kept) == 0 {
		kept = append(kept, struct{}{}) // an empty list would change nothing
	}
	_, err = a.patchMetadata(ctx, metadataPatch(it.ref, it.resource, a.set.owner(), &answer.Metadata,
		map[string]any{"managedFields": kept}))
	return slices.Compact(slices.Sorted(slices.Values(managers))), err
}
