package authority

import (
	"fmt"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Error is the reason why no certificate is available.
type Error struct {
	// Code is the reason code of the error: AuthorityBroken, AuthorityNotReady, CertificateNotReady or
	// CertificateRefused. The reason codes do not change between versions.
	Code string
	// Message explains the problem and how to solve the problem. The text of Message stays the same as long as the
	// problem stays the same.
	Message string
}

func (e *Error) Error() string { return e.Message }

// Reason returns Code.
func (e *Error) Reason() string { return e.Code }

// noValidRootError returns the error for certificates that cannot be issued because no root is valid at present.
func noValidRootError() error {
	return &Error{Code: v1beta2.ReasonAuthorityNotReady, Message: "no root in Secret " + SecretName +
		" is valid at present: check the clocks of all replicas"}
}

// certificateRefusedError returns the error for a certificate that must not be issued.
func certificateRefusedError(format string, args ...any) error {
	return &Error{Code: v1beta2.ReasonCertificateRefused, Message: fmt.Sprintf(format, args...)}
}

// certificateNotReadyError returns the error for a certificate that cert-manager has not issued yet.
func certificateNotReadyError(format string, args ...any) error {
	return &Error{Code: v1beta2.ReasonCertificateNotReady, Message: fmt.Sprintf(format, args...)}
}
