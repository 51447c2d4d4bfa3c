package connection

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// RuntimeCluster returns the cluster of a runtime, with the configuration from RuntimeConfig. RuntimeCluster sends no
// request to the runtime.
func (c *Cluster) RuntimeCluster(ctx context.Context, a *console.App, name, context string) (*Cluster, error) {
	config, err := c.RuntimeConfig(ctx, a, name, context)
	if err != nil {
		return nil, err
	}
	return New(config, name, v1beta2.RuntimeNamespace)
}

// RuntimeConfig returns the client configuration for a runtime. The configuration comes from the access Secret of the
// runtime or from --runtime-context.
func (c *Cluster) RuntimeConfig(ctx context.Context, a *console.App, name, context string) (*rest.Config, error) {
	if context != "" {
		other := *a
		settings := *a.Config
		settings.Context = context
		other.Config = &settings
		r, err := Open(&other)
		if err != nil {
			return nil, err
		}
		return r.Config, nil
	}
	secrets, err := c.AccessSecrets(ctx, name)
	if err != nil {
		return nil, c.Explain(err, "looking for the access Secret of "+name)
	}
	if len(secrets.Items) == 0 {
		return nil, console.Fail(console.ExitNotFound, "%s has no access Secret: give --runtime-context", name)
	}
	secret := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(&secrets.Items[0]), secret); err != nil {
		return nil, c.Explain(err, "reading the access Secret of "+name+" (or give --runtime-context)")
	}
	config, err := runtimes.ParseKubeconfig(secret.Data[v1beta2.AccessSecretKey])
	if err != nil {
		return nil, console.Fail(console.ExitFailed, "the access Secret %s: %v", secret.Name, err)
	}
	config.Timeout, config.QPS, config.UserAgent, config.WarningHandler = a.Config.RequestTimeout, -1,
		FieldOwner, rest.NoWarnings{}
	return config, nil
}
