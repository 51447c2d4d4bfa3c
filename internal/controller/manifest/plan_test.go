package manifest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/condition"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/inventory"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/manifest/source"
)

func TestReadinessOf(t *testing.T) {
	slow := apply.NotReady{Message: "slow"}
	broken := apply.NotReady{Failed: true, Message: "broken"}
	cases := map[string]struct {
		reason  string
		waiting []apply.NotReady
		want    readiness
	}{
		"Nothing": {"everything is ready", nil, readiness{state: v1beta2.StateReady}},
		"Slow": {"what is not ready yet is processing", []apply.NotReady{slow},
			readiness{v1beta2.StateProcessing, "WorkloadNotReady", "slow"}},
		"Broken": {"a failure is an error", []apply.NotReady{broken},
			readiness{v1beta2.StateError, "WorkloadFailed", "broken"}},
		"BrokenSecond": {"a failure counts before progress", []apply.NotReady{slow, broken, slow},
			readiness{v1beta2.StateError, "WorkloadFailed", "broken"}},
	}
	for name, c := range cases {
		if diff := cmp.Diff(c.want, readinessOf(c.waiting), cmp.AllowUnexported(readiness{})); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.reason, diff)
		}
	}
}

func TestResourceDecides(t *testing.T) {
	resource := &unstructured.Unstructured{Object: map[string]any{"kind": "Keda"}}
	cases := map[string]struct {
		reason     string
		resource   *unstructured.Unstructured
		policy     v1beta2.CustomResourcePolicy
		annotation string
		flag, want bool
	}{
		"Flag":    {reason: "the flag decides", resource: resource, flag: true, want: true},
		"FlagOff": {reason: "the flag decides", resource: resource},
		"AnnotationOff": {
			reason:     "the annotation counts before the flag",
			resource:   resource,
			annotation: "false",
			flag:       true,
		},
		"AnnotationOn": {
			reason:     "the annotation counts before the flag",
			resource:   resource,
			annotation: "true",
			want:       true,
		},
		"Nonsense": {
			reason:     "a value that is not valid does not count",
			resource:   resource,
			annotation: "maybe",
			flag:       true,
			want:       true,
		},
		"None": {reason: "there is no custom resource", annotation: "true", flag: true},
		"Ignored": {
			reason:     "the policy leaves it to the user",
			resource:   resource,
			policy:     v1beta2.Ignore,
			annotation: "true",
			flag:       true,
		},
	}
	for name, c := range cases {
		m := manifestWith(func(m *v1beta2.Manifest) {
			m.Spec.Resource, m.Spec.CustomResourcePolicy = c.resource, c.policy
			if c.annotation != "" {
				m.Annotations = map[string]string{v1beta2.AnnotationCustomStateCheck: c.annotation}
			}
		})
		if got := isModuleCRDecisive(m, c.flag); got != c.want {
			t.Errorf("%s: %s: got %v", name, c.reason, got)
		}
	}
}

func TestReadinessRefs(t *testing.T) {
	manager := apply.Ref{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "n", Name: "manager"}
	other := apply.Ref{Group: "apps", Version: "v1", Kind: "DaemonSet", Namespace: "n", Name: "node"}
	crd := apply.Ref{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition", Name: "x"}
	all := []apply.Ref{crd, manager, other}
	cases := map[string]struct {
		reason  string
		manager *v1beta2.Manager
		want    []apply.Ref
	}{
		"NotNamed": {"all workloads count", nil, all},
		"Named": {"only the manager and CRDs count", &v1beta2.Manager{Group: "apps", Version: "v1",
			Kind: "Deployment", Namespace: "n", Name: "manager"}, []apply.Ref{crd, manager}},
		"AnySpace": {"without a namespace the name is enough", &v1beta2.Manager{Group: "apps", Version: "v1",
			Kind: "Deployment", Name: "manager"}, []apply.Ref{crd, manager}},
		"NotTheOnes": {"a manager that does not exist does not count", &v1beta2.Manager{Group: "apps", Version: "v1",
			Kind: "Deployment", Name: "gone"}, all},
	}
	for name, c := range cases {
		if diff := cmp.Diff(c.want, inventory.ReadinessRefs(all, c.manager)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.reason, diff)
		}
	}
}

