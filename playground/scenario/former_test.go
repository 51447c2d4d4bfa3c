package scenario

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/crds"
)

// former is a folder with the program lifecycle-manager of a former version, and with its CRDs in the folder crds.
// Without the flag -former, the tests use the present version in place of a former one. "make skew FORMER=COMMIT" makes
// the folder for the flag.
var former = flag.String("former", "", "folder with a former manager and its CRDs, for the scenario skew")

// formerCRDs returns the CRDs of the former version.
func formerCRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	if *former == "" {
		return crds.All(), nil
	}
	files, err := filepath.Glob(filepath.Join(*former, "crds", "*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("there are no CRDs in %s/crds: %w", *former, err)
	}
	var all []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, crd); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		all = append(all, crd)
	}
	return all, nil
}

// startFormer starts the former manager.
func (s *scenario) startFormer() error {
	if *former == "" {
		return s.land.StartManagerWithoutWait(s.ctx)
	}
	of := s.land.Bin
	defer func() { s.land.Bin = of }()
	s.land.Bin = *former
	return s.land.StartManagerWithoutWait(s.ctx)
}

// crds installs CRDs in clusters.
func (s *scenario) crds(c *call) error {
	if err := c.want(1, len(s.land.Clients), "crds [-without=FILE] [-former] CLUSTER…"); err != nil {
		return err
	}
	all := crds.All()
	if c.has("former") {
		var err error
		if all, err = formerCRDs(); err != nil {
			return err
		}
	}
	if file := c.flag("without"); file != "" {
		for line := range strings.Lines(c.script.ReadFile(file)) {
			plural, path, ok := strings.Cut(strings.TrimSpace(line), " ")
			if !ok || withoutField(all, plural, path) == 0 {
				return fmt.Errorf("%s: %q is no field: write PLURAL PATH, such as kymas status.modules[].history",
					file, line)
			}
		}
	}
	for _, cluster := range c.args {
		to, ok := s.land.Clients[cluster]
		if !ok {
			return fmt.Errorf("there is no cluster %q", cluster)
		}
		for _, crd := range all {
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
			if err != nil {
				return err
			}
			is := &unstructured.Unstructured{}
			is.SetAPIVersion("apiextensions.k8s.io/v1")
			is.SetKind("CustomResourceDefinition")
			err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
				if err := to.Get(s.ctx, client.ObjectKeyFromObject(crd), is); err != nil {
					return client.IgnoreNotFound(err) // runtimes do not have all kinds
				}
				is.Object["spec"].(map[string]any)["versions"] = fields["spec"].(map[string]any)["versions"]
				return to.Update(s.ctx, is)
			})
			if err != nil {
				return fmt.Errorf("changing CRD %s in %s: %w", crd.Name, cluster, err)
			}
		}
	}
	return nil
}

// withoutField removes a field from all versions of a CRD, and returns the number of versions that had the field.
func withoutField(all []*apiextensionsv1.CustomResourceDefinition, plural, path string) int {
	n := 0
	for _, crd := range all {
		if crd.Spec.Names.Plural != plural {
			continue
		}
		for _, version := range crd.Spec.Versions {
			n += withoutProperty(version.Schema.OpenAPIV3Schema, strings.Split(path, "."))
		}
	}
	return n
}

// withoutProperty removes the property at the end of a path, and returns the number of removed properties.
func withoutProperty(in *apiextensionsv1.JSONSchemaProps, path []string) int {
	name, isList := strings.CutSuffix(path[0], "[]")
	next, ok := in.Properties[name]
	switch {
	case !ok:
		return 0
	case len(path) == 1:
		delete(in.Properties, name)
		return 1
	case isList:
		return withoutProperty(next.Items.Schema, path[1:])
	}
	n := withoutProperty(&next, path[1:])
	in.Properties[name] = next
	return n
}

// rewrite writes objects back as they are read.
func (s *scenario) rewrite(c *call) error {
	for _, arg := range c.args {
		o, err := s.object(arg)
		if err != nil {
			return err
		}
		u := o.empty()
		err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
			if err := o.client.Get(s.ctx, client.ObjectKeyFromObject(u), u); err != nil {
				return err
			}
			status := u.DeepCopy()
			if err := o.client.Update(s.ctx, u); err != nil {
				return err
			}
			status.SetResourceVersion(u.GetResourceVersion())
			return o.client.Status().Update(s.ctx, status)
		})
		if err != nil {
			return fmt.Errorf("writing %s back: %w", arg, err)
		}
	}
	return nil
}
