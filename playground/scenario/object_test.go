package scenario

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1alpha1"
	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
	"github.com/kyma-fleet/lifecycle-manager/playground/sample"
)

// kinds has the kinds of objects in scripts, by their short names.
var kinds = map[string]schema.GroupVersionKind{
	"kyma":               v1beta2.GroupVersion.WithKind("Kyma"),
	"manifest":           v1beta2.GroupVersion.WithKind("Manifest"),
	"template":           v1beta2.GroupVersion.WithKind("ModuleTemplate"),
	"release":            v1beta2.GroupVersion.WithKind("ModuleReleaseMeta"),
	"rollout":            v1beta2.GroupVersion.WithKind("ModuleRollout"),
	"rolloutpolicy":      v1beta2.GroupVersion.WithKind("RolloutPolicy"),
	"watcher":            v1beta2.GroupVersion.WithKind("Watcher"),
	"oldkyma":            v1alpha1.GroupVersion.WithKind("Kyma"),
	"oldmanifest":        v1alpha1.GroupVersion.WithKind("Manifest"),
	"oldtemplate":        v1alpha1.GroupVersion.WithKind("ModuleTemplate"),
	"sample":             sample.GroupVersion.WithKind("Sample"),
	"namespace":          corev1.SchemeGroupVersion.WithKind("Namespace"),
	"node":               corev1.SchemeGroupVersion.WithKind("Node"),
	"configmap":          corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	"secret":             corev1.SchemeGroupVersion.WithKind("Secret"),
	"serviceaccount":     corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	"service":            corev1.SchemeGroupVersion.WithKind("Service"),
	"deployment":         {Group: "apps", Version: "v1", Kind: "Deployment"},
	"role":               {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
	"rolebinding":        {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
	"clusterrole":        {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
	"clusterrolebinding": {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
	"webhooks": {
		Group:   "admissionregistration.k8s.io",
		Version: "v1",
		Kind:    "ValidatingWebhookConfiguration",
	},
	"cronjob":        {Group: "batch", Version: "v1", Kind: "CronJob"},
	"virtualservice": {Group: "networking.istio.io", Version: "v1", Kind: "VirtualService"},
	"istiogateway":   {Group: "networking.istio.io", Version: "v1", Kind: "Gateway"},
	"httproute":      {Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"},
	"crd":            {Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
}

// clusterScoped lists the short names of the cluster-scoped kinds.
var clusterScoped = []string{"namespace", "node", "clusterrole", "clusterrolebinding", "crd", "webhooks"}

// object is the location of an object.
type object struct {
	cluster string
	client  client.Client
	gvk     schema.GroupVersionKind
	key     client.ObjectKey
}

// object parses [CLUSTER:]KIND/[NAMESPACE/]NAME.
func (s *scenario) object(text string) (object, error) {
	if s.land == nil {
		return object{}, fmt.Errorf("there is no landscape yet: say up first")
	}
	o := object{cluster: landscape.ControlPlane}
	rest := text
	if name, after, named := strings.Cut(text, ":"); named {
		o.cluster, rest = name, after
	}
	if o.client = s.land.Clients[o.cluster]; o.client == nil {
		return object{}, fmt.Errorf("%s: there is no cluster %q", text, o.cluster)
	}
	parts := strings.Split(rest, "/")
	gvk, known := kinds[parts[0]]
	if full, _ := schema.ParseKindArg(parts[0]); full != nil {
		gvk, known = *full, true
	}
	if !known || len(parts) < 2 || len(parts) > 3 {
		return object{}, fmt.Errorf("%q is no object: write [CLUSTER:]KIND/[NAMESPACE/]NAME with a kind of %s", text,
			strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}
	o.gvk, o.key.Name = gvk, parts[len(parts)-1]
	switch {
	case slices.Contains(clusterScoped, parts[0]):
	case len(parts) == 3:
		o.key.Namespace = parts[1]
	case o.cluster == landscape.ControlPlane:
		o.key.Namespace = s.land.Namespace()
	default:
		o.key.Namespace = v1beta2.RuntimeNamespace
	}
	return o, nil
}

// read returns the object. read returns nil if the object or its kind does not exist.
func (o object) read(ctx context.Context) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(o.gvk)
	err := o.client.Get(ctx, o.key, u)
	if absent(err) {
		return nil, nil
	}
	return u, err
}

// absent reports whether an error means that an object or its kind does not exist.
func absent(err error) bool { return apierrors.IsNotFound(err) || noKind(err) }

// empty returns an object with only its kind and name.
func (o object) empty() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(o.gvk)
	u.SetNamespace(o.key.Namespace)
	u.SetName(o.key.Name)
	return u
}

// claims parses the arguments of a command that checks an object: the object, and the CLAIMs about its fields.
func (s *scenario) claims(c *call) (object, []claim, error) {
	if err := c.want(1, 100, "OBJECT CLAIM…"); err != nil {
		return object{}, nil, err
	}
	o, err := s.object(c.args[0])
	if err != nil {
		return object{}, nil, err
	}
	var claims []claim
	for _, text := range c.args[1:] {
		claim, err := parseClaim(text)
		if err != nil {
			return object{}, nil, err
		}
		claims = append(claims, claim)
	}
	return o, claims, nil
}

// judge reports whether all claims are true for an object. judge also returns the present values as text. With current,
// claims about the status are true only if the status is of the object's present generation.
func judge(ctx context.Context, o object, claims []claim, current bool) (bool, string) {
	u, err := o.read(ctx)
	if err != nil {
		return false, err.Error()
	}
	if u == nil {
		return false, "it is not there"
	}
	ofStatus := slices.ContainsFunc(claims, func(c claim) bool { return c.path[0] == "status" })
	observed, found, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	if current && ofStatus && found && observed < u.GetGeneration() {
		return false, fmt.Sprintf("the status is of generation %d, and the object has generation %d", observed,
			u.GetGeneration())
	}
	for _, c := range claims {
		if ok, got := c.holds(u.Object); !ok {
			return false, fmt.Sprintf("%s does not hold: it is %q\n%s", c.text, got, text(u.Object["status"]))
		}
	}
	return true, ""
}

func (s *scenario) until(c *call) error {
	o, claims, err := s.claims(c)
	if err != nil {
		return err
	}
	return s.poll(func(ctx context.Context) (bool, string) { return judge(ctx, o, claims, true) })
}

func (s *scenario) check(c *call) error {
	o, claims, err := s.claims(c)
	if err != nil {
		return err
	}
	if ok, is := judge(s.ctx, o, claims, false); !ok {
		return fmt.Errorf("%s", is)
	}
	return nil
}

func (s *scenario) remember(c *call) error {
	if err := c.want(3, 3, "remember VARIABLE OBJECT PATH"); err != nil {
		return err
	}
	o, err := s.object(c.args[1])
	if err != nil {
		return err
	}
	path, err := fieldPath(c.args[2])
	if err != nil {
		return err
	}
	u, err := o.read(s.ctx)
	if err != nil || u == nil {
		return fmt.Errorf("%s is not there: %w", c.args[1], err)
	}
	is := value(u.Object, path)
	if is == "" {
		return fmt.Errorf("%s has no %s", c.args[1], c.args[2])
	}
	c.script.Setenv(c.args[0], is)
	return nil
}

func (s *scenario) gone(c *call) error {
	for _, arg := range c.args {
		o, err := s.object(arg)
		if err != nil {
			return err
		}
		err = s.poll(func(ctx context.Context) (bool, string) {
			u, err := o.read(ctx)
			if err != nil || u == nil {
				return err == nil, fmt.Sprint(err)
			}
			return false, fmt.Sprintf("it is there, deleted %v, with finalizers %q\n%s", u.GetDeletionTimestamp(),
				u.GetFinalizers(), text(u.Object["status"]))
		})
		if err != nil {
			return fmt.Errorf("%s: %w", arg, err)
		}
	}
	return nil
}

func (s *scenario) never(c *call) error {
	for _, arg := range c.args {
		o, err := s.object(arg)
		if err != nil {
			return err
		}
		u, err := o.read(s.ctx)
		if err != nil {
			return fmt.Errorf("reading %s: %w", arg, err)
		}
		if u != nil {
			return fmt.Errorf("%s is there", arg)
		}
	}
	return nil
}

// volatile lists the fields that differ from run to run.
var volatile = map[string]bool{
	"uid": true, "resourceVersion": true, "creationTimestamp": true, "managedFields": true,
	"lastTransitionTime": true, "lastUpdateTime": true, "started": true, "ended": true,
	"caBundle": true, "kubernetesVersion": true,
}

var (
	digests = regexp.MustCompile(`sha256:[0-9a-f]{64}`)
	ports   = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`)
	uids    = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
)

func (s *scenario) show(c *call) error {
	if err := c.want(1, 100, "show OBJECT [PATH…]"); err != nil {
		return err
	}
	o, err := s.object(c.args[0])
	if err != nil {
		return err
	}
	u, err := o.read(s.ctx)
	if err != nil {
		return fmt.Errorf("reading %s: %w", c.args[0], err)
	}
	if u == nil {
		return fmt.Errorf("%s is not there", c.args[0])
	}
	var parts any = u.Object
	if len(c.args) > 1 {
		chosen := map[string]any{}
		for _, path := range c.args[1:] {
			fields := strings.Split(path, ".")
			v, found, err := unstructured.NestedFieldNoCopy(u.Object, fields...)
			if err != nil {
				return fmt.Errorf("%s: %w", c.args[0], err)
			}
			if found {
				chosen[path] = v
			}
		}
		parts = chosen
	}
	yaml := uids.ReplaceAllString(digests.ReplaceAllString(text(steady(parts)), "<digest>"), "<uid>")
	c.print(strings.TrimSuffix(ports.ReplaceAllString(yaml, "<address>"), "\n"))
	return nil
}

// steady returns v without fields that differ from run to run.
func steady(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if !volatile[k] {
				out[k] = steady(e)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = steady(e)
		}
		return out
	}
	return v
}

// admin is the name of the user of scripts in the API servers.
const admin = "playground-admin"

// approve adds an approval of the current plan to a rollout.
func (s *scenario) approve(c *call) error {
	if err := c.want(2, 2, "approve ROLLOUT STAGE"); err != nil {
		return err
	}
	o, err := s.object("rollout/" + c.args[0])
	if err != nil {
		return err
	}
	var refused error
	err = s.poll(func(ctx context.Context) (bool, string) {
		r := &v1beta2.ModuleRollout{}
		if refused = o.client.Get(ctx, o.key, r); refused != nil {
			return true, ""
		}
		before := r.DeepCopy()
		r.Spec.Approvals = append(r.Spec.Approvals, v1beta2.RolloutApproval{Stage: c.args[1], By: admin,
			At: metav1.Now(), Plan: r.Status.Plan})
		refused = o.client.Patch(ctx, r, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		return !apierrors.IsConflict(refused), fmt.Sprint(refused)
	})
	return cmp.Or(err, refused)
}

func (s *scenario) patch(c *call) error {
	if err := c.want(2, 2, "patch [-status] OBJECT JSON"); err != nil {
		return err
	}
	o, err := s.object(c.args[0])
	if err != nil {
		return err
	}
	if !json.Valid([]byte(c.args[1])) {
		return fmt.Errorf("%s is no JSON", c.args[1])
	}
	patch := client.RawPatch(types.MergePatchType, []byte(c.args[1]))
	var refused error
	// The API server may serve a new kind only intermittently at first.
	err = s.poll(func(ctx context.Context) (bool, string) {
		if c.has("status") {
			refused = o.client.Status().Patch(ctx, o.empty(), patch)
		} else {
			refused = o.client.Patch(ctx, o.empty(), patch)
		}
		return refused == nil || !strings.Contains(refused.Error(), "could not find the requested resource"),
			fmt.Sprint(refused)
	})
	return cmp.Or(err, refused)
}

func (s *scenario) delete(c *call) error {
	propagation := client.PropagationPolicy(metav1.DeletePropagationBackground)
	if c.has("foreground") {
		propagation = client.PropagationPolicy(metav1.DeletePropagationForeground)
	}
	for _, arg := range c.args {
		o, err := s.object(arg)
		if err != nil {
			return err
		}
		if err := o.client.Delete(s.ctx, o.empty(), propagation); err != nil {
			return fmt.Errorf("deleting %s: %w", arg, err)
		}
	}
	return nil
}
