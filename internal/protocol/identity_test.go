package protocol

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"testing"
	"time"
)

func TestIdentityOf(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	end := begin.Add(30 * 24 * time.Hour)
	root := &x509.Certificate{Raw: []byte("root")}
	other := func(s string) *url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	cases := map[string]struct {
		reason string
		uris   []*url.URL
		root   *x509.Certificate
		want   Identity
	}{
		"Ours":     {"our authority names the Kyma", []*url.URL{SubjectURI("uid-1")}, root, Identity{"id", "uid-1", begin.Add(BackdatePeriod), end, Fingerprint(root)}},
		"Parsed":   {"as it is in a certificate", []*url.URL{other(SubjectURI("uid-1").String())}, nil, Identity{"id", "uid-1", begin.Add(BackdatePeriod), end, ""}},
		"Others":   {"others do not", nil, root, Identity{"id", "", time.Time{}, end, Fingerprint(root)}},
		"Strange":  {"other names are not ours", []*url.URL{other("urn:lifecycle-manager:other:x"), other("https://lifecycle-manager:1/kyma:x"), other("urx:lifecycle-manager:kyma:x")}, nil, Identity{"id", "", time.Time{}, end, ""}},
		"EmptyUID": {"nothing is no name", []*url.URL{SubjectURI("")}, nil, Identity{"id", "", time.Time{}, end, ""}},
		"Second":   {"ours may come second", []*url.URL{other("spiffe://x/y"), SubjectURI("u")}, nil, Identity{"id", "u", begin.Add(BackdatePeriod), end, ""}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cert := &x509.Certificate{Subject: pkix.Name{CommonName: "id"}, NotBefore: begin, NotAfter: end, URIs: c.uris}
			if got := IdentityOf(cert, c.root); got != c.want {
				t.Errorf("%s: got %+v", c.reason, got)
			}
		})
	}
	if got := Fingerprint(root); got != "4813494d137e1631bba301d5acab6e7b" {
		t.Errorf("the fingerprint is %s", got)
	}
}
