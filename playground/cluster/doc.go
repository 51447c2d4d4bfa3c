// Package cluster runs real Kubernetes clusters inside a Go program: for tests, demonstrations and the local landscape.
// The package needs no container engine, no root and no network beyond the loopback interface.
//
//	host, err := cluster.Open(ctx, cluster.Options{Audit: true})
//	if err != nil { … }
//	defer host.Close()
//	c, err := host.Start(ctx, "runtime-a") // about 3 seconds
//	if err != nil { … }
//	client, err := kubernetes.NewForConfig(c.Config())
//
// # What a cluster is
//
// A cluster has a kube-apiserver with all default features. For example, the kube-apiserver has RBAC, ServiceAccount
// tokens bound to objects, admission with webhooks and policies, CustomResourceDefinitions with CEL, server-side apply,
// aggregated discovery and the watch cache. A cluster has the controllers for namespaces, garbage collection,
// Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs, ServiceAccounts and their tokens, endpoints and
// aggregated ClusterRoles. A cluster has the scheduler, and one node that is always Ready. All clusters of a Host share
// one etcd, in which each cluster has its own prefix. Each cluster has its own certificate authority and its own key
// for tokens, so the credentials of one cluster are not valid in another.
//
// Clients reach a cluster through a TCP proxy whose address never changes. A cluster can therefore be stopped (Stop),
// cut off (Cut), slowed (Slow) and healed (Mend, Start) without a change of its clients. The cluster's own parts and
// its pods do not use the proxy. With Options.Audit, a cluster records every request that its API server receives
// (Mark, Requests).
//
// # Pods
//
// Most pods are simulated, so no process runs. Simulated pods are scheduled, become Running and Ready, have an address,
// are found by Services, terminate, and count their restarts. Simulated containers that are expected to end
// (restartPolicy Never or OnFailure, init containers) end with success. The last element of the repository of an image
// can select a failure:
//
//	crash              exits with code 1 immediately, and goes into CrashLoopBackOff
//	never-starts       cannot be pulled, and goes into ImagePullBackOff
//	slow-start:10s     is Ready after the time in its tag
//
// For example, "kubectl set image deployment/x *=crash:1" shows a failure.
//
// Pods whose image is in Options.Images run as processes on this machine, with the permissions of the user who runs the
// Host. A process gets the arguments and the environment of its container, and the variable POD_NAMESPACE. The volumes
// of such a pod are files in a private folder, and the mount paths in arguments and variables are replaced by paths in
// this folder. KUBECONFIG is a kubeconfig with the token of its own ServiceAccount. The token is renewed before it
// expires. The readiness probe is called if it is an httpGet. A process that ends is restarted with back-off. A process
// is stopped with SIGTERM, then SIGKILL. The process ends at the latest together with the Host (on Linux even if the
// Host is killed). The output of a process is in Dir/logs, and "kubectl logs" shows it.
//
// All processes share the ports of this machine. To avoid conflicts between processes, a pod with the address 10.x.y.z
// in its status has the address 127.x.y.z on this machine. The process of the pod gets 127.x.y.z as status.podIP. An
// argument or variable that means "all addresses", as in --metrics-bind-address=:8443, is changed to 127.x.y.z. An API
// server that calls a webhook behind a Service converts the address 10.x.y.z of the pod to 127.x.y.z. Two clusters on a
// machine never have the same addresses, even if they are in different programs.
//
// # What it does not do
//
// Services have no reachable address, and there is no DNS. Only API servers find the pods behind a Service. Volumes
// other than Secret, ConfigMap, projected and downwardAPI are empty folders that are deleted with the pod. Claims for
// storage stay Pending. The simulated nodes do not support exec, attach and port-forward. Liveness probes, startup
// probes, and readiness probes other than httpGet are not called. Resource limits, security contexts, quota and
// disruption budgets have no effect, and images are never pulled. Processes that require the in-cluster configuration
// (KUBERNETES_SERVICE_HOST) do not find it. Data survives the end of the process, but not a crash of the machine.
// Kubernetes has one log for the whole process: with two Hosts, the Host that was opened later receives it. This
// package is not for production.
package cluster
