package declaration

import (
	"fmt"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// maxDeferrals is the maximum number of annotations that DeferralAnnotations returns.
const maxDeferrals = 256

// DeferralAnnotations returns those annotations that defer updates, or nil if there are none.
func DeferralAnnotations(annotations map[string]string) map[string]string {
	var all map[string]string
	for key, value := range annotations {
		if (key == v1beta2.AnnotationNotBefore || strings.HasPrefix(key, v1beta2.AnnotationNotBeforeModulePrefix)) &&
			len(all) < maxDeferrals {
			if all == nil {
				all = map[string]string{}
			}
			all[key] = trimAndClip(value)
		}
	}
	return all
}

// NotBefore returns the value of the annotation that defers updates of a module, or "" if there is none.
func NotBefore(annotations map[string]string, module string) string {
	if value, found := annotations[v1beta2.AnnotationNotBeforeModulePrefix+module]; found {
		return trimAndClip(value)
	}
	return trimAndClip(annotations[v1beta2.AnnotationNotBefore])
}

// trimAndClip removes the white space around the value of an annotation with a time, and shortens the value for use in
// messages: no valid time is longer than 64 bytes.
func trimAndClip(value string) string {
	const most = 64
	if value = strings.TrimSpace(value); len(value) > most {
		value = strings.ToValidUTF8(value[:most], "")
	}
	return value
}

// ParseTime parses a date, which means 00:00 UTC of that day, or a time in RFC 3339.
func ParseTime(value string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, value); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither a date such as 2026-12-24 nor a time such as 2026-12-24T08:00:00Z",
		value)
}
