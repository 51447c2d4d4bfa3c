package manager

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
)

// kymaQueues are the queues of the Kyma controller. They are made before it, because pool and listener add to them and
// the controller needs both.
type kymaQueues struct {
	namespace string
	trigger   *queueing.Trigger                        // of reconciles
	reviews   workqueue.TypedDelayingInterface[string] // of agents, by name of the Kyma
}

func newKymaQueues(namespace string) kymaQueues {
	return kymaQueues{namespace: namespace, trigger: &queueing.Trigger{},
		reviews: workqueue.NewTypedDelayingQueue[string]()}
}

// batchDelay is how long a Kyma is delayed after an event, so that several events lead to one reconcile or review.
const batchDelay = 100 * time.Millisecond

// reconcile enqueues a Kyma.
func (q kymaQueues) reconcile(kyma string) {
	q.trigger.Add(queueing.Event, batchDelay,
		reconcile.Request{NamespacedName: types.NamespacedName{Namespace: q.namespace, Name: kyma}})
}

// review enqueues a review of the agent of a Kyma: whether what the agent reports, or has to watch, differs from the
// status of the Kyma.
func (q kymaQueues) review(kyma string) { q.reviews.AddAfter(kyma, batchDelay) }
