package scenario

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	_ "istio.io/api/label" // so that the module with these CRDs is in our go.mod
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	_ "sigs.k8s.io/gateway-api/pkg/consts" // as above

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// projects are the projects whose CRDs scripts can install, with the Go module that contains the CRDs, and the CRDs
// that are used.
var projects = map[string]struct {
	module, files string
	names         []string
}{
	"istio": {"istio.io/api", "kubernetes/customresourcedefinitions.gen.yaml",
		[]string{"gateways.networking.istio.io", "virtualservices.networking.istio.io"}},
	"gateway-api": {"sigs.k8s.io/gateway-api", "config/crd/standard/*.yaml", []string{
		"gateways.gateway.networking.k8s.io", "httproutes.gateway.networking.k8s.io",
		"tlsroutes.gateway.networking.k8s.io", "referencegrants.gateway.networking.k8s.io",
	}},
}

// definitions returns the CRDs of a project as the project releases them.
func (s *scenario) definitions(project string) ([]*unstructured.Unstructured, error) {
	p, known := projects[project]
	if !known {
		return nil, fmt.Errorf("%q is no project that can be installed", project)
	}
	out, err := exec.CommandContext(s.ctx, "go", "list", "-m", "-f", "{{.Dir}}", p.module).Output()
	if err != nil {
		return nil, fmt.Errorf("finding module %s: %w", p.module, err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), p.files))
	if err != nil {
		return nil, err
	}
	var found []*unstructured.Unstructured
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		objects, err := render.Parse(data)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		for _, o := range objects {
			if u := (*unstructured.Unstructured)(o); slices.Contains(p.names, u.GetName()) {
				found = append(found, u)
			}
		}
	}
	if len(found) != len(p.names) {
		return nil, fmt.Errorf("module %s has %d of the definitions %q", p.module, len(found), p.names)
	}
	return found, nil
}

func (s *scenario) install(c *call) error {
	if err := c.want(2, 2, "install CLUSTER istio|gateway-api"); err != nil {
		return err
	}
	all, err := s.definitions(c.args[1])
	if err != nil {
		return err
	}
	to := s.land.Clients[c.args[0]]
	for _, o := range all {
		err := s.poll(func(ctx context.Context) (bool, string) { // the API server of a busy machine may time out
			err := to.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("somebody"),
				client.ForceOwnership)
			return err == nil, fmt.Sprint(err)
		})
		if err != nil {
			return fmt.Errorf("installing %s: %w", o.GetName(), err)
		}
	}
	for _, o := range all {
		err := s.poll(func(ctx context.Context) (bool, string) {
			group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion(group + "/v1")
			list.SetKind(kind + "List")
			err := to.List(ctx, list)
			return err == nil, fmt.Sprint(err)
		})
		if err != nil {
			return fmt.Errorf("waiting for %s: %w", o.GetName(), err)
		}
	}
	return nil
}

func (s *scenario) uninstall(c *call) error {
	if err := c.want(2, 2, "uninstall CLUSTER istio|gateway-api"); err != nil {
		return err
	}
	all, err := s.definitions(c.args[1])
	if err != nil {
		return err
	}
	from := s.land.Clients[c.args[0]]
	for _, o := range all {
		err := s.poll(func(ctx context.Context) (bool, string) {
			err := client.IgnoreNotFound(from.Delete(ctx, o))
			return err == nil, fmt.Sprint(err)
		})
		if err != nil {
			return fmt.Errorf("uninstalling %s: %w", o.GetName(), err)
		}
	}
	for _, o := range all { // an install during the deletion would have no effect
		err := s.poll(func(ctx context.Context) (bool, string) {
			err := from.Get(ctx, client.ObjectKeyFromObject(o), o.DeepCopy())
			return apierrors.IsNotFound(err), fmt.Sprint("it is there: ", err)
		})
		if err != nil {
			return fmt.Errorf("waiting until %s is gone: %w", o.GetName(), err)
		}
	}
	return nil
}

func (s *scenario) guide(c *call) error {
	if err := c.want(2, 2, "guide CLUSTER PAGE"); err != nil {
		return err
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "guide", filepath.Base(c.args[1])))
	if err != nil {
		return err
	}
	blocks := strings.Split(string(page), "\n```yaml\n")[1:]
	if len(blocks) == 0 {
		return fmt.Errorf("%s has no YAML block", c.args[1])
	}
	for _, block := range blocks {
		yaml, _, ended := strings.Cut(block, "\n```")
		if !ended {
			return fmt.Errorf("%s has a YAML block that does not end", c.args[1])
		}
		objects, err := render.Parse([]byte(yaml))
		if err != nil {
			return fmt.Errorf("%s: %w", c.args[1], err)
		}
		for _, o := range objects {
			u := (*unstructured.Unstructured)(o)
			if err := s.applyObject(s.land.Clients[c.args[0]], u, "somebody"); err != nil {
				return fmt.Errorf("%s: %w", c.args[1], err)
			}
		}
	}
	return nil
}
