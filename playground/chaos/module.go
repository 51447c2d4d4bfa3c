package chaos

import (
	"context"
	"fmt"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// The following constants are the modules of a run. steady is enabled in all runtimes all the time. left and right
// contain the same ConfigMap.
const (
	steady = "steady"
	left   = "left"
	right  = "right"
)

// varied are the modules that requests enable, upgrade and disable.
var varied = []string{"alpha", "beta", left, right}

// versions is the number of versions of each module. The version N is N.0.0.
const versions = 6

// manifest is the content of a module. manifest has every kind of object that most modules have, and a ServiceAccount
// that only one version has.
const manifest = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: MODULEs.chaos.example.com}
spec:
  group: chaos.example.com
  scope: Namespaced
  names: {kind: KIND, listKind: KINDList, plural: MODULEs, singular: MODULE}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true, description: of VERSION}}
---
apiVersion: v1
kind: Namespace
metadata: {name: MODULE-system}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: MODULE, namespace: kyma-system}
data: {version: VERSION, text: something}
---
apiVersion: v1
kind: Secret
metadata: {name: MODULE, namespace: MODULE-system}
stringData: {version: VERSION}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: MODULE-VERSION, namespace: MODULE-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: MODULE, namespace: MODULE-system}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: MODULE, namespace: MODULE-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: MODULE}
subjects: [{kind: ServiceAccount, name: MODULE-VERSION, namespace: MODULE-system}]
---
apiVersion: v1
kind: Service
metadata: {name: MODULE, namespace: MODULE-system}
spec: {selector: {app: MODULE}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: MODULE, namespace: MODULE-system}
spec:
  replicas: 1
  selector: {matchLabels: {app: MODULE}}
  template:
    metadata: {labels: {app: MODULE}}
    spec: {containers: [{name: main, image: "registry.example.com/MODULE:VERSION"}]}
`

// shared is the object that both modules, left and right, contain. inherited is an object that the module left
// contains, and that existed in every runtime before.
const (
	shared = `---
apiVersion: v1
kind: ConfigMap
metadata: {name: shared, namespace: kyma-system}
data: {text: shared}
`
	inherited = `---
apiVersion: v1
kind: ConfigMap
metadata: {name: inherited, namespace: default}
data: {text: theirs, more: ours}
`
)

// kindOf returns the kind of a module's custom resource.
func kindOf(module string) string { return strings.ToUpper(module[:1]) + module[1:] }

// newModule returns a version of a module. text is a text in its ConfigMap.
func newModule(name string, v int, text string) landscape.Module {
	content := manifest
	if name == left || name == right {
		content += shared
	}
	if name == left {
		content += inherited
	}
	content = strings.NewReplacer("MODULE", name, "KIND", kindOf(name), "VERSION", semverOfMajor(v), "something",
		text).Replace(content)
	cr := fmt.Sprintf("{apiVersion: chaos.example.com/v1, kind: %s, metadata: {name: %s, namespace: kyma-system}}",
		kindOf(name), name)
	return landscape.Module{Name: name, Version: semverOfMajor(v), Component: ocmComponentName(name),
		Manifest:  []byte(content),
		DefaultCR: []byte(cr)}
}

// publishAllModules publishes all versions of all modules.
func publishAllModules(ctx context.Context, l *landscape.Landscape) error {
	for _, name := range append([]string{steady}, varied...) {
		for v := 1; v <= versions; v++ {
			if err := l.PushAndCreateModuleTemplate(ctx, newModule(name, v, original)); err != nil {
				return err
			}
		}
	}
	return nil
}

// original returns the text in the ConfigMap of a module as it was published.
const original = "something"

func ocmComponentName(module string) string { return "kyma-project.io/module/" + module }

func semverOfMajor(major int) string { return fmt.Sprintf("%d.0.0", major) }
