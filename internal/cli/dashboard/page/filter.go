package page

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
)

// usage returns an error about the URL.
func usage(format string, args ...any) error { return console.Fail(console.ExitUsage, format, args...) }

// The parameters of a URL that are no filters.
const (
	paramName = "name"
	paramSort = "sort"
	paramPage = "page"
)

// filter selects runtimes by the filters of klm status, and by a part of the name.
type filter struct {
	listing  *console.Listing
	selector labels.Selector
	name     string
	values   map[string]string // what is set
}

// filterOf returns the filter in a URL. allowed are the further parameters of the view.
func filterOf(q url.Values, allowed ...string) (*filter, error) {
	f := &filter{values: map[string]string{}}
	allowed = append(allowed, paramSort, paramPage)
	for _, name := range slices.Sorted(maps.Keys(q)) {
		value := strings.TrimSpace(q.Get(name))
		switch {
		case slices.Contains(allowed, name):
		case name == paramName, slices.Contains(fleetlist.Filters, name):
			if value != "" {
				f.values[name] = value
			}
		default:
			return nil, usage("there is no filter %q: the filters are %s and %s", name,
				strings.Join(fleetlist.Filters, ", "), paramName)
		}
	}
	f.name = strings.ToLower(f.values[paramName])
	f.listing = console.NewListing(f.values)
	var err error
	if f.selector, err = connection.Selector(f.listing); err != nil {
		return nil, usage("the filter selector: %v", err)
	}
	return f, nil
}

// isSet reports whether anything is filtered.
func (f *filter) isSet() bool { return len(f.values) > 0 }

// accepts reports whether a runtime matches.
func (f *filter) accepts(m *fleetlist.Member) bool {
	return (f.name == "" || strings.Contains(m.Metadata.Name, f.name)) &&
		(f.selector.Empty() || f.selector.Matches(labels.Set(m.Metadata.Labels))) && m.Matches(f.listing)
}

// apply returns the runtimes that match.
func (f *filter) apply(members []*fleetlist.Member) []*fleetlist.Member {
	if !f.isSet() {
		return members
	}
	var all []*fleetlist.Member
	for _, m := range members {
		if f.accepts(m) {
			all = append(all, m)
		}
	}
	return all
}
