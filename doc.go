// Package lifecyclemanager is the root of the module. It holds no code, only the rules of the house as tests: see arch_test.go.
//
// Start with README.md, then ARCHITECTURE.md. Those who build on the libraries want packages channel, render and apply; those who write
// clients want api/v1beta2.
package lifecyclemanager
