package trust

import (
	"cmp"
	"context"
	"crypto/rsa"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

// Kinds of signatures.
const (
	// KindOCM means a signature in the component descriptor.
	KindOCM = "ocm"
	// KindCosign means a cosign signature of the OCI manifest.
	KindCosign = "cosign"
)

// Signature describes whether one artefact has the signature that the trust policy requires, and by which key. The zero
// value means that the policy requires no signature.
type Signature struct {
	// Verified is true if there is a valid signature by a key in the policy.
	Verified bool
	// Key is the name of the key in the policy. If the key has no name in the policy, Key is the fingerprint of the
	// key.
	Key string
	// Kind is KindOCM or KindCosign.
	Kind string
	// Problem is one sentence with the reason why no signature could be verified. Problem is set only if the mode is
	// Warn.
	Problem string
}

// MaxSignatures is the maximum number of signatures that are checked for one artefact.
const MaxSignatures = 20

// Media types of OCM signatures.
const (
	rsaType = "application/vnd.ocm.signature.rsa"
	pssType = "application/vnd.ocm.signature.rsa.pss"
	pemType = "application/x-pem-file"
)

// Verification searches for a valid signature of one artefact by a key of a rule.
type Verification struct {
	reader  Reader
	rule    Rule
	seen    int      // number of checked signatures
	reasons []string // reason for each signature that was not accepted
}

// Reader reads from the repository of the artefact whose signature is verified. The registry client implements Reader.
type Reader interface {
	// Name returns the host and the path of the repository.
	Name() string
	// Manifest returns the image manifest to which a tag or a digest points.
	Manifest(ctx context.Context, reference string) (*ocm.ImageManifest, error)
	// ManifestBytes returns the content at a path below the repository, for example the list of referrers. Errors
	// contain ref, the reference of the content.
	ManifestBytes(ctx context.Context, ref, path string) ([]byte, error)
	// Blob returns a blob of at most limit bytes. The content is compared with the digest.
	Blob(ctx context.Context, digest string, limit int64) ([]byte, error)
}

// NewVerification returns a Verification that uses the keys of a rule.
func NewVerification(from Reader, r Rule) *Verification { return &Verification{reader: from, rule: r} }

// Note records the reason why a signature was not accepted.
func (f *Verification) Note(format string, args ...any) {
	f.reasons = append(f.reasons, ocm.FirstLine(fmt.Sprintf(format, args...)))
}

// SignatureError returns the error for an artefact without a valid signature. The message of the error contains the
// keys of the rule and the reasons why signatures were refused.
func (f *Verification) SignatureError(ref string) *ocm.Error {
	const most = 5 // maximum number of keys, and of reasons, so that the message is short
	var keys []string
	for _, k := range f.rule.keys[:min(most, len(f.rule.keys))] {
		keys = append(keys, strings.TrimSpace(k.name+" "+k.fingerprint))
	}
	if more := len(f.rule.keys) - most; more > 0 {
		keys = append(keys, fmt.Sprintf("%d more", more))
	}
	e := &ocm.Error{Ref: ref, Doing: "verifying", Code: ocm.SignatureMissing}
	what := "it has no signature, neither in a component descriptor nor by cosign"
	if f.seen > 0 || len(f.reasons) > 0 {
		what = "no valid signature"
	}
	if f.seen > 0 {
		e.Code = ocm.SignatureInvalid
	}
	shown := f.reasons[:min(most, len(f.reasons))]
	if len(shown) > 0 {
		what += " (" + strings.Join(shown, "; ") + ")"
	}
	e.Problem = fmt.Sprintf("%s; keys tried: %s: sign it with one of them, or change rule %q of the trust policy", what,
		strings.Join(keys, ", "), f.rule.Prefix)
	return e
}

// FindDescriptorSigner returns the key that has made a valid signature in the descriptor. If the descriptor has no
// valid signature, the result is nil.
func (f *Verification) FindDescriptorSigner(d *ocm.Descriptor) *key {
	for i, s := range d.Signatures {
		if i == MaxSignatures {
			f.Note("there are more than %d signatures in the descriptor", MaxSignatures)
			return nil
		}
		f.seen++
		k, err := verifyDescriptorBy(d, s, f.rule.keys)
		if err == nil {
			return k
		}
		f.Note("OCM signature %q: %s", ocm.FirstLine(s.Name), err)
	}
	return nil
}

// verifyDescriptorBy returns the key that has made one given signature of the descriptor.
func verifyDescriptorBy(d *ocm.Descriptor, s ocm.DescriptorSignature, keys []key) (*key, error) {
	hash := ocm.HashOf(s.Digest.HashAlgorithm)
	if hash == 0 {
		return nil, fmt.Errorf("hash %q is not supported: sign with SHA-256 or SHA-512",
			ocm.FirstLine(s.Digest.HashAlgorithm))
	}
	text, err := ocm.Normalise(d, s.Digest.NormalisationAlgorithm)
	if err != nil {
		return nil, err
	}
	h := hash.New()
	_, _ = h.Write(text) // Write of a hash never returns an error
	digest := h.Sum(nil)
	if !strings.EqualFold(hex.EncodeToString(digest), s.Digest.Value) {
		return nil, fmt.Errorf("the descriptor is not the one that was signed")
	}
	algorithm, value, err := decodeSignature(s)
	if err != nil {
		return nil, err
	}
	var rsaKeys int
	for i := range keys {
		public, ok := keys[i].public.(*rsa.PublicKey)
		if !ok {
			continue
		}
		rsaKeys++
		switch algorithm {
		case "RSASSA-PKCS1-V1_5":
			err = rsa.VerifyPKCS1v15(public, hash, digest, value)
		case "RSASSA-PSS":
			err = rsa.VerifyPSS(public, hash, digest, value, nil)
		default:
			return nil, fmt.Errorf("algorithm %q is not supported: sign with RSASSA-PKCS1-V1_5 or RSASSA-PSS",
				ocm.FirstLine(algorithm))
		}
		if err == nil {
			return &keys[i], nil
		}
	}
	if rsaKeys == 0 {
		return nil, fmt.Errorf("it was made with an RSA key, and the rule has none")
	}
	return nil, fmt.Errorf("it is by another key")
}

// decodeSignature returns the algorithm and the bytes of a signature. Certificates in a signature are ignored, because
// the keys are in the policy.
func decodeSignature(s ocm.DescriptorSignature) (algorithm string, value []byte, err error) {
	switch s.Signature.MediaType {
	case rsaType, pssType:
		if value, err = hex.DecodeString(s.Signature.Value); err != nil {
			return "", nil, fmt.Errorf("its value is not hexadecimal")
		}
		algorithm = s.Signature.Algorithm
		if algorithm == "" && s.Signature.MediaType == pssType {
			algorithm = "RSASSA-PSS"
		}
		return cmp.Or(algorithm, "RSASSA-PKCS1-V1_5"), value, nil
	case pemType:
		block, _ := pem.Decode([]byte(s.Signature.Value))
		if block == nil || block.Type != "SIGNATURE" {
			return "", nil, fmt.Errorf("its value is not a PEM block SIGNATURE")
		}
		return cmp.Or(s.Signature.Algorithm, block.Headers["Signature Algorithm"]), block.Bytes, nil
	}
	return "", nil, fmt.Errorf("media type %q is not supported: sign with an RSA key",
		ocm.FirstLine(s.Signature.MediaType))
}
