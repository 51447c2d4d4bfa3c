// Package docs runs every command of the guides in a landscape that `playground up` has started, as a reader of the
// guides would. The package also reads pages for other tests.
//
// # Use
//
//	go test ./docs                          # all guides, in one landscape
//	go test ./docs -run TestGuides -v       # with the output of the commands
//	go test ./docs -run TestGuides -update  # write the outputs in the guides, and draw the pictures of the README
//
// # How it works
//
// Read reads a page, and Page.Run runs its blocks of kind sh and bash in one shell, which ends at the first command
// that fails. If the next block has the kind output, the commands must print the content of that block. Tests of other
// packages also run pages, if they already have the landscape that a page needs. In the tests of this package, the
// folder looks like a clone after `make up`: programs are in bin, kubeconfigs in .landscape.
//
// TestNothingIsLeftOut has the list of the tests that run each page. A command in a block of another kind makes the
// test fail, and so does a page that no test runs. A block that cannot be run has a comment above it, which is not
// shown:
//
//	<!-- not run: it needs Velero -->
//	<!-- run by: docs/clusters_test.go -->
//
// # What it does not do
//
// The scenarios test the effects of commands; this package tests that the commands in the guides are correct.
package docs
