// Package authority tests package internal/backchannel/authority on a real API server: several replicas with no more
// rights than they need, and the Certificates of cert-manager by its own definitions, with the tests in the part of
// cert-manager. It holds tests only.
package authority
