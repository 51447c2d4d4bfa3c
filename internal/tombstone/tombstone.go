// Package tombstone is the format of tombstones. A tombstone is the record of a deletion that was given up: it lists
// the objects that are left in a runtime which could not be reached. A controller deletes them when the runtime can be
// reached again, or a person does.
//
// # Use
//
//	t := tombstone.New(kyma, manifests, delivered)
//	maps, err := t.ConfigMaps("kcp-system")  // create all of them before any finalizer is removed
//	all, err := tombstone.Read(maps)         // the oldest first
//
// # How it works
//
// A tombstone is a ConfigMap with the labels v1beta2.LabelTombstone and v1beta2.LabelKymaName, and JSON under [Key]. It
// lists references to objects in the order of their deletion: for each module its custom resource and then its
// inventory, and at the end the objects that the runtime got from Lifecycle Manager itself. A tombstone that does not
// fit into one ConfigMap has several, each of which can be read by itself. A tombstone has no owner reference, because
// it remains after the Kyma and its Manifests are deleted.
//
// # What it does not do
//
// It makes no requests, and a tombstone contains no credential: the access Secret is needed to connect to the runtime.
package tombstone

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Key is the key of the ConfigMap under which the tombstone is, as JSON.
const Key = "tombstone.json"

// Tombstone is the record of one deletion that was given up.
type Tombstone struct {
	// Kyma and UID name the Kyma that was given up.
	Kyma string    `json:"kyma"`
	UID  types.UID `json:"uid"`
	// DeletedAt is when the Kyma was deleted.
	DeletedAt metav1.Time `json:"deletedAt"`
	// UnreachableSince is when the runtime could not be reached for the first time.
	UnreachableSince metav1.Time `json:"silentSince"`
	// GivenUpAt is when the deletion was given up.
	GivenUpAt metav1.Time `json:"givenUpAt"`
	// Reason and Message are of the error for which the runtime could not be reached.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Modules are the modules of the Kyma, sorted by Manifest.
	Modules []Module `json:"modules,omitempty"`
	// Runtime are the objects that the runtime got apart from modules: the Kyma, the agent, the pull Secret, and CRDs,
	// with which all custom resources of them are deleted.
	Runtime []v1beta2.Resource `json:"runtime,omitempty"`
}

// Module is the part of one Manifest.
type Module struct {
	Name     string `json:"name"`
	Manifest string `json:"manifest"`
	// Resource is the module's own custom resource, which is deleted first; nil if it has none, or if it belongs to the
	// user.
	Resource *v1beta2.Resource `json:"resource,omitempty"`
	// Objects are the inventory. Custom resources of its CRDs are deleted before it.
	Objects []v1beta2.Resource `json:"objects,omitempty"`
}

// New returns the tombstone of a Kyma with the inventories of its Manifests, except for modules that were handed over
// to the user, and the objects that were delivered to the runtime apart from modules. The caller sets UnreachableSince,
// GivenUpAt, Reason and Message.
func New(k *v1beta2.Kyma, manifests []*v1beta2.Manifest, delivered []v1beta2.Resource) Tombstone {
	t := Tombstone{Kyma: k.Name, UID: k.UID, Runtime: delivered}
	if k.DeletionTimestamp != nil {
		t.DeletedAt = *k.DeletionTimestamp
	}
	for _, m := range manifests {
		if m.IsUnmanaged() {
			continue
		}
		module := Module{Name: cmp.Or(m.Labels[v1beta2.LabelModuleName], m.Name),
			Manifest: m.Name, Objects: m.Status.Synced}
		if cr := m.Spec.Resource; cr != nil && m.Spec.CustomResourcePolicy != v1beta2.Ignore {
			gvk := cr.GroupVersionKind()
			module.Resource = &v1beta2.Resource{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind,
				Namespace: cr.GetNamespace(), Name: cr.GetName()}
		}
		t.Modules = append(t.Modules, module)
	}
	slices.SortFunc(t.Modules, func(a, b Module) int { return cmp.Compare(a.Manifest, b.Manifest) })
	return t
}

// Count returns the number of listed objects.
func (t *Tombstone) Count() int {
	n := len(t.Runtime)
	for _, m := range t.Modules {
		n += len(m.Objects)
		if m.Resource != nil {
			n++
		}
	}
	return n
}

const (
	// bytesLimit is the maximum size of one ConfigMap. The API server accepts 1 MiB.
	bytesLimit = 900 << 10
	// objectsLimit is the maximum number of objects in one piece of a module. With the longest names they are smaller
	// than bytesLimit.
	objectsLimit = 800
	// messageLimit is the maximum size of the message, which is in every part.
	messageLimit = 1 << 10
)

