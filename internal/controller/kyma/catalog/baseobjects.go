package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// The base objects are the namespace, the CRDs that the admin of the runtime needs, and the pull Secret if there is
// one. The base objects are sent to a runtime before all other objects.

// servedTimeout is the time that a runtime has to serve the kinds of CRDs that were sent to it. If the runtime does not
// serve them after this time, that is an error. Usually a runtime serves new kinds within 200 ms.
const servedTimeout = 10 * time.Second

// baseWithSecret is the bundle of the base objects including the pull Secret. baseWithSecret is built once for each
// version of the Secret.
type baseWithSecret struct {
	version string // UID and resourceVersion of the Secret
	bundle  *render.Bundle
}

// Base returns the base objects: the objects of Options.Base, and the copy of the pull Secret if there is one.
func (c *Copies) Base(ctx context.Context) (*render.Bundle, error) {
	o := &c.options
	if o.PullSecret == "" {
		return o.Base, nil
	}
	var secret corev1.Secret
	if err := o.PullSecrets.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.PullSecret},
		&secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, pullSecretMissing{o.Namespace + "/" + o.PullSecret}
		}
		return nil, fmt.Errorf("reading the pull Secret: %w", err)
	}
	version := string(secret.UID) + " " + secret.ResourceVersion
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.base.version == version {
		return c.base.bundle, nil
	}
	object, err := copyOfSecret(&secret)
	if err != nil {
		return nil, fmt.Errorf("copying the pull Secret: %w", err)
	}
	copied, err := render.Build([]*unstructured.Unstructured{object}, render.Options{})
	if err != nil {
		return nil, fmt.Errorf("copying the pull Secret: %w", err)
	}
	sum := sha256.Sum256([]byte(o.Base.Digest + copied.Digest))
	c.base = baseWithSecret{version, &render.Bundle{
		Digest:  "sha256:" + hex.EncodeToString(sum[:]),
		Objects: append(slices.Clone(o.Base.Objects), copied.Objects...),
	}}
	return c.base.bundle, nil
}

// BaseResourcesToDelete lists the base objects that are deleted with the Kyma. BaseResourcesToDelete does not list the
// Namespace kyma-system, which is not deleted because it may contain objects of users.
func (c *Copies) BaseResourcesToDelete() []v1beta2.Resource {
	var all []v1beta2.Resource
	if name := c.options.PullSecret; name != "" {
		all = append(all, v1beta2.Resource{Version: "v1", Kind: "Secret",
			Namespace: v1beta2.RuntimeNamespace, Name: name})
	}
	for _, o := range c.options.Base.Objects {
		if o.GVK.Kind != "Namespace" {
			all = append(all, v1beta2.Resource{Group: o.GVK.Group, Version: o.GVK.Version, Kind: o.GVK.Kind,
				Namespace: o.Namespace, Name: o.Name})
		}
	}
	return all
}

// SyncBase sends the base objects in two cases: the runtime does not have them yet (isCurrent is false), or base
// objects in the runtime were changed or deleted. If SyncBase has created the CRDs of the catalog, it returns a
// *NotServedError: an API server serves a kind some time after its CRD was created, so a request for an object of the
// kind would fail.
//
// If the runtime is a control plane, too, SyncBase sends only the CRDs of our group that the runtime lacks, and
// keepsCRDs is true. The CRDs of that control plane may have another version: other fields, or a conversion webhook,
// that its objects need.
func (c *Copies) SyncBase(ctx context.Context, t Target, base *render.Bundle, isCurrent bool) (
	keepsCRDs bool, err error) {
	if err := c.compareBaseIfUncertain(ctx, t, base); err != nil {
		return false, err
	}
	wrong := c.consumeBaseDrift(t)
	if isCurrent && !wrong {
		return false, nil
	}
	hasCreatedCRDs := false
	if base, keepsCRDs, err = c.withoutCRDsOfControlPlane(ctx, t, base); err == nil {
		hasCreatedCRDs, err = c.sendRemainingBase(ctx, t, base)
	}
	if err != nil && wrong {
		c.editRecord(t, func(r *record) { r.baseWrong = true })
	}
	if err == nil && hasCreatedCRDs {
		err = newNotServedError()
	}
	return keepsCRDs, err
}

