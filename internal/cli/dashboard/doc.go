// Package dashboard has the command klm dashboard, which shows a fleet in a browser.
//
// # Use
//
//	root.AddCommand(dashboard.Command(a))
//
// # How it works
//
// The command fills an index of the fleet (package fleetindex) with the rights of the user's kubeconfig, and serves the
// pages (package page) at a port of 127.0.0.1. The printed address has a token that is valid for one request. The
// response to the request with the token sets a cookie (local.go). Therefore neither another user of the computer nor a
// page of another site has access to the dashboard.
//
// # What it does not do
//
// The command installs nothing and stores nothing. The dashboard is never part of the manager, which has the
// credentials of all runtimes.
package dashboard
