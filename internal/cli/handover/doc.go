// Package handover shows whose the cluster of a runtime is, and makes a runtime its owner.
//
// # Use
//
//	found, err := handover.VerifyOwner(ctx, controlPlane, "runtime-a", "", cluster, false)
//
// # How it works
//
// The owner is recorded in the cluster. Package ownership decides about it, for klm as for the manager. The command klm
// runtime take only annotates the Kyma in the control plane: the manager writes the record.
//
// # What it does not do
//
// It writes nothing into a runtime.
package handover
