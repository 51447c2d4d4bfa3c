package fleetindex

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

const (
	// signatureInterval is the time between two rounds in which new versions are found.
	signatureInterval = 30 * time.Second
	// signatureAge is the time after which a finding is read again.
	signatureAge = 10 * time.Minute
	// maxSignatures is the maximum number of findings that are read in one round.
	maxSignatures = 50
)

// Version is a version of a module.
type Version struct{ Module, Version string }

// Signature is the finding of the manager about the signatures of a version, in one runtime that has this version. The
// trust policy is the policy of the manager, and the content of a version is the same everywhere, so one runtime is
// sufficient.
type Signature struct {
	Runtime string
	// Verified and Message are the status and the message of the condition Signature of a Manifest. If the Manifest
	// does not have this condition, no signature is required, and Message is empty.
	Verified bool
	Message  string

	at time.Time // when it was read
}

// followSignatures reads the findings about the signatures of all versions that runtimes have: one Manifest for each
// version. The number of versions does not grow with the fleet.
func (x *Index) followSignatures(ctx context.Context, c *connection.Cluster) error {
	for c.IsControlPlane() {
		s := x.Snapshot()
		delay := signatureInterval
		if !s.Ready {
			delay = time.Second
		}
		found := map[Version]Signature{}
		for v, runtime := range s.unverified(x.now()) {
			is, err := readSignature(ctx, c, v, runtime)
			if console.ExitCode(c.Explain(err, "reading the signatures of "+v.Module)) == console.ExitForbidden {
				delay = signatureAge // the user may not read Manifests
				break
			}
			if err == nil {
				is.at = x.now()
				found[v] = is
			}
		}
		if len(found) > 0 {
			x.LoadSignatures(found)
		}
		if err := console.Sleep(ctx, delay); err != nil {
			return err
		}
	}
	return nil
}

// unverified returns at most maxSignatures versions whose signatures were not read within signatureAge. For each
// version, the result has a runtime with this version. A runtime in which the version is Ready is preferred.
func (s *Snapshot) unverified(now time.Time) map[Version]string {
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
	return all
}

// readSignature reads the finding of the manager about the signatures of a version in one runtime.
func readSignature(ctx context.Context, c *connection.Cluster, v Version, runtime string) (is Signature, err error) {
	ctx, cancel := context.WithTimeout(ctx, onDemandTimeout)
	defer cancel()
	// two reads by name are cheap: an API server finds objects by their labels only by looking at all objects
	k := &v1beta2.Kyma{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: runtime}, k); err != nil {
		return is, err
	}
	is.Runtime = runtime
	entry := k.ModuleStatus(v.Module)
	if entry == nil || entry.Manifest == nil {
		return is, nil
	}
	m := &v1beta2.Manifest{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: entry.Manifest.Metadata.Name}, m); err != nil {
		return is, client.IgnoreNotFound(err)
	}
	found := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionSignature)
	if m.Status.Version == v.Version && m.Spec.Version == v.Version && found != nil {
		is.Verified, is.Message = found.Status == metav1.ConditionTrue, found.Message
	}
	return is, nil
}

// LoadSignatures adds findings. Findings about versions that no runtime has are dropped.
func (x *Index) LoadSignatures(found map[Version]Signature) {
	used := map[Version]bool{}
	for _, n := range x.Snapshot().Tally().Versions {
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
			x.touch(Catalog)
		}
	}
	x.signatures = all
}
