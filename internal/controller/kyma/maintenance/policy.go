// Package maintenance holds the maintenance policy that is in force, and notices when the wall clock is set.
//
// # Use
//
//	p := maintenance.New(maintenance.Options{Client: c, Namespace: ns, ConfigMap: name, MinWindow: time.Hour})
//	p.RefreshConfigMap(ctx)
//	policy, problem := p.InForce(), p.Problem()
//	p.FollowFile(ctx, enqueue)                        // calls enqueue after each change of the file
//	maintenance.FollowClock(ctx, enqueue)             // calls enqueue after the wall clock was set
//
// # How it works
//
// The policy is in a ConfigMap or in a file. If the policy is in a ConfigMap, every call of RefreshConfigMap reads it
// from the cache, so that no decision uses an outdated policy. If the policy is in a file, the package reads the file
// every 5 seconds. A policy that cannot be parsed does not replace the policy in force, and Problem returns the parse
// error. If no policy is in force, updates that need a window are blocked, and the blocker shows the parse error. If
// the policy is removed from the ConfigMap or the file, no policy is in force.
//
// # What it does not do
//
// The package does not decide when a module is updated: package channel decides that with the policy.
package maintenance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
	"github.com/kyma-fleet/lifecycle-manager/internal/metrics"
)

// fileReadInterval is the time between two reads of the file with the policy.
const fileReadInterval = 5 * time.Second

// Options has the source of the policy and the settings of the package.
type Options struct {
	// Client reads the ConfigMap from the cache.
	Client client.Reader
	// Namespace is the namespace of the ConfigMap.
	Namespace string
	// ConfigMap is the name of the ConfigMap with the policy. "" means that the policy is in File.
	ConfigMap string
	// File is the path of the file with the policy. The file need not exist. If File and ConfigMap are both "", there
	// is no policy.
	File string
	// MinWindow is the minimum remaining time of a maintenance window: an update starts only if the window stays open
	// at least this long.
	MinWindow time.Duration
	// Events records an event on the ConfigMap when the ConfigMap cannot be parsed. nil means that no events are
	// recorded.
	Events events.EventRecorder
}

// Policies stores the policy in force. Policies is safe for concurrent use.
type Policies struct {
	options Options

	mu      sync.Mutex
	version string          // guarded by mu: of the policy that was read last, valid or not; "" if there is none
	inForce *channel.Policy // guarded by mu
	problem error           // guarded by mu: why the policy that was read last is not in force
}

// New returns Policies without a policy in force. [Policies.RefreshConfigMap] or [Policies.RefreshFile] reads one.
func New(o Options) *Policies { return &Policies{options: o} }

// UsesFile reports whether the policy is in a file.
func (p *Policies) UsesFile() bool { return p.options.ConfigMap == "" && p.options.File != "" }

// InForce returns the policy in force, or nil if there is none.
func (p *Policies) InForce() *channel.Policy {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inForce
}

// Problem returns the reason why the policy that was read last is not in force. If the policy that was read last is in
// force, Problem returns nil.
func (p *Policies) Problem() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.problem
}

