package clientcert

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"testing"
)

// TestCacheIsBounded checks that the cache of verified certificates does not grow beyond its limit.
func TestCacheIsBounded(t *testing.T) {
	roots := NewVerifier(func() []*x509.Certificate { return nil }).Current()
	for i := range maxVerified + 100 {
		roots.cache(sha256.Sum256([]byte(fmt.Sprint(i))), &Certificate{})
	}
	if len(roots.verified) != maxVerified {
		t.Errorf("%d certificates are cached, want %d", len(roots.verified), maxVerified)
	}
}
