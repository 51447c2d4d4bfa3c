package crds

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestAll checks the names of the CRDs, which are part of the contract with clients.
func TestAll(t *testing.T) {
	type names struct {
		Plural, Singular, List string
		Short                  []string
		Status                 bool
	}
	want := map[string]names{
		"Kyma":     {Plural: "kymas", Singular: "kyma", List: "KymaList", Status: true},
		"Manifest": {Plural: "manifests", Singular: "manifest", List: "ManifestList", Status: true},
		"ModuleTemplate": {
			Plural:   "moduletemplates",
			Singular: "moduletemplate",
			List:     "ModuleTemplateList",
			Short:    []string{"mt"},
		},
		"ModuleReleaseMeta": {
			Plural:   "modulereleasemetas",
			Singular: "modulereleasemeta",
			List:     "ModuleReleaseMetaList",
			Short:    []string{"mrm"},
			Status:   true,
		},
		"ModuleRollout": {
			Plural:   "modulerollouts",
			Singular: "modulerollout",
			List:     "ModuleRolloutList",
			Short:    []string{"mro"},
			Status:   true,
		},
		"RolloutPolicy": {
			Plural:   "rolloutpolicies",
			Singular: "rolloutpolicy",
			List:     "RolloutPolicyList",
			Status:   true,
		},
		"Watcher": {Plural: "watchers", Singular: "watcher", List: "WatcherList", Status: true},
	}
	got := map[string]names{}
	for _, crd := range All() {
		n, v := crd.Spec.Names, crd.Spec.Versions[len(crd.Spec.Versions)-1]
		got[n.Kind] = names{Plural: n.Plural, Singular: n.Singular, List: n.ListKind, Short: n.ShortNames,
			Status: v.Subresources != nil && v.Subresources.Status != nil}
		if crd.Spec.Scope != apiextensionsv1.NamespaceScoped || !v.Served || !v.Storage || v.Name != "v1beta2" ||
			crd.Spec.Group != "operator.kyma-project.io" {
			t.Errorf("%s: scope, group or version is wrong", crd.Name)
		}
		// Without our conversion webhook, an API server would store v1alpha1 as if it were v1beta2; so the files do not
		// serve v1alpha1, and the manager with the webhook enables it.
		for _, old := range crd.Spec.Versions[:len(crd.Spec.Versions)-1] {
			if old.Name != "v1alpha1" || old.Served || old.Storage ||
				(old.Subresources != nil) != (v.Subresources != nil) {
				t.Errorf("%s: %s is served %t, stored %t", crd.Name, old.Name, old.Served, old.Storage)
			}
		}
		old := slices.Contains([]string{"Kyma", "Manifest", "ModuleTemplate"}, n.Kind)
		if old != (len(crd.Spec.Versions) == 2) || crd.Spec.Conversion != nil {
			t.Errorf("%s: has %d versions", crd.Name, len(crd.Spec.Versions))
		}
		if !slices.Equal(n.Categories, []string{"klm"}) {
			t.Errorf("%s: categories are %q, want klm", crd.Name, n.Categories)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names differ (-want +got):\n%s", diff)
	}
}

// TestYAML checks that the YAML stream contains what All returns, and that no CRD is near the size limits of an API
// server and of the annotation that kubectl apply writes (256 kB).
func TestYAML(t *testing.T) {
	documents := bytes.Split(YAML(), []byte("\n---\n"))
	all := All()
	if len(documents) != len(all) {
		t.Fatalf("%d documents, want %d", len(documents), len(all))
	}
	for i, document := range documents {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(document, crd); err != nil {
			t.Fatalf("document %d: %v", i, err)
		}
		if diff := cmp.Diff(all[i], crd); diff != "" {
			t.Errorf("document %d differs (-want +got):\n%s", i, diff)
		}
		if len(document) > 200_000 {
			t.Errorf("%s has %d bytes, want at most 200000", crd.Name, len(document))
		}
	}
}

// TestDescriptions checks that every field has a description, because the CRDs are the reference documentation.
func TestDescriptions(t *testing.T) {
	var walk func(path string, schema apiextensionsv1.JSONSchemaProps)
	walk = func(path string, schema apiextensionsv1.JSONSchemaProps) {
		if schema.Description == "" && path != "metadata" {
			t.Errorf("%s has no description", path)
		}
		if strings.Contains(schema.Description, "---") {
			t.Errorf("%s: a description with --- breaks clients that split YAML there", path)
		}
		for name, property := range schema.Properties {
			walk(strings.TrimPrefix(path+"."+name, "."), property)
		}
		if schema.Items != nil && schema.Items.Schema != nil {
			for name, property := range schema.Items.Schema.Properties {
				walk(path+"[]."+name, property)
			}
		}
	}
	for _, crd := range All() {
		for _, version := range crd.Spec.Versions {
			root := version.Schema.OpenAPIV3Schema
			if root.Description == "" {
				t.Errorf("%s %s has no description", crd.Name, version.Name)
			}
			for name, property := range root.Properties {
				if name != "metadata" {
					walk(version.Name+" "+crd.Spec.Names.Kind+"."+name, property)
				}
			}
		}
	}
}

// TestCreate creates valid and invalid objects. An invalid object must be refused with an error that names the field.
func TestCreate(t *testing.T) {
	servers := newServers(t)
	type row struct {
		reason string
		kind   string
		object string
		want   []string // field paths of the errors, nil if the object is accepted
	}
	rows := map[string]row{
		// Kyma
		"KymaMinimal":     {"the smallest Kyma that means something", "Kyma", "{spec: {channel: regular}}", nil},
		"KymaWithoutSpec": {"was always accepted; the channel is then regular", "Kyma", "{}", nil},
		"KymaModules": {"all that clients write today", "Kyma",
			`{spec: {channel: fast, skipMaintenanceWindows: true, modules: [
			{name: keda, channel: regular, managed: false, customResourcePolicy: Ignore, controller: x, remoteModuleTemplateRef: z}, {name: btp-operator}]}}`, nil},
		"KymaChannelMissing": {"a Kyma has a default channel", "Kyma",
			"{spec: {modules: []}}", []string{"spec.channel"}},
		"KymaChannelShort": {"at least three letters", "Kyma", "{spec: {channel: ab}}", []string{"spec.channel"}},
		"KymaChannelLong": {"at most 32 letters", "Kyma", "{spec: {channel: abcdefghijklmnopqrstuvwxyzabcdefg}}",
			[]string{"spec.channel"}},
		"KymaChannelPattern": {"lower-case letters only", "Kyma",
			"{spec: {channel: fast1}}", []string{"spec.channel"}},
		"KymaChannelNone": {"none is reserved", "Kyma", "{spec: {channel: none}}", []string{"spec.channel"}},
		"KymaModuleChannelNone": {"none is reserved", "Kyma",
			"{spec: {channel: regular, modules: [{name: a, channel: none}]}}", []string{"spec.modules[0].channel"}},
		"KymaModuleChannelEmpty": {"an empty channel is left out, not written", "Kyma",
			`{spec: {channel: regular, modules: [{name: a, channel: ""}]}}`, []string{"spec.modules[0].channel"}},
		"KymaModuleTwice": {"a module is named once", "Kyma",
			"{spec: {channel: regular, modules: [{name: a}, {name: a}]}}", []string{"spec.modules[1]"}},
		"KymaModuleUnnamed": {"a module has a name", "Kyma",
			"{spec: {channel: regular, modules: [{channel: fast}]}}", []string{"spec.modules[0].name"}},
		"KymaModuleNameEmpty": {"a module has a name", "Kyma", `{spec: {channel: regular, modules: [{name: ""}]}}`,
			[]string{"spec.modules[0].name"}},
		"KymaPolicy": {"two policies exist", "Kyma",
			"{spec: {channel: regular, modules: [{name: a, customResourcePolicy: Delete}]}}",
			[]string{"spec.modules[0].customResourcePolicy"}},
		"KymaManagedType": {"managed is true or false", "Kyma",
			`{spec: {channel: regular, modules: [{name: a, managed: "no"}]}}`, []string{"spec.modules[0].managed"}},
		"KymaPinned": {"a module can be pinned", "Kyma",
			"{spec: {channel: regular, modules: [{name: a, version: 1.2.3-rc.1+build.7}, {name: b, version: 0.0.0}]}}",
			nil},
		"KymaPinnedWithV": {"versions have no v", "Kyma",
			"{spec: {channel: regular, modules: [{name: a, version: v1.2.3}]}}", []string{"spec.modules[0].version"}},
		"KymaPinnedShort": {"versions have three numbers", "Kyma",
			`{spec: {channel: regular, modules: [{name: a, version: "1.2"}]}}`, []string{"spec.modules[0].version"}},
		"KymaPinnedLeadingZero": {"numbers have no leading zero", "Kyma",
			"{spec: {channel: regular, modules: [{name: a, version: 1.02.3}]}}", []string{"spec.modules[0].version"}},
		"KymaPinnedPreZero": {"numeric pre-release identifiers have no leading zero", "Kyma",
			"{spec: {channel: regular, modules: [{name: a, version: 1.2.3-01}]}}", []string{"spec.modules[0].version"}},
		"KymaPinnedAndChannel": {"version and channel exclude each other", "Kyma",
			"{spec: {channel: regular, modules: [{name: b}, {name: a, version: 1.2.3, channel: fast}]}}",
			[]string{"spec.modules[1].version"}},
		"KymaTooManyModules": {"at most 250 modules, and each once", "Kyma",
			"{spec: {channel: regular, modules: [" + strings.Repeat("{name: a},", 251) + "]}}",
			[]string{"spec.modules", "spec.modules[1]"}},
		"KymaLongName": {"the name becomes a label value", "Kyma", "{metadata: {name: " + strings.Repeat(
			"k", 64) + "}, spec: {channel: regular}}", []string{"metadata"}},
		"KymaLongestName": {"63 characters fit", "Kyma", "{metadata: {name: " + strings.Repeat(
			"k", 63) + "}, spec: {channel: regular}}", nil},
		"KymaStatus": {"a status with all fields", "Kyma",
			`{spec: {channel: regular}, status: {state: Warning, activeChannel: regular, modulesReady: 0/1, observedGeneration: 3,
			lastOperation: {operation: kyma is ready, lastUpdateTime: "2026-01-02T03:04:05Z"},
			conditions: [{type: Modules, status: "False", reason: Ready, message: m, lastTransitionTime: "2026-01-02T03:04:05Z"}],
			modules: [{name: a, fqdn: f/g, ocmComponentName: f/g, channel: fast, version: 1.0.0, message: m, reason: VersionNotFound, state: Warning, maintenance: true,
				manifest: {apiVersion: operator.kyma-project.io/v1beta2, kind: Manifest, metadata: {name: nm, namespace: kcp-system, generation: 4}},
				resource: {apiVersion: v1, kind: K, metadata: {name: nm}}, template: {apiVersion: v1, kind: ModuleTemplate, metadata: {name: nm, namespace: m}}}]}}`, nil},
		"KymaStatusEmptyState": {"the empty state is a state", "Kyma",
			`{spec: {channel: regular}, status: {state: "", modules: [{name: a, state: ""}]}}`, nil},
		"KymaStatusState": {"states are known", "Kyma", "{spec: {channel: regular}, status: {state: Fine}}",
			[]string{"status.state"}},
		"KymaModuleState": {"an entry has a state", "Kyma",
			"{spec: {channel: regular}, status: {modules: [{name: a}]}}", []string{"status.modules[0].state"}},
		"KymaConditionTwice": {"one condition of each type", "Kyma", `{spec: {channel: regular}, status: {conditions: [
			{type: A, status: "True", reason: R, message: m, lastTransitionTime: "2026-01-02T03:04:05Z"},
			{type: A, status: "True", reason: R, message: m, lastTransitionTime: "2026-01-02T03:04:05Z"}]}}`,
			[]string{"status.conditions[1]"}},

		// Manifest
		"ManifestFull": {"as the reference writes it", "Manifest",
			`{spec: {remote: false, version: 1.0.5, customResourcePolicy: CreateAndDelete, install: {name: raw-manifest,
			source: {repo: registry.example.com/modules, name: kyma-project.io/module/keda, ref: "sha256:abc", type: oci-dir, more: {a: 1}}},
			config: {repo: r, name: nm, ref: r, type: "", credSecretSelector: {matchLabels: {a: b}}},
			resource: {apiVersion: operator.kyma-project.io/v1alpha1, kind: Keda, metadata: {name: default}, spec: {any: thing}},
			localizedImages: [a/b:c], manager: {group: apps, version: v1, kind: Deployment, name: m}},
			status: {state: Ready, version: 1.0.5, appliedDigest: "sha256:x", observedGeneration: 1, synced: [{name: nm, namespace: "", group: "", version: v1, kind: Namespace}]}}`, nil},
		"ManifestNullResource": {"a module may have no custom resource", "Manifest",
			"{spec: {remote: false, resource: null, install: {name: raw-manifest, source: {}}}}", nil},
		"ManifestWithoutRemote": {"remote means nothing", "Manifest",
			"{spec: {install: {name: raw-manifest, source: {}}}}", nil},
		"ManifestWithoutSpec": {"there is nothing to install", "Manifest", "{}", []string{"spec"}},
		"ManifestWithoutInstall": {"a Manifest says what to install", "Manifest",
			"{spec: {remote: false}}", []string{"spec.install"}},
		"ManifestInstalls": {"several sources, and a layer of CRDs", "Manifest",
			`{spec: {crds: {repo: r, name: nm, ref: r, type: oci-ref}, config: {repo: r, name: nm, ref: r, type: oci-ref}, installs: [
			{name: redis, source: {type: helm-chart, url: "https://charts.example.com", chartName: redis, version: ^1}}, {name: nginx, source: {type: oci-ref, repo: r, name: nm, ref: r}}]}}`, nil},
		"ManifestNoInstalls": {"only crds and resource", "Manifest", "{spec: {installs: []}}", nil},
		"ManifestInstallTwice": {"two ways to say the same", "Manifest",
			"{spec: {install: {name: raw-manifest, source: {}}, installs: [{name: a, source: {}}]}}",
			[]string{"spec.installs"}},
		"ManifestInstallsTwice": {"sources are named once", "Manifest",
			"{spec: {installs: [{name: a, source: {}}, {name: a, source: {}}]}}", []string{"spec.installs[1]"}},
		"ManifestInstallsSource": {"a source says from where", "Manifest", "{spec: {installs: [{name: a}]}}",
			[]string{"spec.installs[0].source"}},
		"ManifestInstallsMany": {"at most 32 sources, and each once", "Manifest",
			"{spec: {installs: [" + strings.Repeat("{name: a, source: {}},", 33) + "]}}",
			[]string{"spec.installs", "spec.installs[1]"}},
		"ManifestWithoutSource": {"a Manifest says from where", "Manifest",
			"{spec: {remote: false, install: {name: raw-manifest}}}", []string{"spec.install.source"}},
		"ManifestSourceType": {"a source is an object", "Manifest",
			"{spec: {remote: false, install: {name: raw-manifest, source: oci-ref}}}", []string{"spec.install.source"}},
		"ManifestConfigType": {"types of configuration are known", "Manifest",
			"{spec: {install: {name: raw-manifest, source: {}}, config: {type: zip}}}", []string{"spec.config.type"}},
		"ManifestResourceKind": {"an object has a kind", "Manifest",
			"{spec: {install: {name: raw-manifest, source: {}}, resource: {apiVersion: v1}}}",
			[]string{"spec.resource.kind"}},
		"ManifestPolicy": {"two policies exist", "Manifest",
			"{spec: {install: {name: raw-manifest, source: {}}, customResourcePolicy: delete}}",
			[]string{"spec.customResourcePolicy"}},
		"ManifestManager": {"a manager has a name", "Manifest",
			"{spec: {install: {name: raw-manifest, source: {}}, manager: {group: apps, version: v1, kind: " +
				"Deployment}}}", []string{"spec.manager.name"}},
		"ManifestStatus": {"a status has a state", "Manifest",
			"{spec: {install: {name: raw-manifest, source: {}}}, status: {version: 1.0.0}}", []string{"status.state"}},
		"ManifestSynced": {"the inventory is complete", "Manifest",
			"{spec: {install: {name: raw-manifest, source: {}}}, status: {state: Ready, synced: [{name: nm, kind: K, " +
				"version: v1, group: g}]}}", []string{"status.synced[0].namespace"}},

		// RolloutPolicy
		"PolicyFreeze": {"two times, and an exception", "RolloutPolicy",
			"{spec: {modules: {names: [a]}, stages: [{name: all}], freezes: [{name: year-end, from: '2026-12-18T00:00:00Z', " +
				"to: '2027-01-04T00:00:00+01:00', except: [Back]}]}}", nil},
		"PolicyPromotion": {"from one channel to another one", "RolloutPolicy",
			"{spec: {modules: {names: [a]}, stages: [{name: all}], channels: [regular], promotion: {from: fast, to: regular}}}",
			nil},
		"PolicyPromotionItself": {"it would go in a circle", "RolloutPolicy",
			"{spec: {modules: {names: [a]}, stages: [{name: all}], promotion: {from: fast, to: fast}}}",
			[]string{"spec.promotion"}},
		"PolicyPromotionOther": {"the policy is not for that channel", "RolloutPolicy",
			"{spec: {modules: {names: [a]}, stages: [{name: all}], channels: [fast], promotion: {from: fast, to: regular}}}",
			[]string{"spec.promotion.to"}},
		"PolicyFreezeEnds": {"it would never hold", "RolloutPolicy",
			"{spec: {modules: {names: [a]}, stages: [{name: all}], freezes: [{name: x, from: '2027-01-04T00:00:00Z', " +
				"to: '2026-12-18T00:00:00Z'}]}}", []string{"spec.freezes[0]"}},
		"PolicyFreezeZone": {"the same moment, in two time zones", "RolloutPolicy",
			"{spec: {modules: {names: [a]}, stages: [{name: all}], freezes: [{name: x, from: '2026-12-18T00:00:00Z', " +
				"to: '2026-12-18T01:00:00+01:00'}]}}", []string{"spec.freezes[0]"}},
		"PolicyWithDurations": {"they are valid", "RolloutPolicy",
			"{spec: {modules: {names: [a]}, maxDeferral: 72h, defaults: {runtimeDeadline: 1h30m0s}, stages: [{name: all, " +
				"soak: 0s, progressDeadline: 336h}]}}", nil},
		"PolicyWithDays": {"a duration has no days, and would keep all policies from being read", "RolloutPolicy",
			"{spec: {modules: {names: [a]}, maxDeferral: 3d, stages: [{name: all, soak: soon}]}}",
			[]string{"spec.maxDeferral", "spec.stages[0].soak"}},
		"PolicyWithLongDuration": {"it is too long for a duration", "RolloutPolicy",
			"{spec: {modules: {names: [a]}, maxDeferral: 9999999999h, stages: [{name: all}]}}",
			[]string{"spec.maxDeferral"}},
		"PolicyNoStages": {"nobody would be updated", "RolloutPolicy",
			"{spec: {modules: {names: [a]}, stages: []}}", []string{"spec.stages"}},
		"PolicyNoConcurrency": {"nobody would be updated", "RolloutPolicy",
			"{spec: {modules: {names: [a]}, stages: [{name: all, maxConcurrency: 0}]}}",
			[]string{"spec.stages[0].maxConcurrency"}},
		"PolicyPercentFalls": {"a percentage includes the stages before", "RolloutPolicy",
			"{spec: {modules: {names: [a]}, stages: [{name: half, percent: 50}, {name: few, percent: 10}, {name: rest}]}}",
			[]string{"spec.stages"}},
		"PolicyTwoRests": {"both stages would have all other runtimes", "RolloutPolicy",
			"{spec: {modules: {names: [a]}, stages: [{name: all}, {name: rest}]}}", []string{"spec.stages"}},
		"PolicyLastSelector": {"no stage would have all other runtimes", "RolloutPolicy",
			"{spec: {modules: {names: [a]}, stages: [{name: own, selector: {matchLabels: {stage: own}}}]}}",
			[]string{"spec.stages"}},
		"PolicyFreezeDate": {"a date has no time zone", "RolloutPolicy",
			"{spec: {modules: {names: [a]}, stages: [{name: all}], freezes: [{name: x, from: '2026-12-18', " +
				"to: '2027-01-04T00:00:00Z'}]}}", []string{"spec.freezes[0].from"}},
		"PolicyFreezeExcept": {"hotfixes, emergencies and ways back may go on", "RolloutPolicy",
			"{spec: {modules: {names: [a]}, stages: [{name: all}], freezes: [{name: x, from: '2026-12-18T00:00:00Z', " +
				"to: '2027-01-04T00:00:00Z', except: [Hotfix, Emergency, Back]}]}}", nil},
		"PolicyFreezeExceptOther": {"nothing else is known", "RolloutPolicy",
			"{spec: {modules: {names: [a]}, stages: [{name: all}], freezes: [{name: x, from: '2026-12-18T00:00:00Z', " +
				"to: '2027-01-04T00:00:00Z', except: [Forward]}]}}", []string{"spec.freezes[0].except[0]"}},

		// The following cases are v1alpha1 objects from 2022, as users wrote them.
		"OldKymaComponents": {"the first release", "Kyma/v1alpha1",
			"{spec: {components: [{name: istio}, {name: serverless, settings: {a: b}}]}}", nil},
		"OldKymaModules": {"no channel, which its own CRD refused", "Kyma/v1alpha1",
			"{spec: {modules: [{name: istio}]}}", nil},
		"OldKymaSync": {"the sample kyma-sample", "Kyma/v1alpha1",
			`{spec: {channel: stable, sync: {enabled: true, strategy: local-secret, namespace: x, noModuleCopy: true, moduleCatalog: true},
			modules: [{name: skr-module, controller: manifest, channel: rapid}, {name: kcp-module}]}}`, nil},
		"OldKymaTwice": {"one list in two forms", "Kyma/v1alpha1",
			"{spec: {components: [{name: a}], modules: [{name: b}, {name: a}]}}", []string{"spec.components"}},
		"OldKymaMany": {"at most 250 together", "Kyma/v1alpha1", "{spec: {components: [" + numbered(
			"{name: a%d},", 126) + "], modules: [" + numbered("{name: b%d},", 125) + "]}}",
			[]string{"spec.components"}},
		"OldKymaChannel": {"lower-case letters only, as today", "Kyma/v1alpha1",
			"{spec: {channel: Fast, modules: [{name: a, channel: none}]}}",
			[]string{"spec.channel", "spec.modules[0].channel"}},
		"OldKymaStatus": {"what early clients read", "Kyma/v1alpha1",
			`{status: {state: Ready, activeChannel: stable, observedGeneration: 1, moduleInfos: [
			{name: m, moduleName: keda, namespace: ns, state: Ready, templateInfo: {generation: 1, channel: stable, gvk: {group: g, version: v, kind: K}}}]}}`, nil},
		"OldManifest": {"the sample of the module manager, with the key that does not belong there",
			"Manifest/v1alpha1",
			`{metadata: {name: manifestkyma-sample, namespace: kcp-system, labels: {operator.kyma-project.io/kyma-name: kyma-sample}},
			spec: {remote: true, resource: {apiVersion: operator.kyma-project.io/v1alpha1, kind: SampleCRD, resource: samplecrds, metadata: {name: sample-crd}, spec: {randomkey: samplevalue}},
			crds: {ref: "sha256:a", name: sample-crd, repo: registry.example.com/signavio, type: oci-ref}, config: {ref: "sha256:b", name: sample-config, repo: registry.example.com, type: oci-ref},
			installs: [{name: redis, source: {ref: "sha256:c", name: redis, repo: registry.example.com, type: oci-ref}}, {name: nginx, source: {url: "https://helm.nginx.com/stable", chartName: nginx-ingress, type: helm-chart}}]}}`, nil},
		"OldManifestEmpty": {"nothing to install", "Manifest/v1alpha1",
			"{spec: {installs: [], config: {}}}", nil},
		"OldManifestWithoutSpec": {"there is nothing in it", "Manifest/v1alpha1", "{}", []string{"spec"}},
		"OldManifestTwice": {"sources are named once", "Manifest/v1alpha1",
			"{spec: {installs: [{name: a, source: {}}, {name: a, source: {}}]}}", []string{"spec.installs[1]"}},
		"OldTemplate": {"a template of 2022", "ModuleTemplate/v1alpha1",
			`{spec: {channel: stable, target: remote, configSelector: [{name: a, selector: {matchLabels: {a: b}}}],
			data: {apiVersion: v1, kind: K, spec: {any: thing}}, descriptor: {meta: {schemaVersion: v2}, component: {version: 1.0.0}}}}`, nil},
		"OldTemplateTarget": {"two targets", "ModuleTemplate/v1alpha1",
			"{spec: {target: moon}}", []string{"spec.target"}},
		"OldTemplateWithoutSpec": {"there is nothing in it", "ModuleTemplate/v1alpha1", "{}", []string{"spec"}},

		// ModuleTemplate
		"TemplateSample": {"as modulectl writes it", "ModuleTemplate",
			`{metadata: {name: template-operator-1.0.5, labels: {operator.kyma-project.io/module-name: template-operator}},
			spec: {moduleName: template-operator, version: 1.0.5, requiresDowntime: false,
			info: {repository: "https://example.com/r", documentation: "https://example.com/d", icons: [{name: module-icon, link: "https://example.com/i.png"}]},
			associatedResources: [{group: operator.kyma-project.io, version: v1alpha1, kind: Sample}],
			data: {apiVersion: operator.kyma-project.io/v1alpha1, kind: Sample, metadata: {name: sample-yaml}, spec: {resourceFilePath: ./module-data/yaml}},
			manager: {name: template-operator-controller-manager, namespace: template-operator-system, group: apps, version: v1, kind: Deployment},
			descriptor: {}, resources: [{name: rawManifest, link: "https://example.com/template-operator.yaml"}]}}`,
			nil},
		"TemplateOldStyle": {"with channel, descriptor and state check", "ModuleTemplate",
			`{spec: {channel: regular, mandatory: true, descriptor: {component: {version: 1.0.0}},
			customStateCheck: [{jsonPath: status.health, value: green, mappedState: Ready}]}}`, nil},
		"TemplateEmptyFields": {"empty strings were always accepted", "ModuleTemplate",
			`{spec: {channel: "", version: "", moduleName: "", descriptor: {}}}`, nil},
		"TemplatePreRelease":  {"one identifier", "ModuleTemplate", "{spec: {version: 1.0.0-rc1}}", nil},
		"TemplateWithoutSpec": {"there is nothing in it", "ModuleTemplate", "{}", []string{"spec"}},
		"TemplateBuild": {"no build metadata: the version is part of an object's name", "ModuleTemplate",
			"{spec: {version: 1.0.0+a}}", []string{"spec.version"}},
		"TemplateVersionWithV": {"versions have no v", "ModuleTemplate",
			"{spec: {version: v1.0.0}}", []string{"spec.version"}},
		"TemplateVersionShort": {"versions have three numbers", "ModuleTemplate",
			`{spec: {version: "1.0"}}`, []string{"spec.version"}},
		"TemplateVersionWord": {"a word is no version", "ModuleTemplate",
			"{spec: {version: latest}}", []string{"spec.version"}},
		"TemplateModuleName": {"no digits", "ModuleTemplate", "{spec: {moduleName: s3-bucket}}",
			[]string{"spec.moduleName"}},
		"TemplateDataKind": {"an object has a kind", "ModuleTemplate", "{spec: {data: {apiVersion: v1}}}",
			[]string{"spec.data.kind"}},
		"TemplateDescriptorType": {"a descriptor is an object", "ModuleTemplate", "{spec: {descriptor: x}}",
			[]string{"spec.descriptor"}},
		"TemplateStateCheck": {"states are known", "ModuleTemplate",
			"{spec: {customStateCheck: [{jsonPath: a, value: b, mappedState: Fine}]}}",
			[]string{"spec.customStateCheck[0].mappedState"}},
		"TemplateLink": {"links are URIs", "ModuleTemplate",
			`{spec: {resources: [{name: a, link: "not a link"}]}}`, []string{"spec.resources[0].link"}},
		"TemplateLinkTwice": {"links are named once", "ModuleTemplate",
			`{spec: {resources: [{name: a, link: "https://b"}, {name: a, link: "https://c"}]}}`,
			[]string{"spec.resources[1]"}},
		"TemplateIconTwice": {"icons are named once", "ModuleTemplate",
			`{spec: {info: {repository: r, documentation: d, icons: [{name: a, link: b}, {name: a, link: c}]}}}`,
			[]string{"spec.info.icons[1]"}},
		"TemplateInfo": {"both addresses are needed", "ModuleTemplate", "{spec: {info: {}}}",
			[]string{"spec.info.documentation", "spec.info.repository"}},

		// ModuleReleaseMeta
		"ReleaseChannels": {"channels to versions", "ModuleReleaseMeta",
			"{spec: {moduleName: keda, ocmComponentName: kyma-project.io/module/keda, channels: [{channel: regular, " +
				"version: 1.0.0}, {channel: fast, version: 1.1.0-rc1}], beta: true, internal: true}}", nil},
		"ReleaseMandatory": {"a mandatory module", "ModuleReleaseMeta",
			"{spec: {moduleName: warden, ocmComponentName: kyma-project.io/module/warden, mandatory: {version: " +
				"1.0.0-a.b+c}}}", nil},
		"ReleaseNoComponent": {"was always accepted", "ModuleReleaseMeta",
			"{spec: {moduleName: keda, channels: []}}", nil},
		"ReleaseBoth": {"one of the two", "ModuleReleaseMeta",
			"{spec: {moduleName: keda, channels: [], mandatory: {version: 1.0.0}}}", []string{"spec"}},
		"ReleaseNeither": {"one of the two", "ModuleReleaseMeta",
			"{spec: {moduleName: keda}}", []string{"spec"}},
		"ReleaseWithoutSpec": {"there is nothing in it", "ModuleReleaseMeta", "{}", []string{"spec"}},
		"ReleaseNoName": {"a module has a name", "ModuleReleaseMeta", "{spec: {channels: []}}",
			[]string{"spec.moduleName"}},
		"ReleaseName": {"no upper case", "ModuleReleaseMeta", "{spec: {moduleName: Keda, channels: []}}",
			[]string{"spec.moduleName"}},
		"ReleaseComponent": {"a component has a domain and a path", "ModuleReleaseMeta",
			"{spec: {moduleName: keda, ocmComponentName: keda, channels: []}}", []string{"spec.ocmComponentName"}},
		"ReleaseChannelTwice": {"a channel is named once", "ModuleReleaseMeta",
			"{spec: {moduleName: keda, channels: [{channel: regular, version: 1.0.0}, {channel: regular, version: " +
				"1.1.0}]}}", []string{"spec.channels[1]"}},
		"ReleaseChannelName": {"lower-case letters only", "ModuleReleaseMeta",
			"{spec: {moduleName: keda, channels: [{channel: Fast, version: 1.0.0}]}}",
			[]string{"spec.channels[0].channel"}},
		"ReleaseVersion": {"versions have three numbers", "ModuleReleaseMeta",
			`{spec: {moduleName: keda, channels: [{channel: fast, version: "1.0"}]}}`,
			[]string{"spec.channels[0].version"}},
		"ReleaseVersionWord": {"a word is no version", "ModuleReleaseMeta",
			"{spec: {moduleName: keda, channels: [{channel: fast, version: latest}]}}",
			[]string{"spec.channels[0].version"}},
		"ReleaseMandatoryWord": {"nor is it for a mandatory module", "ModuleReleaseMeta",
			"{spec: {moduleName: keda, mandatory: {version: latest}}}", []string{"spec.mandatory.version"}},
		"ReleaseVersionMissing": {"a channel has a version", "ModuleReleaseMeta",
			"{spec: {moduleName: keda, channels: [{channel: fast}]}}", []string{"spec.channels[0].version"}},
		"ReleaseMandatoryEmpty": {"a version is needed", "ModuleReleaseMeta",
			`{spec: {moduleName: keda, mandatory: {}}}`, []string{"spec.mandatory.version"}},
		"ReleaseSelector": {"a selector with all operators", "ModuleReleaseMeta",
			"{spec: {moduleName: keda, channels: [], kymaSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, " +
				"operator: In, values: [b]}, {key: a, operator: NotIn, values: [c]}, {key: a, operator: Exists}, " +
				"{key: c, operator: DoesNotExist, values: []}]}}}", nil},
		"ReleaseSelectorOp": {"operators are known", "ModuleReleaseMeta",
			"{spec: {moduleName: keda, channels: [], kymaSelector: {matchExpressions: [{key: a, operator: Equals, " +
				"values: [b]}]}}}", []string{"spec.kymaSelector.matchExpressions[0].operator"}},
		"ReleaseSelectorValues": {"In needs values", "ModuleReleaseMeta",
			"{spec: {moduleName: keda, channels: [], kymaSelector: {matchExpressions: [{key: a, operator: In}]}}}",
			[]string{"spec.kymaSelector.matchExpressions[0].values"}},
		"ReleaseSelectorExists": {"Exists has no values", "ModuleReleaseMeta",
			"{spec: {moduleName: keda, channels: [], kymaSelector: {matchExpressions: [{key: a, operator: Exists, " +
				"values: [b]}]}}}", []string{"spec.kymaSelector.matchExpressions[0].values"}},

		// Watcher
		"WatcherFull": {"as the reference ships it", "Watcher",
			`{spec: {serviceInfo: {name: klm-controller-manager-events, namespace: kcp-system, port: 8082}, manager: lifecycle-manager,
			labelsToWatch: {operator.kyma-project.io/watched-by: kyma}, resourceToWatch: {group: operator.kyma-project.io, version: "*", resource: kymas}, field: spec,
			gateway: {selector: {matchLabels: {operator.kyma-project.io/watcher-gateway: default}}}}, status: {state: Ready}}`, nil},
		"WatcherWithoutGateway": {"Istio is never required", "Watcher",
			`{spec: {serviceInfo: {name: s, namespace: ns, port: 65535}, resourceToWatch: {group: "", version: v1, resource: secrets}, field: status}}`, nil},
		"WatcherWithoutSpec": {"there is nothing in it", "Watcher", "{}", []string{"spec"}},
		"WatcherPortZero": {"a port is at least 1", "Watcher",
			"{spec: {serviceInfo: {name: s, namespace: ns, port: 0}, resourceToWatch: {group: g, version: v1, " +
				"resource: r}, field: spec}}", []string{"spec.serviceInfo.port"}},
		"WatcherPortLarge": {"a port is at most 65535", "Watcher",
			"{spec: {serviceInfo: {name: s, namespace: ns, port: 65536}, resourceToWatch: {group: g, version: v1, " +
				"resource: r}, field: spec}}", []string{"spec.serviceInfo.port"}},
		"WatcherService": {"a service has a name and a namespace", "Watcher",
			`{spec: {serviceInfo: {name: "", namespace: "", port: 1}, resourceToWatch: {group: g, version: v1, resource: r}, field: spec}}`, []string{"spec.serviceInfo.name", "spec.serviceInfo.namespace"}},
		"WatcherField": {"two parts can be watched", "Watcher",
			"{spec: {serviceInfo: {name: s, namespace: ns, port: 1}, resourceToWatch: {group: g, version: v1, " +
				"resource: r}, field: metadata}}", []string{"spec.field"}},
		"WatcherGateway": {"a gateway is selected", "Watcher",
			"{spec: {serviceInfo: {name: s, namespace: ns, port: 1}, resourceToWatch: {group: g, version: v1, " +
				"resource: r}, field: spec, gateway: {}}}", []string{"spec.gateway.selector"}},
		"WatcherMode": {"two ways to learn of changes", "Watcher",
			"{spec: {serviceInfo: {name: s, namespace: ns, port: 1}, resourceToWatch: {group: g, version: v1, " +
				"resource: r}, field: spec, mode: webhook}}", nil},
		"WatcherModeOther": {"and no third", "Watcher",
			"{spec: {serviceInfo: {name: s, namespace: ns, port: 1}, resourceToWatch: {group: g, version: v1, " +
				"resource: r}, field: spec, mode: poll}}", []string{"spec.mode"}},
		"WatcherRoute": {"Gateways by name, namespace and listener", "Watcher",
			`{spec: {serviceInfo: {name: s, namespace: ns, port: 1}, resourceToWatch: {group: g, version: v1, resource: r}, field: spec, route: {parentRefs: [{name: a}, {name: a, namespace: other}, {name: b, sectionName: one}, {name: b, sectionName: two}], hostnames: ["*.example.com", a.example.com]}}}`, nil},
		"WatcherRouteNowhere": {"a route begins somewhere", "Watcher",
			"{spec: {serviceInfo: {name: s, namespace: ns, port: 1}, resourceToWatch: {group: g, version: v1, " +
				"resource: r}, field: spec, route: {parentRefs: []}}}", []string{"spec.route.parentRefs"}},
		"WatcherRouteTwice": {"Gateway API refuses it, too", "Watcher",
			"{spec: {serviceInfo: {name: s, namespace: ns, port: 1}, resourceToWatch: {group: g, version: v1, " +
				"resource: r}, field: spec, route: {parentRefs: [{name: a}, {name: a, sectionName: x}]}}}",
			[]string{"spec.route.parentRefs"}},
		"WatcherRouteHost": {"a host name is no URL", "Watcher",
			`{spec: {serviceInfo: {name: s, namespace: ns, port: 1}, resourceToWatch: {group: g, version: v1, resource: r}, field: spec, route: {parentRefs: [{name: a}], hostnames: ["https://a"]}}}`, []string{"spec.route.hostnames[0]"}},
		"WatcherMissing": {"what is needed", "Watcher", "{spec: {}}",
			[]string{"spec.field", "spec.resourceToWatch", "spec.serviceInfo"}},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			obj := decode(t, row.kind, row.object)
			errs := servers[row.kind].create(t, obj)
			var got []string
			for _, err := range errs {
				got = append(got, err.Field)
			}
			slices.Sort(got)
			got = slices.Compact(got)
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("%s: fields of the errors differ (-want +got):\n%s\nerrors: %v",
					row.reason, diff, errs.ToAggregate())
			}
		})
	}
}

