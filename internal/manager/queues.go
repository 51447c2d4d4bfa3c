package manager

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-fleet/lifecycle-manager/internal/queueing"
)

// kymaQueues has the queues of the Kyma controller. The queues are made before the controller, because the pool and the
// listener add requests to the queues, and the controller needs the pool and the listener.
type kymaQueues struct {
	namespace string
	trigger   *queueing.Trigger                        // adds reconciles
	reviews   workqueue.TypedDelayingInterface[string] // reviews of agents, by name of the Kyma
}

func newKymaQueues(namespace string) kymaQueues {
	return kymaQueues{namespace: namespace, trigger: &queueing.Trigger{},
		reviews: workqueue.NewTypedDelayingQueue[string]()}
}

// batchDelay is the delay of a Kyma after an event, so that several events cause only one reconcile or review.
const batchDelay = 100 * time.Millisecond

// enqueueAfterBatchDelay enqueues a Kyma.
func (q kymaQueues) enqueueAfterBatchDelay(kyma string) {
	q.trigger.Add(queueing.Event, batchDelay,
		reconcile.Request{NamespacedName: types.NamespacedName{Namespace: q.namespace, Name: kyma}})
}

// enqueueWithoutDelay enqueues a Kyma at once, because another controller waits until the owner is verified.
func (q kymaQueues) enqueueWithoutDelay(kyma string) {
	q.trigger.Add(queueing.Event, 0,
		reconcile.Request{NamespacedName: types.NamespacedName{Namespace: q.namespace, Name: kyma}})
}

// enqueueAgentReview enqueues a review of the agent of a Kyma. A review checks whether the reports or the watch list of
// the agent differ from the status of the Kyma.
func (q kymaQueues) enqueueAgentReview(kyma string) { q.reviews.AddAfter(kyma, batchDelay) }
