package page

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
)

// moduleNames are the modules of a synthetic fleet.
var moduleNames = []string{"api-gateway", "btp-operator", "eventing", "istio", "keda", "serverless", "telemetry"}

// memberAt returns runtime i of a synthetic fleet. A few runtimes of this fleet are not Ready.
func memberAt(i int, now time.Time) *fleetlist.Member {
	m := &fleetlist.Member{}
	m.Metadata.Name = fmt.Sprintf("runtime-%05d", i)
	m.Metadata.ResourceVersion = fmt.Sprint(i)
	regions := []string{"eu-central-1", "us-east-1", "ap-south-1", "eu-west-3", "us-west-2", "ca-central-1"}
	plans := []string{"aws", "azure", "gcp", "trial", "free"}
	m.Metadata.Labels = map[string]string{v1beta2.LabelRegion: regions[i*7%len(regions)],
		v1beta2.LabelBrokerPlanName:  plans[i*3%len(plans)],
		v1beta2.LabelGlobalAccountID: fmt.Sprintf("account-%d", i%97),
		v1beta2.LabelInstanceID:      fmt.Sprintf("0b1d6f0e-%08d", i),
		v1beta2.LabelRuntimeID:       fmt.Sprintf("5c2e7a1f-%08d", i)}
	m.Spec.Channel = "regular"
	if i%9 == 0 {
		m.Spec.Channel = "fast"
	}
	m.Status.State = v1beta2.StateReady
	m.Status.LastOperation.LastUpdateTime = now.Add(-time.Duration(i%5000) * time.Minute).UTC().Format(time.RFC3339)
	m.Status.Agent = &fleetlist.MemberAgent{Heard: i%211 != 0}
	ready := len(moduleNames)
	for k, name := range moduleNames {
		e := fleetlist.MemberModule{Name: name, Version: fmt.Sprintf("1.%d.0", k+(i%11)/10), Channel: m.Spec.Channel,
			State: v1beta2.StateReady}
		bad := func(state v1beta2.State, reason string) {
			e.State, e.Reason, m.Status.State = state, reason, state
			ready--
			m.Status.Conditions = []fleetlist.MemberCondition{{Type: v1beta2.ConditionReady, Status: "False",
				Reason: reason, Message: "module " + name + ": " + reason}}
		}
		switch {
		case k == 1 && i%151 == 3:
			bad(v1beta2.StateError, v1beta2.ReasonWorkloadFailed)
		case k == 2 && i%97 == 5:
			bad(v1beta2.StateWarning, v1beta2.ReasonWaitingForWindow)
		case k == 3 && i%61 == 7:
			bad(v1beta2.StateProcessing, v1beta2.ReasonWorkloadNotReady)
		case k == 4 && i%401 == 9:
			bad(v1beta2.StateDeleting, v1beta2.ReasonCustomResourceBlocksDeletion)
		}
		m.Status.Modules = append(m.Status.Modules, e)
	}
	m.Status.ModulesReady = fmt.Sprintf("%d/%d", ready, len(moduleNames))
	if i%501 == 11 {
		m.Status.State, m.Status.Modules, m.Status.ModulesReady = "", nil, ""
	}
	return m
}

// catalogOf returns the catalog of a synthetic fleet.
func catalogOf(now time.Time) *connection.Catalog {
	var releases []v1beta2.ModuleReleaseMeta
	var templates []v1beta2.ModuleTemplate
	for k, name := range moduleNames {
		version := func(n int) string { return fmt.Sprintf("1.%d.0", n) }
		r := v1beta2.ModuleReleaseMeta{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kcp-system"}}
		r.Spec = v1beta2.ModuleReleaseMetaSpec{ModuleName: name, OCMComponentName: "kyma-project.io/module/" + name,
			Channels: []v1beta2.ChannelVersion{{Channel: "fast", Version: version(k + 1)}, {Channel: "regular",
				Version: version(k)}}}
		for i, c := range r.Spec.Channels {
			r.Status.Channels = append(r.Status.Channels, v1beta2.ChannelStatus{Channel: c.Channel, Version: c.Version,
				Target: c.Version, Revision: 2, Since: metav1.NewTime(now.Add(-time.Hour)),
				History: []v1beta2.ChannelMove{{Revision: 1, Version: version(k - 1 + i), By: "argocd-controller",
					At: metav1.NewTime(now.Add(-90 * 24 * time.Hour)), Outcome: v1beta2.RolloutCompleted}, {Revision: 2,
					Version: c.Version, By: "klm", At: metav1.NewTime(now.Add(-time.Duration(k+1) * 26 * time.Hour)),
					Outcome: v1beta2.RolloutCompleted}}})
		}
		releases = append(releases, r)
		for n := max(0, k-1); n < k+2; n++ {
			templates = append(templates, v1beta2.ModuleTemplate{
				ObjectMeta: metav1.ObjectMeta{Name: name + "-" + version(n)},
				Spec:       v1beta2.ModuleTemplateSpec{ModuleName: name, Version: version(n)}})
		}
	}
	return connection.NewCatalog(releases, templates)
}

// indexOf returns the index of a synthetic fleet.
func indexOf(n int, now time.Time) *fleetindex.Index {
	x := fleetindex.New()
	x.SetCatalogAndManager(catalogOf(now), nil, fixture.ControlPlane)
	all := make([]*fleetlist.Member, n)
	for i := range all {
		all[i] = memberAt(i, now)
	}
	x.Put(all...)
	x.Publish()
	return x
}
