package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/internal/egress"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
)

// newRegistry opens the registry of modules. The address of the registry is in a flag or in the credential Secret.
func newRegistry(ctx context.Context, c *config.Manager, reader client.Reader) (*registry.Registry, error) {
	o := registry.Options{Host: c.OCIRegistryHost, Subpath: c.ModulesRepositorySubpath,
		CacheBytes: c.RegistryCacheBytes}
	if c.OCIRegistryCredSecret != "" {
		k := keychain{reader: reader, key: client.ObjectKey{Namespace: c.Namespace, Name: c.OCIRegistryCredSecret}}
		host, _, err := k.readSecret(ctx)
		if err != nil {
			return nil, err
		}
		o.Host, o.Keychain = host, k
	}
	if c.TrustPolicy != "" {
		logger := log.FromContext(ctx).WithName("trust-policy")
		trust, err := trust.Load(c.TrustPolicy, func(version string, err error) {
			if err != nil {
				logger.Error(err, "the new trust policy cannot be used; the former one stays in force", "version",
					version)
				return
			}
			logger.Info("trust policy changed", "version", version)
		})
		if err != nil {
			return nil, err
		}
		logger.Info("trust policy in force", "version", trust.Version())
		o.Trust = trust
	}
	o.Transport = egress.New(egressOptions(c, o.Host))
	r, err := registry.New(o)
	if err != nil && c.OCIRegistryCredSecret != "" {
		return nil, fmt.Errorf("opening the registry of modules that --oci-registry-cred-secret names: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the registry of modules (--oci-registry-host, --modules-repository-subpath): %w",
			err)
	}
	return r, nil
}

// egressOptions returns the rules for requests to locations that modules name, such as chart repositories. The
// parameter registryHost is the host of the registry of modules.
func egressOptions(c *config.Manager, registryHost string) egress.Options {
	allow, deny := c.EgressRules()
	return egress.Options{Allow: allow, Deny: deny, Configured: []string{registryHost},
		Hint: "correct the location, or allow the address with --egress-allow"}
}

// keychain reads the Secret with the credentials for each login, so that changed credentials are used at once. Reading
// the Secret for each login is cheap, because artefacts are cached and logins are rare.
type keychain struct {
	reader client.Reader
	key    client.ObjectKey
}

// Resolve implements [authn.Keychain].
func (k keychain) Resolve(r authn.Resource) (authn.Authenticator, error) {
	return authn.Anonymous, fmt.Errorf("logging in to %s: no context", r.RegistryStr())
}

// ResolveContext implements [authn.ContextKeychain].
func (k keychain) ResolveContext(ctx context.Context, r authn.Resource) (authn.Authenticator, error) {
	host, login, err := k.readSecret(ctx)
	if err != nil {
		return nil, err
	}
	if registry, _, _ := strings.Cut(strings.TrimPrefix(host, "http://"), "/"); registry != r.RegistryStr() {
		return authn.Anonymous, nil // the credentials must not be sent to another registry
	}
	return authn.FromConfig(login), nil
}

// readSecret returns the registry and the credentials that are in the Secret.
func (k keychain) readSecret(ctx context.Context) (registryHost string, login authn.AuthConfig, err error) {
	var s corev1.Secret
	// A pull goes on if the shard of the reconcile that has started it is lost, because other reconciles wait for it.
	if err := k.reader.Get(shard.WithoutFence(ctx), k.key, &s); err != nil {
		return "", login, fmt.Errorf("reading Secret %s, named by --oci-registry-cred-secret: %w", k.key, err)
	}
	var file struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if err := json.Unmarshal(s.Data[corev1.DockerConfigJsonKey], &file); err != nil || len(file.Auths) != 1 {
		return "", login, fmt.Errorf(
			"secret %s, named by --oci-registry-cred-secret: key %s must hold exactly one registry under \"auths\"",
			k.key, corev1.DockerConfigJsonKey)
	}
	registryHost = slices.Collect(maps.Keys(file.Auths))[0]
	return registry.LoginLocation(registryHost), file.Auths[registryHost], nil
}
