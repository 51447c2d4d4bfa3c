package channel

import "github.com/kyma-fleet/lifecycle-manager/api/v1beta2"

// WithCachedLookups returns a catalog that caches the results of its lookups. Thousands of requests can therefore be
// resolved with the same objects, and no object is copied for each request. Use the returned catalog only for one
// decision about a fleet, because its objects become outdated. Use it only in one goroutine.
func (c Catalog) WithCachedLookups() Catalog {
	c.Release = memoize(c.Release)
	c.Template = memoize(c.Template)
	if c.Templates != nil {
		c.Templates = memoize(c.Templates)
	}
	return c
}

// memoize returns a function that calls another function once for each argument.
func memoize[V *v1beta2.ModuleReleaseMeta | *v1beta2.ModuleTemplate | []*v1beta2.ModuleTemplate](
	find func(string) V) func(string) V {
	known := map[string]V{}
	return func(name string) V {
		v, found := known[name]
		if !found {
			v = find(name)
			known[name] = v
		}
		return v
	}
}
