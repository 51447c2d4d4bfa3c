package registry

import (
	"archive/tar"
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	fake "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/sigstore/sigstore/pkg/signature"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
)

// signing is a test fixture: a registry with one component version, and methods that sign the component version in all
// supported ways.
type signing struct {
	*testing.T
	s      *server
	repo   string
	digest string // of the manifest
	raw    []byte
}

func newSigning(t *testing.T, options ...fake.Option) *signing {
	t.Helper()
	s := newServer(t, options...)
	r, _ := openRegistry(t, Options{Host: "http://" + s.host()})
	a := sampleArchive()
	push(t, r, a)
	g := &signing{T: t, s: s, repo: "component-descriptors/" + component}
	g.changeDescriptor(func(d map[string]any) { // as ocm sign does: a digest for each resource
		for _, res := range resourcesOf(d) {
			if res["digest"] == nil {
				res["digest"] = map[string]any{"hashAlgorithm": "SHA-256",
					"normalisationAlgorithm": "ociArtifactDigest/v1", "value": strings.Repeat("ab", 32)}
			}
		}
	})
	return g
}

func resourcesOf(d map[string]any) []map[string]any {
	var out []map[string]any
	for _, res := range d["component"].(map[string]any)["resources"].([]any) {
		out = append(out, res.(map[string]any))
	}
	return out
}

// get reads from the registry with a plain HTTP client.
func (g *signing) get(path string) []byte {
	g.Helper()
	response, err := http.Get(g.s.URL + "/v2/" + g.repo + "/" + path)
	if err != nil {
		g.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		g.Fatal(path, response.Status, err)
	}
	return data
}

// changeDescriptor replaces the descriptor of the component version by a changed copy.
func (g *signing) changeDescriptor(change func(map[string]any)) {
	g.Helper()
	g.changeText(func(text []byte) []byte {
		var d map[string]any
		if err := yaml.Unmarshal(text, &d); err != nil {
			g.Fatal(err)
		}
		change(d)
		text, err := yaml.Marshal(d)
		if err != nil {
			g.Fatal(err)
		}
		return text
	})
}

func (g *signing) changeText(change func([]byte) []byte) {
	g.Helper()
	manifest, err := v1.ParseManifest(bytes.NewReader(g.get("manifests/1.2.3")))
	if err != nil {
		g.Fatal(err)
	}
	archive := tar.NewReader(bytes.NewReader(g.get("blobs/" + manifest.Layers[0].Digest.String())))
	if _, err := archive.Next(); err != nil {
		g.Fatal(err)
	}
	text, err := io.ReadAll(archive)
	if err != nil {
		g.Fatal(err)
	}
	layer := layerOfBytes(g.T, g.s, g.repo, tarOf(g.T, wantDescriptorFile, string(change(text))), "")
	config := []byte(`{"componentDescriptorLayer":{"digest":"` + layer.Digest.String() + `"}}`)
	manifest.Layers[0], manifest.Config.Size = layer, int64(len(config))
	if manifest.Config.Digest, err = v1.NewHash(putBlob(g.T, g.s, g.repo, config)); err != nil {
		g.Fatal(err)
	}
	if g.raw, err = json.Marshal(manifest); err != nil {
		g.Fatal(err)
	}
	g.digest = send(g.T, http.MethodPut, g.s.URL+"/v2/"+g.repo+"/manifests/1.2.3", g.raw)
}

// signOCM adds an OCM signature to the descriptor.
func (g *signing) signOCM(by, normalisation, hash, algorithm string) {
	g.Helper()
	g.changeDescriptor(func(d map[string]any) {
		text, err := yaml.Marshal(d)
		if err != nil {
			g.Fatal(err)
		}
		parsed, err := ocm.ParseDescriptor(text, "")
		if err != nil {
			g.Fatal(err)
		}
		form, err := ocm.Normalise(parsed, normalisation)
		if err != nil {
			g.Fatal(err)
		}
		kind := map[string]crypto.Hash{"SHA-256": crypto.SHA256, "SHA-512": crypto.SHA512}[hash]
		h := kind.New()
		_, _ = h.Write(form)
		sum := h.Sum(nil)
		private := keyPairs()[by].private.(*rsa.PrivateKey)
		value, err := rsa.SignPKCS1v15(rand.Reader, private, kind, sum)
		mediaType := wantRsaType
		if strings.HasPrefix(algorithm, "RSASSA-PSS") {
			value, err = rsa.SignPSS(rand.Reader, private, kind, sum, nil)
			mediaType = wantPssType
		}
		if err != nil {
			g.Fatal(err)
		}
		shown := hex.EncodeToString(value)
		if name, ok := strings.CutSuffix(algorithm, " PEM"); ok {
			algorithm, mediaType = name, wantPemType
			shown = string(pem.EncodeToMemory(&pem.Block{Type: "SIGNATURE",
				Headers: map[string]string{"Signature Algorithm": name}, Bytes: value}))
		}
		signatures, _ := d["signatures"].([]any)
		d["signatures"] = append(signatures, map[string]any{"name": "sig",
			"digest": map[string]any{"hashAlgorithm": hash, "normalisationAlgorithm": normalisation,
				"value": hex.EncodeToString(sum)},
			"signature": map[string]any{"algorithm": algorithm, "mediaType": mediaType, "value": shown}})
	})
}

// bytesBy signs bytes in the same way as the program cosign.
func (g *signing) bytesBy(by string, text []byte) []byte {
	g.Helper()
	signer, err := signature.LoadSigner(keyPairs()[by].private, crypto.SHA256)
	if err != nil {
		g.Fatal(err)
	}
	value, err := signer.SignMessage(bytes.NewReader(text))
	if err != nil {
		g.Fatal(err)
	}
	return value
}

func simpleSigning(kind, digest string) string {
	return `{"critical":{"identity":{"docker-reference":"r.io/a"},"image":{"docker-manifest-digest":"` + digest +
		`"},"type":"` + kind + `"},"optional":null}`
}

// signTag adds signatures in the format that cosign used until version 2. The parameter payload is the text that is
// signed. The parameter stored is the text that is pushed to the registry as the payload. A test forges a signature by
// passing different texts in the parameters payload and stored.
func (g *signing) signTag(repo, digest string, by []string, payload, stored string) {
	g.Helper()
	var layers []v1.Descriptor
	for _, name := range by {
		layer := layerOfBytes(g.T, g.s, repo, []byte(stored), "")
		layer.MediaType = wantSimpleSigningType
		layer.Annotations = map[string]string{wantSignatureAnnotation: base64.StdEncoding.EncodeToString(
			g.bytesBy(name, []byte(payload)))}
		layers = append(layers, layer)
	}
	putImage(g.T, g.s, repo, strings.Replace(digest, ":", "-", 1)+".sig", []byte("{}"), layers...)
}

