// Package apply brings the objects of a bundle into one cluster, and takes them out again.
//
//	cluster, err := apply.New(config, nil, apply.ClusterOptions{})
//	set := apply.Set{Bundle: bundle, Namespace: "kyma-system"}
//	refs, err := cluster.Refs(ctx, set)             // the inventory: write it down first
//	result, err := cluster.Apply(ctx, set, &done)   // again later, until result.Done()
//	notReady, err := cluster.Ready(ctx, refs, &done)
//	drifted, err := cluster.Drift(ctx, set, &done)  // reads only; Apply then heals what has drifted
//	teardown, err := cluster.Delete(ctx, apply.Removed(recorded, refs), &asked) // again later, until teardown.Done()
//
// # How it works
//
// Nothing here waits for a cluster to get somewhere. Each call does what can be done now, says what is left and why, and
// returns; the caller decides when to come back, and a later call sends only what is left.
//
// Apply sends one server-side apply PATCH for each object that Progress does not have with the same content. It is without
// force; if somebody else has set a field of ours to something else, the API server names the fields and their managers, and a
// second PATCH takes them: Result.TakenOver tells. Nothing else is asked while all goes well: scope and plural of a kind come
// from a built-in table, from the bundle's own CustomResourceDefinitions, or from one discovery request per group and version,
// remembered. Objects go in phases, in parallel within each:
//
//	foundation     namespaces, CustomResourceDefinitions
//	configuration  service accounts, roles, ConfigMaps, Secrets, Services and all the rest
//	bindings       RoleBindings and ClusterRoleBindings, which need their roles
//	workloads      what runs pods, or steers what does
//	admission      webhooks, admission policies, API services: they call workloads
//	custom         custom resources
//
// An object that fails does not stop the others, but what needs it waits: objects of a namespace, custom resources of a
// definition, workloads if a definition, configuration or rights failed, webhooks if any of that did. A custom resource whose definition
// was created a moment ago is not tried before one discovery request says that the kind is served. An error that
// concerns the cluster as a whole ends the call at once: no more requests go to a cluster that is gone, refuses the credential or asks for a pause.
//
// Annotations of an object in the bundle change how it is treated: create-only, fields that are left to others once the object exists,
// never deleted, deleted and created again when a field cannot be changed. See AnnotationApplyPolicy and the constants after it.
// They cost nothing where they are not used. The first two cost a request or two when the object exists already: it is found
// out by a PATCH that says resourceVersion 1, which can create but changes nothing.
//
// For a CustomResourceDefinition that drops a stored version, or changes its scope, nothing has to be asked before: the API
// server holds it against what it has stored at that moment, and writes nothing. Its refusal is told as StoredVersionDropped
// or FieldImmutable.
//
// Progress keeps what the API server answered: generation, resourceVersion, UID and a hash of the fields that we own. That
// recognises our own writes among events (Ours), and finds drift by reading metadata only (Drift): an API server takes a field from
// us when somebody else changes it. Answers are asked for as metadata where that is enough, so that applying a large
// CustomResourceDefinition does not bring it back.
//
// Delete works from an inventory alone, in phases too: custom resources first, while their operator runs, namespaces last. Each object
// gets one DELETE (or none, if the inventory says Keep), whose answer tells whether it is gone; only what lingers is looked at
// again, and what it waits for is named.
//
// StateEvaluator reads what a custom resource says of its module: .status.state, rules, or an expression. Only rules are compiled, and once.
//
// Requests are made with net/http on the transport that client-go prepares, not with client-go's request type, because that
// one reads answers without a limit and sleeps when told to retry. Every request has a deadline, and the API server is told
// of it, so that one slow object (a webhook that hangs) is not taken for a dead cluster. A request whose connection is cut is sent once
// more if that does no harm. A Cluster limits its requests under way over all callers.
//
// # Errors
//
// Every failure of a request is an *Error with a Reason; ClassOf says what to do: try again, wait for a change, or leave the
// cluster alone for a while. Failures of single objects are in the results; an error return concerns the cluster as a whole.
//
// # What it does not do
//
// It keeps nothing on disk or in the cluster: inventory and digests are for the caller to record. It watches nothing, retries
// nothing by itself, and creates no namespace that a bundle does not bring. Ready does not judge custom resources. It does not stop two
// callers from applying different content to the same object.
package apply
