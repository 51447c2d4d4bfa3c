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
// from the status of the objects. The report serves the platform team (klm why, klm runtime show), and the admin of a
// runtime (klm module why), whose report contains only data of the runtime.
//
// # What it does not do
//
// The package changes nothing, and does not connect to the runtime from the control plane.
package diagnosis