// cosignTag signs the component version with the given keys, in the format of cosign with a tag that ends with ".sig".
func (g *signing) cosignTag(by ...string) {
	g.Helper()
	payload := simpleSigning("cosign container image signature", g.digest)
	g.signTag(g.repo, g.digest, by, payload, payload)
}

// statement returns the in-toto statement that a bundle signs.
func statement(predicate, digest string) string {
	return `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":"` + strings.TrimPrefix(
		digest, "sha256:") + `"}}],"predicateType":"` + predicate + `","predicate":{}}`
}

// bundle returns a Sigstore bundle that signs a statement. material is its verification material.
func (g *signing) bundle(by, text, material string) []byte {
	g.Helper()
	value := g.bytesBy(by, dsse.PAE(wantStatementType, []byte(text)))
	encode := base64.StdEncoding.EncodeToString
	return []byte(`{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":` +
		material + `,"unknown":1,` +
		`"dsseEnvelope":{"payload":"` + encode([]byte(text)) + `","payloadType":"` + wantStatementType +
		`","signatures":[{"sig":"` + encode(value) + `"}]}}`)
}

const publicKey = `{"publicKey":{"hint":"x"}}`

// refer stores an artefact that contains a Sigstore bundle, and whose field "subject" refers to the component version.
// If the parameter list is true, refer also stores a list of all referrers under a tag, as clients do if the registry
// does not support the referrers API.
func (g *signing) refer(bundle []byte, list bool, annotations map[string]string) {
	g.Helper()
	layer := layerOfBytes(g.T, g.s, g.repo, bundle, "")
	layer.MediaType = bundleV3
	subject, err := v1.NewHash(g.digest)
	if err != nil {
		g.Fatal(err)
	}
	config := layerOfBytes(g.T, g.s, g.repo, []byte("{}"), "")
	config.MediaType = "application/vnd.oci.empty.v1+json"
	raw, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": types.OCIManifestSchema1,
		"artifactType": bundleV3, "config": config,
		"layers": []v1.Descriptor{layer}, "subject": v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: subject,
			Size: int64(len(g.raw))}, "annotations": annotations})
	if err != nil {
		g.Fatal(err)
	}
	digest, err := v1.NewHash(send(g.T, http.MethodPut, g.s.URL+"/v2/"+g.repo+"/manifests/"+ocm.DigestOf(raw), raw))
	if err != nil {
		g.Fatal(err)
	}
	if !list {
		return
	}
	index, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex,
		Manifests: []v1.Descriptor{
			{MediaType: types.OCIManifestSchema1, Digest: digest, Size: int64(len(raw)), ArtifactType: bundleV3,
				Annotations: annotations}}})
	if err != nil {
		g.Fatal(err)
	}
	request, err := http.NewRequest(http.MethodPut, g.s.URL+"/v2/"+g.repo+"/manifests/"+strings.Replace(
		g.digest, ":", "-", 1), bytes.NewReader(index))
	if err != nil {
		g.Fatal(err)
	}
	request.Header.Set("Content-Type", string(types.OCIImageIndex))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		g.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		g.Fatal(response.Status)
	}
}

const bundleV3 = "application/vnd.dev.sigstore.bundle.v0.3+json"

