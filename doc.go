// Package lifecyclemanager is the root of the module. The root package has no code, only tests that check the
// architecture: see arch_test.go.
//
// Start with README.md, then ARCHITECTURE.md. The libraries for other programs are packages channel, render and apply.
// Clients import api/v1beta2.
package lifecyclemanager
