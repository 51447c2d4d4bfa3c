package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/playground/fleet"
)

// benchChannel is the channel that all runtimes follow.
const benchChannel = "regular"

// versionLabel is on every object of a module.
const versionLabel = "app.kubernetes.io/version"

// minObjects is the minimum number of objects of a module, because each module has a CRD, a service account and a
// Deployment.
const minObjects = 3

// operatorDelay is the time from an available Deployment until the simulated operator of a module reports Ready.
const operatorDelay = 50 * time.Millisecond

// module is a module as its author would publish it, in any number of versions.
type module struct {
	name    string
	objects int
	version string // the version that the channel points at
	back    string // the lower versions to which the next published version declares that going back is safe
}

// newModules returns n modules. The last of the n modules is the extra module, which no Kyma requests at the beginning.
func newModules(n, objects int) []*module {
	all := make([]*module, n)
	for i := range all {
		all[i] = &module{name: fmt.Sprintf("bench-%c%c%c", 'a'+i/676%26, 'a'+i/26%26, 'a'+i%26), objects: objects}
	}
	return all
}

func (m *module) componentName() string  { return "kyma-project.io/module/" + m.name }
func (m *module) apiGroup() string       { return m.name + ".example.com" }
func (m *module) deploymentName() string { return m.name + "-operator" }

// simulatedOperator returns the simulated operator that sets the status of the module's custom resource.
func (m *module) simulatedOperator() fleet.Operator {
	return fleet.Operator{
		Kind: schema.GroupKind{Group: m.apiGroup(), Kind: "Thing"}, Namespace: v1beta2.RuntimeNamespace,
		Deployment: m.deploymentName(), After: operatorDelay,
	}
}

// customResourceYAML returns the custom resource that activates the module. The custom resource is not one of the
// module's objects.
func (m *module) customResourceYAML() []byte {
	return fmt.Appendf(nil, "apiVersion: %s/v1\nkind: Thing\nmetadata: {name: default, namespace: %s}\nspec: "+
		"{size: 1}\n", m.apiGroup(), v1beta2.RuntimeNamespace)
}

// manifestYAML returns the objects of a version as YAML. manifestYAML always contains the CRD, the service account and
// the Deployment. If the module has more objects, the manifest also contains up to seven objects of other kinds, such
// as a ClusterRole. All further objects are ConfigMaps.
func (m *module) manifestYAML(version string) []byte {
	parts := []string{definitionPart, accountPart, deploymentPart, clusterRolePart, clusterRoleBindingPart, servicePart,
		rolePart, roleBindingPart, policyPart, budgetPart}
	parts = parts[:min(len(parts), m.objects)]
	if len(parts) == m.objects && len(parts) > minObjects {
		parts[len(parts)-1] = configPart // every module has at least one ConfigMap
	}
	for i := len(parts); i < m.objects; i++ {
		parts = append(parts, configPart)
	}
	var b strings.Builder
	for i, part := range parts {
		b.WriteString("---\n" + strings.NewReplacer("NAMESPACE", v1beta2.RuntimeNamespace, "NUMBER",
			fmt.Sprint(i), "GROUP", m.apiGroup(),
			"NAME", m.deploymentName(), "VERSION", version).Replace(part) + "\n")
	}
	return []byte(b.String())
}

const definitionPart = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.GROUP, labels: {app.kubernetes.io/version: VERSION}}
spec:
  group: GROUP
  scope: Namespaced
  names: {kind: Thing, listKind: ThingList, plural: things, singular: thing}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          apiVersion: {type: string}
          kind: {type: string}
          metadata: {type: object}
          spec: {type: object, properties: {size: {type: integer, minimum: 1}, names: {type: array, items: {type: string}}}}
          status: {type: object, properties: {state: {type: string, enum: [Ready, Processing, Warning, Error, Deleting]}}}`

const accountPart = `apiVersion: v1
kind: ServiceAccount
metadata: {name: NAME, namespace: NAMESPACE, labels: {app.kubernetes.io/version: VERSION}}`

const clusterRolePart = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAME, labels: {app.kubernetes.io/version: VERSION}}
rules:
- {apiGroups: [""], resources: [configmaps, services, events], verbs: [get, list, watch, create, update, patch, delete]}
- {apiGroups: [GROUP], resources: [things, things/status], verbs: [get, list, watch, update, patch]}
- {apiGroups: [apps], resources: [deployments, statefulsets], verbs: [get, list, watch, create, update, patch, delete]}`

