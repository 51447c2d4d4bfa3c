// Package scenario has end-to-end tests: the manager runs as a separate process, with real API servers, a registry and
// modules.
//
// # Use
//
//	go test ./scenario                                  # all scenarios, two at a time
//	go test ./scenario -run 'TestScenarios/install' -v  # one scenario, with its whole output
//	go test ./scenario -update                          # writes the observed output into the expectations of the scripts
//	go test ./scenario -run '^$' -bench . -benchtime 1x -timeout 20m   # measures costs and times; see bench_test.go
//
// # How it works
//
// A scenario is a script in testdata. A script contains the actions of users on a fleet, and the results that the users
// see. Each scenario starts its own landscape (package landscape), so scenarios do not affect each other.
// command_test.go dispatches the commands and describes them. The commands of package testscript, such as cmp and
// stdout, are also available.
//
// A script checks results, counts and order: states and conditions from the clusters, requests from the audit logs of
// the API servers, and requests from the registry. A script never measures time. A script waits for results that take
// time. The timeout is much longer than needed. When a scenario fails, the test prints the Kymas, the Manifests and the
// end of the manager's log.
//
// Two scenarios are Go tests. The leak test enables and disables a module many times, and looks for leaks in the
// manager (leak_test.go). The kill test kills the manager after each of its steps (kill_test.go).
//
// # What it does not do
//
// The scripts measure no speed, and nothing in this package simulates a fleet. The package imports only the API of the
// manager. The tests therefore use only information that an administrator can have.
package scenario
