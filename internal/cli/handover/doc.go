// Package handover verifies the owner of the cluster of a runtime, and has the command that transfers a cluster to
// another Kyma.
//
// # Use
//
//	found, err := handover.VerifyOwner(ctx, controlPlane, "runtime-a", "", cluster, false)
//
// # How it works
//
// The owner is recorded in the cluster. Package ownership decides whether a Kyma may use the cluster; klm and the
// manager call the same functions of this package. The command klm runtime take only annotates the Kyma in the control
// plane: the manager writes the record.
//
// # What it does not do
//
// The package writes nothing into a runtime.
package handover