// withoutCRDsOfControlPlane returns the base objects that may be sent to the runtime. If the runtime is a control
// plane, too, keepsCRDs is true, and the existing CRDs of our group are not among them. withoutCRDsOfControlPlane finds
// out whether the runtime is a control plane before the base objects are sent for the first time, and each time before
// they are sent again.
func (c *Copies) withoutCRDsOfControlPlane(ctx context.Context, t Target, base *render.Bundle) (
	allowed *render.Bundle, keepsCRDs bool, err error) {
	var mayChange bool
	c.editRecord(t, func(r *record) { mayChange = r.mayChangeCRDs })
	if mayChange {
		return base, false, nil
	}
	if keepsCRDs, err = ownership.IsControlPlane(ctx, t.Runtime.Cluster); err != nil {
		return nil, false, err
	}
	if !keepsCRDs {
		c.editRecord(t, func(r *record) { r.mayChangeCRDs = true })
		return base, false, nil
	}
	allowed = &render.Bundle{}
	sum := sha256.New()
	for _, o := range base.Objects {
		if ownership.IsOwnCRD(o.GVK.Kind, o.Name) {
			_, err := t.Runtime.Get(ctx, apply.Ref{Group: o.GVK.Group, Version: o.GVK.Version, Kind: o.GVK.Kind,
				Name: o.Name})
			if err == nil {
				continue
			}
			if loop.Reason(err) != apply.ObjectNotFound {
				return nil, true, fmt.Errorf("reading the CRDs of control plane %s: %w", t.Kyma.Name, err)
			}
		}
		allowed.Objects = append(allowed.Objects, o)
		fmt.Fprintln(sum, o.GVK, o.Namespace, o.Name)
	}
	fmt.Fprintln(sum, base.Digest)
	allowed.Digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	return allowed, true, nil
}

// newNotServedError returns the error for CRDs that were just created.
func newNotServedError() error {
	return &NotServedError{What: "the runtime to serve the kinds of " + v1beta2.GroupVersion.Group}
}

// ResendBaseAtNextSync makes the next SyncBase send the base objects again. Callers use ResendBaseAtNextSync if the
// runtime does not serve a kind of the catalog, because the base objects contain the CRDs of these kinds. If the base
// objects were sent or compared in the last 10 seconds, ResendBaseAtNextSync does nothing: the CRDs exist, and the
// runtime will serve their kinds soon.
func (c *Copies) ResendBaseAtNextSync(t Target) {
	const servedWithinPeriod = 10 * time.Second
	c.editRecord(t, func(r *record) { r.baseWrong = r.baseWrong || t.Now.Sub(r.baseComparedAt) > servedWithinPeriod })
}

// compareBaseIfUncertain compares the base objects in the runtime with the desired ones if events about them may have
// been missed.
func (c *Copies) compareBaseIfUncertain(ctx context.Context, t Target, base *render.Bundle) error {
	var uncertain bool
	var sent *apply.Progress
	c.editRecord(t, func(r *record) {
		uncertain, sent = r.baseUncertain, r.baseSent
		r.baseUncertain = false
	})
	if !uncertain {
		return nil
	}
	drifted, err := t.Runtime.FindDrift(ctx, apply.Set{Bundle: base, Owner: v1beta2.FieldOwner}, sent)
	if err != nil {
		c.editRecord(t, func(r *record) { r.baseUncertain = true })
		return fmt.Errorf("comparing the base objects of runtime %s: %w", t.Kyma.Name, err)
	}
	c.editRecord(t, func(r *record) { r.baseWrong, r.baseComparedAt = r.baseWrong || len(drifted) > 0, t.Now })
	return nil
}

