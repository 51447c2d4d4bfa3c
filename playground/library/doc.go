// Package library tests package manifest, the public library, on real API servers: its examples, and everything that
// can fail between a chart and a cluster. It holds tests only.
package library
