// Package dedup stores values that many objects have in common only once in memory.
//
// # Use
//
//	cacheOptions.DefaultTransform = dedup.Transform()
//	refs = dedup.Share(&values, "expected "+dedup.InventoryKey(inventory), refs)
//
// # How it works
//
// In a fleet of ten thousand runtimes, most content of Kymas and Manifests is the same for all runtimes: names of
// modules, versions, inventories, sources, messages of conditions. [Values]
// stores equal strings once, and larger values by a key that identifies the content. Package unique does not fit,
// because it forgets a string at the next garbage collection if nobody has the handle of the string.
//
// # What it does not do
//
// The package does not protect shared values from changes. Therefore no caller may change a shared value.
package dedup

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Transform returns a function that transforms each object in the cache of the control plane. The transform removes the
// managedFields of the object. The function also replaces values in Manifests and Kymas by equal values that are
// shared. Objects in a cache with this transform share values, so a caller that reads them must not change them.
func Transform() toolscache.TransformFunc {
	removeManagedFields := cache.TransformStripManagedFields()
	var values Values
	return func(in any) (any, error) {
		out, err := removeManagedFields(in)
		switch o := out.(type) {
		case *v1beta2.Manifest:
			values.shareManifest(o)
		case *v1beta2.Kyma:
			values.shareKyma(o)
		}
		return out, err
	}
}

// Values stores values that several objects have in common, each of them once. Values has two generations of larger
// values: when the current generation is full, it replaces the former one, and a value of the former generation that is
// shared again moves to the current one. So values in use stay, and values out of use are removed. When the strings are
// full, all of them are removed, and later objects share strings with each other only. The zero value is ready to use.
// Values is safe for concurrent use.
type Values struct {
	mu              sync.Mutex
	current, former map[valueID]any   // guarded by mu
	valueBytes      int               // guarded by mu: the size of current
	texts           map[string]string // guarded by mu: each string by itself
	textBytes       int               // guarded by mu: the size of texts
}

// valueID is the SHA-256 digest of the key of a value. The key of an inventory is almost as large as the inventory.
type valueID [sha256.Size]byte

// Limits for the stored strings. In a fleet of 10,000 runtimes, the names of the runtimes need 1 MB, and the strings
// that runtimes have in common need less.
const (
	textBytesLimit = 16 << 20
	textOverhead   = 64 // estimated bytes for an entry of the map, beside the bytes of the string
)

// Limits for one generation of stored values. A fleet needs a few shared values (such as inventories and references)
// for each version of each module, and two for each runtime with a custom resource of its own. With 750 versions of 25
// objects and 10,000 such runtimes, they count as 12 MiB.
const (
	valueBytesLimit = 32 << 20
	valueOverhead   = 256 // estimated bytes for a value and its entry of the map, beside the bytes of the key
)

// Share returns the value that was stored first under this key. If no value is stored under this key, Share stores and
// returns value. The length of the key should be about the size of the value, because it counts for the limit.
func Share[V any](s *Values, key string, value V) V {
	id := valueID(sha256.Sum256([]byte(key)))
	s.mu.Lock()
	defer s.mu.Unlock()
	if first, ok := s.current[id].(V); ok {
		return first
	}
	if first, ok := s.former[id].(V); ok {
		value = first
	}
	if s.valueBytes += len(key) + valueOverhead; s.current == nil || s.valueBytes > valueBytesLimit {
		s.former, s.current, s.valueBytes = s.current, map[valueID]any{}, len(key)+valueOverhead
	}
	s.current[id] = value
	return value
}

// InventoryKey returns a key for the content of an inventory. Inventories with equal content have equal keys.
func InventoryKey(inventory []v1beta2.Resource) string {
	var b strings.Builder
	b.WriteString("synced")
	for _, r := range inventory {
		for _, part := range []string{r.Group, r.Version, r.Kind, r.Namespace, r.Name} {
			b.WriteByte(0)
			b.WriteString(part)
		}
		b.WriteByte(0)
		for _, flag := range []bool{r.Keep, r.Pending, r.Adopted, r.Shared} {
			b.WriteString(strconv.FormatBool(flag)[:1])
		}
	}
	return b.String()
}

// shareManifest replaces values in a Manifest by equal values that are shared.
func (s *Values) shareManifest(m *v1beta2.Manifest) {
	s.internMetadata(&m.ObjectMeta)
	if data, err := json.Marshal(m.Spec.Resource); err == nil && m.Spec.Resource != nil {
		m.Spec.Resource = Share[*unstructured.Unstructured](s, "resource "+string(data), m.Spec.Resource)
	}
	if w := m.Spec.Manager; w != nil {
		key := []string{"manager", w.Group, w.Version, w.Kind, w.Namespace, w.Name}
		m.Spec.Manager = Share(s, strings.Join(key, "\x00"), w)
	}
	m.Spec.Install.Source.Raw = Share(s, "source "+string(m.Spec.Install.Source.Raw), m.Spec.Install.Source.Raw)
	m.Status.Synced = Share(s, InventoryKey(m.Status.Synced), m.Status.Synced)
	m.Status.Conditions = s.internConditions(m.Status.Conditions)
	s.internAll(&m.Spec.Version, (*string)(&m.Spec.Target), (*string)(&m.Spec.CustomResourcePolicy),
		&m.Spec.StateExpression, &m.Spec.Install.Name, (*string)(&m.Status.State), &m.Status.Version,
		&m.Status.AppliedDigest, (*string)(&m.Status.Target), &m.Status.LastOperation.Operation)
	if m.Status.LastChange != nil {
		s.internChange(m.Status.LastChange)
	}
}