// consumeBaseDrift reports whether a base object was changed or deleted since the last call. If consumeBaseDrift
// returns true, all base objects are sent again, and the whole catalog copy is compared.
func (c *Copies) consumeBaseDrift(t Target) (hadDrifted bool) {
	c.editRecord(t, func(r *record) {
		if hadDrifted = r.baseWrong; hadDrifted {
			r.baseWrong, r.baseSent, r.mayChangeCRDs = false, &apply.Progress{}, false
			r.compareAll = true // the deletion of a CRD deletes its objects, too
		}
	})
	return hadDrifted
}

// sendRemainingBase applies the base objects that were not sent before. sendRemainingBase reports whether it has
// created the CRDs of the catalog.
func (c *Copies) sendRemainingBase(ctx context.Context, t Target, base *render.Bundle) (
	hasCreatedCRDs bool, err error) {
	var sent *apply.Progress
	c.editRecord(t, func(r *record) { sent = r.baseSent })
	result, err := t.Runtime.Apply(ctx, apply.Set{Bundle: base, Owner: v1beta2.FieldOwner}, sent)
	if err == nil && len(result.Failed) > 0 {
		err = result.Failed[0]
	}
	if err != nil {
		return false, fmt.Errorf("preparing runtime %s: %w", t.Kyma.Name, err)
	}
	hasCreatedCRDs = hasCreatedAllCatalogCRDs(result.Created)
	if hasCreatedCRDs {
		c.editRecord(t, func(r *record) { r.digest, r.has = "", hashSet{} })
	}
	if len(result.Applied) > 0 {
		c.editRecord(t, func(r *record) { r.baseSentAt = t.Now })
	}
	if len(result.Waiting) > 0 {
		return false, newNotServedError()
	}
	if len(result.Applied) > 0 {
		c.editRecord(t, func(r *record) { r.baseComparedAt = t.Now })
	}
	return hasCreatedCRDs, nil
}

// hasCreatedAllCatalogCRDs reports whether the CRDs of all kinds of the catalog are among the objects that were just
// created. If the CRDs of all kinds of the catalog were just created, the runtime cannot contain an object of a catalog
// copy yet.
func hasCreatedAllCatalogCRDs(created []apply.Ref) bool {
	for _, name := range []string{"moduletemplates", "modulereleasemetas"} {
		crd := name + "." + v1beta2.GroupVersion.Group
		if !slices.ContainsFunc(created, func(r apply.Ref) bool {
			return r.Kind == "CustomResourceDefinition" && r.Name == crd
		}) {
			return false
		}
	}
	return true
}

// isBaseSentRecently reports whether base objects, which contain our CRDs, were sent within the last servedTimeout. In
// this time, the runtime may not serve the kinds of new CRDs yet.
func (c *Copies) isBaseSentRecently(t Target) (isRecent bool) {
	c.editRecord(t, func(r *record) { isRecent = !t.Now.IsZero() && t.Now.Sub(r.baseSentAt) < servedTimeout })
	return isRecent
}

// copyOfSecret returns the copy of a Secret for runtimes. The copy has the type, the data and the labels of the Secret,
// and its annotations without those of kubectl.
func copyOfSecret(s *corev1.Secret) (*unstructured.Unstructured, error) {
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
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: v1beta2.RuntimeNamespace,
			Labels: labels, Annotations: annotations},
		Type: s.Type, Data: s.Data,
	})
	return &unstructured.Unstructured{Object: fields}, err
}

// pullSecretMissing is the error for a pull Secret that does not exist.
type pullSecretMissing struct{ name string }

func (e pullSecretMissing) Error() string {
	return fmt.Sprintf("Secret %s, named by --skr-image-pull-secret, does not exist: create it", e.name)
}

// Reason returns the reason code of the error, ReasonPullSecretNotFound.
func (pullSecretMissing) Reason() string { return v1beta2.ReasonPullSecretNotFound }
