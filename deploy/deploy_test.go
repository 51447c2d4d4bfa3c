package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

var update = flag.Bool("update", false, "write base, in-cluster, components and the chart's CRDs")

// address is the placeholder for the address of the listener in the Kustomize component named agents.
const address = "listener.example.com:8445"

// folders lists the folders that are generated from the chart. Each folder has the values with which the chart is
// rendered for the folder, and the names of the templates of the folder. If the field templates is nil, the folder has
// all templates that have output.
var folders = map[string]struct {
	flavour   string
	values    []string
	templates []string
}{
	"base":                {ControlPlaneFlavour, nil, nil},
	"in-cluster":          {InClusterFlavour, nil, nil},
	"components/webhooks": {ControlPlaneFlavour, []string{"webhooks.enabled=true"}, []string{"webhooks.yaml"}},
	"components/agents":   {ControlPlaneFlavour, []string{"agents.address=" + address}, []string{"agents.yaml"}},
	"components/control-plane-modules": {ControlPlaneFlavour, []string{"controlPlaneModules.enabled=true"},
		[]string{"modules.yaml"}},
	"components/monitoring": {ControlPlaneFlavour, []string{"metrics.serviceMonitor.enabled=true"},
		[]string{"servicemonitor.yaml"}},
}

// heading is the first line of each generated file.
const heading = "# Written by `make deploy-files` from chart/templates/%s.\n"

// TestWritten compares the generated files with the output of the chart. If the flag -update is set, the test writes
// the files.
func TestWritten(t *testing.T) {
	for folder, f := range folders {
		t.Run(folder, func(t *testing.T) {
			want := map[string]string{}
			for name, text := range template(t, f.flavour,
				append(f.values, "namespace.create=true", "crds.install=false")) {
				if f.templates == nil || slices.Contains(f.templates, name) {
					want[name] = fmt.Sprintf(heading, name) + text
				}
			}
			compareFiles(t, folder, want)
		})
	}
	t.Run("definitions", func(t *testing.T) {
		want := map[string]string{}
		paths, err := filepath.Glob("../crds/*.yaml")
		if err != nil || len(paths) == 0 {
			t.Fatalf("no CRDs: %v", err)
		}
		for _, p := range paths {
			want[filepath.Base(p)] = read(t, p)
		}
		compareFiles(t, "chart/definitions", want)
	})
}

