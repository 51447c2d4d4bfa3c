// Package removal counts the objects that the removal of modules deletes from a runtime, so that klm can show the
// numbers before it asks for confirmation.
//
// # Use
//
//	found := removal.OfRuntime(ctx, runtime, nil, manifests) // in the control plane, where the inventories are
//	found := removal.OfModule(ctx, runtime, kyma, module)    // in a runtime
//	found.Show(page, false, "--delete-custom-resources deletes them")
//
// # How it works
//
// In the control plane, the objects of a module are in the inventory of its Manifest. A runtime has no inventory: the
// objects are found by the label that every object of a module has, by one list of metadata for each kind that the
// cluster serves. Custom resources of users are found by package customresource, which the manager uses, too.
//
// A number that cannot be determined is never shown as zero: the text contains the reason why it is not known. Requests
// are limited in number and time.
//
// # What it does not do
//
// The package deletes nothing. The package does not look into the namespaces that a module contains: if there are other
// objects in them, the removal waits, and the status names these objects.
package removal
