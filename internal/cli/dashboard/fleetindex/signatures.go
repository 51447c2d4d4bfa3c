package fleetindex

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

const (
	// signatureInterval is the time between two rounds. In each round, the index reads the signatures of versions that
	// it does not know yet.
	signatureInterval = 30 * time.Second
	// signatureAge is the time after which a finding is read again.
	signatureAge = 10 * time.Minute
	// maxSignatures is the maximum number of findings about signatures that are read per signatureInterval.
	maxSignatures = 50
)

// Version is a version of a module.
type Version struct{ Module, Version string }

// Signature is the finding of the manager about the signatures of a version, in one runtime that has this version. The
// finding is the same in all runtimes, because the trust policy is a setting of the manager and a version has the same
// content everywhere. Therefore the finding is read from only one runtime.
type Signature struct {
	Runtime string
	// Verified and Message are the status and the message of the condition Signature of a Manifest. If the Manifest
	// does not have the condition Signature, no signature is required, and Message is empty.
	Verified bool
	Message  string

	at time.Time // when it was read
}

// followSignatures reads the findings about the signatures of all versions that runtimes have: one Manifest for each
// version. The number of requests is small, because the number of versions does not grow with the fleet.
func (x *Index) followSignatures(ctx context.Context, c *connection.Cluster) error {
	for c.IsControlPlane() {
		s := x.Snapshot()
		delay := signatureInterval
		if !s.Ready {
			delay = time.Second
		}
		found := map[Version]Signature{}
		for v, runtime := range s.versionsWithSignatureDue(x.now()) {
			is, known, err := readSignature(ctx, c, s.Catalog.Releases[v.Module], v, runtime)
			if console.ExitCode(c.Explain(err, "reading the signatures of "+v.Module)) == console.ExitForbidden {
				delay = signatureAge // the user may not read Manifests
				break
			}
			if err == nil && known {
				is.at = x.now()
				found[v] = is
			}
		}
		if len(found) > 0 {
			x.AddSignatures(found)
		}
		if err := console.Sleep(ctx, delay); err != nil {
			return err
		}
	}
	return nil
}

// versionsWithSignatureDue returns at most maxSignatures versions whose signatures were not read within signatureAge.
// versionsWithSignatureDue maps each version to the name of a runtime with this version, if possible one in which the
// module is Ready. For a version of a mandatory module, versionsWithSignatureDue chooses an arbitrary runtime, because
// the index does not contain the mandatory modules of runtimes.
func (s *Snapshot) versionsWithSignatureDue(now time.Time) map[Version]string {
	all, isReady := map[Version]string{}, map[Version]bool{}
	for _, m := range s.Members {
		for i := range m.Status.Modules {
			e := &m.Status.Modules[i]
			v := Version{e.Name, e.Version}
			known, is := s.Signatures[v]
			if e.Version == "" || is && now.Sub(known.at) < signatureAge {
				continue
			}
			ready := e.State == v1beta2.StateReady
			if all[v] == "" && len(all) < maxSignatures || all[v] != "" && ready && !isReady[v] {
				all[v], isReady[v] = m.Metadata.Name, ready
			}
		}
	}
	for v := range s.mandatory() {
		if known, is := s.Signatures[v]; (!is || now.Sub(known.at) >= signatureAge) && len(s.Members) > 0 &&
			len(all) < maxSignatures {
			// It is not known which runtimes have this version of the mandatory module, so each round reads the
			// Manifest of another runtime.
			round := int(now.Unix() / int64(signatureInterval.Seconds()))
			all[v] = s.Members[round%len(s.Members)].Metadata.Name
		}
	}
	return all
}

// mandatory returns the versions of mandatory modules that runtimes have: for each module, the version in the spec of
// its ModuleReleaseMeta, and the proven version, which was the last one with a completed rollout. The index cannot
// count the runtimes with such a version, because the statuses of Kymas do not list mandatory modules.
func (s *Snapshot) mandatory() map[Version]bool {
	all := map[Version]bool{}
	for name, release := range s.Catalog.Releases {
		if !release.IsMandatory() {
			continue
		}
		all[Version{name, release.Spec.Mandatory.Version}] = true
		if is := release.ChannelStatus(v1beta2.MandatoryChannel); is != nil && is.Version != "" {
			all[Version{name, is.Version}] = true
		}
	}
	return all
}

// IsUsed reports whether at least one runtime has a version, according to the statuses of the Kymas. For a mandatory
// module, IsUsed relies on the catalog.
func (s *Snapshot) IsUsed(v Version) bool {
	return s.mandatory()[v] || slices.ContainsFunc(s.Tally().Versions, func(n VersionCount) bool {
		return n.Module == v.Module && n.Version == v.Version
	})
}

// readSignature reads the finding of the manager about the signatures of a version in one runtime. The first row of
// this table whose condition is met decides the finding:
//
//	1  the runtime has no Manifest with this version          not known
//	2  the Manifest is not Ready because of its signatures    not verified, with the message of the condition Ready
//	3  the objects of this version have been applied          the condition Signature; no condition: none is required
//	4  otherwise                                              not known: the signatures were not verified yet
//
// Row 2 comes before row 3, because a version that was refused has no condition Signature.
func readSignature(ctx context.Context, c *connection.Cluster, release *v1beta2.ModuleReleaseMeta, v Version,
	runtime string) (is Signature, known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, OnDemandTimeout)
	defer cancel()
	is.Runtime = runtime
	name, isMandatory := "", release.IsMandatory()
	// reads by name are cheap: an API server finds objects by their labels only by looking at all objects
	if isMandatory {
		name = v1beta2.ManifestName(runtime, release.Spec.OCMComponentName, v.Module)
	} else {
		k := &v1beta2.Kyma{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: runtime}, k); err != nil {
			return is, false, err
		}
		entry := k.ModuleStatus(v.Module)
		if entry == nil || entry.Manifest == nil {
			return is, false, nil
		}
		name = entry.Manifest.Metadata.Name
	}
	m := &v1beta2.Manifest{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, m); err != nil {
		return is, false, client.IgnoreNotFound(err)
	}
	if m.Spec.Version != v.Version {
		return is, false, nil
	}
	ready := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionReady)
	if ready != nil && ready.Status != metav1.ConditionTrue &&
		slices.Contains([]string{v1beta2.ReasonSignatureMissing, v1beta2.ReasonSignatureInvalid}, ready.Reason) {
		is.Message = ready.Message
		return is, true, nil
	}
	if m.Status.Version != v.Version {
		return is, false, nil
	}
	if found := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionSignature); found != nil {
		is.Verified, is.Message = found.Status == metav1.ConditionTrue, found.Message
	}
	return is, true, nil
}

// AddSignatures adds findings. Findings about versions that no runtime has are dropped.
func (x *Index) AddSignatures(found map[Version]Signature) {
	s := x.Snapshot()
	used := s.mandatory()
	for _, n := range s.Tally().Versions {
		used[Version{n.Module, n.Version}] = true
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	all := maps.Clone(x.signatures) // snapshots have the former map
	if all == nil {
		all = map[Version]Signature{}
	}
	maps.DeleteFunc(all, func(v Version, _ Signature) bool { return !used[v] })
	for v, is := range found {
		before, known := all[v]
		all[v] = is
		if before.at = is.at; !known || before != is {
			x.touchLocked(Catalog)
		}
	}
	x.signatures = all
}
