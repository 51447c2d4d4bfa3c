// Command operator is the operator of the sample module. The operator installs a workload for every Sample, reports the
// state of the workload in the status, and removes the workload when the Sample is deleted.
//
// The operator runs in a pod, or as a process with KUBECONFIG or --kubeconfig. By default the operator listens on no
// port, so any number of processes can run on one machine. controller.go has the reconciler, and package sample
// describes the purpose of the module.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kyma-fleet/lifecycle-manager/playground/sample"
)

func main() {
	metrics := flag.String("metrics-bind-address", "0", "address of plain HTTP /metrics; 0 switches it off")
	probes := flag.String("health-probe-bind-address", "0", "address of /healthz and /readyz; 0 switches it off")
	elect := flag.Bool("leader-elect", false, "agree with other replicas on the one that works")
	namespace := flag.String("leader-election-namespace", sample.Namespace, "namespace of the lease of --leader-elect")
	version := flag.String("module-version", "0.0.0", "version of the module, put on what is installed")
	image := flag.String("workload-image", "registry.k8s.io/pause:3.10",
		"image of a Sample's pods, unless it names one")
	flag.Parse()

	ctrl.SetLogger(logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, nil)))
	if err := run(*metrics, *probes, *elect, *namespace, workload{version: *version, image: *image}); err != nil {
		fmt.Fprintln(os.Stderr, "sample-operator:", err)
		os.Exit(1)
	}
}

func run(metrics, probes string, elect bool, namespace string, w workload) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding a cluster (run in a pod, or set KUBECONFIG): %w", err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, sample.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("registering kinds: %w", err)
		}
	}
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{labelManagedBy: sample.Operator})}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Metrics:                       server.Options{BindAddress: metrics},
		HealthProbeBindAddress:        probes,
		LeaderElection:                elect,
		LeaderElectionID:              sample.Operator,
		LeaderElectionNamespace:       namespace,
		LeaderElectionReleaseOnCancel: true,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject:         map[client.Object]cache.ByObject{&appsv1.Deployment{}: ours, &corev1.ConfigMap{}: ours},
		},
	})
	if err != nil {
		return fmt.Errorf("building the manager: %w", err)
	}
	if probes != "0" {
		if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
			return fmt.Errorf("adding a health check: %w", err)
		}
		if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
			return fmt.Errorf("adding a readiness check: %w", err)
		}
	}
	r := &reconciler{client: mgr.GetClient(), live: mgr.GetAPIReader(), workload: w}
	if err := r.register(mgr); err != nil {
		return fmt.Errorf("building the controller: %w", err)
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
