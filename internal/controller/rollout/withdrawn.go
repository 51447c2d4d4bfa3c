package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

const (
	// maxWithdrawn is the maximum number of withdrawn versions in the status of a release.
	maxWithdrawn = 20
	// maxHolders is the maximum number of names of runtimes in the status for each withdrawn version.
	maxHolders = 20
	// holdersInterval is the time after which the runtimes with withdrawn versions are counted again.
	holdersInterval = 10 * time.Minute
)

// withdrawnTemplateVersions returns the versions of the module whose ModuleTemplates are withdrawn, beginning with the
// highest version.
func (p *pass) withdrawnTemplateVersions() []v1beta2.WithdrawnVersion {
	var all []v1beta2.WithdrawnVersion
	if p.catalog.Templates == nil {
		return nil
	}
	for _, t := range p.catalog.Templates(p.release.Name) {
		is, why := channel.IsWithdrawn(t)
		if !is || t.Spec.Version == "" {
			continue
		}
		w := v1beta2.WithdrawnVersion{Version: t.Spec.Version, Reason: text.ClipLine(why, 256),
			Since: metav1.NewTime(p.now.Truncate(time.Second))}
		for _, was := range p.release.Status.Withdrawn {
			if was.Version == w.Version {
				w.Since, w.Runtimes, w.Holders = was.Since, was.Runtimes, was.Holders
			}
		}
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b v1beta2.WithdrawnVersion) int {
		switch { // the templates have no order, and the status must stay stable
		case channel.IsLower(a.Version, b.Version):
			return 1
		case channel.IsLower(b.Version, a.Version):
			return -1
		}
		return cmp.Or(strings.Compare(a.Version, b.Version), strings.Compare(a.Reason, b.Reason))
	})
	all = slices.CompactFunc(all, func(a, b v1beta2.WithdrawnVersion) bool { return a.Version == b.Version })
	return all[:min(len(all), maxWithdrawn)]
}

// countHolders counts the runtimes that have withdrawn versions: when a version is withdrawn, and then once in each
// holdersInterval. A count in each reconcile would cost too many status writes, because a rollout that replaces the
// withdrawn version changes the count with every updated runtime.
func (p *pass) countHolders(ctx context.Context, withdrawn []v1beta2.WithdrawnVersion) error {
	if len(withdrawn) == 0 {
		delete(p.counted, p.release.Name)
		return nil
	}
	last := p.counted[p.release.Name]
	isSame := slices.EqualFunc(withdrawn, p.release.Status.Withdrawn, func(a, b v1beta2.WithdrawnVersion) bool {
		return a.Version == b.Version
	})
	if wait := holdersInterval - p.now.Sub(last); isSame && wait > 0 {
		p.requeueAfter(wait)
		return nil
	}
	var manifests v1beta2.ManifestList
	if err := p.Fleet.List(ctx, &manifests, client.InNamespace(p.Namespace),
		client.MatchingFields{moduleIndex: p.release.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the Manifests of module %s: %w", p.release.Name, err)
	}
	holders := map[string][]string{}
	for i := range manifests.Items {
		m := &manifests.Items[i]
		ordered := cmp.Or(m.Annotations[v1beta2.AnnotationRequestedVersion], m.Spec.Version)
		holders[ordered] = append(holders[ordered], m.KymaName())
		if installed := m.Status.Version; installed != "" && installed != ordered {
			holders[installed] = append(holders[installed], m.KymaName())
		}
	}
	for i := range withdrawn {
		names := holders[withdrawn[i].Version]
		slices.Sort(names)
		names = slices.Compact(names)
		withdrawn[i].Runtimes = int32(len(names)) //nolint:gosec // a fleet has fewer than two billion runtimes
		withdrawn[i].Holders = slices.Clone(names[:min(len(names), maxHolders)])
	}
	p.counted[p.release.Name] = p.now
	p.requeueAfter(holdersInterval)
	return nil
}
