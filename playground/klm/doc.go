// Package klm tests the program klm as users run it, against real API servers of a landscape with the real manager.
//
// # Use
//
//	go test ./klm                                   # all scripts, in one landscape, one after the other
//	go test ./klm -run TestScripts/operator -v      # one script, with its output
//	go test ./klm -run TestGuide                    # every command of docs/guide/klm.md
//	go test ./klm -run '^$' -bench . -benchtime 1x  # klm status with 10,000 Kymas in a real API server
//
// # How it works
//
// One landscape serves all scripts of testdata, which run in the order of klm_test.go. After each script, the runtimes
// are restored to the state before the script. The three clusters are contexts of one kubeconfig, $KUBECONFIG. The
// output for large fleets is tested with a server that contains only Kymas.
//
// # What it does not do
//
// Package internal/cli tests the texts by tables; this package tests that the parts work together.
package klm
