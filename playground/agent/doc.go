// Package agent shows and tests the agent of a runtime on a real API server: what it costs there, what it reports, and
// that nothing is lost when the API server, the listener, its rights or its definitions go and come back. It holds
// tests only.
package agent
