package fleet_test

const ns = "/api/v1/namespaces/conform"

const widgetCRD = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
"names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList","shortNames":["wd"],"categories":["all"]},"versions":[
{"name":"v1","served":true,"storage":true,"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
"spec":{"type":"object","required":["size"],"properties":{"size":{"type":"integer","minimum":1},"color":{"type":"string","default":"red"},"replicas":{"type":"integer"},
"parts":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],"items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"value":{"type":"string"}}}}},
"x-kubernetes-validations":[{"rule":"self.size < 100","message":"too large"}]},
"status":{"type":"object","properties":{"state":{"type":"string"},"replicas":{"type":"integer"}}}}}}},
{"name":"v1alpha1","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

const gadgetCRD = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gadgets.example.com"},"spec":{"group":"example.com","scope":"Cluster",
"names":{"plural":"gadgets","singular":"gadget","kind":"Gadget","listKind":"GadgetList"},"versions":[
{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

const web = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","labels":{"app":"web"}},"spec":{"replicas":1,"selector":{"matchLabels":{"app":"web"}},
"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"main","image":"example.com/web:1","ports":[{"containerPort":80}]}]}}}}`

const deployments = "/apis/apps/v1/namespaces/work/deployments"
const widgets = "/apis/example.com/v1/namespaces/conform/widgets"
const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// script lists the steps in order. Later steps depend on earlier steps.
var script = []step{
	{name: "healthz", do: "GET /healthz"},
	{name: "readyz", do: "GET /readyz"},
	{name: "no such path", do: "GET /nothing"},
	{name: "no such group", do: "GET /apis/nothing.example.com"},
	{name: "no such version", do: "GET /apis/apps/v9"},
	{name: "no such kind", do: "GET /api/v1/nothings"},
	{name: "group", do: "GET /apis/apps"},
	{name: "resources of a group", do: "GET /apis/apps/v1"},
	{name: "resources of rbac", do: "GET /apis/rbac.authorization.k8s.io/v1"},

	{
		name: "create namespace",
		do:   "POST /api/v1/namespaces",
		send: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"conform","labels":{"a":"b"}}}`,
		keep: "ns",
	},
	{
		name: "create it again",
		do:   "POST /api/v1/namespaces",
		send: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"conform"}}`,
	},
	{name: "get namespace", do: "GET " + ns},
	{name: "get missing namespace", do: "GET /api/v1/namespaces/missing"},
	{name: "default namespace stays", do: "DELETE /api/v1/namespaces/default"},

	{
		name: "create configmap",
		do:   "POST " + ns + "/configmaps",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"app":"x","n":"1"}},"data":{"k":"v"}}`,
		keep: "a",
	},
	{
		name: "create in missing namespace",
		do:   "POST /api/v1/namespaces/missing/configmaps",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`,
	},
	{
		name: "apply in missing namespace",
		do:   "PATCH /api/v1/namespaces/missing/configmaps/a?fieldManager=m",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`,
	},
	{
		name: "create without name",
		do:   "POST " + ns + "/configmaps",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}`,
	},
	{
		name: "create with bad name",
		do:   "POST " + ns + "/configmaps",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"A_B"}}`,
	},
	{
		name: "create with bad label",
		do:   "POST " + ns + "/configmaps",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bad","labels":{"a":"b c"}}}`,
	},
	{
		name: "create with other namespace",
		do:   "POST " + ns + "/configmaps",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bad","namespace":"default"}}`,
	},
	{
		name: "create other kind",
		do:   "POST " + ns + "/configmaps",
		send: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"bad"}}`,
	},
	{
		name: "create with version",
		do:   "POST " + ns + "/configmaps",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bad","resourceVersion":"5"}}`,
	},
	{name: "create broken JSON", do: "POST " + ns + "/configmaps", send: `{"apiVersion":"v1","kind":`},
	{
		name: "create with unknown field, strictly",
		do:   "POST " + ns + "/configmaps?fieldValidation=Strict",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bad"},"dota":{}}`,
	},
	{
		name: "create with unknown field, warned",
		do:   "POST " + ns + "/configmaps?fieldValidation=Warn&dryRun=All",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bad"},"dota":{}}`,
	},
	{
		name: "create dry",
		do:   "POST " + ns + "/configmaps?dryRun=All",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"dry"}}`,
	},
	{name: "nothing was created", do: "GET " + ns + "/configmaps/dry"},
	{
		name: "generate a name",
		do:   "POST " + ns + "/configmaps",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"gen-","labels":{"gen":"yes"}}}`,
	},
	{
		name: "create as YAML",
		do:   "POST " + ns + "/configmaps",
		kind: "application/yaml",
		send: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yaml, labels: {app: x, n: '2'}}\ndata: {k: w}\n",
	},
	{name: "unsupported media type", do: "PATCH " + ns + "/configmaps/a", kind: "text/plain", send: "x"},
	{name: "get", do: "GET " + ns + "/configmaps/a"},
	{name: "get metadata", do: "GET " + ns + "/configmaps/a", accept: "metadata"},
	{name: "get missing", do: "GET " + ns + "/configmaps/missing"},
	{name: "get missing metadata", do: "GET " + ns + "/configmaps/missing", accept: "metadata"},

	{
		name: "update",
		do:   "PUT " + ns + "/configmaps/a",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"{version a}"},"data":{"k":"v2"}}`,
		keep: "a2",
	},
	{
		name: "update with old version",
		do:   "PUT " + ns + "/configmaps/a",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"{version a}"},"data":{"k":"v3"}}`,
	},
	{
		name: "update with other uid",
		do:   "PUT " + ns + "/configmaps/a",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"{uid ns}"},"data":{"k":"v3"}}`,
	},
	{
		name: "update with other name",
		do:   "PUT " + ns + "/configmaps/a",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`,
	},
	{
		name: "update missing",
		do:   "PUT " + ns + "/configmaps/missing",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"missing"}}`,
	},
	{
		name: "update with bad version",
		do:   "PUT " + ns + "/configmaps/a",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"x"}}`,
	},
	{
		name: "update dry",
		do:   "PUT " + ns + "/configmaps/a?dryRun=All",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"dry"}}`,
	},
	{
		name: "update makes no change",
		do:   "PUT " + ns + "/configmaps/a",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v2"}}`,
	},

	{
		name: "merge patch",
		do:   "PATCH " + ns + "/configmaps/a?fieldManager=m",
		kind: "merge",
		send: `{"data":{"x":"y","k":null}}`,
	},
	{name: "merge patch of missing", do: "PATCH " + ns + "/configmaps/missing", kind: "merge", send: `{"data":{}}`},
	{name: "merge patch broken", do: "PATCH " + ns + "/configmaps/a", kind: "merge", send: `{`},
	{
		name: "merge patch with old version",
		do:   "PATCH " + ns + "/configmaps/a",
		kind: "merge",
		send: `{"metadata":{"resourceVersion":"{version a}"},"data":{"x":"z"}}`,
	},
	{
		name: "json patch",
		do:   "PATCH " + ns + "/configmaps/a",
		kind: "json-patch",
		send: `[{"op":"test","path":"/data/x","value":"y"},{"op":"add","path":"/data/n","value":"1"}]`,
	},
	{
		name: "json patch whose test fails",
		do:   "PATCH " + ns + "/configmaps/a",
		kind: "json-patch",
		send: `[{"op":"test","path":"/data/x","value":"other"}]`,
	},
	{
		name: "json patch of missing path",
		do:   "PATCH " + ns + "/configmaps/a",
		kind: "json-patch",
		send: `[{"op":"remove","path":"/data/none"}]`,
	},
	{
		name: "json patch with test of uid",
		do:   "PATCH " + ns + "/configmaps/a",
		kind: "json-patch",
		send: `[{"op":"test","path":"/metadata/uid","value":"{uid a}"},{"op":"add","path":"/data/n","value":"2"}]`,
	},
	{
		name: "strategic patch",
		do:   "PATCH " + ns + "/configmaps/a",
		kind: "strategic",
		send: `{"metadata":{"labels":{"s":"t"}}}`,
	},
	{name: "bad value of a patch", do: "PATCH " + ns + "/configmaps/a", kind: "merge", send: `{"data":{"x":1}}`},

	{
		name: "apply creates",
		do:   "PATCH " + ns + "/configmaps/b?fieldManager=m",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","labels":{"app":"y"}},"data":{"k":"v"}}`,
		keep: "b",
	},
	{
		name: "apply again",
		do:   "PATCH " + ns + "/configmaps/b?fieldManager=m",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","labels":{"app":"y"}},"data":{"k":"v"}}`,
	},
	{
		name:   "apply as metadata",
		do:     "PATCH " + ns + "/configmaps/b?fieldManager=m",
		kind:   "apply",
		accept: "metadata",
		send:   `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","labels":{"app":"y"}},"data":{"k":"v"}}`,
	},
	{
		name: "apply conflicts",
		do:   "PATCH " + ns + "/configmaps/b?fieldManager=other",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"},"data":{"k":"w"}}`,
	},
	{
		name: "apply with force",
		do:   "PATCH " + ns + "/configmaps/b?fieldManager=other&force=true",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"},"data":{"k":"w"}}`,
	},
	{
		name: "apply drops a field",
		do:   "PATCH " + ns + "/configmaps/b?fieldManager=other",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`,
	},
	{
		name: "apply without manager",
		do:   "PATCH " + ns + "/configmaps/b",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`,
	},
	{
		name: "apply dry",
		do:   "PATCH " + ns + "/configmaps/c?fieldManager=m&dryRun=All",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`,
	},
	{
		name: "apply with version creates only",
		do:   "PATCH " + ns + "/configmaps/b?fieldManager=m",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","resourceVersion":"1"}}`,
	},
	{
		name: "apply with version of nothing",
		do:   "PATCH " + ns + "/configmaps/onlynew?fieldManager=m",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"onlynew","resourceVersion":"1"}}`,
	},
	{
		name: "apply with right uid",
		do:   "PATCH " + ns + "/configmaps/b?fieldManager=m",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","uid":"{uid b}"},"data":{"u":"1"}}`,
	},
	{
		name: "apply with other uid",
		do:   "PATCH " + ns + "/configmaps/b?fieldManager=m",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","uid":"{uid a}"},"data":{"u":"2"}}`,
	},
	{
		name: "apply with managedFields",
		do:   "PATCH " + ns + "/configmaps/b?fieldManager=m",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","managedFields":[{"manager":"m"}]}}`,
	},
	{
		name: "apply unknown field",
		do:   "PATCH " + ns + "/configmaps/b?fieldManager=m",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"},"dota":{}}`,
	},
	{
		name: "apply wrong kind",
		do:   "PATCH " + ns + "/configmaps/b?fieldManager=m",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"b"}}`,
	},
	{
		name: "apply YAML",
		do:   "PATCH " + ns + "/configmaps/y?fieldManager=m",
		kind: "apply",
		send: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y\ndata:\n  k: v\n",
	},
	{
		name: "apply with manager's labels",
		do:   "PATCH " + ns + "/configmaps/owned?fieldManager=m",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"owned","labels":{"app.kubernetes.io/component":"runtime-1-mod"},"annotations":{"deprecated-operator.kyma-project.io/owned-by":"kcp-system/runtime-1-mod"}},"data":{"k":"runtime-1-mod"}}`,
	},
	{
		name: "apply with other labels",
		do:   "PATCH " + ns + "/configmaps/owned?fieldManager=n",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"owned","labels":{"app.kubernetes.io/component":"runtime-1-two"}}}`,
	},
	{
		name: "select by such a label",
		do:   "GET " + ns + "/configmaps?labelSelector=app.kubernetes.io/component%3Druntime-1-mod",
	},
	{
		name: "apply bad label",
		do:   "PATCH " + ns + "/configmaps/owned?fieldManager=m",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"owned","labels":{"app.kubernetes.io/other":"a b"}}}`,
	},

	{name: "list", do: "GET " + ns + "/configmaps", raw: true, why: "generated names are in another order"},
	{name: "list by label", do: "GET " + ns + "/configmaps?labelSelector=app%3Dx"},
	{name: "list by set", do: "GET " + ns + "/configmaps?labelSelector=app+in+(x,y),n!%3D2"},
	{name: "list by name", do: "GET " + ns + "/configmaps?fieldSelector=metadata.name%3Db"},
	{name: "list by bad field", do: "GET " + ns + "/configmaps?fieldSelector=data.k%3Db"},
	{name: "list by bad label", do: "GET " + ns + "/configmaps?labelSelector=a%3D%3D%3Db"},
	{name: "list metadata", do: "GET " + ns + "/configmaps?labelSelector=app%3Dx", accept: "metadata-list"},
	{name: "list page", do: "GET " + ns + "/configmaps?labelSelector=app&limit=1"},
	{name: "list page of all", do: "GET " + ns + "/configmaps?limit=1"},
	{name: "list with bad continue", do: "GET " + ns + "/configmaps?limit=1&continue=xx"},
	{name: "list in all namespaces", do: "GET /api/v1/configmaps?fieldSelector=metadata.name%3Da"},
	{name: "list in missing namespace", do: "GET /api/v1/namespaces/missing/configmaps"},
	{
		name: "watch since",
		do: "GET " + ns + "/configmaps?watch=true&timeoutSeconds=1&resourceVersion={version " +
			"a}&fieldSelector=metadata.name%3Da",
	},
	{
		name: "watch metadata since",
		do: "GET " + ns + "/configmaps?watch=1&timeoutSeconds=1&resourceVersion={version " +
			"a}&fieldSelector=metadata.name%3Db",
		accept: "metadata",
	},
	{
		name: "watch by label with transitions",
		do:   "GET " + ns + "/configmaps?watch=1&timeoutSeconds=1&resourceVersion={version a}&labelSelector=n",
	},
	{
		name: "watch what is there",
		do:   "GET " + ns + "/configmaps?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da",
	},
	{
		name: "watch with initial events",
		do:   "GET " + ns + "/configmaps?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&fieldSelector=metadata.name%3Da",
	},
	{
		name: "watch too old",
		do:   "GET /api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion=1",
		raw:  true,
		why:  "an API server whose etcd was never compacted knows everything",
	},

	{
		name: "delete with other uid",
		do:   "DELETE " + ns + "/configmaps/a",
		send: `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"{uid b}"}}`,
	},
	{
		name: "delete with old version",
		do:   "DELETE " + ns + "/configmaps/a",
		send: `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"{version a}"}}`,
	},
	{name: "delete dry", do: "DELETE " + ns + "/configmaps/a?dryRun=All"},
	{
		name:   "delete as metadata",
		do:     "DELETE " + ns + "/configmaps/yaml",
		accept: "metadata",
		send:   `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"}`,
	},
	{
		name: "delete with right uid",
		do:   "DELETE " + ns + "/configmaps/a",
		send: `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"{uid a}"}}`,
	},
	{name: "delete missing", do: "DELETE " + ns + "/configmaps/a"},
	{name: "delete broken options", do: "DELETE " + ns + "/configmaps/b", send: `{"propagationPolicy":"Sideways"}`},
	{
		name: "hold by finalizer",
		do:   "PATCH " + ns + "/configmaps/b",
		kind: "merge",
		send: `{"metadata":{"finalizers":["example.com/hold"]}}`,
	},
	{name: "delete what is held", do: "DELETE " + ns + "/configmaps/b"},
	{name: "it is being deleted", do: "GET " + ns + "/configmaps/b"},
	{
		name: "no finalizer can be added",
		do:   "PATCH " + ns + "/configmaps/b",
		kind: "merge",
		send: `{"metadata":{"finalizers":["example.com/hold","example.com/more"]}}`,
	},
	{name: "delete again", do: "DELETE " + ns + "/configmaps/b"},
	{name: "let go", do: "PATCH " + ns + "/configmaps/b", kind: "merge", send: `{"metadata":{"finalizers":null}}`},
	{name: "it is gone", do: "GET " + ns + "/configmaps/b"},
	{name: "delete collection", do: "DELETE " + ns + "/configmaps?labelSelector=gen%3Dyes"},
	{
		name: "watch the end",
		do: "GET " + ns + "/configmaps?watch=1&timeoutSeconds=1&resourceVersion={version " +
			"b}&fieldSelector=metadata.name%3Db",
	},

	{
		name: "secret",
		do:   "POST " + ns + "/secrets",
		send: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"a":"b"}}`,
	},
	{name: "secrets by type", do: "GET " + ns + "/secrets?fieldSelector=type%3DOpaque"},
	{name: "secret type is immutable", do: "PATCH " + ns + "/secrets/s", kind: "merge", send: `{"type":"other"}`},
	{
		name: "service account",
		do:   "PATCH " + ns + "/serviceaccounts/robot?fieldManager=m",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"robot"}}`,
	},
	{
		name: "service",
		do:   "PATCH " + ns + "/services/web?fieldManager=m",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":{"selector":{"app":"web"},"ports":[{"port":80}]}}`,
	},
	{
		name: "service again",
		do:   "PATCH " + ns + "/services/web?fieldManager=m",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":{"selector":{"app":"web"},"ports":[{"port":80}]}}`,
	},
	{
		name: "service keeps its address",
		do:   "PATCH " + ns + "/services/web",
		kind: "merge",
		send: `{"spec":{"clusterIP":"10.96.200.200"}}`,
		raw:  true,
		why:  "the message has the address",
	},
	{name: "delete service", do: "DELETE " + ns + "/services/web"},
	{
		name: "claim",
		do:   "POST " + ns + "/persistentvolumeclaims",
		send: `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`,
	},
	{
		name: "event",
		do:   "POST " + ns + "/events",
		send: `{"apiVersion":"v1","kind":"Event","metadata":{"name":"e1"},"involvedObject":{"kind":"ConfigMap","namespace":"conform","name":"a"},"reason":"Test","message":"hello","type":"Normal"}`,
	},
	{name: "event in the other group", do: "GET /apis/events.k8s.io/v1/namespaces/conform/events/e1"},
	{name: "events by field", do: "GET " + ns + "/events?fieldSelector=involvedObject.name%3Da"},

	{
		name: "namespace of workloads",
		do:   "POST /api/v1/namespaces",
		send: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"work"}}`,
	},
	{name: "deployment", do: "PATCH " + deployments + "/web?fieldManager=m", kind: "apply", send: web, keep: "web"},
	{name: "deployment again", do: "PATCH " + deployments + "/web?fieldManager=m", kind: "apply", send: web},
	{name: "deployment becomes available", do: "GET " + deployments + "/web", until: `"availableReplicas":1`},
	{
		name: "scale it",
		do:   "PATCH " + deployments + "/web?fieldManager=other",
		kind: "apply",
		send: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":2}}`,
	},
	{
		name: "strategic merge of containers",
		do:   "PATCH " + deployments + "/web",
		kind: "strategic",
		send: `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"example.com/web:2"}]}}}}`,
	},
	{
		name: "selector is immutable",
		do:   "PATCH " + deployments + "/web",
		kind: "merge",
		send: `{"spec":{"selector":{"matchLabels":{"app":"other"}}}}`,
	},
	{
		name: "deployment that is invalid",
		do:   "POST " + deployments,
		send: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"bad"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"c"}},"spec":{"containers":[]}}}}`,
	},
	{
		name: "scale subresource",
		do:   "GET " + deployments + "/web/scale",
		raw:  true,
		why:  "its status is as fast as the controller",
	},
	{
		name: "set scale",
		do:   "PATCH " + deployments + "/web/scale",
		kind: "merge",
		send: `{"spec":{"replicas":1}}`,
		raw:  true,
		why:  "as before",
	},
	{
		name: "stateful set",
		do:   "POST /apis/apps/v1/namespaces/work/statefulsets",
		send: `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"db"},"spec":{"serviceName":"db","selector":{"matchLabels":{"a":"db"}},"template":{"metadata":{"labels":{"a":"db"}},"spec":{"containers":[{"name":"c","image":"example.com/db:1"}]}}}}`,
	},
	{
		name:  "stateful set is ready",
		do:    "GET /apis/apps/v1/namespaces/work/statefulsets/db",
		until: `"readyReplicas":1`,
		raw:   true,
		why:   "revisions are hashes",
	},
	{
		name: "daemon set",
		do:   "POST /apis/apps/v1/namespaces/work/daemonsets",
		send: `{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"ds"},"spec":{"selector":{"matchLabels":{"a":"ds"}},"template":{"metadata":{"labels":{"a":"ds"}},"spec":{"containers":[{"name":"c","image":"example.com/ds:1"}]}}}}`,
	},
	{
		name: "job",
		do:   "POST /apis/batch/v1/namespaces/conform/jobs",
		send: `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j"},"spec":{"suspend":true,"manualSelector":true,"selector":{"matchLabels":{"a":"j"}},"template":{"metadata":{"labels":{"a":"j"}},"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"example.com/j:1"}]}}}}`,
	},
	{
		name: "cron job",
		do:   "POST /apis/batch/v1/namespaces/conform/cronjobs",
		send: `{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"cj"},"spec":{"schedule":"0 0 1 1 *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"example.com/j:1"}]}}}}}}`,
	},
	{
		name: "budget",
		do:   "POST /apis/policy/v1/namespaces/conform/poddisruptionbudgets",
		send: `{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"p"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"app":"none"}}}}`,
	},
	{
		name: "autoscaler",
		do:   "POST /apis/autoscaling/v2/namespaces/conform/horizontalpodautoscalers",
		send: `{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"h"},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"none"}}}`,
	},
	{
		name: "autoscaler in the other version",
		do:   "GET /apis/autoscaling/v1/namespaces/conform/horizontalpodautoscalers/h",
	},
	{
		name: "apply autoscaler in the other version",
		do:   "PATCH /apis/autoscaling/v1/namespaces/conform/horizontalpodautoscalers/h?fieldManager=m",
		kind: "apply",
		send: `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"h"},"spec":{"minReplicas":2}}`,
	},
	{
		name: "network policy",
		do:   "POST /apis/networking.k8s.io/v1/namespaces/conform/networkpolicies",
		send: `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"np"},"spec":{"podSelector":{}}}`,
	},
	{
		name: "ingress",
		do:   "POST /apis/networking.k8s.io/v1/namespaces/conform/ingresses",
		send: `{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"i"},"spec":{"defaultBackend":{"service":{"name":"web","port":{"number":80}}}}}`,
	},
	{
		name: "role",
		do:   "POST /apis/rbac.authorization.k8s.io/v1/namespaces/conform/roles",
		send: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"r"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`,
	},
	{
		name: "role binding",
		do:   "POST /apis/rbac.authorization.k8s.io/v1/namespaces/conform/rolebindings",
		send: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"rb"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"},"subjects":[{"kind":"ServiceAccount","name":"robot","namespace":"conform"}]}`,
	},
	{
		name: "role reference is immutable",
		do:   "PATCH /apis/rbac.authorization.k8s.io/v1/namespaces/conform/rolebindings/rb",
		kind: "merge",
		send: `{"roleRef":{"name":"other"}}`,
	},
	{
		name: "cluster role",
		do:   "PATCH /apis/rbac.authorization.k8s.io/v1/clusterroles/cr?fieldManager=m",
		kind: "apply",
		send: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"cr"},"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`,
	},
	{
		name: "priority class",
		do:   "POST /apis/scheduling.k8s.io/v1/priorityclasses",
		send: `{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{"name":"pc"},"value":1000}`,
	},
	{
		name: "lease",
		do:   "POST /apis/coordination.k8s.io/v1/namespaces/conform/leases",
		send: `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l"},"spec":{"holderIdentity":"me","leaseDurationSeconds":15}}`,
	},
	{
		name: "webhook",
		do:   "PATCH /apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/w?fieldManager=m",
		kind: "apply",
		send: `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"w"},"webhooks":[{"name":"a.example.com","admissionReviewVersions":["v1"],"sideEffects":"None","failurePolicy":"Ignore","clientConfig":{"url":"https://127.0.0.1:1/"},"rules":[{"apiGroups":["nobody.example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["things"]}]}]}`,
	},
	{
		name: "api service",
		do:   "POST /apis/apiregistration.k8s.io/v1/apiservices",
		send: `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.made.example.com"},"spec":{"group":"made.example.com","version":"v1","groupPriorityMinimum":1000,"versionPriority":10,"service":{"name":"none","namespace":"conform"},"insecureSkipTLSVerify":true}}`,
	},
	{name: "delete api service", do: "DELETE /apis/apiregistration.k8s.io/v1/apiservices/v1.made.example.com"},

	{
		name: "definition",
		do:   "PATCH " + crds + "/widgets.example.com?fieldManager=m",
		kind: "apply",
		send: widgetCRD,
		keep: "crd",
	},
	{
		name:  "definition is established",
		do:    "GET " + crds + "/widgets.example.com",
		until: `"Established","status":"True"`,
		raw:   true,
		why:   "its version is, below",
	},
	{
		name: "definition again",
		do:   "PATCH " + crds + "/widgets.example.com?fieldManager=m",
		kind: "apply",
		send: widgetCRD,
	},
	{name: "its group", do: "GET /apis/example.com", until: `"v1alpha1"`},
	{name: "its resources", do: "GET /apis/example.com/v1", until: "widgets/status"},
	{
		name: "definition with wrong name",
		do:   "POST " + crds,
		send: `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"wrong.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`,
	},
	{
		name: "definition cannot drop a stored version",
		do:   "PATCH " + crds + "/widgets.example.com",
		kind: "json-patch",
		send: `[{"op":"replace","path":"/spec/versions/0/name","value":"v2"}]`,
	},
	{
		name: "definition's scope is immutable",
		do:   "PATCH " + crds + "/widgets.example.com",
		kind: "merge",
		send: `{"spec":{"scope":"Cluster"}}`,
	},
	{
		name: "second definition",
		do:   "POST " + crds,
		send: gadgetCRD,
		raw:  true,
		why:  "controllers are not equally fast",
	},
	{name: "second definition is served", do: "GET /apis/example.com/v1", until: "gadgets"},

	{
		name:  "widget",
		do:    "PATCH " + widgets + "/w1?fieldManager=m",
		kind:  "apply",
		until: `"Widget"`,
		send:  `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w1","labels":{"a":"b"}},"spec":{"size":1,"parts":[{"name":"x","value":"1"}]}}`,
		keep:  "w1",
	},
	{
		name: "widget again",
		do:   "PATCH " + widgets + "/w1?fieldManager=m",
		kind: "apply",
		send: `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w1","labels":{"a":"b"}},"spec":{"size":1,"parts":[{"name":"x","value":"1"}]}}`,
	},
	{
		name: "part of another manager",
		do:   "PATCH " + widgets + "/w1?fieldManager=n",
		kind: "apply",
		send: `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w1"},"spec":{"parts":[{"name":"y","value":"2"}]}}`,
	},
	{
		name: "widget conflicts",
		do:   "PATCH " + widgets + "/w1?fieldManager=n",
		kind: "apply",
		send: `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w1"},"spec":{"parts":[{"name":"x","value":"2"}]}}`,
	},
	{
		name: "widget without size",
		do:   "POST " + widgets,
		send: `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"bad"},"spec":{}}`,
	},
	{
		name: "widget too large",
		do:   "POST " + widgets,
		send: `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"bad"},"spec":{"size":100}}`,
	},
	{
		name: "widget of wrong type",
		do:   "POST " + widgets,
		send: `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"bad"},"spec":{"size":"x"}}`,
	},
	{
		name: "widget is pruned",
		do:   "POST " + widgets,
		send: `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w2"},"spec":{"size":2,"extra":true},"status":{"state":"Ready"}}`,
		keep: "w2",
	},
	{
		name: "widget strictly",
		do:   "POST " + widgets + "?fieldValidation=Strict",
		send: `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"bad"},"spec":{"size":2,"extra":true}}`,
	},
	{
		name: "status",
		do:   "PATCH " + widgets + "/w2/status?fieldManager=op",
		kind: "merge",
		send: `{"status":{"state":"Ready"},"spec":{"size":50}}`,
	},
	{
		name: "status by apply",
		do:   "PATCH " + widgets + "/w2/status?fieldManager=op2",
		kind: "apply",
		send: `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w2"},"status":{"replicas":2}}`,
	},
	{name: "get status", do: "GET " + widgets + "/w2/status"},
	{name: "spec bumps the generation", do: "PATCH " + widgets + "/w2", kind: "merge", send: `{"spec":{"size":3}}`},
	{name: "labels do not", do: "PATCH " + widgets + "/w2", kind: "merge", send: `{"metadata":{"labels":{"x":"y"}}}`},
	{name: "no strategic patch", do: "PATCH " + widgets + "/w2", kind: "strategic", send: `{}`},
	{
		name: "widget needs a version to be updated",
		do:   "PUT " + widgets + "/w2",
		send: `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w2"},"spec":{"size":4}}`,
	},
	{name: "widget in the other version", do: "GET /apis/example.com/v1alpha1/namespaces/conform/widgets/w2"},
	{name: "widgets", do: "GET " + widgets},
	{name: "widgets in all namespaces", do: "GET /apis/example.com/v1/widgets", accept: "metadata-list"},
	{name: "widgets in the other version", do: "GET /apis/example.com/v1alpha1/widgets"},
	{name: "widgets by bad field", do: "GET " + widgets + "?fieldSelector=spec.size%3D1"},
	{name: "widget's scale", do: "GET " + widgets + "/w2/scale"},
	{name: "widget in version that is not served", do: "GET /apis/example.com/v7/widgets"},
	{
		name: "watch widgets",
		do: "GET " + widgets +
			"?watch=1&timeoutSeconds=1&resourceVersion={version w2}&fieldSelector=metadata.name%3Dw2",
	},
	{
		name:  "gadget",
		do:    "POST /apis/example.com/v1/gadgets",
		until: `"Gadget"`,
		send:  `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"g"},"anything":[1,{"a":null}]}`,
	},
	{name: "gadget in a namespace", do: "GET /apis/example.com/v1/namespaces/conform/gadgets/g"},
	{
		name: "gadget has no status of its own",
		do:   "PATCH /apis/example.com/v1/gadgets/g/status",
		kind: "merge",
		send: `{}`,
	},

	{
		name: "owner",
		do:   "POST " + ns + "/configmaps",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"owner"}}`,
		keep: "owner",
	},
	{
		name: "owned",
		do:   "POST " + ns + "/secrets",
		send: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"mine","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":"{uid owner}","blockOwnerDeletion":true}]}}`,
	},
	{name: "delete owner in the foreground", do: "DELETE " + ns + "/configmaps/owner?propagationPolicy=Foreground"},
	{name: "owned is gone", do: "GET " + ns + "/secrets/mine", until: "404"},
	{name: "owner is gone", do: "GET " + ns + "/configmaps/owner", until: "404"},
	{
		name: "second owner",
		do:   "POST " + ns + "/configmaps",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"owner2"}}`,
		keep: "owner2",
	},
	{
		name: "orphan to be",
		do:   "POST " + ns + "/secrets",
		send: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"orphan","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner2","uid":"{uid owner2}"}]}}`,
	},
	{
		// The next steps make sure that the garbage collector of the real API server knows the dependents of owner2. If
		// an owner is deleted with the policy Orphan, the garbage collector deletes each dependent that it has not
		// received by its watch yet. The Secret nobodys has an owner that does not exist, so the garbage collector
		// deletes it. When nobodys is deleted, the garbage collector has received all Secrets that were created before
		// nobodys.
		name: "dependent of nobody",
		do:   "POST " + ns + "/secrets",
		send: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"nobodys","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"nobody","uid":"00000000-0000-0000-0000-000000000000"}]}}`,
	},
	{name: "dependent of nobody is gone", do: "GET " + ns + "/secrets/nobodys", until: "404"},
	{name: "delete owner, orphan the rest", do: "DELETE " + ns + "/configmaps/owner2?propagationPolicy=Orphan"},
	{name: "second owner is gone", do: "GET " + ns + "/configmaps/owner2", until: "404"},
	{
		name: "orphan has no owner",
		do:   "GET " + ns + "/secrets/orphan",
		raw:  true,
		why:  "another manager takes the reference away",
	},
	{
		name: "third owner",
		do:   "POST " + ns + "/configmaps",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"owner3"}}`,
		keep: "owner3",
	},
	{
		name: "owned in the background",
		do:   "POST " + ns + "/secrets",
		send: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"mine3","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner3","uid":"{uid owner3}"}]}}`,
	},
	{name: "delete third owner", do: "DELETE " + ns + "/configmaps/owner3", send: `{"propagationPolicy":"Background"}`},
	{name: "owned in the background is gone", do: "GET " + ns + "/secrets/mine3", until: "404"},

	{
		name: "hold a widget",
		do:   "PATCH " + widgets + "/w1",
		kind: "merge",
		send: `{"metadata":{"finalizers":["example.com/hold"]}}`,
		raw:  true,
		why:  "warnings about finalizers are the same, its fields are compared above",
	},
	{name: "delete widget", do: "DELETE " + widgets + "/w2"},
	{name: "delete widget that is held", do: "DELETE " + widgets + "/w1", accept: "metadata"},
	{name: "delete definition", do: "DELETE " + crds + "/widgets.example.com", accept: "metadata"},
	{
		name:   "definition waits",
		do:     "GET " + crds + "/widgets.example.com",
		accept: "metadata",
		until:  "customresourcecleanup",
	},
	{
		name:  "nothing can be created",
		do:    "POST " + widgets,
		until: "terminating",
		send:  `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"late"},"spec":{"size":1}}`,
	},
	{
		name: "let widget go",
		do:   "PATCH " + widgets + "/w1",
		kind: "merge",
		send: `{"metadata":{"finalizers":null}}`,
		raw:  true,
		why:  "as above",
	},
	{name: "definition is gone", do: "GET " + crds + "/widgets.example.com", until: "404"},
	{name: "kind is no longer served", do: "GET " + widgets, until: "404"},
	{name: "other kind still is", do: "GET /apis/example.com/v1/gadgets/g"},

	{
		name: "hold in namespace",
		do:   "POST " + ns + "/configmaps",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"held","finalizers":["example.com/hold"]}}`,
	},
	{name: "delete namespace", do: "DELETE " + ns, send: `{"propagationPolicy":"Background"}`},
	{name: "namespace tells what is left", do: "GET " + ns, until: "SomeFinalizersRemain"},
	{
		name: "create in it",
		do:   "POST " + ns + "/configmaps",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"late"}}`,
	},
	{
		name: "apply in it",
		do:   "PATCH " + ns + "/configmaps/late?fieldManager=m",
		kind: "apply",
		send: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"late"}}`,
	},
	{
		name: "let namespace go",
		do:   "PATCH " + ns + "/configmaps/held",
		kind: "merge",
		send: `{"metadata":{"finalizers":null}}`,
	},
	{name: "namespace is gone", do: "GET " + ns, until: "404"},
	{name: "and what was in it", do: "GET " + deployments + "/web"},
}
