package authority

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// Keys of the Secret with the roots. The values of the keys are lists in PEM format, with the newest root first. The
// lists have the same order.
const (
	// KeyRoots contains the certificates of the roots. A proxy that verifies the certificates of runtimes must trust
	// the roots in KeyRoots.
	KeyRoots = "ca.crt"
	// KeyRootKeys contains the private keys of the roots.
	KeyRootKeys = "ca.key"
)

// rootSet is the content of the Secret with the roots. A rootSet is immutable.
type rootSet struct {
	roots    []root    // newest first, at least one
	listener string    // fingerprint of the root that signs the certificate of the listener; it is one of roots
	since    time.Time // time since which the listener uses this root, in seconds
	rotated  string    // the value of the last request that was executed

	certificates []*x509.Certificate // the certificates of roots
	pem          []byte              // certificates as PEM
	digest       string              // digest of pem
}

// newRootSet returns a rootSet with the given roots. The parameter "preferredListenerRoot" is the fingerprint of the
// root that signs the certificate of the listener. If no root has the fingerprint "preferredListenerRoot", the oldest
// root signs the certificate of the listener, because all runtimes trust the oldest root.
func newRootSet(roots []root, preferredListenerRoot string, listenerRootSince time.Time, doneRequest string) *rootSet {
	r := &rootSet{roots: roots, listener: preferredListenerRoot, since: listenerRootSince, rotated: doneRequest}
	for _, root := range roots {
		r.certificates = append(r.certificates, root.certificate)
		r.pem = append(r.pem, encodePEM(pemCertificate, root.certificate.Raw)...)
	}
	r.digest = Digest(r.pem)
	if r.indexOf(preferredListenerRoot) < 0 {
		r.listener = roots[len(roots)-1].fingerprint
	}
	return r
}

// indexOf returns the index of the root that has the given fingerprint, or -1 if no root has this fingerprint.
func (r *rootSet) indexOf(fingerprint string) int {
	return slices.IndexFunc(r.roots, func(o root) bool { return o.fingerprint == fingerprint })
}

// newestValid returns the index of the newest root that is valid at the given time, or -1 if no root is valid. The
// parameter roots contains the newest root first.
func newestValid(roots []root, now time.Time) int {
	return slices.IndexFunc(roots, func(o root) bool { return o.isValidAt(now) })
}

// signers returns the root that signs the certificates of runtimes, and the root that signs the certificate of the
// listener. The newest valid root signs the certificates of runtimes. While the root r.listener is not valid, the
// oldest valid root signs the certificate of the listener, because more runtimes trust it than any newer root. If no
// root is valid at the given time, the results are nil.
func (r *rootSet) signers(now time.Time) (forRuntimes, forListener *root) {
	for i := range r.roots {
		o := &r.roots[i]
		if !o.isValidAt(now) {
			continue
		}
		if forRuntimes == nil {
			forRuntimes = o
		}
		if forListener == nil || forListener.fingerprint != r.listener {
			forListener = o
		}
	}
	return forRuntimes, forListener
}

// equal reports whether two sets have the same content.
func (r *rootSet) equal(other *rootSet) bool {
	return r.digest == other.digest && r.listener == other.listener &&
		r.since.Equal(other.since) && r.rotated == other.rotated
}

// writeTo writes the rootSet into the data and annotations of a Secret.
func (r *rootSet) writeTo(s *corev1.Secret) error {
	var keys []byte
	for _, root := range r.roots {
		key, err := encodeKey(root.key)
		if err != nil {
			return err
		}
		keys = append(keys, key...)
	}
	metav1.SetMetaDataLabel(&s.ObjectMeta, v1beta2.LabelManagedBy, v1beta2.ManagedByLifecycleManager)
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, v1beta2.AnnotationListenerRoot, r.listener)
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, v1beta2.AnnotationListenerRootSince, r.since.UTC().Format(time.RFC3339))
	if r.rotated != "" {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, v1beta2.AnnotationRootRotated, r.rotated)
	}
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	s.Data[KeyRoots], s.Data[KeyRootKeys] = r.pem, keys
	return nil
}

// parseRoots parses a rootSet from the Secret. The errors of parseRoots describe the problem and never contain data of
// the Secret.
func parseRoots(s *corev1.Secret) (*rootSet, error) {
	certificates, err := readCertificates(s.Data[KeyRoots])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", KeyRoots, err)
	}
	keys, err := readKeys(s.Data[KeyRootKeys])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", KeyRootKeys, err)
	}
	if len(keys) != len(certificates) {
		return nil, fmt.Errorf("there are %d roots and %d keys", len(certificates), len(keys))
	}
	var roots []root
	for i, c := range certificates {
		public, ok := keys[i].Public().(interface{ Equal(crypto.PublicKey) bool })
		switch {
		case !ok || !public.Equal(c.PublicKey):
			return nil, fmt.Errorf("root %d of %d has another key", i+1, len(certificates))
		case !c.IsCA || c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0:
			return nil, fmt.Errorf("root %d of %d is not a CA", i+1, len(certificates))
		}
		r := root{c, keys[i], protocol.ShortFingerprint(c)}
		if slices.ContainsFunc(roots, func(o root) bool { return o.fingerprint == r.fingerprint }) {
			return nil, fmt.Errorf("root %d of %d is a duplicate", i+1, len(certificates))
		}
		roots = append(roots, r)
	}
	// If the time in the annotation cannot be parsed, the creation time of the root is used instead. The authority may
	// then remove an old root earlier than SettlePeriod after the listener has stopped using it.
	since, err := time.Parse(time.RFC3339, s.Annotations[v1beta2.AnnotationListenerRootSince])
	if err != nil {
		since = time.Time{}
	}
	return newRootSet(roots, s.Annotations[v1beta2.AnnotationListenerRoot], since,
		s.Annotations[v1beta2.AnnotationRootRotated]), nil
}

// readCertificates parses PEM that contains at least one certificate and nothing else.
func readCertificates(data []byte) ([]*x509.Certificate, error) {
	blocks, err := readPEM(data, pemCertificate)
	if err != nil {
		return nil, err
	}
	var all []*x509.Certificate
	for i, block := range blocks {
		c, err := x509.ParseCertificate(block)
		if err != nil {
			return nil, fmt.Errorf("certificate %d of %d: %w", i+1, len(blocks), err)
		}
		all = append(all, c)
	}
	return all, nil
}

// readKeys parses PEM that contains at least one private key and nothing else.
func readKeys(data []byte) ([]crypto.Signer, error) {
	blocks, err := readPEM(data, pemKey)
	if err != nil {
		return nil, err
	}
	var all []crypto.Signer
	for i, block := range blocks {
		key, err := x509.ParsePKCS8PrivateKey(block)
		signer, ok := key.(crypto.Signer)
		if err != nil || !ok { // the error of the parser could contain key material
			return nil, fmt.Errorf("key %d of %d cannot be read or is for another use", i+1, len(blocks))
		}
		all = append(all, signer)
	}
	return all, nil
}

// readPEM returns the content of all PEM blocks, which must have the same type.
func readPEM(data []byte, kind string) ([][]byte, error) {
	var all [][]byte
	for rest := bytes.TrimSpace(data); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, errors.New("it contains data that is not PEM")
		}
		if block.Type != kind {
			return nil, fmt.Errorf("it contains PEM that is not a %s", kind)
		}
		all = append(all, block.Bytes)
	}
	if len(all) == 0 {
		return nil, errors.New("it is missing or empty")
	}
	return all, nil
}
