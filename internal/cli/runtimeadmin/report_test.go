package runtimeadmin

import (
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// TestModuleDone checks that the report about a change of a module has, as JSON, the same fields as a row of klm module
// list.
func TestModuleDone(t *testing.T) {
	healthy := fixture.FactsBySituation()["healthy"].Kyma
	fixture.GoldenFormats(t, "module_done.txt", moduleDone{diagnosis.ModuleRowOf(healthy, "sample"),
		"module sample 1.0.0 is Ready"})
}
