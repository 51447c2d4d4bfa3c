package channeladmin

import (
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
)

// TestCatalogReports checks the reports about channels and versions, with their notes. In these reports, runtimes with
// a pinned version follow no channel.
func TestCatalogReports(t *testing.T) {
	s := fixture.Catalog()
	followers := map[fleetlist.ModuleVersion]int{{Module: "sample", Version: "1.0.0", Channel: "regular"}: 3,
		{Module: "sample", Version: "0.9.0", Channel: "regular"}: 1,
		{Module: "sample", Version: "2.0.0", Channel: ""}:        2}
	fixture.GoldenFormats(t, "catalog.txt", listCatalog(s))
	fixture.GoldenFormats(t, "channel_show.txt", describeChannels(s, "sample", followers))
}
