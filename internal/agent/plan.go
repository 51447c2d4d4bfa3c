package agent

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// query contains the parameters of one watch on the API server.
type query struct {
	group, version, resource string // version may be *
	namespace, name          string
	selector                 string
}

// scope limits a watch of a resource to some of its objects.
type scope struct{ namespace, name, selector string }

// target is one entry of the watch list: a manager, and the changes about which this manager gets events.
type target struct {
	manager       string
	version, kind string // values of the watch list: version may be *, kind may be empty
	field         protocol.Field
	filter        int // index in plan.filters
}

// plan is one watch, with the targets that get the events of the watch.
type plan struct {
	query   query
	filters []scope // distinct, sorted scopes of the targets; the query includes all of them
	targets []target
}

// hasSameWatch reports whether the plans p and q need the same watch. The targets of p and q may differ.
func (p plan) hasSameWatch(q plan) bool {
	return p.query == q.query && slices.Equal(p.filters, q.filters)
}

// plansFor returns the watches for a watch list: one watch for each group, version and resource. If several entries
// select different objects of one resource, the watch includes the objects of all these entries, and a filter for each
// entry selects its objects. An entry for version * shares the watch of another entry that names a version of the
// resource, because a resource has the same objects in all versions.
func plansFor(list protocol.Watchlist) []plan {
	type resource struct{ group, version, name string }
	named := map[resource]string{} // version of the watch that entries for version * share
	for _, w := range list.Watches {
		r := resource{group: w.Group, name: w.Resource}
		if first := named[r]; w.Version != "*" && (first == "" || w.Version < first) {
			named[r] = w.Version
		}
	}
	groups := map[resource][]protocol.Watch{}
	for _, w := range list.Watches {
		r := resource{group: w.Group, version: w.Version, name: w.Resource}
		if v := named[resource{group: w.Group, name: w.Resource}]; w.Version == "*" && v != "" {
			r.version = v
		}
		groups[r] = append(groups[r], w)
	}
	var all []plan
	for r, watches := range groups {
		p := plan{query: query{group: r.group, version: r.version, resource: r.name}}
		scopes := map[scope]bool{}
		for _, w := range watches {
			scopes[scopeOf(w)] = true
		}
		p.filters = slices.SortedFunc(maps.Keys(scopes), func(a, b scope) int {
			return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name),
				cmp.Compare(a.selector, b.selector))
		})
		p.query.namespace, p.query.name, p.query.selector = widestQuery(p.filters)
		for _, w := range watches {
			p.targets = append(p.targets, target{
				manager: cmp.Or(w.Manager, protocol.ManagerName), version: w.Version, kind: w.Kind, field: w.Field,
				filter: slices.Index(p.filters, scopeOf(w)),
			})
		}
		all = append(all, p)
	}
	return all
}

// scopeOf returns the scope of an entry of the watch list: which objects of the kind it selects.
func scopeOf(w protocol.Watch) scope {
	return scope{namespace: w.Namespace, name: w.Name, selector: w.Selector}
}

// widestQuery returns a query that includes the objects of all scopes, and as few other objects as possible.
func widestQuery(scopes []scope) (namespace, name, selector string) {
	if len(scopes) == 1 {
		return scopes[0].namespace, scopes[0].name, scopes[0].selector
	}
	namespace, name = scopes[0].namespace, scopes[0].name
	for _, s := range scopes {
		if s.namespace != namespace {
			namespace = ""
		}
		if s.name != name {
			name = ""
		}
	}
	return namespace, name, selectorOfAny(scopes)
}

// selectorOfAny returns a label selector that matches every object that at least one of the selectors matches. Label
// selectors have no "or" between labels, so the result may match a few more objects. selectorOfAny combines only labels
// that every selector requires. The combined selector allows each value of such a label that any of the selectors
// allows.
func selectorOfAny(scopes []scope) string {
	var wanted map[string]map[string]bool // required values by label; nil means any value
	for n, s := range scopes {
		selector, err := labels.Parse(s.selector)
		if err != nil {
			return ""
		}
		here := map[string]map[string]bool{}
		requirements, _ := selector.Requirements()
		for _, r := range requirements {
			switch r.Operator() {
			case selection.Equals, selection.DoubleEquals, selection.In:
				here[r.Key()] = map[string]bool{}
				for value := range r.Values() {
					here[r.Key()][value] = true
				}
			case selection.Exists:
				if _, known := here[r.Key()]; !known {
					here[r.Key()] = nil
				}
			}
		}
		if n == 0 {
			wanted = here
			continue
		}
		for label, values := range wanted {
			more, both := here[label]
			switch {
			case !both:
				delete(wanted, label)
			case values == nil || more == nil:
				wanted[label] = nil
			default:
				maps.Copy(values, more)
			}
		}
	}
	var parts []string
	for _, label := range slices.Sorted(maps.Keys(wanted)) {
		if values := wanted[label]; values == nil {
			parts = append(parts, label)
		} else {
			parts = append(parts, label+" in ("+strings.Join(slices.Sorted(maps.Keys(values)), ",")+")")
		}
	}
	return strings.Join(parts, ",")
}
