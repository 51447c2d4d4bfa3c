package main

import (
	"fmt"
	"strings"
)

// objects is the number of objects of the module.
const objects = 50

// moduleYAML returns the module as YAML: the objects of an operator of medium size. name is part of the names of
// cluster-scoped objects, so that several modules can exist at the same time. namespace is the namespace of all other
// objects. The parameters name and namespace may be expressions of a Helm template. The objects are in the order in
// which they should be applied, such as CRDs before custom resources. In a mixed order, the loop of PATCH requests
// would take a third longer.
func moduleYAML(namespace, name string) string {
	var b strings.Builder
	add := func(format string, args ...any) {
		b.WriteString("---\n" + strings.NewReplacer("NAMESPACE", namespace, "NAME", name).Replace(
			fmt.Sprintf(format, args...)) + "\n")
	}
	each := func(n int, format string) {
		for i := range n {
			add(format, i)
		}
	}
	each(2, definition)
	each(4, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: account-%d, namespace: NAMESPACE}")
	each(4, clusterRole)
	each(4, role)
	each(4, "apiVersion: v1\nkind: Secret\nmetadata: {name: secret-%d, namespace: NAMESPACE}\nstringData: {token: "+
		strings.Repeat("s", 200)+"}")
	each(8, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config-%d, namespace: NAMESPACE}\ndata:\n  "+
		"config.yaml: |\n"+strings.Repeat("    key: value\n", 100))
	each(5, "apiVersion: v1\nkind: Service\nmetadata: {name: service-%[1]d, namespace: NAMESPACE}\nspec: {selector: "+
		"{app: part-%[1]d}, ports: [{name: http, port: 80, targetPort: 8080, protocol: TCP}]}")
	each(3, "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: policy-%[1]d, namespace: "+
		"NAMESPACE}\nspec: {podSelector: {matchLabels: {app: part-%[1]d}}, policyTypes: [Ingress], ingress: [{ports: "+
		"[{port: 8080, protocol: TCP}]}]}")
	each(4, clusterRoleBinding)
	each(4, roleBinding)
	each(4, deployment)
	each(3, "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: budget-%[1]d, namespace: "+
		"NAMESPACE}\nspec: {maxUnavailable: 1, selector: {matchLabels: {app: part-%[1]d}}}")
	add(webhook)
	return b.String()
}

const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things-%[1]d.NAME.example.com}
spec:
  group: NAME.example.com
  scope: Namespaced
  names: {kind: Thing%[1]d, listKind: Thing%[1]dList, plural: things-%[1]d, singular: thing-%[1]d}
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

const clusterRole = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAME-%d}
rules:
- {apiGroups: [""], resources: [configmaps, secrets, services, events], verbs: [get, list, watch, create, update, patch, delete]}
- {apiGroups: [apps], resources: [deployments, statefulsets], verbs: [get, list, watch, create, update, patch, delete]}`

const clusterRoleBinding = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAME-%[1]d}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAME-%[1]d}
subjects: [{kind: ServiceAccount, name: account-%[1]d, namespace: NAMESPACE}]`

const role = `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: role-%d, namespace: NAMESPACE}
rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, list, watch, create, update, patch, delete]}]`

const roleBinding = `apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: role-%[1]d, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: role-%[1]d}
subjects: [{kind: ServiceAccount, name: account-%[1]d, namespace: NAMESPACE}]`

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: part-%[1]d, namespace: NAMESPACE, labels: {app: part-%[1]d}}
spec:
  replicas: 0
  selector: {matchLabels: {app: part-%[1]d}}
  template:
    metadata: {labels: {app: part-%[1]d}}
    spec:
      serviceAccountName: account-%[1]d
      containers:
      - name: manager
        image: example.com/module/part:1.0.0
        args: [--leader-elect, --metrics-bind-address=:8080]
        env: [{name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}]
        ports: [{name: http, containerPort: 8080, protocol: TCP}]
        resources: {limits: {cpu: 500m, memory: 256Mi}, requests: {cpu: 10m, memory: 64Mi}}
        livenessProbe: {httpGet: {path: /healthz, port: 8081}, initialDelaySeconds: 15, periodSeconds: 20}
        readinessProbe: {httpGet: {path: /readyz, port: 8081}, initialDelaySeconds: 5, periodSeconds: 10}
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        volumeMounts: [{name: config, mountPath: /etc/config, readOnly: true}]
      volumes: [{name: config, configMap: {name: config-%[1]d}}]`

const webhook = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NAME}
webhooks:
- name: things.NAME.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  clientConfig: {service: {name: service-0, namespace: NAMESPACE, path: /validate}}
  rules: [{apiGroups: [NAME.example.com], apiVersions: [v1], resources: ["*"], operations: [CREATE, UPDATE]}]`
