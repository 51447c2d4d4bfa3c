package connection

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// Resources of rollouts. A control plane with CRDs from before the introduction of rollouts does not serve
// ModuleRollouts and RolloutPolicies.
const (
	ResourceRollouts = "modulerollouts"
	ResourcePolicies = "rolloutpolicies"
)

// ControlPlaneWithRollouts connects to a control plane that has rollouts.
func ControlPlaneWithRollouts(ctx context.Context, a *console.App) (*Cluster, error) {
	c, err := ControlPlane(ctx, a)
	if err != nil {
		return nil, err
	}
	if !c.Serves[ResourceRollouts] {
		return nil, console.Fail(console.ExitCluster,
			"%s has no %s.%s: its CRDs are older than this klm: ask its platform team to update them", c,
			ResourceRollouts, v1beta2.GroupVersion.Group)
	}
	return c, nil
}

// Rollouts reads the ModuleRollouts whose labels match a selector. If the control plane does not serve ModuleRollouts,
// the result is empty.
func (c *Cluster) Rollouts(ctx context.Context, selector labels.Selector) ([]v1beta2.ModuleRollout, error) {
	if !c.Serves[ResourceRollouts] {
		return nil, nil
	}
	list := &v1beta2.ModuleRolloutList{}
	err := c.List(ctx, list, c.InNamespace(), client.MatchingLabelsSelector{Selector: selector})
	return list.Items, c.Explain(err, "reading the ModuleRollouts")
}

// Policies reads all RolloutPolicies. If the control plane does not serve RolloutPolicies, the result is empty.
func (c *Cluster) Policies(ctx context.Context) ([]v1beta2.RolloutPolicy, error) {
	if !c.Serves[ResourcePolicies] {
		return nil, nil
	}
	list := &v1beta2.RolloutPolicyList{}
	return list.Items, c.Explain(c.List(ctx, list, c.InNamespace()), "reading the RolloutPolicies")
}

// Rollout reads a ModuleRollout. If the ModuleRollout does not exist, the error suggests similar names.
func (c *Cluster) Rollout(ctx context.Context, name string) (*v1beta2.ModuleRollout, error) {
	r := &v1beta2.ModuleRollout{}
	err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, r)
	if apierrors.IsNotFound(err) {
		return nil, console.Fail(console.ExitNotFound, "rollout %q does not exist in namespace %s of %s: %s", name,
			c.Namespace, c, console.SuggestionText(name, c.rolloutNames(ctx)))
	}
	return r, c.Explain(err, "reading ModuleRollout "+name)
}

// rolloutNames returns the names of all ModuleRollouts. If the ModuleRollouts cannot be listed, rolloutNames returns no
// names.
func (c *Cluster) rolloutNames(ctx context.Context) []string {
	rollouts, err := c.Rollouts(ctx, labels.Everything())
	if err != nil {
		return nil
	}
	var all []string
	for i := range rollouts {
		all = append(all, rollouts[i].Name)
	}
	return all
}

// RolloutNames returns a source of names for shell completion: the names of the rollouts for which the parameter
// "accepts", a function, returns true.
func RolloutNames(a *console.App, accepts func(*v1beta2.ModuleRollout) bool) console.NameSource {
	return func(ctx context.Context, _ []string) []string {
		c, err := ControlPlaneWithRollouts(ctx, a)
		if err != nil {
			return nil
		}
		rollouts, err := c.Rollouts(ctx, labels.Everything())
		if err != nil {
			return nil
		}
		var all []string
		for i := range rollouts {
			if accepts(&rollouts[i]) {
				all = append(all, rollouts[i].Name)
			}
		}
		return all
	}
}

// RolloutChanges returns a Go channel that receives a value when the named ModuleRollout may have changed, until ctx
// ends. If the parameter "name" is "", RolloutChanges watches all ModuleRollouts.
func (c *Cluster) RolloutChanges(ctx context.Context, name string) <-chan struct{} {
	changed := make(chan struct{}, 1)
	var which []client.ListOption
	if name != "" {
		which = append(which, client.MatchingFields{"metadata.name": name})
	}
	go c.watchAndNotify(ctx, changed, &v1beta2.ModuleRolloutList{}, which...)
	return changed
}

// WaitForRollout is [WaitForKyma] for a ModuleRollout.
func WaitForRollout(ctx context.Context, a *console.App, c *Cluster, name string, timeout time.Duration,
	check func(*v1beta2.ModuleRollout) Progress) error {
	return waitFor(ctx, a, c, name, timeout, c.RolloutChanges,
		func() *v1beta2.ModuleRollout { return &v1beta2.ModuleRollout{} }, check)
}

// UserName returns the name under which the API server knows the user.
func (c *Cluster) UserName(ctx context.Context) (string, error) {
	r := &authenticationv1.SelfSubjectReview{}
	err := c.Create(ctx, r)
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err):
		return "", console.Fail(console.ExitFailed,
			"%s does not serve SelfSubjectReviews, so your name is not known: Kubernetes 1.28 or newer is needed", c)
	case err != nil:
		return "", c.Explain(err, "asking the API server for your name")
	case r.Status.UserInfo.Username == "":
		return "", console.Fail(console.ExitForbidden, "%s does not know your name: log in, or use another context", c)
	}
	return r.Status.UserInfo.Username, nil
}

// StageSelectionText returns a text about the runtimes that belong to a stage.
func StageSelectionText(s *v1beta2.ModuleRolloutStage) string {
	switch {
	case s.Selector != nil:
		selector, err := s.Selector.Selector().Compile()
		if err != nil {
			return "invalid selector: " + err.Error()
		}
		return selector.String()
	case s.Percent == 0 || s.Percent == 100:
		return "all others"
	case s.MinCount > 0:
		return fmt.Sprintf("up to %d %%, at least %d", s.Percent, s.MinCount)
	}
	return fmt.Sprintf("up to %d %%", s.Percent)
}
