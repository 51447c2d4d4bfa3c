package source

import (
	"context"
	"fmt"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/retry"
	"github.com/kyma-fleet/lifecycle-manager/internal/shard"
)

// credentials are the contents of the selected Secrets. With the zero value of credentials, requests are anonymous.
type credentials struct {
	keychain           registry.Logins // for registries
	username, password string          // for chart repositories
	version            string          // UIDs and resource versions of the Secrets
	expires            time.Time
}

// credentialsOf reads the Secrets that a label selector selects. Secrets of type dockerconfigjson have credentials for
// registries. Secrets of type basic-auth have credentials for chart repositories.
func (f *Finder) credentialsOf(ctx context.Context, namespace string, selector *metav1.LabelSelector) (
	credentials, error) {
	labels, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return credentials{}, credentialError{fmt.Sprintf("credSecretSelector is not valid: %s", err)}
	}
	key := namespace + " " + labels.String()
	f.mu.Lock()
	known := f.credentials[key]
	f.mu.Unlock()
	if time.Now().Before(known.expires) && !retry.IsOutdated(ctx, known.expires.Add(-credentialCachePeriod)) {
		return known, nil
	}
	var secrets corev1.SecretList
	// The load of an artefact goes on if the shard of the reconcile that has started it is lost, because other
	// reconciles wait for it.
	err = f.opts.Secrets.List(shard.WithoutFence(ctx), &secrets, client.InNamespace(namespace),
		client.MatchingLabelsSelector{Selector: labels})
	if err != nil {
		return credentials{}, fmt.Errorf("reading the Secrets with %s: %w", labels, err)
	}
	c := credentials{keychain: registry.Logins{}, expires: time.Now().Add(credentialCachePeriod)}
	for _, secret := range secrets.Items {
		switch secret.Type {
		case corev1.SecretTypeDockerConfigJson:
			if err := c.keychain.AddMissing(secret.Data[corev1.DockerConfigJsonKey]); err != nil {
				return credentials{}, credentialError{fmt.Sprintf(
					"the Secret %s/%s, key %s: %s", namespace, secret.Name, corev1.DockerConfigJsonKey, err)}
			}
		case corev1.SecretTypeBasicAuth:
			c.username = string(secret.Data[corev1.BasicAuthUsernameKey])
			c.password = string(secret.Data[corev1.BasicAuthPasswordKey])
		default:
			continue
		}
		c.version += string(secret.UID) + secret.ResourceVersion + " "
	}
	if c.version == "" {
		return credentials{}, credentialError{fmt.Sprintf(
			"no Secret of type %s or %s in namespace %s has the labels %q: create one",
			corev1.SecretTypeDockerConfigJson, corev1.SecretTypeBasicAuth, namespace, labels)}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	putBounded(&f.credentials, key, c)
	return c, nil
}

// credentialError is the error that credentials are missing or cannot be used.
type credentialError struct{ problem string }

func (e credentialError) Error() string { return "finding the credentials: " + e.problem }

// Reason returns the reason code of the error, ReasonLoginNotFound.
func (credentialError) Reason() string { return v1beta2.ReasonLoginNotFound }

// withoutSecrets returns a URL without user, query and fragment, because these parts may be secret.
func withoutSecrets(location string) string {
	u, err := url.Parse(location)
	if err != nil {
		return "(not a URL)"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
