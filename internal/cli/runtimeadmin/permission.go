package runtimeadmin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// permission is the entry of a module in an annotation of the Kyma that allows something for one change of the module.
// klm writes the entry together with the change, and removes it when the change is done.
type permission struct {
	annotation, module string
	isGiven            bool
	until              string // when a person has to remove the entry if klm does not wait
}

// hint returns what the user of klm has to do with the permission if klm does not wait for the end of the change.
func (p permission) hint() string {
	if !p.isGiven {
		return ""
	}
	return fmt.Sprintf("; remove the module from the annotation %s of the Kyma when %s", p.annotation, p.until)
}

// end removes the permission if the change is done, which means that the parameter err is nil. If the change is not
// done, it still needs the permission, so end returns err with a hint.
func (p permission) end(ctx context.Context, c *connection.Cluster, err error) error {
	switch {
	case !p.isGiven:
		return err
	case errors.Is(err, context.Canceled):
		return console.Fail(console.ExitFailed, "interrupted%s", p.hint())
	case err != nil:
		return console.Fail(console.ExitCode(err), "%v%s", err, p.hint())
	}
	return removeListedModule(ctx, c, p.annotation, p.module)
}

// removeListedModule removes a module from an annotation of the Kyma that is a list of modules.
func removeListedModule(ctx context.Context, c *connection.Cluster, annotation, module string) error {
	for try := 1; ; try++ {
		k, err := c.Kyma(ctx, c.OwnKyma)
		if err != nil {
			return err
		}
		updated := k.DeepCopy()
		if !setListedModule(updated, annotation, module, false) {
			return nil
		}
		err = c.Patch(ctx, updated, client.MergeFromWithOptions(k, client.MergeFromWithOptimisticLock{}),
			client.FieldOwner(connection.FieldOwner))
		const tries = 5
		if apierrors.IsConflict(err) && try < tries {
			continue
		}
		if err != nil {
			return c.Explain(err, "changing the annotations of Kyma "+c.OwnKyma)
		}
		return nil
	}
}

// setListedModule adds a module to, or removes a module from, the list of modules in an annotation of a Kyma. All other
// modules stay in the list. setListedModule reports whether the annotation has changed.
func setListedModule(k *v1beta2.Kyma, annotation, module string, isListed bool) (changed bool) {
	var names []string
	for name := range strings.SplitSeq(k.Annotations[annotation], ",") {
		if name = strings.TrimSpace(name); name != "" && name != module {
			names = append(names, name)
		}
	}
	if isListed {
		names = append(names, module)
	}
	before, value := k.Annotations[annotation], strings.Join(names, ",")
	if value == "" {
		delete(k.Annotations, annotation)
	} else {
		metav1.SetMetaDataAnnotation(&k.ObjectMeta, annotation, value)
	}
	return before != value
}
