// Package dashboard opens the pages of klm dashboard in a real browser, against a landscape with a manager, two
// runtimes and a module.
//
// # Use
//
//	go test ./dashboard                                       # all tests; needs chromium
//	go test ./dashboard -run TestViews -update                # also take the screenshots of the guide again
//
// # How it works
//
// The tests start the landscape, klm dashboard, and one headless browser, which they drive by its debugging protocol. A
// test waits for a condition of the page, never for a time. testdata/axe.min.js is axe-core by Deque Systems, under the
// Mozilla Public License 2.0, unchanged; it finds problems of accessibility, and is part of no program.
//
// # What it does not do
//
// Package page tests the content of the pages. This package tests the parts that need a browser: scripts, styles, the
// content security policy, the keyboard, and pages that update themselves.
package dashboard
