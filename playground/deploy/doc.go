// Package deploy tests the folder deploy: it installs the chart and the kustomize base into a landscape, as users do.
// The Deployment then starts the manager in the control plane with its service account, and a module has to become
// Ready.
//
// # Use
//
//	go test ./deploy                     # both flavours, by klm install and by kustomize, and an upgrade
//	go test ./deploy -run TestUpgrade
//
// # How it works
//
// One landscape without a manager is used by all tests; the node of a cluster runs the image landscape.ManagerImage as
// a process. A test of an upgrade begins with the CRDs and objects of the previous release, in testdata/previous.
//
// # What it does not do
//
// The node runs no containers, so images are not tested here: package deploy/image tests them.
package deploy
