// Package apply applies the objects of a bundle to one cluster, and deletes them again.
//
//	cluster, err := apply.New(config, nil, apply.ClusterOptions{})
//	set := apply.Set{Bundle: bundle, Namespace: "kyma-system"}
//	refs, err := cluster.Inventory(ctx, set)        // record it before the first Apply
//	result, err := cluster.Apply(ctx, set, &done)   // repeat until result.Done()
//	notReady, err := cluster.CheckReady(ctx, refs, &done)
//	drifted, err := cluster.FindDrift(ctx, set, &done) // reads only; the next Apply corrects what has drifted
//	teardown, err := cluster.Delete(ctx, apply.Removed(recorded, refs), &asked) // repeat until teardown.Done()
//
// # How it works
//
// No call waits for progress in the cluster. Each call does what can be done now, reports what is left and why, and
// returns. The caller decides when to call again; a later call sends only what is left.
//
// Apply sends one server-side apply PATCH for each object that Progress does not have with the same content. It is
// without force. If another field manager has set one of these fields to another value, the API server names fields and
// managers, and a second PATCH with force takes them over: see Result.TakenOver. No other requests are needed: scope
// and plural of a kind come from a built-in table, from the CustomResourceDefinitions of the bundle, or from one
// discovery request per group and version, whose answer is cached. Objects are applied in phases, in parallel within
// each:
//
//	foundation     namespaces, CustomResourceDefinitions
//	configuration  service accounts, roles, ConfigMaps, Secrets, Services and all the rest
//	bindings       RoleBindings and ClusterRoleBindings, which need their roles
//	workloads      what runs pods, or controls what runs pods (HorizontalPodAutoscaler, PodDisruptionBudget)
//	admission      webhooks, admission policies, API services: they call workloads
//	custom         custom resources
//
// An object that fails does not stop the others, but objects that depend on it wait: objects of a namespace, custom
// resources of a CRD, workloads if a CRD, configuration or access rights failed, webhooks if any of these failed. A
// custom resource whose CRD has just been created is not sent before a discovery request has returned its kind. An
// error that concerns the cluster as a whole ends the call at once: no more requests are sent to a cluster that is
// unreachable, refuses the credential or throttles.
//
// Annotations of an object in the bundle change how it is treated: create-only, fields that are ignored once the object
// exists, never deleted, deleted and created again if a field is immutable. See AnnotationApplyPolicy and the constants
// after it. They cost no requests where they are not used. The first two cost one or two requests if the object exists
// already: that is found out by a PATCH with resourceVersion 1, which can create an object but not change one.
//
// For a CustomResourceDefinition that drops a stored version, or changes its scope, no check is needed before: the API
// server compares it with the stored versions and writes nothing. Its refusal is reported as StoredVersionDropped
// or FieldImmutable.
//
// Progress records what the API server answered: generation, resourceVersion, UID and a hash of the fields that we own.
// It recognises own writes among events (ObserveEvent), and lets FindDrift read metadata only: an API server takes the
// ownership of a field from us when another field manager changes it. Answers are requested as metadata where that is
// enough, so that applying a large CustomResourceDefinition does not return it.
//
// Delete works from an inventory alone, in phases too: custom resources first, while their operator runs, namespaces
// last. Each object gets one DELETE (none if its Ref says Keep), whose answer shows whether it is deleted. Only objects
// that still exist are read again, and the messages name what they wait for.
//
// StateEvaluator reads the state of a module from its custom resource: .status.state, rules, or an expression. Rules
// are compiled once.
//
// Requests are made with net/http on the transport that client-go prepares, not with client-go's request type, because
// that one reads answers without a limit and sleeps when the server asks to retry. Every request has a deadline, which
// is sent to the API server, so that one slow object (a webhook that hangs) is not taken for an unreachable cluster. A
// request whose connection is cut is sent once more if it is idempotent. A Cluster limits the number of its concurrent
// requests over all callers.
//
// # Errors
//
// Every failure of a request is an *Error with a Reason. ClassOf returns what to do: retry, wait for a change, or leave
// the cluster alone for a while. Failures of single objects are in the results; an error return concerns the cluster as
// a whole. JoinFailures sums up many failures in a bounded text.
//
// # What it does not do
//
// It stores nothing on disk or in the cluster: the caller records inventory and digests. It watches nothing, retries
// nothing by itself, and creates no namespace that is not in the bundle. CheckReady does not read custom resources. It
// does not prevent two callers from applying different content to the same object.
package apply
