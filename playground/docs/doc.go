// Package docs runs every command of the guides in a landscape that `playground up` has started, as a reader of the
// guides would.
//
// # Use
//
//	go test ./docs                          # all guides, in one landscape
//	go test ./docs -run TestGuides -v       # with the output of the commands
//	go test ./docs -run TestGuides -update  # draw the pictures of the README again
//
// # How it works
//
// The blocks of a guide that begin with ```sh are run, one page after the other. All blocks of a page run in one shell,
// which ends at the first command that fails. Blocks of other kinds (text, yaml, json) are not run. A test checks that
// such blocks contain no command. The folder looks like a clone after `make up`: programs are in bin, kubeconfigs in
// .landscape.
//
// # What it does not do
//
// The commands of docs/guide/klm.md and author.md are tested in package klm, and commands for images and for other
// clusters in the packages of those features. The scenarios test the effects of commands; this package tests that the
// commands in the guides are correct.
package docs
