// Package access reads the lifetime and the account of the credential in a kubeconfig, and compares the rights that the
// credential had before with the rights that it has now.
//
// # Use
//
//	life := access.LifetimeOf(cfg)
//	namespace, name := access.ServiceAccountOf(cfg)
//	rights, err := access.ParseRights(answer)        // to a SelfSubjectRulesReview
//	lost := access.DescribeLostRights(before, rights, resources)
//	condition := access.UnhealthyCredentialConditionOrNil(saved, finding, now)
//
// # How it works
//
// A client certificate and a token of a ServiceAccount contain their expiry and the name of their account, so the
// package needs no request to read them. The rights are the answer of the API server to one SelfSubjectRulesReview. The
// rights are stored as one text, which runtimes with the same rights share.
//
// Every function is pure.
//
// # What it does not do
//
// The package sends no request, and does not decide when the rights are reviewed: package runtimes decides that. The
// package verifies neither certificates nor tokens. The package does not report the loss of rights for single objects,
// or of rights in other namespaces than that of the review. The loss of a right that the package does not report is
// detected only when a request that needs the right fails.
package access

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// maxWarningPeriod is the longest time between the warning that a credential expires and its expiry. Users are warned
// when a tenth of the credential's lifetime is left, but not earlier than maxWarningPeriod before its end.
const maxWarningPeriod = 7 * 24 * time.Hour

// Lifetime is the time in which a credential is valid. A time that is zero means that it is not known, or that the
// credential does not expire.
type Lifetime struct{ Begins, Ends time.Time }

// LifetimeOf returns the lifetime of the client certificate or of the token: of the one that ends first. A token in a
// file has no lifetime, because the file is replaced before the token expires.
func LifetimeOf(cfg *rest.Config) (life Lifetime) {
	add := func(begins, ends time.Time) {
		if !ends.IsZero() && (life.Ends.IsZero() || ends.Before(life.Ends)) {
			life = Lifetime{begins, ends}
		}
	}
	if block, _ := pem.Decode(cfg.CertData); block != nil {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			add(c.NotBefore, c.NotAfter)
		}
	}
	if t := claimsOf(cfg); t.Expires > 0 {
		begins := time.Time{}
		if t.Issued > 0 {
			begins = time.Unix(t.Issued, 0)
		}
		add(begins, time.Unix(t.Expires, 0))
	}
	return life
}

// WarningTime returns the time from which users are warned that a credential expires. If the lifetime of the credential
// is not known, WarningTime returns the zero time.
func (l Lifetime) WarningTime() time.Time {
	if l.Begins.IsZero() || !l.Begins.Before(l.Ends) {
		return time.Time{}
	}
	return l.Ends.Add(-min(maxWarningPeriod, l.Ends.Sub(l.Begins)/10))
}

// ServiceAccountOf returns the ServiceAccount to which the token in a kubeconfig belongs. If the kubeconfig has no
// token of a ServiceAccount, the results namespace and name are empty.
func ServiceAccountOf(cfg *rest.Config) (namespace, name string) {
	parts := strings.Split(claimsOf(cfg).Subject, ":")
	if len(parts) != 4 || parts[0] != "system" || parts[1] != "serviceaccount" {
		return "", ""
	}
	return parts[2], parts[3]
}

// claims are the claims of a ServiceAccount token that are used here.
type claims struct {
	Subject string `json:"sub"`
	Issued  int64  `json:"iat"`
	Expires int64  `json:"exp"`
}

// claimsOf returns the claims of the token in a kubeconfig. The claims are empty if there is no token, if the token is
// in a file, or if the token is no JWT.
func claimsOf(cfg *rest.Config) (t claims) {
	parts := strings.Split(cfg.BearerToken, ".")
	if cfg.BearerTokenFile != "" || len(parts) != 3 {
		return claims{}
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &t) != nil {
		return claims{}
	}
	return t
}
