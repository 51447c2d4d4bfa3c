package page

import (
	"net/url"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/sheet"
)

// usage returns an error that states that the URL of the request is not valid.
func usage(format string, args ...any) error { return console.Fail(console.ExitUsage, format, args...) }

// filterOf returns the filter in the URL of a page. The parameter allowed lists the parameters that the URL may have in
// addition to filters.
func filterOf(q url.Values, allowed ...string) (*fleetindex.Filter, error) {
	return fleetindex.FilterOf(q, append(allowed, sheet.ParamSort, sheet.ParamPage)...)
}
