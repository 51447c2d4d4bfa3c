package registry

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
)

// Logins is a keychain made of the content of Secrets of type kubernetes.io/dockerconfigjson: logins by registry, or by
// registry and path. Of several that fit a repository the longest counts.
type Logins map[string]authn.AuthConfig

// Add reads the content of one more Secret. Of two logins for one place the first counts. The error names no login.
func (l Logins) Add(dockerconfigjson []byte) error {
	var file struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if err := json.Unmarshal(dockerconfigjson, &file); err != nil {
		return fmt.Errorf(`its content is no JSON object with "auths"`) // the error of the decoder may quote what is secret
	}
	for where, login := range file.Auths {
		where = strings.TrimRight(strings.TrimPrefix(strings.TrimPrefix(where, "https://"), "http://"), "/")
		if _, taken := l[where]; !taken {
			l[where] = login
		}
	}
	return nil
}

// Resolve implements [authn.Keychain].
func (l Logins) Resolve(r authn.Resource) (authn.Authenticator, error) {
	found, best := authn.AuthConfig{}, -1
	for where, login := range l {
		if fits := where == r.RegistryStr() || r.String() == where || strings.HasPrefix(r.String(), where+"/"); fits && len(where) > best {
			found, best = login, len(where)
		}
	}
	if best < 0 {
		return authn.Anonymous, nil
	}
	return authn.FromConfig(found), nil
}

// With returns a Registry that signs in with another keychain. It shares what was pulled by digest and which digests are signed, and
// nothing else: what one login may not see is not told by the other's answers.
func (r *Registry) With(k authn.Keychain) *Registry {
	opts := r.opts
	opts.Keychain = k
	return &Registry{
		opts: opts, base: r.base, host: r.host, plain: r.plain, layers: r.layers,
		components: newCache[*Component](maxComponents, r.components.now),
		tags:       newCache[string](maxComponents, r.tags.now),
		failures:   newCache[error](maxComponents, r.failures.now),
		proofs:     r.proofs,
		problems:   newCache[trust.Signature](maxProofs, r.problems.now),
	}
}
