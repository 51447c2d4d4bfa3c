// Package trial runs a module on a cluster before it is released, and previews what an installation would change.
//
//	steps, err := (&trial.Trial{Config: config, Module: m, Previous: previous}).Run(ctx)
//	changes, unchanged, err := trial.Preview(ctx, config, installation, trial.Request{…})
//
// # How it works
//
// A [Trial] installs the previous version, upgrades it, uninstalls it, and then compares the objects in the cluster
// with those before the installation. It applies objects with package apply, as the manager does.
//
// [Preview] renders all parts of a version as the manager does and sends each object to the API server as a dry run;
// the differences between the answers and the current objects are the changes.
//
// # What it does not do
//
// A preview changes nothing in the cluster. A trial needs a cluster without the module; it does not restore the cluster
// after a failed step, so that the author can inspect it.
package trial
