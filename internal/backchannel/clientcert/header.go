package clientcert

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Header is the name of the HTTP header in which an ingress passes on the client certificate of a request.
const Header = "X-Forwarded-Client-Cert"

// ParseHeader parses the header X-Forwarded-Client-Cert in the format of Envoy. The header consists of elements,
// separated by commas: one element for each proxy that the request has passed. Each element of the header consists of
// pairs key=value, separated by semicolons. The value of a pair may be quoted. ParseHeader uses the first pair with the
// key Cert in the header. The value of Cert is a PEM block in URL encoding, with the client certificate. The value of
// Chain has the intermediate certificates, and may also contain the client certificate.
func ParseHeader(header string) (leaf *x509.Certificate, between []*x509.Certificate, err error) {
	if header == "" {
		return nil, nil, errors.New("it is missing")
	}
	cert, chain := firstCertAndChain(header)
	if cert == "" {
		return nil, nil, errors.New("it has no Cert")
	}
	list, err := parseURLEncodedPEM(cert)
	if err != nil {
		return nil, nil, fmt.Errorf("reading Cert: %w", err)
	}
	leaf = list[0]
	if chain == "" {
		return leaf, nil, nil
	}
	if between, err = parseURLEncodedPEM(chain); err != nil {
		return nil, nil, fmt.Errorf("reading Chain: %w", err)
	}
	if between[0].Equal(leaf) {
		between = between[1:]
	}
	return leaf, between, nil
}

// firstCertAndChain returns the first value of Cert in a header, and the value of Chain in the same element.
func firstCertAndChain(header string) (cert, chain string) {
	for rest := header; rest != ""; {
		key, value, after, end := nextPair(rest)
		switch {
		case key == "Cert" && cert == "":
			cert = value
		case key == "Chain" && chain == "":
			chain = value
		}
		if end {
			if cert != "" {
				return cert, chain
			}
			chain = ""
		}
		rest = after
	}
	return cert, chain
}

// nextPair splits off the first pair key=value of a header. A header consists of elements separated by commas, and an
// element of pairs separated by semicolons. The result "isElementEnd" is true if the pair is the last one of its
// element.
func nextPair(header string) (key, value, rest string, isElementEnd bool) {
	quoted := false
	stop := len(header)
scan:
	for i := 0; i < len(header); i++ {
		switch c := header[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ';' || c == ','):
			stop, isElementEnd = i, c == ','
			break scan
		}
	}
	pair := header[:stop]
	if stop < len(header) {
		rest = header[stop+1:]
	}
	key, value, _ = strings.Cut(pair, "=")
	return strings.TrimSpace(key), strings.Trim(strings.TrimSpace(value), `"`), rest, isElementEnd || rest == ""
}

// parseURLEncodedPEM parses a header value that contains PEM blocks in URL encoding. The value must contain at least
// one PEM block and at most MaxChain PEM blocks.
func parseURLEncodedPEM(encoded string) ([]*x509.Certificate, error) {
	text, err := url.QueryUnescape(encoded)
	if err != nil {
		return nil, errors.New("it is not in URL encoding")
	}
	var list []*x509.Certificate
	for rest := []byte(strings.Trim(text, `"`)); len(bytes.TrimSpace(rest)) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("a PEM block is %q, not a certificate", block.Type)
		}
		if len(list) == MaxChain {
			return nil, fmt.Errorf("it has more than %d certificates", MaxChain)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parsing a certificate: %w", err)
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, errors.New("it is not in PEM")
	}
	return list, nil
}

// FormatHeader returns a header X-Forwarded-Client-Cert as Envoy sets it in the mode SANITIZE_SET, in which Envoy
// replaces the header of its client.
func FormatHeader(chain [][]byte) string {
	var b strings.Builder
	sum := sha256.Sum256(chain[0])
	b.WriteString("Hash=" + hex.EncodeToString(sum[:]) + `;Cert="` + formatURLEncodedPEM(chain[:1]) + `"`)
	if len(chain) > 1 {
		b.WriteString(`;Chain="` + formatURLEncodedPEM(chain) + `"`)
	}
	return b.String()
}

// formatURLEncodedPEM formats certificates as PEM in URL encoding. A space is encoded as %20, which parsers of forms
// and parsers of paths both accept.
func formatURLEncodedPEM(chain [][]byte) string {
	var text bytes.Buffer
	for _, der := range chain {
		_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: der}) // writing to a buffer cannot fail
	}
	return strings.ReplaceAll(url.QueryEscape(text.String()), "+", "%20")
}
