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

// Slim returns a transformation for the cache of the control plane: objects lose their managedFields, and Manifests and Kymas share with others what
// is equal. Nothing of what it returns may be changed.
func Slim() toolscache.TransformFunc {
	strip := cache.TransformStripManagedFields()
	var all shared
	return func(in any) (any, error) {
		out, err := strip(in)
		switch o := out.(type) {
		case *v1beta2.Manifest:
			all.slim(o)
		case *v1beta2.Kyma:
			all.slimKyma(o)
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
	slimMeta(&m.ObjectMeta)
	if data, err := json.Marshal(m.Spec.Resource); err == nil && m.Spec.Resource != nil {
		m.Spec.Resource = share[*unstructured.Unstructured](s, "resource "+string(data), m.Spec.Resource)
	}
	m.Spec.Install.Source.Raw = share(s, "source "+string(m.Spec.Install.Source.Raw), m.Spec.Install.Source.Raw)
	m.Status.Synced = share(s, keyOf(m.Status.Synced), m.Status.Synced)
	m.Status.Conditions = slimConditions(m.Status.Conditions)
	m.Status.LastOperation.Operation = same(m.Status.LastOperation.Operation)
}

// slimKyma replaces what a Kyma has in common with others.
func (s *shared) slimKyma(k *v1beta2.Kyma) {
	slimMeta(&k.ObjectMeta)
	k.Spec.Modules = exact(k.Spec.Modules)
	for i := range k.Spec.Modules {
		sameAll(&k.Spec.Modules[i].Name, &k.Spec.Modules[i].Channel, &k.Spec.Modules[i].Version)
	}
	k.Status.Conditions = slimConditions(k.Status.Conditions)
	k.Status.Modules = exact(k.Status.Modules)
	for i := range k.Status.Modules {
		m := &k.Status.Modules[i]
		sameAll(&m.Name, &m.FQDN, &m.OCMComponentName, &m.Channel, &m.Version, &m.Message, &m.Reason)
		m.State = v1beta2.State(same(string(m.State)))
		m.Resource, m.Template = s.reference(m.Resource), s.reference(m.Template)
		if m.Manifest != nil {
			sameAll(&m.Manifest.APIVersion, &m.Manifest.Kind, &m.Manifest.Metadata.Namespace)
		}
	}
	if a := k.Status.Agent; a != nil {
		sameAll(&a.Digest, &a.Version, &a.Reason, &a.Message)
		a.Synced = share(s, keyOf(a.Synced), a.Synced)
	}
}

// reference returns a reference that is equal to others as the same.
func (s *shared) reference(r *v1beta2.ObjectReference) *v1beta2.ObjectReference {
	if r == nil {
		return nil
	}
	m := r.Metadata
	return share(s, strings.Join([]string{"reference", r.APIVersion, r.Kind, m.Namespace, m.Name, strconv.FormatInt(m.Generation, 10)}, "\x00"), r)
}

func slimMeta(m *metav1.ObjectMeta) {
	m.Labels, m.Annotations = sharedStrings(m.Labels), sharedStrings(m.Annotations)
	m.Finalizers, m.OwnerReferences = exact(m.Finalizers), exact(m.OwnerReferences)
	for i := range m.Finalizers {
		sameAll(&m.Finalizers[i])
	}
	for i := range m.OwnerReferences {
		sameAll(&m.OwnerReferences[i].APIVersion, &m.OwnerReferences[i].Kind)
	}
	sameAll(&m.Namespace)
}

func slimConditions(all []metav1.Condition) []metav1.Condition {
	all = exact(all)
	for i := range all {
		c := &all[i]
		sameAll(&c.Type, &c.Reason, &c.Message)
		c.Status = metav1.ConditionStatus(same(string(c.Status)))
	}
	return all
}

// exact returns a slice without the room that decoding leaves for more.
func exact[S ~[]E, E any](all S) S {
	if len(all) == cap(all) {
		return all
	}
	return append(make(S, 0, len(all)), all...)
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

func sameAll(texts ...*string) {
	for _, text := range texts {
		*text = same(*text)
	}
}

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
