package handover

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
)

// TakeCommand returns klm runtime take.
func TakeCommand(a *console.App) *cobra.Command {
	o := takeOptions{Verb: fleetlist.Verb{Question: "Take the cluster of %s?", Asks: true}}
	c := a.Command("take RUNTIME… | -l SELECTOR [--yes]",
		"make runtimes the owners of their clusters, although the clusters have another owner", `
klm shows whose the cluster is and what will happen, and asks before it starts. Use it after the loss of a control plane, after a move to another
control plane, or if the access Secret leads to another cluster on purpose. Afterwards the former owner changes nothing in the cluster any more.
The control plane itself cannot be taken. To see whose the cluster is, klm reads the access Secret of the runtime, or uses --runtime-context of
the kubeconfig.`, `
klm runtime take runtime-a
klm runtime take runtime-a --yes --no-wait
klm runtime take -l kyma-project.io/region=eu-central-1 --dry-run`,
		o.Args, func(cmd *cobra.Command, args []string) error {
			c, err := connection.ControlPlane(cmd.Context(), a)
			if err != nil {
				return err
			}
			o.Plan = o.plan
			return o.Run(cmd.Context(), a, c, args)
		})
	o.Register(a, c)
	c.Flags().StringVar(&o.context, "runtime-context", "",
		"context of the kubeconfig for the runtime; empty: the access Secret in the control plane")
	return c
}

// takeOptions are the flags of klm runtime take.
type takeOptions struct {
	fleetlist.Verb
	context string
}

// plan shows the owner of the cluster of a runtime, and the effects of a takeover.
func (o *takeOptions) plan(ctx context.Context, a *console.App, c *connection.Cluster, name string) (
	p fleetlist.Plan, err error) {
	k, err := c.Kyma(ctx, name)
	if err != nil {
		return p, err
	}
	if !k.DeletionTimestamp.IsZero() {
		return p, console.Fail(console.ExitNotReady, "runtime %s is being deleted, so it cannot take its cluster over",
			name)
	}
	problem, err := reasonForTakeover(ctx, a, c, k, o.context)
	if err != nil {
		return p, err
	}
	p.Would = console.Outcome{Object: "kyma/" + name, Result: "runtime " + name + " would take its cluster"}
	if problem == "" {
		p.Would.Result = "the cluster of runtime " + name + " has no other owner, so there is nothing to take"
		return p, nil
	}
	showTake(a, k, problem)
	p.Do = func(ctx context.Context, a *console.App) (console.Outcome, error) { return o.take(ctx, a, c, k) }
	return p, nil
}

// take makes the Kyma of a runtime the owner of the cluster of this runtime.
func (o *takeOptions) take(ctx context.Context, a *console.App, c *connection.Cluster, k *v1beta2.Kyma) (
	done console.Outcome, err error) {
	done.Object = "kyma/" + k.Name
	if err := RequestTake(ctx, c, k); err != nil {
		return done, err
	}
	if o.NoWait {
		done.Result = "runtime " + k.Name + " will take its cluster; klm why " + k.Name + " shows its progress"
		return done, nil
	}
	if err := connection.WaitForKyma(ctx, a, c, k.Name, o.Timeout, takeProgress); err != nil {
		return done, err
	}
	done.Result = "the cluster belongs to runtime " + k.Name
	return done, nil
}

// RequestTake annotates a Kyma, so that the manager makes it the owner of its cluster.
func RequestTake(ctx context.Context, c *connection.Cluster, k *v1beta2.Kyma) error {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, k.UID, v1beta2.AnnotationTakeRuntime,
		v1beta2.ValueTrue)
	return c.Explain(c.Patch(ctx, k, client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(connection.FieldOwner)), "annotating Kyma "+k.Name)
}

// reasonForTakeover returns the reason why the Kyma may not use its cluster without a takeover. If the Kyma may use the
// cluster, no takeover is necessary, and reasonForTakeover returns "". If klm cannot read the owner of the cluster,
// reasonForTakeover returns a text about this failure instead of an error: the user may know the owner, and may still
// request the takeover.
func reasonForTakeover(ctx context.Context, a *console.App, c *connection.Cluster, k *v1beta2.Kyma,
	kubeContext string) (string, error) {
	r, err := c.RuntimeCluster(ctx, a, k.Name, kubeContext)
	if err == nil {
		if _, err = VerifyOwner(ctx, c, k.Name, k.UID, r, false); err == nil {
			return OtherOwnerMessage(k), nil // another cluster than before is known only to the manager
		}
	}
	refused, ok := errors.AsType[*ownership.Refusal](err)
	switch {
	case !ok:
		return "klm cannot read whose the cluster of runtime " + k.Name + " is: " + err.Error(), nil
	case refused.Code == v1beta2.ReasonRuntimeIsControlPlane:
		return "", console.Fail(console.ExitCluster, "%s; %s", refused.Problem, refused.Advice)
	}
	return refused.Problem, nil
}

// OtherOwnerMessage returns the message in the status about another owner of the cluster, or "".
func OtherOwnerMessage(k *v1beta2.Kyma) string {
	for _, condition := range k.Status.Conditions {
		if condition.Status != metav1.ConditionTrue && isOtherOwnerReason(condition.Reason) {
			return condition.Message
		}
	}
	return ""
}

// showTake writes the effects of a takeover of the cluster.
func showTake(a *console.App, k *v1beta2.Kyma, problem string) {
	p := a.Page()
	p.Wrap("", problem+".")
	p.Wrap("  ", "Runtime "+k.Name+" becomes the owner: the manager writes that into the cluster, compares all "+
		"modules, and manages them from now on. The requested modules stay those of the Kyma in the cluster.")
	p.Wrap("  ", "A former owner changes nothing there any more and reports "+v1beta2.ReasonRuntimeTaken+"; delete "+
		"its Kyma then, which leaves the cluster as it is. If it still works, make sure that it is meant to stop.")
	p.Wrap("  ", "A former cluster of this runtime keeps everything that it has.")
	fmt.Fprint(a.Err, p.String())
}

// takeProgress returns the progress of a takeover of the cluster. The manager removes the annotation when the takeover
// is done.
func takeProgress(k *v1beta2.Kyma) connection.Progress {
	if k == nil {
		return connection.Progress{Blocked: console.Fail(console.ExitNotReady,
			"the runtime was removed in the meantime")}
	}
	if _, requested := k.Annotations[v1beta2.AnnotationTakeRuntime]; !requested {
		return connection.Progress{Done: true}
	}
	if c := meta.FindStatusCondition(k.Status.Conditions, v1beta2.ConditionReady); c != nil &&
		c.Status != metav1.ConditionTrue {
		return connection.Progress{Text: c.Message}
	}
	return connection.Progress{Text: "waiting for the control plane to reconcile it"}
}
