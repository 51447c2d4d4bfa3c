// Package deploy tests folder deploy as people use it: the chart and the kustomize base are installed into a landscape,
// where the manager then runs from its Deployment, as its service account, and has to get a module ready.
//
// # Use
//
//	go test ./deploy                     # both flavours, by klm install and by kustomize, and an upgrade
//	go test ./deploy -run TestUpgrade
//
// # How it works
//
// One landscape without a manager serves all tests; the node of a cluster runs the image landscape.ManagerImage as a
// process. A test of an upgrade begins with definitions and objects of the release before, in testdata/previous.
//
// # What it does not do
//
// The node runs no containers: that images are right is tested beside the program that makes them.
package deploy
