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
		"Ours": {"our authority names the Kyma", []*url.URL{SubjectURI("uid-1")}, root,
			Identity{CommonName: "id", UID: "uid-1", Issued: begin.Add(BackdatePeriod),
				Expires: end, Root: ShortFingerprint(root)}},
		"Parsed": {"as it is in a certificate", []*url.URL{other(SubjectURI("uid-1").String())}, nil,
			Identity{CommonName: "id", UID: "uid-1", Issued: begin.Add(BackdatePeriod), Expires: end}},
		"Others": {"others do not", nil, root, Identity{CommonName: "id", Issued: time.Time{},
			Expires: end, Root: ShortFingerprint(root)}},
		"Strange": {"other names are not ours", []*url.URL{other("urn:lifecycle-manager:other:x"),
			other("https://lifecycle-manager:1/kyma:x"), other("urx:lifecycle-manager:kyma:x")}, nil,
			Identity{CommonName: "id", Issued: time.Time{}, Expires: end}},
		"EmptyUID": {"nothing is no name", []*url.URL{SubjectURI("")}, nil,
			Identity{CommonName: "id", Issued: time.Time{}, Expires: end}},
		"Second": {"ours may come second", []*url.URL{other("spiffe://x/y"), SubjectURI("u")}, nil,
			Identity{CommonName: "id", UID: "u", Issued: begin.Add(BackdatePeriod), Expires: end}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cert := &x509.Certificate{Subject: pkix.Name{CommonName: "id"}, NotBefore: begin,
				NotAfter: end, URIs: c.uris}
			if got := IdentityOf(cert, c.root); got != c.want {
				t.Errorf("%s: got %+v", c.reason, got)
			}
		})
	}
	if got := ShortFingerprint(root); got != "4813494d137e1631bba301d5acab6e7b" {
		t.Errorf("the fingerprint is %s", got)
	}
}
