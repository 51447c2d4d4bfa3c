// Package removal counts the objects that the removal of modules deletes from a runtime, so that klm can show the
// numbers before klm asks for confirmation.
//
// # Use
//
//	found := removal.OfRuntime(ctx, runtime, nil, manifests) // in the control plane, where the inventories are
//	found := removal.OfModule(ctx, runtime, kyma, module)    // in a runtime
//	found.Show(page, false, "--delete-custom-resources deletes them")
//
// # How it works
//
// In the control plane, the objects of a module are in the inventory of its Manifest. A runtime has no inventory of a
// module: klm finds the objects by the label that every object of a module has, with one list of metadata for each kind
// that the cluster serves. Package customresource finds the custom resources of users, for klm as for the manager.
//
// A number that cannot be determined is never shown as zero: the text contains the reason why the number is not known.
// Requests are limited in number and time.
//
// # What it does not do
//
// The package deletes nothing. If a module contains a Namespace, the package does not search this Namespace for objects
// of others. If the Namespace contains objects of others, the removal of the module waits, and the status of the module
// names these objects.
package removal
