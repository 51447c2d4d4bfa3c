package cluster

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// startScheduler starts the default scheduler without leader election. The scheduler runs until the context life ends.
// The caller waits for the end of the scheduler with wg.
func startScheduler(life context.Context, wg *sync.WaitGroup, server *apiServer) error {
	config, err := server.adminConfig("kube-scheduler")
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(protobuf(config))
	if err != nil {
		return fmt.Errorf("starting the scheduler: %w", err)
	}
	informers := scheduler.NewInformerFactory(client, 0, nil)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	s, err := scheduler.New(life, client, informers, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithKubeConfig(config), scheduler.WithPodMaxBackoffSeconds(5), scheduler.WithParallelism(2))
	if err != nil {
		return fmt.Errorf("starting the scheduler: %w", err)
	}
	if err := broadcaster.StartRecordingToSinkWithContext(life); err != nil {
		return fmt.Errorf("starting the scheduler: %w", err)
	}
	informers.Start(life.Done())
	wg.Go(func() {
		defer broadcaster.Shutdown()
		informers.WaitForCacheSync(life.Done())
		if s.WaitForHandlersSync(life) == nil {
			s.Run(life)
		}
		informers.Shutdown()
	})
	return nil
}
