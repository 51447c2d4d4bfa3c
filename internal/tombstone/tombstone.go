// Package tombstone defines the format of tombstones. A tombstone is the record of a deletion that was given up because
// the runtime was unreachable. The tombstone lists the objects that remain in the runtime. When the runtime is
// reachable again, a controller or a person deletes these objects.
//
// # Use
//
//	t := tombstone.New(kyma, manifests, delivered)
//	maps, err := t.ConfigMaps("kcp-system")  // create all of them before any finalizer is removed
//	all, err := tombstone.Read(maps)         // the oldest first
//
// # How it works
//
// A tombstone is a ConfigMap with the labels v1beta2.LabelTombstone and v1beta2.LabelKymaName. The ConfigMap has the
// tombstone as JSON, under the key [Key]. A tombstone lists references to objects in the order of their deletion. For
// each module, the list contains first the custom resource and then the inventory of the module. The last entries of
// the list are the objects that Lifecycle Manager itself has created in the runtime. A tombstone that is too large for
// one ConfigMap is stored in several ConfigMaps. A person can read each ConfigMap of a large tombstone by itself. A
// tombstone has no owner reference, because it must remain after its Kyma and the Manifests were deleted.
//
// # What it does not do
//
// The package sends no requests. A tombstone contains no credentials, so the access Secret is needed to connect to the
// runtime.
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

// Key is the key in the ConfigMap under which the tombstone is stored as JSON.
const Key = "tombstone.json"

// Tombstone is the record of one deletion that was given up.
type Tombstone struct {
	// Kyma and UID are the name and the UID of the deleted Kyma.
	Kyma string    `json:"kyma"`
	UID  types.UID `json:"uid"`
	// ClusterID is the UID of the Namespace kube-system in the runtime. If this UID is not known, ClusterID is "".
	ClusterID string `json:"clusterID,omitempty"`
	// DeletedAt is the time at which the Kyma was deleted.
	DeletedAt metav1.Time `json:"deletedAt"`
	// UnreachableSince is the time of the first failed attempt to reach the runtime.
	UnreachableSince metav1.Time `json:"silentSince"`
	// GivenUpAt is the time at which the deletion was given up.
	GivenUpAt metav1.Time `json:"givenUpAt"`
	// Reason and Message are those of the error because of which the runtime counted as unreachable.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Modules are the modules of the Kyma, sorted by Manifest.
	Modules []Module `json:"modules,omitempty"`
	// Runtime lists the objects in the runtime that do not belong to modules: the Kyma, the agent, the pull Secret, and
	// CRDs. If a CRD is deleted, all custom resources of its kind are deleted, too.
	Runtime []v1beta2.Resource `json:"runtime,omitempty"`
}

// Module is the part of a tombstone that is about one Manifest.
type Module struct {
	Name     string `json:"name"`
	Manifest string `json:"manifest"`
	// Resource is the module's own custom resource, which is deleted first. Resource is nil if the module has no custom
	// resource, or if the custom resource belongs to the user.
	Resource *v1beta2.Resource `json:"resource,omitempty"`
	// Objects is the inventory of the module. If the inventory contains CRDs, the custom resources of these CRDs are
	// deleted before the objects in the inventory.
	Objects []v1beta2.Resource `json:"objects,omitempty"`
}

// New returns the tombstone of a Kyma. The tombstone contains the inventories of the Kyma's Manifests. Left out are
// modules that were handed over to the user, and modules on the control plane. The argument delivered lists further
// objects in the runtime, which do not belong to modules. The caller has to set UnreachableSince, GivenUpAt, Reason and
// Message.
func New(k *v1beta2.Kyma, manifests []*v1beta2.Manifest, delivered []v1beta2.Resource) Tombstone {
	t := Tombstone{Kyma: k.Name, UID: k.UID, ClusterID: k.Status.ClusterID, Runtime: delivered}
	if k.DeletionTimestamp != nil {
		t.DeletedAt = *k.DeletionTimestamp
	}
	for _, m := range manifests {
		if m.IsUnmanaged() || m.InstalledOrSpecTarget() == v1beta2.TargetControlPlane {
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

// ObjectCount returns the number of objects in the tombstone.
func (t *Tombstone) ObjectCount() int {
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
	// bytesLimit is the maximum size of one ConfigMap. The API server accepts objects of at most 1 MiB.
	bytesLimit = 900 << 10
	// objectsLimit is the maximum number of objects in one piece of a module. Even if all objects have names of the
	// maximum length, 800 objects need less than bytesLimit bytes of JSON.
	objectsLimit = 800
	// messageLimit is the maximum size of Tombstone.Message in bytes. If a tombstone is stored in several ConfigMaps,
	// each of them contains the message.
	messageLimit = 1 << 10
)

// ConfigMaps returns the ConfigMaps in which the tombstone is stored. A tombstone that is too large for one ConfigMap
// is stored in several.
func (t Tombstone) ConfigMaps(namespace string) ([]*corev1.ConfigMap, error) {
	if len(t.Message) > messageLimit {
		t.Message = strings.ToValidUTF8(t.Message[:messageLimit], "") + "…"
	}
	pieces := splitLargeModules(t.Modules)
	part := t
	part.Modules = nil
	header, err := json.Marshal(part) // includes Runtime, so that Runtime fits into each part
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
			last.Runtime = nil // only the last part contains Runtime
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

// splitLargeModules splits the modules that are too large for one ConfigMap.
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

// configMap returns the ConfigMap for one part of a large tombstone. The parameter i is the number of the part.
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

// Name returns the name of the ConfigMap with part i of the tombstone of a Kyma: tombstone-KYMA-UID[-PART]. The first
// part has number 0. The UID distinguishes the tombstones of successive Kymas with the same name.
func Name(kyma string, uid types.UID, i int) string {
	const limit = 200 // a name in Kubernetes has at most 253 characters
	name := "tombstone-" + kyma[:min(len(kyma), limit)] + "-" + string(uid)
	if i > 0 {
		name += "-" + strconv.Itoa(i+1)
	}
	return name
}

// Stored is a tombstone together with the names of its ConfigMaps.
type Stored struct {
	Tombstone
	ConfigMaps []string
}

// Read returns the tombstones in the given ConfigMaps, sorted by age, the oldest first. ConfigMaps that are not valid
// are left out of the result. The error describes the first ConfigMap that is not valid.
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

// add adds another part to a tombstone.
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
