// Package diagnosis reports the state of one runtime with its reasons: the modules, their blockers, and the last
// events.
//
// # Use
//
//	facts, err := diagnosis.Read(ctx, c, "runtime-a", diagnosis.Options{})
//	facts.Now = time.Now()
//	report := facts.Report("")
//
// # How it works
//
// [Read] reads the Kyma, its Manifests, its access Secrets, events, and the part of the catalog that the Kyma requests.
// [Facts.Report] decides nothing itself: package channel decides which version a module gets, and everything else comes
// from the status of the objects. The commands klm why and klm runtime show print the report for the platform team. The
// command klm module why prints a report for the admin of a runtime, which contains only data of this runtime.
//
// # What it does not do
//
// The package changes nothing, and does not connect to the runtime from the control plane.
package diagnosis
