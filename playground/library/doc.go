// Package library tests package manifest, the public library, on real API servers: its examples, and the failures that
// can occur when a chart is installed on a cluster. The package has only tests.
package library