// TestSignatures signs a component version in each of the supported ways. Each component version is read in mode
// enforce and in mode warn.
func TestSignatures(t *testing.T) {
	referrers := []fake.Option{fake.WithReferrersSupport(true)}
	good := func(g *signing) string { return simpleSigning("cosign container image signature", g.digest) }
	for name, tc := range map[string]struct {
		reason  string
		options []fake.Option
		keys    []string
		sign    func(*signing)
		want    trust.Signature
		fails   string // the reason under enforce
		text    string // in the error
	}{
		"None": {
			reason: "nothing is signed",
			keys:   []string{"rsa", "p256"},
			sign:   func(*signing) {},
			want:   trust.Signature{},
			fails:  ocm.SignatureMissing,
			text:   "keys tried: rsa SHA256:",
		},
		"OCMv1": {
			keys: []string{"rsa"},
			sign: func(g *signing) { g.signOCM("rsa", wantNormalisation1, "SHA-256", "RSASSA-PKCS1-V1_5") },
			want: trust.Signature{Verified: true, Key: "rsa", Kind: trust.KindOCM, Problem: ""},
		},
		"OCMv2": {
			keys: []string{"p256", "rsa"},
			sign: func(g *signing) { g.signOCM("rsa", wantNormalisation2, "SHA-512", "RSASSA-PKCS1-V1_5") },
			want: trust.Signature{Verified: true, Key: "rsa", Kind: trust.KindOCM, Problem: ""},
		},
		"OCMv3": {
			keys: []string{"rsa"},
			sign: func(g *signing) { g.signOCM("rsa", wantNormalisation3, "SHA-256", "RSASSA-PSS") },
			want: trust.Signature{Verified: true, Key: "rsa", Kind: trust.KindOCM, Problem: ""},
		},
		"OCMv4": {
			keys: []string{"rsa"},
			sign: func(g *signing) { g.signOCM("rsa", wantNormalisation4alpha1, "SHA-256", "RSASSA-PKCS1-V1_5 PEM") },
			want: trust.Signature{Verified: true, Key: "rsa", Kind: trust.KindOCM, Problem: ""},
		},
		"OCMPEMPSS": {
			keys: []string{"rsa"},
			sign: func(g *signing) { g.signOCM("rsa", wantNormalisation2, "SHA-256", "RSASSA-PSS PEM") },
			want: trust.Signature{Verified: true, Key: "rsa", Kind: trust.KindOCM, Problem: ""},
		},
		"OCMOtherKey": {
			keys:  []string{"rsa"},
			sign:  func(g *signing) { g.signOCM("rsa-other", wantNormalisation2, "SHA-256", "RSASSA-PSS") },
			want:  trust.Signature{},
			fails: ocm.SignatureInvalid,
			text:  "by another key",
		},
		"OCMNoRSAKey": {
			keys:  []string{"p256"},
			sign:  func(g *signing) { g.signOCM("rsa", wantNormalisation2, "SHA-256", "RSASSA-PSS") },
			want:  trust.Signature{},
			fails: ocm.SignatureInvalid,
			text:  "the rule has none",
		},
		"OCMSecond": {reason: "one valid signature suffices", keys: []string{"rsa"}, sign: func(g *signing) {
			g.signOCM("rsa-other", wantNormalisation2, "SHA-256", "RSASSA-PSS")
			g.signOCM("rsa", wantNormalisation2, "SHA-256", "RSASSA-PSS")
		}, want: trust.Signature{Verified: true, Key: "rsa", Kind: trust.KindOCM, Problem: ""}},
		"OCMForm": {reason: "what cannot be understood is not valid", keys: []string{"rsa"}, sign: func(g *signing) {
			g.signOCM("rsa", wantNormalisation2, "SHA-256", "RSASSA-PSS")
			g.replaceInSignatures("jsonNormalisation/v2", "jsonNormalisation/v9")
		}, want: trust.Signature{}, fails: ocm.SignatureInvalid, text: "v9"},
		"OCMAlgorithm": {keys: []string{"rsa"}, sign: func(g *signing) {
			g.signOCM("rsa", wantNormalisation2, "SHA-256", "RSASSA-PSS")
			g.replaceInSignatures("RSASSA-PSS", "sigstore")
		}, want: trust.Signature{}, fails: ocm.SignatureInvalid, text: `"sigstore"`},
		"OCMMediaType": {keys: []string{"rsa"}, sign: func(g *signing) {
			g.signOCM("rsa", wantNormalisation2, "SHA-256", "RSASSA-PSS")
			g.replaceInSignatures(wantPssType, "application/vnd.ocm.signature.gpg")
		}, want: trust.Signature{}, fails: ocm.SignatureInvalid, text: "gpg"},
		"OCMTampered": {keys: []string{"rsa"}, sign: func(g *signing) {
			g.signOCM("rsa", wantNormalisation2, "SHA-256", "RSASSA-PSS")
			g.changeDescriptor(func(d map[string]any) { resourcesOf(d)[0]["version"] = "6.6.6" })
		}, want: trust.Signature{}, fails: ocm.SignatureInvalid, text: "not the one that was signed"},
		"OCMMoved": {reason: "where a layer lies is not signed, so its digest decides",
			keys: []string{"rsa"}, sign: func(g *signing) {
				evil := putBlob(g.T, g.s, g.repo, []byte("evil"))
				g.signOCM("rsa", wantNormalisation2, "SHA-256", "RSASSA-PSS")
				g.changeDescriptor(func(d map[string]any) {
					resourcesOf(d)[2]["access"].(map[string]any)["localReference"] = evil
				})
			}, want: trust.Signature{}, fails: ocm.SignatureInvalid, text: "was changed after signing"},
		"OCMNoDigest": {reason: "a layer without digest is not covered", keys: []string{"rsa"}, sign: func(g *signing) {
			g.changeDescriptor(func(d map[string]any) { delete(resourcesOf(d)[2], "digest") })
			g.signOCM("rsa", wantNormalisation2, "SHA-256", "RSASSA-PSS")
		}, want: trust.Signature{}, fails: ocm.SignatureInvalid, text: `content of resource "raw-manifest"`},
		"OCMExcluded": {reason: "a layer may be left out of the signature, but then it may not be installed",
			keys: []string{"rsa"}, sign: func(g *signing) {
				g.changeDescriptor(func(d map[string]any) {
					resourcesOf(d)[2]["digest"] = map[string]any{"hashAlgorithm": "NO-DIGEST",
						"normalisationAlgorithm": "EXCLUDE-FROM-SIGNATURE", "value": "NO-DIGEST"}
				})
				g.signOCM("rsa", wantNormalisation2, "SHA-256", "RSASSA-PSS")
			}, want: trust.Signature{}, fails: ocm.SignatureInvalid, text: `content of resource "raw-manifest"`},
		"OCMNoneAccess": {reason: "access is not signed, so a trick with its type must not free the digest",
			keys: []string{"rsa"}, sign: func(g *signing) {
				g.changeDescriptor(func(d map[string]any) {
					resourcesOf(d)[2]["access"] = map[string]any{"type": "none"}
					resourcesOf(d)[2]["name"] = "other"
				})
				g.signOCM("rsa", wantNormalisation2, "SHA-256", "RSASSA-PSS")
				evil := putBlob(g.T, g.s, g.repo, []byte("evil"))
				g.changeDescriptor(func(d map[string]any) {
					resourcesOf(d)[2]["access"] = map[string]any{"type": "localBlob", "localReference": evil}
					resourcesOf(d)[2]["digest"] = map[string]any{"hashAlgorithm": "SHA-256",
						"normalisationAlgorithm": ocm.GenericBlobDigest, "value": strings.TrimPrefix(evil, "sha256:")}
				})
			}, want: trust.Signature{}, fails: ocm.SignatureInvalid, text: "not the one that was signed"},
		"OCMImage": {keys: []string{"rsa"}, sign: func(g *signing) {
			g.changeDescriptor(func(d map[string]any) { delete(resourcesOf(d)[0], "digest") })
			g.signOCM("rsa", wantNormalisation2, "SHA-256", "RSASSA-PSS")
		}, want: trust.Signature{}, fails: ocm.SignatureInvalid, text: "content of image"},
		"OCMCase": {reason: "a field in other letters must not be read", keys: []string{"rsa"}, sign: func(g *signing) {
			g.signOCM("rsa", wantNormalisation2, "SHA-256", "RSASSA-PSS")
			g.changeText(func(text []byte) []byte {
				return append(bytes.Replace(text, []byte("\n  resources:"),
					[]byte("\n  Resources: [{name: raw-manifest, access: {type: localBlob, localReference: \"sha256:"+
						strings.Repeat("00", 32)+"\"}}]\n  resources:"), 1), '\n')
			})
		}, want: trust.Signature{Verified: true, Key: "rsa", Kind: trust.KindOCM, Problem: ""}},
		"Cosign": {
			keys: []string{"p256-other", "p256"},
			sign: func(g *signing) { g.cosignTag("p256") },
			want: trust.Signature{Verified: true, Key: "p256", Kind: trust.KindCosign, Problem: ""},
		},
		"CosignP384": {
			keys: []string{"p384"},
			sign: func(g *signing) { g.cosignTag("p384") },
			want: trust.Signature{Verified: true, Key: "p384", Kind: trust.KindCosign, Problem: ""},
		},
		"CosignRSA": {
			keys: []string{"rsa"},
			sign: func(g *signing) { g.cosignTag("rsa") },
			want: trust.Signature{Verified: true, Key: "rsa", Kind: trust.KindCosign, Problem: ""},
		},
		"CosignEd25519": {
			keys: []string{"ed25519"},
			sign: func(g *signing) { g.cosignTag("ed25519") },
			want: trust.Signature{Verified: true, Key: "ed25519", Kind: trust.KindCosign, Problem: ""},
		},
		"CosignSecond": {
			reason: "one valid signature suffices",
			keys:   []string{"p256"},
			sign:   func(g *signing) { g.cosignTag("rsa", "p256-other", "p256") },
			want:   trust.Signature{Verified: true, Key: "p256", Kind: trust.KindCosign, Problem: ""},
		},
		"CosignAfterOCM": {
			reason: "either kind suffices",
			keys:   []string{"p256"},
			sign: func(g *signing) {
				g.signOCM("rsa", wantNormalisation2, "SHA-256", "RSASSA-PSS")
				g.cosignTag(
					"p256")
			},
			want: trust.Signature{Verified: true, Key: "p256", Kind: trust.KindCosign, Problem: ""},
		},
		"CosignOtherKey": {
			keys:  []string{"p256"},
			sign:  func(g *signing) { g.cosignTag("p256-other") },
			want:  trust.Signature{},
			fails: ocm.SignatureInvalid,
			text:  "by another key",
		},
		"CosignTampered": {
			keys:  []string{"p256"},
			sign:  func(g *signing) { g.signTag(g.repo, g.digest, []string{"p256"}, "x", good(g)) },
			want:  trust.Signature{},
			fails: ocm.SignatureInvalid,
			text:  "payload was changed",
		},
		"CosignOther": {reason: "a signature of something else under the tag of this one",
			keys: []string{"p256"}, sign: func(g *signing) {
				p := simpleSigning("cosign container image signature", ocm.DigestOf(nil))
				g.signTag(g.repo, g.digest, []string{"p256"}, p, p)
			}, want: trust.Signature{}, fails: ocm.SignatureInvalid, text: "not this artefact"},
		"CosignType": {keys: []string{"p256"}, sign: func(g *signing) {
			p := simpleSigning("something", g.digest)
			g.signTag(g.repo, g.digest, []string{"p256"}, p, p)
		}, want: trust.Signature{}, fails: ocm.SignatureInvalid, text: `"something"`},
		"CosignChanged": {
			reason: "the component version was replaced after signing",
			keys:   []string{"p256"},
			sign: func(g *signing) {
				g.cosignTag("p256")
				g.changeDescriptor(func(
					d map[string]any) {
					d["x"] = "y"
				})
			},
			want:  trust.Signature{},
			fails: ocm.SignatureMissing,
			text:  "no signature",
		},
		"CosignMany": {reason: "there is an end to looking", keys: []string{"p256"}, sign: func(g *signing) {
			g.cosignTag(append(slices.Repeat([]string{"p256-other"}, trust.MaxSignatures), "p256")...)
		}, want: trust.Signature{}, fails: ocm.SignatureInvalid, text: "another key"},
		"CosignLarge": {keys: []string{"p256"}, sign: func(g *signing) {
			g.signTag(g.repo, g.digest, []string{"p256"}, "x", strings.Repeat("x", wantMaxSignatureBytes+1))
		}, want: trust.Signature{}, fails: ocm.SignatureInvalid, text: "larger than"},
		"Bundle": {options: referrers, keys: []string{"p256"}, sign: func(g *signing) {
			g.refer(g.bundle("p256", statement(wantSignPredicate, g.digest), publicKey), false, nil)
		}, want: trust.Signature{Verified: true, Key: "p256", Kind: trust.KindCosign, Problem: ""}},
		"BundleListed": {reason: "where the registry has no list, clients keep one",
			keys: []string{"p256"}, sign: func(g *signing) {
				g.refer(g.bundle("p256", statement(wantSignPredicate, g.digest), publicKey), true,
					map[string]string{wantPredicateAnnotation: wantSignPredicate})
			}, want: trust.Signature{Verified: true, Key: "p256", Kind: trust.KindCosign, Problem: ""}},
		"BundleOtherKey": {options: referrers, keys: []string{"p256"}, sign: func(g *signing) {
			g.refer(g.bundle("p256-other", statement(wantSignPredicate, g.digest), publicKey), false, nil)
		}, want: trust.Signature{}, fails: ocm.SignatureInvalid, text: "by another key"},
		"BundleKeyless": {options: referrers, keys: []string{"p256"}, sign: func(g *signing) {
			g.refer(g.bundle("p256-other", statement(wantSignPredicate, g.digest),
				`{"certificate":{"rawBytes":"eA=="}}`), false, nil)
		}, want: trust.Signature{}, fails: ocm.SignatureInvalid, text: "keyless"},
		"BundleOther": {options: referrers, keys: []string{"p256"}, sign: func(g *signing) {
			g.refer(g.bundle("p256", statement(wantSignPredicate, ocm.DigestOf(nil)), publicKey), false, nil)
		}, want: trust.Signature{}, fails: ocm.SignatureInvalid, text: "signs another artefact"},
		"Attestation": {reason: "a bill of materials is no consent", options: referrers,
			keys: []string{"p256"}, sign: func(g *signing) {
				g.refer(g.bundle("p256", statement("https://spdx.dev/Document", g.digest), publicKey), false, nil)
			}, want: trust.Signature{}, fails: ocm.SignatureInvalid, text: "spdx.dev"},
		"AttestationNote": {keys: []string{"p256"}, sign: func(g *signing) {
			g.refer(g.bundle("p256", statement("https://spdx.dev/Document", g.digest), publicKey), true,
				map[string]string{wantPredicateAnnotation: "https://spdx.dev/Document"})
		}, want: trust.Signature{}, fails: ocm.SignatureMissing, text: "no signature"},
		"BundleDamaged": {
			options: referrers,
			keys:    []string{"p256"},
			sign:    func(g *signing) { g.refer([]byte("{"), false, nil) },
			want:    trust.Signature{},
			fails:   ocm.SignatureInvalid,
			text:    "not a Sigstore bundle",
		},
		"BundleEmpty": {
			options: referrers,
			keys:    []string{"p256"},
			sign:    func(g *signing) { g.refer([]byte(`{"mediaType":"`+bundleV3+`"}`), false, nil) },
			want:    trust.Signature{},
			fails:   ocm.SignatureInvalid,
			text:    "no signature",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newSigning(t, tc.options...)
			tc.sign(g)
			r, _ := openRegistry(t, Options{Host: "http://" + g.s.host(),
				Trust: trustPolicy(t, policyText(trust.Enforce, tc.keys...))})
			c, err := r.Component(t.Context(), component, "1.2.3")
			warned, _ := openRegistry(t, Options{Host: "http://" + g.s.host(),
				Trust: trustPolicy(t, policyText(trust.Warn, tc.keys...))})
			w, warnErr := warned.Component(t.Context(), component, "1.2.3")
			if warnErr != nil {
				t.Fatalf("%s: under warn: %v", tc.reason, warnErr)
			}
			if tc.fails != "" {
				wantReason(t, err, tc.fails)
				if err == nil || !strings.Contains(err.Error(), tc.text) ||
					!strings.Contains(w.Signature.Problem, tc.text) || w.Signature.Verified {
					t.Errorf("%s: got %v and %+v, want %s", tc.reason, err, w.Signature, tc.text)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff([]trust.Signature{tc.want, tc.want},
				[]trust.Signature{c.Signature, w.Signature}); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.reason, diff)
			}
			if data, _, err := r.Fetch(t.Context(), c.Layers["raw-manifest"]); err != nil ||
				!strings.Contains(string(data), "ConfigMap") {
				t.Errorf("%s: got %q, %v", tc.reason, data, err)
			}
		})
	}
}

