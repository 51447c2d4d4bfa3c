package registry

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
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

// TestLoginLocations checks for which repositories the credentials of a Secret are used.
func TestLoginLocations(t *testing.T) {
	for key, want := range map[string]map[string]bool{
		"https://index.docker.io/v1/":   {"org/a": true, "index.docker.io/org/a": true, "r.io/org/a": false},
		"docker.io":                     {"org/a": true, "r.io/org/a": false},
		"docker.io/org":                 {"org/a": true, "other/a": false},
		"https://r.io/v2/":              {"r.io/org/a": true, "org/a": false},
		"http://127.0.0.1:5000/v2":      {"127.0.0.1:5000/a": true},
		"r.io":                          {"r.io/org/a": true},
		"https://r.io/org/v1":           {"r.io/org/v1/a": true, "r.io/org/a": false},
		"https://r.io/v1.2/":            {"r.io/v1.2/a": true, "r.io/a": false},
		"https://index.docker.io/v1/v1": {"org/a": false},
	} {
		logins := Logins{}
		if err := logins.AddMissing(fmt.Appendf(nil, `{"auths":{%q:{"username":"u","password":"p"}}}`, key)); err != nil {
			t.Fatal(err)
		}
		for repository, isUsed := range want {
			r, err := name.NewRepository(repository)
			if err != nil {
				t.Fatal(err)
			}
			found, err := logins.Resolve(r)
			if err != nil {
				t.Fatal(err)
			}
			login, err := found.Authorization()
			if err != nil || (login.Username == "u") != isUsed {
				t.Errorf("%s for %s: got the user %q, %v", key, repository, login.Username, err)
			}
		}
	}
	if got := LoginLocation("http://127.0.0.1:5000/v2/"); got != "http://127.0.0.1:5000" {
		t.Errorf("got %s, want the scheme of a registry without TLS", got)
	}
}
