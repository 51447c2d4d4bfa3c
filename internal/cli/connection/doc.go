// Package connection connects klm to a control plane or a runtime, and reads the objects that several commands
// need: a Kyma and the catalog.
//
// # Use
//
//	c, err := connection.ControlPlane(ctx, a)
//	k, err := c.Kyma(ctx, "runtime-a")
//
// # How it works
//
// klm finds the kubeconfig in the same way as kubectl. klm requests the kinds of our API group that the cluster serves:
// a cluster that serves Manifests is a control plane, any other cluster is a runtime. [Cluster.Explain] turns errors of
// API servers into messages with an exit code. [WaitForKyma] waits for a change of a Kyma by a watch. If watches are
// forbidden, WaitForKyma reads the Kyma every two seconds.
//
// # What it does not do
//
// The package lists no fleets: see package fleetlist.
package connection
