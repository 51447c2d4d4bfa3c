package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/endpoint"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/podgc"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	serviceaccountcontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/ttlafterfinished"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

const (
	workers = 4 // number of workers of each controller

	// resourceSync is the interval at which the garbage collector discovers new kinds. The garbage collector does not
	// find an owner whose kind was created less than resourceSync ago.
	resourceSync = 5 * time.Second
)

// startControllers starts the controllers of kube-controller-manager that the playground needs. The function starts
// each controller by itself instead of a whole kube-controller-manager. A kube-controller-manager keeps state in global
// variables, so a second one would not start in the same process. The controllers run until the context life ends. The
// caller waits for the end of the controllers with wg.
func startControllers(life context.Context, wg *sync.WaitGroup, server *apiServer, keys *pki) error {
	config, err := server.adminConfig("kube-controller-manager")
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(protobuf(config))
	if err != nil {
		return fmt.Errorf("starting controllers: %w", err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("starting controllers: %w", err)
	}
	shared := informers.NewSharedInformerFactory(client, 0)
	core, apps, batch := shared.Core().V1(), shared.Apps().V1(), shared.Batch().V1()

	// The list run has the functions that start the controllers. startControllers calls these functions after all
	// controllers are built, because informers must not start earlier.
	var run []func()
	start := func(f func(context.Context, int)) { run = append(run, func() { f(life, workers) }) }

	deployments, err := deployment.NewDeploymentController(life, apps.Deployments(),
		apps.ReplicaSets(), core.Pods(), client)
	if err != nil {
		return fmt.Errorf("starting the Deployment controller: %w", err)
	}
	start(deployments.Run)
	start(replicaset.NewReplicaSetController(life, apps.ReplicaSets(), core.Pods(), client,
		replicaset.BurstReplicas).Run)
	start(statefulset.NewStatefulSetController(life, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(),
		apps.ControllerRevisions(), client).Run)
	daemonSets, err := daemon.NewDaemonSetsController(life, apps.DaemonSets(), apps.ControllerRevisions(),
		core.Pods(), core.Nodes(), client,
		flowcontrol.NewBackOff(time.Second, 5*time.Minute))
	if err != nil {
		return fmt.Errorf("starting the DaemonSet controller: %w", err)
	}
	start(daemonSets.Run)
	jobs, err := job.NewController(life, client, core.Pods(), batch.Jobs(), nil, nil)
	if err != nil {
		return fmt.Errorf("starting the Job controller: %w", err)
	}
	start(jobs.Run)
	cronJobs, err := cronjob.NewControllerV2(life, batch.Jobs(), batch.CronJobs(), client)
	if err != nil {
		return fmt.Errorf("starting the CronJob controller: %w", err)
	}
	start(cronJobs.Run)
	start(ttlafterfinished.New(life, batch.Jobs(), client).Run)
	start(endpoint.NewEndpointController(life, core.Pods(), core.Services(), core.Endpoints(), client, 0).Run)
	start(endpointslice.NewController(life, core.Pods(), core.Services(), core.Nodes(),
		shared.Discovery().V1().EndpointSlices(), 100, client, 0).Run)
	start(clusterroleaggregation.NewClusterRoleAggregation(shared.Rbac().V1().ClusterRoles(), client.RbacV1()).Run)
	run = append(run, func() { podgc.NewPodGC(life, client, core.Pods(), core.Nodes(), 1000).Run(life) })
	start(namespace.NewNamespaceController(life, client, objects, client.Discovery().ServerPreferredNamespacedResources,
		core.Namespaces(), 5*time.Minute, corev1.FinalizerKubernetes).Run)

	accounts, err := serviceaccountcontroller.NewServiceAccountsController(klog.Background(),
		core.ServiceAccounts(), core.Namespaces(), client,
		serviceaccountcontroller.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return fmt.Errorf("starting the ServiceAccount controller: %w", err)
	}
	start(accounts.Run)
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, keys.tokens)
	if err != nil {
		return fmt.Errorf("starting the token controller: %w", err)
	}
	tokens, err := serviceaccountcontroller.NewTokensController(klog.Background(),
		core.ServiceAccounts(), core.Secrets(), client,
		serviceaccountcontroller.TokensControllerOptions{TokenGenerator: generator, RootCA: keys.caPEM})
	if err != nil {
		return fmt.Errorf("starting the token controller: %w", err)
	}
	start(tokens.Run)
	publisher, err := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), client, keys.caPEM)
	if err != nil {
		return fmt.Errorf("starting the certificate publisher: %w", err)
	}
	start(publisher.Run)

	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	metadataInformers := metadatainformer.NewSharedInformerFactory(objects, 0)
	all := informerfactory.NewInformerFactory(shared, metadataInformers)
	started := make(chan struct{})
	collector, err := garbagecollector.NewGarbageCollector(life, client, objects, mapper,
		garbagecollector.DefaultIgnoredResources(), all, started)
	if err != nil {
		return fmt.Errorf("starting the garbage collector: %w", err)
	}
	run = append(run,
		func() { collector.Run(life, workers, resourceSync) },
		func() { collector.Sync(life, client.Discovery(), resourceSync) })

	all.Start(life.Done())
	close(started)
	for _, f := range run {
		wg.Go(f)
	}
	wg.Go(func() { // informers end when life ends; wait for their end
		<-life.Done()
		shared.Shutdown()
		metadataInformers.Shutdown()
	})
	return nil
}
