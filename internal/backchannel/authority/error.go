package authority

import (
	"fmt"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Error says why there is no certificate.
type Error struct {
	// Code is the stable reason: AuthorityBroken, AuthorityNotReady, CertificateNotReady or CertificateRefused.
	Code string
	// Message says what is wrong and what to do. It does not change while nothing changes.
	Message string
}

func (e *Error) Error() string { return e.Message }

// Reason returns Code.
func (e *Error) Reason() string { return e.Code }

// refused says that nobody may have this certificate.
func refused(format string, args ...any) error {
	return &Error{Code: v1beta2.ReasonCertificateRefused, Message: fmt.Sprintf(format, args...)}
}

// notReady says that cert-manager is not done.
func notReady(format string, args ...any) error {
	return &Error{Code: v1beta2.ReasonCertificateNotReady, Message: fmt.Sprintf(format, args...)}
}