// RefreshConfigMap reads the ConfigMap with the policy from the cache. If the policy is in a file, RefreshConfigMap
// does nothing.
func (p *Policies) RefreshConfigMap(ctx context.Context) {
	if p.options.ConfigMap == "" {
		return
	}
	cm := &corev1.ConfigMap{}
	err := p.options.Client.Get(ctx, types.NamespacedName{Namespace: p.options.Namespace, Name: p.options.ConfigMap},
		cm)
	version := string(cm.UID) + " " + cm.ResourceVersion
	switch {
	case apierrors.IsNotFound(err):
		version = ""
	case err != nil:
		return // whether a policy exists is not known: the policy in force stays
	}
	changed, problem := p.putInForceIfChanged(version, func() (*channel.Policy,
		error) {
		return channel.PolicyFromConfigMap(cm.Data)
	})
	if !changed {
		return
	}
	logChange(ctx, "ConfigMap "+p.options.ConfigMap, version, problem, p.InForce().Warnings())
	if p.options.Events == nil || version == "" {
		return
	}
	if problem != nil {
		p.options.Events.Eventf(cm, nil, corev1.EventTypeWarning, v1beta2.ReasonInvalidPolicy, "Read", "%s",
			loop.ClipLine(problem.Error()))
	} else if ignored := p.InForce().Warnings(); len(ignored) > 0 {
		p.options.Events.Eventf(cm, nil, corev1.EventTypeWarning, v1beta2.ReasonFieldIgnored, "Read",
			"the policy is in force, but parts of it are ignored: %s", loop.ClipLine(strings.Join(ignored, "; ")))
	}
}

// FollowFile reads the file with the policy until ctx ends, and calls changed after each change.
func (p *Policies) FollowFile(ctx context.Context, changed func()) {
	ticker := time.NewTicker(fileReadInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if p.RefreshFile(ctx) {
			changed()
		}
	}
}

// RefreshFile reads the file with the policy, and reports whether the file has changed since the previous read.
func (p *Policies) RefreshFile(ctx context.Context) bool {
	data, err := readUpToSizeLimit(p.options.File)
	version := ""
	if !errors.Is(err, fs.ErrNotExist) {
		version = fmt.Sprintf("%v %s", err, data) // the file is small, and versions are rarely compared
	}
	changed, problem := p.putInForceIfChanged(version, func() (*channel.Policy, error) {
		if err != nil {
			return nil, &channel.MaintenancePolicyError{Problem: err.Error()}
		}
		return channel.ParsePolicy(data)
	})
	if changed {
		logChange(ctx, p.options.File, version, problem, p.InForce().Warnings())
	}
	return changed
}

// putInForceIfChanged puts a policy in force. If version is the version that was read last, putInForceIfChanged does
// nothing. Version "" means that there is no policy. putInForceIfChanged returns whether the version has changed, and
// an error if the policy cannot be used.
func (p *Policies) putInForceIfChanged(version string, parse func() (*channel.Policy, error)) (
	changed bool, problem error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if version == p.version {
		return false, p.problem
	}
	p.version, p.problem = version, nil
	if version == "" {
		p.inForce = nil
		metrics.MaintenancePolicyValid.Set(0)
		return true, nil
	}
	policy, err := parse()
	if err != nil {
		if p.inForce.IsUsable() {
			p.problem = fmt.Errorf("%w; the previous policy stays in force", err)
		} else {
			p.inForce = channel.UnusablePolicy(err)
			p.problem = fmt.Errorf("%w; no policy is in force, and updates that need a maintenance window wait", err)
		}
		metrics.MaintenancePolicyValid.Set(0)
		return true, p.problem
	}
	policy.MinRemaining, p.inForce = p.options.MinWindow, policy
	metrics.MaintenancePolicyValid.Set(1)
	return true, nil
}

// logChange logs whether a policy is in force after a change, and any problem of the policy.
func logChange(ctx context.Context, where, version string, problem error, ignored []string) {
	switch l := log.FromContext(ctx).WithValues("from", where); {
	case problem != nil:
		l.Error(problem, "the maintenance policy cannot be used")
	case version == "":
		l.Info("there is no maintenance policy")
	default:
		l.Info("a maintenance policy is in force", "ignored", ignored)
	}
}

// readUpToSizeLimit reads at most one byte more than the maximum size of a policy from a file. The parser refuses data
// that is larger than the maximum size, so a file that is too large is not accepted in part.
func readUpToSizeLimit(path string) ([]byte, error) {
	const limit = 1<<20 + 1
	f, err := os.Open(path) //nolint:gosec // the operator who starts the manager names the file
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	return io.ReadAll(io.LimitReader(f, limit))
}
