// Package check checks the objects of a module without a cluster.
//
//	findings := check.Objects(module.Objects, knownNamespaces)
//	crdsBefore, crdsAfter := check.CRDsByGroupKind(before), check.CRDsByGroupKind(after)
//	findings = append(findings, check.BreakingCRDChanges(crdsBefore, crdsAfter)...)
//
// # How it works
//
// [Objects] compares each object of a built-in kind with the Go type of this kind, field by field, and checks that all
// supported Kubernetes versions serve its API version. The Go types come from client-go, so no schemas have to be
// embedded. [BreakingCRDChanges], [CompareImmutable] and [AddedRights] compare the objects of two versions of a module.
//
// # What it does not do
//
// The package does not validate values: an API server also checks ranges, references and rules that are not part of the
// types. The package does not validate custom resources against a schema.
package check