// TestDefaults checks which fields the API server adds to an object, and which it drops.
func TestDefaults(t *testing.T) {
	servers := newServers(t)
	rows := map[string]struct {
		reason string
		kind   string
		object string
		want   string
	}{
		"Module": {"a client that does not know managed leaves it out", "Kyma",
			"{spec: {channel: fast, modules: [{name: a}]}}",
			"{spec: {channel: fast, modules: [{name: a, managed: true, customResourcePolicy: CreateAndDelete}]}}"},
		"ModuleNull": {"null is not a value", "Kyma",
			"{spec: {channel: fast, modules: [{name: a, managed: null, customResourcePolicy: null}]}}",
			"{spec: {channel: fast, modules: [{name: a, managed: true, customResourcePolicy: CreateAndDelete}]}}"},
		"ModuleFalse": {"what is set stays", "Kyma",
			"{spec: {channel: fast, modules: [{name: a, managed: false, customResourcePolicy: Ignore}]}}",
			"{spec: {channel: fast, modules: [{name: a, managed: false, customResourcePolicy: Ignore}]}}"},
		"ModuleStatus": {"maintenance is always there", "Kyma", "{status: {modules: [{name: a, state: Ready}]}}",
			"{status: {modules: [{name: a, state: Ready, maintenance: false}]}}"},
		"UnknownField": {"unknown fields are dropped", "Kyma", "{spec: {channel: fast, sync: {enabled: true}}}",
			"{spec: {channel: fast}}"},
		"Manifest": {"remote and policy; the source stays as it is", "Manifest",
			"{spec: {install: {name: raw-manifest, source: {a: {b: 1}}}, resource: {apiVersion: v1, kind: K, spec: " +
				"{c: d}}}}", "{spec: {remote: false, customResourcePolicy: CreateAndDelete, install: {name: " +
				"raw-manifest, source: {a: {b: 1}}}, resource: {apiVersion: v1, kind: K, spec: {c: d}}}}"},
		"Template": {"clients expect a descriptor", "ModuleTemplate",
			"{spec: {moduleName: keda, descriptor: null}}", "{spec: {moduleName: keda, descriptor: {}}}"},
		"TemplateData": {"the default custom resource stays as it is", "ModuleTemplate",
			"{spec: {data: {apiVersion: v1, kind: K, any: {thing: 1}}, descriptor: {component: {a: b}}}}",
			"{spec: {data: {apiVersion: v1, kind: K, any: {thing: 1}}, descriptor: {component: {a: b}}}}"},
		"OldKyma": {"regular unless it says otherwise", "Kyma/v1alpha1", "{spec: {sync: {}, modules: [{name: a}]}}",
			"{spec: {channel: regular, sync: {strategy: secret, noModuleCopy: true, moduleCatalog: true}, modules: " +
				"[{name: a, customResourcePolicy: CreateAndDelete}]}}"},
		"OldManifest": {"remote unless it says otherwise; the resource stays as it is", "Manifest/v1alpha1",
			"{spec: {resource: {apiVersion: v1, kind: K, resource: ks}}}",
			"{spec: {remote: true, resource: {apiVersion: v1, kind: K, resource: ks}}}"},
		"OldTemplate": {"remote unless it says otherwise", "ModuleTemplate/v1alpha1", "{spec: {channel: stable}}",
			"{spec: {channel: stable, target: remote, descriptor: {}}}"},
		"Release": {"beta and internal are always there", "ModuleReleaseMeta",
			"{spec: {moduleName: keda, channels: []}}",
			"{spec: {moduleName: keda, channels: [], beta: false, internal: false}}"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			obj, want := decode(t, row.kind, row.object), decode(t, row.kind, row.want)
			if errs := servers[row.kind].create(t, obj); len(errs) > 0 {
				t.Fatalf("the object is refused: %v", errs.ToAggregate())
			}
			if diff := cmp.Diff(want.Object, obj.Object); diff != "" {
				t.Errorf("%s: object differs (-want +got):\n%s", row.reason, diff)
			}
		})
	}
}

