package registry

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
)

// Logins is a keychain with the credentials of Secrets of type kubernetes.io/dockerconfigjson. A key of Logins is a
// registry, or a registry and a path in the registry. If several keys match a repository, the credentials of the
// longest key are used.
type Logins map[string]authn.AuthConfig

// AddMissing adds the content of a Secret to the keychain. If two Secrets have credentials for the same location, those
// of the first Secret are used. An error of AddMissing does not contain credentials.
func (l Logins) AddMissing(dockerconfigjson []byte) error {
	var file struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if err := json.Unmarshal(dockerconfigjson, &file); err != nil {
		// The error of the decoder may contain credentials, so it is not used.
		return fmt.Errorf(`its content is no JSON object with "auths"`)
	}
	for where, login := range file.Auths {
		where = strings.TrimPrefix(LoginLocation(where), "http://")
		if _, taken := l[where]; !taken {
			l[where] = login
		}
	}
	return nil
}

// LoginLocation returns the registry of a key in a Secret of type kubernetes.io/dockerconfigjson, without https://. A
// key may be an URL of the registry's API, as https://index.docker.io/v1/, which kubectl writes for Docker Hub; then
// the version of the API is not a part of the location. The name docker.io is replaced by the name that image
// references have.
func LoginLocation(key string) string {
	location, isPlain := strings.CutPrefix(strings.TrimRight(strings.TrimPrefix(key, "https://"), "/"), "http://")
	host, path, hasPath := strings.Cut(location, "/")
	if host == "docker.io" {
		host = name.DefaultRegistry
	}
	if hasPath && path != "v1" && path != "v2" {
		host += "/" + path
	}
	if isPlain {
		return "http://" + host
	}
	return host
}

// Resolve implements [authn.Keychain].
func (l Logins) Resolve(r authn.Resource) (authn.Authenticator, error) {
	found, best := authn.AuthConfig{}, -1
	for where, login := range l {
		if fits := where == r.RegistryStr() || r.String() == where || strings.HasPrefix(r.String(), where+"/"); fits &&
			len(where) > best {
			found, best = login, len(where)
		}
	}
	if best < 0 {
		return authn.Anonymous, nil
	}
	return authn.FromConfig(found), nil
}

// WithKeychain returns a Registry that uses another keychain. The new Registry shares only two caches with the old
// Registry: the layers by digest, and the verified digests. Therefore a caller never gets a cached result that was read
// by tag or version with credentials of another keychain.
func (r *Registry) WithKeychain(k authn.Keychain) *Registry {
	opts := r.opts
	opts.Keychain = k
	return &Registry{
		opts: opts, base: r.base, host: r.host, plain: r.plain, pullTimeout: r.pullTimeout, layers: r.layers,
		components: newCache[*Component](maxComponents, r.components.now),
		tags:       newCache[string](maxComponents, r.tags.now),
		failures:   newCache[error](maxComponents, r.failures.now),
		proofs:     r.proofs,
		problems:   newCache[trust.Signature](maxProofs, r.problems.now),
	}
}