// ConfigMaps returns the ConfigMaps of the tombstone: one, or several if it is large.
func (t Tombstone) ConfigMaps(namespace string) ([]*corev1.ConfigMap, error) {
	if len(t.Message) > messageLimit {
		t.Message = strings.ToValidUTF8(t.Message[:messageLimit], "") + "…"
	}
	pieces := splitLargeModules(t.Modules)
	part := t
	part.Modules = nil
	header, err := json.Marshal(part) // with Runtime, so that there is room for it in each part
	if err != nil {
		return nil, fmt.Errorf("encoding the tombstone of Kyma %s: %w", t.Kyma, err)
	}
	parts, used := []Tombstone{part}, len(header)
	for _, piece := range pieces {
		encoded, err := json.Marshal(piece)
		if err != nil {
			return nil, fmt.Errorf("encoding the tombstone of Kyma %s: %w", t.Kyma, err)
		}
		last := &parts[len(parts)-1]
		if used+len(encoded)+1 > bytesLimit && len(last.Modules) > 0 {
			last.Runtime = nil // only the last part has it
			parts = append(parts, part)
			last, used = &parts[len(parts)-1], len(header)
		}
		last.Modules = append(last.Modules, piece)
		used += len(encoded) + 1
	}
	maps := make([]*corev1.ConfigMap, len(parts))
	for i := range parts {
		if maps[i], err = parts[i].configMap(namespace, i); err != nil {
			return nil, err
		}
	}
	return maps, nil
}

// splitLargeModules splits modules that are too large for one ConfigMap.
func splitLargeModules(modules []Module) []Module {
	var pieces []Module
	for _, m := range modules {
		if len(m.Objects) <= objectsLimit {
			pieces = append(pieces, m)
			continue
		}
		for objects := range slices.Chunk(m.Objects, objectsLimit) {
			pieces = append(pieces, Module{Name: m.Name, Manifest: m.Manifest, Resource: m.Resource, Objects: objects})
		}
	}
	return pieces
}

// configMap returns the ConfigMap of part i.
func (t *Tombstone) configMap(namespace string, i int) (*corev1.ConfigMap, error) {
	data, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encoding the tombstone of Kyma %s: %w", t.Kyma, err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: Name(t.Kyma, t.UID, i),
			Labels: map[string]string{
				v1beta2.LabelTombstone: v1beta2.ValueTrue,
				v1beta2.LabelKymaName:  t.Kyma,
				v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager,
			},
		},
		Data: map[string]string{Key: string(data)},
	}, nil
}

// Name returns the name of part i, counted from 0, of the tombstone of a Kyma: tombstone-KYMA-UID[-PART]. The UID makes
// it different for a later Kyma of the same name.
func Name(kyma string, uid types.UID, i int) string {
	const limit = 200 // of 253 characters of a name
	name := "tombstone-" + kyma[:min(len(kyma), limit)] + "-" + string(uid)
	if i > 0 {
		name += "-" + strconv.Itoa(i+1)
	}
	return name
}

// Stored is a tombstone with the names of its ConfigMaps.
type Stored struct {
	Tombstone
	ConfigMaps []string
}

// Read returns the tombstones in ConfigMaps, the oldest first. A ConfigMap that is not valid is left out; the first of
// them is the error.
func Read(maps []corev1.ConfigMap) ([]Stored, error) {
	var all []Stored
	var invalid error
	maps = slices.SortedFunc(slices.Values(maps), func(
		a, b corev1.ConfigMap) int {
		return cmp.Compare(a.Name, b.Name)
	})
	for i := range maps {
		var t Tombstone
		if err := json.Unmarshal([]byte(maps[i].Data[Key]), &t); err != nil || t.Kyma == "" || t.UID == "" {
			invalid = cmp.Or(invalid, fmt.Errorf("reading tombstone %s: key %s has no tombstone: correct or delete it",
				maps[i].Name, Key))
			continue
		}
		at := slices.IndexFunc(all, func(s Stored) bool { return s.Kyma == t.Kyma && s.UID == t.UID })
		if at < 0 {
			all = append(all, Stored{Tombstone: t, ConfigMaps: []string{maps[i].Name}})
			continue
		}
		all[at].add(t, maps[i].Name)
	}
	slices.SortStableFunc(all, func(a, b Stored) int { return a.GivenUpAt.Compare(b.GivenUpAt.Time) })
	return all, invalid
}

// add adds another part of the tombstone.
func (s *Stored) add(t Tombstone, name string) {
	s.ConfigMaps = append(s.ConfigMaps, name)
	s.Runtime = append(s.Runtime, t.Runtime...)
	for _, m := range t.Modules {
		at := slices.IndexFunc(s.Modules, func(known Module) bool { return known.Manifest == m.Manifest })
		if at < 0 {
			s.Modules = append(s.Modules, m)
			continue
		}
		s.Modules[at].Objects = slices.Concat(s.Modules[at].Objects, m.Objects)
	}
}