const clusterRoleBindingPart = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAME, labels: {app.kubernetes.io/version: VERSION}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAME}
subjects: [{kind: ServiceAccount, name: NAME, namespace: NAMESPACE}]`

const rolePart = `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: NAME, namespace: NAMESPACE, labels: {app.kubernetes.io/version: VERSION}}
rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, list, watch, create, update, patch, delete]}]`

const roleBindingPart = `apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: NAME, namespace: NAMESPACE, labels: {app.kubernetes.io/version: VERSION}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: NAME}
subjects: [{kind: ServiceAccount, name: NAME, namespace: NAMESPACE}]`

const servicePart = `apiVersion: v1
kind: Service
metadata: {name: NAME, namespace: NAMESPACE, labels: {app.kubernetes.io/version: VERSION}}
spec: {selector: {app: NAME}, ports: [{name: http, port: 80, targetPort: 8080, protocol: TCP}]}`

const policyPart = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: NAME, namespace: NAMESPACE, labels: {app.kubernetes.io/version: VERSION}}
spec: {podSelector: {matchLabels: {app: NAME}}, policyTypes: [Ingress], ingress: [{ports: [{port: 8080, protocol: TCP}]}]}`

const budgetPart = `apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: NAME, namespace: NAMESPACE, labels: {app.kubernetes.io/version: VERSION}}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: NAME}}}`

var configPart = `apiVersion: v1
kind: ConfigMap
metadata: {name: NAME-NUMBER, namespace: NAMESPACE, labels: {app.kubernetes.io/version: VERSION}}
data:
  config.yaml: |
` + strings.Repeat("    key: value\n", 100)

const deploymentPart = `apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: NAMESPACE, labels: {app: NAME, app.kubernetes.io/version: VERSION}}
spec:
  replicas: 1
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      serviceAccountName: NAME
      containers:
      - name: manager
        image: example.com/module/NAME:VERSION
        args: [--leader-elect, --metrics-bind-address=:8080]
        env: [{name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}]
        ports: [{name: http, containerPort: 8080, protocol: TCP}]
        resources: {limits: {cpu: 500m, memory: 256Mi}, requests: {cpu: 10m, memory: 64Mi}}
        livenessProbe: {httpGet: {path: /healthz, port: 8081}, initialDelaySeconds: 15, periodSeconds: 20}
        readinessProbe: {httpGet: {path: /readyz, port: 8081}, initialDelaySeconds: 5, periodSeconds: 10}
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`

// publish pushes a version to the registry and creates its ModuleTemplate.
func (m *module) publish(ctx context.Context, r *registry.Registry, c client.Client, version string) error {
	if _, err := r.Push(ctx, ocm.Archive{
		Name: m.componentName(), Version: version, RawManifest: m.manifestYAML(version),
		ManifestFile: m.name + ".yaml", DefaultCR: m.customResourceYAML(),
	}); err != nil {
		return fmt.Errorf("publishing %s %s: %w", m.name, version, err)
	}
	t := &v1beta2.ModuleTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Name: v1beta2.ModuleTemplateName(m.name, version), Namespace: v1beta2.ControlPlaneNamespace,
			Labels: map[string]string{v1beta2.LabelModuleName: m.name},
		},
		Spec: v1beta2.ModuleTemplateSpec{
			ModuleName: m.name, Version: version, Descriptor: runtime.RawExtension{Raw: []byte("{}")},
			Data: &unstructured.Unstructured{},
			Manager: &v1beta2.Manager{Group: "apps", Version: "v1", Kind: "Deployment",
				Namespace: v1beta2.RuntimeNamespace, Name: m.deploymentName()},
		},
	}
	if m.back != "" {
		t.Spec.Upgrade = &v1beta2.ModuleUpgrade{Back: m.back}
	}
	if err := yaml.Unmarshal(m.customResourceYAML(), &t.Spec.Data.Object); err != nil {
		return fmt.Errorf("reading the custom resource of %s: %w", m.name, err)
	}
	if err := c.Create(ctx, t); err != nil {
		return fmt.Errorf("creating ModuleTemplate %s: %w", t.Name, err)
	}
	return nil
}

// setChannel makes the channel point to a version.
func (m *module) setChannel(ctx context.Context, c client.Client, version string) error {
	r := &v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Name: m.name,
		Namespace: v1beta2.ControlPlaneNamespace}}
	_, err := controllerutil.CreateOrUpdate(ctx, c, r, func() error {
		r.Spec.ModuleName, r.Spec.OCMComponentName = m.name, m.componentName()
		r.Spec.Channels = []v1beta2.ChannelVersion{{Channel: benchChannel, Version: version}}
		return nil
	})
	if err != nil {
		return fmt.Errorf("assigning the channel of %s: %w", m.name, err)
	}
	m.version = version
	return nil
}
