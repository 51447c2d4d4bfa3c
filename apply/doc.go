// Package apply applies the objects of a bundle to one cluster, and deletes these objects again.
//
//	cluster, err := apply.New(config, nil, apply.ClusterOptions{})
//	set := apply.Set{Bundle: bundle, Namespace: "kyma-system"}
//	refs, err := cluster.DesiredInventory(ctx, set) // record refs before the first Apply
//	result, err := cluster.Apply(ctx, set, &done)   // repeat until result.AllApplied()
//	notReady, err := cluster.CheckReady(ctx, refs, &done)
//	drifted, err := cluster.FindDrift(ctx, set, &done) // reads only; the next Apply corrects the drift
//	teardown, err := cluster.Delete(ctx, apply.Removed(recorded, refs), &asked) // repeat until teardown.Done()
//
// # How it works
//
// No function of this package waits until the cluster has created, started or deleted an object. Each call does all
// that is possible now, returns a list of the objects that are left, with reasons, and ends. The caller decides when to
// call Apply or Delete again. A later call sends only the objects that are left.
//
// Apply sends one server-side apply PATCH for each object, unless Progress contains the object with the same content.
// The first of up to two PATCHes does not force ownership. If another field manager has set one of the fields to
// another value, the API server returns the conflicting fields and managers. After a conflict about fields, Apply sends
// a second PATCH with force, which takes over the conflicting fields; see Result.TakenOver. To apply an object, Apply
// needs no requests but this PATCH, or the two PATCHes after a conflict. The scope and the plural of a kind come from a
// built-in table, from the CustomResourceDefinitions of the bundle, or from one cached discovery request per group and
// version. Objects are applied in phases. Within a phase, objects are applied in parallel:
//
//	foundation     namespaces, CustomResourceDefinitions
//	configuration  service accounts, roles, ConfigMaps, Secrets, Services and all other kinds
//	bindings       RoleBindings and ClusterRoleBindings, which need their roles
//	workloads      kinds that run pods or control such kinds (HorizontalPodAutoscaler, PodDisruptionBudget)
//	admission      webhooks, admission policies and API services, which call workloads
//	custom         custom resources
//
// A failed object does not stop other objects, but objects that depend on it wait. An object depends on its namespace.
// A custom resource depends on its CRD. A workload depends on all CRDs, configuration and access rights. A webhook
// depends on all CRDs, configuration, access rights and workloads. A custom resource whose CRD has just been created is
// not sent before a discovery request has returned its kind. An error that concerns the whole cluster ends the call at
// once, so that the package sends no more requests to a cluster that is unreachable, rejects the credential or
// throttles.
//
// Annotations of an object in the bundle change how the object is applied and deleted. An object can be create-only,
// can have fields that are ignored after creation, can be kept forever, or can be recreated if a field is immutable.
// See AnnotationApplyPolicy and the constants after it. For an object without annotations such as
// AnnotationApplyPolicy, Apply sends no additional request. If an object with an annotation for create-only objects or
// for ignored fields already exists, Apply needs one or two additional requests for this object. To find out whether
// the object exists, Apply sends a PATCH with resourceVersion 1, which can create an object but cannot change an
// existing object.
//
// A new CustomResourceDefinition may drop a version in which objects are stored, or may change the scope of its kind.
// Apply sends no additional request to detect a dropped version or a changed scope, because the API server rejects a
// PATCH of a CustomResourceDefinition that drops a version in status.storedVersions or changes the scope. The resulting
// error has reason StoredVersionDropped or FieldImmutable. If a CustomResourceDefinition fails with
// StoredVersionDropped, Apply sends only namespaces and other CustomResourceDefinitions. In this way, the version of
// the module that is still running keeps its configuration and its rights.
//
// An API server cannot apply a custom resource whose managed fields name a version that the CRD no longer has. Apply
// then removes the entries with this version, as API servers do for built-in kinds, and applies the object again.
//
// Progress records data from the responses of the API server: generation, resourceVersion, UID and a hash of the fields
// that the field manager owns. With the data in Progress, ObserveEvent recognises watch events about writes of this
// package, and FindDrift finds changes of objects by reading only metadata. Metadata is sufficient for FindDrift,
// because an API server removes a field from our managed fields when another field manager changes the field. Requests
// ask for metadata only where metadata is sufficient, so applying a large CustomResourceDefinition does not return the
// CustomResourceDefinition.
//
// Delete needs only an inventory. Delete deletes in phases too: custom resources first, while their operator runs, and
// namespaces last. Delete sends one DELETE for each object, and no DELETE for an object with Ref.Keep. The response of
// the API server to the DELETE shows whether the object is deleted. Later calls of Delete read only the objects that
// still existed after the earlier calls. The messages in Teardown state what each remaining object waits for.
//
// StateEvaluator reads the state of a module from its custom resource: from .status.state, by rules, or by an
// expression. StateEvaluator compiles each rule once.
//
// The package sends its requests by net/http with the transport that client-go prepares. The package does not use
// client-go's request type, because that type reads responses without a size limit and sleeps when the server requests
// a retry. Every request has a timeout that is also sent to the API server. The API server reports the timeout of a
// slow object (for example because of a slow webhook), so a slow object is not mistaken for an unreachable cluster. If
// the connection of an idempotent request is closed, the request is sent once more. A Cluster limits the number of its
// concurrent requests over all callers.
//
// # Errors
//
// Every failure of a request is an *Error with a Reason. ClassOf returns how a caller should react to an error: retry,
// wait for a change, or send no requests to the cluster for some time. The failures of single objects are in the
// results of Apply and Delete. If a call returns an error, the error concerns the whole cluster. JoinFailures combines
// many failures in a text of limited length.
//
// # What it does not do
//
// The package stores nothing on disk or in the cluster: the caller records inventory and digests. The package watches
// nothing, retries nothing, and creates no namespace that is not in the bundle. CheckReady does not read custom
// resources. The package does not prevent two callers from applying different content to the same object.
package apply
