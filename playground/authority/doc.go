// Package authority tests package internal/backchannel/authority on a real API server. The tests cover several replicas
// with the minimal rights, and Certificates of cert-manager: its CRDs are installed, and the tests themselves act as
// its controller. The package has only tests.
package authority