func TestDriftMessage(t *testing.T) {
	if got := condition.UncorrectedDriftMessage(nil); got != "" {
		t.Errorf("without drift the message is %q, want nothing", got)
	}
	var found []apply.Drifted
	for i := range 50 {
		found = append(found, apply.Drifted{Ref: apply.Ref{Kind: "ConfigMap", Namespace: "n", Name: fmt.Sprint("c", i)},
			Fields: []string{"data.a"}, Managers: []string{"kubectl"}})
	}
	got := condition.UncorrectedDriftMessage(found)
	for _, want := range []string{"ConfigMap n/c0", "data.a", "kubectl", "and 47 more", v1beta2.AnnotationDrift} {
		if !strings.Contains(got, want) {
			t.Errorf("the message is %q, want it to contain %q", got, want)
		}
	}
	if len(got) > 700 {
		t.Errorf("the message has %d bytes, want fewer", len(got))
	}
}

// manifestWith returns a Manifest after the function edit has changed it.
func manifestWith(edit func(*v1beta2.Manifest)) *v1beta2.Manifest {
	m := &v1beta2.Manifest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "a-keda-1"},
		Spec: v1beta2.ManifestSpec{
			Version: "1.0.0",
			Install: v1beta2.InstallInfo{Name: "raw-manifest", Source: runtime.RawExtension{Raw: []byte(
				`{"repo":"r.example.com","name":"kyma-project.io/module/keda","ref":"sha256:` + strings.Repeat(
					"a", 64) + `","type":"oci-dir"}`)}},
		},
	}
	if edit != nil {
		edit(m)
	}
	return m
}

// planFor returns the plan of a Manifest whose sources are pinned by digests. For pinned sources, planFor needs no
// request to a registry.
func planFor(t *testing.T, m *v1beta2.Manifest, h history) (plan, error) {
	found, err := source.NewFinder(source.Options{}).Find(t.Context(), m)
	if err != nil {
		return plan{}, err
	}
	return newPlan(m, found, "", h), nil
}

func TestSumCoversAllThatDecides(t *testing.T) {
	sum := func(m *v1beta2.Manifest) string {
		p, err := planFor(t, m, history{})
		if err != nil {
			t.Fatal(err)
		}
		return p.digest
	}
	base := sum(manifestWith(nil))
	if again := sum(manifestWith(nil)); again != base {
		t.Errorf("equal Manifests have digests %s and %s, want the same", base, again)
	}
	for name, edit := range map[string]func(*v1beta2.Manifest){
		"Artefact": func(m *v1beta2.Manifest) {
			m.Spec.Install.Source.Raw = []byte(strings.ReplaceAll(string(m.Spec.Install.Source.Raw), "aaa", "bbb"))
		},
		"Name":   func(m *v1beta2.Manifest) { m.Name = "b" },
		"Images": func(m *v1beta2.Manifest) { m.Spec.LocalizedImages = []string{"r.example.com/x:1"} },
		"Policy": func(m *v1beta2.Manifest) { m.Spec.CustomResourcePolicy = v1beta2.Ignore },
		"Resource": func(m *v1beta2.Manifest) {
			m.Spec.Resource = &unstructured.Unstructured{Object: map[string]any{"kind": "Keda"}}
		},
		"Version": func(m *v1beta2.Manifest) { m.Spec.Version = "2.0.0" },
		"Definitions": func(m *v1beta2.Manifest) {
			m.Spec.CRDs = &v1beta2.ManifestConfig{Repo: "r.example.com", Name: "crds",
				Ref: "sha256:" + strings.Repeat("c", 64), Type: "oci-ref"}
		},
		"Installs": func(m *v1beta2.Manifest) {
			m.Spec.Installs = []v1beta2.InstallInfo{m.Spec.Install, m.Spec.Install}
			m.Spec.Installs[1].Name = "second"
			m.Spec.Install = v1beta2.InstallInfo{}
		},
	} {
		if got := sum(manifestWith(edit)); got == base {
			t.Errorf("a change of %s does not change the digest", name)
		}
	}
	for name, edit := range map[string]func(*v1beta2.Manifest){
		"Labels": func(m *v1beta2.Manifest) { m.Labels = map[string]string{"a": "b"} },
		"Status": func(m *v1beta2.Manifest) { m.Status.State = v1beta2.StateError },
	} {
		if got := sum(manifestWith(edit)); got != base {
			t.Errorf("a change of %s changes the digest, want it to cost nothing", name)
		}
	}
}

func TestNewPlanRefusesBadSources(t *testing.T) {
	for name, raw := range map[string]string{"Empty": "", "NoJSON": "{",
		"NoRef":     `{"repo":"r","name":"n","type":"oci-ref"}`,
		"OtherType": `{"repo":"r","name":"n","ref":"x","type":"ftp"}`} {
		_, err := planFor(t, manifestWith(func(m *v1beta2.Manifest) { m.Spec.Install.Source.Raw = []byte(raw) }),
			history{})
		if err == nil || !strings.Contains(err.Error(), "a-keda-1") {
			t.Errorf("%s: error is %v, want one that names the Manifest", name, err)
		}
	}
}

