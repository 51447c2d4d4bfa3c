// Package fleet simulates thousands of Kubernetes clusters in one process: each has an API endpoint of its own over TLS
// and HTTP/2, its own credentials and its own state, and costs a few kilobytes.
//
// Use:
//
//	f, err := fleet.Open(ctx, fleet.Options{Clusters: 10_000, Seed: 1})
//	defer f.Close()
//	c := f.Cluster(7)
//	c.Kubeconfig()                                   // credentials, to register the cluster
//	c.Edit(kymas, "kyma-system", "default", change)  // as the cluster's admin would
//	c.Fault(fleet.Fault{Dead: fleet.BlackHole})      // until c.Heal()
//	c.RotateCredentials()                            // replaces the credentials
//	f.MarkFleetTotals(); …; f.Since()                // counts of requests since MarkFleetTotals, by verb and resource
//
// # How it works
//
// The API server's own code decides the result of a request: defaults, validation, server-side apply with
// managedFields, patches, preconditions, finalizers, status, and CRDs with schemas, pruning and CEL. Package fleet runs
// the request handlers of k8s.io/kubernetes (builtin.go) and of the API extensions (kind.go). These handlers read from
// and write to a storage that holds one object, for the duration of one request (storage.go). A request is therefore a
// function: its inputs are the present object and the request, and its results are the new object and the answer.
//
// Thousands of clusters send requests that differ only in a few values. Clusters differ in UIDs, times, versions, and
// the names that [Options].Varying lists. Package fleet replaces such values by tokens, which are fixed texts, before
// an object and a request reach the handlers of the API server (body.go). In the resulting object, the places of the
// tokens become gaps: places where each object has a value of its own. The JSON without the values of the gaps is
// called the body, and equal objects of all clusters share one body. For each object, a cluster stores only a reference
// to the shared body and the object's own values (store.go). The results of requests are cached (write.go). If a
// request and the body of its object are in the cache, the request costs a look-up instead of a millisecond in the
// handlers.
//
// Package fleet itself implements reads: lists with pages and selectors, metadata only, and other versions (read.go).
// The package also implements watches, each of which reads the log of the cluster's newest changes at its own pace
// (watch.go), and discovery (discover.go). The package also implements the few controllers that make objects ready and
// delete them (settle.go, status.go): CRDs become established, workloads become available after a delay, Jobs complete,
// claims are bound, dependents are deleted with their owners, and namespaces and CRDs are deleted with their contents.
// One timer serves all clusters. An idle cluster has no goroutine.
//
// All clusters share one listening socket on the loopback device. Each cluster has its own address in 127.0.0.0/8, and
// the address to which a client has connected identifies the cluster (listen.go). Certificates are issued during the
// TLS handshake.
//
// The seed, the index of the cluster and the number of the request decide which requests a fault hits (fault.go). With
// the same seed and the same requests, a run has the same faults again.
//
// The conformance test sends about two hundred requests to a simulated cluster and to a real API server, and compares
// the answers. The test also lets the apply engine of this project install, heal and remove a module in both servers.
//
// # What it does not do
//
// There is no authorization: every client with the token has all rights. The only admission plugin is
// NamespaceLifecycle: there are no webhooks, policies, quotas or priorities. There are no nodes, and a workload has no
// pods or ReplicaSets. Namespaces have no default service account and no root certificate. System roles do not exist,
// and CRDs do not create APIServices. Tables, protobuf, CBOR, OpenAPI, compression, logs, proxies, tokens, evictions
// and reviews are not served. A list shows the present state, even if the request names an older resourceVersion. The
// later pages of a list are read at the time of their own request, not at that of the first page. CRDs never conflict
// over names, and support only the conversion strategy None. Services get addresses without a check for duplicates. A
// refused connection is first accepted and then reset, unless each cluster has its own port. Events do not expire.
// Cached results and CRDs that were once seen stay in memory.
package fleet
