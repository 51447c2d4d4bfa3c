package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// Memory for ten thousand runtimes: most of what is known of a module is the same in all of them, and is kept once.

// Slim returns a transformation for the cache of the control plane: objects lose their managedFields, and Manifests share with others what
// is equal. Nothing of what it returns may be changed.
func Slim() toolscache.TransformFunc {
	strip := cache.TransformStripManagedFields()
	var all shared
	return func(in any) (any, error) {
		out, err := strip(in)
		if m, ok := out.(*v1beta2.Manifest); ok && err == nil {
			all.slim(m)
		}
		return out, err
	}
}

// shared holds values that many Manifests have, each once. It forgets all of them when there are too many.
type shared struct {
	mu     sync.Mutex
	values map[string]any // guarded by mu
}

// mostShared bounds the values; a fleet has a few for each version of each module.
const mostShared = 4096

// share returns the value of that key which was there first.
func share[V any](s *shared, key string, value V) V {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first, ok := s.values[key].(V); ok {
		return first
	}
	if s.values == nil || len(s.values) >= mostShared {
		s.values = map[string]any{}
	}
	s.values[key] = value
	return value
}

// interests returns interests that are equal to others as the same.
func (s *shared) interests(all []runtimes.Interest) []runtimes.Interest {
	return share(s, fmt.Sprint("interests ", all), slices.Clip(all))
}

// slim replaces what a Manifest has in common with others.
func (s *shared) slim(m *v1beta2.Manifest) {
	m.Labels, m.Annotations = sharedStrings(m.Labels), sharedStrings(m.Annotations)
	for i, f := range m.Finalizers {
		m.Finalizers[i] = same(f)
	}
	if data, err := json.Marshal(m.Spec.Resource); err == nil && m.Spec.Resource != nil {
		m.Spec.Resource = share[*unstructured.Unstructured](s, "resource "+string(data), m.Spec.Resource)
	}
	m.Spec.Install.Source.Raw = share(s, "source "+string(m.Spec.Install.Source.Raw), m.Spec.Install.Source.Raw)
	m.Status.Synced = share(s, keyOf(m.Status.Synced), m.Status.Synced)
	for i := range m.Status.Conditions {
		c := &m.Status.Conditions[i]
		c.Type, c.Status, c.Reason, c.Message = same(c.Type), metav1.ConditionStatus(same(string(c.Status))), same(c.Reason), same(c.Message)
	}
	m.Status.LastOperation.Operation = same(m.Status.LastOperation.Operation)
}

// keyOf identifies an inventory.
func keyOf(synced []v1beta2.Resource) string {
	var b strings.Builder
	b.WriteString("synced")
	for _, r := range synced {
		for _, part := range []string{r.Group, r.Version, r.Kind, r.Namespace, r.Name, strconv.FormatBool(r.Keep)} {
			b.WriteByte(0)
			b.WriteString(part)
		}
	}
	return b.String()
}

// same returns a string that is kept once for all who have an equal one.
func same(text string) string { return unique.Make(text).Value() }

func sharedStrings(all map[string]string) map[string]string {
	if all == nil {
		return nil
	}
	out := make(map[string]string, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		out[same(key)] = same(all[key])
	}
	return out
}
