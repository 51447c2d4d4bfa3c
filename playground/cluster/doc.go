// Package cluster runs real Kubernetes clusters inside a Go program: for tests, demonstrations and the local landscape.
// It needs no container engine, no root and no network beyond the loopback interface.
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
// A kube-apiserver with everything that it has by default: RBAC, ServiceAccount tokens bound to objects, admission with
// webhooks and policies, CustomResourceDefinitions with CEL, server-side apply, aggregated discovery, the watch cache.
// The controllers for namespaces, garbage collection, Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs,
// CronJobs, ServiceAccounts and their tokens, endpoints and aggregated ClusterRoles. The scheduler. One node that is
// always Ready. All clusters of a Host share one etcd, each with a prefix of its own. Each has its own certificate
// authority and its own key for tokens, so credentials of one are worth nothing to another.
//
// Clients reach a cluster through a TCP proxy whose address never changes, so that a cluster can be stopped (Stop), cut
// off (Cut), slowed (Slow) and healed (Mend, Start) under clients that know nothing of it. The cluster's own parts and
// its pods go past the proxy. With Options.Audit a cluster remembers every request as the server saw it (Mark,
// Requests).
//
// # Pods
//
// Most pods are simulated: no process runs, yet they are scheduled, become Running and Ready, have an address, are
// found by Services, terminate, and count their restarts. Pods that end by nature (restartPolicy Never or OnFailure,
// init containers) end well. The last element of an image's repository can ask for trouble:
//
//	crash              exits with code 1 at once, and goes into CrashLoopBackOff
//	never-starts       cannot be pulled, and goes into ImagePullBackOff
//	slow-start:10s     is Ready after the time in its tag
//
// so that "kubectl set image deployment/x *=crash:1" shows how a failure looks.
//
// Pods whose image is in Options.Images run as processes on this machine, with the rights of the user who runs the
// Host. A process gets the arguments and the environment of its container; its volumes as files in a private folder,
// with the mount paths in arguments and variables replaced to match; in KUBECONFIG a kubeconfig with its own
// ServiceAccount's token, which is renewed in time; and POD_NAMESPACE. Its readiness probe is asked if it is an
// httpGet. It is restarted with back-off when it ends, and ended with SIGTERM, then SIGKILL. It does not outlive the
// Host (on Linux not even one that is killed). Its output is in Dir/logs, and "kubectl logs" shows it.
//
// All processes share this machine's ports. So that they do not meet, a pod that has the address 10.x.y.z in its status
// has the address 127.x.y.z on this machine: its process gets that one as status.podIP, and an argument or variable
// that says "all addresses", as in --metrics-bind-address=:8443, is given it too. API servers know this, so webhooks
// behind a Service work. No two clusters on a machine have the same addresses, also not those of different programs.
//
// # What it does not do
//
// Services have no reachable address and there is no DNS: only API servers find the pods behind a Service. Volumes
// other than Secret, ConfigMap, projected and downwardAPI are empty folders that go with the pod; claims for storage
// stay Pending. There is no exec, attach or port-forward. Liveness and startup probes, and readiness probes other than
// httpGet, are not asked. Resource limits, security contexts, quota and disruption budgets have no effect, and images
// are never pulled. Processes that insist on the in-cluster configuration (KUBERNETES_SERVICE_HOST) find none. Data
// outlives the process but not a crash of the machine. The log of Kubernetes is one for the whole process: with two
// Hosts, the younger has it. Nothing here is meant for production.
package cluster
