package landscape

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Register registers a runtime: it creates an access Secret, and a Kyma with the given channel. In in-cluster mode
// there is no access Secret, and the Kyma is the one of the control plane itself.
func (l *Landscape) Register(ctx context.Context, name, channel string) error {
	if !l.InCluster {
		if err := l.SetAccessSecret(ctx, name, l.Clusters[name].Kubeconfig()); err != nil {
			return err
		}
	}
	return l.CreateKyma(ctx, name, channel)
}

// CreateKyma creates a Kyma with the given channel, without an access Secret.
func (l *Landscape) CreateKyma(ctx context.Context, name, channel string) error {
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: l.Namespace()},
		Spec: v1beta2.KymaSpec{Channel: channel}}
	if err := l.Clients[ControlPlane].Create(ctx, k); err != nil {
		return fmt.Errorf("creating Kyma %s: %w", name, err)
	}
	return nil
}

// SetAccessSecret creates or updates the access Secret of a runtime, <name>-access, with the given kubeconfig.
func (l *Landscape) SetAccessSecret(ctx context.Context, name string, kubeconfig []byte) error {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name + "-access", Namespace: l.Namespace()}}
	_, err := controllerutil.CreateOrUpdate(ctx, l.Clients[ControlPlane], s, func() error {
		s.Labels = map[string]string{v1beta2.LabelKymaName: name,
			v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager}
		s.Data = map[string][]byte{v1beta2.AccessSecretKey: kubeconfig}
		return nil
	})
	if err != nil {
		return fmt.Errorf("writing the access Secret of %s: %w", name, err)
	}
	return nil
}

// CreateAdmin creates a service account with the name user in the namespace default of a cluster. CreateAdmin returns a
// kubeconfig with all permissions for this service account.
func (l *Landscape) CreateAdmin(ctx context.Context, clusterName, user string) ([]byte, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: user, Namespace: "default"}}
	all := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: user, Namespace: "default"}},
	}
	for _, o := range []client.Object{account, all} {
		if err := l.Clients[clusterName].Create(ctx, o); err != nil {
			return nil, fmt.Errorf("making user %s of %s: %w", user, clusterName, err)
		}
	}
	return l.Clusters[clusterName].TokenKubeconfig(ctx, "default", user)
}