// TestUpdate checks that objects of earlier releases can still be corrected and deleted, even if the API server would
// refuse to create them with the CRDs of today. The finalizers and the status of such an object can be written, because
// an update does not validate unchanged parts of the object again.
func TestUpdate(t *testing.T) {
	servers := newServers(t)
	withFinalizer := func(obj *unstructured.Unstructured) {
		obj.SetFinalizers(
			[]string{"operator.kyma-project.io/Kyma"})
	}
	set := func(value any, path ...string) func(*unstructured.Unstructured) {
		return func(obj *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(obj.Object, value, path...); err != nil {
				panic(err)
			}
		}
	}
	const (
		unstaged = "{spec: {module: keda, channel: regular, from: 1.0.0, to: 2.0.0, revision: 2, lineage: l, " +
			"state: Running}}"
		staged = "{spec: {module: keda, channel: regular, from: 1.0.0, to: 2.0.0, revision: 2, lineage: l, " +
			"state: Running, policy: standard, maxUpdating: 10, stages: [{name: canary, percent: 1, " +
			"soak: 24h, ranks: 655}, {name: rest}]}}"
	)
	rows := map[string]struct {
		reason string
		kind   string
		old    string
		change func(*unstructured.Unstructured)
		want   []string
	}{
		"LongNameFinalizer": {
			reason: "deletion must not get stuck",
			kind:   "Kyma",
			old:    "{metadata: {name: " + strings.Repeat("k", 64) + "}, spec: {channel: regular}}",
			change: withFinalizer,
		},
		"NoneFinalizer": {
			reason: "the channel is not touched",
			kind:   "Kyma",
			old:    "{spec: {channel: none}}",
			change: withFinalizer,
		},
		"NoneStatus": {
			reason: "the channel is not touched",
			kind:   "Kyma",
			old:    "{spec: {channel: none}}",
			change: set("Error", "status", "state"),
		},
		"NoneStays": {
			reason: "other fields can be written",
			kind:   "Kyma",
			old:    "{spec: {channel: none}}",
			change: set(true, "spec", "skipMaintenanceWindows"),
		},
		"NoneNew": {
			reason: "the channel is written",
			kind:   "Kyma",
			old:    "{spec: {channel: regular}}",
			change: set("none", "spec", "channel"),
			want:   []string{"spec.channel"},
		},
		"WatcherFinalizer": {reason: "deletion must not get stuck", kind: "Watcher", old: "{}", change: withFinalizer},
		"WatcherPort": {
			reason: "the port is not touched",
			kind:   "Watcher",
			old: "{spec: {serviceInfo: {name: s, namespace: ns, port: 0}, resourceToWatch: {group: g, version: " +
				"v1, resource: r}, field: spec}}",
			change: withFinalizer,
		},
		"RolloutState": {
			reason: "a person may pause a rollout",
			kind:   "ModuleRollout",
			old:    staged,
			change: set("Paused", "spec", "state"),
		},
		"RolloutStatus": {reason: "the stages stay", kind: "ModuleRollout", old: staged,
			change: set("Soaking", "status", "phase")},
		"RolloutStages": {
			reason: "a shorter soak would skip what the policy requires",
			kind:   "ModuleRollout",
			old:    staged,
			change: set([]any{map[string]any{"name": "canary", "percent": int64(1), "ranks": int64(655)}},
				"spec", "stages"),
			want: []string{"spec.stages"},
		},
		"RolloutNoStages": {
			reason: "without stages all runtimes would begin at once",
			kind:   "ModuleRollout",
			old:    staged,
			change: func(o *unstructured.Unstructured) {
				unstructured.RemoveNestedField(o.Object, "spec", "stages")
			},
			want: []string{"spec.stages"},
		},
		"RolloutNewStages": {reason: "the rollout was made without a policy", kind: "ModuleRollout",
			old:    unstaged,
			change: set([]any{map[string]any{"name": "rest"}}, "spec", "stages"),
			want:   []string{"spec.stages"}},
		"RolloutPolicyName": {reason: "the limits of another policy would count", kind: "ModuleRollout", old: staged,
			change: set("other", "spec", "policy"), want: []string{"spec.policy"}},
		"RolloutDefaults": {reason: "the limits are part of the plan", kind: "ModuleRollout", old: staged,
			change: set("100%", "spec", "defaults", "maxLost"), want: []string{"spec.defaults"}},
		"RolloutMaxUpdating": {reason: "the limit is part of the plan", kind: "ModuleRollout", old: staged,
			change: set(int64(1000), "spec", "maxUpdating"), want: []string{"spec.maxUpdating"}},
		"ManifestFinalizer": {
			reason: "deletion must not get stuck",
			kind:   "Manifest",
			old:    "{}",
			change: withFinalizer,
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			s := servers[row.kind]
			old := decode(t, row.kind, row.old)
			s.admit(old)
			obj := old.DeepCopy()
			row.change(obj)
			errs := s.update(t, obj, old)
			var got []string
			for _, err := range errs {
				got = append(got, err.Field)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("%s: fields of the errors differ (-want +got):\n%s\nerrors: %v",
					row.reason, diff, errs.ToAggregate())
			}
		})
	}
}

