package channel

import (
	"fmt"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel/internal/declaration"
)

// DeferralAnnotations returns those annotations of a Kyma that defer updates, or nil if there are none.
func DeferralAnnotations(k *v1beta2.Kyma) map[string]string {
	return declaration.DeferralAnnotations(k.Annotations)
}

// ParseDeferral parses the value of v1beta2.AnnotationNotBefore: a date, which means 00:00 UTC of that day, or a time
// in RFC 3339.
func ParseDeferral(value string) (time.Time, error) { return declaration.ParseTime(value) }

// DeferredUntil returns the time until which the admin of the runtime has deferred a version. The parameter limit is
// the time until which admins may defer the version. If the version is not deferred any more, DeferredUntil returns the
// zero time. An annotation that cannot be parsed defers the version until the time in limit, because the time that the
// admin wants is not known. If the deferral is not valid, DeferredUntil also returns an error.
func DeferredUntil(r Request, limit time.Time) (until time.Time, err error) {
	if r.NotBefore == "" || r.Mandatory || !r.Now.Before(limit) {
		return time.Time{}, nil
	}
	if until, err = ParseDeferral(r.NotBefore); err != nil {
		return limit, err
	}
	if !r.Now.Before(until) {
		return time.Time{}, nil
	}
	if until.After(limit) {
		until = limit
	}
	return until, nil
}

// checkDeferral blocks an update that the admin of the runtime has deferred, as long as the rollout allows the
// deferral.
func (s *search) checkDeferral() *Blocker {
	w := s.request
	isUpdate := s.Installed != "" && s.Version != s.Installed && s.Version != w.ManifestVersion
	if !isUpdate || s.Turn.IsBack {
		return nil
	}
	until, err := DeferredUntil(w, s.Turn.DeferUntil)
	if until.IsZero() {
		return nil
	}
	object, at := "annotation "+v1beta2.AnnotationNotBefore, until.UTC().Format(time.RFC3339)
	b := newBlocker(v1beta2.ReasonUpdateDeferred, object, "version %s of module %s is deferred until %s: to get it "+
		"now, run klm module defer %s --clear in the runtime", s.Version, s.Module, at, s.Module)
	asked, _ := ParseDeferral(w.NotBefore)
	switch {
	case err != nil:
		b = newBlocker(v1beta2.ReasonDeferralInvalid, object, "the deferral of module %s is not valid: %s; version %s "+
			"waits until %s, as long as the RolloutPolicy allows: correct it in the runtime with klm module defer %s --until=DATE",
			s.Module, err.Error(), s.Version, at, s.Module)
	case asked.After(until):
		b.Message = fmt.Sprintf("version %s of module %s is deferred until %s, but the RolloutPolicy allows that until %s "+
			"only, and the module follows then: to get it now, run klm module defer %s --clear in the runtime",
			s.Version, s.Module, asked.UTC().Format(time.RFC3339), at, s.Module)
	}
	b.Until = until
	return b
}