// shareKyma replaces values in a Kyma by equal values that are shared.
func (s *Values) shareKyma(k *v1beta2.Kyma) {
	s.internMetadata(&k.ObjectMeta)
	k.Spec.Modules = clip(k.Spec.Modules)
	for i := range k.Spec.Modules {
		m := &k.Spec.Modules[i]
		m.Managed = shareBool(m.Managed)
		s.internAll(&m.Name, &m.Channel, &m.Version, (*string)(&m.CustomResourcePolicy))
	}
	s.internAll(&k.Spec.Channel, (*string)(&k.Status.State), &k.Status.ActiveChannel, &k.Status.ModulesReady,
		&k.Status.Summary, &k.Status.CatalogDigest, &k.Status.KubernetesVersion, &k.Status.LastOperation.Operation)
	k.Status.Conditions = s.internConditions(k.Status.Conditions)
	k.Status.Modules = clip(k.Status.Modules)
	for i := range k.Status.Modules {
		m := &k.Status.Modules[i]
		s.internAll(&m.Name, &m.FQDN, &m.OCMComponentName, &m.Channel, &m.Version, &m.Message, &m.Reason,
			(*string)(&m.State))
		m.Resource, m.Template = s.shareReference(m.Resource), s.shareReference(m.Template)
		if m.Manifest != nil {
			s.internAll(&m.Manifest.APIVersion, &m.Manifest.Kind, &m.Manifest.Metadata.Namespace)
		}
		m.History = clip(m.History)
		for j := range m.History {
			s.internChange(&m.History[j])
		}
	}
	k.Status.MandatoryModules = clip(k.Status.MandatoryModules)
	for i := range k.Status.MandatoryModules {
		m := &k.Status.MandatoryModules[i]
		s.internAll(&m.Name, &m.Version, &m.OCMComponentName)
		m.Resource = s.shareReference(m.Resource)
	}
	if a := k.Status.Agent; a != nil {
		s.internAll(&a.Digest, &a.Version, &a.Reason, &a.Message)
		a.Synced = Share(s, InventoryKey(a.Synced), a.Synced)
		if c := a.Certificate; c != nil {
			s.internAll(&c.Root, &c.RootInUse, &c.Bundle)
		}
	}
}

func (s *Values) internChange(c *v1beta2.ModuleChange) {
	s.internAll(&c.Version, &c.From, (*string)(&c.Outcome))
}

// shareReference returns a reference that is equal to r. All objects with an equal reference share this one.
func (s *Values) shareReference(r *v1beta2.ObjectReference) *v1beta2.ObjectReference {
	if r == nil {
		return nil
	}
	m := r.Metadata
	key := []string{"reference", r.APIVersion, r.Kind, m.Namespace, m.Name, strconv.FormatInt(m.Generation, 10)}
	return Share(s, strings.Join(key, "\x00"), r)
}

func (s *Values) internMetadata(m *metav1.ObjectMeta) {
	m.Labels, m.Annotations = s.internMap(m.Labels), s.internMap(m.Annotations)
	m.Finalizers, m.OwnerReferences = clip(m.Finalizers), clip(m.OwnerReferences)
	for i := range m.Finalizers {
		s.internAll(&m.Finalizers[i])
	}
	for i := range m.OwnerReferences { // all Manifests of a Kyma have the same owner
		o := &m.OwnerReferences[i]
		s.internAll(&o.APIVersion, &o.Kind, &o.Name, (*string)(&o.UID))
		o.Controller, o.BlockOwnerDeletion = shareBool(o.Controller), shareBool(o.BlockOwnerDeletion)
	}
	s.internAll(&m.Namespace)
}

// isTrue and isFalse are the shared values of all optional booleans.
var isTrue, isFalse = new(true), new(false)

// shareBool returns a pointer to the same value. All objects with this value share the pointer.
func shareBool(b *bool) *bool {
	switch {
	case b == nil:
		return nil
	case *b:
		return isTrue
	}
	return isFalse
}

func (s *Values) internConditions(all []metav1.Condition) []metav1.Condition {
	all = clip(all)
	for i := range all {
		c := &all[i]
		s.internAll(&c.Type, &c.Reason, &c.Message)
		c.Status = metav1.ConditionStatus(s.intern(string(c.Status)))
	}
	return all
}

// clip returns a slice without unused capacity. Decoding creates slices that have unused capacity, which costs memory.
func clip[S ~[]E, E any](all S) S {
	if len(all) == cap(all) {
		return all
	}
	return append(make(S, 0, len(all)), all...)
}

// intern returns the shared copy of a string. Equal strings have the same shared copy.
func (s *Values) intern(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first, ok := s.texts[text]; ok {
		return first
	}
	if s.textBytes += len(text) + textOverhead; s.texts == nil || s.textBytes > textBytesLimit {
		s.texts, s.textBytes = map[string]string{}, len(text)+textOverhead
	}
	text = strings.Clone(text) // the caller's string may be part of a larger one
	s.texts[text] = text
	return text
}

// internAll replaces each string by its shared copy.
func (s *Values) internAll(texts ...*string) {
	for _, text := range texts {
		*text = s.intern(*text)
	}
}

// internMap returns a copy of a map. Equal keys and values in different copied maps share their memory.
func (s *Values) internMap(all map[string]string) map[string]string {
	if all == nil {
		return nil
	}
	out := make(map[string]string, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		out[s.intern(key)] = s.intern(all[key])
	}
	return out
}
