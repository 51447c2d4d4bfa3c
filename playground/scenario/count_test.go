package scenario

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// agent is the User-Agent of the manager.
const agent = "lifecycle-manager"

// noKind reports whether an error means that a kind is not served.
func noKind(err error) bool { return meta.IsNoMatchError(err) }

// seen returns the requests of a user agent to a cluster since the last command mark, without leases, events and access
// reviews. With -events, seen also returns requests about events. With -reviews, seen returns only the access reviews.
func (s *scenario) seen(c *call) ([]cluster.Request, error) {
	if err := c.want(1, 2, "CLUSTER [AGENT]"); err != nil {
		return nil, err
	}
	of := s.land.Clusters[c.args[0]]
	if of == nil {
		return nil, fmt.Errorf("there is no cluster %q", c.args[0])
	}
	who := agent
	if len(c.args) == 2 {
		who = c.args[1]
	}
	return slices.DeleteFunc(of.Requests(s.marks[c.args[0]]), func(r cluster.Request) bool {
		return r.UserAgent != who || c.has("first") && r.User == secondUser ||
			r.Resource == "leases" || r.Resource == "events" && !c.has("events") ||
			strings.HasSuffix(r.Resource, "reviews") != c.has("reviews")
	}), nil
}

// isWrite reports whether a request may change an object.
func isWrite(r cluster.Request) bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb)
}

// line formats a request: verb, resource, object, and the status if the request failed.
func line(r cluster.Request) string {
	of := r.Resource
	if of == "" {
		return strings.TrimSpace(r.Verb + " " + r.Path + status(r.Code))
	}
	if r.Group != "" {
		of += "." + r.Group
	}
	name := r.Name
	if at := strings.LastIndex(name, "."); r.Resource == "events" && at >= 0 {
		name = name[:at] // the rest differs from run to run
	}
	if r.Namespace != "" && r.Resource != "namespaces" {
		name = r.Namespace + "/" + name
	}
	if r.Subresource != "" {
		name += "/" + r.Subresource
	}
	return strings.TrimSpace(r.Verb+" "+of+" "+name) + status(r.Code)
}

func status(code int) string {
	if code < http.StatusBadRequest {
		return ""
	}
	return fmt.Sprintf(" (%d)", code)
}

func (s *scenario) writes(c *call) error {
	all, err := s.seen(c)
	if err != nil {
		return err
	}
	var lines []string
	for _, r := range all {
		if isWrite(r) && (c.has("rollouts") || !isOfRollout(r)) {
			lines = append(lines, line(r))
		}
	}
	if c.has("sort") {
		slices.Sort(lines)
	}
	c.print(lines...)
	return nil
}

// rolloutEvent matches the name of an event about a ModuleRollout.
var rolloutEvent = regexp.MustCompile(`-r[0-9]+\.[0-9a-f]+$`)

// isOfRollout reports whether a request records how far a version has reached the fleet. The manager sends such
// requests some seconds after a change, and they do not belong to a single runtime.
func isOfRollout(r cluster.Request) bool {
	return r.Resource == "modulerollouts" || r.Resource == "modulereleasemetas" && r.Subresource == "status" ||
		r.Resource == "events" && rolloutEvent.MatchString(r.Name)
}

func (s *scenario) requests(c *call) error {
	all, err := s.seen(c)
	if err != nil {
		return err
	}
	var lines []string
	for _, r := range all {
		lines = append(lines, line(r))
	}
	c.print(lines...)
	return nil
}

func (s *scenario) users(c *call) error {
	all, err := s.seen(c)
	if err != nil {
		return err
	}
	var names []string
	for _, r := range all {
		names = append(names, r.User)
	}
	slices.Sort(names)
	c.print(slices.Compact(names)...)
	return nil
}

func (s *scenario) underway(c *call) error {
	if err := c.want(3, 3, "underway [-reviews] [-events] CLUSTER N REGEXP"); err != nil {
		return err
	}
	n, err := strconv.Atoi(c.args[1])
	if err != nil {
		return err
	}
	like, err := regexp.Compile(c.args[2])
	if err != nil {
		return err
	}
	return s.poll(func(context.Context) (bool, string) {
		all, err := s.seen(&call{args: c.args[:1], flags: c.flags})
		if err != nil {
			return false, err.Error()
		}
		var lines []string
		for _, r := range all {
			if l := line(r); like.MatchString(l) {
				lines = append(lines, l)
			}
		}
		return len(lines) >= n, strings.Join(lines, "\n")
	})
}

func (s *scenario) printPulls(c *call) error {
	if c.has("charts") {
		c.print(s.land.ChartRequestsAfter(s.orders)...)
		return nil
	}
	c.print(s.land.RegistryRequestsAfter(s.pulls)...)
	return nil
}

func (s *scenario) order(c *call) error {
	lines, last := c.output(), -1
	for _, arg := range c.args {
		like, err := regexp.Compile(arg)
		if err != nil {
			return err
		}
		first, end := -1, -1
		for i, l := range lines {
			if like.MatchString(l) {
				if first < 0 {
					first = i
				}
				end = i
			}
		}
		switch {
		case first < 0:
			return fmt.Errorf("no line matches %q", arg)
		case first <= last:
			return fmt.Errorf("%q comes too early: line %d, %q", arg, first+1, lines[first])
		}
		last = end
	}
	return nil
}

