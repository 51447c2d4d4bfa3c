// Package klm tests the client klm as people have it: the program itself, against real API servers of a landscape with
// the real manager.
//
// # Use
//
//	go test ./klm                                   # all scripts, in one landscape, one after the other
//	go test ./klm -run TestScripts/operator -v      # one, with all that it says
//	go test ./klm -run TestGuide                    # every command of docs/guide/klm.md
//	go test ./klm -run '^$' -bench . -benchtime 1x  # klm status with 10,000 Kymas in a real API server
//
// # How it works
//
// One landscape serves all scripts of testdata, which run in the order of klm_test.go; each leaves the runtimes as it
// has found them. Its three clusters are contexts of one kubeconfig, $KUBECONFIG. How large fleets are shown is tested
// with a server that has nothing but Kymas.
//
// # What it does not do
//
// Texts are compared by tables in internal/cli; here it matters that the parts fit together.
package klm
