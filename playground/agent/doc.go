// Package agent tests the agent of a runtime on a real API server. The tests measure the load of the agent on the API
// server and check its reports. The tests also check that no event is lost when the API server, the listener, the
// permissions or the CRDs are missing for some time. The package has only tests.
package agent
