package protocol

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net/url"
	"strings"
)

// subjectPrefix is the beginning of the URI in a certificate of our authority, after "urn:".
const subjectPrefix = "lifecycle-manager:kyma:"

// SubjectURI returns the URI of a Kyma among the subject alternative names of a certificate of our authority.
func SubjectURI(uid string) *url.URL { return &url.URL{Scheme: "urn", Opaque: subjectPrefix + uid} }

// IdentityOf returns the identity in a client certificate that was verified with a root, which may be nil. It verifies
// nothing itself.
func IdentityOf(cert, root *x509.Certificate) Identity {
	id := Identity{CommonName: cert.Subject.CommonName, Expires: cert.NotAfter}
	for _, u := range cert.URIs {
		uid, ours := strings.CutPrefix(u.Opaque, subjectPrefix)
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

// Fingerprint returns the first 16 bytes of the SHA-256 of a certificate, in hexadecimal.
func Fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:16])
}
