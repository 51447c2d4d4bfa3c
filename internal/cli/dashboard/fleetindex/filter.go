package fleetindex

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

// ParamName is the parameter of a URL that selects runtimes by a part of their name.
const ParamName = "name"

// Filter selects runtimes by the filters of klm status, and by a part of the name.
type Filter struct {
	*console.Listing
	selector labels.Selector
	Name     string            // a part of the name, in lower case
	Values   map[string]string // what is set
}

// FilterOf returns the filter in a URL. The parameter otherParams lists the query parameters that the URL may have in
// addition to filters.
func FilterOf(q url.Values, otherParams ...string) (*Filter, error) {
	f := &Filter{Values: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		value := strings.TrimSpace(q.Get(name))
		switch {
		case slices.Contains(otherParams, name):
		case name == ParamName, slices.Contains(fleetlist.Filters, name):
			if value != "" {
				f.Values[name] = value
			}
		default:
			return nil, console.Fail(console.ExitUsage, "there is no filter %q: the filters are %s and %s", name,
				strings.Join(fleetlist.Filters, ", "), ParamName)
		}
	}
	f.Name = strings.ToLower(f.Values[ParamName])
	f.Listing = console.NewListing(f.Values)
	var err error
	if f.selector, err = connection.Selector(f.Listing); err != nil {
		return nil, console.Fail(console.ExitUsage, "the filter selector: %v", err)
	}
	return f, nil
}

// IsSet reports whether the filter has a condition.
func (f *Filter) IsSet() bool { return len(f.Values) > 0 }

// Matches reports whether a runtime meets all conditions of the filter.
func (f *Filter) Matches(m *fleetlist.Member) bool {
	return (f.Name == "" || strings.Contains(m.Metadata.Name, f.Name)) &&
		(f.selector.Empty() || f.selector.Matches(labels.Set(m.Metadata.Labels))) && m.Matches(f.Listing)
}

// Apply returns the runtimes that meet all conditions of the filter.
func (f *Filter) Apply(members []*fleetlist.Member) []*fleetlist.Member {
	if !f.IsSet() {
		return members
	}
	var all []*fleetlist.Member
	for _, m := range members {
		if f.Matches(m) {
			all = append(all, m)
		}
	}
	return all
}
