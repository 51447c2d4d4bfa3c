package registry

import (
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
)

// TestWithKeychain checks that a Registry with another keychain has the same address and timeout: without a timeout,
// each pull would end at once.
func TestWithKeychain(t *testing.T) {
	r, err := newRegistry(Options{Host: "registry.example.com"}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	other := r.WithKeychain(authn.DefaultKeychain)
	if other.host != r.host || other.pullTimeout != pullTimeout || other.opts.Keychain != authn.DefaultKeychain {
		t.Errorf("got host %q and timeout %s, want %q and %s", other.host, other.pullTimeout, r.host, pullTimeout)
	}
}
