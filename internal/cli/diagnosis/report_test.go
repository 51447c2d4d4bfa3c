package diagnosis_test

import (
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/diagnosis"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

func TestWhy(t *testing.T) {
	for name, f := range fixture.Facts() {
		t.Run(name, func(t *testing.T) {
			f.Catalog, f.Now = fixture.Catalog(), fixture.Noon
			fixture.Golden(t, "why_"+name+".txt", fixture.Text(t, f.Report(""), config.FormatTable)+
				"\n--- with MODULE\n"+fixture.Text(t, f.Report("sample"), config.FormatTable))
		})
	}
}

// TestModuleList: one line for each module; an empty list says how to get one.
func TestModuleList(t *testing.T) {
	fixture.GoldenFormats(t, "module_list.txt", diagnosis.ListModules(fixture.Facts()["downgrade"].Kyma))
	fixture.GoldenFormats(t, "module_none.txt", diagnosis.ModuleList{})
}
