// Package fleet simulates thousands of Kubernetes clusters in one process: each has an API endpoint of its own over TLS
// and HTTP/2, its own credentials and its own state, and costs a few kilobytes.
//
// Use:
//
//	f, err := fleet.Open(ctx, fleet.Options{Clusters: 10_000, Seed: 1})
//	defer f.Close()
//	c := f.Cluster(7)
//	c.Kubeconfig()                                   // for whom it is to be registered
//	c.Edit(kymas, "kyma-system", "default", change)  // as the cluster's admin would
//	c.Fault(fleet.Fault{Dead: fleet.BlackHole})      // until c.Heal()
//	c.Rotate()                                       // other credentials from now on
//	f.Mark(); …; f.Since()                           // what was asked meanwhile, by verb and resource
//
// # How it works
//
// What a request does is decided by the API server's own code: defaults, validation, server-side apply with its
// managedFields, patches, preconditions, finalizers, status, definitions of custom resources with schemas, pruning and
// CEL. All of that runs in the handlers of k8s.io/kubernetes (builtin.go) and of the API extensions (kind.go), over
// storage that holds one object for the time of one request (storage.go). So a request is a function: of the object as
// it is and of what is sent, to the object as it will be and the answer.
//
// Thousands of clusters ask for the same thing. Where they differ (UIDs, times, versions, names of their own as
// [Options].Varying says), objects and requests have tokens in place of values before they reach the handlers, and gaps
// afterwards (body.go). Equal objects of all clusters are one body with gaps, kept once; a cluster keeps a reference
// and the values (store.go). And an outcome is remembered (write.go): the same request that meets the same body again
// costs a look-up in place of a millisecond of the handlers.
//
// Reading is ours: lists with pages and selectors, metadata only, other versions (read.go); watches, which read a log
// of the cluster's newest changes at their own pace (watch.go); discovery (discover.go). So are the few controllers
// without which nothing would become ready or end (settle.go, status.go): definitions are established, workloads become
// available after a while, Jobs complete, claims are bound, owners take what they own with them, namespaces and
// definitions end with what is in them. One timer serves all clusters; an idle cluster has no goroutine.
//
// All clusters share one listening socket on the loopback device: each has an address of its own in 127.0.0.0/8, and
// the address that a client has connected to identifies the cluster (listen.go). Certificates are issued in the
// handshake.
//
// Faults are decided by the seed, the cluster and the number of the request (fault.go), so that a run can be repeated.
//
// The conformance test makes some two hundred requests to a simulated cluster and to a real API server and compares the
// answers, and lets the apply engine of this project install, heal and remove a module at both.
//
// # What it does not do
//
// There is no authorization: whoever has the token has all rights. Admission is NamespaceLifecycle alone: no webhooks,
// policies, quotas or priorities. There are no nodes, and no pods or ReplicaSets behind a workload. Namespaces come
// without service account and root certificate, roles of the system are not there, APIServices are not made of
// definitions. Tables, protobuf, CBOR, OpenAPI, compression, logs, proxies, tokens, evictions and reviews are not
// served. A list shows the present, whatever resourceVersion is asked for, and so do its later pages. Definitions never
// conflict over names, and are converted by the strategy None only. Services get addresses that are not checked. A
// refused connection is reset after it was made, unless each cluster has its own port. Events do not expire. Entries of
// the memo and definitions once seen are kept.
package fleet