// replaceInSignatures replaces a text in the signatures that are in the descriptor.
func (g *signing) replaceInSignatures(old, changed string) {
	g.Helper()
	g.changeText(func(text []byte) []byte {
		before, after, _ := bytes.Cut(text, []byte("\nsignatures:"))
		return slices.Concat(before, []byte("\nsignatures:"), bytes.ReplaceAll(after, []byte(old), []byte(changed)))
	})
}

// TestSignedImages checks that only signed images are used if the descriptor of the component is signed.
func TestSignedImages(t *testing.T) {
	g := newSigning(t)
	g.signOCM("rsa", wantNormalisation2, "SHA-256", "RSASSA-PSS")
	g.changeDescriptor(func(d map[string]any) {
		resourcesOf(d)[0]["access"].(map[string]any)["imageReference"] = "evil.io/op:1.2.3"
	})
	r, _ := openRegistry(t, Options{Host: "http://" + g.s.host(), Trust: trustPolicy(t, policyText(trust.Enforce, "rsa"))})
	c, err := r.Component(t.Context(), component, "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	digest := "@sha256:" + strings.Repeat("ab", 32)
	if diff := cmp.Diff([]string{"evil.io/op:1.2.3" + digest, "r.io/side" + digest}, c.Images); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	hex := strings.Repeat("ab", 32)
	for name, tc := range map[string]struct {
		reference string
		digest    *ocm.ElementDigest
		want      string
	}{
		"None": {"r.io/a:1", nil, ""},
		"Artefact": {"r.io/a:1", &ocm.ElementDigest{HashAlgorithm: "SHA-256",
			NormalisationAlgorithm: "ociArtifactDigest/v1", Value: strings.ToUpper(hex)}, "r.io/a:1@sha256:" + hex},
		"Other": {"r.io/a@sha256:" + strings.Repeat("00", 32),
			&ocm.ElementDigest{HashAlgorithm: "SHA-256", NormalisationAlgorithm: "ociArtifactDigest/v1", Value: hex},
			""},
		"Blob": {"r.io/a:1@sha256:" + hex, &ocm.ElementDigest{HashAlgorithm: "SHA-256",
			NormalisationAlgorithm: ocm.GenericBlobDigest, Value: hex}, "r.io/a:1@sha256:" + hex},
		"BlobNoPin": {"r.io/a:1", &ocm.ElementDigest{HashAlgorithm: "SHA-256",
			NormalisationAlgorithm: ocm.GenericBlobDigest, Value: hex}, ""},
		"Hash": {"r.io/a:1", &ocm.ElementDigest{HashAlgorithm: "SHA-512",
			NormalisationAlgorithm: "ociArtifactDigest/v1", Value: hex + hex}, ""},
		"Short": {"r.io/a:1", &ocm.ElementDigest{HashAlgorithm: "SHA-256",
			NormalisationAlgorithm: "ociArtifactDigest/v1", Value: "ab"}, ""},
		"Excluded": {"r.io/a:1", &ocm.ElementDigest{HashAlgorithm: "NO-DIGEST",
			NormalisationAlgorithm: "EXCLUDE-FROM-SIGNATURE", Value: "NO-DIGEST"}, ""},
	} {
		got, ok := signedImage(tc.reference, tc.digest)
		if ok != (tc.want != "") || ok && got != tc.want {
			t.Errorf("%s: got %q, %t, want %q", name, got, ok, tc.want)
		}
	}
}

// TestSignedAccessChanged changes the access of resources after signing, which the signature does not cover. No change
// may leave out a signed layer, or an image that is then not pinned.
func TestSignedAccessChanged(t *testing.T) {
	hex := strings.Repeat("ab", 32)
	at := func(reference string) string { return reference + "@sha256:" + hex }
	usual := []string{at("europe-docker.pkg.dev/p/op:1.2.3"), at("r.io/side")}
	layer := ocm.DigestOf(tarredSample(t))
	image := func(reference string) map[string]any {
		return map[string]any{"type": "ociArtifact", "imageReference": reference}
	}
	for name, tc := range map[string]struct {
		resource int // 0 is the image op:1.2.3, 2 is the layer raw-manifest
		version  string
		access   map[string]any
		want     []string // images; nil means that the component is refused
	}{
		"Same":      {0, "", image("europe-docker.pkg.dev/p/op:1.2.3"), usual},
		"OtherHost": {0, "", image("m.io/op:1.2.3"), []string{at("m.io/op:1.2.3"), usual[1]}},
		"OtherTag":  {0, "", image("r.io/op:9"), []string{at("r.io/op:9"), at("r.io/op:1.2.3"), usual[1]}},
		"OtherName": {0, "", image("r.io/x:1.2.3"), []string{at("r.io/x:1.2.3"), at("r.io/op:1.2.3"), usual[1]}},
		"NoTag":     {0, "", image(at("m.io/op")), []string{at("m.io/op"), at("m.io/op:1.2.3"), usual[1]}},
		"TagNoVersion": {0, "0.0.0-v2024-ab", image("r.io/op:v2024-ab"),
			[]string{at("r.io/op:v2024-ab"), at("r.io/op:0.0.0-v2024-ab"), usual[1]}},
		"OtherTagNoVersion": {0, "0.0.0-v2024-ab", image("r.io/op:9"), []string{at("r.io/op:9"),
			at("r.io/op:0.0.0-v2024-ab"), at("r.io/op:v2024-ab"), usual[1]}},
		"NoTagVersion": {0, "not a tag", image("r.io/op:9"), []string{at("r.io/op:9"), usual[1]}},
		"ImageType": {0, "", map[string]any{"type": "OCIImage/v1", "imageReference": "m.io/op:1.2.3"},
			[]string{at("m.io/op:1.2.3"), usual[1]}},
		"NoReference":     {0, "", map[string]any{"type": "ociArtifact"}, nil},
		"ImageToLayer":    {0, "", map[string]any{"type": "localBlob", "localReference": layer}, nil},
		"ImageToNothing":  {0, "", map[string]any{"type": "NONE"}, nil},
		"ImageToNothing1": {0, "", map[string]any{"type": "none/v1"}, nil},
		"ImageToNone":     {0, "", map[string]any{"type": "none"}, nil}, // the signature breaks
		"LayerToNothing":  {2, "", map[string]any{"type": "NONE"}, nil},
		"LayerToImage":    {2, "", image("r.io/x@" + layer), nil},
		"LayerToImage1":   {2, "", map[string]any{"type": "ociImage"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := newSigning(t)
			if tc.version != "" {
				g.changeDescriptor(func(d map[string]any) { resourcesOf(d)[0]["version"] = tc.version })
			}
			g.signOCM("rsa", wantNormalisation2, "SHA-256", "RSASSA-PSS")
			g.changeDescriptor(func(d map[string]any) { resourcesOf(d)[tc.resource]["access"] = tc.access })
			r, _ := openRegistry(t, Options{Host: "http://" + g.s.host(),
				Trust: trustPolicy(t, policyText(trust.Enforce, "rsa"))})
			c, err := r.Component(t.Context(), component, "1.2.3")
			if tc.want == nil {
				wantReason(t, err, ocm.SignatureInvalid)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, c.Images); diff != "" || !c.Signature.Verified {
				t.Errorf("verified %t, images (-want +got)\n%s", c.Signature.Verified, diff)
			}
		})
	}
}

// TestSignedSHA512 checks a layer that is signed with a SHA-512 digest, whereas the registry addresses the layer by its
// SHA-256 digest. A layer with the signed SHA-512 digest must be accepted, and a changed layer must be refused.
func TestSignedSHA512(t *testing.T) {
	for name, content := range map[string]string{"Good": manifestYAML, "Changed": "evil"} {
		g := newSigning(t)
		h := crypto.SHA512.New()
		_, _ = h.Write(tarredSample(t))
		g.changeDescriptor(func(d map[string]any) {
			resourcesOf(d)[2]["digest"] = map[string]any{"hashAlgorithm": "SHA-512",
				"normalisationAlgorithm": ocm.GenericBlobDigest, "value": hex.EncodeToString(h.Sum(nil))}
		})
		g.signOCM("rsa", wantNormalisation2, "SHA-512", "RSASSA-PSS")
		if name == "Changed" {
			evil := putBlob(t, g.s, g.repo, []byte(content))
			g.changeDescriptor(func(d map[string]any) {
				resourcesOf(d)[2]["access"].(map[string]any)["localReference"] = evil
			})
		}
		r, _ := openRegistry(t, Options{Host: "http://" + g.s.host(), Trust: trustPolicy(t, policyText(trust.Enforce, "rsa"))})
		_, err := r.Component(t.Context(), component, "1.2.3")
		if name == "Good" && err != nil {
			t.Error(err)
		}
		if name == "Changed" {
			wantReason(t, err, ocm.SignatureInvalid)
		}
	}
}

func tarredSample(t *testing.T) []byte {
	t.Helper()
	data, err := ocm.TarFile("sample.yaml", 0o644, []byte(manifestYAML))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestLayersByHand fetches layers whose fields a person wrote into a Manifest.
func TestLayersByHand(t *testing.T) {
	g := newSigning(t)
	g.cosignTag("p256")
	signed := ocm.DigestOf(tarredSample(t))
	unsigned := putBlob(t, g.s, g.repo, []byte("evil"))
	putBlob(t, g.s, "charts/a", []byte("evil"))
	putImage(t, g.s, "charts/a", "1.0.0", []byte("{}"), layerOfBytes(t, g.s, "charts/a", []byte("evil"), ""))
	putImage(t, g.s, "charts/b", "1.0.0", []byte("{}"), layerOfBytes(t, g.s, "charts/b", []byte("good"), ""))
	signedImage := &signing{T: t, s: g.s, repo: "charts/b"}
	digest := ocm.DigestOf(signedImage.get("manifests/1.0.0"))
	payload := simpleSigning("cosign container image signature", digest)
	g.signTag("charts/b", digest, []string{"p256"}, payload, payload)
	for name, tc := range map[string]struct {
		reason string
		layer  Layer
		fails  string
		text   string
	}{
		"Named": {"a signed component version names it",
			Layer{Component: component, Version: "1.2.3", Ref: signed}, "", ""},
		"NoVersion": {"nothing says who names it", Layer{Component: component, Ref: signed}, ocm.SignatureMissing,
			"states no component version"},
		"Version": {"there is no such version", Layer{Component: component, Version: "6.6.6", Ref: signed},
			ocm.SignatureMissing, "component version 6.6.6 does not exist"},
		"Unnamed": {"the signed version does not name it", Layer{Component: component, Version: "1.2.3",
			Ref: unsigned}, ocm.SignatureInvalid, "no such layer"},
		"Elsewhere": {"it lies where no component version is", Layer{Component: "charts/a", Version: "1.2.3",
			Ref: ocm.DigestOf([]byte("evil"))}, ocm.SignatureMissing, "component version 1.2.3 does not exist"},
		"Tag": {"a tag of a signed component version",
			Layer{Name: "raw-manifest", Component: component, Ref: "1.2.3"}, "", ""},
		"TagResource": {"of which there is no such resource",
			Layer{Name: "nothing", Component: component, Ref: "1.2.3"}, ocm.SignatureInvalid, `no resource "nothing"`},
		"TagUnsigned": {"a tag of an image that is not signed", Layer{Component: "charts/a", Ref: "1.0.0"},
			ocm.SignatureMissing, "keys tried"},
		"TagSigned": {"a tag of an image that is", Layer{Component: "charts/b", Ref: "1.0.0"}, "", ""},
		"TagDigest": {"its layer by digest has no one to name it",
			Layer{Component: "charts/b", Ref: ocm.DigestOf([]byte("good"))}, ocm.SignatureMissing,
			"states no component version"},
		"TagNotThere": {"", Layer{Component: "charts/c", Ref: "1.0.0"}, ocm.ArtifactNotFound, ""},
		"ByPath": {"the folder of descriptors in the name of the component makes no difference",
			Layer{Component: "component-descriptors/" + component, Ref: signed}, ocm.SignatureMissing,
			"states no component version"},
		"BadReference": {"", Layer{Component: component, Ref: "sha256:12"}, ocm.InvalidReference, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range []trust.Mode{trust.Enforce, trust.Warn, trust.Off} {
				r, _ := openRegistry(t, Options{Host: "http://" + g.s.host(), Trust: trustPolicy(t, policyText(mode, "p256"))})
				sig, verr := r.Verify(t.Context(), tc.layer)
				data, digest, err := r.Fetch(t.Context(), tc.layer)
				policyFails := slices.Contains([]string{ocm.SignatureMissing, ocm.SignatureInvalid}, tc.fails)
				switch {
				case mode == trust.Enforce && tc.fails != "":
					wantReason(t, verr, tc.fails)
					wantReason(t, err, tc.fails)
					if err == nil || !strings.Contains(err.Error(), tc.text) || data != nil {
						t.Errorf("%s: got %v and %q", tc.reason, err, data)
					}
				case tc.fails == "" || policyFails && name != "TagResource" && name != "ByPath":
					if err != nil || digest != ocm.DigestOf(data) || verr != nil {
						t.Errorf("%s, %s: got %v, %v", tc.reason, mode, err, verr)
					}
				}
				if want := mode != trust.Off && tc.fails == ""; sig.Verified != want ||
					(sig.Problem != "") != (mode == trust.Warn && verr == nil && tc.fails != "") {
					t.Errorf("%s, %s: got %+v", tc.reason, mode, sig)
				}
			}
		})
	}
}

// TestVerifiedOnce counts the requests to the registry. All callers together must read a signature only once, until the
// policy changes.
func TestVerifiedOnce(t *testing.T) {
	g := newSigning(t)
	g.cosignTag("p256")
	file := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(policyText(trust.Enforce, "p256"))
	policyClock := &clock{t: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	tr, err := trust.LoadWithClock(file, nil, policyClock.now)
	if err != nil {
		t.Fatal(err)
	}
	r, c := openRegistry(t, Options{Host: "http://" + g.s.host(), Trust: tr})
	layer := Layer{Component: component, Version: "1.2.3", Ref: ocm.DigestOf(tarredSample(t))}
	fetch := func() (int, error) {
		g.s.takeRequests()
		_, _, err := r.Fetch(t.Context(), layer)
		return len(g.s.takeRequests()), err
	}
	if n, err := fetch(); err != nil || n == 0 || n > 9 {
		t.Errorf("first: %d requests, %v", n, err)
	}
	if n, err := fetch(); err != nil || n != 0 {
		t.Errorf("again: %d requests, %v", n, err)
	}
	other := r.WithKeychain(anonymous{})
	g.s.takeRequests()
	if _, err := other.Verify(t.Context(), layer); err != nil || len(g.s.takeRequests()) > 0 {
		t.Errorf("with another login: %v", err)
	}
	write(policyText(trust.Enforce, "p256-other"))
	policyClock.forward(wantPolicyPeriod)
	_, err = fetch()
	wantReason(t, err, ocm.SignatureInvalid)
	if n, err := fetch(); reason(err) != ocm.SignatureInvalid || n != 0 {
		t.Errorf("refused again: %d requests, %v", n, err)
	}
	c.forward(errorCachePeriod)
	if n, err := fetch(); reason(err) != ocm.SignatureInvalid || n == 0 {
		t.Errorf("a refusal is remembered for too long: %d requests, %v", n, err)
	}
	write("rules: [")
	policyClock.forward(wantPolicyPeriod)
	if _, err := fetch(); reason(err) != ocm.SignatureInvalid {
		t.Errorf("a damaged policy lets pass: %v", err)
	}
	write(policyText(trust.Off))
	policyClock.forward(wantPolicyPeriod)
	if _, err := fetch(); err != nil {
		t.Errorf("switched off: %v", err)
	}
	// After the mode changes from off to enforce, a layer that was fetched without verification must be verified,
	// although it is cached.
	write(policyText(trust.Enforce, "rsa"))
	policyClock.forward(wantPolicyPeriod)
	_, err = fetch()
	wantReason(t, err, ocm.SignatureInvalid)

	// After a restart, the caches are empty, and the result must be the same.
	write(policyText(trust.Enforce, "p256"))
	policyClock.forward(wantPolicyPeriod)
	r, _ = openRegistry(t, Options{Host: "http://" + g.s.host(), Trust: tr})
	if _, err := fetch(); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}

// TestKeyRotation replaces the key of a policy in three steps: both keys are valid, the module is signed with the new
// key, and the old key is removed. When the old key is removed, an artefact that only the old key has signed must be
// refused, although it is cached.
func TestKeyRotation(t *testing.T) {
	g := newSigning(t)
	g.cosignTag("p256")
	file := filepath.Join(t.TempDir(), "policy.yaml")
	c := &clock{t: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	write := func(keys ...string) {
		if err := os.WriteFile(file, []byte(policyText(trust.Enforce, keys...)), 0o600); err != nil {
			t.Fatal(err)
		}
		c.forward(wantPolicyPeriod)
	}
	write("p256")
	tr, err := trust.LoadWithClock(file, nil, c.now)
	if err != nil {
		t.Fatal(err)
	}
	r, registryClock := openRegistry(t, Options{Host: "http://" + g.s.host(), Trust: tr})
	layer := Layer{Component: component, Version: "1.2.3", Ref: ocm.DigestOf(tarredSample(t))}
	steps := []struct {
		name string
		do   func()
		want string // reason of the refusal; empty means that the signature is valid
	}{
		{"OldKey", func() {}, ""},
		{"BothKeys", func() { write("p256", "p256-other") }, ""},
		{"OldKeyRemovedTooEarly", func() { write("p256-other") }, ocm.SignatureInvalid},
		{"BothKeysAgain", func() { write("p256", "p256-other") }, ""},
		{"SignedWithBoth", func() { g.cosignTag("p256", "p256-other") }, ""},
		{"OldKeyRemoved", func() { write("p256-other") }, ""},
	}
	for _, step := range steps {
		step.do()
		registryClock.forward(max(errorCachePeriod, tagCachePeriod))
		_, _, err := r.Fetch(t.Context(), layer)
		if step.want == "" && err != nil || step.want != "" && reason(err) != step.want {
			t.Errorf("%s: got %v, want reason %q", step.name, err, step.want)
		}
	}
}

// TestSignedLater signs a module after it was read for the first time.
func TestSignedLater(t *testing.T) {
	g := newSigning(t)
	strict, strictClock := openRegistry(t, Options{Host: "http://" + g.s.host(),
		Trust: trustPolicy(t, policyText(trust.Enforce, "p256"))})
	lax, laxClock := openRegistry(t, Options{Host: "http://" + g.s.host(),
		Trust: trustPolicy(t, policyText(trust.Warn, "p256"))})
	_, err := strict.Component(t.Context(), component, "1.2.3")
	wantReason(t, err, ocm.SignatureMissing)
	c, err := lax.Component(t.Context(), component, "1.2.3")
	if err != nil || c.Signature.Problem == "" {
		t.Errorf("got %+v, %v", c, err)
	}
	g.cosignTag("p256")
	strictClock.forward(errorCachePeriod)
	laxClock.forward(tagCachePeriod)
	for name, r := range map[string]*Registry{"enforce": strict, "warn": lax} {
		c, err := r.Component(t.Context(), component, "1.2.3")
		if err != nil || !c.Signature.Verified {
			t.Errorf("%s: got %+v, %v", name, c, err)
		}
	}
}

// TestManyVerify fetches one layer with many concurrent callers.
func TestManyVerify(t *testing.T) {
	g := newSigning(t)
	g.cosignTag("p256")
	r, _ := openRegistry(t, Options{Host: "http://registry.example.com", Transport: g.s.transport(t),
		Trust: trustPolicy(t, policyText(trust.Enforce, "p256"))})
	layer := Layer{Component: component, Version: "1.2.3", Ref: ocm.DigestOf(tarredSample(t))}
	g.s.takeRequests()
	var callers sync.WaitGroup
	var started sync.WaitGroup
	started.Add(100)
	g.s.setFault(func(http.ResponseWriter, *http.Request) bool { started.Wait(); return false })
	for range 100 {
		callers.Go(func() {
			started.Done()
			if s, err := r.Verify(t.Context(), layer); err != nil || !s.Verified {
				t.Errorf("got %+v, %v", s, err)
			}
		})
	}
	callers.Wait()
	if got := g.s.takeRequests(); len(got) > 7 {
		t.Errorf("100 callers cost %d requests: %v", len(got), got)
	}
}

// TestSignedTagMoves moves a tag to an artefact that is not signed.
func TestSignedTagMoves(t *testing.T) {
	g := newSigning(t)
	putImage(t, g.s, "charts/b", "1.0.0", []byte("{}"), layerOfBytes(t, g.s, "charts/b", []byte("good"), ""))
	at := &signing{T: t, s: g.s, repo: "charts/b"}
	digest := ocm.DigestOf(at.get("manifests/1.0.0"))
	payload := simpleSigning("cosign container image signature", digest)
	g.signTag("charts/b", digest, []string{"p256"}, payload, payload)
	r, c := openRegistry(t, Options{Host: "http://" + g.s.host(), Trust: trustPolicy(t, policyText(trust.Enforce, "p256"))})
	layer := Layer{Component: "charts/b", Ref: "1.0.0"}
	if data, _, err := r.Fetch(t.Context(), layer); err != nil || string(data) != "good" {
		t.Fatalf("got %q, %v", data, err)
	}
	c.forward(tagCachePeriod)
	g.s.takeRequests()
	if _, _, err := r.Fetch(t.Context(), layer); err != nil {
		t.Fatal(err)
	}
	for _, request := range g.s.takeRequests() {
		if strings.Contains(request, ".sig") {
			t.Errorf("verified again: %s", request)
		}
	}
	putImage(t, g.s, "charts/b", "1.0.0", []byte("{}"), layerOfBytes(t, g.s, "charts/b", []byte("evil"), ""))
	c.forward(tagCachePeriod)
	data, _, err := r.Fetch(t.Context(), layer)
	wantReason(t, err, ocm.SignatureMissing)
	if data != nil {
		t.Errorf("got %q", data)
	}
}

// TestRegistryDownWhileVerifying checks that a failure of the registry is not reported as a missing signature.
func TestRegistryDownWhileVerifying(t *testing.T) {
	g := newSigning(t)
	g.cosignTag("p256")
	g.s.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		down := strings.HasSuffix(r.URL.Path, ".sig")
		if down {
			w.WriteHeader(http.StatusBadGateway)
		}
		return down
	})
	r, c := openRegistry(t, Options{Host: "http://" + g.s.host(), Trust: trustPolicy(t, policyText(trust.Enforce, "p256"))})
	_, err := r.Component(t.Context(), component, "1.2.3")
	wantReason(t, err, ocm.RegistryUnreachable)
	g.s.setFault(nil)
	c.forward(errorCachePeriod)
	if _, err := r.Component(t.Context(), component, "1.2.3"); err != nil {
		t.Error(err)
	}
}

func TestVerifyUnsigned(t *testing.T) {
	for mode, want := range map[trust.Mode]string{trust.Enforce: ocm.SignatureMissing, trust.Warn: "", trust.Off: ""} {
		r, _ := openRegistry(t, Options{Host: "r.io", Trust: trustPolicy(t, policyText(mode, "p256"))})
		sig, err := r.CheckUnsignedSource("https://charts.example.com/stable", "it is a chart of a chart repository")
		if want != "" {
			wantReason(t, err, want)
		}
		if (err != nil) != (want != "") || (sig.Problem != "") != (mode == trust.Warn) || sig.Verified {
			t.Errorf("%s: got %+v, %v", mode, sig, err)
		}
	}
}