// compareFiles checks that the files of a folder have the expected contents (parameter want). With the flag -update,
// compareFiles writes the expected contents into the files. The kustomization of a folder is written by hand, and must
// list all files of the folder.
func compareFiles(t *testing.T, folder string, want map[string]string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, p := range paths {
		if name := filepath.Base(p); name != "kustomization.yaml" {
			got[name] = read(t, p)
		}
	}
	if *update {
		for name := range got {
			if err := os.Remove(filepath.Join(folder, name)); err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range want {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got = want
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s differs from the output of the chart; run make deploy-files: -want +got\n%s", folder, diff)
	}
	var k struct{ Resources []string }
	if err := sigsyaml.Unmarshal([]byte(read(t, filepath.Join(folder, "kustomization.yaml"))), &k); err != nil {
		t.Fatal(err)
	}
	named := slices.DeleteFunc(k.Resources, func(r string) bool { return !strings.HasSuffix(r, ".yaml") })
	slices.Sort(named)
	names := []string{}
	for name := range want {
		names = append(names, name)
	}
	slices.Sort(names)
	if diff := cmp.Diff(names, named); diff != "" {
		t.Errorf("%s: files (-) and resources of the kustomization (+):\n%s", folder, diff)
	}
}

// template renders the chart like the command "helm template", and returns the output of each template file.
func template(t *testing.T, flavour string, set []string) map[string]string {
	t.Helper()
	chart, err := loader.LoadDir("chart")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{"flavour": flavour}
	for _, expression := range set {
		name, value, _ := strings.Cut(expression, "=")
		put(values, strings.Split(name, "."), value)
	}
	release := common.ReleaseOptions{Name: Release, Namespace: DefaultNamespace(flavour), Revision: 1, IsInstall: true}
	all, err := commonutil.ToRenderValues(chart, values, release, common.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := engine.Engine{Strict: true}.RenderWithContext(t.Context(), chart, all)
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]string{}
	for file, text := range texts {
		if text = strings.TrimSpace(text); text != "" && filepath.Ext(file) == ".yaml" {
			made[filepath.Base(file)] = text + "\n"
		}
	}
	return made
}

// put sets a nested value; it converts the texts "true" and "false" to booleans.
func put(values map[string]any, path []string, value string) {
	for _, step := range path[:len(path)-1] {
		next, ok := values[step].(map[string]any)
		if !ok {
			next = map[string]any{}
			values[step] = next
		}
		values = next
	}
	last := path[len(path)-1]
	switch value {
	case "true", "false":
		values[last] = value == "true"
	default:
		values[last] = value
	}
}

// TestKustomize checks that kubectl apply -k and helm install apply the same objects.
func TestKustomize(t *testing.T) {
	cases := map[string]struct {
		reason, flavour, overlay string
		set                      []string
	}{
		"Base":      {"the control plane", ControlPlaneFlavour, "resources: [../base]", nil},
		"InCluster": {"the cluster itself", InClusterFlavour, "resources: [../in-cluster]", nil},
		"Webhooks": {"conversions", ControlPlaneFlavour, "resources: [../base]\ncomponents: [../components/webhooks]",
			[]string{"webhooks.enabled=true"}},
		"Agents": {"agents", ControlPlaneFlavour, "resources: [../base]\ncomponents: [../components/agents]",
			[]string{"agents.address=" + address}},
		"Monitoring": {"metrics", ControlPlaneFlavour, "resources: [../base]\ncomponents: [../components/monitoring]",
			[]string{"metrics.serviceMonitor.enabled=true"}},
		"Modules": {
			"modules on the control plane", ControlPlaneFlavour,
			"resources: [../base]\ncomponents: [../components/control-plane-modules]",
			[]string{"controlPlaneModules.enabled=true"},
		},
		"Dashboards": {
			"dashboards and alerts", ControlPlaneFlavour, "resources: [../base, ../monitoring]",
			[]string{"monitoring.dashboards.enabled=true", "monitoring.alerts.enabled=true"},
		},
		"All": {
			"everything, in any order", ControlPlaneFlavour,
			"resources: [../base]\ncomponents: [../components/webhooks, ../components/agents, " +
				"../components/monitoring]",
			[]string{"agents.address=" + address, "metrics.serviceMonitor.enabled=true", "webhooks.enabled=true"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			tree := t.TempDir()
			if err := os.CopyFS(tree, os.DirFS(".")); err != nil {
				t.Fatal(err)
			}
			overlay := filepath.Join(tree, "overlay")
			if err := os.Mkdir(overlay, 0o700); err != nil {
				t.Fatal(err)
			}
			text := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n" + c.overlay + "\n"
			if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			all, err := render.LoadFolder(os.DirFS(tree), render.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			part, err := all.Subfolder("overlay")
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := part.RenderObjects(t.Context(), render.Settings{})
			if err != nil {
				t.Fatal(err)
			}
			want, err := Objects(t.Context(), Options{Flavour: c.flavour, Set: append(c.set, "namespace.create=true")})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(byName(want), byName(got)); diff != "" {
				t.Errorf("%s: chart (-) and kustomize (+) differ:\n%s", c.reason, diff)
			}
		})
	}
}

// byName returns objects by kind and name. byName leaves out the annotations that make Helm, and tools that read Helm's
// annotations, keep the CRDs when the release is uninstalled.
func byName(objects []*unstructured.Unstructured) map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, o := range objects {
		o = o.DeepCopy()
		annotations := o.GetAnnotations()
		delete(annotations, "helm.sh/resource-policy")
		delete(annotations, "operator.kyma-project.io/prune")
		o.SetAnnotations(annotations)
		all[o.GetKind()+" "+o.GetName()] = o.Object
	}
	return all
}

// TestHelmAgrees checks that the programs of this project and Helm render the chart in the same way.
func TestHelmAgrees(t *testing.T) {
	set := []string{"webhooks.enabled=true", "agents.address=" + address, "namespace.create=true",
		"monitoring.dashboards.enabled=true", "monitoring.alerts.enabled=true",
		"image.repository=registry.example.com/team/lifecycle-manager",
		"registry.host=http://registry.example.com:5000/modules"}
	var stream bytes.Buffer
	for _, text := range template(t, ControlPlaneFlavour, set) {
		fmt.Fprintf(&stream, "---\n%s", text)
	}
	helm, err := render.Parse(stream.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := Objects(t.Context(), Options{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(byName(helm), byName(ours)); diff != "" {
		t.Errorf("helm (-) and ours (+) differ:\n%s", diff)
	}
	kept := 0
	for _, o := range ours {
		if o.GetKind() == "CustomResourceDefinition" && o.GetAnnotations()["helm.sh/resource-policy"] == "keep" {
			kept++
		}
	}
	if kept != 7 {
		t.Errorf("Helm keeps %d CRDs, want 7: all objects of the others would be deleted", kept)
	}
	policy := byName(ours)["NetworkPolicy lifecycle-manager"]
	if text := fmt.Sprint(policy); !strings.Contains(text, "port:5000") {
		t.Errorf("the port of the registry is not open: %s", text)
	}
	args := fmt.Sprint(byName(ours)["Deployment lifecycle-manager"])
	if !strings.Contains(args, "--skr-watcher-image-registry=registry.example.com/team ") {
		t.Errorf("the agent's image is not in the path of the manager's image: %s", args)
	}
}

// TestMonitoring checks that the deployed dashboards and alerts equal their files, and that they have the labels that
// Grafana and Prometheus select.
func TestMonitoring(t *testing.T) {
	objects, err := Objects(t.Context(), Options{Values: []byte(`
monitoring:
  dashboards: {enabled: true, namespace: grafana, labels: {grafana_dashboard: null, mine: "true"}, annotations: {grafana_folder: Fleet}}
  alerts: {enabled: true, labels: {release: prometheus}}
`)})
	if err != nil {
		t.Fatal(err)
	}
	all := byName(objects)
	dashboards := &unstructured.Unstructured{Object: all["ConfigMap lifecycle-manager-dashboards"]}
	alerts := &unstructured.Unstructured{Object: all["PrometheusRule lifecycle-manager"]}
	paths, err := filepath.Glob("chart/monitoring/dashboards/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	files := map[string]any{}
	for _, p := range paths {
		files[filepath.Base(p)] = read(t, p)
	}
	var rules map[string]any
	if err := sigsyaml.Unmarshal([]byte(read(t, "chart/monitoring/alerts.yaml")), &rules); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason    string
		want, got any
	}{
		"Dashboards": {"the files are complete", files, dashboards.Object["data"]},
		"Namespace":  {"a sidecar may search one namespace only", "grafana", dashboards.GetNamespace()},
		"Labels": {
			"a sidecar may select its own label",
			map[string]string{"app.kubernetes.io/name": Release, "mine": "true"}, dashboards.GetLabels(),
		},
		"Annotations": {
			"annotations name Grafana folders",
			map[string]string{"grafana_folder": "Fleet"}, dashboards.GetAnnotations(),
		},
		"Alerts": {"Prometheus expands the templates in alerts, not Helm", rules["spec"], alerts.Object["spec"]},
		"Selected": {"Prometheus selects rules by labels", map[string]string{"app.kubernetes.io/name": Release,
			"release": "prometheus"}, alerts.GetLabels()},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, c.got); diff != "" {
				t.Errorf("%s: -want +got\n%s", c.reason, diff)
			}
		})
	}
}

// TestRolesOfPeople checks that the roles view, edit and admin of Kubernetes have rules for all kinds of this project.
func TestRolesOfPeople(t *testing.T) {
	objects, err := Objects(t.Context(), Options{Flavour: ControlPlaneFlavour})
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	rights := map[string]map[string]string{"view": {}, "edit": {}, "admin": {}} // role -> resource -> verbs
	for _, o := range objects {
		if o.GetKind() == "CustomResourceDefinition" {
			plural, _, _ := unstructured.NestedString(o.Object, "spec", "names", "plural")
			kinds = append(kinds, plural)
		}
		rules, _, _ := unstructured.NestedSlice(o.Object, "rules")
		for role, has := range rights {
			if o.GetLabels()["rbac.authorization.k8s.io/aggregate-to-"+role] != "true" {
				continue
			}
			for _, rule := range rules {
				r := rule.(map[string]any)
				for _, resource := range r["resources"].([]any) {
					has[resource.(string)] += fmt.Sprint(r["verbs"])
				}
			}
		}
	}
	const read, write = "[get list watch]", "[create update patch delete deletecollection]"
	want := map[string]map[string]string{"view": {}, "edit": {}, "admin": {}}
	for _, kind := range kinds {
		want["view"][kind], want["edit"][kind], want["admin"][kind] = read, read, read+write
	}
	want["edit"]["kymas"] = read + write
	want["admin"]["modulerollouts"] += "[approve override]"
	if diff := cmp.Diff(want, rights); len(kinds) != 7 || diff != "" {
		t.Errorf("kinds %v, rights -want +got:\n%s", kinds, diff)
	}
}

// TestFlavours checks that the objects of both flavours comply with the rules of a safe installation.
func TestFlavours(t *testing.T) {
	for _, flavour := range []string{ControlPlaneFlavour, InClusterFlavour} {
		t.Run(flavour, func(t *testing.T) {
			objects, err := Objects(t.Context(), Options{
				Flavour: flavour, Namespace: "somewhere",
				Set: []string{"namespace.create=true", "webhooks.enabled=true", "agents.address=" + address,
					"replicas=2", "monitoring.dashboards.enabled=true",
					"monitoring.alerts.enabled=true", "metrics.serviceMonitor.enabled=true",
					"metrics.readers[0].kind=ServiceAccount,metrics.readers[0].name=lifecycle-manager,metrics.readers[0].namespace=somewhere"},
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range objects {
				id := o.GetKind() + " " + o.GetName()
				if o.GetKind() == "CustomResourceDefinition" {
					continue
				}
				if text := fmt.Sprint(o.Object); strings.Contains(text, "kcp-system") ||
					strings.Contains(text, "kyma-system") {
					t.Errorf("%s contains the name of another namespace: %s", id, text)
				}
				if o.GetKind() != "Namespace" && o.GetLabels()["app.kubernetes.io/name"] != Release {
					t.Errorf("%s has no label of the manager: klm would never remove it", id)
				}
				switch o.GetKind() {
				case "RoleBinding", "ClusterRoleBinding":
					subjects, _, err := unstructured.NestedSlice(o.Object, "subjects")
					want := []any{map[string]any{"kind": "ServiceAccount", "name": Release, "namespace": "somewhere"}}
					if diff := cmp.Diff(want, subjects); err != nil || diff != "" {
						t.Errorf("%s: %v, -want +got:\n%s", id, err, diff)
					}
				case "Role", "ClusterRole":
					if text := fmt.Sprint(o.Object["rules"]); strings.ContainsAny(text, "*") {
						t.Errorf("%s has a wildcard: %s", id, text)
					}
				case "Deployment":
					checkPod(t, o)
				}
			}
		})
	}
}

// checkPod checks that the pod complies with pod security "restricted" and has a read-only file system, and that the
// manager accepts its flags.
func checkPod(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	pod, _, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if err != nil {
		t.Fatal(err)
	}
	if pod["serviceAccountName"] != Release {
		t.Errorf("the pod runs as %v", pod["serviceAccountName"])
	}
	security := pod["securityContext"].(map[string]any)
	if security["runAsNonRoot"] != true || !cmp.Equal(security["seccompProfile"],
		any(map[string]any{"type": "RuntimeDefault"})) {
		t.Errorf("the pod's security context is too wide: %v", security)
	}
	for _, c := range pod["containers"].([]any) {
		container := c.(map[string]any)
		want := map[string]any{"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
			"capabilities": map[string]any{"drop": []any{"ALL"}}}
		if diff := cmp.Diff(want, container["securityContext"]); diff != "" {
			t.Errorf("security context of the container, -want +got:\n%s", diff)
		}
		if image := container["image"].(string); image != Release+":"+config.Version {
			t.Errorf("image %s is not of this version, %s: correct appVersion of the chart", image, config.Version)
		}
		for _, probe := range []string{"livenessProbe", "readinessProbe"} {
			if container[probe] == nil {
				t.Errorf("the container has no %s", probe)
			}
		}
		checkArgs(t, container["args"].([]any))
	}
}

// checkArgs checks that the manager accepts the arguments in its pod.
func checkArgs(t *testing.T, args []any) {
	t.Helper()
	flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	m := config.DefaultManager()
	m.Register(flags)
	var texts []string
	for _, arg := range args {
		texts = append(texts, arg.(string))
	}
	if err := errors.Join(flags.Parse(texts), m.Validate()); err != nil {
		t.Errorf("the manager does not start with %q: %v", texts, err)
	}
}

// TestValues checks that an invalid value is refused, and that the error names it.
func TestValues(t *testing.T) {
	cases := map[string]struct {
		reason string
		set    string
		want   string // text in the error; "" for no error
	}{
		"Typo":     {"a misspelt value would have no effect", "replica=2", "replica"},
		"Deep":     {"nested values are checked, too", "image.tags=1", "tags"},
		"Number":   {"a number is not a text", "replicas=two", "replicas"},
		"Flag":     {"a flag begins with dashes", "extraArgs={orphan-cleanup}", "extraArgs"},
		"Address":  {"an address has no scheme", "agents.address=https://x:1", "address"},
		"Digest":   {"a digest is complete", "image.digest=sha256:12", "digest"},
		"Good":     {"valid values are accepted", "replicas=3,shards=64,registry.host=registry.example.com", ""},
		"GoodList": {"flags are accepted", "extraArgs={--orphan-cleanup,--log-level=1}", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Objects(t.Context(), Options{Set: []string{c.set}})
			switch {
			case c.want == "" && err != nil:
				t.Errorf("%s: %v", c.reason, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%s: error is %v, want one that names %s", c.reason, err, c.want)
			}
		})
	}
	if _, err := Objects(t.Context(), Options{Flavour: "other"}); err == nil ||
		!strings.Contains(err.Error(), "flavour") {
		t.Errorf("an unknown flavour gives %v", err)
	}
}

// TestExtras checks values for a cluster that has a proxy or a certificate authority of its own, and tags that YAML
// would read as numbers.
func TestExtras(t *testing.T) {
	objects, err := Objects(t.Context(), Options{Set: []string{"replicas=2"}, Values: []byte(`
image: {tag: 20261123}
extraEnv: [{name: SSL_CERT_DIR, value: /etc/company-ca}]
extraVolumes: [{name: ca, configMap: {name: company-ca}}]
extraVolumeMounts: [{name: ca, mountPath: /etc/company-ca, readOnly: true}]
`)})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.GetKind() != "Deployment" {
			continue
		}
		text, err := json.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{`"image":"lifecycle-manager:20261123"`,
			`{"name":"SSL_CERT_DIR","value":"/etc/company-ca"}`,
			`"volumes":[{"configMap":{"name":"company-ca"},"name":"ca"}]`,
			`"volumeMounts":[{"mountPath":"/etc/company-ca","name":"ca","readOnly":true}]`,
			`"topologyKey":"kubernetes.io/hostname","whenUnsatisfiable":"ScheduleAnyway"`} {
			if !strings.Contains(string(text), part) {
				t.Errorf("the Deployment has no %s:\n%s", part, text)
			}
		}
		return
	}
	t.Error("there is no Deployment")
}

// TestSchema checks that values.yaml and the schema have the same values.
func TestSchema(t *testing.T) {
	var values map[string]any
	var schema struct{ Properties map[string]any }
	for file, into := range map[string]any{"values.yaml": &values, "values.schema.json": &schema} {
		if err := sigsyaml.Unmarshal([]byte(read(t, filepath.Join("chart", file))), into); err != nil {
			t.Fatal(err)
		}
	}
	delete(schema.Properties, "global")
	compareKeys(t, "", values, schema.Properties)
}

// compareKeys compares the names of nested values with the names in the schema.
func compareKeys(t *testing.T, path string, values, properties map[string]any) {
	t.Helper()
	for name := range properties {
		if _, found := values[name]; !found {
			t.Errorf("%s%s has a schema and no default", path, name)
		}
	}
	for name, value := range values {
		property, found := properties[name].(map[string]any)
		if !found {
			t.Errorf("%s%s has no schema", path, name)
			continue
		}
		inner, isMap := value.(map[string]any)
		if below, nested := property["properties"].(map[string]any); isMap && nested {
			compareKeys(t, path+name+".", inner, below)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestEgressDestinations checks that networkPolicy.egressTo limits the destinations of all ports except DNS and other
// replicas.
func TestEgressDestinations(t *testing.T) {
	objects, err := Objects(t.Context(), Options{Values: []byte(
		"networkPolicy: {egressPorts: [443], egressTo: [{ipBlock: {cidr: 203.0.113.0/24}}]}")})
	if err != nil {
		t.Fatal(err)
	}
	policy := byName(objects)["NetworkPolicy lifecycle-manager"]
	rules, _, err := unstructured.NestedSlice(policy, "spec", "egress")
	if err != nil || len(rules) != 3 {
		t.Fatalf("got %v, %v", rules, err)
	}
	if text := fmt.Sprint(rules[0]); strings.Contains(text, "cidr") || !strings.Contains(text, "port:53") {
		t.Errorf("DNS: %s", text)
	}
	if text := fmt.Sprint(rules[1]); !strings.Contains(text, "cidr:203.0.113.0/24") || !strings.Contains(text, "443") {
		t.Errorf("destinations: %s", text)
	}
}