// TestColumns checks which columns kubectl get shows.
func TestColumns(t *testing.T) {
	servers := newServers(t)
	rows := map[string]struct {
		kind   string
		object string
		want   map[string]any
	}{
		"Kyma": {"Kyma", "{metadata: {name: sample, annotations: {operator.kyma-project.io/paused: ask Kim}}, " +
			"spec: {skipMaintenanceWindows: true, channel: fast}, status: {state: Error, modulesReady: 1/2, agent: {heard: true}, kubernetesVersion: v1.34.2, " +
			"summary: 'keda@2.1.0 (fast), sample (fast, Error)', conditions: [{type: Modules, status: 'True', " +
			"reason: Ready}, {type: Ready, status: 'False', reason: WorkloadFailed}], " +
			"lastOperation: {operation: it fails, lastUpdateTime: '2026-08-01T12:00:00Z'}}}",
			map[string]any{"Name": "sample", "State": "Error", "Channel": "fast", "Modules": "1/2", "Age": nil,
				"Versions": "keda@2.1.0 (fast), sample (fast, Error)", "Reason": "WorkloadFailed",
				"Message": "it fails", "Changed": "2026-08-01T12:00:00Z", "Agent": true, "Paused": "ask Kim",
				"Skip Windows": true, "Last Heartbeat": nil, "Kubernetes": "v1.34.2", "Created": nil}},
		"Manifest": {"Manifest",
			"{metadata: {name: m, labels: {operator.kyma-project.io/kyma-name: runtime-a, " +
				"operator.kyma-project.io/module-name: keda}}, spec: {version: 1.1.0}, status: {state: Processing, " +
				"version: 1.0.0, lastOperation: {operation: o}}}",
			map[string]any{"Name": "m", "Runtime": "runtime-a", "Module": "keda", "Version": "1.1.0",
				"State": "Processing", "Age": nil, "Installed": "1.0.0", "Message": "o"}},
		"ModuleTemplate": {"ModuleTemplate", "{spec: {moduleName: keda, version: 1.1.0, mandatory: true}}",
			map[string]any{"Name": "sample", "Module": "keda", "Version": "1.1.0", "Age": nil,
				"Mandatory": true, "Downtime": nil}},
		"ModuleReleaseMeta": {"ModuleReleaseMeta",
			"{spec: {moduleName: keda, channels: [{channel: fast, version: 1.1.0}, {channel: regular, version: " +
				"1.0.0}]}}",
			map[string]any{"Name": "sample", "Module": "keda", "Mandatory": nil, "Regular": "1.0.0", "Fast": "1.1.0",
				"Channels": `[{"channel":"fast","version":"1.1.0"},{"channel":"regular","version":"1.0.0"}]`,
				"Age":      nil}},
		"MandatoryModule": {"ModuleReleaseMeta", "{spec: {moduleName: warden, mandatory: {version: 1.0.0}}}",
			map[string]any{"Name": "sample", "Module": "warden", "Mandatory": "1.0.0", "Regular": nil, "Fast": nil,
				"Channels": nil, "Age": nil}},
		"OldKyma": {"Kyma/v1alpha1", "{spec: {channel: fast}, status: {state: Ready}}",
			map[string]any{"Name": "sample", "State": "Ready", "Channel": "fast", "Age": nil}},
		"OldManifest": {"Manifest/v1alpha1", "{status: {state: Ready}}",
			map[string]any{"Name": "sample", "State": "Ready", "Age": nil}},
		"OldTemplate": {"ModuleTemplate/v1alpha1", "{spec: {channel: stable, target: remote}}",
			map[string]any{"Name": "sample", "Channel": "stable", "Target": "remote", "Age": nil}},
		"Watcher": {"Watcher",
			"{spec: {manager: lifecycle-manager, resourceToWatch: {resource: kymas}}, status: {state: Ready}}",
			map[string]any{"Name": "sample", "State": "Ready", "Manager": "lifecycle-manager",
				"Resource": "kymas", "Age": nil}},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, servers[row.kind].table(t, decode(t, row.kind, row.object))); diff != "" {
				t.Errorf("columns differ (-want +got):\n%s", diff)
			}
		})
	}
}

// numbered returns several copies of a text, each with another number in it.
func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}
