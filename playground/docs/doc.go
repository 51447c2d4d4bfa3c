// Package docs runs what the guides say, as somebody would who follows them: every command, in a landscape that
// `playground up` has started.
//
// # Use
//
//	go test ./docs                          # all guides, in one landscape
//	go test ./docs -run TestGuides -v       # with all that the commands print
//	go test ./docs -run TestGuides -update  # draw the pictures of the README anew
//
// # How it works
//
// In a guide, a block that begins with ```sh is run, one page after the other, each in one shell that ends at the first
// command that fails; blocks of other kinds (text, yaml, json) are not. A test looks that no command hides there. The
// folder is as that of a clone after `make up`: programs in bin, kubeconfigs in .landscape.
//
// # What it does not do
//
// docs/guide/klm.md and author.md have tests in package klm, and pages about images and clusters of your own where
// these are tested. What commands do is tested by scenarios; here it matters that they are written right.
package docs
