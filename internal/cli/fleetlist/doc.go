// Package fleetlist lists and watches all Kymas of a control plane, quickly and with little memory.
//
// # Use
//
//	version, err := fleetlist.List(ctx, c, "team=blue", func(m *fleetlist.Member) { … })
//
// # How it works
//
// A fleet is read in pages of 500. A page is cut into its objects without decoding them (json.go), what is not needed
// is left out, and the rest is decoded on all processors into [Member], which has only the fields that are shown.
// While one page is decoded, the next one is requested.
//
// # What it does not do
//
// It keeps nothing: the caller keeps what it shows.
package fleetlist
