package apply

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestStableMessage tests that the message of the same connection error is the same each time.
func TestStableMessage(t *testing.T) {
	here, there := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 52756},
		&net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 6443}
	reset := &net.OpError{Op: "write", Net: "tcp", Source: here, Addr: there,
		Err: os.NewSyscallError("write", syscall.EPIPE)}
	tests := map[string]struct {
		reason string
		err    error
		want   string
	}{
		"Reset": {"our own port is left out", reset, "write tcp 10.0.0.2:6443: write: broken pipe"},
		"Nested": {"wherever it is", fmt.Errorf("x: %w", &net.OpError{Op: "readfrom", Net: "tcp", Source: here,
			Addr: there, Err: reset}), "readfrom tcp 10.0.0.2:6443: write: broken pipe"},
		"NoHost": {"the name is enough", &net.OpError{Op: "dial", Net: "tcp",
			Err: &net.DNSError{Name: "api.example.com", Server: "10.0.0.10:53", Err: "no such host", IsNotFound: true}},
			"looking up api.example.com: no such host"},
		"NoServer": {"the name server does not answer",
			&net.DNSError{Name: "api.example.com", Err: "read udp 10.0.0.1:43423->10.0.0.10:53: i/o timeout",
				IsTimeout: true}, "looking up api.example.com: no answer"},
		"DNS": {"the name server fails", &net.DNSError{Name: "api.example.com", Err: "server misbehaving"},
			"looking up api.example.com: it failed"},
		"Other": {"everything else as it is", io.ErrUnexpectedEOF, "unexpected EOF"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := stableMessage(tc.err); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// TestNoAnswerReason checks that two kinds of API servers are not reported as unreachable: one whose certificate is not
// trusted, and one that refuses the client certificate.
func TestNoAnswerReason(t *testing.T) {
	for want, err := range map[string]error{
		RuntimeCertificateInvalid: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
		RuntimeUnauthorized:       &net.OpError{Op: "remote error", Err: tls.AlertError(45)},
		RuntimeUnreachable:        &net.OpError{Op: "remote error", Err: tls.AlertError(80)},
	} {
		got := (&request{operation: "reading"}).noAnswerError(t.Context(), 0, &url.Error{Op: "Get", Err: err})
		if !reasonIs(got, want) {
			t.Errorf("%v: got %v, want %s", err, got, want)
		}
	}
}

func TestClassOf(t *testing.T) {
	e := &Error{Operation: "applying", reason: RuntimeUnreachable, err: io.EOF}
	if ClassOf(fmt.Errorf("somewhere: %w", e)) != Unreachable || ClassOf(errors.Join(nil, e)) != Unreachable ||
		!errors.Is(e, io.EOF) {
		t.Error("a wrapped error keeps its class and its cause")
	}
	if ClassOf(io.EOF) != Transient || ClassOf(nil) != Transient {
		t.Error("every other error is transient")
	}
	for reason, text := range advice {
		if message := (&Error{Operation: "applying", Message: "no", reason: reason}).Error(); !strings.HasSuffix(
			message, text) {
			t.Errorf("%s: got %q, want advice at its end", reason, message)
		}
	}
	if long := clipMessage(strings.Repeat("ä", 2000)); len(long) > 1030 || !strings.HasSuffix(long, "…") {
		t.Errorf("got %d bytes", len(long))
	}
}

// TestIsRecreated checks in which cases a rejected object is deleted and created again.
func TestIsRecreated(t *testing.T) {
	permits := map[string]string{AnnotationOnImmutable: "recreate"}
	set := Ref{Group: "apps", Version: "v1", Kind: "StatefulSet", Namespace: "a", Name: "b"}
	immutable := field.Forbidden(field.NewPath("spec"), "updates to statefulset spec for fields other than 'replicas' "+
		"are forbidden: field is immutable")
	other := field.Required(field.NewPath("spec", "selector"), "")
	invalid := func(all ...*field.Error) error {
		kind := schema.GroupKind{Group: "apps", Kind: "StatefulSet"}
		return fmt.Errorf("sending: %w", apierrors.NewInvalid(kind, "b", all))
	}
	for name, c := range map[string]struct {
		ref         Ref
		annotations map[string]string
		err         error
		want        bool
	}{
		"Permitted":    {set, permits, invalid(immutable), true},
		"NotPermitted": {set, nil, invalid(immutable), false},
		"OtherField":   {set, permits, invalid(immutable, other), false},
		"NoStatus":     {set, permits, errors.New("field is immutable"), false},
		"CRD": {Ref{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition", Name: "a"}, permits,
			invalid(immutable), false},
	} {
		if got := IsRecreated(c.ref, c.annotations, c.err); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
