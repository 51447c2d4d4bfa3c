package check

import (
	"strings"
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// TestObjects checks the findings about one manifest at a time.
func TestObjects(t *testing.T) {
	const crd = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
---
`
	workload := func(more string) string {
		return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: kyma-system}\nspec:\n  " +
			"replicas: 1\n" +
			"  selector: {matchLabels: {app: d}}\n  template:\n    metadata: {labels: {app: d}}\n    spec:\n    " +
			"  " +
			"securityContext: {runAsUser: 1000}\n      containers:\n      - name: c\n        image: " +
			"example.com/c:1.0.0\n" +
			"        resources: {limits: {cpu: 1, memory: 64Mi}}\n        livenessProbe: {httpGet: {port: http, " +
			"path: /}, " +
			"periodSeconds: 5}\n" + more
	}
	cases := map[string]struct {
		reason, manifest string
		want             []string // parts of the findings, in order
	}{
		"Good": {"nothing is reported", workload(""), nil},
		"UnknownKind": {"", "apiVersion: apps/v1\nkind: Deploymnt\nmetadata: {name: d}\n", []string{"no kind " +
			"Deploymnt in apps/v1"}},
		"OtherGroup": {"the kind is named in the message", "apiVersion: v1\nkind: Deployment\nmetadata: {name: " +
			"d, " +
			"namespace: default}\n", []string{"no kind Deployment in v1: use apps/v1"}},
		"Foreign": {"another module may define it", "apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\n" +
			"metadata: {name: m, namespace: default}\n", []string{"neither Kubernetes nor the module defines " +
			"kind ServiceMonitor"}},
		"Own": {"", crd + "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w, namespace: " +
			"kyma-system}\n", nil},
		"OwnNotServed": {"", crd + "apiVersion: example.com/v2\nkind: Widget\nmetadata: {name: w, namespace: " +
			"kyma-system}\n",
			[]string{"does not serve version v2"}},
		"Removed": {"", "apiVersion: batch/v1beta1\nkind: CronJob\nmetadata: {name: c, namespace: default}\n",
			[]string{"since version 1.25: use batch/v1 CronJob"}},
		"RemovedType": {"the type does not exist any more", "apiVersion: autoscaling/v2beta2\nkind: " +
			"HorizontalPodAutoscaler\n" +
			"metadata: {name: h, namespace: default}\n", []string{"use autoscaling/v1 or autoscaling/v2"}},
		"ConfigMap": {"all values, not the first only", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, " +
			"namespace: " +
			"default}\ndata: {port: 8080, on: true, text: a, nothing: null}\n", []string{"data[on] is the " +
			"boolean true, and " +
			"must be a string", "data[port] is the number 8080"}},
		"Fields": {"at any depth", workload("        prots: []\n        env: [{name: A, value: 5}]\n      " +
			"hostnetwork: true\n" +
			"  Replicas: 2\n"), []string{"spec.Replicas is no field of this kind: write replicas",
			"spec.template.spec.containers[0].env[0].value is the number 5", "containers[0].prots is no field",
			"spec.template.spec.hostnetwork is no field of this kind: write hostNetwork"}},
		"Selector": {"", strings.Replace(workload(""), "{matchLabels: {app: d}}", "{matchLabels: {app: d, tier: "+
			"1}}", 1),
			[]string{"spec.selector.matchLabels[tier] is the number 1", "requires label tier=1"}},
		"SelectorOfOthers": {"", strings.Replace(workload(""), "{matchLabels: {app: d}}", "{matchLabels: {app: "+
			"e}}", 1),
			[]string{"requires label app=e"}},
		"Service": {"", "apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: default}\nspec: " +
			"{selector: {a: 1}, " +
			"ports: [{port: \"80\", targetPort: http}]}\n", []string{"spec.ports[0].port is the string", "spec.selector[a] is the number 1"}},
		"Quantity": {"", strings.Replace(workload(""), "memory: 64Mi", "memory: 64 MB", 1),
			[]string{"limits[memory] cannot be"}},
		"Namespace": {"one finding for all objects", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, " +
			"namespace: far}\n" +
			"---\napiVersion: v1\nkind: Secret\nmetadata: {name: b, namespace: far}\n", []string{"Namespace " +
			"far: neither the " +
			"module nor each runtime has it, and the module has objects in it: ConfigMap far/a, Secret far/b"}},
		"OwnNamespace": {"", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: " +
			"far}\n---\napiVersion: v1\n" +
			"kind: Namespace\nmetadata: {name: far}\n", nil},
		"NoNamespace": {"", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", []string{"installed in " +
			"namespace default"}},
		"APIService": {"it has no type here", "apiVersion: apiregistration.k8s.io/v1\nkind: " +
			"APIService\nmetadata: {name: a}\n",
			nil},
		"CRDField": {"", strings.Replace(crd, "scope:", "scoped: x\n  scope:", 1), []string{"spec.scoped is no " +
			"field"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects, err := render.Parse([]byte(tc.manifest))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range Objects(objects, "kyma-system") {
				got = append(got, f.String())
			}
			if len(got) != len(tc.want) {
				t.Fatalf("got %q, want %q: %s", got, tc.want, tc.reason)
			}
			for i, part := range tc.want {
				if !strings.Contains(got[i], part) {
					t.Errorf("got %q, want %q: %s", got[i], part, tc.reason)
				}
			}
		})
	}
}
