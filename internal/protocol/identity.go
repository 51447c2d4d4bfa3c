package protocol

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net/url"
	"strings"
)

// subject is what the URI in a certificate of our authority begins with, after urn and a colon.
const subject = "lifecycle-manager:kyma:"

// SubjectURI is how a certificate of our authority names the Kyma that it speaks for, among the alternative names of its subject.
func SubjectURI(uid string) *url.URL { return &url.URL{Scheme: "urn", Opaque: subject + uid} }

// IdentityOf says who speaks by a client certificate that was verified with a root. It verifies nothing itself. root may be nil.
func IdentityOf(cert, root *x509.Certificate) Identity {
	id := Identity{CommonName: cert.Subject.CommonName, Expires: cert.NotAfter}
	for _, u := range cert.URIs {
		uid, ours := strings.CutPrefix(u.Opaque, subject)
		if ours && uid != "" && u.Scheme == "urn" {
			id.UID, id.Issued = uid, cert.NotBefore.Add(BackdatePeriod)
			break
		}
	}
	if root != nil {
		id.Root = Fingerprint(root)
	}
	return id
}

// Fingerprint tells certificates apart: the first 16 bytes of the SHA-256 of all of it, in hexadecimal.
func Fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:16])
}
