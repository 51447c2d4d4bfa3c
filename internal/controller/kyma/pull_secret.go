package kyma

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// base is what every runtime gets first, with the pull Secret as it is now. It is made once for each version of the Secret.
type base struct {
	version string // of the Secret
	bundle  *render.Bundle
}

// baseNow returns what the runtime gets first: Options.Base, and the pull Secret if there is one to be copied.
func (r *Reconciler) baseNow(ctx context.Context) (*render.Bundle, error) {
	if r.PullSecret == "" || r.InCluster {
		return r.Base, nil
	}
	var secret corev1.Secret
	if err := r.PullSecrets.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.PullSecret}, &secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, pullSecretMissing{r.Namespace + "/" + r.PullSecret}
		}
		return nil, fmt.Errorf("reading the pull Secret: %w", err)
	}
	version := string(secret.UID) + " " + secret.ResourceVersion
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.withSecret.version == version {
		return r.withSecret.bundle, nil
	}
	object, err := forRuntime(&secret)
	if err != nil {
		return nil, fmt.Errorf("copying the pull Secret: %w", err)
	}
	copied, err := render.Build([]*unstructured.Unstructured{object}, render.Options{})
	if err != nil {
		return nil, fmt.Errorf("copying the pull Secret: %w", err)
	}
	sum := sha256.Sum256([]byte(r.Base.Digest + copied.Digest))
	r.withSecret = base{version, &render.Bundle{
		Digest:  "sha256:" + hex.EncodeToString(sum[:]),
		Objects: append(slices.Clone(r.Base.Objects), copied.Objects...),
	}}
	return r.withSecret.bundle, nil
}

// forRuntime returns the copy of a Secret for runtimes: labels, annotations, type and data, without what kubectl remembers.
func forRuntime(s *corev1.Secret) (*unstructured.Unstructured, error) {
	labels := maps.Clone(s.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1beta2.LabelManagedBy] = v1beta2.ManagedByKyma
	annotations := map[string]string{}
	for key, value := range s.Annotations {
		if !strings.HasPrefix(key, "kubectl.kubernetes.io/") {
			annotations[key] = value
		}
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: v1beta2.RuntimeNamespace, Labels: labels, Annotations: annotations},
		Type:       s.Type, Data: s.Data,
	})
	return &unstructured.Unstructured{Object: fields}, err
}

// pullSecretRef identifies the copy in a runtime.
func (r *Reconciler) pullSecretRef() apply.Ref {
	return apply.Ref{Version: "v1", Kind: "Secret", Namespace: v1beta2.RuntimeNamespace, Name: r.PullSecret}
}

// pullSecretMissing is the error of a pull Secret that is not there.
type pullSecretMissing struct{ name string }

func (e pullSecretMissing) Error() string {
	return fmt.Sprintf("Secret %s, named by --skr-image-pull-secret, is not there: create it", e.name)
}

// Reason returns ReasonPullSecretNotFound.
func (pullSecretMissing) Reason() string { return v1beta2.ReasonPullSecretNotFound }

// onPullSecret wakes all who get the pull Secret when it changes, one after the other.
func (r *Reconciler) onPullSecret() handler.EventHandler {
	wake := func(ctx context.Context, o client.Object, q queue) {
		if o.GetName() == r.PullSecret && o.GetNamespace() == r.Namespace {
			r.wakeFleet(ctx, q)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if !e.IsInInitialList { // then all Kymas are in the queue anyway
				wake(ctx, e.Object, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { wake(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { wake(ctx, e.Object, q) },
	}
}
