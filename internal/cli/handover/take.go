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
	"github.com/kyma-fleet/lifecycle-manager/internal/ownership"
)

// TakeCommand returns klm runtime take.
func TakeCommand(a *console.App) *cobra.Command {
	o := takeOptions{}
	c := a.Command("take RUNTIME [--yes]", "make a runtime the owner of its cluster, although the cluster has another owner", `
klm shows whose the cluster is and what will happen, and asks before it starts. Use it after the loss of a control plane, after a move to another
control plane, or if the access Secret leads to another cluster on purpose. Afterwards the former owner changes nothing in the cluster any more.
The control plane itself cannot be taken. To see whose the cluster is, klm reads the access Secret of the runtime, or uses --runtime-context of
the kubeconfig.`, `
klm runtime take runtime-a
klm runtime take runtime-a --yes --no-wait`,
		console.Arguments("RUNTIME"), func(cmd *cobra.Command, args []string) error {
			o.name = args[0]
			return takeRuntime(cmd.Context(), a, o)
		})
	c.ValidArgsFunction = console.CompleteArguments(connection.RuntimeNames(a))
	c.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	c.Flags().StringVar(&o.context, "runtime-context", "",
		"context of the kubeconfig for the runtime; empty: the access Secret in the control plane")
	o.wait.Register(c.Flags())
	return c
}

// takeOptions are the arguments and flags of klm runtime take.
type takeOptions struct {
	name, context string
	yes           bool
	wait          console.WaitFlags
}

func takeRuntime(ctx context.Context, a *console.App, o takeOptions) error {
	c, err := connection.ControlPlane(ctx, a)
	if err != nil {
		return err
	}
	k, err := c.Kyma(ctx, o.name)
	if err != nil {
		return err
	}
	if !k.DeletionTimestamp.IsZero() {
		return console.Fail(console.ExitNotReady, "runtime %s is being deleted, so it cannot take its cluster over",
			o.name)
	}
	problem, err := problemToTake(ctx, a, c, k, o)
	if err != nil {
		return err
	}
	if problem == "" {
		return a.Print(console.Outcome{Object: "kyma/" + o.name, Result: "the cluster of runtime " + o.name +
			" has no other owner, so there is nothing to take"})
	}
	showTake(a, k, problem)
	if !o.yes {
		if err := a.Confirm("Take the cluster of runtime " + o.name + "?"); err != nil {
			return err
		}
	}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, k.UID, v1beta2.AnnotationTakeRuntime,
		v1beta2.ValueTrue)
	if err := c.Patch(ctx, k, client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(connection.FieldOwner)); err != nil {
		return c.Explain(err, "annotating Kyma "+o.name)
	}
	if o.wait.NoWait {
		return a.Print(console.Outcome{Object: "kyma/" + o.name, Result: "runtime " + o.name +
			" will take its cluster; klm why " + o.name + " shows its progress"})
	}
	if err := connection.WaitForKyma(ctx, a, c, o.name, o.wait.Timeout, takeProgress); err != nil {
		return err
	}
	return a.Print(console.Outcome{Object: "kyma/" + o.name, Result: "the cluster belongs to runtime " + o.name})
}

// problemToTake returns the reason why the Kyma may not use the cluster now, or "" if it may use the cluster without a
// takeover. If the cluster cannot be read, problemToTake returns a text about that failure, because the user may know
// the owner.
func problemToTake(ctx context.Context, a *console.App, c *connection.Cluster, k *v1beta2.Kyma, o takeOptions) (
	string, error) {
	r, err := c.RuntimeCluster(ctx, a, o.name, o.context)
	if err == nil {
		if _, err = VerifyOwner(ctx, c, o.name, k.UID, r, false); err == nil {
			return OwnerProblem(k), nil // another cluster than before is known only to the manager
		}
	}
	refused, ok := errors.AsType[*ownership.Refusal](err)
	switch {
	case !ok:
		return "klm cannot read whose the cluster of runtime " + o.name + " is: " + err.Error(), nil
	case refused.Code == v1beta2.ReasonRuntimeIsControlPlane:
		return "", console.Fail(console.ExitCluster, "%s; %s", refused.Problem, refused.Advice)
	}
	return refused.Problem, nil
}

// OwnerProblem returns the message in the status about another owner of the cluster, or "".
func OwnerProblem(k *v1beta2.Kyma) string {
	for _, condition := range k.Status.Conditions {
		if condition.Status != metav1.ConditionTrue && isOwnerReason(condition.Reason) {
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