func (s *scenario) once(c *call) error {
	if err := c.want(1, 1, "once REGEXP"); err != nil {
		return err
	}
	like, err := regexp.Compile(c.args[0])
	if err != nil {
		return err
	}
	counts := map[string]int{}
	for _, l := range c.output() {
		if like.MatchString(l) {
			counts[l]++
		}
	}
	if len(counts) == 0 {
		return fmt.Errorf("no line matches %q", c.args[0])
	}
	var twice []string
	for l, n := range counts {
		if n > 1 {
			twice = append(twice, fmt.Sprintf("%d times: %s", n, l))
		}
	}
	if twice != nil {
		slices.Sort(twice)
		return fmt.Errorf("%s", strings.Join(twice, "\n"))
	}
	return nil
}

func (s *scenario) lines(c *call) error {
	if err := c.want(1, 1, "lines [-after=DURATION:MAX] MAX"); err != nil {
		return err
	}
	most, err := s.most(c)
	if err != nil {
		return err
	}
	if n := len(c.output()); n > most {
		return fmt.Errorf("%d lines, at most %d are right", n, most)
	}
	return nil
}

// most returns the maximum in the first argument, or the one in the flag -after if its time has passed since the mark.
func (s *scenario) most(c *call) (int, error) {
	text := c.args[0]
	if after := c.flag("after"); after != "" {
		duration, other, _ := strings.Cut(after, ":")
		d, err := time.ParseDuration(duration)
		if err != nil {
			return 0, fmt.Errorf("-after=%s is not -after=DURATION:MAX: %w", after, err)
		}
		if time.Since(s.markedAt) > d {
			text = other
		}
	}
	return strconv.Atoi(text)
}

func (s *scenario) atMost(c *call) error {
	if err := c.want(2, 2, "most [-after=DURATION:MAX] MAX REGEXP"); err != nil {
		return err
	}
	most, err := s.most(c)
	if err != nil {
		return err
	}
	like, err := regexp.Compile(c.args[1])
	if err != nil {
		return err
	}
	matching := slices.DeleteFunc(c.output(), func(l string) bool { return !like.MatchString(l) })
	if n := len(matching); n == 0 || n > most {
		return fmt.Errorf("%d lines match %q, 1 to %d are right", n, c.args[1], most)
	}
	return nil
}

func (s *scenario) ours(c *call) error {
	if err := c.want(1, 1, "ours [-unrecorded] [-catalog] CLUSTER"); err != nil {
		return err
	}
	found, err := s.oursIn(s.ctx, c.args[0])
	if err != nil {
		return err
	}
	recorded := map[string]bool{}
	if c.has("unrecorded") {
		if recorded, err = s.recorded(); err != nil {
			return err
		}
	}
	c.print(slices.DeleteFunc(found, func(o string) bool {
		return recorded[o] ||
			!c.has("catalog") && ofCatalog(o)
	})...)
	return nil
}

// ofCatalog reports whether an object belongs to the catalog copy that every runtime has.
func ofCatalog(identity string) bool {
	return strings.HasPrefix(identity, "ModuleTemplate.") || strings.HasPrefix(identity, "ModuleReleaseMeta.")
}

// oursIn returns every object of a cluster with the manager's label, as "Kind.group namespace/name", sorted.
func (s *scenario) oursIn(ctx context.Context, name string) ([]string, error) {
	of := s.land.Clusters[name]
	if of == nil {
		return nil, fmt.Errorf("there is no cluster %q", name)
	}
	config := of.Config()
	config.UserAgent, config.QPS = "landscape", -1
	finder, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	reader, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	lists, err := finder.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || strings.Contains(r.Name, "/") {
				continue
			}
			all, err := reader.Resource(gv.WithResource(r.Name)).List(
				ctx, metav1.ListOptions{LabelSelector: v1beta2.LabelManagedBy + "=" + v1beta2.ManagedByKyma})
			if apierrors.IsNotFound(err) { // the CRD was deleted after discovery, and with it all objects
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("listing %s: %w", r.Name, err)
			}
			for _, o := range all.Items {
				found = append(found, identity(gv.Group, r.Kind, o.Namespace, o.Name))
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

func identity(group, kind, namespace, name string) string {
	if group != "" {
		kind += "." + group
	}
	if namespace != "" {
		name = namespace + "/" + name
	}
	return kind + " " + name
}

// recorded returns the objects in the inventories of all Manifests.
func (s *scenario) recorded() (map[string]bool, error) {
	list := &v1beta2.ManifestList{}
	if err := s.land.Clients[landscape.ControlPlane].List(
		s.ctx, list, client.InNamespace(s.land.Namespace())); err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, m := range list.Items {
		for _, r := range m.Status.Synced {
			all[identity(r.Group, r.Kind, r.Namespace, r.Name)] = true
		}
	}
	return all, nil
}
