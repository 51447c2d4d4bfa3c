// Package trial runs a module on a cluster before the module is released, and previews the changes that an installation
// would make.
//
//	steps, err := (&trial.Trial{Config: config, Module: m, Previous: previous}).Run(ctx)
//	changes, unchanged, err := trial.Preview(ctx, config, installation, trial.Request{…})
//
// # How it works
//
// A [Trial] installs the previous version of a module, upgrades the module and uninstalls the module. After the
// removal, the Trial compares the objects in the cluster with the objects that existed before the installation. A
// [Trial] applies objects with package apply, as the manager does.
//
// [Preview] renders all parts of a version as the manager does, and sends each object to the API server as a dry run.
// The differences between the responses and the present objects are the changes.
//
// # What it does not do
//
// A preview does not change the cluster. A trial needs a cluster without objects of the tested versions. A trial does
// not restore the cluster after a failed step, so that the author can inspect the cluster.
package trial
