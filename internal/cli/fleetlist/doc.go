// Package fleetlist lists and watches all Kymas of a control plane, quickly and with little memory. The package also
// has the filters of the lists, and the common part of the commands that change several runtimes.
//
// # Use
//
//	version, err := fleetlist.List(ctx, c, "team=blue", func(m *fleetlist.Member) { … })
//
// # How it works
//
// A fleet is read in pages of 500. A page is split into its objects without decoding the objects (json.go). Fields that
// klm does not need are removed from the objects. The remaining fields of an object are decoded on all processors into
// a [Member], which has only the fields that klm shows. While one page is decoded, the next page is requested.
//
// [ListBrief] and [ListMatchingWithMessages] do not read whole Kymas, but the columns of kubectl get (table.go). For
// 10,000 Kymas, the API server sends 2 MB for these columns instead of 60 MB for whole Kymas.
//
// A [Verb] checks the changes of all selected runtimes, asks once for confirmation, and then makes the changes, several
// at the same time.
//
// # What it does not do
//
// The package stores no Kymas: the caller stores the Kymas that the caller shows.
package fleetlist
