package channel

import "github.com/kyma-fleet/lifecycle-manager/api/v1beta2"

// Remember returns a catalog that looks up each release and template once, so that thousands of requests are resolved
// by the same objects, and without a copy of them for each request. It must not be used for longer than one decision
// about a fleet takes, and by one goroutine only.
func (c Catalog) Remember() Catalog {
	c.Release = remember(c.Release)
	c.Template = remember(c.Template)
	if c.Templates != nil {
		c.Templates = remember(c.Templates)
	}
	return c
}

// remember returns a function that calls another one once for each argument.
func remember[V *v1beta2.ModuleReleaseMeta | *v1beta2.ModuleTemplate | []*v1beta2.ModuleTemplate](
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