// TestSumStaysTheSame checks that a new version of the manager computes the same digest of the inputs as before. The
// status of each Manifest stores this digest. A different digest would make the upgraded manager apply all modules
// again.
func TestSumStaysTheSame(t *testing.T) {
	cases := map[string]struct {
		edit func(*v1beta2.Manifest)
		want string
	}{
		"One source": {nil, "sha256:aa6d340c3104c8918db8b331360db3eddc9c8276e1a40489fa04237a93681572"},
		"CRDs, images and manager": {func(m *v1beta2.Manifest) {
			m.Spec.CRDs = &v1beta2.ManifestConfig{Repo: "r.example.com", Name: "crds",
				Ref: "sha256:" + strings.Repeat("c", 64), Type: "oci-ref"}
			m.Spec.LocalizedImages = []string{"a/b:1"}
			m.Spec.Manager = &v1beta2.Manager{Group: "apps", Version: "v1", Kind: "Deployment", Name: "m"}
		}, "sha256:c4ed2005a92bc60bf00e916cf45e35491e0afa103be938672342698cd4a6fa82"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p, err := planFor(t, manifestWith(c.edit), history{})
			if err != nil || p.digest != c.want {
				t.Errorf("got %s, %v, want %s", p.digest, err, c.want)
			}
		})
	}
}

// TestNewPlan checks which objects a reconcile must apply or compare.
func TestNewPlan(t *testing.T) {
	const interval = time.Hour
	quiet := history{sinceCompared: 30 * time.Minute, sinceAudit: 30 * time.Minute, auditInterval: interval}
	type work struct{ ApplyAll, CompareAll, HasWork bool }
	cases := map[string]struct {
		reason string
		edit   func(*v1beta2.Manifest, *history)
		want   work
	}{
		"Nothing": {"the digest is applied and nothing happened", func(*v1beta2.Manifest, *history) {}, work{}},
		"New": {"the digest was never applied",
			func(m *v1beta2.Manifest, _ *history) { m.Status.AppliedDigest = "" }, work{ApplyAll: true, HasWork: true}},
		"Drifted": {"others changed an object", func(_ *v1beta2.Manifest,
			h *history) {
			h.drifted = []apply.Ref{{Name: "a"}}
		}, work{HasWork: true}},
		"Audit": {"the interval is nearly over", func(_ *v1beta2.Manifest,
			h *history) {
			h.sinceAudit = interval * 7 / 8
		}, work{CompareAll: true, HasWork: true}},
		"Retried": {"a person asked for a retry, so all is compared although events were not missed",
			func(_ *v1beta2.Manifest, h *history) { h.retried, h.sinceCompared = true, time.Second },
			work{CompareAll: true, HasWork: true}},
		"Missed": {"events were missed", func(_ *v1beta2.Manifest, h *history) { h.missed = true },
			work{CompareAll: true, HasWork: true}},
		"Recent": {"events were missed, but all was compared a short time ago", func(_ *v1beta2.Manifest, h *history) {
			h.missed, h.sinceCompared = true, recentComparisonPeriod
		}, work{}},
		"Dropped": {"too many objects changed, so all are compared although all were compared a short time ago",
			func(_ *v1beta2.Manifest, h *history) { h.dropped, h.sinceCompared = true, time.Second },
			work{CompareAll: true, HasWork: true}},
		"Reported": {"the annotation was removed", func(_ *v1beta2.Manifest, h *history) { h.driftReported = true },
			work{CompareAll: true, HasWork: true}},
		"Reports": {"reported drift is not compared again and again", func(m *v1beta2.Manifest, h *history) {
			m.Annotations, h.driftReported = map[string]string{v1beta2.AnnotationDrift: v1beta2.DriftReport}, true
		}, work{}},
		"Restart": {"what was reported before a restart is found again", func(m *v1beta2.Manifest, h *history) {
			m.Annotations, h.neverCompared = map[string]string{v1beta2.AnnotationDrift: v1beta2.DriftReport}, true
		}, work{CompareAll: true, HasWork: true}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m, h := manifestWith(nil), quiet
			applied, err := planFor(t, m, h)
			if err != nil {
				t.Fatal(err)
			}
			m.Status.AppliedDigest = applied.digest
			c.edit(m, &h)
			p, err := planFor(t, m, h)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, work{p.applyAll, p.compareAll, p.hasWork()}); diff != "" {
				t.Errorf("%s: -want +got:\n%s", c.reason, diff)
			}
		})
	}
}
