package manager

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/authority"
)

// ingressSecretName is the name of the Secret with the server certificate of an ingress in front of the listener. The
// Istio gateway of the Kyma project expects the name klm-istio-gateway.
const ingressSecretName = "klm-istio-gateway"

// ingressCheckInterval is the interval between two checks of the Secret ingressSecretName.
const ingressCheckInterval = time.Minute

// ingressSecret maintains a Secret with the certificate for an ingress that terminates TLS. A gateway before the
// listener needs a certificate from the manager's own certificate authority, because agents trust only this authority.
type ingressSecret struct {
	authority *authority.Authority
	client    client.Client
	namespace string
	log       logr.Logger
}

// keepCertificateUpToDate writes the Secret when the roots change or the certificate must be renewed, until ctx ends.
func (s ingressSecret) keepCertificateUpToDate(ctx context.Context) error {
	tick := time.NewTicker(ingressCheckInterval)
	defer tick.Stop()
	for {
		changed := s.authority.Changed()
		if err := s.writeCertificateIfDue(ctx); err != nil {
			s.log.Error(err, "the certificate of the ingress is not up to date", "secret", ingressSecretName)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		}
	}
}

// writeCertificateIfDue writes the Secret: a certificate for the hosts of the listener, and the roots that agents'
// certificates are verified with. If the Secret already has this certificate and these roots, writeCertificateIfDue
// sends no write request.
func (s ingressSecret) writeCertificateIfDue(ctx context.Context) error {
	const roots = "ca.crt"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: ingressSecretName}}
	err := s.client.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading Secret %s/%s: %w", s.namespace, ingressSecretName, err)
	}
	cert, issueErr := s.authority.IssueIngressCertificateIfDue(secret.Data[corev1.TLSCertKey], secret.Data[roots])
	if issueErr != nil || cert == nil {
		return issueErr
	}
	secret.Data = map[string][]byte{corev1.TLSCertKey: cert.PEM, corev1.TLSPrivateKeyKey: cert.Key, roots: cert.CA}
	if err == nil {
		err = s.client.Update(ctx, secret)
	} else {
		secret.Type, secret.Labels = corev1.SecretTypeTLS,
			map[string]string{v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager}
		err = s.client.Create(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s/%s: %w", s.namespace, ingressSecretName, err)
	}
	return nil
}
