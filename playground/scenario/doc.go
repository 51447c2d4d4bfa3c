// Package scenario tests the whole: the manager as its own process, real API servers, a registry, and modules, over
// time.
//
// # Use
//
//	go test ./scenario                                  # all of them, two at a time
//	go test ./scenario -run 'TestScenarios/install' -v  # one, with all that it says
//	go test ./scenario -update                          # write what was seen into the scripts' expectations
//	go test ./scenario -run '^$' -bench . -benchtime 1x -timeout 20m   # what it costs and how long it takes; see bench_test.go
//
// # How it works
//
// A scenario is a script in testdata: what people do to a fleet, and what they then see. It brings up a landscape of
// its own (package landscape), so scenarios do not disturb each other. The commands are described where they are
// dispatched, in command_test.go; those of package testscript, such as cmp and stdout, are there too.
//
// A script asserts outcomes, counts and order: states and conditions from the clusters, requests from the API servers'
// own audit and from the registry. It never measures time. What takes its time is waited for, with a deadline far
// beyond what is needed. When a scenario fails, it shows what was seen last: Kymas, Manifests and the end of the
// manager's log.
//
// Two stories are Go tests: one enables and disables a module many times and looks for what is left (leak_test.go), the
// other kills the manager after each of its steps (kill_test.go).
//
// # What it does not do
//
// Its scripts measure no speed, and nothing here simulates a fleet. It imports nothing of the manager but its API: what
// it knows, an administrator could know.
package scenario
