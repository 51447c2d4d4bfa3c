package runtimes

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestErrorOf checks that each problem of a connection or a credential has its own reason, and a message that names
// what to correct.
func TestErrorOf(t *testing.T) {
	untrusted := func(why error) error {
		return &url.Error{Op: "Get", URL: "https://a", Err: &tls.CertificateVerificationError{Err: why}}
	}
	alert := func(a tls.AlertError) error {
		return &url.Error{Op: "Get", URL: "https://a", Err: &net.OpError{Op: "remote error", Err: a}}
	}
	past, future := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	cases := map[string]struct {
		status     int
		err        error
		ends       time.Time
		code, says string
	}{
		"OtherAuthority": {err: untrusted(x509.UnknownAuthorityError{}), code: RuntimeCertificateInvalid,
			says: "not signed by the certificate authority of the kubeconfig"},
		"OtherHost": {err: untrusted(x509.HostnameError{}), code: RuntimeCertificateInvalid,
			says: "for another host"},
		"ServerExpired": {err: untrusted(x509.CertificateInvalidError{Reason: x509.Expired}),
			code: RuntimeCertificateInvalid, says: "has expired"},
		"Revoked": {status: http.StatusUnauthorized, ends: future, code: RuntimeUnauthorized,
			says: "(401): put"},
		"RevokedNoEnd": {status: http.StatusUnauthorized, code: RuntimeUnauthorized, says: "(401): put"},
		"Expired": {status: http.StatusUnauthorized, ends: past, code: CredentialExpired,
			says: "which expired at"},
		"RevokedByAlert": {err: alert(44), ends: future, code: RuntimeUnauthorized, says: "(a TLS alert): put"},
		"ExpiredByAlert": {err: alert(45), ends: past, code: CredentialExpired,
			says: "which expired at"},
		"OtherAlert": {err: alert(80), code: RuntimeUnreachable, says: "connection broken"},
		"Gone":       {err: &net.OpError{Op: "dial"}, code: RuntimeUnreachable, says: "connection refused"},
		"Forbidden":  {status: http.StatusForbidden},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := &breaker{runtime: "a", base: "https://a", ends: c.ends}
			e := b.runtimeErrorOf(t.Context(), &http.Response{StatusCode: c.status}, c.err)
			switch {
			case c.code == "" && e == nil:
			case e == nil || e.Code != c.code || !strings.Contains(e.Message, c.says):
				t.Errorf("%+v, want %s with %q", e, c.code, c.says)
			}
		})
	}
}
