package protocol

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net/url"
	"strings"
)

// subjectPrefix is the part after "urn:" of the URI in a certificate that our authority has issued.
const subjectPrefix = "lifecycle-manager:kyma:"

// SubjectURI returns a URI that identifies a Kyma. Certificates of our authority contain this URI as a subject
// alternative name.
func SubjectURI(kymaUID string) *url.URL {
	return &url.URL{Scheme: "urn", Opaque: subjectPrefix + kymaUID}
}

// IdentityOf returns the identity in a client certificate. The parameter root is the root certificate with which the
// caller has verified the client certificate. IdentityOf itself does not verify the certificate. If root is nil, the
// identity has no fingerprint of a root certificate.
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
		id.Root = ShortFingerprint(root)
	}
	return id
}

// ShortFingerprint returns the first 16 bytes of the SHA-256 of a certificate, in hexadecimal.
func ShortFingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:16])
}
